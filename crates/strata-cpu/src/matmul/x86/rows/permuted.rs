//! Codebook formats with AVX-512 VBMI: entries looked up in registers, 64 at once, a lane an entry. Lane i of a vector of codes has
//! a code of entry i, so activations are first brought into that order: all that meet the first code of an entry, and so on.

use super::super::super::Matrix;
use super::super::super::kernel::Tile;
use super::super::formats::permuted::{Permuted, UP};
use super::super::unpack::{Blocks, ROWS, each, load512};
use super::chains::{Chains, Ends, lane_sums};
use super::{Items, Panel, SHARE, next, store};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use strata_ops::matmul::{Acts, CHAINS_WIDE, SUM_SPAN};

/// Activation rows that are brought into order together, and blocks that they may have: rows of 10,240.
const ITEMS: usize = 8;
const BLOCKS: usize = 40;

/// A block of activations.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Turned {
    /// Those of the first codes of all entries, of the second ones, ...
    codes: [u8; 256],
    /// What [`UP`] is worth, taken away: of sub-scales of 32 values [`UP`] times the sum of a lane's activations, of those of 16
    /// the sums, as 16-bit integers.
    rest: [i32; 16],
}

/// Whether the rows of a matrix are short enough for [`run`].
pub(in super::super) fn fits(w: &Matrix) -> bool {
    w.cols <= 256 * BLOCKS
}

/// # Safety
/// AVX2, FMA, F16C, AVX-512 F, BW, DQ, VL, VNNI, VBMI, BITALG and GFNI; the matrix [`fits`]; otherwise as a
/// [`super::super::super::kernel::Kernel`].
#[inline(always)]
pub(in super::super) unsafe fn run<F: Permuted, const TWO: bool>(w: &Matrix, tile: &Tile<'_>) {
    let blocks = w.cols / F::LEN;
    let mut turned = MaybeUninit::<[Turned; ITEMS * BLOCKS]>::uninit();
    let turned: *mut Turned = turned.as_mut_ptr().cast();
    // a matrix of fewer rows has each of them eight times
    let (step, stride) = if w.rows < ROWS { (1, 0) } else { (ROWS, w.row_bytes) };
    let ends = Ends::of::<CHAINS_WIDE>(blocks);
    for start in tile.items.clone().step_by(ITEMS) {
        let end = tile.items.end.min(start + ITEMS);
        for i in start..end {
            // SAFETY: there is space for so many items of so many blocks.
            unsafe { turn::<F>(tile.acts, tile.act_rows.get(i), turned.add((i - start) * blocks), blocks) };
        }
        for r in tile.rows.clone().step_by(step) {
            // the last eight rows overlap those before, which is harmless
            let first = if w.rows < ROWS { r } else { r.min(w.rows - ROWS) };
            let rows = Blocks { first: w.row(first).as_ptr(), stride };
            let panel = Panel { rows, next: next(w, ROWS), blocks, ends: &ends, places: std::ptr::null() };
            let mut i = start;
            while i < end {
                let left = end - i;
                let share = left.div_ceil(left.div_ceil(SHARE));
                // SAFETY: the caller's promise; the items have just been written.
                unsafe {
                    let turned = turned.add((i - start) * blocks);
                    match share {
                        1 => store(tile, i, first, step, panel.permuted::<F, TWO, 1>(&Items::new::<F>(tile, i), turned)),
                        2 => store(tile, i, first, step, panel.permuted::<F, TWO, 2>(&Items::new::<F>(tile, i), turned)),
                        3 => store(tile, i, first, step, panel.permuted::<F, TWO, 3>(&Items::new::<F>(tile, i), turned)),
                        _ => store(tile, i, first, step, panel.permuted::<F, TWO, 4>(&Items::new::<F>(tile, i), turned)),
                    }
                }
                i += share;
            }
        }
    }
}

/// Where the codes of equal places in their entries are, in 64 codes.
#[repr(C, align(64))]
struct Order([u8; 64]);

static BY_EIGHTS: Order = order(8);
static BY_FOURS: Order = order(4);

