//! Which format each tensor gets.

use super::writable_names;
use crate::error::CliError;
use regex_lite::Regex;
use strata_gguf::TensorInfo;
use strata_quant::{DType, can_encode};

/// Parts of the names of matrices that are small and that the model does not forgive: kept as they are.
const SENSITIVE: [&str; 8] = ["norm", "ffn_gate_inp", "_inject", "ssm_alpha", "ssm_beta", "ssm_conv1d", "ple_conv1d", "indexer."];
/// Matrices that every token meets, and the format they get at least.
const EVERY_TOKEN: [&str; 2] = ["token_embd.weight", "output.weight"];
const EVERY_TOKEN_TYPE: DType = DType::Q6_K;

/// A tensor and its format in the new file.
pub struct Planned<'a> {
    pub info: &'a TensorInfo,
    pub dtype: DType,
    /// The format that its rows are too narrow for.
    pub wanted: Option<DType>,
}

impl Planned<'_> {
    /// Values of the tensor.
    pub fn values(&self) -> u64 {
        self.info.cols().saturating_mul(self.info.rows())
    }

    /// Bytes in the new file.
    pub fn byte_len(&self) -> u64 {
        self.values() / self.dtype.block_len() as u64 * self.dtype.block_bytes() as u64
    }
}

/// A rule of `--keep`.
pub struct Keep {
    names: Regex,
    /// `None`: as in the source.
    dtype: Option<DType>,
}

impl Keep {
    /// `REGEX=T`; the last `=` counts.
    ///
    /// # Errors
    /// No `=`, no regular expression, or no format that can be written.
    pub fn parse(text: &str) -> Result<Keep, CliError> {
        let usage = |why: String| CliError::Usage(format!("--keep {text}: {why}"));
        let (regex, dtype) = text.rsplit_once('=').ok_or_else(|| usage("expected REGEX=T, found no '='".into()))?;
        let names = Regex::new(regex).map_err(|e| usage(format!("expected a regular expression: {e}")))?;
        let dtype = if dtype.eq_ignore_ascii_case("source") { None } else { Some(writable(dtype)?) };
        Ok(Keep { names, dtype })
    }
}

/// The format of this name.
///
/// # Errors
/// There is none, or it cannot be written.
pub fn writable(name: &str) -> Result<DType, CliError> {
    match DType::from_name(name) {
        Some(d) if can_encode(d) => Ok(d),
        Some(d) => {
            Err(CliError::Usage(format!("{d}: this build reads the format but does not write it; expected one of {}", writable_names())))
        }
        None => Err(CliError::Usage(format!("type '{name}': expected one of {}", writable_names()))),
    }
}

/// The format for rows that are no whole number of blocks of `dtype`: the 32-wide one that the field puts in its place, and F16
/// where rows are narrower still.
fn narrower(dtype: DType, cols: u64) -> DType {
    let fits = |d: DType| cols.is_multiple_of(d.block_len() as u64);
    if fits(dtype) {
        return dtype;
    }
    let instead = match dtype {
        DType::Q6_K => DType::Q8_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q4_K => DType::Q5_0,
        DType::Q2_K | DType::Q3_K | DType::Q2_0 => DType::Q4_0,
        DType::NVFP4 => DType::MXFP4,
        _ => DType::IQ4_NL,
    };
    if fits(instead) { instead } else { DType::F16 }
}

fn bits(d: DType) -> f64 {
    d.block_bytes() as f64 * 8.0 / d.block_len() as f64
}

/// The format of a tensor: by the first rule of `--keep` that matches its name, else `target` where it may.
pub fn plan<'a>(info: &'a TensorInfo, target: DType, keeps: &[Keep]) -> Planned<'a> {
    let name = info.name.as_str();
    let wanted = match keeps.iter().find(|k| k.names.is_match(name)) {
        Some(keep) => keep.dtype,
        None if info.rows() <= 1 || SENSITIVE.iter().any(|s| name.contains(s)) => None,
        None if EVERY_TOKEN.contains(&name) && bits(target) < bits(EVERY_TOKEN_TYPE) => Some(EVERY_TOKEN_TYPE),
        None => Some(target),
    };
    match wanted {
        None => Planned { info, dtype: info.dtype, wanted: None },
        Some(wanted) => {
            let dtype = match narrower(wanted, info.cols()) {
                // what has 16 bits already gains nothing by others
                DType::F16 if wanted != DType::F16 && info.dtype == DType::BF16 => DType::BF16,
                d => d,
            };
            Planned { info, dtype, wanted: (dtype != wanted).then_some(wanted) }
        }
    }
}

