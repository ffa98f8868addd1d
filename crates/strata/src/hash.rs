//! The hash by which outputs are compared.

/// FNV-1a, 64 bits, over the ids as little-endian 32-bit numbers.
pub fn token_hash(ids: &[u32]) -> u64 {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// [`token_hash`] as 16 hexadecimal digits.
pub fn token_hash_hex(ids: &[u32]) -> String {
    format!("{:016x}", token_hash(ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(token_hash_hex(&[]), "cbf29ce484222325");
        // the published vectors of FNV-1a for "foob" and for four zero bytes before it is fed anything else
        assert_eq!(token_hash(&[u32::from_le_bytes(*b"foob")]), 0xdd12_0e79_0c25_12af);
        assert_ne!(token_hash(&[1, 2]), token_hash(&[2, 1]));
    }
}
