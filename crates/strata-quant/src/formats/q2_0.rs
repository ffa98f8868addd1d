//! Q2_0: 64 codes of 2 bits and a scale.

use crate::block::{BlockFormat, Integers, Scales, half_at};

/// Block: d (half), 16 bytes with four codes each, lowest bits first. value = d * (code - 1).
///
/// Two terms, since activations have a scale for every 32 values.
pub struct Q2_0;

impl BlockFormat for Q2_0 {
    type Bytes = [u8; 18];
    type Integers = Integers<64, 2, 2>;
    const MAX_CODE: i32 = 2;
    const SCALES: Scales = Scales::Half(&[0]);

    #[inline(always)]
    fn integers(b: &[u8; 18]) -> Self::Integers {
        let codes = std::array::from_fn(|i| (b[2 + i / 4] >> (i % 4 * 2) & 3) as i8 - 1);
        Integers { d: [half_at(b, 0); 2], dmin: 0.0, codes, subs: [1; 2], mins: [0; 2] }
    }
}
