//! The planes, runs and values against the codebooks they are made of, without vectors.

use super::planes::*;
use strata_quant::formats::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};

/// How many codes of `grid` do not come back from the two bytes of their entry, with the signs clear or set. `signed` is what a code
/// is then.
fn wrong<const N: usize>(
    grid: &[[i8; N]],
    entry: impl Fn(usize) -> [u8; 2],
    values: [&Values; 2],
    signed: impl Fn(i8, bool) -> i8,
) -> usize {
    let mut wrong = 0;
    for (i, codes) in grid.iter().enumerate() {
        for (place, code) in codes.iter().enumerate() {
            let byte = usize::from(entry(i)[place * 2 / N]);
            // two codes share an index if an entry has eight, and one of four has its own
            let (index, at) = if N == 8 { (byte >> (place % 4 / 2 * 4) & 15, place % 2) } else { (byte >> (place % 2 * 4) & 7, 0) };
            let sign = if N == 8 { 4 + at } else { 3 };
            for set in [false, true] {
                // bits that do not belong to the code may be anything
                let others = !(if N == 8 { 15 | 1 << sign } else { 15 }) & 63;
                for noise in [0, others] {
                    let found = i16::from(values[at].0[index | usize::from(set) << sign | noise]) - i16::from(UP);
                    wrong += usize::from(found != i16::from(signed(*code, set)));
                }
            }
        }
    }
    wrong
}

fn negated(code: i8, set: bool) -> i8 {
    if set { -code } else { code }
}

fn moved(code: i8, set: bool) -> i8 {
    code + if set { -1 } else { 1 }
}

fn of_planes<const ENTRIES: usize>(planes: &Planes<ENTRIES>) -> impl Fn(usize) -> [u8; 2] {
    |i| [planes.low[i], planes.high[i]]
}

/// The first byte of an entry of IQ1 from its plane, the second from the runs.
fn of_iq1(i: usize) -> [u8; 2] {
    let (run, place) = (i / 16, (i % 16) as u8);
    let values = if place >= IQ1_RUNS.from[run] { &IQ1_RUNS.second } else { &IQ1_RUNS.first };
    [IQ1_PLANES.low[i], values[run]]
}

/// The first byte of an entry of IQ2_S from its plane, the second by its steps.
fn of_iq2_s(i: usize) -> [u8; 2] {
    let taken = IQ2_S_STEPS.steps[i / 8] & ((2u32 << (i % 8)) - 1) as u8;
    let number = usize::from(IQ2_S_STEPS.numbers[i / 8]) + taken.count_ones() as usize;
    [IQ2_S_PLANES.low[i], IQ2_S_STEPS.values[number]]
}

#[test]
fn every_code_comes_back_from_its_table() {
    let [iq2, iq1] = [&IQ2_VALUES, &IQ1_VALUES].map(|v| [&v[0], &v[1]]);
    assert_eq!(wrong(&IQ2_XXS_GRID, of_planes(&IQ2_XXS_PLANES), iq2, negated), 0);
    assert_eq!(wrong(&IQ2_XS_GRID, of_planes(&IQ2_XS_PLANES), iq2, negated), 0);
    assert_eq!(wrong(&IQ2_S_GRID, of_iq2_s, iq2, negated), 0);
    assert_eq!(wrong(&IQ1_GRID, of_iq1, iq1, moved), 0);
    assert_eq!(wrong(&IQ3_XXS_GRID, of_planes(&IQ3_XXS_PLANES), [&IQ3_XXS_VALUES; 2], negated), 0);
    assert_eq!(wrong(&IQ3_S_GRID, of_planes(&IQ3_S_PLANES), [&IQ3_S_VALUES; 2], negated), 0);
}

#[test]
fn one_wrong_entry_or_value_is_seen() {
    let iq2 = [&IQ2_VALUES[0], &IQ2_VALUES[1]];
    // one of eight codes, with and without signs and noise
    let entry = |i: usize| if i == 77 { [of_iq2_s(i)[0] ^ 1, of_iq2_s(i)[1]] } else { of_iq2_s(i) };
    assert_eq!(wrong(&IQ2_S_GRID, entry, iq2, negated), 4);
    let mut values = Values(IQ3_S_VALUES.0);
    values.0[9] += 1;
    assert!(wrong(&IQ3_S_GRID, of_planes(&IQ3_S_PLANES), [&values; 2], negated) > 0);
    assert!(wrong(&IQ1_GRID, of_iq1, [&IQ1_VALUES[1], &IQ1_VALUES[0]], moved) > 0);
}
