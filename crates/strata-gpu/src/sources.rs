//! The kernel sources, embedded, by their paths below `kernels/`.

static SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// Every file: path and text.
pub fn all() -> &'static [(&'static str, &'static str)] {
    SOURCES
}

/// The text of one file.
pub fn text(path: &str) -> Option<&'static str> {
    SOURCES.iter().find(|(p, _)| *p == path).map(|(_, t)| *t)
}
