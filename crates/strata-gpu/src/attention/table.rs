//! Which attention kernels run: defaults by architecture, each replaceable by an explicit value.

use super::decode::{DecodeScratch, Selection, attend_decode, candidates, is_of_format};
use super::pool::KvPool;
use super::prompt::{launch_prompt, prompt_kernel_on};
use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::registry;
use strata_ops::qsa::kv::KvKind;

/// Kernels and thresholds of the dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionTable {
    /// Queries of a call from which the prompt kernels take it, one workgroup a query and KV head; fewer are spread by chunks.
    pub prompt_min: usize,
    /// The chunk kernel of a format, in the order of [`KvKind::ALL`]; without one, the best that the device has.
    chunk: [Option<&'static str>; KvKind::ALL.len()],
}

impl AttentionTable {
    /// The table of a device nothing is known about.
    pub const BASE: AttentionTable = AttentionTable { prompt_min: 33, chunk: [None; KvKind::ALL.len()] };

    /// Sets the chunk kernel of a format, or back to the best with `auto`. Whether it is a kernel of the format. One that is not
    /// exact is taken too: it is then named as an explicit value, never by defaults.
    pub fn set_chunk(&mut self, kind: KvKind, kernel: &str) -> bool {
        let slot = &mut self.chunk[kind as usize];
        if kernel == "auto" {
            *slot = None;
            return true;
        }
        match registry::find(kernel).filter(|_| is_of_format(kernel, kind)) {
            Some(k) => *slot = Some(k.name),
            None => return false,
        }
        true
    }

    /// The chunk kernel that is set for a format.
    pub fn chunk(&self, kind: KvKind) -> Option<&'static str> {
        self.chunk[kind as usize]
    }

    /// The chunk kernel of a format on an architecture; `None` for a format without kernels.
    pub fn chunk_on(&self, arch: &str, kind: KvKind) -> Option<&'static str> {
        let set = self.chunk(kind).into_iter();
        set.chain(candidates(kind).iter().copied()).find(|k| registry::has(arch, k))
    }

    /// The prompt kernel of a call of `queries` queries, `group` heads a KV head; `None` where chunks take it.
    pub fn prompt_on(&self, arch: &str, kind: KvKind, group: usize, queries: usize) -> Option<&'static str> {
        prompt_kernel_on(arch, kind, group).filter(|_| queries >= self.prompt_min)
    }
}

/// Attention of `heads` heads a query over its selection, by the kernels of the table's choice, all of the same bits. `scratch` is
/// for calls that chunks take, of the size that [`attend_decode`] needs.
///
/// # Errors
/// As [`attend_decode`] and [`launch_prompt`].
#[expect(clippy::too_many_arguments, reason = "those of the two forms")]
pub fn attend(
    device: &Device,
    table: &AttentionTable,
    pool: &KvPool,
    q: &Buffer<f32>,
    heads: usize,
    selection: &Selection<'_>,
    scratch: &mut DecodeScratch,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let group = heads / pool.kv_heads();
    match table.prompt_on(&device.info().arch, pool.kind(), group, selection.queries) {
        Some(kernel) => launch_prompt(device, kernel, pool, q, heads, selection, out),
        None => attend_decode(device, table, pool, q, heads, selection, scratch, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatch_follows_the_table() {
        let mut t = AttentionTable::BASE;
        assert_eq!(t.chunk_on("sm_90a", KvKind::Int8), Some("attn_chunk_int8_tiles8"));
        assert_eq!(t.chunk_on("gfx1030", KvKind::Int8), Some("attn_chunk_int8_dot"));
        assert_eq!(t.chunk_on("sm_90a", KvKind::F32), None);
        assert_eq!((t.prompt_on("sm_90a", KvKind::Int8, 12, 32), t.prompt_on("gfx1030", KvKind::Int8, 12, 99)), (None, None));
        assert_eq!(t.prompt_on("sm_90a", KvKind::Int8, 12, 33), Some("prompt_int8_g12"));
        assert!(t.set_chunk(KvKind::Int8, "attn_chunk_int8_tiles4"));
        // a kernel that the device lacks gives way to the best
        assert_eq!(t.chunk_on("gfx1030", KvKind::Int8), Some("attn_chunk_int8_dot"));
        assert_eq!(t.chunk_on("gfx1201", KvKind::Int8), Some("attn_chunk_int8_tiles4"));
        let before = t;
        assert!(!t.set_chunk(KvKind::F16, "attn_chunk_int8_dot") && !t.set_chunk(KvKind::Int8, "attn_chunk_int8"));
        assert_eq!(t, before);
        assert!(t.set_chunk(KvKind::Int8, "auto") && t == AttentionTable::BASE);
    }
}
