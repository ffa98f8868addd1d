//! Split models: shards found by name, tensors found in any of them.

mod common;

use std::path::{Path, PathBuf};

use common::{file, folder};
use strata_gguf::{ErrorKind, Gguf, Metadata};
use strata_quant::DType;

type Tensors<'a> = &'a [(&'a str, DType, &'a [u64])];

const A: (&str, DType, &[u64]) = ("a", DType::Q8_0, &[32, 2]);
const B: (&str, DType, &[u64]) = ("b", DType::F32, &[5]);
const C: (&str, DType, &[u64]) = ("c", DType::Q4_0, &[64]);

fn name(shard: usize, count: usize) -> String {
    format!("tiny-{shard:05}-of-{count:05}.gguf")
}

/// The keys of a shard, in the types that splitting tools write.
fn keys(no: u16, count: u16, tensors: i32) -> Metadata {
    let mut m = Metadata::default();
    m.insert("split.no", no);
    m.insert("split.count", count);
    m.insert("split.tensors.count", tensors);
    m
}

/// Writes a model of these shards; gives the first one's path.
fn write(dir: &Path, shards: &[Tensors]) -> PathBuf {
    let total = shards.iter().map(|s| s.len()).sum::<usize>() as i32;
    for (i, tensors) in shards.iter().enumerate() {
        let mut m = keys(i as u16, shards.len() as u16, total);
        if i == 0 {
            m.insert("general.architecture", "test");
        }
        std::fs::write(dir.join(name(i + 1, shards.len())), file(m, tensors)).unwrap();
    }
    dir.join(name(1, shards.len()))
}

fn refused(first: &Path) -> (PathBuf, ErrorKind) {
    let e = Gguf::open(first).unwrap_err();
    assert!(e.to_string().starts_with(&e.file.display().to_string()));
    (e.file, *e.kind)
}

#[test]
fn tensors_are_found_in_every_shard() {
    // the first shard may hold no tensors at all
    for shards in [&[&[A][..], &[B], &[C]][..], &[&[], &[C, B, A]], &[&[A, B, C], &[]]] {
        let dir = folder("split_good");
        let gguf = Gguf::open(write(&dir, shards)).unwrap();
        assert_eq!(gguf.files().len(), shards.len());
        assert_eq!(gguf.metadata().str("general.architecture").unwrap(), "test");
        assert_eq!(gguf.tensors().len(), 3);
        let sizes: u64 = gguf.files().map(|f| std::fs::metadata(f).unwrap().len()).sum();
        assert_eq!(gguf.total_bytes(), sizes);
        for (shard, tensors) in shards.iter().enumerate() {
            for (i, (name, dtype, dims)) in tensors.iter().enumerate() {
                let info = gguf.tensor(name).unwrap();
                assert_eq!((info.shard, info.dtype, info.dims.as_slice()), (shard, *dtype, *dims));
                assert_eq!(gguf.data(info), common::blocks(*dtype, dims, i as u64));
            }
        }
    }
}

#[test]
fn a_split_of_one_is_a_whole_file_of_any_name() {
    let path = folder("split_one").join("whole.gguf");
    std::fs::write(&path, file(keys(0, 1, 1), &[A])).unwrap();
    assert_eq!(Gguf::open(path).unwrap().tensors().len(), 1);
}

#[test]
fn every_shard_must_be_there() {
    let dir = folder("split_missing");
    let first = write(&dir, &[&[A], &[B], &[C]]);
    let third = dir.join(name(3, 3));
    std::fs::remove_file(&third).unwrap();
    let (file, kind) = refused(&first);
    assert!(file == third && matches!(kind, ErrorKind::Io(_)), "{kind}");
    std::fs::write(&third, b"GGUF").unwrap();
    assert!(matches!(refused(&first), (f, ErrorKind::Truncated { .. }) if f == third));
}

#[test]
fn the_first_shard_is_the_one_to_open() {
    let dir = folder("split_first");
    write(&dir, &[&[A], &[B]]);
    let (_, kind) = refused(&dir.join(name(2, 2)));
    assert!(matches!(kind, ErrorKind::NotFirstShard { found: 2, count: 2 }), "{kind}");
    // under a name that is not of the pattern the others cannot be found
    for other in ["tiny.gguf", "tiny-00002-of-00002.gguf", "tiny-00001-of-00003.gguf", "tiny-1-of-2.gguf"] {
        let other = folder("split_first_renamed").join(other);
        std::fs::copy(dir.join(name(1, 2)), &other).unwrap();
        let (file, kind) = refused(&other);
        assert!(file == other && matches!(kind, ErrorKind::SplitName { shard: 1, count: 2 }), "{kind}");
        assert!(kind.to_string().contains("-00001-of-00002.gguf"));
    }
    let bytes = std::fs::read(dir.join(name(1, 2))).unwrap();
    assert!(matches!(*Gguf::from_bytes(bytes).unwrap_err().kind, ErrorKind::SplitBytes { count: 2 }));
}

#[test]
fn shards_must_be_who_their_names_say() {
    let dir = folder("split_identity");
    let first = write(&dir, &[&[A], &[B], &[C]]);
    let second = dir.join(name(2, 3));
    let mismatch = |bytes: Vec<u8>| {
        std::fs::write(&second, bytes).unwrap();
        let (file, kind) = refused(&first);
        assert_eq!(file, second);
        kind
    };
    // the first shard again: a model that would go round in a circle
    let again = mismatch(std::fs::read(&first).unwrap());
    assert!(matches!(again, ErrorKind::SplitMismatch { key: "split.no", expected: 1, found: 0 }), "{again}");
    let third = mismatch(file(keys(2, 3, 3), &[B]));
    assert!(matches!(third, ErrorKind::SplitMismatch { key: "split.no", expected: 1, found: 2 }), "{third}");
    let of_more = mismatch(file(keys(1, 4, 3), &[B]));
    assert!(matches!(of_more, ErrorKind::SplitMismatch { key: "split.count", expected: 3, found: 4 }), "{of_more}");
    let keyless = mismatch(file(Metadata::default(), &[B]));
    assert!(matches!(keyless, ErrorKind::MissingKey { .. }) && keyless.to_string().contains("split.no"));
    let mut text = keys(1, 3, 3);
    text.insert("split.no", "1");
    assert!(matches!(mismatch(file(text, &[B])), ErrorKind::WrongType { .. }));
}

#[test]
fn tensors_are_counted_and_unique() {
    let dir = folder("split_tensors");
    let first = write(&dir, &[&[A], &[B, A]]);
    let (at, kind) = refused(&first);
    assert_eq!(at, dir.join(name(2, 2)));
    assert!(matches!(kind, ErrorKind::DuplicateTensor { .. }), "{kind}");
    assert!(kind.to_string().contains("'a'") && kind.to_string().contains(&name(1, 2)));

    std::fs::write(dir.join(name(2, 2)), file(keys(1, 2, 3), &[B])).unwrap();
    let (_, kind) = refused(&first);
    assert!(matches!(kind, ErrorKind::SplitTensorCount { expected: 3, found: 2 }), "{kind}");

    // without the total nothing is counted
    let mut m = keys(0, 2, 0);
    m = m.iter().filter(|(k, _)| *k != "split.tensors.count").fold(Metadata::default(), |mut out, (k, v)| {
        out.insert(k, v.clone());
        out
    });
    std::fs::write(&first, file(m, &[A])).unwrap();
    assert_eq!(Gguf::open(&first).unwrap().tensors().len(), 2);
}
