//! Takes the MTP block out of a combined file: `split_mtp IN.gguf TRUNK.gguf` writes the trunk alone, as published trunk
//! files are. Other engines may know the trunk only; benchmarks against them need such a file.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use strata_gguf::{Gguf, GgufWriter, Metadata, TensorInfo, Value};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &args[..] else { return Err("usage: split_mtp IN.gguf TRUNK.gguf".into()) };
    let gguf = Gguf::open(from)?;
    let m = gguf.metadata();
    let arch = m.str("general.architecture")?;
    let key = |name: &str| format!("{arch}.{name}");
    let trunk = m.u32(&key("block_count"))?.checked_sub(m.u32(&key("nextn_predict_layers"))?).ok_or("more MTP blocks than blocks")?;
    let mut out = Metadata::default();
    for (k, v) in m.iter().filter(|(k, _)| *k != key("nextn_predict_layers")) {
        let v = if k == key("block_count") {
            Value::from(trunk)
        } else if k == key("attention.compress_ratios") {
            Value::from(m.get::<Vec<i32>>(k)?.into_iter().take(trunk as usize).collect::<Vec<i32>>())
        } else {
            v.clone()
        };
        out.insert(k, v);
    }
    let in_trunk = |t: &TensorInfo| {
        let block = t.name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()).and_then(|n| n.parse::<u32>().ok());
        block.is_none_or(|n| n < trunk)
    };
    let mut writer = GgufWriter::new(out)?;
    for t in gguf.tensors().filter(|t| in_trunk(t)) {
        writer.tensor(&t.name, t.dtype, &t.dims)?;
    }
    let mut stream = writer.begin(BufWriter::new(File::create(to)?))?;
    for t in gguf.tensors().filter(|t| in_trunk(t)) {
        stream.write(&gguf.data(t))?;
    }
    stream.finish()?.flush()?;
    Ok(())
}
