//! Q5_0 and Q5_1: 32 codes of 5 bits with a scale, and for Q5_1 an offset.

use super::q4::{put_nibbles32, reference_codes, reference_offset, searched, searched_offset};
use super::u32_at;
use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::{Linear, blocks, half_of};
use crate::format::encode_blocks;

/// Block: d (half), the fifth bits (bit i for value i), 16 bytes of low nibbles as in Q4_0. value = d * (code - 16).
pub struct Q5_0;
/// Block: d, m (halfs), then as Q5_0. value = d * code + m.
pub struct Q5_1;

/// Codes in 0..32 from the fifth bits and the low nibbles.
#[inline(always)]
fn codes(high: u32, low: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| (if i < 16 { low[i] & 15 } else { low[i - 16] >> 4 }) | ((high >> i & 1) as u8) << 4)
}

impl BlockFormat for Q5_0 {
    type Bytes = [u8; 22];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 16;
    const SCALES: Scales = Scales::Half(&[0]);
    const ENCODE: Option<Encode> = Some(encode_q5_0);

    #[inline(always)]
    fn integers(b: &[u8; 22]) -> Self::Integers {
        Integers::plain(half_at(b, 0), codes(u32_at(b, 2), &b[6..]).map(|q| q as i8 - 16))
    }
}

impl BlockFormat for Q5_1 {
    type Bytes = [u8; 24];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 31;
    const MAX_MIN: i32 = 1;
    const SCALES: Scales = Scales::Half(&[0, 2]);
    const ENCODE: Option<Encode> = Some(encode_q5_1);

    #[inline(always)]
    fn integers(b: &[u8; 24]) -> Self::Integers {
        Integers::offset(half_at(b, 0), half_at(b, 2), codes(u32_at(b, 4), &b[8..]).map(|q| q as i8))
    }
}

/// Fifth bits and low nibbles of codes.
fn put(codes: &[u8; 32], to: &mut [u8]) {
    let high = (0..32).fold(0, |high, i| high | u32::from(codes[i] >> 4) << i);
    to[..4].copy_from_slice(&high.to_le_bytes());
    put_nibbles32(codes, &mut to[4..]);
}

fn encode_q5_0(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let pack = |(d, codes): (f32, [u8; 32])| {
        let mut b = [0; 22];
        b[..2].copy_from_slice(&half_of(d).to_le_bytes());
        put(&codes, &mut b[2..]);
        b
    };
    match importance {
        None => encode_blocks(values, out, |v: &[f32; 32], b| *b = pack(reference_codes(v, 16.0))),
        Some(_) => {
            let codec = Linear::new(-16, 15);
            blocks(values, importance, out, |v| searched(v, &codec, 16).map(pack));
        }
    }
}

fn encode_q5_1(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let pack = |(d, m, codes): (f32, f32, [u8; 32])| {
        let mut b = [0; 24];
        b[..2].copy_from_slice(&half_of(d).to_le_bytes());
        b[2..4].copy_from_slice(&half_of(m).to_le_bytes());
        put(&codes, &mut b[4..]);
        b
    };
    match importance {
        None => encode_blocks(values, out, |v: &[f32; 32], b| *b = pack(reference_offset(v, 31.0))),
        Some(_) => blocks(values, importance, out, |v| searched_offset(v, 31.0).map(pack)),
    }
}
