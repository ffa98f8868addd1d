//! Mat-vec: one to eight columns of activations, whole matrices or one of many experts for each column.

use super::quantize::{DeviceActs, shape};
use super::repack::{chains, packed_bytes, padded_rows, repack};
use super::tables::table;
use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::Result;
use crate::registry;
use strata_ops::matmul::{ActForm, act_form};
use strata_quant::DType;

/// Columns a launch takes at most.
pub const MAX_COLUMNS: usize = 8;
const THREADS: u32 = 128;
/// Bytes of shared memory in which the matrix variant keeps its chains.
const MATRIX_CHAINS: usize = 4 * 8 * 16 * 4;

/// Matrices of one format and shape on a device, repacked: one, or one for each expert.
pub struct DeviceWeights {
    pub dtype: DType,
    pub n_in: usize,
    pub n_out: usize,
    pub experts: usize,
    /// The repacked bytes, expert after expert.
    pub bytes: Buffer<u8>,
    /// The format's table, see [`table`].
    pub table: Buffer<u32>,
}

impl DeviceWeights {
    /// Repacks and uploads `experts` matrices of `n_out` rows of `n_in` values.
    ///
    /// # Errors
    /// Another size, rows that are not whole blocks, or not enough memory.
    pub fn upload(device: &Device, dtype: DType, bytes: &[u8], n_in: usize, n_out: usize, experts: usize) -> Result<DeviceWeights> {
        let row = n_in / dtype.block_len() * dtype.block_bytes();
        if !n_in.is_multiple_of(dtype.block_len()) || n_in == 0 || n_out == 0 || bytes.len() != experts * n_out * row {
            return Err(shape(format!("{experts} matrices of {n_out} x {n_in} values of {dtype}"), format!("{} bytes", bytes.len())));
        }
        let mut packed = Vec::with_capacity(experts * packed_bytes(dtype, n_out, n_in));
        bytes.chunks_exact(n_out * row).for_each(|m| packed.extend(repack(dtype, m, n_out, n_in)));
        DeviceWeights::from_packed(device, dtype, &packed, n_in, n_out, experts)
    }

    /// Uploads matrices that are repacked already, one after the other.
    ///
    /// # Errors
    /// Another size, or not enough memory.
    pub fn from_packed(device: &Device, dtype: DType, packed: &[u8], n_in: usize, n_out: usize, experts: usize) -> Result<DeviceWeights> {
        let expected = experts * packed_bytes(dtype, n_out, n_in);
        if packed.len() != expected {
            return Err(shape(format!("{expected} repacked bytes"), packed.len()));
        }
        Ok(DeviceWeights { dtype, n_in, n_out, experts, bytes: device.upload(packed)?, table: device.upload(&table(dtype))? })
    }
}

/// The variants of a kernel, all exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// One row a thread.
    Rows1,
    /// Two rows a thread share what is read of the activations; for three or four columns of the formats of large matrices.
    Rows2,
    /// One row a thread, a block loaded while the one before is summed; for one column.
    Ahead,
    /// Four lanes a wide block, and no loop over rows; for one column of matrices that are small, and of experts.
    Split,
    /// NVIDIA's matrix instruction, sixteen rows a workgroup; for three to eight columns of some wide formats.
    Matrix,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Variant; 5] = [Variant::Rows1, Variant::Rows2, Variant::Ahead, Variant::Split, Variant::Matrix];

    /// Whether there is a kernel of this variant for a format and so many columns.
    pub fn takes(self, dtype: DType, columns: usize) -> bool {
        match self {
            Variant::Rows1 => true,
            Variant::Rows2 => {
                let large = matches!(dtype, DType::Q8_0 | DType::Q4_K | DType::Q5_K | DType::Q6_K | DType::IQ4_XS);
                (3..=4).contains(&columns) && large
            }
            Variant::Ahead | Variant::Split => columns == 1 && !dtype.is_float(),
            Variant::Matrix => (3..=8).contains(&columns) && matches!(dtype, DType::Q4_K | DType::Q5_K | DType::Q6_K | DType::IQ4_XS),
        }
    }

    /// Columns of the kernel that serves `columns`.
    fn columns(self, dtype: DType, columns: usize) -> usize {
        if self == Variant::Matrix { MAX_COLUMNS } else { kernel_columns(dtype, columns) }
    }

    fn rows(self) -> usize {
        1 + usize::from(self == Variant::Rows2)
    }

    /// Its name, the end of its kernels' names.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Rows1 => "r1",
            Variant::Rows2 => "r2",
            Variant::Ahead => "ahead",
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
        format!("mat_vec_{}_c{}_{}", dtype.name().to_lowercase(), self.columns(dtype, columns), self.name())
    }
}

