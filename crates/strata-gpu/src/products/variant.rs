//! Which kernels of mat-vec there are, and which a launch takes.

use crate::registry;
use strata_quant::DType;

/// Columns a launch takes at most.
pub const MAX_COLUMNS: usize = 8;
/// Columns that a group of the split variant takes at most.
pub(super) const SPLIT_COLUMNS: usize = 4;

/// The variants of a kernel, all exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Four lanes a wide block, and no loop over rows; for every launch, experts too. Five and more columns read the weights twice.
    Split,
    /// One row a thread, for the formats of large matrices: two and five to eight columns. And the only one of floats.
    Rows1,
    /// Two rows a thread share what is read of the activations; for three or four columns of the formats of large matrices.
    Rows2,
    /// NVIDIA's matrix instruction, sixteen rows a workgroup; for three to eight columns of some wide formats.
    Matrix,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Variant; 4] = [Variant::Split, Variant::Rows1, Variant::Rows2, Variant::Matrix];

    /// Whether there is a kernel of this variant for a format and so many columns.
    pub fn takes(self, dtype: DType, columns: usize) -> bool {
        let large = matches!(dtype, DType::Q8_0 | DType::Q4_K | DType::Q5_K | DType::Q6_K | DType::IQ4_XS);
        match self {
            Variant::Split => !dtype.is_float() && (1..=MAX_COLUMNS).contains(&columns),
            Variant::Rows1 if dtype.is_float() => true,
            Variant::Rows1 => large && matches!(columns, 2 | 5..=8),
            Variant::Rows2 => (3..=4).contains(&columns) && large,
            Variant::Matrix => (3..=8).contains(&columns) && large && dtype != DType::Q8_0,
        }
    }

    /// Columns of the kernel that serves `columns`.
    pub(super) fn columns(self, columns: usize) -> usize {
        match self {
            Variant::Split if columns > 1 => SPLIT_COLUMNS,
            Variant::Matrix => MAX_COLUMNS,
            Variant::Rows1 if columns > 4 => MAX_COLUMNS,
            Variant::Rows2 => 4,
            _ => columns,
        }
    }

    pub(super) fn rows(self) -> usize {
        1 + usize::from(self == Variant::Rows2)
    }

    /// Its name, the end of its kernels' names.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Rows1 => "r1",
            Variant::Rows2 => "r2",
            Variant::Split => "split",
            Variant::Matrix => "matrix",
        }
    }

    /// Whether an architecture has the kernel of this variant for so many columns of a format.
    pub fn runs_on(self, arch: &str, dtype: DType, columns: usize) -> bool {
        self.takes(dtype, columns) && registry::find(&self.kernel(dtype, columns)).is_some_and(|k| k.runs_on(arch))
    }

    /// The kernel of this variant that serves so many columns of a block format.
    pub fn kernel(self, dtype: DType, columns: usize) -> String {
        format!("mat_vec_{}_c{}_{}", dtype.name().to_lowercase(), self.columns(columns), self.name())
    }
}

/// Which variant a launch takes: measured entries, and thresholds for what they do not name.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantTable {
    measured: Vec<VariantEntry>,
    /// Several columns and fewer waves of one row a thread a multiprocessor than this take [`Variant::Split`], as one column always does.
    /// Waves count once for three and four columns, three times for two and six times for more: what others gain there is more.
    pub split_columns_below: usize,
}

impl Default for VariantTable {
    fn default() -> Self {
        VariantTable { measured: Vec::new(), split_columns_below: 24 }
    }
}

/// A line of a [`VariantTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariantEntry {
    pub dtype: DType,
    pub columns: usize,
    /// Rows of the result.
    pub n_out: usize,
    pub variant: Variant,
}

impl VariantTable {
    /// A table of measured entries.
    pub fn new(measured: Vec<VariantEntry>) -> VariantTable {
        VariantTable { measured, ..VariantTable::default() }
    }

    /// The measured entries.
    pub fn measured(&self) -> &[VariantEntry] {
        &self.measured
    }

