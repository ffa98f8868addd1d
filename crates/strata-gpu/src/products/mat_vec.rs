//! Mat-vec: one to eight columns of activations, whole matrices or one of many experts for each column.

use super::quantize::{DeviceActs, shape};
use super::repack::{FORMATS, chains, packed_bytes, padded_rows, repack};
use super::tables::table;
use super::variant::{MAX_COLUMNS, SPLIT_COLUMNS, Variant, VariantTable, wave_rows};
use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::{GpuError, Result};
use strata_ops::matmul::{ActForm, act_form};
use strata_quant::DType;

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
    /// A format without kernels, another size, rows that are not whole blocks, or not enough memory.
    pub fn upload(device: &Device, dtype: DType, bytes: &[u8], n_in: usize, n_out: usize, experts: usize) -> Result<DeviceWeights> {
        check_format(dtype)?;
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
    /// A format without kernels, another size, or not enough memory.
    pub fn from_packed(device: &Device, dtype: DType, packed: &[u8], n_in: usize, n_out: usize, experts: usize) -> Result<DeviceWeights> {
        check_format(dtype)?;
        let expected = experts * packed_bytes(dtype, n_out, n_in);
        if packed.len() != expected {
            return Err(shape(format!("{expected} repacked bytes"), packed.len()));
        }
        Ok(DeviceWeights { dtype, n_in, n_out, experts, bytes: device.upload(packed)?, table: device.upload(&table(dtype))? })
    }
}

fn check_format(dtype: DType) -> Result<()> {
    if FORMATS.contains(&dtype) {
        return Ok(());
    }
    Err(GpuError::Kernel { kernel: format!("products of {dtype}"), reason: "no kernel of this format yet".into() })
}

/// Columns of the kernel of floats that serves `columns`.
fn float_columns(columns: usize) -> usize {
    match columns {
        2..=4 => 4,
        5..=8 => 8,
        n => n,
    }
}

/// Formats with blocks of 256 values and minima.
fn minima(dtype: DType) -> bool {
    matches!(dtype, DType::Q2_K | DType::Q4_K | DType::Q5_K)
}

/// Bytes of shared memory for `columns` columns of activations: `ActBlock` in `mat_vec.cuh`.
fn act_bytes(dtype: DType, n_in: usize, columns: usize) -> usize {
    let block = dtype.block_len() + if minima(dtype) { 48 } else { 16 };
    columns * (n_in / dtype.block_len()) * block
}

/// Rows of a workgroup of the split variant and its bytes of shared memory (`Split` in `mat_vec_split.cuh`): chains, the table, and the
/// activations of a group of columns, for one column twice where two waves walk the same chains.
fn split_sizes(dtype: DType, n_in: usize, columns: usize) -> (usize, usize) {
    let (rows, copies) = match (dtype, dtype.block_len()) {
        (_, 256) => (8, 1),
        _ if columns > 1 => (16, 1),
        (DType::Q8_0 | DType::Q5_0 | DType::Q5_1 | DType::NVFP4, _) => (16, 2),
        _ => (32, 2),
    };
    let sums = if minima(dtype) && columns > 1 { n_in / 8 + 16 } else { 0 };
    let live = columns.div_ceil(columns.div_ceil(SPLIT_COLUMNS));
    let kernel = Variant::Split.columns(columns);
    (rows, kernel * chains(dtype) * rows * 4 + table(dtype).len() * 4 + copies * live * (n_in + sums))
}

/// Rows of a workgroup of a variant and its bytes of shared memory.
fn sizes(variant: Variant, dtype: DType, n_in: usize, columns: usize) -> (usize, usize) {
    let kernel = variant.columns(columns);
    match variant {
        Variant::Split => split_sizes(dtype, n_in, columns),
        Variant::Matrix => (16, act_bytes(dtype, n_in, kernel) + MATRIX_CHAINS),
        _ => (4 * wave_rows(dtype) * variant.rows(), act_bytes(dtype, n_in, kernel)),
    }
}