/// Which variant a launch takes: measured entries, and thresholds for what they do not name.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantTable {
    measured: Vec<VariantEntry>,
    /// One column and fewer waves of one row a thread a multiprocessor than this take [`Variant::Split`].
    pub split_below: usize,
    /// As many and fewer than this take [`Variant::Ahead`].
    pub ahead_below: usize,
    /// From this many waves a multiprocessor on, three and more columns take [`Variant::Rows2`].
    pub rows2_from: usize,
}

impl Default for VariantTable {
    fn default() -> Self {
        VariantTable { measured: Vec::new(), split_below: 8, ahead_below: 24, rows2_from: 32 }
    }
}

/// A line of a [`VariantTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariantEntry {
    pub dtype: DType,
    pub columns: usize,
    /// Rows of the result; all of its experts together.
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

    /// The variant of a launch on a device of an architecture with `units` multiprocessors: a measured entry, else the matrix
    /// instruction where there is a kernel of it, else by the thresholds.
    pub fn variant_on(&self, arch: &str, dtype: DType, columns: usize, n_out: usize, units: u32) -> Variant {
        let runs = |v: &Variant| v.runs_on(arch, dtype, columns);
        let chosen = self.entry(dtype, columns, n_out).unwrap_or_else(|| {
            let matrix = Some(Variant::Matrix).filter(runs);
            matrix.unwrap_or_else(|| self.default_variant(dtype, columns, n_out, units))
        });
        if runs(&chosen) { chosen } else { Variant::Rows1 }
    }

    /// The variant of a launch of experts with `n_out` rows in all: a measured entry, else [`Variant::Split`], since each expert is small.
    pub fn experts_on(&self, arch: &str, dtype: DType, n_out: usize) -> Variant {
        let chosen = self.entry(dtype, 1, n_out).unwrap_or(Variant::Split);
        if chosen.runs_on(arch, dtype, 1) { chosen } else { Variant::Rows1 }
    }

    fn entry(&self, dtype: DType, columns: usize, n_out: usize) -> Option<Variant> {
        self.measured.iter().find(|e| (e.dtype, e.columns, e.n_out) == (dtype, columns, n_out)).map(|e| e.variant)
    }

    /// The variant of a launch that no entry names. One column of a matrix with few rows a thread waits for memory: split, or ahead.
    /// Two rows a thread halve the number of waves: for several columns of matrices that fill the device anyway.
    pub fn default_variant(&self, dtype: DType, columns: usize, n_out: usize, units: u32) -> Variant {
        let waves_a_unit = n_out / wave_rows(dtype) / units.max(1) as usize;
        match columns {
            1 if waves_a_unit < self.split_below => Variant::Split,
            1 if waves_a_unit < self.ahead_below && dtype.block_len() == 256 => Variant::Ahead,
            3 | 4 if waves_a_unit >= self.rows2_from => Variant::Rows2,
            _ => Variant::Rows1,
        }
    }
}

/// Columns of the kernel that serves `columns`.
fn kernel_columns(dtype: DType, columns: usize) -> usize {
    match columns {
        2 if dtype.is_float() => 4,
        3 => 4,
        5 | 6 if !dtype.is_float() => 6,
        5..=7 => 8,
        n => n,
    }
}

fn wave_rows(dtype: DType) -> usize {
    if dtype.block_len() == 256 { 8 } else { 4 }
}

