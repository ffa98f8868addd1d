//! IQ4_NL and IQ4_XS: 4-bit codes into one table of 16 values.

use super::q4::put_nibbles32;
use super::{nibble, nibbles32, u16_at};
use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::table::Table;
use crate::encode::{Codec, SubScales, Values, blocks, fit, half_of, super_block};

/// The values that the codes of the IQ4 formats stand for.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Block: d (half), 16 bytes of codes for 32 values as in Q4_0. value = d * [`IQ4_VALUES`]\[code\].
pub struct IQ4_NL;
/// Block: d (half), 8 x 2 upper bits of the sub-scales, 8 x 4 lower bits, then 16 bytes of codes for each of the 8
/// sub-blocks of 32. value = d * (scale - 32) * [`IQ4_VALUES`]\[code\].
pub struct IQ4_XS;

impl BlockFormat for IQ4_NL {
    type Bytes = [u8; 18];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 127;
    const SCALES: Scales = Scales::Half(&[0]);
    const ENCODE: Option<Encode> = Some(encode_iq4_nl);

    #[inline(always)]
    fn integers(b: &[u8; 18]) -> Self::Integers {
        Integers::plain(half_at(b, 0), nibbles32(&b[2..], |q| IQ4_VALUES[usize::from(q)]))
    }
}

impl IQ4_XS {
    /// Sub-scales of a block, in -32..=31.
    #[inline(always)]
    pub fn sub_scales(b: &[u8; 136]) -> [i8; 8] {
        let high = u16_at(b, 2);
        std::array::from_fn(|j| (nibble(&b[4..8], j) | ((high >> (2 * j) & 3) as u8) << 4) as i8 - 32)
    }
}

impl BlockFormat for IQ4_XS {
    type Bytes = [u8; 136];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = 127;
    const MAX_SUB: i32 = 32;
    const SCALES: Scales = Scales::Half(&[0]);
    const ENCODE: Option<Encode> = Some(encode_iq4_xs);

    #[inline(always)]
    fn integers(b: &[u8; 136]) -> Self::Integers {
        let codes = std::array::from_fn(|i| {
            let byte = b[8 + i / 32 * 16 + i % 16];
            IQ4_VALUES[usize::from(byte >> (i % 32 / 16 * 4) & 15)]
        });
        Integers::scaled(half_at(b, 0), IQ4_XS::sub_scales(b), codes)
    }
}

fn encode_iq4_nl(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let table = Table::new(&IQ4_VALUES);
    blocks(values, importance, out, |v: &Values<32>| {
        let mut codes = [0; 32];
        let d = v.half(fit(&table, &v.x, &v.w, &mut codes), 1.0);
        table.codes(&v.x, &v.w, d.d, &mut codes);
        let mut b = [0; 18];
        b[..2].copy_from_slice(&half_of(d.scale).to_le_bytes());
        put_nibbles32(&codes.map(|c| table.rank(c)), &mut b[2..]);
        (d.scale != 0.0).then_some(b)
    });
}

fn encode_iq4_xs(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let table = Table::new(&IQ4_VALUES);
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block::<_, 8>(&table, v, SubScales { first: -32, last: 31, step: 1 }, 1.0)?;
        let mut b = [0; 136];
        b[..2].copy_from_slice(&half_of(w.d[0]).to_le_bytes());
        for (j, sub) in w.subs.iter().map(|s| (s + 32) as u8).enumerate() {
            b[2 + j / 4] |= (sub >> 4) << (j % 4 * 2);
            b[4 + j / 2] |= (sub & 15) << (j % 2 * 4);
        }
        for (codes, to) in w.codes.as_chunks::<32>().0.iter().zip(b[8..].as_chunks_mut::<16>().0) {
            put_nibbles32(&codes.map(|c| table.rank(c)), to);
        }
        Some(b)
    });
}
