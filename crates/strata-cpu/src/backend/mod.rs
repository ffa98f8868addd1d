//! [`Backend`] on the CPU: the kernels, spread over the threads of a pool.

mod experts;
#[cfg(target_arch = "x86_64")]
mod gdn_x86;
pub(crate) mod kernels;

use crate::matmul::{Matrix, Table, matmul_many, prepare, prepare_two_orders};
use crate::pool::Pool;
use crate::qsa::disjoint::Disjoint;
use crate::qsa::{IndexNorm, NewCells, QsaCache, QsaKernels, QsaScratch, QsaShape, QueryRows, SequenceQueries, attend_all, select};
use crate::simd::Simd;
use bytes::Bytes;
pub use experts::ExpertScratch;
use kernels::Kernels;
pub use kernels::exp_in_place;
use std::ops::Range;
use std::sync::Arc;
use strata_ops::backend::{Backend, ExpertStacks, GdnRows, GdnShape, OpError, QsaGeometry, Routes, SequenceRows};
use strata_ops::gdn::{COLUMNS, Columns, Scan};
use strata_ops::matmul::{Acts, Forms};
use strata_ops::qsa::kv::KvKind;
use strata_ops::qsa::{HEAD_DIM, INDEX_DIM};
use strata_ops::rope::RopeTable;
use strata_quant::DType;

/// Values that an elementwise job should have before the pool is woken for it.
const SMALL: usize = 32 * 1024;
/// The same where each value costs an exponential.
const SMALL_EXP: usize = 4 * 1024;
/// Rows that a row job gives a thread at a time, at least.
const ROW_GRAIN: usize = 4;

/// The CPU as a device.
pub struct Cpu {
    pool: Arc<Pool>,
    simd: Simd,
    k: Kernels,
    qsa: QsaKernels,
}

impl Cpu {
    /// A device that runs on the threads of `pool` with the instructions of `simd`.
    ///
    /// # Errors
    /// If this CPU does not have the level.
    pub fn new(pool: Arc<Pool>, simd: Simd) -> Result<Cpu, OpError> {
        if !Simd::available().contains(&simd) {
            let names: Vec<&str> = Simd::available().iter().map(|s| s.name()).collect();
            return Err(OpError::Invalid {
                what: "instruction set".into(),
                expected: format!("one of {} on this CPU", names.join(", ")),
                found: simd.name().into(),
            });
        }
        Ok(Cpu { pool, simd, k: Kernels::pick(simd), qsa: QsaKernels::new(simd) })
    }

    pub fn simd(&self) -> Simd {
        self.simd
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Calls `f(row, its stretch of out)` for `n` rows of `width`, on several threads if there is enough to do.
    fn rows(&self, out: &mut [f32], width: usize, n: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
        if n * width < SMALL || n < 2 {
            for (i, o) in out.chunks_exact_mut(width).take(n).enumerate() {
                f(i, o);
            }
            return;
        }
        let out = Disjoint::new(&mut out[..n * width]);
        self.pool.ranges(n, ROW_GRAIN, &|rows, _| {
            for i in rows {
                // SAFETY: a row belongs to one range.
                f(i, unsafe { out.range(i * width..(i + 1) * width) });
            }
        });
    }

    /// Calls `f(start, its stretch of out)` on stretches of the first `len` values.
    fn flat(&self, out: &mut [f32], len: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
        if len < SMALL {
            f(0, &mut out[..len]);
            return;
        }
        let out = Disjoint::new(&mut out[..len]);
        self.pool.ranges(len, SMALL / 4, &|r, _| {
            let start = r.start;
            // SAFETY: the ranges of a job do not overlap.
            f(start, unsafe { out.range(r) });
        });
    }

    /// The scan of every block of columns of every head over the rows of each sequence. Without commit each block works on a
    /// copy of its state; without an output there is none to write.
    fn scan<'a>(&self, inputs: &GdnRows<'_, Cpu>, seqs: impl Iterator<Item = SequenceRows<'a, Vec<f32>>>, mut out: Option<&mut [f32]>) {
        let mut seqs = seqs.map(|p| SequenceScan { rows: p.rows, commit: p.commit, state: Disjoint::new(p.state) });
        while let Some(group) = group(&mut seqs) {
            self.scan_group(inputs, &group, out.as_deref_mut());
        }
    }

