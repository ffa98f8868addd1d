//! Synthetic models run: 48 layers deep the residual and the logits stay of order one, whatever the widths and types.

use std::sync::Arc;
use strata_cpu::backend::Cpu;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_engine::evaluate::Mean;
use strata_engine::{Engine, EngineOptions};
use strata_model::{Model, ModelOptions, Observer};
use strata_synth::{Recipe, in_memory};

/// Root mean square of the residual after each layer.
#[derive(Default)]
struct Sizes(Vec<f64>);

impl Observer for Sizes {
    fn residual(&mut self, _layer: usize, _position: usize, r: &[f32]) {
        self.0.push((r.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / r.len() as f64).sqrt());
    }
}

/// Runs 24 tokens; checks residuals and logits, and that tokens differ.
fn runs(recipe: &str) {
    let gguf = in_memory(&Recipe::parse(recipe).unwrap(), recipe, 2 << 30).unwrap();
    let cpu = Cpu::new(Arc::new(Pool::new(2)), Simd::best()).unwrap();
    let model = Model::bind(&cpu, &gguf, None, ModelOptions::default()).unwrap();
    let layers = model.config().layers.len();
    let mut engine = Engine::new(cpu, model, EngineOptions { capacity: 64, chunk: 16, score_rows: 16, ..Default::default() }).unwrap();
    let ids: Vec<u32> = (0..24).map(|i| (i * i * 37 + 5) % 300).collect();
    let (mut sizes, mut best, mut spread) = (Sizes::default(), Vec::new(), Vec::new());
    engine
        .score(&ids, 0, Some(&mut sizes), &mut |_, logits| {
            let mut m = Mean::default();
            logits.iter().for_each(|l| m.add(f64::from(*l)));
            // the standard error times the root of the number is the standard deviation
            spread.push(m.error() * (m.n as f64).sqrt());
            best.push((0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap());
        })
        .unwrap();
    assert_eq!(sizes.0.len(), layers * ids.len());
    let (low, high) = sizes.0.iter().fold((f64::MAX, 0f64), |(l, h), x| (l.min(*x), h.max(*x)));
    let (least, most) = spread.iter().fold((f64::MAX, 0f64), |(l, h), x| (l.min(*x), h.max(*x)));
    best.sort_unstable();
    best.dedup();
    println!("{recipe}: residual {low:.2} to {high:.2}, logits spread {least:.2} to {most:.2}, {} tokens of {}", best.len(), ids.len());
    assert!(low > 0.3 && high < 30.0, "{recipe}: residual {low} to {high}");
    assert!(least > 0.3 && most < 10.0, "{recipe}: logits {least} to {most}");
    assert!(best.len() > ids.len() / 2, "{recipe}: {} different tokens of {}", best.len(), ids.len());
}

#[test]
fn forty_eight_layers_of_small_widths() {
    for (experts, dense) in [("Q4_K", "Q6_K"), ("IQ3_S", "IQ4_XS"), ("IQ2_XS", "Q8_0"), ("BF16", "F16"), ("Q8_0", "Q4_0")] {
        runs(&format!("refmodel:{experts},layers=48,experts=8,used=3,ngram_rows=2000,vocab=2048,dense={dense},seed=3"));
    }
}

#[test]
fn released_widths() {
    runs("qwen3.8-flash-next:IQ3_S,layers=4,experts=12,ngram_rows=20000,vocab=1024,mtp=1");
}
