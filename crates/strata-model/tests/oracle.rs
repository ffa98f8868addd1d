use safetensors::SafeTensors;
use std::sync::Arc;
use strata_cpu::{backend::Cpu, pool::Pool, simd::Simd};
use strata_gguf::Gguf;
use strata_model::*;
use strata_ops::backend::Backend;
use strata_ops::qsa::kv::KvKind;

#[test]
fn quick() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let t0 = std::time::Instant::now();
    let g = Gguf::open(format!("{root}models/refmodel-q8_0.gguf")).unwrap();
    let cpu = Cpu::new(Arc::new(Pool::new(2)), Simd::best()).unwrap();
    let m = Model::bind(&cpu, &g, None, ModelOptions { weights: WeightMode::DequantizedF32, ..Default::default() }).unwrap();
    println!("bound in {:?}", t0.elapsed());
    for name in ["short", "chat", "chat2", "prose300", "prose1500", "needle6000"] {
        let file = std::fs::read(format!("{root}tests/data/oracle/{name}.safetensors")).unwrap();
        let st = SafeTensors::deserialize(&file).unwrap();
        let ids: Vec<u32> = st.tensor("input_ids").unwrap().data().chunks(if st.tensor("input_ids").unwrap().dtype() == safetensors::Dtype::I64 {8} else {4}).map(|c| u32::from_le_bytes(c[..4].try_into().unwrap())).collect();
        let top: Vec<f32> = st.tensor("top20_values").unwrap().data().chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        let tids: Vec<u32> = { let t = st.tensor("top20_ids").unwrap(); let w = t.data().len() / (ids.len() * 20); t.data().chunks(w).map(|c| { let mut b=[0u8;4]; b[..w.min(4)].copy_from_slice(&c[..w.min(4)]); u32::from_le_bytes(b) }).collect() };
        let t0 = std::time::Instant::now();
        let n = ids.len();
        let chunk = 512.min(n);
        let mut s = Scratch::new(&cpu, &m, Limits { rows: chunk, head_rows: chunk, capacity: n + 100 }).unwrap();
        let mut seq = Sequence::new(&cpu, &m, KvKind::F32, n + 100, 0).unwrap();
        let vocab = m.config().vocab;
        let mut worst = (0.0f32, 0);
        let mut over = 0;
        let mut logits = vec![0.0; vocab * chunk];
        for (c, part) in ids.chunks(chunk).enumerate() {
            m.forward(&cpu, &mut seq, &mut s, part, true, None).unwrap();
            m.head(&cpu, &mut s, 0, part.len()).unwrap();
            cpu.read(s.logits(), 0, &mut logits[..vocab * part.len()]);
            for i in 0..part.len() {
                let p = c * chunk + i;
                let mut w = 0.0f32;
                for j in 0..20 {
                    w = w.max((logits[i * vocab + tids[p * 20 + j] as usize] - top[p * 20 + j]).abs());
                }
                if w > 2e-3 { over += 1; }
                if w > worst.0 { worst = (w, p); }
            }
        }
        println!("{name}: {n} tokens worst {worst:?} over {over} in {:?}", t0.elapsed());
    }
}