/// Bytes of shared memory for a table and `columns` columns of activations: `ActBlock` in `mat_vec.cuh`.
fn shared_bytes(dtype: DType, n_in: usize, columns: usize) -> usize {
    let minima = matches!(dtype, DType::Q4_K | DType::Q5_K);
    let block = dtype.block_len() + if minima { 48 } else { 16 };
    table(dtype).len() * 4 + columns * (n_in / dtype.block_len()) * block
}

/// Rows of a workgroup of the split variant and its bytes of shared memory (`Split` in `mat_vec_split.cuh`): chains, the table, and the
/// codes for each wave that walks the same chains.
fn split_sizes(dtype: DType, n_in: usize) -> (usize, usize) {
    let (rows, copies) = match dtype {
        DType::Q8_0 => (16, 2),
        _ if dtype.block_len() == 32 => (32, 2),
        _ => (8, 1),
    };
    (rows, chains(dtype) * rows * 4 + table(dtype).len() * 4 + copies * n_in)
}

/// Groups a multiprocessor holds by registers: `mat_vec_groups` in `mat_vec.cuh`.
fn resident(variant: Variant, columns: usize) -> u32 {
    match columns * variant.rows() {
        _ if variant == Variant::Ahead => 3,
        _ if variant == Variant::Matrix => 5,
        0..=4 => 5,
        5..=8 => 4,
        _ => 3,
    }
}

/// `out[t][row] = W x_t` for `columns` columns from row `first` of `acts`; rows of `out` are `n_out` apart. More than eight
/// columns, or more than fit shared memory, take several launches: a column's bits do not depend on it.
///
/// # Errors
/// Shapes or forms that do not agree, or a driver's error.
pub fn mat_vec(
    device: &Device,
    variants: &VariantTable,
    w: &DeviceWeights,
    acts: &DeviceActs,
    first: usize,
    columns: usize,
    out: &Buffer<f32>,
) -> Result<()> {
    check(w, acts, first + columns, out.len(), columns * w.n_out)?;
    let limit = device.info().shared_bytes;
    let most =
        (1..=MAX_COLUMNS).rev().find(|c| acts.form == ActForm::F32 || shared_bytes(w.dtype, w.n_in, kernel_columns(w.dtype, *c)) <= limit);
    let most = most.ok_or_else(|| shape(format!("rows that fit {limit} bytes of shared memory"), w.n_in))?;
    let mut t = 0;
    while t < columns {
        // even shares: nine columns are five and four
        let n = (columns - t).div_ceil((columns - t).div_ceil(most));
        launch(device, variants, w, acts, first + t, n, out, t, None)?;
        t += n;
    }
    Ok(())
}

/// Experts for activations: `out[k] = W[ids[k]] x[k / share]` for every id; an id below 0 leaves its row of `out` as it is.
///
/// # Errors
/// Shapes or forms that do not agree, or a driver's error. Ids are the router's: below the number of experts.
pub fn mat_vec_experts(
    device: &Device,
    variants: &VariantTable,
    w: &DeviceWeights,
    acts: &DeviceActs,
    share: usize,
    ids: &Buffer<i32>,
    out: &Buffer<f32>,
) -> Result<()> {
    if share == 0 || acts.form == ActForm::F32 {
        return Err(shape("quantised experts and at least one id a column".into(), share));
    }
    check(w, acts, ids.len().div_ceil(share), out.len(), ids.len() * w.n_out)?;
    launch(device, variants, w, acts, 0, 1, out, 0, Some((ids, share)))
}

