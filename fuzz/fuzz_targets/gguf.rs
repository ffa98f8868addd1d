//! The GGUF reader on arbitrary bytes: it refuses them, or everything it then offers is there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strata_gguf::{Array, FromValue, Gguf, Metadata, StringArray, Value};

/// A getter gives a value or an error, whatever the key holds.
fn get<'a, T: FromValue<'a>>(metadata: &'a Metadata, key: &str) {
    match (metadata.get::<T>(key), metadata.get_opt::<T>(key)) {
        (Ok(_), Ok(Some(_))) => {}
        (Err(e), Err(_)) => assert!(!e.to_string().is_empty()),
        _ => panic!("get and get_opt differ on '{key}'"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let gguf = match Gguf::from_bytes(bytes.to_vec()) {
        Ok(gguf) => gguf,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    let metadata = gguf.metadata();
    for (key, value) in metadata.iter() {
        assert!(!value.to_string().is_empty());
        if let Value::Array(Array::String(strings)) = value {
            for (i, s) in strings.iter().enumerate() {
                assert_eq!(strings.get(i), Some(s));
            }
        }
        get::<u8>(metadata, key);
        get::<u32>(metadata, key);
        get::<u64>(metadata, key);
        get::<i32>(metadata, key);
        get::<f32>(metadata, key);
        get::<bool>(metadata, key);
        get::<&str>(metadata, key);
        get::<Vec<u32>>(metadata, key);
        get::<Vec<i64>>(metadata, key);
        get::<Vec<f32>>(metadata, key);
        get::<Vec<bool>>(metadata, key);
        get::<&StringArray>(metadata, key);
    }
    for info in gguf.tensors() {
        assert_eq!(gguf.tensor(&info.name), Some(info));
        let data = gguf.data(info);
        assert_eq!(data.len() as u64, info.byte_len);
        let mut values = vec![0.0; (info.cols() * info.rows()) as usize];
        strata_quant::dequantize(info.dtype, &data, &mut values).expect("the size was checked");
        // finite scales give finite values in every format, as none multiplies a half beyond the range of f32
        if strata_quant::first_non_finite(info.dtype, &data).is_none() {
            assert!(values.iter().all(|v| v.is_finite()), "{}", info.name);
        }
    }
});
