//! Products of quantised matrices with many tokens (prompts), by integer tiles. Every form and tile gives the definition's bits.

use super::mat_vec::DeviceWeights;
use super::quantize::{DeviceActs, shape};
use super::repack::packed_bytes;
use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::Result;
use strata_ops::matmul::act_form;
use strata_quant::DType;

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmForm {
    /// Matrix instructions.
    Matrix,
    /// Dot products of four bytes, on every device.
    Dot,
}

/// Which shape of tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmTile {
    /// 8,192 outputs: for many tokens of one matrix.
    Wide,
    /// 128 rows for 32 tokens: for the few tokens of an expert.
    Few,
}

impl GemmForm {
    /// The faster form a device has.
    pub fn best(device: &Device) -> GemmForm {
        if device.has("gemm_matrix_q8_0") { GemmForm::Matrix } else { GemmForm::Dot }
    }
}

impl GemmTile {
    /// Rows and tokens of a tile.
    pub fn shape(self, dtype: DType) -> (usize, usize) {
        match self {
            GemmTile::Few => (128, 32),
            // formats with a sub-scale for 16 values
            GemmTile::Wide if matches!(dtype, DType::Q6_K | DType::IQ2_XS) => (64, 128),
            GemmTile::Wide => (128, 64),
        }
    }
}

/// What is multiplied with what.
pub enum GemmItems<'a> {
    /// Rows `0..n` of activations with the first matrix, to rows `0..n` of the output.
    All(usize),
    /// Item i is row `act_rows[i]` of activations, its product row `out_rows[i]` of the output.
    Grouped {
        /// [`expert_tiles`] for the tile that is used, four words each.
        tiles: &'a Buffer<u32>,
        act_rows: &'a Buffer<u32>,
        out_rows: &'a Buffer<u32>,
    },
}

/// Tiles of at most `tokens` items (see [`GemmTile::shape`]) for groups of items `(expert, first, end)`: expert, first item,
/// items, 0.
pub fn expert_tiles(groups: impl IntoIterator<Item = (u32, u32, u32)>, tokens: usize) -> Vec<u32> {
    let step = tokens.max(1);
    let tiles = groups
        .into_iter()
        .flat_map(|(expert, first, end)| (first..end).step_by(step).flat_map(move |at| [expert, at, (end - at).min(step as u32), 0]));
    tiles.collect()
}

/// The name of a kernel.
fn name(dtype: DType, form: GemmForm, tile: GemmTile) -> String {
    let form = if form == GemmForm::Matrix { "matrix" } else { "dot" };
    let tile = if tile == GemmTile::Few { "_32" } else { "" };
    format!("gemm_{form}_{}{tile}", dtype.name().to_lowercase())
}

/// `out[out row] = W_expert act[act row]` for every item; `out` is `[.., rows]`. Rows of no item are left alone.
///
/// # Errors
/// A format or form without kernel here, buffers of the wrong size, or a driver's error.
pub fn gemm(
    device: &Device,
    form: GemmForm,
    tile: GemmTile,
    w: &DeviceWeights,
    acts: &DeviceActs,
    items: &GemmItems<'_>,
    out: &Buffer<f32>,
) -> Result<()> {
    let name = name(w.dtype, form, tile);
    let one = packed_bytes(w.dtype, w.n_out, w.n_in);
    let (tile_rows, tile_tokens) = tile.shape(w.dtype);
    let null = Arg::Pointer(0);
    let (n, tiles, lists) = match items {
        GemmItems::All(n) => (*n, n.div_ceil(tile_tokens), [null; 3]),
        GemmItems::Grouped { tiles, act_rows, out_rows } => (0, tiles.len() / 4, [tiles.arg(), act_rows.arg(), out_rows.arg()]),
    };
    if acts.n_in != w.n_in || acts.form != act_form(w.dtype) || n > acts.rows || out.len() < n * w.n_out {
        let expected = format!("{n} rows of {} activations for {}, and {} results", w.n_in, w.dtype, n * w.n_out);
        return Err(shape(expected, format!("{} rows of {} in {:?}, {}", acts.rows, acts.n_in, acts.form, out.len())));
    }
    let threads = if tile == GemmTile::Few { 128 } else { 256 };
    let grid = Grid { groups: [tiles as u32, w.n_out.div_ceil(tile_rows) as u32, 1], threads, shared: 0, cluster: 1 };
    let [tiles, act_rows, out_rows] = lists;
    let args = [
        w.bytes.arg(),
        (one as i64).into(),
        acts.codes.arg(),
        acts.scales.arg(),
        acts.sums.arg(),
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
