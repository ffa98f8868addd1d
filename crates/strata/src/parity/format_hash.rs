//! Suite `format_hash`: whole runs of synthetic models, one for each weight format, with rows up to 10,240 wide. What must not
//! change a token or a bit of its log-probability is what it is for the bundled model (`engine_hash`); formats, KV kinds and
//! sampling each have an answer of their own.

use super::engine_hash::{Bound, Group, Way, differing, groups, params};
use super::{Event, Report};
use crate::error::CliError;
use crate::hash::token_hash_hex;
use strata_cpu::parity::CaseReport;
use strata_cpu::simd::Simd;
use strata_engine::Token;
use strata_quant::DType;
use strata_synth::{Recipe, in_memory};

const THREADS: [usize; 2] = [1, 2];
const CHUNKS: [usize; 3] = [64, 7, 1];
const SPECS: [usize; 3] = [0, 1, 3];
/// Tokens of the prompt, and tokens generated. Attention is sparse from the 13th on.
const PROMPT: u32 = 24;
const GENERATED: usize = 10;
/// Memory that a model may take.
const LIMIT: u64 = 1 << 30;

/// The model of a format: every matrix whose rows are whole blocks of it has it. Forty streams of 256 make the wide rows 10,240,
/// so that little else has to be large; the other widths give 1, 2, 5 and 6 blocks of 256.
fn recipe(dtype: DType) -> Result<Recipe, CliError> {
    let sizes = "layers=2,attention_every=2,hidden=256,streams=40,low_rank=32,heads=6,key_heads=5,value_heads=10,experts=4,used=2,ff=512,\
                 shared_ff=256,vocab=512,budget=8,ngram_rows=200,mtp=1";
    Ok(Recipe::parse(&format!("refmodel:{dtype},{sizes},down={dtype},dense={dtype},emb={dtype},table={dtype}"))?)
}

/// Everything (`full`), or for each format one group and one way at each level: over the formats these take every group, and at
/// every level each pair of threads, chunk and drafts.
fn plan(full: bool, index: usize) -> Vec<(Group, Vec<Way>)> {
    let levels = Simd::available();
    let ways = |level: Simd| {
        THREADS
            .into_iter()
            .flat_map(move |threads| CHUNKS.into_iter().flat_map(move |chunk| SPECS.map(|spec| Way { level, threads, chunk, spec })))
    };
    if full {
        return groups().map(|g| (g, levels.iter().flat_map(|l| ways(*l)).collect())).collect();
    }
    let one = |(l, level): (usize, &Simd)| {
        let all: Vec<Way> = ways(*level).collect();
        all[(7 * index + 5 * l + 1) % all.len()]
    };
    let group = groups().nth(index % groups().count());
    group.map(|g| (g, levels.iter().enumerate().map(one).collect())).into_iter().collect()
}

/// Runs the suite.
///
/// # Errors
/// A synthetic model cannot be made, bound or run.
pub fn run(full: bool, report: Report<'_>) -> Result<(), CliError> {
    DType::all().enumerate().try_for_each(|(i, dtype)| compare(dtype, plan(full, i), |_| (), report))
}

/// Compares the runs of a format's plan with the plainest run. `change` is for the negative control: another model must be seen.
fn compare(dtype: DType, plan: Vec<(Group, Vec<Way>)>, change: fn(&mut Recipe), report: Report<'_>) -> Result<(), CliError> {
    let right = recipe(dtype)?;
    let mut compared = right.clone();
    change(&mut compared);
    let (right, compared) = (in_memory(&right, "right", LIMIT)?, in_memory(&compared, "compared", LIMIT)?);
    let prompt: Vec<u32> = (0..PROMPT).map(|i| (i * i * 37 + 5) % 500).collect();
    let plainest = Way { level: Simd::Scalar, threads: 1, chunk: CHUNKS[0], spec: 0 };
    let mut bound = Bound::new(&right, plainest)?;
    let mut answers: Vec<(Group, Vec<Token>)> = Vec::new();
    for (g, _) in &plan {
        let answer = bound.answer(plainest, *g, params(*g), &prompt, GENERATED)?;
        let ids: Vec<u32> = answer.iter().map(|t| t.id).collect();
        report(Event::Note(format!("{dtype} {} {}", g.label(), token_hash_hex(&ids))));
        answers.push((*g, answer));
    }
    // binding takes longest: ways that share a level and a number of threads follow each other, over all groups
    let mut runs: Vec<(Way, usize)> = plan.iter().enumerate().flat_map(|(i, (_, ways))| ways.iter().map(move |w| (*w, i))).collect();
    runs.sort_by_key(|(w, _)| (w.level, w.threads));
    let mut bound: Option<Bound> = None;
    for (way, i) in runs {
        let (g, want) = &answers[i];
        let mut now = match bound.take().filter(|b| (b.level, b.threads) == (way.level, way.threads)) {
            Some(same) => same,
            None => Bound::new(&compared, way)?,
        };
        let got = now.answer(way, *g, params(*g), &prompt, GENERATED)?;
        report(Event::Case(CaseReport {
            suite: "format_hash",
            case: format!("{dtype} {} {}", g.label(), way.label()),
            compared: 2 * GENERATED as u64,
            differing: differing(&got, want),
            max_err64: None,
        }));
        bound = Some(now);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_plan_has_every_value_and_the_full_one_everything() {
        let formats = DType::all().count();
        let small: Vec<(Group, Vec<Way>)> = (0..formats).flat_map(|i| plan(false, i)).collect();
        let levels = Simd::available();
        assert_eq!(small.len(), formats);
        assert!(groups().all(|g| small.iter().any(|(s, _)| *s == g)));
        for level in &levels {
            let at: Vec<Way> = small.iter().flat_map(|(_, ways)| ways).filter(|w| w.level == *level).copied().collect();
            assert_eq!(at.len(), formats, "each format once at {}", level.name());
            let all = THREADS.iter().flat_map(|t| CHUNKS.iter().flat_map(move |c| SPECS.iter().map(move |s| (*t, *c, *s))));
            for (t, c, s) in all {
                assert!(at.iter().any(|w| (w.threads, w.chunk, w.spec) == (t, c, s)), "{} {t} {c} {s}", level.name());
            }
        }
        let full: usize = plan(true, 0).iter().map(|(_, ways)| ways.len()).sum();
        assert_eq!(full, 8 * levels.len() * 18);
    }

    #[test]
    fn wide_rows_have_the_format() {
        for dtype in DType::all() {
            let gguf = in_memory(&recipe(dtype).unwrap(), "m", LIMIT).unwrap();
            for (name, cols) in
                [("blk.0.hc_attn_down.weight", 10_240), ("blk.1.ffn_down_exps.weight", 512), ("blk.1.attn_output.weight", 1536)]
            {
                let t = gguf.tensor(name).unwrap();
                assert_eq!((t.cols(), t.dtype), (cols, dtype), "{name}");
            }
        }
    }

    fn differences(dtype: DType, change: fn(&mut Recipe)) -> Vec<u64> {
        let mut seen = Vec::new();
        let report: Report<'_> = &mut |event| {
            if let Event::Case(case) = event {
                seen.push(case.differing);
            }
        };
        compare(dtype, plan(false, 3), change, report).unwrap();
        seen
    }

    #[test]
    fn another_model_is_seen_and_the_same_one_is_not() {
        assert!(differences(DType::Q4_K, |r| r.seed += 1).iter().all(|d| *d > 0));
        assert!(differences(DType::Q4_K, |_| ()).iter().all(|d| *d == 0));
    }
}
