//! The CPU with a fault: an op that looks at a sequence's state takes the rows of another one, or puts a value that is not finite
//! into a row. What the tests of batches must see.
#![allow(dead_code, clippy::too_many_arguments, clippy::ptr_arg)]

use bytes::Bytes;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use strata_cpu::backend::Cpu;
use strata_ops::backend::{Backend, ExpertStacks, GdnRows, GdnShape, OpError, QsaGeometry, Routes, SequenceRows};
use strata_ops::qsa::kv::KvKind;
use strata_ops::rope::RopeTable;
use strata_quant::DType;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// These ops, of segments after the first, work one row too early.
    ConvAdvance,
    Rope,
    KvAppend,
    /// These leave out the first row of such a segment, where it has several.
    ConvSilu,
    Gdn,
    Attend,
    /// Rotated as if one place further on.
    Position,
    /// The attention output of the first row of a segment that starts at this row is not finite, once.
    NotFinite(usize),
}

pub struct Faulty {
    cpu: Cpu,
    fault: Fault,
    left: AtomicUsize,
}

type Buf = Vec<f32>;
type Matrix = <Cpu as Backend>::Matrix;
type Table = <Cpu as Backend>::Table;
type Acts = <Cpu as Backend>::Acts;
type KvCache = <Cpu as Backend>::KvCache;
type AttnScratch = <Cpu as Backend>::AttnScratch;
type ExpertScratch = <Cpu as Backend>::ExpertScratch;

impl Faulty {
    pub fn new(cpu: Cpu, fault: Fault) -> Faulty {
        Faulty { cpu, fault, left: AtomicUsize::new(1) }
    }

    /// Rows as an op with this fault takes them.
    fn rows(&self, fault: Fault, rows: Range<usize>) -> Range<usize> {
        if self.fault == fault && rows.start > 0 { rows.start - 1..rows.end - 1 } else { rows }
    }

    /// The same for ops on all sequences.
    fn late<'a, S>(&self, fault: Fault, s: SequenceRows<'a, S>) -> SequenceRows<'a, S> {
        let late = self.fault == fault && s.rows.start > 0 && s.rows.len() > 1;
        SequenceRows { rows: s.rows.start + usize::from(late)..s.rows.end, ..s }
    }
}

fn cpu_rows<'a>(r: GdnRows<'a, Faulty>) -> GdnRows<'a, Cpu> {
    GdnRows { qkv: r.qkv, decay: r.decay, beta: r.beta, shape: r.shape }
}

macro_rules! pass {
    ($(fn $name:ident($($a:ident: $t:ty),*) $(-> $r:ty)?;)*) => {
        $(fn $name(&self, $($a: $t),*) $(-> $r)? { self.cpu.$name($($a),*) })*
    };
}

impl Backend for Faulty {
    type Buf = Buf;
    type Matrix = Matrix;
    type Table = Table;
    type Acts = Acts;
    type KvCache = KvCache;
    type AttnScratch = AttnScratch;
    type ExpertScratch = ExpertScratch;

