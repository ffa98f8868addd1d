//! Configurations other than the reference model's, through a file's metadata alone.

use strata_gguf::{Gguf, GgufWriter, Metadata, Value};
use strata_model::{BindError, Config, LayerKind};
use strata_ops::rope::RopeScaling;

/// The metadata of a full-size model, changed by `change`.
fn config(change: impl Fn(&mut Metadata)) -> Result<Config, BindError> {
    let mut m = Metadata::default();
    m.insert("general.architecture", "qwen4exp");
    for (key, value) in [
        ("block_count", 48u32),
        ("context_length", 262_144),
        ("embedding_length", 2560),
        ("attention.head_count", 24),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 256),
        ("attention.value_length", 256),
        ("rope.dimension_count", 64),
        ("expert_count", 512),
        ("expert_used_count", 10),
        ("expert_feed_forward_length", 640),
        ("expert_shared_feed_forward_length", 640),
        ("ssm.conv_kernel", 4),
        ("ssm.state_size", 128),
        ("ssm.group_count", 16),
        ("ssm.time_step_rank", 48),
        ("ssm.inner_size", 6144),
        ("full_attention_interval", 4),
        ("hyper_connection.count", 4),
        ("hyper_connection.low_rank", 320),
        ("attention.indexer.head_count", 4),
        ("attention.indexer.key_length", 128),
        ("attention.indexer.top_k", 2048),
    ] {
        m.insert(format!("qwen4exp.{key}"), value);
    }
    m.insert("qwen4exp.attention.layer_norm_rms_epsilon", 1e-6f32);
    m.insert("qwen4exp.rope.freq_base", 1e7f32);
    change(&mut m);
    let file = GgufWriter::new(m).expect("good metadata").begin(Vec::new()).expect("memory").finish().expect("whole");
    Config::from_gguf(&Gguf::from_bytes(file).expect("a good file"), 248_320)
}

#[test]
fn every_size_comes_from_metadata() {
    let c = config(|_| {}).expect("the full model's metadata");
    assert_eq!((c.layers.len(), c.wide(), c.vocab, c.context), (48, 10_240, 248_320, 262_144));
    assert_eq!(c.layers.iter().filter(|k| **k == LayerKind::Qsa).count(), 12);
    assert_eq!((c.qsa.heads / c.qsa.kv_heads, c.qsa.budget_blocks), (12, 512));
    assert_eq!((c.gdn.conv_dim(), c.gdn.inner(), c.gdn.state_len()), (10_240, 6144, 48 * 128 * 128));
    assert_eq!((c.experts, c.experts_used, c.expert_width, c.ngram.is_none(), c.has_mtp), (512, 10, 640, true, false));
    // a number a layer, 0 where the layer has no heads
    let per_layer: Vec<i32> = (0..48).map(|i| if i % 4 == 3 { 2 } else { 0 }).collect();
    let c = config(|m| drop(m.insert("qwen4exp.attention.head_count_kv", per_layer.clone()))).expect("an array is accepted");
    assert_eq!(c.qsa.kv_heads, 2);
}

#[test]
fn rope_scaling_is_read() {
    let with = |keys: &[(&str, Value)]| {
        config(|m| keys.iter().for_each(|(k, v)| drop(m.insert(format!("qwen4exp.rope.scaling.{k}"), v.clone())))).map(|c| c.rope_scaling)
    };
    assert_eq!(with(&[]).expect("none"), RopeScaling::None);
    assert_eq!(with(&[("type", "linear".into()), ("factor", 4.0f32.into())]).expect("linear"), RopeScaling::Linear { factor: 4.0 });
    let yarn = [("type", "yarn".into()), ("factor", 8.0f32.into()), ("original_context_length", 262_144u32.into())];
    let want = RopeScaling::Yarn { factor: 8.0, original_context: 262_144, beta_fast: 32.0, beta_slow: 1.0, attention_factor: None };
    assert_eq!(with(&yarn).expect("yarn"), want);
    let e = with(&[("type", "longrope".into())]).expect_err("an unknown type").to_string();
    assert!(e.ends_with("qwen4exp.rope.scaling.type: expected none, linear or yarn, found longrope"), "{e}");
    assert!(with(&[("type", "linear".into()), ("factor", f32::NAN.into())]).is_err());
}

#[test]
fn sizes_that_cannot_be_are_refused_by_name() {
    for (key, value) in [
        ("block_count", 0u32),
        ("attention.head_count_kv", 5),
        ("attention.key_length", 128),
        ("rope.dimension_count", 65),
        ("expert_used_count", 513),
        ("ssm.inner_size", 6145),
        ("ssm.state_size", 100),
        ("attention.indexer.top_k", 3),
        ("embedding_length", u32::MAX),
        ("hyper_connection.count", 0),
    ] {
        let e = config(|m| drop(m.insert(format!("qwen4exp.{key}"), value))).expect_err(key).to_string();
        assert!(e.contains("qwen4exp.") && e.contains("expected") && e.contains("found"), "{key}: {e}");
    }
}