    fn scan_group(&self, inputs: &GdnRows<'_, Cpu>, group: &[Option<SequenceScan<'_>>; GROUP], out: Option<&mut [f32]>) {
        let s = inputs.shape;
        let blocks = s.value_dim / COLUMNS;
        let block_len = s.key_dim * COLUMNS;
        let stride = s.conv_dim();
        let keys = s.key_heads * s.key_dim;
        let width = s.inner();
        check_apart(group.iter().flatten().map(|g| &g.rows));
        let seqs = group.iter().flatten().count();
        let rows: usize = group.iter().flatten().map(|g| g.rows.len()).sum();
        let out = out.map(|o| {
            assert!(group.iter().flatten().all(|g| g.rows.end * width <= o.len()));
            Shared(o.as_mut_ptr())
        });
        let one = |t: usize| {
            let (seq, t) = (t / (s.value_heads * blocks), t % (s.value_heads * blocks));
            let Some(SequenceScan { rows, commit, state }) = &group[seq] else { return };
            let (head, block) = (t / blocks, t % blocks);
            // GGUF order: value head j goes with key head j mod key_heads
            let key_head = head % s.key_heads;
            let scan = Scan {
                qkv: &inputs.qkv[rows.start * stride..],
                stride,
                q: key_head * s.key_dim,
                k: keys + key_head * s.key_dim,
                v: 2 * keys + head * s.value_dim + block * COLUMNS,
                key_dim: s.key_dim,
                decay: &inputs.decay[rows.start * s.value_heads..],
                beta: &inputs.beta[rows.start * s.value_heads..],
                heads: s.value_heads,
                head,
                rows: rows.len(),
            };
            // SAFETY: a block of a head's state belongs to one task.
            let st = unsafe { state.range(t * block_len..(t + 1) * block_len) };
            // SAFETY: the array holds these rows of `width` (asserted above) and is borrowed for the whole job; the rows of no two
            // sequences overlap (checked above), and every task of a sequence has columns of its own.
            let out = out
                .map(|o| unsafe { Columns::new(o.get().add(rows.start * width), width, rows.len(), head * s.value_dim + block * COLUMNS) });
            if *commit {
                // SAFETY: the level is one of this CPU's.
                unsafe { (self.k.gdn_scan)(&scan, st, out) };
            } else {
                let mut copy = [0.0f32; MAX_KEY_DIM * COLUMNS];
                copy[..block_len].copy_from_slice(st);
                // SAFETY: as above.
                unsafe { (self.k.gdn_scan)(&scan, &mut copy[..block_len], out) };
            }
        };
        // a task has blocks one behind the other, which the scan sends for in time
        let all = seqs * s.value_heads * blocks;
        let run = |each: usize, t: usize| (t * each..((t + 1) * each).min(all)).for_each(one);
        if s.state_len() * rows < SMALL {
            run(all, 0);
        } else {
            let each = (s.value_heads * blocks / (4 * self.pool.threads())).max(1);
            self.pool.run(all.div_ceil(each), &|t, _| run(each, t));
        }
    }
}

/// One sequence's part of a scan.
struct SequenceScan<'a> {
    rows: Range<usize>,
    commit: bool,
    state: Disjoint<'a, f32>,
}

/// Sequences that one job works on at most.
const GROUP: usize = 32;

/// The next sequences of a call, without an allocation; `None` at the end.
fn group<T>(from: &mut impl Iterator<Item = T>) -> Option<[Option<T>; GROUP]> {
    let mut items = [const { None }; GROUP];
    items[0] = Some(from.next()?);
    items[1..].iter_mut().zip(from).for_each(|(item, x)| *item = Some(x));
    Some(items)
}