const fn order(each: usize) -> Order {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = (i % (64 / each) * each + i / (64 / each)) as u8;
        i += 1;
    }
    Order(all)
}

/// Brings a row of activations into order.
///
/// # Safety
/// AVX-512 F, BW and VBMI; the row has the blocks, and so does `to`.
#[inline(always)]
unsafe fn turn<F: Permuted>(acts: &Acts, row: usize, to: *mut Turned, blocks: usize) {
    let (codes, sums) = (acts.codes256(row).as_chunks::<256>().0, acts.sums256(row).as_chunks::<{ 256 / SUM_SPAN }>().0);
    for (s, (codes, sums)) in codes.iter().zip(sums).enumerate().take(blocks) {
        // SAFETY: the caller's promise.
        let to = unsafe { &mut *to.add(s) };
        let run = 64 / F::EACH;
        for (part, codes) in codes.as_chunks::<64>().0.iter().enumerate() {
            let mut turned = [0u8; 64];
            // SAFETY: the caller's promise; arrays of 64 bytes.
            unsafe {
                let order = if F::EACH == 8 { &BY_EIGHTS } else { &BY_FOURS };
                let codes = _mm512_permutexvar_epi8(load512(order.0.as_ptr()), load512(codes.as_ptr().cast()));
                _mm512_storeu_si512(turned.as_mut_ptr().cast(), codes);
            }
            for (place, turned) in turned.chunks_exact(run).enumerate() {
                to.codes[(4 * place + part) * run..][..run].copy_from_slice(turned);
            }
        }
        let up = i32::from(UP);
        to.rest = match (F::EACH, F::SPAN) {
            (4, _) => sums.map(|sum| -up * i32::from(sum)),
            (_, 32) => std::array::from_fn(|i| -up * (i32::from(sums[i % 8 * 2]) + i32::from(sums[i % 8 * 2 + 1]))),
            // the lower half of a lane first; the sums of 16 codes fit with either sign
            _ => std::array::from_fn(|i| i32::from(-sums[i % 8 * 2] as u16) | i32::from(-sums[i % 8 * 2 + 1]) << 16),
        };
    }
}

impl Panel<'_> {
    /// The products with `items`, whose blocks are at `turned`.
    ///
    /// # Safety
    /// As [`run`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items count through several arrays")]
    unsafe fn permuted<F: Permuted, const TWO: bool, const T: usize>(&self, items: &Items<T>, turned: *const Turned) -> [__m256; T] {
        let scales = items.scales;
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let mut chains = Chains::<__m256, T>::new(self.ends);
            let mut isums = MaybeUninit::<[[__m256i; ROWS]; T]>::uninit();
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                let acts: [*const Turned; T] = std::array::from_fn(|t| turned.add(t * self.blocks + s));
                self.send_for_all::<F>(s);
                for k in (0..ROWS).step_by(F::EACH / 4) {
                    let sums = if F::EACH == 8 {
                        eights::<F, TWO, T>(blocks.of(k), blocks.of(k + 1), &acts)
                    } else {
                        fours::<F, TWO, T>(blocks.of(k), &acts)
                    };
                    for t in 0..T {
                        let to = (&raw mut (*isums.as_mut_ptr())[t]).cast::<__m256i>().add(k);
                        if F::EACH == 8 {
                            _mm512_storeu_si512(to.cast(), sums[t]);
                        } else {
                            to.write(_mm256_add_epi32(_mm512_castsi512_si256(sums[t]), _mm512_extracti64x4_epi64(sums[t], 1)));
                        }
                    }
                }
                let d = F::d(blocks, 0);
                for t in 0..T {
                    let scale = _mm256_set1_ps(*scales[t].add(s));
                    let isum = _mm256_cvtepi32_ps(lane_sums(&(&raw const (*isums.as_ptr())[t]).read()));
                    chains.chain[t] = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), isum, chains.chain[t]);
                }
                chains.after(s);
            }
            chains.total
        }
    }
}

