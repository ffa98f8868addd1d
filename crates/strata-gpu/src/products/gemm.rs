//! Products of quantised matrices with many tokens (prompts), by integer tiles. Every form and tile gives the definition's bits.

use super::mat_vec::DeviceWeights;
use super::quantize::{DeviceActs, shape};
use super::repack::packed_bytes;
use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::Result;
use strata_ops::matmul::act_form;
use strata_quant::DType;

/// Shared memory of an NVIDIA GPU's wide tile, with stages of 128 values and of 64.
const DEEP_SHARED: u32 = 97 * 1024;
const SHALLOW_SHARED: u32 = 62 * 1024;

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmForm {
    /// Matrix instructions, large tiles: for many tokens of one matrix.
    Matrix,
    /// Matrix instructions, 128 rows for 32 tokens: for the few tokens of an expert.
    MatrixFew,
    /// Dot products of four bytes, on every device.
    Dot,
}

impl GemmForm {
    /// Every form.
    pub const ALL: [GemmForm; 3] = [GemmForm::Matrix, GemmForm::MatrixFew, GemmForm::Dot];

    /// The form for `tokens` tokens a matrix.
    pub fn best(device: &Device, tokens: usize) -> GemmForm {
        match (GemmForm::Matrix.is_on(device), tokens) {
            (false, _) => GemmForm::Dot,
            (true, 0..=64) => GemmForm::MatrixFew,
            (true, _) => GemmForm::Matrix,
        }
    }

    /// Whether a device has it.
    pub fn is_on(self, device: &Device) -> bool {
        device.has(&self.kernel(DType::Q8_0))
    }

    /// Rows and tokens of a tile.
    pub fn tile(self) -> (usize, usize) {
        match self {
            GemmForm::Matrix => (96, 128),
            GemmForm::MatrixFew => (128, 32),
            GemmForm::Dot => (128, 64),
        }
    }

    /// Dynamic shared memory: NVIDIA's wide tiles take more than what kernels may declare, as `WIDE_SHARED` of
    /// `gemm/kernels.cuh` says, most from `sm_80` on.
    fn shared(self, device: &Device) -> u32 {
        if self != GemmForm::Matrix || device.info().arch.contains("gfx") {
            return 0;
        }
        if DEEP_SHARED as usize <= device.info().shared_bytes { DEEP_SHARED } else { SHALLOW_SHARED }
    }

    fn kernel(self, dtype: DType) -> String {
        let (form, tile) = match self {
            GemmForm::Matrix => ("matrix", ""),
            GemmForm::MatrixFew => ("matrix", "_32"),
            GemmForm::Dot => ("dot", ""),
        };
        format!("gemm_{form}_{}{tile}", dtype.name().to_lowercase())
    }
}

/// What is multiplied with what.
pub enum GemmItems<'a> {
    /// Rows `0..n` of activations with the first matrix, to rows `0..n` of the output.
    All(usize),
    /// Item i is row `act_rows[i]` of activations, its product row `out_rows[i]` of the output.
    Grouped {
        /// [`expert_tiles`] for the form that is used, four words each.
        tiles: &'a Buffer<u32>,
        act_rows: &'a Buffer<u32>,
        out_rows: &'a Buffer<u32>,
    },
}

/// Tiles of at most `tokens` items (see [`GemmForm::tile`]) for groups of items `(expert, first, end)`: expert, first item,
/// items, 0.
pub fn expert_tiles(groups: impl IntoIterator<Item = (u32, u32, u32)>, tokens: usize) -> Vec<u32> {
    let step = tokens.max(1);
    let tiles = groups
        .into_iter()
        .flat_map(|(expert, first, end)| (first..end).step_by(step).flat_map(move |at| [expert, at, (end - at).min(step as u32), 0]));
    tiles.collect()
}

/// `out[out row] = W_expert act[act row]` for every item; `out` is `[.., rows]`. Rows of no item are left alone.
///
/// # Errors
/// A format or form without kernel here, buffers of the wrong size, or a driver's error.
pub fn gemm(device: &Device, form: GemmForm, w: &DeviceWeights, acts: &DeviceActs, items: &GemmItems<'_>, out: &Buffer<f32>) -> Result<()> {
    let name = form.kernel(w.dtype);
    let one = packed_bytes(w.dtype, w.n_out, w.n_in);
    let (tile_rows, tile_tokens) = form.tile();
    let null = Arg::Pointer(0);
    let (n, tiles, lists) = match items {
        GemmItems::All(n) => (*n, n.div_ceil(tile_tokens), [null; 3]),
        GemmItems::Grouped { tiles, act_rows, out_rows } => (0, tiles.len() / 4, [tiles.arg(), act_rows.arg(), out_rows.arg()]),
    };
    if acts.n_in != w.n_in || acts.form != act_form(w.dtype) || n > acts.rows || out.len() < n * w.n_out {
        let expected = format!("{n} rows of {} activations for {}, and {} results", w.n_in, w.dtype, n * w.n_out);
        return Err(shape(expected, format!("{} rows of {} in {:?}, {}", acts.rows, acts.n_in, acts.form, out.len())));
    }
    // a wave makes 32 x 32 outputs
    let threads = (tile_rows * tile_tokens / 32) as u32;
    let grid = Grid { groups: [tiles as u32, w.n_out.div_ceil(tile_rows) as u32, 1], threads, shared: form.shared(device), cluster: 1 };
    let [tiles, act_rows, out_rows] = lists;
    let args = [
        w.bytes.arg(),
        (one as i64).into(),
        acts.codes.arg(),
        acts.scales.arg(),
        acts.sums_of(w.dtype, 0),
        w.table.arg(),
        tiles,
        act_rows,
        out_rows,
        out.arg(),
        (w.n_out as i32).into(),
        (w.n_in as i32).into(),
        (n as i32).into(),
    ];
    device.launch(&name, grid, &args)
}

/// `out[t] = W x_t` of float weights for the first `n` rows of activations.
///
/// # Errors
/// Another form of weights or activations, buffers of the wrong size, or a driver's error.
pub fn gemm_float(device: &Device, w: &DeviceWeights, acts: &DeviceActs, n: usize, out: &Buffer<f32>) -> Result<()> {
    if !w.dtype.is_float() || acts.n_in != w.n_in || acts.form != act_form(w.dtype) || n > acts.rows || out.len() < n * w.n_out {
        let expected = format!("float weights, {n} rows of {} activations and {} results", w.n_in, n * w.n_out);
        return Err(shape(expected, format!("{}, {} rows of {}, {}", w.dtype, acts.rows, acts.n_in, out.len())));
    }
    // 64 rows and 32 tokens a workgroup
    let grid = Grid { groups: [n.div_ceil(32) as u32, w.n_out.div_ceil(64) as u32, 1], threads: 256, shared: 0, cluster: 1 };
    let args = [w.bytes.arg(), acts.floats.arg(), out.arg(), (w.n_in as i32).into(), (w.n_out as i32).into(), (n as i32).into()];
    device.launch(&format!("gemm_{}", w.dtype.name().to_lowercase()), grid, &args)
}
