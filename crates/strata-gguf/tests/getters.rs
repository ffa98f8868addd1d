//! Typed access to metadata.

mod common;

use common::all_types;
use strata_gguf::{ErrorKind, FromValue, Metadata, StringArray};

fn wrong<'a, T: FromValue<'a> + std::fmt::Debug>(meta: &'a Metadata, key: &str) -> (String, String) {
    let e = meta.get::<T>(key).unwrap_err();
    let text = e.to_string();
    assert!(text.contains("(memory)") && text.contains(key), "{text}");
    assert!(meta.get_opt::<T>(key).is_err());
    match *e.kind {
        ErrorKind::WrongType { expected, found, .. } => (expected.to_owned(), found),
        other => panic!("{other}"),
    }
}

#[test]
fn integers_of_any_width_convert_where_they_fit() {
    let m = all_types();
    assert_eq!((m.u32("a.u8").unwrap(), m.u64("a.u8").unwrap()), (200, 200));
    assert_eq!((m.u32("a.u16").unwrap(), m.u32("a.u32").unwrap()), (60_000, 4_000_000_000));
    assert_eq!(m.u64("a.u64").unwrap(), u64::MAX);
    assert_eq!(m.get::<i64>("a.i64").unwrap(), i64::MIN);
    assert_eq!(m.get::<i32>("a.i8").unwrap(), -5);
    assert_eq!(m.get::<usize>("a.u32").unwrap(), 4_000_000_000);
    assert_eq!(m.get_opt::<u32>("missing").unwrap(), None);
    assert_eq!(m.get_opt::<u32>("a.u8").unwrap(), Some(200));

    assert_eq!(wrong::<u32>(&m, "a.u64"), ("an integer that fits u32".into(), "u64 18446744073709551615".into()));
    assert_eq!(wrong::<u64>(&m, "a.i8").1, "i8 -5");
    assert_eq!(wrong::<i32>(&m, "a.u32").1, "u32 4000000000");
    assert_eq!(wrong::<u32>(&m, "a.f32").1, "f32 0.000001");
    assert_eq!(wrong::<u32>(&m, "a.bool").1, "bool true");
    assert_eq!(wrong::<u32>(&m, "v.u32").1, "array of 1 u32");
}

#[test]
fn other_scalars() {
    let m = all_types();
    assert_eq!((m.f32("a.f32").unwrap(), m.f32("a.f64").unwrap()), (1e-6, 0.1));
    assert!(m.bool("a.bool").unwrap());
    assert_eq!(m.str("a.string").unwrap(), "grüße");
    assert_eq!(wrong::<f32>(&m, "a.u8").0, "a float");
    assert_eq!(wrong::<bool>(&m, "a.u8").0, "a bool");
    assert_eq!(wrong::<&str>(&m, "v.string"), ("a string".into(), "array of 4 string".into()));
}

#[test]
fn arrays() {
    let m = all_types();
    assert_eq!(m.get::<Vec<u32>>("v.i32").unwrap(), [11, 11, 10, 0]);
    assert_eq!(m.get::<Vec<u64>>("v.u64").unwrap(), [1 << 50]);
    assert_eq!(m.get::<Vec<i32>>("v.i8").unwrap(), [-1]);
    assert_eq!(m.get::<Vec<u32>>("v.empty").unwrap(), [0u32; 0]);
    assert_eq!(m.get::<Vec<f32>>("v.f64").unwrap(), [0.1]);
    assert_eq!(m.get::<Vec<bool>>("v.bool").unwrap(), [true, false]);
    let strings: &StringArray = m.get("v.string").unwrap();
    assert_eq!(strings.iter().collect::<Vec<_>>(), ["", "ein", "Wört\u{0}chen", "<|im_start|>"]);
    assert_eq!((strings.len(), strings.get(3), strings.get(4)), (4, Some("<|im_start|>"), None));

    assert_eq!(wrong::<Vec<u32>>(&m, "v.i16").1, "array of 2 i16");
    assert_eq!(wrong::<Vec<u32>>(&m, "v.u64").0, "an array of integers that fit u32");
    assert_eq!(wrong::<Vec<u32>>(&m, "a.u32").1, "u32 4000000000");
    assert_eq!(wrong::<Vec<f32>>(&m, "v.i32").1, "array of 4 i32");
    assert_eq!(wrong::<&StringArray>(&m, "v.nested").1, "array of 2 array");
}

#[test]
fn missing_keys_say_what_was_wanted() {
    let text = all_types().u32("qwen4exp.block_count").unwrap_err().to_string();
    assert_eq!(text, "(memory): key 'qwen4exp.block_count' is missing, expected an integer that fits u32");
}

#[test]
fn long_strings_are_cut_in_messages() {
    let mut m = Metadata::default();
    m.insert("k", "ü".repeat(1000).as_str());
    let (_, found) = wrong::<u32>(&m, "k");
    assert_eq!(found, format!("string {:?}... (2000 bytes)", "ü".repeat(40)));
}

#[test]
fn inserting_again_replaces_in_place() {
    let mut m = all_types();
    let n = m.len();
    assert!(m.contains("a.u8") && m.insert("a.u8", 1u8).is_some());
    assert_eq!((m.len(), m.iter().next().unwrap().0, m.u32("a.u8").unwrap()), (n, "a.u8", 1));
    assert!(!m.is_empty());
}