/// Groups a multiprocessor holds by registers: `mat_vec_groups` in `mat_vec.cuh`, `MAT_VEC_MATRIX` in `mat_vec_matrix.cuh`.
fn resident(variant: Variant, columns: usize) -> u32 {
    match variant {
        Variant::Matrix => 6,
        _ if variant.columns(columns) * variant.rows() <= 4 => 5,
        _ => 4,
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
    // whatever fits another variant: split takes every launch
    let most = (1..=MAX_COLUMNS).rev().find(|c| acts.form == ActForm::F32 || sizes(Variant::Split, w.dtype, w.n_in, *c).1 <= limit);
    let most = most.ok_or_else(|| too_wide(device, w))?;
    let mut t = 0;
    while t < columns {
        // even shares: nine columns are five and four
        let n = (columns - t).div_ceil((columns - t).div_ceil(most));
        launch(device, variants, w, acts, first + t, n, out, t)?;
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
    let (rows, shared) = split_sizes(w.dtype, w.n_in, 1);
    if shared > device.info().shared_bytes {
        return Err(too_wide(device, w));
    }
    let share = share.min(ids.len());
    let groups = [padded_rows(w.n_out).div_ceil(rows) as u32, share as u32, ids.len().div_ceil(share.max(1)) as u32];
    let grid = Grid { groups, threads: THREADS, shared: shared as u32, cluster: 1 };
    let args = block_args(w, acts, 0, out.arg(), ids.arg(), share, ids.len());
    device.launch(&Variant::Split.kernel(w.dtype, 1), grid, &args)
}

fn too_wide(device: &Device, w: &DeviceWeights) -> GpuError {
    shape(format!("rows that fit {} bytes of shared memory", device.info().shared_bytes), w.n_in)
}

/// Arguments of a kernel of block formats.
fn block_args(w: &DeviceWeights, acts: &DeviceActs, first: usize, out: Arg, ids: Arg, share: usize, live: usize) -> [Arg; 12] {
    let blocks = w.n_in / w.dtype.block_len();
    [
        w.bytes.arg(),
        acts.codes.arg_at(first * w.n_in),
        acts.scales.arg_at(first * (w.n_in / acts.width())),
        acts.sums_of(w.dtype, first),
        w.table.arg(),
        out,
        (blocks as u32).into(),
        (w.n_out as u32).into(),
        (w.n_out as u32).into(),
        ids,
        (share as u32).into(),
        (live as u32).into(),
    ]
}

fn check(w: &DeviceWeights, acts: &DeviceActs, rows: usize, out: usize, written: usize) -> Result<()> {
    if acts.n_in != w.n_in || acts.form != act_form(w.dtype) || rows > acts.rows || out < written {
        let expected = format!("{rows} rows of {} activations for {}, and {written} results", w.n_in, w.dtype);
        return Err(shape(expected, format!("{} rows of {}, {:?}, {out} results", acts.rows, acts.n_in, acts.form)));
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "a launch of the public form")]
fn launch(
    device: &Device,
    variants: &VariantTable,
    w: &DeviceWeights,
    acts: &DeviceActs,
    first: usize,
    columns: usize,
    out: &Buffer<f32>,
    out_row: usize,
) -> Result<()> {
    let units = device.info().units.max(1);
    let out_at = out.arg_at(out_row * w.n_out);
    let (n_out, stride) = (Arg::U32(w.n_out as u32), Arg::U32(w.n_out as u32));
    if acts.form == ActForm::F32 {
        // few rows leave multiprocessors idle: then a group has four rows instead of sixteen, and of one column
        let split = w.n_out.div_ceil(16) < 2 * units as usize;
        let (rows, threads, together) = if split { (4, 32, 1) } else { (16, THREADS, float_columns(columns)) };
        let groups = [w.n_out.div_ceil(rows) as u32, columns.div_ceil(together) as u32, 1];
        let grid = Grid { groups, threads, shared: 0, cluster: 1 };
        let x = acts.floats.arg_at(first * w.n_in);
        let args = [w.bytes.arg(), x, out_at, (w.n_in as u32).into(), n_out, stride, (columns as u32).into()];
        let name = format!("mat_vec_{}_c{together}{}", w.dtype.name().to_lowercase(), if split { "_split" } else { "" });
        return device.launch(&name, grid, &args);
    }
    let limit = device.info().shared_bytes;
    let mut variant = variants.variant_on(&device.info().arch, w.dtype, columns, w.n_out, units);
    if sizes(variant, w.dtype, w.n_in, columns).1 > limit {
        variant = Variant::Split;
    }
    let (rows, shared) = sizes(variant, w.dtype, w.n_in, columns);
    let tiles = padded_rows(w.n_out).div_ceil(rows) as u32;
    let (groups, share) = if variant == Variant::Split {
        let parts = columns.div_ceil(SPLIT_COLUMNS);
        ([tiles, 1, parts as u32], columns.div_ceil(parts))
    } else {
        // every group the same number of tiles, all groups at work at one time
        let held = resident(variant, columns).min((limit / (shared + 1024)).max(1) as u32);
        ([tiles.div_ceil(tiles.div_ceil(units * held).max(1)), 1, 1], columns)
    };
    let grid = Grid { groups, threads: THREADS, shared: shared as u32, cluster: 1 };
    let args = block_args(w, acts, first, out_at, Arg::Pointer(0), share, columns);
    device.launch(&variant.kernel(w.dtype, columns), grid, &args)
}
