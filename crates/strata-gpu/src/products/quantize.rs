//! Activations on the device, in the form a weight format wants.

use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::{GpuError, Result};
use strata_ops::matmul::{ActForm, act_form};
use strata_quant::DType;

/// Rows of activations in one form. With two orders, row t + rows holds what the codes of row t leave out.
pub struct DeviceActs {
    pub form: ActForm,
    /// Rows there is space for, both orders together.
    pub rows: usize,
    pub n_in: usize,
    /// Values, for float weights.
    pub floats: Buffer<f32>,
    /// Codes of all rows.
    pub codes: Buffer<i8>,
    /// Scales of 32 or 256 codes each.
    pub scales: Buffer<f32>,
    /// Sums of 32 codes each.
    pub sums: Buffer<i32>,
    /// Of the 256-wide form: sums of 16 codes, two to a word, the first in the lower half.
    pub pairs: Buffer<u32>,
}

impl DeviceActs {
    /// Space for `rows` rows of `n_in` values for weights of a format.
    ///
    /// # Errors
    /// A width that is not whole blocks, or not enough memory.
    pub fn new(device: &Device, dtype: DType, rows: usize, n_in: usize) -> Result<DeviceActs> {
        let form = act_form(dtype);
        let width = width(form);
        if !n_in.is_multiple_of(width) {
            return Err(shape(format!("rows of whole blocks of {width} values"), n_in));
        }
        let codes = if form == ActForm::F32 { 0 } else { rows * n_in };
        Ok(DeviceActs {
            form,
            rows,
            n_in,
            floats: device.alloc(if form == ActForm::F32 { rows * n_in } else { 0 })?,
            codes: device.alloc(codes)?,
            scales: device.alloc(codes / width)?,
            sums: device.alloc(codes / 32)?,
            pairs: device.alloc(if form == ActForm::Q256 { codes / 32 } else { 0 })?,
        })
    }

    /// Quantises the first `rows` rows of `x`; `two_orders` also writes the second order to rows `rows..2 rows`.
    ///
    /// # Errors
    /// No space for that many rows, a float form (which is filled by a copy), or a driver's error.
    pub fn quantize(&mut self, device: &Device, x: &Buffer<f32>, rows: usize, two_orders: bool) -> Result<()> {
        let needed = rows * (1 + usize::from(two_orders));
        if needed > self.rows || x.len() < rows * self.n_in {
            return Err(shape(format!("at most {} rows", self.rows), needed));
        }
        let (kernel, per_wave) = match self.form {
            ActForm::Q32 => ("quantize_q32", 4),
            ActForm::Q256 => ("quantize_q256", 1),
            ActForm::F32 => return Err(shape("a quantised form".into(), rows)),
        };
        let blocks = (rows * self.n_in / width(self.form)) as u32;
        let grid = Grid { groups: [blocks.div_ceil(8 * per_wave), 1, 1], threads: 256, shared: 0, cluster: 1 };
        let mut args = vec![x.arg(), self.codes.arg(), self.scales.arg(), self.sums.arg()];
        if self.form == ActForm::Q256 {
            args.push(self.pairs.arg());
        }
        args.extend([Arg::U32(blocks), Arg::U32(u32::from(two_orders))]);
        device.launch(kernel, grid, &args)
    }

    /// The sums that kernels of a format take, from row `first` on.
    pub(super) fn sums_of(&self, dtype: DType, first: usize) -> Arg {
        let at = first * self.n_in / 32;
        if dtype == DType::Q2_K { self.pairs.arg_at(at) } else { self.sums.arg_at(at) }
    }

    /// Codes that share a scale.
    pub(super) fn width(&self) -> usize {
        width(self.form)
    }
}

fn width(form: ActForm) -> usize {
    match form {
        ActForm::F32 => 1,
        ActForm::Q32 => 32,
        ActForm::Q256 => 256,
    }
}

/// A shape that a launcher cannot take.
pub(super) fn shape(expected: String, found: impl std::fmt::Display) -> GpuError {
    GpuError::Launch { kernel: "product".into(), expected, found: found.to_string() }
}
