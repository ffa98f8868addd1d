//! Experts whose scales are looked at when they are first used: a stack may be larger than memory.

use crate::storage::StorageError;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_quant::{DType, first_non_finite};

/// One stack of a layer.
pub struct Stack {
    pub file: String,
    pub name: String,
    pub dtype: DType,
    pub bytes: Bytes,
    /// Experts whose scales were looked at when the model was bound: the first ones.
    pub checked: usize,
}

/// The stacks of one layer, and which of their experts are known to be good.
pub(crate) struct Unseen {
    stacks: Vec<Stack>,
    experts: usize,
    good: Vec<AtomicU64>,
}

impl Unseen {
    pub fn new(experts: usize, stacks: Vec<Stack>) -> Unseen {
        let first = stacks.iter().map(|s| s.checked).min().unwrap_or(experts);
        let word = |w: usize| (0..64).filter(|bit| w * 64 + bit < first).fold(0, |m, bit| m | 1 << bit);
        Unseen { stacks, experts, good: (0..experts.div_ceil(64)).map(|w| AtomicU64::new(word(w))).collect() }
    }

    /// Looks at the scales of those of `ids` that are used for the first time.
    ///
    /// # Errors
    /// The tensor and block of one that is not finite.
    pub fn check(&self, ids: &[u32]) -> Result<(), StorageError> {
        if self.stacks.is_empty() {
            return Ok(());
        }
        for &id in ids {
            let (word, bit) = (&self.good[id as usize / 64], 1u64 << (id % 64));
            // no other memory hangs on the bit: it only says that these constant bytes were looked at
            if word.load(Ordering::Relaxed) & bit != 0 {
                continue;
            }
            for s in &self.stacks {
                let stride = s.bytes.len() / self.experts;
                let at = id as usize * stride;
                if let Some(block) = first_non_finite(s.dtype, &s.bytes[at..at + stride]) {
                    let block = (at / s.dtype.block_bytes() + block) as u64;
                    return Err(StorageError::NotFinite { file: s.file.clone(), name: s.name.clone(), dtype: s.dtype, block });
                }
            }
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_infinite_scale_is_found_when_its_expert_is_used_and_not_before() {
        // 70 experts of two Q8_0 blocks; the second block of expert 66 has an infinite scale
        let mut bytes = vec![0u8; 70 * 68];
        bytes[66 * 68 + 34..66 * 68 + 36].copy_from_slice(&0x7c00u16.to_le_bytes());
        let stack = |checked| Stack { file: "f".into(), name: "t".into(), dtype: DType::Q8_0, bytes: bytes.clone().into(), checked };
        let u = Unseen::new(70, vec![stack(0)]);
        assert_eq!(u.check(&[0, 65, 67, 69]), Ok(()));
        let bad = StorageError::NotFinite { file: "f".into(), name: "t".into(), dtype: DType::Q8_0, block: 2 * 66 + 1 };
        assert_eq!(u.check(&[1, 66]), Err(bad.clone()));
        assert_eq!(u.check(&[66]), Err(bad.clone()), "it is not forgotten");
        // what was looked at before is not looked at again, and the least looked-at stack counts
        assert_eq!(Unseen::new(70, vec![stack(67)]).check(&[66]), Ok(()));
        assert_eq!(Unseen::new(70, vec![stack(67), stack(66)]).check(&[65, 66]), Err(bad));
    }
}
