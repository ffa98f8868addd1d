//! Rows of several sequences in one pass have the bits of each sequence alone, however they are cut and mixed.

mod common;
#[path = "common/faulty.rs"]
mod faulty;

use common::{Fixture, Rng, refmodel};
use faulty::{Fault, Faulty};
use std::sync::Arc;
use strata_cpu::backend::Cpu;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_model::{ForwardError, Limits, Model, ModelOptions, Scratch, Segment, Sequence};
use strata_ops::backend::Backend;
use strata_ops::qsa::kv::KvKind;

/// Longest text: selection of blocks begins at the 260th token.
const LONGEST: usize = 320;
const CAPACITY: usize = LONGEST + 16;
/// Rows that may be pending.
const WINDOW: usize = 5;
const ROWS: usize = 200;

struct World {
    backend: Faulty,
    model: Model<Faulty>,
    scratch: Scratch<Faulty>,
}

impl World {
    fn new(threads: usize, fault: Fault) -> World {
        let cpu = Cpu::new(Arc::new(Pool::new(threads)), Simd::best()).unwrap();
        let backend = Faulty::new(cpu, fault);
        let model = Model::bind(&backend, &refmodel(), None, ModelOptions { mtp: false, ..Default::default() }).unwrap();
        let scratch = Scratch::new(&backend, &model, Limits { rows: ROWS, head_rows: ROWS, capacity: CAPACITY }).unwrap();
        World { backend, model, scratch }
    }

    fn sequence(&self, kind: KvKind) -> Sequence<Faulty> {
        Sequence::new(&self.backend, &self.model, kind, CAPACITY, WINDOW).unwrap()
    }

    /// A hash of the logits of each row of a pass.
    fn pass(&mut self, seqs: &mut [Sequence<Faulty>], segments: &[Segment], tokens: &[u32]) -> Result<Vec<u64>, ForwardError> {
        self.model.forward(&self.backend, seqs, segments, tokens, &mut self.scratch, None)?;
        self.logits(tokens.len())
    }

    fn logits(&mut self, rows: usize) -> Result<Vec<u64>, ForwardError> {
        self.model.head(&self.backend, &mut self.scratch, 0..rows)?;
        let vocab = self.model.config().vocab;
        let mut logits = vec![0.0; rows * vocab];
        self.backend.read(self.scratch.logits(), 0, &mut logits);
        let fold = |h: u64, l: &f32| (h ^ u64::from(l.to_bits())).wrapping_mul(0x0100_0000_01b3);
        Ok(logits.chunks_exact(vocab).map(|row| row.iter().fold(0xcbf2_9ce4_8422_2325, fold)).collect())
    }

    /// What each row of `text` gives alone.
    fn alone(&mut self, kind: KvKind, text: &[u32]) -> Vec<u64> {
        let mut seq = [self.sequence(kind)];
        let mut all = Vec::new();
        for part in text.chunks(ROWS) {
            all.extend(self.pass(&mut seq, &[Segment { seq: 0, rows: part.len(), commit: true }], part).unwrap());
        }
        all
    }
}

fn text(rng: &mut Rng, source: &[u32], len: usize) -> Vec<u32> {
    let at = rng.below(source.len() - len);
    source[at..at + len].to_vec()
}

/// Runs a random schedule of 1 to 6 sequences; gives the first row that differs from the sequence alone, if there is one, and
/// how many rows were compared and how many passes had several segments.
fn schedule(world: &mut World, kind: KvKind, seed: u64, source: &[u32]) -> (Option<String>, usize, usize) {
    let mut rng = Rng(seed);
    let lens: Vec<usize> =
        (0..1 + rng.below(6)).map(|_| if rng.below(3) == 0 { LONGEST - rng.below(40) } else { 1 + rng.below(90) }).collect();
    let texts: Vec<Vec<u32>> = lens.iter().map(|n| text(&mut rng, source, *n)).collect();
    // a sequence alone does not meet a fault: its only segment starts at row 0
    let expected: Vec<Vec<u64>> = texts.iter().map(|t| world.alone(kind, t)).collect();
    let mut seqs: Vec<Sequence<Faulty>> = texts.iter().map(|_| world.sequence(kind)).collect();
    let (mut compared, mut mixed) = (0, 0);
    while seqs.iter().zip(&texts).any(|(s, t)| s.len() < t.len()) {
        // some of the unfinished ones, in any order
        let mut order: Vec<usize> = (0..seqs.len()).filter(|i| seqs[*i].len() < texts[*i].len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i + 1));
        }
        order.truncate(1 + rng.below(order.len()));
        let (mut segments, mut tokens, mut right) = (Vec::new(), Vec::new(), Vec::new());
        for &i in &order {
            let rest = &texts[i][seqs[i].len()..];
            let most = rest.len().min((ROWS - tokens.len()) / (order.len() - segments.len()));
            let (rows, commit) = match rng.below(4) {
                0 => (1, true),
                1 | 2 => (1 + rng.below(most.min(70)), true),
                _ => (1 + rng.below(most.min(WINDOW)), false),
            };
            let start = tokens.len();
            tokens.extend_from_slice(&rest[..rows]);
            // drafts of which the last ones may be wrong
            let kept = if commit { rows } else { 1 + rng.below(rows) };
            for t in &mut tokens[start + kept..] {
                *t = (*t + 1 + rng.below(100) as u32) % 4000;
            }
            right.push(kept);
            segments.push(Segment { seq: i, rows, commit });
        }
        mixed += usize::from(segments.len() > 1);
        let found = world.pass(&mut seqs, &segments, &tokens).unwrap();
        let mut row = 0;
        for (g, kept) in segments.iter().zip(right) {
            let first = seqs[g.seq].len() - if g.commit { g.rows } else { 0 };
            for k in 0..kept {
                compared += 1;
                if found[row + k] != expected[g.seq][first + k] {
                    return (Some(format!("seed {seed}: sequence {} at {}, {g:?} of {segments:?}", g.seq, first + k)), compared, mixed);
                }
            }
            if !g.commit {
                seqs[g.seq].commit(&world.backend, world.model.config(), kept);
            }
            row += g.rows;
        }
    }
    (None, compared, mixed)
}

