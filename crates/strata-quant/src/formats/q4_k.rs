//! Q4_K and Q5_K: super-blocks of 256 values with integer sub-scales and minima.

use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::{Values, blocks, half_of, super_block_with_minima};

/// Block: d, dmin (halfs), 12 bytes of sub-scales, 128 bytes of codes: 32 bytes hold two sub-blocks, low nibbles
/// first. value = d * scale * code - dmin * min.
pub struct Q4_K;
/// As Q4_K, with 32 bytes before the codes that hold the fifth bits: bit `i` of byte `l` is for value `l` of
/// sub-block `i`.
pub struct Q5_K;

/// Sub-block scales and minima, 6 bits each, from their 12 bytes. Sub-blocks 0..4 have the low 6 bits of bytes `i` and `i + 4`;
/// the others have the nibbles of byte `i + 4` and, as bits 4 and 5, the top bits of those bytes.
#[inline(always)]
pub(crate) fn k_scales(packed: &[u8]) -> ([i8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = (packed[j] & 63) as i8;
        mins[j] = packed[j + 4] & 63;
        scales[j + 4] = (packed[j + 8] & 15 | packed[j] >> 6 << 4) as i8;
        mins[j + 4] = packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

impl BlockFormat for Q4_K {
    type Bytes = [u8; 144];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = 15;
    const MAX_SUB: i32 = 63;
    const MAX_MIN: i32 = 63;
    const SCALES: Scales = Scales::Half(&[0, 2]);
    const ENCODE: Option<Encode> = Some(encode_q4_k);

    #[inline(always)]
    fn integers(b: &[u8; 144]) -> Self::Integers {
        let (subs, mins) = k_scales(&b[4..16]);
        let codes = std::array::from_fn(|i| {
            let byte = b[16 + i / 64 * 32 + i % 32];
            (byte >> (i % 64 / 32 * 4) & 15) as i8
        });
        Integers { d: [half_at(b, 0)], dmin: half_at(b, 2), codes, subs, mins }
    }
}

impl BlockFormat for Q5_K {
    type Bytes = [u8; 176];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = 31;
    const MAX_SUB: i32 = 63;
    const MAX_MIN: i32 = 63;
    const SCALES: Scales = Scales::Half(&[0, 2]);
    const ENCODE: Option<Encode> = Some(encode_q5_k);

    #[inline(always)]
    fn integers(b: &[u8; 176]) -> Self::Integers {
        let (subs, mins) = k_scales(&b[4..16]);
        let codes = std::array::from_fn(|i| {
            let low = b[48 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
            let high = b[16 + i % 32] >> (i / 32) & 1;
            (low | high << 4) as i8
        });
        Integers { d: [half_at(b, 0)], dmin: half_at(b, 2), codes, subs, mins }
    }
}

/// Scales and the packed sub-scales and minima: the 16 bytes that both formats begin with.
fn put_scales(w: &Integers<256, 8, 1>, to: &mut [u8]) {
    to[..2].copy_from_slice(&half_of(w.d[0]).to_le_bytes());
    to[2..4].copy_from_slice(&half_of(w.dmin).to_le_bytes());
    for j in 0..4 {
        let (low, high) = ((w.subs[j] as u8, w.mins[j]), (w.subs[j + 4] as u8, w.mins[j + 4]));
        to[4 + j] = low.0 | high.0 >> 4 << 6;
        to[8 + j] = low.1 | high.1 >> 4 << 6;
        to[12 + j] = high.0 & 15 | (high.1 & 15) << 4;
    }
}

/// Low nibbles: 32 bytes hold two sub-blocks.
fn put_nibbles(codes: &[i8; 256], to: &mut [u8]) {
    for (i, q) in to.iter_mut().enumerate() {
        let at = i / 32 * 64 + i % 32;
        *q = codes[at] as u8 & 15 | (codes[at + 32] as u8 & 15) << 4;
    }
}

fn encode_q4_k(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block_with_minima(v, 15.0, 63)?;
        let mut b = [0; 144];
        put_scales(&w, &mut b);
        put_nibbles(&w.codes, &mut b[16..]);
        Some(b)
    });
}

fn encode_q5_k(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block_with_minima(v, 31.0, 63)?;
        let mut b = [0; 176];
        put_scales(&w, &mut b);
        w.codes.iter().enumerate().for_each(|(i, c)| b[16 + i % 32] |= (*c as u8 >> 4) << (i / 32));
        put_nibbles(&w.codes, &mut b[48..]);
        Some(b)
    });
}