/// The products of two blocks, one in each half, in eight parts each.
///
/// # Safety
/// As [`Permuted`] and [`run`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "items count through several arrays")]
unsafe fn eights<F: Permuted, const TWO: bool, const T: usize>(a: *const u8, b: *const u8, acts: &[*const Turned; T]) -> [__m512i; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let [low, high, signs] = F::entries::<TWO>(a, b);
        let scale = F::scales(a, b);
        let values = [load512(F::VALUES[0].0.as_ptr()), load512(F::VALUES[1].0.as_ptr())];
        // UP times a sub-scale is below 2^11
        let up = _mm512_slli_epi16::<{ UP.ilog2() }>(scale);
        let mut sums = [[_mm512_setzero_si512(); 2]; T];
        for t in 0..T {
            let rest = load512((&raw const (*acts[t]).rest).cast());
            sums[t][0] = if F::SPAN == 32 { rest } else { _mm512_madd_epi16(up, rest) };
        }
        each!(K < 4 => {
            let ranks = if K < 2 { low } else { high };
            let ranks = if K.is_multiple_of(2) { ranks } else { _mm512_srli_epi16::<4>(ranks) };
            let signs = _mm512_gf2p8affine_epi64_epi8::<0>(signs, _mm512_set1_epi64(F::SIGNS[K]));
            // the lower four bits of the first; what is above six is not looked at
            let index = _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi8(15), ranks, signs);
            each!(I < 2 => {
                let u = _mm512_permutexvar_epi8(index, values[I % 2]);
                for t in 0..T {
                    let codes = (&raw const (*acts[t]).codes).cast::<u8>().add(32 * (2 * K + I));
                    let codes = _mm512_broadcast_i64x4(_mm256_load_si256(codes.cast()));
                    let sum = &mut sums[t][K / 2 % 2];
                    if F::SPAN == 32 {
                        *sum = _mm512_dpbusd_epi32(*sum, u, codes);
                    } else {
                        // a pair is at most 2 * (64 + 43) * 127
                        add_pairs(sum, _mm512_maddubs_epi16(u, codes), scale);
                    }
                }
            });
        });
        let mut out = [low; T];
        for t in 0..T {
            let sum = _mm512_add_epi32(sums[t][0], sums[t][1]);
            out[t] = if F::SPAN == 32 { _mm512_mullo_epi32(sum, scale) } else { sum };
        }
        out
    }
}

/// Adds the sums of pairs of products. The compiler would make two instructions of the one, which is shorter to wait for, but it is
/// not waiting that takes the time here.
///
/// # Safety
/// AVX-512 VNNI.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn add_pairs(sum: &mut __m512i, a: __m512i, b: __m512i) {
    // SAFETY: the caller's promise; registers only.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {0}, {1}, {2}",
            inout(zmm_reg) *sum, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
}

/// The products of a block in sixteen parts.
///
/// # Safety
/// As [`Permuted`] and [`run`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "items count through several arrays")]
unsafe fn fours<F: Permuted, const TWO: bool, const T: usize>(a: *const u8, acts: &[*const Turned; T]) -> [__m512i; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let [low, high, signs] = F::entries::<TWO>(a, a);
        let scale = F::scales(a, a);
        let values = load512(F::VALUES[0].0.as_ptr());
        let mut sums = [low; T];
        for t in 0..T {
            sums[t] = load512((&raw const (*acts[t]).rest).cast());
        }
        each!(K < 2 => {
            let ranks = if K == 0 { low } else { high };
            let both = _mm512_or_si512(ranks, _mm512_gf2p8affine_epi64_epi8::<0>(signs, _mm512_set1_epi64(F::SIGNS[K])));
            each!(I < 2 => {
                let index = if I == 0 { both } else { _mm512_srli_epi16::<4>(both) };
                let u = _mm512_permutexvar_epi8(index, values);
                for t in 0..T {
                    let codes = load512((&raw const (*acts[t]).codes).cast::<u8>().add(64 * (2 * K + I)));
                    sums[t] = _mm512_dpbusd_epi32(sums[t], u, codes);
                }
            });
        });
        for t in 0..T {
            sums[t] = _mm512_mullo_epi32(sums[t], scale);
        }
        sums
    }
}