#[test]
fn any_mix_of_segments_has_the_bits_of_each_alone() {
    let source = Fixture::load("prose1500").ids;
    for (kind, threads) in [(KvKind::Int8, 2), (KvKind::Int8, 1), (KvKind::Q4_0, 2), (KvKind::F16, 1)] {
        let mut world = World::new(threads, Fault::None);
        let (mut rows, mut passes) = (0, 0);
        for seed in 0..10 {
            let (differs, compared, mixed) = schedule(&mut world, kind, seed, &source);
            assert_eq!(differs, None, "{}, {threads} threads", kind.name());
            (rows, passes) = (rows + compared, passes + mixed);
        }
        println!("{}, {threads} threads: {rows} rows equal, {passes} passes of several sequences", kind.name());
        assert!(rows > 2000 && passes > 50);
    }
}

#[test]
fn an_op_on_the_wrong_rows_is_seen() {
    let source = Fixture::load("prose1500").ids;
    let faults = [Fault::ConvSilu, Fault::ConvAdvance, Fault::Gdn, Fault::Rope, Fault::KvAppend, Fault::Attend, Fault::Position];
    for fault in faults {
        let mut world = World::new(2, fault);
        let seen = (0..3).filter(|seed| schedule(&mut world, KvKind::Int8, 100 + seed, &source).0.is_some()).count();
        println!("{fault:?}: seen in {seen} of 3 schedules");
        assert!(seen > 0, "{fault:?}");
    }
}

#[test]
fn a_value_that_is_not_finite_stays_with_its_sequence() {
    let source = Fixture::load("prose1500").ids;
    let texts: [&[u32]; 3] = [&source[..40], &source[50..81], &source[100..170]];
    // the second segment starts at row 40
    let mut world = World::new(2, Fault::NotFinite(40));
    let expected: Vec<Vec<u64>> = texts.iter().map(|t| world.alone(KvKind::Int8, t)).collect();
    let mut seqs: Vec<Sequence<Faulty>> = texts.iter().map(|_| world.sequence(KvKind::Int8)).collect();
    let segments: Vec<Segment> = texts.iter().enumerate().map(|(seq, t)| Segment { seq, rows: t.len(), commit: true }).collect();
    let e = world.pass(&mut seqs, &segments, &texts.concat()).unwrap_err();
    assert!(matches!(&e, ForwardError::NotFinite { place, which } if place == "the residual after layer 3" && which == &[1]), "{e:?}");
    let found = world.logits(141).unwrap();
    assert_eq!((&found[..40], &found[71..]), (&expected[0][..], &expected[2][..]), "the others ran");
    seqs[1].clear(&world.backend, world.model.config());
    let again = world.pass(&mut seqs, &[Segment { seq: 1, rows: 31, commit: true }], texts[1]).unwrap();
    assert_eq!(again, expected[1], "once cleared it runs as ever");
}

#[test]
fn a_call_that_does_not_fit_changes_nothing() {
    let source = Fixture::load("prose1500").ids;
    let mut world = World::new(1, Fault::None);
    let expected = world.alone(KvKind::Int8, &source[..9]);
    let mut seqs = [world.sequence(KvKind::Int8), world.sequence(KvKind::Int8)];
    let two = |a, b| [Segment { seq: 0, rows: a, commit: true }, Segment { seq: 1, rows: b, commit: true }];
    let e = world.pass(&mut seqs, &two(ROWS, 1), &source[..ROWS + 1]).unwrap_err();
    assert_eq!(e, ForwardError::TooManyRows { found: ROWS + 1, limit: ROWS });
    let mut bad = source[..12].to_vec();
    bad[10] = 1 << 20;
    let e = world.pass(&mut seqs, &two(9, 3), &bad).unwrap_err();
    assert_eq!(e, ForwardError::TokenOutOfRange { id: 1 << 20, position: 1, vocab: world.model.config().vocab });
    assert_eq!(world.pass(&mut seqs, &two(9, 3), &source[..12]).unwrap()[..9], expected);
    world.pass(&mut seqs, &two(1, ROWS - 1), &source[..ROWS]).unwrap();
    let e = world.pass(&mut seqs, &two(1, CAPACITY - ROWS - 1), &source[..CAPACITY - ROWS]).unwrap_err();
    assert_eq!(e, ForwardError::ContextFull { needed: CAPACITY + 1, capacity: CAPACITY });
}
