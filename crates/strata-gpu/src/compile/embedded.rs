//! Images embedded by `build.rs`.

use super::Image;
use crate::error::{GpuError, Result};

/// File, architecture, length, deflated bytes.
type Entry = (&'static str, &'static str, usize, &'static [u8]);

static IMAGES: &[Entry] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The embedded image of a file for exactly this architecture, if there is one.
pub fn embedded(file: &str, arch: &str) -> Option<Result<Image>> {
    let (_, _, length, packed) = IMAGES.iter().find(|(f, a, ..)| *f == file && *a == arch)?;
    let image = miniz_oxide::inflate::decompress_to_vec_with_limit(packed, *length);
    Some(image.map(|bytes| Image { bytes, log: String::new(), arch: arch.to_string() }).map_err(|e| GpuError::Kernel {
        kernel: format!("(all of {file})"),
        reason: format!("the embedded image for {arch} does not unpack: {e}"),
    }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_embedded_image_unpacks() {
        for (file, arch, length, _) in super::IMAGES {
            let image = super::embedded(file, arch).expect("listed").expect("unpacks");
            assert_eq!(image.bytes.len(), *length, "{file} {arch}");
        }
        assert!(super::embedded("no/such.cu", "sm_80").is_none());
    }
}
