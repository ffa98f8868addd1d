//! Malformed files: an error that says what is wrong, never a panic, never a large allocation.

mod common;

use common::{Raw, file, folder, small, touch};
use proptest::prelude::*;
use strata_gguf::{ErrorKind, Gguf, Metadata};
use strata_quant::DType;

const F32: u32 = 0;
const Q8_0: u32 = 8;

/// Asserts that the bytes are refused with this kind of error and a message that has all these parts.
macro_rules! refused {
    ($raw:expr, $kind:pat, $($part:expr),*) => {{
        let kind = $raw.open().unwrap_err();
        assert!(matches!(kind, $kind), "{kind:?}");
        let text = kind.to_string();
        $(assert!(text.contains($part), "{text}");)*
    }};
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = small();
    touch(&Gguf::from_bytes(whole.clone()).unwrap());
    for len in 0..whole.len() {
        let e = Gguf::from_bytes(whole[..len].to_vec()).unwrap_err();
        let expected = matches!(*e.kind, ErrorKind::Truncated { .. } | ErrorKind::OutOfFile { .. });
        assert!(expected, "{len}: {e}");
    }
}

#[test]
fn magic_version_and_byte_order() {
    refused!(Raw(b"GGML\x03\0\0\0".to_vec()), ErrorKind::Magic { .. }, "47, 47, 4d, 4c");
    refused!(Raw::new(1, 0, 0), ErrorKind::Version { found: 1 }, "2 or 3", "found 1");
    refused!(Raw::new(4, 0, 0), ErrorKind::Version { found: 4 }, "found 4");
    refused!(Raw::new(0, 0, 0), ErrorKind::Version { found: 0 }, "found 0");
    refused!(Raw::new(3u32.swap_bytes(), 0, 0), ErrorKind::BigEndian { .. }, "little-endian");
}

#[test]
fn counts_are_checked_before_anything_is_reserved() {
    refused!(Raw::new(3, u64::MAX, 0), ErrorKind::Truncated { .. }, "tensor count");
    refused!(Raw::new(3, 0, u64::MAX), ErrorKind::Truncated { .. }, "key count");
    refused!(Raw::new(3, 0, 2).key("k", 0), ErrorKind::Truncated { .. }, "key count");
    refused!(Raw::new(3, 2, 0).tensor("t", &[1], F32, 0), ErrorKind::Truncated { .. }, "");
    let key = || Raw::new(3, 0, 1).str("k");
    refused!(key().u32(8).u64(u64::MAX), ErrorKind::Truncated { needed: u64::MAX, .. }, "a value");
    refused!(key().u32(8).u64(1 << 40), ErrorKind::Truncated { .. }, "found 0");
    // arrays: one element takes 1 byte (u8), 8 bytes (string prefix), 12 bytes (array prefix)
    for (element, fits) in [(0u32, 24u64), (8, 3), (9, 2), (10, 3), (12, 3)] {
        for n in [fits + 1, 1 << 32, 1 << 61, u64::MAX] {
            let raw = key().u32(9).u32(element).u64(n).bytes(&[0; 24]);
            refused!(raw, ErrorKind::Truncated { .. }, "array count");
        }
    }
    refused!(Raw::new(3, 0, 1).u64(u64::MAX).bytes(&[0; 16]), ErrorKind::Truncated { .. }, "a key");
}

#[test]
fn values_must_be_of_their_type() {
    let key = || Raw::new(3, 0, 1).str("some.key");
    refused!(key().u32(13).u64(0), ErrorKind::ValueType { found: 13, .. }, "some.key");
    refused!(key().u32(9).u32(99).u64(0), ErrorKind::ValueType { found: 99, .. }, "some.key");
    refused!(key().u32(7).bytes(&[2]), ErrorKind::Bool { found: 2, .. }, "some.key");
    refused!(key().u32(9).u32(7).u64(3).bytes(&[0, 1, 255]), ErrorKind::Bool { found: 255, .. }, "some.key");
    refused!(key().u32(8).u64(2).bytes(&[0xc3, 0x28]), ErrorKind::Utf8 { offset: 52, .. }, "a value", "UTF-8");
    refused!(Raw::new(3, 0, 1).u64(1).bytes(&[0xff; 13]), ErrorKind::Utf8 { .. }, "a key");
    let array = key().u32(9).u32(8).u64(1).u64(1).bytes(&[0x80]);
    refused!(array, ErrorKind::Utf8 { .. }, "array string");
    let twice = Raw::new(3, 0, 2).key("some.key", 1).key("some.key", 1);
    refused!(twice, ErrorKind::DuplicateKey { .. }, "some.key", "twice");
}