    fn conv_silu<'a>(
        &self,
        x: &Buf,
        seqs: impl Iterator<Item = SequenceRows<'a, Buf>>,
        channels: usize,
        w: &Buf,
        dilation: usize,
        out: &mut Buf,
    ) {
        self.cpu.conv_silu(x, seqs.map(|s| self.late(Fault::ConvSilu, s)), channels, w, dilation, out);
    }

    fn conv_advance(&self, state: &mut Buf, x: &Buf, channels: usize, rows: Range<usize>) {
        self.cpu.conv_advance(state, x, channels, self.rows(Fault::ConvAdvance, rows));
    }

    fn gdn<'a>(&self, inputs: GdnRows<'_, Faulty>, seqs: impl Iterator<Item = SequenceRows<'a, Buf>>, out: &mut Buf) {
        self.cpu.gdn(cpu_rows(inputs), seqs.map(|s| self.late(Fault::Gdn, s)), out);
    }

    fn gdn_commit(&self, inputs: GdnRows<'_, Faulty>, rows: Range<usize>, state: &mut Buf) {
        self.cpu.gdn_commit(cpu_rows(inputs), rows, state);
    }

    fn rope(&self, x: &mut Buf, rows: Range<usize>, heads: usize, width: usize, table: &RopeTable, first: usize) {
        let first = if self.fault == Fault::Position && rows.start > 0 { first.saturating_sub(1) } else { first };
        self.cpu.rope(x, self.rows(Fault::Rope, rows), heads, width, table, first);
    }

    fn kv_append(
        &self,
        cache: &mut KvCache,
        k: &Buf,
        v: &Buf,
        index_k: &Buf,
        rows: Range<usize>,
        index_gain: &Buf,
        eps: f32,
        rope: &RopeTable,
    ) {
        self.cpu.kv_append(cache, k, v, index_k, self.rows(Fault::KvAppend, rows), index_gain, eps, rope);
    }

    fn attend<'a>(
        &self,
        g: QsaGeometry,
        q: &Buf,
        iq: &Buf,
        seqs: impl Iterator<Item = SequenceRows<'a, KvCache>>,
        scratch: &mut AttnScratch,
        out: &mut Buf,
    ) {
        let mut hit = None;
        let seqs = seqs.map(|s| {
            hit = hit.or((self.fault == Fault::NotFinite(s.rows.start)).then_some(s.rows.start));
            self.late(Fault::Attend, s)
        });
        self.cpu.attend(g, q, iq, seqs, scratch, out);
        if let Some(row) = hit.filter(|_| self.left.swap(0, Ordering::Relaxed) > 0) {
            out[row * g.heads * g.head_dim] = f32::NAN;
        }
    }

    pass! {
        fn buf(len: usize, what: &str) -> Result<Buf, OpError>;
        fn write(buf: &mut Buf, at: usize, data: &[f32]);
        fn read(buf: &Buf, at: usize, out: &mut [f32]);
        fn copy(from: &Buf, from_at: usize, to: &mut Buf, to_at: usize, len: usize);
        fn all_finite(buf: &Buf, values: Range<usize>) -> bool;
        fn matrix(dtype: DType, rows: usize, cols: usize, bytes: Bytes, what: &str) -> Result<Matrix, OpError>;
        fn table(dtype: DType, rows: usize, cols: usize, bytes: Bytes, what: &str) -> Result<Table, OpError>;
        fn acts(rows: usize, cols: usize, weights: &[&Matrix], what: &str) -> Result<Acts, OpError>;
        fn prepare(x: &Buf, n: usize, acts: &mut Acts);
        fn prepare_two_orders(x: &Buf, n: usize, acts: &mut Acts);
        fn fold(x: &mut Buf, len: usize);
        fn matmul(acts: &Acts, n: usize, products: &mut [(&Matrix, &mut Buf)]);
        fn gather(table: &Table, ids: &[u64], out: &mut Buf);
        fn spread(x: &Buf, n: usize, streams: usize, hidden: usize, r: &mut Buf);
        fn join_streams(e: &Buf, h: &Buf, n: usize, streams: usize, hidden: usize, out: &mut Buf);
        fn rms_norm(x: &Buf, rows: usize, width: usize, gain: &Buf, eps: f32, out: &mut Buf);
        fn low_gate(lo: &mut Buf, len: usize, inv_streams: f32);
        fn hyper_mix(up: &Buf, norm: &Buf, n: usize, streams: usize, hidden: usize, y: &mut Buf);
        fn inject_gate(x: &mut Buf, len: usize, inv_streams: f32);
        fn hyper_write(r: &mut Buf, inject: &Buf, o: &Buf, n: usize, streams: usize, hidden: usize);
        fn silu_mul(gate: &Buf, up: &Buf, len: usize, h: &mut Buf);
        fn gdn_norm(qkv: &mut Buf, n: usize, shape: GdnShape, eps: f32);
        fn gdn_gates(alpha: &Buf, b: &Buf, a: &Buf, dt: &Buf, n: usize, decay: &mut Buf, beta: &mut Buf);
        fn gdn_gated_norm(o: &mut Buf, z: &Buf, gain: &Buf, n: usize, shape: GdnShape, eps: f32);
        fn ple_gate(key: &Buf, query: &Buf, v: &Buf, n: usize, streams: usize, hidden: usize, u: &mut Buf);
        fn ple_add(r: &mut Buf, u: &Buf, c: &Buf, len: usize);
        fn split_gate(qg: &Buf, n: usize, heads: usize, head_dim: usize, q: &mut Buf, gate: &mut Buf);
        fn kv_cache(geometry: QsaGeometry, kind: KvKind, capacity: usize) -> Result<KvCache, OpError>;
        fn kv_len(cache: &KvCache) -> usize;
        fn kv_truncate(cache: &mut KvCache, len: usize);
        fn kv_block_bytes(cache: &KvCache) -> usize;
        fn kv_save(cache: &KvCache, blocks: Range<usize>, out: &mut [u8]);
        fn kv_load(cache: &mut KvCache, first: usize, saved: &[u8]);
        fn kv_open(cache: &KvCache, len: usize, out: &mut [f32]);
        fn kv_resume(cache: &mut KvCache, len: usize, open: &[f32]);
        fn attn_scratch(geometry: QsaGeometry, rows: usize, capacity: usize) -> Result<AttnScratch, OpError>;
        fn selected_blocks(cache: &KvCache, g: QsaGeometry, iq: &Buf, row: usize, pos: usize) -> Option<(Vec<u32>, Vec<f32>)>;
        fn gate_output(o: &mut Buf, gate: &Buf, len: usize);
        fn route(logits: &Buf, n: usize, experts: usize, routes: &mut Routes);
        fn expert_scratch(stacks: &ExpertStacks<Matrix>, rows: usize, ranks: usize) -> Result<ExpertScratch, OpError>;
        fn experts(
            stacks: &ExpertStacks<Matrix>, acts: &Acts, routes: &Routes, n: usize, shared: &Buf, shared_gate: &Buf,
            scratch: &mut ExpertScratch, out: &mut Buf
        );
    }
}
