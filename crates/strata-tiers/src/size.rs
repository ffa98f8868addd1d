//! Sizes as people write them: `48GiB`, `512M`, `1e9` is not one.

use thiserror::Error;

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected a size such as 48GiB, 512MiB or 4096, found {0:?}")]
pub struct SizeError(pub String);

/// Bytes of a text: digits, perhaps a fraction, and one of the units KiB, MiB, GiB, TiB (K, M, G, T and KB to TB mean the same:
/// multiples of 1024). Without a unit the number counts bytes.
///
/// # Errors
/// Anything else, and what does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let bad = || SizeError(text.to_owned());
    let t = text.trim();
    let at = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
    let (number, unit) = (&t[..at], t[at..].trim().to_ascii_lowercase());
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(bad);
    }
    let x: f64 = number.parse().map_err(|_| bad())?;
    let bytes = x * (1u64 << shift) as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 && shift > 0 { Ok(bytes as u64) } else { Err(bad()) }
}

/// A number of bytes for people.
pub fn format_size(n: u64) -> String {
    let mut x = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if x < 1024.0 {
            return if unit == "B" { format!("{n} B") } else { format!("{x:.1} {unit}") };
        }
        x /= 1024.0;
    }
    format!("{x:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("48GiB", 48 << 30), ("48 gb", 48 << 30), ("1.5G", 3 << 29), (" 7k ", 7168), ("2T", 2 << 40)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "-1", "1e9", "1.5", "48XB", "99999999999T", "1..2G", "0x10"] {
            assert_eq!(parse_size(text), Err(SizeError(text.into())), "{text}");
        }
        assert_eq!((format_size(1023), format_size(1536), format_size(48 << 30)), ("1023 B".into(), "1.5 KiB".into(), "48.0 GiB".into()));
        assert_eq!(format_size(u64::MAX), "16777216.0 TiB");
    }
}
