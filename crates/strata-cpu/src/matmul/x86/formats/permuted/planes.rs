//! Codebooks as planes of bytes, which a permutation of bytes reads 64 entries at a time.
//!
//! An entry is the ranks of its codes among the levels of its format: two bits each for eight codes of three levels, four for four
//! codes of eight. That is two bytes, one in each plane.

use strata_quant::formats::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};

/// What is added to a code to be unsigned: no code is larger.
pub(in super::super::super) const UP: i8 = 64;

/// The bytes of all entries: of the first half of their codes, and of the second.
#[repr(C, align(64))]
pub(super) struct Planes<const ENTRIES: usize> {
    pub low: [u8; ENTRIES],
    pub high: [u8; ENTRIES],
}

/// By an index of six bits a code plus [`UP`]. Each code of an index has its own table.
#[repr(C, align(64))]
pub(in super::super::super) struct Values(pub [u8; 64]);

/// Bytes of 2,048 entries of which sixteen that follow each other never have more than two values.
#[repr(C, align(64))]
pub(super) struct Runs {
    /// Of each sixteen: the first value, the second, and the place of the first entry that has it, sixteen if none has.
    pub first: [u8; 128],
    pub second: [u8; 128],
    pub from: [u8; 128],
}

/// Bytes of 1,024 entries that ascend by them: their values are numbered, and from entry to entry the number stays or goes up by one.
#[repr(C, align(64))]
pub(super) struct Steps {
    /// Of each eight entries the number of the first one, and as bits at which of the others it goes up.
    pub numbers: [u8; 128],
    pub steps: [u8; 128],
    pub values: [u8; 128],
}

pub(super) static IQ1_PLANES: Planes<2048> = planes(&IQ1_GRID);
/// The entries of IQ1 ascend by the second half of their codes.
pub(super) static IQ1_RUNS: Runs = runs(&IQ1_PLANES.high);
pub(super) static IQ2_S_PLANES: Planes<1024> = planes(&IQ2_S_GRID);
/// The entries of IQ2_S ascend by the second half of their codes too.
pub(super) static IQ2_S_STEPS: Steps = steps(&IQ2_S_PLANES.high);
pub(super) static IQ2_XXS_PLANES: Planes<256> = planes(&IQ2_XXS_GRID);
pub(super) static IQ2_XS_PLANES: Planes<512> = planes(&IQ2_XS_GRID);
pub(super) static IQ3_XXS_PLANES: Planes<256> = planes(&IQ3_XXS_GRID);
pub(super) static IQ3_S_PLANES: Planes<512> = planes(&IQ3_S_GRID);

/// Of the formats with eight codes an entry, an index has two ranks and above them two signs.
pub(super) static IQ2_VALUES: [Values; 2] = [values(levels(&IQ2_S_GRID), 0, 4), values(levels(&IQ2_S_GRID), 2, 5)];
/// The same of IQ1, where what is above is whether the codes are moved down.
pub(super) static IQ1_VALUES: [Values; 2] = [values(levels(&IQ1_GRID), 0, 4), values(levels(&IQ1_GRID), 2, 5)];
/// Of those with four it has one rank and one sign.
pub(super) static IQ3_S_VALUES: Values = values(levels(&IQ3_S_GRID), 0, 3);
pub(super) static IQ3_XXS_VALUES: Values = values(levels(&IQ3_XXS_GRID), 0, 3);

/// The numbers of a codebook, ascending, and how many there are.
const fn levels<const N: usize>(grid: &[[i8; N]]) -> ([i8; 8], usize) {
    let mut found = [false; 256];
    let mut i = 0;
    while i < N * grid.len() {
        found[(grid[i / N][i % N] as i16 + 128) as usize] = true;
        i += 1;
    }
    let (mut levels, mut n, mut v) = ([0; 8], 0, 0i16);
    while v < 256 {
        if found[v as usize] {
            levels[n] = (v - 128) as i8;
            n += 1;
        }
        v += 1;
    }
    (levels, n)
}

const fn planes<const N: usize, const ENTRIES: usize>(grid: &[[i8; N]; ENTRIES]) -> Planes<ENTRIES> {
    let (levels, _) = levels(grid);
    let mut planes = Planes { low: [0; ENTRIES], high: [0; ENTRIES] };
    let mut i = 0;
    while i < N * ENTRIES {
        let (entry, place) = (i / N, i % N);
        let mut rank = 0;
        while levels[rank] != grid[entry][place] {
            rank += 1;
        }
        let plane = if place < N / 2 { &mut planes.low } else { &mut planes.high };
        plane[entry] |= (rank as u8) << (place % (N / 2) * (16 / N));
        i += 1;
    }
    planes
}

const fn runs(plane: &[u8; 2048]) -> Runs {
    let mut runs = Runs { first: [0; 128], second: [0; 128], from: [16; 128] };
    let mut i = 0;
    while i < 2048 {
        let (run, place) = (i / 16, i % 16);
        if place == 0 {
            runs.first[run] = plane[i];
        }
        if runs.from[run] == 16 && plane[i] != runs.first[run] {
            runs.from[run] = place as u8;
            runs.second[run] = plane[i];
        }
        assert!(plane[i] == if place < runs.from[run] as usize { runs.first[run] } else { runs.second[run] });
        i += 1;
    }
    runs
}

const fn steps(plane: &[u8; 1024]) -> Steps {
    let mut steps = Steps { numbers: [0; 128], steps: [0; 128], values: [0; 128] };
    let (mut number, mut i) = (0, 0);
    steps.values[0] = plane[0];
    while i < 1024 {
        let up = i > 0 && plane[i] != plane[i - 1];
        if up {
            number += 1;
            steps.values[number] = plane[i];
        }
        if i % 8 == 0 {
            steps.numbers[i / 8] = number as u8;
        } else if up {
            steps.steps[i / 8] |= 1 << (i % 8);
        }
        i += 1;
    }
    steps
}

/// The values by indices that have a rank at bit `rank` and at bit `sign` whether the code is negative, or of one of IQ1 that it is
/// moved down and not up.
const fn values((levels, n): ([i8; 8], usize), rank: usize, sign: usize) -> Values {
    let (bits, moved) = (if n > 4 { 3 } else { 2 }, levels[0] < 0);
    let mut values = [0; 64];
    let mut i = 0;
    while i < 64 {
        let level = levels[i >> rank & ((1 << bits) - 1)];
        let set = i >> sign & 1 == 1;
        let code = if moved {
            level + if set { -1 } else { 1 }
        } else if set {
            -level
        } else {
            level
        };
        assert!(-UP <= code && code < UP);
        values[i] = (UP + code) as u8;
        i += 1;
    }
    Values(values)
}
