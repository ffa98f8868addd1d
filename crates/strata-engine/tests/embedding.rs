//! An embedding is the mean of the hidden states of its text, whatever the chunks, the threads and the company.

#[path = "common/asked.rs"]
mod asked;
mod common;
#[path = "common/faulty.rs"]
mod faulty;

use asked::{batch, embedding, on_cpu};
use common::{Fixture, Rng, greedy};
use faulty::{Fault, Faulty};
use strata_engine::{Batch, EngineOptions, Work};
use strata_ops::backend::Backend;
use strata_ops::qsa::kv::KvKind;

/// The embedding of `text` in slot 1, in random steps beside a text, a prompt and an answer.
fn embed<B: Backend>(b: &mut Batch<B>, text: &[u32], others: &[u32], rng: &mut Rng) -> Vec<f32> {
    (0..b.slots()).for_each(|slot| b.clear(slot));
    b.begin_embedding(1, text).unwrap();
    b.begin_embedding(0, others).unwrap();
    b.begin(2, others, &greedy()).unwrap();
    b.begin(3, &others[..1], &greedy()).unwrap();
    let mut events = Vec::new();
    loop {
        assert!(b.take_embedding(1).is_none() && !b.is_started(1));
        let mut left = b.max_rows();
        let mut work = Vec::new();
        for slot in [3, 1, 0, 2] {
            let rows = (1 + rng.below(b.max_rows())).min(left);
            if rows > 0 && (slot == 1 || rng.below(3) > 0) {
                left -= rows;
                work.push(Work { slot, rows });
            }
        }
        b.step(&work, &|_, _| false, &mut events).unwrap();
        assert!(events.iter().all(|e| e.slot > 1 && e.token.is_ok()), "a text to embed gets no token");
        if b.unread(1) == 0 {
            break;
        }
    }
    let e = b.take_embedding(1).unwrap();
    assert!(b.take_embedding(1).is_none() && b.committed(1).is_empty());
    e
}

#[test]
fn chunks_threads_and_company_do_not_matter() {
    let source = Fixture::load("prose300").ids;
    let (text, others) = (&source[..150], &source[150..300]);
    for kv in [KvKind::Int8, KvKind::F16] {
        let expected = embedding(text, kv);
        assert!(expected.iter().all(|x| x.is_finite()) && expected.iter().any(|x| x.abs() > 1e-3));
        let mut rng = Rng(3);
        for (threads, chunk, spec) in [(1, 4, 0), (2, 7, 2), (2, 64, 0), (1, 512, 3)] {
            let options = EngineOptions { kv, capacity: 256, chunk, spec, ..Default::default() };
            let mut b = batch(on_cpu(threads), options, 4);
            for _ in 0..2 {
                assert_eq!(embed(&mut b, text, others, &mut rng), expected, "{threads} threads, chunks of {chunk}");
            }
            // an answer can follow in the same slot
            b.begin(1, text, &greedy()).unwrap();
            assert_eq!(b.unread(1), text.len());
        }
        // one token, and the order of tokens, tell; so does a fault in one sequence's rows
        let mut b = batch(on_cpu(2), EngineOptions { kv, capacity: 256, chunk: 64, ..Default::default() }, 4);
        let mut other = text.to_vec();
        other.swap(70, 71);
        assert_ne!(embed(&mut b, &other, others, &mut rng), expected);
        assert_ne!(embed(&mut b, &text[1..], others, &mut rng), expected);
        let options = EngineOptions { kv, capacity: 256, chunk: 64, ..Default::default() };
        let mut b = batch(Faulty::new(on_cpu(2), Fault::ConvSilu), options, 4);
        assert_ne!(embed(&mut b, text, others, &mut rng), expected);
    }
}

#[test]
fn a_text_that_fails_does_not_touch_the_others() {
    let source = Fixture::load("prose300").ids;
    let options = EngineOptions { capacity: 256, chunk: 64, ..Default::default() };
    let mut b = batch(Faulty::new(on_cpu(2), Fault::NotFinite(0)), options, 2);
    b.begin_embedding(0, &source[..40]).unwrap();
    b.begin_embedding(1, &source[..20]).unwrap();
    let mut events = Vec::new();
    b.step(&[0, 1].map(|slot| Work { slot, rows: 20 }), &|_, _| false, &mut events).unwrap();
    assert!(events.len() == 1 && events[0].slot == 0 && events[0].token.is_err());
    assert_eq!((b.take_embedding(0), b.take_embedding(1)), (None, Some(embedding(&source[..20], KvKind::Int8))));
}