#[test]
fn arrays_nest_only_so_deep() {
    // depth counts the arrays around the innermost elements
    let nested = |depth: usize| {
        let outer = (1..depth).fold(Raw::new(3, 0, 1).str("k").u32(9), |r, _| r.u32(9).u64(1));
        outer.u32(0).u64(1).bytes(&[7])
    };
    for depth in 1..=4 {
        nested(depth).open().unwrap();
    }
    for depth in [5, 6, 100_000] {
        refused!(nested(depth), ErrorKind::ArrayDepth { max: 4, .. }, "'k'");
    }
}

#[test]
fn alignment_is_a_power_of_two() {
    let with = |x| Raw::new(3, 1, 1).key("general.alignment", x).tensor("t", &[1], F32, 0);
    with(1).data(1, 4).open().unwrap();
    with(64).data(64, 4).open().unwrap();
    for bad in [0, 3, 33, u32::MAX] {
        refused!(with(bad).data(32, 4), ErrorKind::Alignment { .. }, &format!("found {bad}"));
    }
    // a power of two far beyond the file moves the data section out of it
    refused!(with(1 << 31).data(32, 4), ErrorKind::OutOfFile { available: 0, .. }, "'t'");
    let text = Raw::new(3, 0, 1).str("general.alignment").u32(8).str("32");
    refused!(text, ErrorKind::WrongType { .. }, "general.alignment", "string \"32\"");
    // any integer width will do
    Raw::new(3, 0, 1).str("general.alignment").u32(10).u64(32).open().unwrap();
    let wide = Raw::new(3, 0, 1).str("general.alignment").u32(10).u64(1 << 32);
    refused!(wide, ErrorKind::WrongType { .. }, "u64 4294967296");
}

#[test]
fn shapes_and_types() {
    let one = |dims: &[u64], id| Raw::new(3, 1, 0).tensor("blk.0.w", dims, id, 0).data(32, 4096);
    one(&[], F32).open().unwrap();
    one(&[2, 2, 2, 2], F32).open().unwrap();
    refused!(one(&[1; 5], F32), ErrorKind::DimCount { found: 5, .. }, "blk.0.w", "at most 4");
    let liar = Raw::new(3, 1, 0).str("blk.0.w").u32(u32::MAX).data(32, 64);
    refused!(liar, ErrorKind::DimCount { found: u32::MAX, .. }, "blk.0.w");
    // the last two would be 1 value and 4 bytes if products wrapped around
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaab;
    let zeros: [&[u64]; 3] = [&[0], &[4, 0], &[0, u64::MAX]];
    let huge: [&[u64]; 6] = [&[u64::MAX], &[1 << 32, 1 << 32], &[1 << 16; 4], &[1 << 62, 1], &[3, ODD], &[(1 << 62) + 1]];
    for dims in zeros.into_iter().chain(huge) {
        refused!(one(dims, F32), ErrorKind::Dims { .. }, "blk.0.w", "F32");
    }
    // as many values as fit 64 bits, which no file holds
    refused!(one(&[1 << 61], F32), ErrorKind::OutOfFile { byte_len: 0x8000_0000_0000_0000, .. }, "blk.0.w");
    refused!(one(&[33], Q8_0), ErrorKind::RowLength { cols: 33, .. }, "blk.0.w", "multiple of 32 values (Q8_0)");
    refused!(one(&[16, 2], Q8_0), ErrorKind::RowLength { cols: 16, .. }, "blk.0.w");
    for id in [4, 5, 31, 1000, u32::MAX] {
        refused!(one(&[256], id), ErrorKind::TensorType { .. }, "blk.0.w", &format!("type id {id}"));
    }
    refused!(Raw::new(3, 1, 0).u64(1).bytes(&[0xff]).data(32, 32), ErrorKind::Utf8 { .. }, "tensor name");
}

