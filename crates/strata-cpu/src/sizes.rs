//! A device that computes nothing and counts the memory that [`Cpu`](crate::backend::Cpu) would take: a model, its working memory
//! and a sequence made on it tell what a run will need, by the code that will make them.

use crate::backend::ExpertScratch;
use crate::qsa::{QsaCache, QsaScratch, QsaShape};
use bytes::Bytes;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_ops::backend::{Backend, ExpertStacks, GdnRows, GdnShape, OpError, QsaGeometry, Routes, SequenceRows};
use strata_ops::matmul::{Acts, Forms};
use strata_ops::qsa::kv::KvKind;
use strata_ops::rope::RopeTable;
use strata_quant::DType;

/// What was asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Buffers of floats, and activations.
    pub buffers: u64,
    /// KV caches with their index keys.
    pub kv: u64,
    /// Working memory of attention and of experts.
    pub scratch: u64,
}

impl Sizes {
    /// All together.
    pub fn total(self) -> u64 {
        self.buffers + self.kv + self.scratch
    }

    /// What was added since `before`.
    pub fn since(self, before: Sizes) -> Sizes {
        Sizes { buffers: self.buffers - before.buffers, kv: self.kv - before.kv, scratch: self.scratch - before.scratch }
    }
}

/// The counting device.
#[derive(Default)]
pub struct Sizer {
    threads: usize,
    buffers: AtomicU64,
    kv: AtomicU64,
    scratch: AtomicU64,
}

impl Sizer {
    /// Counts for a pool of `threads` threads.
    pub fn new(threads: usize) -> Sizer {
        Sizer { threads, ..Sizer::default() }
    }

    /// What was asked for so far.
    pub fn sizes(&self) -> Sizes {
        let get = |x: &AtomicU64| x.load(Ordering::Relaxed);
        Sizes { buffers: get(&self.buffers), kv: get(&self.kv), scratch: get(&self.scratch) }
    }
}

fn add(to: &AtomicU64, bytes: u128, what: &str) -> Result<(), OpError> {
    let too_much = || OpError::OutOfMemory { what: what.to_string(), bytes };
    let bytes = u64::try_from(bytes).ok().filter(|b| *b <= isize::MAX as u64).ok_or_else(too_much)?;
    // far from wrapping: sums of a few thousand sizes that each fit in the address space of a machine
    to.fetch_add(bytes, Ordering::Relaxed);
    Ok(())
}

/// Ops are not run on sizes.
macro_rules! never {
    ($(fn $name:ident(&self $(, $ty:ty)* $(,)?);)*) => {
        $(fn $name(&self $(, _: $ty)*) {
            unreachable!("{} on a device that only counts", stringify!($name))
        })*
    };
}

type Buf = ();

// an op names every buffer and size it works on
#[allow(clippy::too_many_arguments)]
impl Backend for Sizer {
    type Buf = Buf;
    type Matrix = DType;
    type Table = ();
    type Acts = ();
    type KvCache = ();
    type AttnScratch = ();
    type ExpertScratch = ();

    fn buf(&self, len: usize, what: &str) -> Result<(), OpError> {
        add(&self.buffers, len as u128 * 4, what)
    }

    // a vector or a cleared state: it was counted when its buffer was made
    fn write(&self, _: &mut Buf, _: usize, _: &[f32]) {}

    fn matrix(&self, dtype: DType, _: usize, _: usize, _: Bytes, _: &str) -> Result<DType, OpError> {
        Ok(dtype)
    }

    fn table(&self, _: DType, _: usize, _: usize, _: Bytes, _: &str) -> Result<(), OpError> {
        Ok(())
    }

    fn acts(&self, rows: usize, cols: usize, weights: &[&DType], what: &str) -> Result<(), OpError> {
        add(&self.buffers, Acts::bytes(rows, cols, Forms::of(weights.iter().map(|d| **d))), what)
    }

    fn kv_cache(&self, g: QsaGeometry, kind: KvKind, capacity: usize) -> Result<(), OpError> {
        add(&self.kv, QsaCache::bytes(g.kv_heads, kind, capacity), "KV cache")
    }

    fn attn_scratch(&self, g: QsaGeometry, rows: usize, capacity: usize) -> Result<(), OpError> {
        let shape = QsaShape::new(g.heads, g.kv_heads, g.head_dim, g.index_heads, g.index_dim, g.budget_blocks, g.eps);
        let shape = shape.map_err(|e| OpError::Invalid {
            what: "attention geometry".into(),
            expected: "a supported one".into(),
            found: e.to_string(),
        })?;
        add(&self.scratch, QsaScratch::bytes(&shape, rows, capacity, self.threads), "attention working memory")
    }