/// `general.file_type` of files that are mostly of a format.
pub fn file_type(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::Q4_0 => 2,
        DType::Q4_1 => 3,
        DType::Q8_0 => 7,
        DType::Q5_0 => 8,
        DType::Q5_1 => 9,
        DType::Q2_K => 10,
        DType::Q3_K => 11,
        DType::Q4_K => 14,
        DType::Q5_K => 16,
        DType::Q6_K => 18,
        DType::IQ2_XXS => 19,
        DType::IQ2_XS => 20,
        DType::IQ3_XXS => 23,
        DType::IQ1_S => 24,
        DType::IQ4_NL => 25,
        DType::IQ3_S => 26,
        DType::IQ2_S => 28,
        DType::IQ4_XS => 30,
        DType::IQ1_M => 31,
        DType::BF16 => 32,
        DType::MXFP4 => 38,
        DType::NVFP4 => 39,
        DType::Q2_0 => 41,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::file_of;
    use super::*;

    fn chosen(name: &str, dims: &[u64], target: DType, keeps: &[&str]) -> DType {
        let keeps: Vec<Keep> = keeps.iter().map(|k| Keep::parse(k).unwrap_or_else(|e| panic!("{e}"))).collect();
        let file = file_of(name, dims);
        plan(file.tensor(name).unwrap(), target, &keeps).dtype
    }

    #[test]
    fn formats_follow_the_rules() {
        use DType::*;
        for (name, dims, target, keeps, expected) in [
            ("blk.0.ffn_up_exps.weight", &[2560u64, 3, 2][..], IQ3_S, &[][..], IQ3_S),
            ("blk.0.ffn_down_exps.weight", &[640, 3, 2], IQ3_S, &[], IQ4_NL),
            ("blk.0.ffn_down_exps.weight", &[640, 3, 2], IQ2_XS, &[], IQ4_NL),
            ("blk.0.ffn_down_exps.weight", &[640, 3, 2], Q4_K, &[], Q5_0),
            ("blk.0.ffn_down_exps.weight", &[640, 3, 2], Q5_K, &[], Q5_1),
            ("blk.0.ffn_down_exps.weight", &[640, 3, 2], Q6_K, &[], Q8_0),
            ("blk.0.ffn_down_exps.weight", &[640, 3, 2], Q2_0, &[], Q2_0),
            ("per_layer_token_embd.weight", &[160, 9], Q2_0, &[], Q4_0),
            ("per_layer_token_embd.weight", &[16, 9], Q4_K, &[], F16),
            ("output.weight", &[2560, 5], IQ2_XS, &[], Q6_K),
            ("output.weight", &[2560, 5], Q8_0, &[], Q8_0),
            ("output.weight", &[2560, 5], IQ2_XS, &["^output=Q4_K"], Q4_K),
            ("output_hc_norm.weight", &[10_240], Q4_K, &[], F32),
            ("blk.3.ffn_gate_inp.weight", &[2560, 3], Q4_K, &[], F32),
            ("blk.3.hc_ffn_inject.weight", &[10_240, 4], Q4_K, &[], F32),
            ("blk.3.ffn_gate_inp_shexp.weight", &[2560, 1], Q4_K, &[], F32),
            ("blk.3.indexer.q_proj.weight", &[2560, 3], Q4_K, &[], F32),
            ("blk.3.indexer.q_proj.weight", &[2560, 3], Q4_K, &["indexer=Q8_0", ".=Q6_K"], Q8_0),
            ("blk.3.attn_q.weight", &[2560, 3], Q4_K, &["attn_.=source"], F32),
            ("blk.3.attn_q.weight", &[2560, 3], Q4_K, &["attn_k|a=b=Q8_0"], Q4_K),
        ] {
            assert_eq!(chosen(name, dims, target, keeps), expected, "{name} {target} {keeps:?}");
        }
    }

    #[test]
    fn bad_rules_are_usage_errors() {
        for bad in ["attn", "attn=Q9_9", "attn=IQ1_S", "(=Q8_0", "attn="] {
            assert!(matches!(Keep::parse(bad), Err(CliError::Usage(_))), "{bad}");
        }
        assert!(matches!(writable("IQ1_M"), Err(CliError::Usage(_))) && writable("iq3_xxs").is_ok());
    }
}