#[test]
fn places() {
    // a: 8 bytes at offset 0; b where the case says
    let two = |offset| Raw::new(3, 2, 0).tensor("b", &[2], F32, offset).tensor("a", &[2], F32, 0).data(32, 72);
    two(32).open().unwrap();
    two(64).open().unwrap();
    refused!(two(0), ErrorKind::Overlap { .. }, "'a'", "'b'", "ends at 8");
    refused!(two(8), ErrorKind::Unaligned { offset: 8, .. }, "'b'", "multiple of 32");
    for offset in [96, 1 << 40, u64::MAX - 31] {
        refused!(two(offset), ErrorKind::OutOfFile { available: 72, .. }, "'b'");
    }
    let long = Raw::new(3, 2, 0).tensor("a", &[9], F32, 0).tensor("b", &[2], F32, 32).data(32, 40);
    refused!(long, ErrorKind::Overlap { previous_end: 36, .. }, "'b'", "'a'");
    let twice = Raw::new(3, 2, 0).tensor("a", &[2], F32, 0).tensor("a", &[2], F32, 32).data(32, 40);
    refused!(twice, ErrorKind::DuplicateTensor { .. }, "'a'", "(memory)");
}

#[test]
fn errors_name_the_file() {
    let dir = folder("bad_input");
    let missing = Gguf::open(dir.join("missing.gguf")).unwrap_err();
    assert!(matches!(*missing.kind, ErrorKind::Io(_)) && missing.to_string().contains("missing.gguf"));
    assert!(Gguf::open(&dir).unwrap_err().to_string().contains("bad_input"));
    for (name, bytes) in [("empty.gguf", &[][..]), ("text.gguf", b"hello world"), ("cut.gguf", &small()[..600])] {
        std::fs::write(dir.join(name), bytes).unwrap();
        assert!(Gguf::open(dir.join(name)).unwrap_err().to_string().contains(name));
    }
}

/// A valid file without the strings that would take most of the flips.
fn dense() -> Vec<u8> {
    let mut metadata = Metadata::default();
    metadata.insert("n", 3u32);
    metadata.insert("v", vec![1u16, 2]);
    metadata.insert("s", ["a", "b"].into_iter().collect::<strata_gguf::StringArray>());
    file(metadata, &[("a", DType::Q4_K, &[256, 2]), ("b", DType::F32, &[2, 2])])
}

fn open_and_touch(bytes: Vec<u8>) {
    if let Ok(gguf) = Gguf::from_bytes(bytes) {
        touch(&gguf);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn flipped_bits_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4)) {
        for mut bytes in [small(), dense()] {
            for (at, bit) in &flips {
                // most of the file is tensor data, which no reader checks: stay in the header
                let at = at.index(bytes.len().min(320));
                bytes[at] ^= 1 << bit;
            }
            open_and_touch(bytes);
        }
    }

    #[test]
    fn overwritten_words_never_panic(
        at in any::<prop::sample::Index>(),
        word in prop_oneof![Just(u64::MAX), Just(0), Just(1 << 63), Just(1 << 32), (0u32..64).prop_map(|b| 1 << b), any::<u64>()],
    ) {
        for mut bytes in [small(), dense()] {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            open_and_touch(bytes);
        }
    }

    #[test]
    fn shuffled_pieces_never_panic(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 2..6),
        turn in 0usize..6,
    ) {
        let bytes = dense();
        let mut cuts: Vec<usize> = cuts.iter().map(|i| 24 + i.index(bytes.len() - 24)).collect();
        cuts.extend([24, bytes.len()]);
        cuts.sort();
        let mut pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
        let n = pieces.len();
        pieces.rotate_left(turn % n);
        open_and_touch([&bytes[..24], &pieces.concat()].concat());
    }

    #[test]
    fn random_bytes_after_a_good_start_never_panic(
        tensors in 0u64..4, keys in 0u64..4, tail in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..400),
    ) {
        open_and_touch(Raw::new(3, tensors, keys).bytes(&tail).0);
    }
}
