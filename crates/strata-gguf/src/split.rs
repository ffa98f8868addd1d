//! Names and keys of split files: `<prefix>-<shard>-of-<count>.gguf`, five digits each, shards counted from 1.

use std::path::{Path, PathBuf};

use crate::{ErrorKind, GgufError, Metadata};

/// 0-based number of a shard.
pub(crate) const NO_KEY: &str = "split.no";
/// Number of shards.
pub(crate) const COUNT_KEY: &str = "split.count";
/// Tensors in all shards together.
pub(crate) const TENSORS_KEY: &str = "split.tensors.count";

/// The split keys of a first shard of several.
pub(crate) struct Split {
    pub count: u64,
    pub tensors: Option<u64>,
}

impl Split {
    /// `None` for a file that is whole: without the keys, or a split of one.
    ///
    /// # Errors
    /// A key of another type, or a shard other than the first.
    pub fn of(metadata: &Metadata, file: &Path) -> Result<Option<Split>, GgufError> {
        let count: u64 = metadata.get_opt(COUNT_KEY)?.unwrap_or(0);
        if count < 2 {
            return Ok(None);
        }
        let no: u64 = metadata.get(NO_KEY)?;
        if no != 0 {
            let found = no.saturating_add(1);
            return Err(GgufError::new(file, ErrorKind::NotFirstShard { found, count }));
        }
        Ok(Some(Split { count, tensors: metadata.get_opt(TENSORS_KEY)? }))
    }

    /// Paths of the shards after the first, in order.
    ///
    /// # Errors
    /// The first shard's name is not that of shard 1 of `count`.
    pub fn other_paths(&self, first: &Path) -> Result<impl Iterator<Item = PathBuf>, GgufError> {
        let count = self.count;
        let suffix = move |shard: u64| format!("-{shard:05}-of-{count:05}.gguf");
        let prefix = first
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(&suffix(1)))
            .ok_or_else(|| GgufError::new(first, ErrorKind::SplitName { shard: 1, count }))?;
        Ok((2..=count).map(move |shard| first.with_file_name(format!("{prefix}{}", suffix(shard)))))
    }

    /// Checks that the file read as shard `shard` (from 1) says that it is that one.
    ///
    /// # Errors
    /// A key is missing or has another value.
    pub fn check_shard(&self, shard: u64, file: &Path, metadata: &Metadata) -> Result<(), GgufError> {
        for (key, expected) in [(NO_KEY, shard - 1), (COUNT_KEY, self.count)] {
            let found = metadata.u64(key)?;
            if found != expected {
                return Err(GgufError::new(file, ErrorKind::SplitMismatch { key, expected, found }));
            }
        }
        Ok(())
    }
}