    fn expert_scratch(&self, stacks: &ExpertStacks<DType>, rows: usize, ranks: usize) -> Result<(), OpError> {
        add(&self.scratch, ExpertScratch::bytes(stacks, stacks.down, rows, ranks), "expert working memory")
    }

    fn kv_len(&self, _: &()) -> usize {
        0
    }

    fn kv_block_bytes(&self, _: &()) -> usize {
        0
    }

    fn all_finite(&self, _: &Buf, _: Range<usize>) -> bool {
        true
    }

    fn selected_blocks(&self, _: &(), _: QsaGeometry, _: &Buf, _: usize, _: usize) -> Option<(Vec<u32>, Vec<f32>)> {
        None
    }

    fn gdn<'a>(&self, _: GdnRows<'_, Sizer>, _: impl Iterator<Item = SequenceRows<'a, Buf>>, _: &mut Buf) {
        unreachable!("gdn on a device that only counts")
    }

    fn conv_silu<'a>(&self, _: &Buf, _: impl Iterator<Item = SequenceRows<'a, Buf>>, _: usize, _: &Buf, _: usize, _: &mut Buf) {
        unreachable!("conv_silu on a device that only counts")
    }

    fn attend<'a>(&self, _: QsaGeometry, _: &Buf, _: &Buf, _: impl Iterator<Item = SequenceRows<'a, ()>>, _: &mut (), _: &mut Buf) {
        unreachable!("attend on a device that only counts")
    }

    never! {
        fn read(&self, &Buf, usize, &mut [f32]);
        fn copy(&self, &Buf, usize, &mut Buf, usize, usize);
        fn prepare(&self, &Buf, usize, &mut ());
        fn prepare_two_orders(&self, &Buf, usize, &mut ());
        fn fold(&self, &mut Buf, usize);
        fn matmul(&self, &(), usize, &mut [(&DType, &mut Buf)]);
        fn gather(&self, &(), &[u64], &mut Buf);
        fn spread(&self, &Buf, usize, usize, usize, &mut Buf);
        fn join_streams(&self, &Buf, &Buf, usize, usize, usize, &mut Buf);
        fn rms_norm(&self, &Buf, usize, usize, &Buf, f32, &mut Buf);
        fn low_gate(&self, &mut Buf, usize, f32);
        fn hyper_mix(&self, &Buf, &Buf, usize, usize, usize, &mut Buf);
        fn inject_gate(&self, &mut Buf, usize, f32);
        fn hyper_write(&self, &mut Buf, &Buf, &Buf, usize, usize, usize);
        fn silu_mul(&self, &Buf, &Buf, usize, &mut Buf);
        fn conv_advance(&self, &mut Buf, &Buf, usize, Range<usize>);
        fn gdn_norm(&self, &mut Buf, usize, GdnShape, f32);
        fn gdn_gates(&self, &Buf, &Buf, &Buf, &Buf, usize, &mut Buf, &mut Buf);
        fn gdn_commit(&self, GdnRows<'_, Sizer>, Range<usize>, &mut Buf);
        fn gdn_gated_norm(&self, &mut Buf, &Buf, &Buf, usize, GdnShape, f32);
        fn ple_gate(&self, &Buf, &Buf, &Buf, usize, usize, usize, &mut Buf);
        fn ple_add(&self, &mut Buf, &Buf, &Buf, usize);
        fn split_gate(&self, &Buf, usize, usize, usize, &mut Buf, &mut Buf);
        fn rope(&self, &mut Buf, Range<usize>, usize, usize, &RopeTable, usize);
        fn kv_truncate(&self, &mut (), usize);
        fn kv_append(&self, &mut (), &Buf, &Buf, &Buf, Range<usize>, &Buf, f32, &RopeTable);
        fn kv_save(&self, &(), Range<usize>, &mut [u8]);
        fn kv_load(&self, &mut (), usize, &[u8]);
        fn kv_open(&self, &(), usize, &mut [f32]);
        fn kv_resume(&self, &mut (), usize, &[f32]);
        fn gate_output(&self, &mut Buf, &Buf, usize);
        fn route(&self, &Buf, usize, usize, &mut Routes);
        fn experts(&self, &ExpertStacks<DType>, &(), &Routes, usize, &Buf, &Buf, &mut (), &mut Buf);
    }
}