/// # Panics
/// If two of the ranges overlap: several threads may be about to write to them.
fn check_apart<'a>(rows: impl Iterator<Item = &'a Range<usize>> + Clone) {
    let mut rest = rows;
    while let Some(a) = rest.next() {
        assert!(rest.clone().all(|b| a.end <= b.start || b.end <= a.start), "rows of two sequences overlap");
    }
}

/// The address of an array that the tasks of a job write to, each in its own places.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

// SAFETY: a plain address; whoever writes through it says why that is sound.
unsafe impl Sync for Shared {}

impl Shared {
    fn get(self) -> *mut f32 {
        self.0
    }
}

/// The largest key head of a gated DeltaNet layer.
const MAX_KEY_DIM: usize = 256;

/// A zeroed array, or the error that says what it was for.
fn zeroed(len: usize, what: &str) -> Result<Vec<f32>, OpError> {
    let mut v = Vec::new();
    v.try_reserve_exact(len).map_err(|_| OpError::OutOfMemory { what: what.to_string(), bytes: len as u128 * 4 })?;
    v.resize(len, 0.0);
    Ok(v)
}

fn invalid(what: &str, expected: impl Into<String>, found: impl ToString) -> OpError {
    OpError::Invalid { what: what.to_string(), expected: expected.into(), found: found.to_string() }
}

/// The checked geometry of an attention layer.
fn shape(g: &QsaGeometry) -> Result<QsaShape, OpError> {
    QsaShape::new(g.heads, g.kv_heads, g.head_dim, g.index_heads, g.index_dim, g.budget_blocks, g.eps)
        .map_err(|e| invalid("attention geometry", "a supported one", e))
}

impl Backend for Cpu {
    type Buf = Vec<f32>;
    type Matrix = Matrix;
    type Table = Table;
    type Acts = Acts;
    type KvCache = QsaCache;
    type AttnScratch = AttnScratch;
    type ExpertScratch = ExpertScratch;

    fn buf(&self, len: usize, what: &str) -> Result<Vec<f32>, OpError> {
        zeroed(len, what)
    }

    fn write(&self, buf: &mut Vec<f32>, at: usize, data: &[f32]) {
        buf[at..at + data.len()].copy_from_slice(data);
    }

    fn read(&self, buf: &Vec<f32>, at: usize, out: &mut [f32]) {
        out.copy_from_slice(&buf[at..at + out.len()]);
    }

    fn copy(&self, from: &Vec<f32>, from_at: usize, to: &mut Vec<f32>, to_at: usize, len: usize) {
        to[to_at..to_at + len].copy_from_slice(&from[from_at..from_at + len]);
    }

    fn all_finite(&self, buf: &Vec<f32>, values: Range<usize>) -> bool {
        // SAFETY: the level is one of this CPU's, here and in every kernel call below.
        unsafe { (self.k.all_finite)(&buf[values]) }
    }

    fn matrix(&self, dtype: DType, rows: usize, cols: usize, bytes: Bytes, what: &str) -> Result<Matrix, OpError> {
        Matrix::new(dtype, rows, cols, bytes, self.simd).map_err(|e| invalid(what, format!("{rows} x {cols} {dtype}"), e))
    }

    fn table(&self, dtype: DType, rows: usize, cols: usize, bytes: Bytes, what: &str) -> Result<Table, OpError> {
        Table::new(dtype, rows, cols, bytes).map_err(|e| invalid(what, format!("{rows} x {cols} {dtype}"), e))
    }

    fn acts(&self, rows: usize, cols: usize, weights: &[&Matrix], what: &str) -> Result<Acts, OpError> {
        if let Some(w) = weights.iter().find(|w| w.cols() != cols) {
            return Err(invalid(what, format!("{cols} values a row"), w.cols()));
        }
        if rows.checked_mul(cols).is_none_or(|n| n > isize::MAX as usize / 16) {
            return Err(OpError::OutOfMemory { what: what.to_string(), bytes: rows as u128 * cols as u128 * 6 });
        }
        Ok(Acts::new(rows, cols, Forms::of(weights.iter().map(|w| w.dtype()))))
    }

