//! The dispatch tables of every family, and their switches by name.

use crate::attention::AttentionTable;
use crate::products::{Variant, VariantEntry, VariantTable};
use crate::selection::score_table::{MatrixScorer, REACHES, ScoreTable};
use crate::selection::topk_table::TopkTable;
use strata_ops::qsa::kv::KvKind;
use strata_quant::DType;

/// Every dispatch table.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    pub score: ScoreTable,
    pub topk: TopkTable,
    pub mat_vec: VariantTable,
    pub attention: AttentionTable,
}

impl Default for Tables {
    fn default() -> Self {
        Tables { score: ScoreTable::BASE, topk: TopkTable::BASE, mat_vec: VariantTable::default(), attention: AttentionTable::BASE }
    }
}

impl Tables {
    /// Sets a switch: `score.<field>`, `topk.<field>`, `mat_vec.split_columns_below`,
    /// `mat_vec.<format>.c<columns>.<n_out>` (a variant's name), `attention.prompt_min`, `attention.chunk.<KV format>` (a kernel, or
    /// `auto`). Whether there is one of this name that takes the value.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        let Some((family, field)) = name.split_once('.') else { return false };
        let number = || value.parse::<usize>().ok();
        let assign = |slot: &mut usize| number().map(|v| *slot = v).is_some();
        match (family, field) {
            ("score", _) => number().is_some_and(|v| self.score.set(field, v)),
            ("topk", _) => number().is_some_and(|v| self.topk.set(field, v)),
            ("mat_vec", "split_columns_below") => assign(&mut self.mat_vec.split_columns_below),
            ("mat_vec", _) => variant_entry(field, value).is_some_and(|e| self.mat_vec.set(e)),
            ("attention", "prompt_min") => assign(&mut self.attention.prompt_min),
            ("attention", _) => {
                let kind = field.strip_prefix("chunk.").and_then(KvKind::from_name);
                kind.is_some_and(|k| self.attention.set_chunk(k, value))
            }
            _ => false,
        }
    }

    /// Every switch and its value.
    pub fn values(&self) -> Vec<(String, String)> {
        let (s, t) = (&self.score, &self.topk);
        let matrix = match s.matrix {
            MatrixScorer::Off => 0,
            MatrixScorer::Bf16 => 1,
            MatrixScorer::Tf32 => 2,
        };
        let mut values: Vec<(String, String)> = Vec::new();
        let mut number = |name: String, v: usize| values.push((name, v.to_string()));
        number("score.thread_threshold".into(), s.thread_threshold);
        REACHES.iter().zip(s.per_group).for_each(|(name, (_, v))| number(format!("score.{name}"), v));
        number("score.rows".into(), s.rows.into());
        number("score.matrix".into(), matrix);
        number("topk.cluster_queries".into(), t.cluster_queries);
        number("topk.cluster_solo".into(), t.cluster_solo);
        number("topk.reg_min".into(), t.reg_min);
        number("topk.wide_min".into(), t.wide_min);
        number("topk.reg_max".into(), t.reg_max);
        number("topk.by_active".into(), t.by_active.into());
        number("mat_vec.split_columns_below".into(), self.mat_vec.split_columns_below);
        number("attention.prompt_min".into(), self.attention.prompt_min);
        for kind in KvKind::ALL.into_iter().filter(|k| *k != KvKind::F32) {
            values.push((format!("attention.chunk.{}", kind.name()), self.attention.chunk(kind).unwrap_or("auto").into()));
        }
        values.extend(self.mat_vec.measured().iter().map(|e| (entry_name(e), e.variant.name().into())));
        values
    }
}

/// The switch of a mat-vec entry.
pub fn entry_name(e: &VariantEntry) -> String {
    format!("mat_vec.{}.c{}.{}", e.dtype.name().to_lowercase(), e.columns, e.n_out)
}

fn variant_entry(field: &str, value: &str) -> Option<VariantEntry> {
    let mut parts = field.split('.');
    let (format, columns, n_out) = (parts.next()?, parts.next()?, parts.next()?);
    let dtype = DType::all().find(|d| d.name().to_lowercase() == format)?;
    let variant = Variant::ALL.into_iter().find(|v| v.name() == value)?;
    let entry = VariantEntry { dtype, columns: columns.strip_prefix('c')?.parse().ok()?, n_out: n_out.parse().ok()?, variant };
    parts.next().is_none().then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_can_be_set_again() {
        let mut t = Tables::default();
        for (name, value) in [
            ("score.rows", "3"),
            ("score.per_group_8192", "96"),
            ("score.matrix", "2"),
            ("topk.by_active", "0"),
            ("topk.wide_min", "9"),
            ("mat_vec.split_columns_below", "1"),
            ("mat_vec.q5_k.c2.2560", "r1"),
            ("mat_vec.iq3_s.c8.640", "split"),
            ("mat_vec.q4_k.c4.2560", "r2"),
            ("attention.chunk.int8", "attn_chunk_int8_dot"),
            ("attention.prompt_min", "5"),
        ] {
            assert!(t.set(name, value), "{name}");
            assert!(t.values().contains(&(name.to_owned(), value.to_owned())), "{name}");
        }
        let mut again = Tables::default();
        assert!(t.values().iter().all(|(name, value)| again.set(name, value)));
        assert_eq!(again, t);
    }

    #[test]
    fn entries_without_a_kernel_are_refused() {
        let mut t = Tables::default();
        for (name, value) in [
            ("mat_vec.q4_k.c9.2560", "split"),
            ("mat_vec.q4_k.c1.2560", "r1"),
            ("mat_vec.q4_k.c1.2560", "r2"),
            ("mat_vec.q4_0.c2.2560", "r1"),
            ("mat_vec.q4_k.c2", "r1"),
            ("mat_vec.q4_k.c2.2560.1", "r1"),
            ("mat_vec.f32.c1.2560", "r1"),
            ("mat_vec.q9.c2.2560", "r1"),
            ("attention.chunk.f32", "attn_chunk_fp16"),
            ("attention.chunk.int8", ""),
        ] {
            assert!(!t.set(name, value), "{name} = {value}");
        }
        assert_eq!(t, Tables::default());
    }
}