    /// Adds a measured entry, or replaces that of the same launch. Whether there are kernels of its variant.
    pub fn set(&mut self, entry: VariantEntry) -> bool {
        let key = |e: &VariantEntry| (e.dtype, e.columns, e.n_out);
        if !entry.variant.takes(entry.dtype, entry.columns) || registry::find(&entry.variant.kernel(entry.dtype, entry.columns)).is_none() {
            return false;
        }
        match self.measured.iter_mut().find(|e| key(e) == key(&entry)) {
            Some(e) => *e = entry,
            None => self.measured.push(entry),
        }
        true
    }

    /// The variant of a launch on a device of an architecture with `units` multiprocessors: a measured entry, else by the thresholds.
    pub fn variant_on(&self, arch: &str, dtype: DType, columns: usize, n_out: usize, units: u32) -> Variant {
        let runs = |v: &Variant| v.runs_on(arch, dtype, columns);
        let measured = self.entry(dtype, columns, n_out).filter(runs);
        let waves_a_unit = n_out / wave_rows(dtype) / units.max(1) as usize;
        let times = match columns {
            2 => 3,
            3 | 4 => 1,
            _ => 6,
        };
        let small = columns == 1 || waves_a_unit * times < self.split_columns_below;
        measured.unwrap_or_else(|| {
            let other = [Variant::Rows2, Variant::Matrix, Variant::Rows1].into_iter().filter(|_| !small).find(runs);
            other.unwrap_or(Variant::Split)
        })
    }

    fn entry(&self, dtype: DType, columns: usize, n_out: usize) -> Option<Variant> {
        self.measured.iter().find(|e| (e.dtype, e.columns, e.n_out) == (dtype, columns, n_out)).map(|e| e.variant)
    }
}

/// Rows of a wave of one row a thread.
pub(super) fn wave_rows(dtype: DType) -> usize {
    if dtype.block_len() == 256 { 8 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::repack::FORMATS;

    #[test]
    fn small_matrices_are_split_and_large_ones_by_format() {
        let on = |arch: &str, units: u32, cases: &[(DType, usize, usize, Variant)]| {
            for &(dtype, columns, n_out, expected) in cases {
                let got = VariantTable::default().variant_on(arch, dtype, columns, n_out, units);
                assert_eq!(got, expected, "{arch}: {dtype}, {columns} columns, {n_out} rows");
            }
        };
        let head = 248_320;
        on(
            "sm_90a",
            132,
            &[
                (DType::Q5_K, 1, 10_240, Variant::Split),
                (DType::Q5_K, 1, head, Variant::Split),
                (DType::Q6_K, 2, 6_144, Variant::Split),
                (DType::Q6_K, 2, 10_240, Variant::Rows1),
                (DType::Q6_K, 4, 12_288, Variant::Split),
                (DType::Q6_K, 8, 2_560, Variant::Split),
                (DType::Q6_K, 8, 6_144, Variant::Matrix),
                (DType::Q6_K, 2, head, Variant::Rows1),
                (DType::Q6_K, 4, head, Variant::Rows2),
                (DType::Q6_K, 8, head, Variant::Matrix),
                (DType::Q8_0, 4, head, Variant::Rows2),
                (DType::Q8_0, 6, head, Variant::Rows1),
                (DType::IQ3_S, 8, head, Variant::Split),
            ],
        );
        on("gfx1201", 64, &[(DType::Q6_K, 4, head, Variant::Rows2), (DType::Q6_K, 8, head, Variant::Rows1)]);
    }

    #[test]
    fn every_launch_of_a_block_format_has_kernels() {
        for dtype in FORMATS.into_iter().filter(|d| !d.is_float()) {
            for columns in 1..=MAX_COLUMNS {
                assert!(Variant::Split.runs_on("sm_75", dtype, columns) && Variant::Split.runs_on("gfx1030", dtype, columns));
                for variant in Variant::ALL.into_iter().filter(|v| v.takes(dtype, columns)) {
                    assert!(registry::find(&variant.kernel(dtype, columns)).is_some(), "{}", variant.kernel(dtype, columns));
                }
            }
        }
    }
}