    fn prepare(&self, x: &Vec<f32>, n: usize, acts: &mut Acts) {
        prepare(&self.pool, self.simd, &x[..n * acts.cols()], n, acts);
    }

    fn prepare_two_orders(&self, x: &Vec<f32>, n: usize, acts: &mut Acts) {
        prepare_two_orders(&self.pool, self.simd, &x[..n * acts.cols()], n, acts);
    }

    fn fold(&self, x: &mut Vec<f32>, len: usize) {
        let (first, second) = x.split_at_mut(len);
        for (a, b) in first.iter_mut().zip(&second[..len]) {
            *a += b;
        }
    }

    fn matmul(&self, acts: &Acts, n: usize, products: &mut [(&Matrix, &mut Vec<f32>)]) {
        matmul_many(&self.pool, acts, n, products.iter_mut().map(|(w, out)| (*w, &mut out[..])));
    }

    fn gather(&self, table: &Table, ids: &[u64], out: &mut Vec<f32>) {
        table.gather(ids, &mut out[..ids.len() * table.cols()]);
    }

    fn spread(&self, x: &Vec<f32>, n: usize, streams: usize, hidden: usize, r: &mut Vec<f32>) {
        self.rows(r, streams * hidden, n, |i, r| {
            for s in r.chunks_exact_mut(hidden) {
                s.copy_from_slice(&x[i * hidden..(i + 1) * hidden]);
            }
        });
    }

    fn join_streams(&self, e: &Vec<f32>, h: &Vec<f32>, n: usize, streams: usize, hidden: usize, out: &mut Vec<f32>) {
        self.rows(out, 2 * hidden, n * streams, |i, out| {
            let row = i / streams;
            out[..hidden].copy_from_slice(&e[row * hidden..(row + 1) * hidden]);
            out[hidden..].copy_from_slice(&h[i * hidden..(i + 1) * hidden]);
        });
    }

    fn rms_norm(&self, x: &Vec<f32>, rows: usize, width: usize, gain: &Vec<f32>, eps: f32, out: &mut Vec<f32>) {
        if rows * width < SMALL {
            // SAFETY: see `all_finite`.
            unsafe { (self.k.rms_norm)(&x[..rows * width], width, gain, 0, eps, &mut out[..rows * width]) };
            return;
        }
        self.rows(out, width, rows, |i, out| {
            // SAFETY: see `all_finite`.
            unsafe { (self.k.rms_norm)(&x[i * width..(i + 1) * width], width, gain, i, eps, out) };
        });
    }

    fn low_gate(&self, lo: &mut Vec<f32>, len: usize, inv_streams: f32) {
        // SAFETY: see `all_finite`.
        self.flat(lo, len, |_, lo| unsafe { (self.k.low_gate)(lo, inv_streams) });
    }

    fn hyper_mix(&self, up: &Vec<f32>, norm: &Vec<f32>, n: usize, streams: usize, hidden: usize, y: &mut Vec<f32>) {
        let wide = streams * hidden;
        self.rows(y, hidden, n, |i, y| {
            let r = i * wide..(i + 1) * wide;
            // SAFETY: see `all_finite`.
            unsafe { (self.k.hyper_mix)(&up[r.clone()], &norm[r], 1.0 / streams as f32, y) };
        });
    }

    fn inject_gate(&self, x: &mut Vec<f32>, len: usize, inv_streams: f32) {
        // SAFETY: see `all_finite`.
        unsafe { (self.k.inject_gate)(&mut x[..len], inv_streams) };
    }

    fn hyper_write(&self, r: &mut Vec<f32>, inject: &Vec<f32>, o: &Vec<f32>, n: usize, streams: usize, hidden: usize) {
        self.rows(r, streams * hidden, n, |i, r| {
            // SAFETY: see `all_finite`.
            unsafe { (self.k.hyper_write)(r, &inject[i * streams..(i + 1) * streams], &o[i * hidden..(i + 1) * hidden]) };
        });
    }

