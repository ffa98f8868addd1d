//! What the writer writes, the reader reads.

mod common;

use common::{all_types, blocks, file, folder, small, touch};
use strata_gguf::{Gguf, GgufWriter, Metadata, WriteError};
use strata_quant::DType;

#[test]
fn every_value_type_and_format_comes_back() {
    let tensors: Vec<(String, DType, Vec<u64>)> = DType::all()
        .enumerate()
        .map(|(i, t)| (format!("blk.{i}.{t}"), t, vec![t.block_len() as u64 * 3, 1 + i as u64, 2]))
        .chain([("scalar".into(), DType::F32, vec![]), ("four".into(), DType::BF16, vec![5, 1, 1, 2])])
        .collect();
    let listed: Vec<_> = tensors.iter().map(|(n, t, d)| (n.as_str(), *t, d.as_slice())).collect();
    let path = folder("round_trip").join("all.gguf");
    let bytes = file(all_types(), &listed);
    std::fs::write(&path, &bytes).unwrap();

    let gguf = Gguf::open(&path).unwrap();
    assert_eq!((gguf.version(), gguf.total_bytes(), gguf.path()), (3, bytes.len() as u64, path.as_path()));
    let want = all_types();
    assert!(gguf.metadata().iter().eq(want.iter()), "in file order, values equal");
    assert_eq!(gguf.tensors().len(), tensors.len());
    for (i, (info, (name, dtype, dims))) in gguf.tensors().zip(&tensors).enumerate() {
        assert_eq!((&info.name, info.dtype, &info.dims, info.shard), (name, *dtype, dims, 0));
        assert_eq!(info.offset % 32, 0);
        assert_eq!(gguf.data(info), blocks(*dtype, dims, i as u64), "{name}");
        // the mapping is page-aligned, so the file's alignment is the address's
        assert_eq!(gguf.data(info).as_ptr() as usize % 32, 0);
    }
    assert_eq!(gguf.tensor("scalar").map(|t| (t.cols(), t.rows())), Some((1, 1)));
    assert_eq!(gguf.tensor("nope"), None);

    // data outlives the model
    let data = gguf.data(gguf.tensor("four").unwrap());
    drop(gguf);
    assert_eq!(data.len(), 20);
}

#[test]
fn alignment_follows_its_key() {
    for alignment in [1u32, 8, 32, 4096] {
        let mut metadata = Metadata::default();
        metadata.insert("general.alignment", alignment);
        let bytes = file(metadata, &[("a", DType::BF16, &[3]), ("b", DType::F16, &[1])]);
        let gguf = Gguf::from_bytes(bytes).unwrap();
        let (a, b) = (gguf.tensor("a").unwrap(), gguf.tensor("b").unwrap());
        assert_eq!((a.offset % alignment as u64, b.offset % alignment as u64), (0, 0));
        assert_eq!(b.offset - a.offset, 6u64.next_multiple_of(alignment.into()));
        assert_eq!(gguf.data(b), blocks(DType::F16, &[1], 1));
    }
}

#[test]
fn version_2_reads_alike() {
    let mut bytes = small();
    bytes[4] = 2;
    let gguf = Gguf::from_bytes(bytes).unwrap();
    assert_eq!(gguf.version(), 2);
    touch(&gguf);
}

#[test]
fn a_file_without_tensors_or_keys_is_fine() {
    let gguf = Gguf::from_bytes(file(Metadata::default(), &[])).unwrap();
    assert_eq!((gguf.tensors().len(), gguf.metadata().len()), (0, 0));
    // nor does it need the padding before its empty data section
    Gguf::from_bytes(common::Raw::new(3, 0, 1).key("k", 1).0).unwrap();
}

#[test]
fn bytes_may_come_in_pieces() {
    let mut writer = GgufWriter::new(Metadata::default()).unwrap();
    writer.tensor("a", DType::F32, &[2]).unwrap();
    writer.tensor("b", DType::F32, &[1]).unwrap();
    let mut stream = writer.begin(Vec::new()).unwrap();
    for piece in [&[1u8, 2, 3][..], &[], &[4, 5, 6, 7, 8], &[9, 10, 11, 12], &[]] {
        stream.write(piece).unwrap();
    }
    let gguf = Gguf::from_bytes(stream.finish().unwrap()).unwrap();
    assert_eq!(gguf.data(gguf.tensor("a").unwrap()), &[1u8, 2, 3, 4, 5, 6, 7, 8][..]);
    assert_eq!(gguf.data(gguf.tensor("b").unwrap()), &[9u8, 10, 11, 12][..]);
}

#[test]
fn the_writer_refuses_bad_tensors_and_lengths() {
    let mut writer = GgufWriter::new(Metadata::default()).unwrap();
    writer.tensor("a", DType::Q8_0, &[32]).unwrap();
    let message = |r: Result<(), WriteError>| r.unwrap_err().to_string();
    assert!(message(writer.tensor("a", DType::F32, &[1])).contains("'a' is declared twice"));
    assert!(message(writer.tensor("b", DType::Q8_0, &[33])).contains("multiple of 32 values"));
    assert!(message(writer.tensor("b", DType::F32, &[0])).contains("non-zero"));
    assert!(message(writer.tensor("b", DType::F32, &[1 << 40, 1 << 40])).contains("fits 64 bits"));
    assert!(message(writer.tensor("b", DType::F32, &[1; 5])).contains("at most 4 dimensions, found 5"));

    let mut stream = writer.begin(Vec::new()).unwrap();
    assert!(message(stream.write(&[0; 35])).contains("expected 34 bytes, found 35"));
    stream.write(&[0; 33]).unwrap();
    assert!(message(stream.finish().map(drop)).contains("expected 34 bytes, found 33"));
    let mut empty = GgufWriter::new(Metadata::default()).unwrap().begin(Vec::new()).unwrap();
    assert!(message(empty.write(&[0])).contains("no bytes after the last tensor, found 1"));

    let mut metadata = Metadata::default();
    metadata.insert("general.alignment", 3u32);
    assert!(GgufWriter::new(metadata).err().unwrap().to_string().contains("power of two, found 3"));
}