fn check(w: &DeviceWeights, acts: &DeviceActs, rows: usize, out: usize, written: usize) -> Result<()> {
    if acts.n_in != w.n_in || acts.form != act_form(w.dtype) || rows > acts.rows || out < written {
        let expected = format!("{rows} rows of {} activations for {}, and {written} results", w.n_in, w.dtype);
        return Err(shape(expected, format!("{} rows of {}, {:?}, {out} results", acts.rows, acts.n_in, acts.form)));
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "both public forms in one place")]
fn launch(
    device: &Device,
    variants: &VariantTable,
    w: &DeviceWeights,
    acts: &DeviceActs,
    first: usize,
    columns: usize,
    out: &Buffer<f32>,
    out_row: usize,
    experts: Option<(&Buffer<i32>, usize)>,
) -> Result<()> {
    let units = device.info().units.max(1);
    let out_at = out.arg_at(out_row * w.n_out);
    let (n_out, stride) = (Arg::U32(w.n_out as u32), Arg::U32(w.n_out as u32));
    if acts.form == ActForm::F32 {
        // few rows leave multiprocessors idle: then a group has four rows instead of sixteen, and of one column
        let split = w.n_out.div_ceil(16) < 2 * units as usize;
        let (rows, threads, together) = if split { (4, 32, 1) } else { (16, THREADS, kernel_columns(w.dtype, columns)) };
        let groups = [w.n_out.div_ceil(rows) as u32, columns.div_ceil(together) as u32, 1];
        let grid = Grid { groups, threads, shared: 0, cluster: 1 };
        let x = acts.floats.arg_at(first * w.n_in);
        let args = [w.bytes.arg(), x, out_at, (w.n_in as u32).into(), n_out, stride, (columns as u32).into()];
        let name = format!("mat_vec_{}_c{together}{}", w.dtype.name().to_lowercase(), if split { "_split" } else { "" });
        return device.launch(&name, grid, &args);
    }
    let ids = experts.map_or(1, |(ids, _)| ids.len());
    let arch = &device.info().arch;
    let mut variant = match experts {
        Some(_) => variants.experts_on(arch, w.dtype, w.n_out * ids),
        None => variants.variant_on(arch, w.dtype, columns, w.n_out, units),
    };
    if variant == Variant::Matrix && shared_bytes(w.dtype, w.n_in, MAX_COLUMNS) + MATRIX_CHAINS > device.info().shared_bytes {
        variant = Variant::Rows1;
    }
    let kernel = variant.columns(w.dtype, columns);
    let (shared, tile_rows) = match variant {
        Variant::Matrix => (shared_bytes(w.dtype, w.n_in, kernel) + MATRIX_CHAINS, 16),
        Variant::Split => {
            let (rows, shared) = split_sizes(w.dtype, w.n_in);
            (shared, rows)
        }
        _ => (shared_bytes(w.dtype, w.n_in, kernel), 4 * wave_rows(w.dtype) * variant.rows()),
    };
    let tiles = padded_rows(w.n_out).div_ceil(tile_rows) as u32;
    let narrow = w.dtype.block_len() != 256 && kernel == 1;
    let held = if narrow { 12 } else { resident(variant, kernel) };
    let held = held.min((device.info().shared_bytes / (shared + 1024)).max(1) as u32);
    let y = ids as u32;
    // every group the same number of tiles, all groups at work at one time; split groups take one tile
    let passes = if variant == Variant::Split { 1 } else { (tiles * y).div_ceil(units * held).min(tiles).max(1) };
    let share = experts.map_or(1, |(_, share)| share.min(u32::MAX as usize) as u32);
    // split groups are told which expert and which column they are for
    let split = variant == Variant::Split;
    let (y, z) = if split { (share.min(y), y.div_ceil(share)) } else { (y, 1) };
    let grid = Grid { groups: [tiles.div_ceil(passes), y, z], threads: THREADS, shared: shared as u32, cluster: 1 };
    let blocks = w.n_in / w.dtype.block_len();
    let live = if split { experts.map_or(1, |(ids, _)| ids.len()) } else { columns };
    let ids = experts.map_or(Arg::Pointer(0), |(ids, _)| ids.arg());
    let args = [
        w.bytes.arg(),
        acts.codes.arg_at(first * w.n_in),
        acts.scales.arg_at(first * blocks),
        acts.sums.arg_at(first * w.n_in / 32),
        w.table.arg(),
        out_at,
        (blocks as u32).into(),
        n_out,
        stride,
        ids,
        share.into(),
        (live as u32).into(),
    ];
    device.launch(&variant.kernel(w.dtype, columns), grid, &args)
}