    fn silu_mul(&self, gate: &Vec<f32>, up: &Vec<f32>, len: usize, h: &mut Vec<f32>) {
        self.flat(h, len, |start, h| {
            let r = start..start + h.len();
            // SAFETY: see `all_finite`.
            unsafe { (self.k.silu_mul)(&gate[r.clone()], &up[r], h) };
        });
    }

    fn conv_silu<'a>(
        &self,
        x: &Vec<f32>,
        mut seqs: impl Iterator<Item = SequenceRows<'a, Vec<f32>>>,
        channels: usize,
        w: &Vec<f32>,
        dilation: usize,
        out: &mut Vec<f32>,
    ) {
        while let Some(group) = group(&mut seqs) {
            check_apart(group.iter().flatten().map(|s| &s.rows));
            let out = Disjoint::new(out);
            let row = |mut t: usize| {
                for SequenceRows { rows, state, .. } in group.iter().flatten() {
                    if t >= rows.len() {
                        t -= rows.len();
                        continue;
                    }
                    let (x, at) = (&x[rows.start * channels..rows.end * channels], rows.start + t);
                    // SAFETY: no two sequences have a row in common (checked above), and a row of one belongs to one call. For the
                    // kernel see `all_finite`.
                    return unsafe { (self.k.conv_silu_row)(x, state, w, dilation, t, out.range(at * channels..(at + 1) * channels)) };
                }
            };
            let n = group.iter().flatten().map(|s| s.rows.len()).sum();
            if n * channels < SMALL_EXP {
                (0..n).for_each(row);
            } else {
                self.pool.ranges(n, 1, &|rows, _| rows.for_each(row));
            }
        }
    }

    fn conv_advance(&self, state: &mut Vec<f32>, x: &Vec<f32>, channels: usize, rows: Range<usize>) {
        strata_ops::conv::advance_state(state, &x[rows.start * channels..], channels, rows.len());
    }

    fn gdn_norm(&self, qkv: &mut Vec<f32>, n: usize, shape: GdnShape, eps: f32) {
        let scale = 1.0 / (shape.key_dim as f32).sqrt();
        self.rows(qkv, shape.conv_dim(), n, |_, row| {
            // SAFETY: see `all_finite`.
            unsafe { (self.k.gdn_norm_row)(&mut row[..2 * shape.key_heads * shape.key_dim], shape.key_dim, eps, scale) };
        });
    }

    fn gdn_gates(&self, alpha: &Vec<f32>, b: &Vec<f32>, a: &Vec<f32>, dt: &Vec<f32>, n: usize, decay: &mut Vec<f32>, beta: &mut Vec<f32>) {
        let heads = a.len();
        for i in 0..n {
            let r = i * heads..(i + 1) * heads;
            // SAFETY: see `all_finite`.
            unsafe { (self.k.gdn_gates)(&alpha[r.clone()], &b[r.clone()], a, dt, &mut decay[r.clone()], &mut beta[r]) };
        }
    }

    fn gdn<'a>(&self, inputs: GdnRows<'_, Cpu>, seqs: impl Iterator<Item = SequenceRows<'a, Vec<f32>>>, out: &mut Vec<f32>) {
        self.scan(&inputs, seqs, Some(out));
    }

    fn gdn_commit(&self, inputs: GdnRows<'_, Cpu>, rows: Range<usize>, state: &mut Vec<f32>) {
        self.scan(&inputs, std::iter::once(SequenceRows { rows, first: 0, commit: true, state }), None);
    }

    fn gdn_gated_norm(&self, o: &mut Vec<f32>, z: &Vec<f32>, gain: &Vec<f32>, n: usize, shape: GdnShape, eps: f32) {
        let d = shape.value_dim;
        self.rows(o, d, n * shape.value_heads, |i, o| {
            // SAFETY: see `all_finite`.
            unsafe { (self.k.gdn_gated_norm)(o, &z[i * d..(i + 1) * d], gain, eps) };
        });
    }

    fn ple_gate(&self, key: &Vec<f32>, query: &Vec<f32>, v: &Vec<f32>, n: usize, streams: usize, hidden: usize, u: &mut Vec<f32>) {
        let wide = streams * hidden;
        self.rows(u, wide, n, |i, u| {
            let r = i * wide..(i + 1) * wide;
            // SAFETY: see `all_finite`.
            unsafe { (self.k.ple_gate)(&key[r.clone()], &query[r], &v[i * hidden..(i + 1) * hidden], u) };
        });
    }

    fn ple_add(&self, r: &mut Vec<f32>, u: &Vec<f32>, c: &Vec<f32>, len: usize) {
        self.flat(r, len, |start, r| {
            let at = start..start + r.len();
            // SAFETY: see `all_finite`.
            unsafe { (self.k.ple_add)(r, &u[at.clone()], &c[at]) };
        });
    }

    fn split_gate(&self, qg: &Vec<f32>, n: usize, heads: usize, head_dim: usize, q: &mut Vec<f32>, gate: &mut Vec<f32>) {
        let pairs = qg.chunks_exact(2 * head_dim);
        let outs = q.chunks_exact_mut(head_dim).zip(gate.chunks_exact_mut(head_dim));
        for (pair, (q, gate)) in pairs.zip(outs).take(n * heads) {
            q.copy_from_slice(&pair[..head_dim]);
            gate.copy_from_slice(&pair[head_dim..]);
        }
    }

    fn rope(&self, x: &mut Vec<f32>, rows: Range<usize>, heads: usize, width: usize, table: &RopeTable, first: usize) {
        self.rows(&mut x[rows.start * heads * width..], heads * width, rows.len(), |i, row| {
            // SAFETY: see `all_finite`.
            unsafe { (self.k.rope_row)(row, width, table, first + i) };
        });
    }

    fn kv_cache(&self, geometry: QsaGeometry, kind: KvKind, capacity: usize) -> Result<QsaCache, OpError> {
        QsaCache::new(&shape(&geometry)?, kind, capacity).map_err(|e| invalid("KV cache", "a size that fits in memory", e))
    }

    fn kv_len(&self, cache: &QsaCache) -> usize {
        cache.len()
    }

    fn kv_truncate(&self, cache: &mut QsaCache, len: usize) {
        cache.truncate(len).expect("a rollback stays within the cells whose index keys are kept");
    }

    fn kv_append(
        &self,
        cache: &mut QsaCache,
        k: &Vec<f32>,
        v: &Vec<f32>,
        index_k: &Vec<f32>,
        rows: Range<usize>,
        index_gain: &Vec<f32>,
        eps: f32,
        rope: &RopeTable,
    ) {
        let width = cache.kv_heads() * HEAD_DIM;
        let (kv, index) = (rows.start * width..rows.end * width, rows.start * INDEX_DIM..rows.end * INDEX_DIM);
        let cells = NewCells { k: &k[kv.clone()], v: &v[kv], index_k: &index_k[index], n: rows.len() };
        cache
            .append(&self.pool, &cells, &IndexNorm { gain: index_gain, eps, rope })
            .expect("the model checks capacity and positions before a call");
    }

    fn kv_block_bytes(&self, cache: &QsaCache) -> usize {
        cache.block_bytes()
    }

    fn kv_save(&self, cache: &QsaCache, blocks: Range<usize>, out: &mut [u8]) {
        cache.save(blocks, out);
    }

    fn kv_load(&self, cache: &mut QsaCache, first: usize, saved: &[u8]) {
        cache.load(first, saved);
    }

    fn kv_open(&self, cache: &QsaCache, len: usize, out: &mut [f32]) {
        cache.open(len, out);
    }

    fn kv_resume(&self, cache: &mut QsaCache, len: usize, open: &[f32]) {
        cache.resume(len, open);
    }

    fn attn_scratch(&self, geometry: QsaGeometry, rows: usize, capacity: usize) -> Result<AttnScratch, OpError> {
        let shape = shape(&geometry)?;
        let scratch = QsaScratch::new(&shape, rows, capacity, self.pool.threads())
            .map_err(|e| invalid("attention working memory", "a size that fits in memory", e))?;
        Ok(AttnScratch { shape, scratch })
    }

    fn attend<'a>(
        &self,
        geometry: QsaGeometry,
        q: &Vec<f32>,
        iq: &Vec<f32>,
        seqs: impl Iterator<Item = SequenceRows<'a, QsaCache>>,
        scratch: &mut AttnScratch,
        out: &mut Vec<f32>,
    ) {
        let AttnScratch { shape, scratch } = scratch;
        let (wide, index) = (shape.heads() * HEAD_DIM, shape.index_heads() * INDEX_DIM);
        let mut seqs = seqs.map(|p| SequenceQueries {
            cache: p.state,
            rows: QueryRows {
                q: &q[p.rows.start * wide..p.rows.end * wide],
                iq: &iq[p.rows.start * index..p.rows.end * index],
                first_pos: p.first,
                n: p.rows.len(),
                dense: geometry.dense,
            },
            at: p.rows.start,
        });
        while let Some(group) = group(&mut seqs) {
            attend_all(&self.pool, &self.qsa, shape, &group, out, scratch).expect("the model checks capacity before a call");
        }
    }

    fn selected_blocks(
        &self,
        cache: &QsaCache,
        geometry: QsaGeometry,
        iq: &Vec<f32>,
        row: usize,
        pos: usize,
    ) -> Option<(Vec<u32>, Vec<f32>)> {
        let complete = (pos + 1) / geometry.block;
        if geometry.dense || complete <= geometry.budget_blocks {
            return None;
        }
        let shape = shape(&geometry).ok()?;
        let iq = &iq[row * geometry.index_heads * INDEX_DIM..][..geometry.index_heads * INDEX_DIM];
        let (mut scores, mut ids) = (vec![0.0; complete + 1], vec![0; shape.max_width()]);
        let width = select(cache, &shape, iq, pos, &mut scores, &mut ids).ok()?;
        let blocks = ids[..width].iter().map(|c| *c as u32 / geometry.block as u32).filter(|b| (*b as usize) < complete);
        let mut blocks: Vec<u32> = blocks.collect();
        blocks.dedup();
        scores.truncate(complete);
        Some((blocks, scores))
    }

    fn gate_output(&self, o: &mut Vec<f32>, gate: &Vec<f32>, len: usize) {
        self.flat(o, len, |start, o| {
            // SAFETY: see `all_finite`.
            unsafe { (self.k.gate_output)(o, &gate[start..start + o.len()]) };
        });
    }

    fn route(&self, logits: &Vec<f32>, n: usize, experts: usize, routes: &mut Routes) {
        let k = routes.ranks;
        for i in 0..n {
            let at = i * k..(i + 1) * k;
            // SAFETY: see `all_finite`.
            unsafe { (self.k.route)(&logits[i * experts..(i + 1) * experts], &mut routes.ids[at.clone()], &mut routes.weights[at]) };
        }
    }

    fn expert_scratch(&self, stacks: &ExpertStacks<Matrix>, rows: usize, ranks: usize) -> Result<ExpertScratch, OpError> {
        ExpertScratch::new(stacks, rows, ranks)
    }

    fn experts(
        &self,
        stacks: &ExpertStacks<Matrix>,
        acts: &Acts,
        routes: &Routes,
        n: usize,
        shared: &Vec<f32>,
        shared_gate: &Vec<f32>,
        scratch: &mut ExpertScratch,
        out: &mut Vec<f32>,
    ) {
        scratch.hidden(self, stacks, acts, routes, n);
        scratch.down(self, stacks);
        let (k, hidden) = (routes.ranks, stacks.hidden);
        let experts = &scratch.out;
        self.rows(out, hidden, n, |i, out| {
            let e = &experts[i * k * hidden..(i + 1) * k * hidden];
            let s = &shared[i * hidden..(i + 1) * hidden];
            // SAFETY: see `all_finite`.
            unsafe { (self.k.combine)(e, &routes.weights[i * k..(i + 1) * k], s, shared_gate[i], out) };
        });
    }
}

/// Working memory of attention.
pub struct AttnScratch {
    shape: QsaShape,
    scratch: QsaScratch,
}
