//! The hashed n-gram module (PLE): table rows from token ids, a gate by the residual, a dilated convolution.

use crate::config::{Config, NgramConfig};
use crate::error::BindError;
use crate::scratch::Scratch;
use crate::segment::{Part, total};
use crate::sequence::Sequence;
use crate::storage::{RowReader, StorageError};
use crate::weights::Binder;
use std::sync::{Mutex, PoisonError};
use strata_ops::backend::{Backend, OpError, SequenceRows};
use strata_ops::conv::state_rows;

/// The hash that turns a token and the ones before it into table rows.
#[derive(Clone, Debug)]
pub struct NgramHash {
    config: NgramConfig,
}

impl NgramHash {
    pub fn new(config: NgramConfig) -> NgramHash {
        NgramHash { config }
    }

    /// Tokens before the current one that the hash looks at.
    pub fn context(&self) -> usize {
        self.config.ngram_size - 1
    }

    /// Rows of the last token of `ids`, one a head, into `rows`. Earlier ids are its context; missing ones, and those
    /// before the nearest `eos` of the context, read as `eos`.
    pub fn rows(&self, ids: &[u32], rows: &mut [u64]) {
        let c = &self.config;
        let last = ids.len() - 1;
        let mut mixed = u64::from(ids[last]).wrapping_mul(c.multipliers[0]);
        let mut cut = false;
        for s in 1..c.ngram_size {
            let t = if cut || s > last { c.eos } else { ids[last - s] };
            cut |= t == c.eos;
            mixed ^= u64::from(t).wrapping_mul(c.multipliers[s]);
            let heads = (s - 1) * c.heads_per_ngram..s * c.heads_per_ngram;
            for h in heads {
                rows[h] = c.head_offsets[h] + mixed % c.head_sizes[h];
            }
        }
    }
}

/// The table: bound, or read row by row.
enum Rows<B: Backend> {
    Bound(B::Table),
    Read(Mutex<Box<dyn RowReader>>),
}

/// Weights of the module.
pub struct Ngram<B: Backend> {
    pub(crate) key: B::Matrix,
    pub(crate) value: B::Matrix,
    norm_key: B::Buf,
    norm_query: B::Buf,
    norm_conv: B::Buf,
    conv: B::Buf,
    table: Rows<B>,
    pub(crate) hash: NgramHash,
}

/// One sequence's state of the module.
pub struct NgramState<B: Backend> {
    conv: B::Buf,
    /// Rows of the convolution's input that are not committed.
    pending: Option<B::Buf>,
}

impl<B: Backend> NgramState<B> {
    pub fn new(b: &B, c: &Config, p: &NgramConfig, window: usize) -> Result<Self, OpError> {
        Ok(NgramState {
            conv: b.buf(Self::conv_len(c, p), "n-gram convolution state")?,
            pending: if window > 0 { Some(b.buf(window * c.wide(), "n-gram rows")?) } else { None },
        })
    }

    /// Commits the first `n` pending rows.
    pub fn commit(&mut self, b: &B, c: &Config, n: usize) {
        if let Some(p) = &self.pending {
            b.conv_advance(&mut self.conv, p, c.wide(), 0..n);
        }
    }

    /// Values of the convolution's state.
    pub(crate) fn conv_len(c: &Config, p: &NgramConfig) -> usize {
        state_rows(p.conv_taps, p.ngram_size) * c.wide()
    }

    pub(crate) fn conv(&self) -> &B::Buf {
        &self.conv
    }

    pub(crate) fn conv_mut(&mut self) -> &mut B::Buf {
        &mut self.conv
    }

    /// Back to the start of a sequence.
    pub fn clear(&mut self, b: &B, c: &Config, p: &NgramConfig) {
        b.write(&mut self.conv, 0, &vec![0.0; Self::conv_len(c, p)]);
    }
}

/// Working memory of the module.
pub struct NgramScratch<B: Backend> {
    /// Table rows of every token of the call.
    pub rows: Vec<u64>,
    /// Values of rows that were read.
    read: Vec<f32>,
    embedding: B::Buf,
    acts: B::Acts,
    key: B::Buf,
    key_normed: B::Buf,
    query: B::Buf,
    value: B::Buf,
    gated: B::Buf,
    normed: B::Buf,
    conv: B::Buf,
}

impl<B: Backend> NgramScratch<B> {
    /// Bytes of host memory beside the buffers of the backend.
    pub fn host_bytes(&self) -> u64 {
        (8 * self.rows.capacity() + 4 * self.read.capacity()) as u64
    }

    pub fn new(b: &B, c: &Config, p: &NgramConfig, weights: &Ngram<B>, rows: usize) -> Result<Self, OpError> {
        Ok(NgramScratch {
            rows: vec![0; rows * p.heads()],
            read: match weights.table {
                Rows::Bound(_) => Vec::new(),
                Rows::Read(_) => vec![0.0; rows * p.embedding()],
            },
            embedding: b.buf(rows * p.embedding(), "n-gram embeddings")?,
            acts: b.acts(2 * rows, p.embedding(), &[&weights.key, &weights.value], "n-gram embeddings")?,
            key: b.buf(2 * rows * c.wide(), "n-gram keys")?,
            key_normed: b.buf(rows * c.wide(), "n-gram keys")?,
            query: b.buf(rows * c.wide(), "n-gram queries")?,
            value: b.buf(2 * rows * c.hidden, "n-gram values")?,
            gated: b.buf(rows * c.wide(), "n-gram values")?,
            normed: b.buf(rows * c.wide(), "n-gram values")?,
            conv: b.buf(rows * c.wide(), "n-gram convolution")?,
        })
    }
}

impl<B: Backend> Ngram<B> {
    pub fn bind(w: &Binder<'_, B>, c: &Config, p: &NgramConfig) -> Result<Self, BindError> {
        let name = |part: &str| format!("blk.{}.ple_{part}.weight", p.layer);
        let rows = p.head_offsets.iter().zip(&p.head_sizes).map(|(o, s)| o + s).max().unwrap_or(0);
        Ok(Ngram {
            key: w.matrix(&name("key"), c.wide(), p.embedding())?,
            value: w.matrix(&name("value"), c.hidden, p.embedding())?,
            norm_key: w.vector(&name("norm_key"), c.wide())?,
            norm_query: w.vector(&name("norm_query"), c.wide())?,
            norm_conv: w.vector(&name("norm_conv"), c.wide())?,
            conv: w.taps(&name("conv1d"), p.conv_taps, c.wide())?,
            table: match w.rows("per_layer_token_embd.weight", p.row_width, rows, p.heads())? {
                Ok(reader) => Rows::Read(Mutex::new(reader)),
                Err(table) => Rows::Bound(table),
            },
            hash: NgramHash::new(p.clone()),
        })
    }

    /// Says which table rows [`Ngram::forward`] will need, so that they are on their way while other layers run.
    pub fn request(&self, rows: &[u64]) {
        if let Rows::Read(reader) = &self.table {
            reader.lock().unwrap_or_else(PoisonError::into_inner).request(rows);
        }
    }

    /// Adds the module's output to the rows of `parts` in the residual `s.r`, whose table rows are in `s.ngram`.
    ///
    /// # Errors
    /// A table row that cannot be read or is not finite.
    pub(crate) fn forward(
        &self,
        b: &B,
        c: &Config,
        p: &NgramConfig,
        s: &mut Scratch<B>,
        seqs: &mut [Sequence<B>],
        parts: &[Part],
    ) -> Result<(), StorageError> {
        let Some(g) = &mut s.ngram else { return Ok(()) };
        let n = total(parts);
        let rows = &g.rows[..n * p.heads()];
        match &self.table {
            Rows::Bound(table) => b.gather(table, rows, &mut g.embedding),
            Rows::Read(reader) => {
                let values = &mut g.read[..n * p.embedding()];
                reader.lock().unwrap_or_else(PoisonError::into_inner).collect(rows, values)?;
                b.write(&mut g.embedding, 0, values);
            }
        }
        // two orders: this one value reaches every stream of every later layer (NUMERICS.md section 2)
        b.prepare_two_orders(&g.embedding, n, &mut g.acts);
        b.matmul(&g.acts, 2 * n, &mut [(&self.key, &mut g.key), (&self.value, &mut g.value)]);
        b.fold(&mut g.key, n * c.wide());
        b.fold(&mut g.value, n * c.hidden);
        b.rms_norm(&g.key, n * c.streams, c.hidden, &self.norm_key, c.eps, &mut g.key_normed);
        b.rms_norm(&s.r, n * c.streams, c.hidden, &self.norm_query, c.eps, &mut g.query);
        b.ple_gate(&g.key_normed, &g.query, &g.value, n, c.streams, c.hidden, &mut g.gated);
        b.rms_norm(&g.gated, n * c.streams, c.hidden, &self.norm_conv, c.eps, &mut g.normed);
        let convs = seqs.iter_mut().enumerate().filter_map(|(seq, s)| {
            let part = parts.iter().find(|part| part.seq == seq)?;
            let state = &mut s.ngram.as_mut()?.conv;
            Some(SequenceRows { rows: part.rows.clone(), first: part.first, commit: part.commit, state })
        });
        b.conv_silu(&g.normed, convs, c.wide(), &self.conv, p.ngram_size, &mut g.conv);
        for part in parts {
            let Some(NgramState { conv, pending }) = &mut seqs[part.seq].ngram else { continue };
            match pending {
                _ if part.commit => b.conv_advance(conv, &g.normed, c.wide(), part.rows.clone()),
                Some(kept) => b.copy(&g.normed, part.rows.start * c.wide(), kept, 0, part.rows.len() * c.wide()),
                None => {}
            }
        }
        b.ple_add(&mut s.r, &g.gated, &g.conv, n * c.wide());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The released model's constants and the rows that the specification lists.
    #[test]
    fn rows_equal_the_published_test_vectors() {
        let sizes: Vec<u64> =
            [3u64, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171].iter().map(|d| 20_000_000 + d).collect();
        let offsets = sizes.iter().scan(0, |at, s| {
            let o = *at;
            *at += s;
            Some(o)
        });
        let hash = NgramHash::new(NgramConfig {
            layer: 1,
            ngram_size: 3,
            heads_per_ngram: 8,
            conv_taps: 4,
            eos: 248_044,
            row_width: 160,
            multipliers: vec![23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071],
            head_offsets: offsets.collect(),
            head_sizes: sizes,
        });
        let ids = [9707, 11, 1879, 248_044, 0, 1];
        let want: [[u64; 16]; 6] = [
            [
                16410909, 39682429, 55103279, 60931720, 87006904, 116506179, 131512017, 152932897, 169641436, 182022480, 209277433,
                237891023, 256841529, 277007269, 290665954, 300984276,
            ],
            [
                18158303, 36390029, 45652312, 70783524, 98191154, 114024957, 127804916, 159566246, 175132467, 192583600, 217919476,
                237199054, 259336807, 261799367, 289359313, 307699687,
            ],
            [
                6380558, 26411572, 56460672, 78566983, 94693008, 106742196, 124822692, 148942556, 164226950, 190352573, 210933682,
                238908951, 242182004, 265475238, 299910982, 312121804,
            ],
            [
                18827606, 27700912, 56521518, 65780303, 81132822, 100518937, 120474864, 142052741, 163793416, 184135950, 219854666,
                227756662, 248975183, 271245822, 285569892, 318943450,
            ],
            [
                768795, 32189829, 51641306, 71063218, 85886852, 104959504, 134316676, 154856127, 173280301, 194832882, 202840854,
                222492280, 256138797, 271010889, 296240796, 304432235,
            ],
            [
                9602235, 25898701, 54046987, 77454603, 83232550, 118491972, 131380991, 141899668, 175139483, 191951283, 206716028,
                225401276, 257582505, 270123125, 287716669, 316283146,
            ],
        ];
        for (p, want) in want.iter().enumerate() {
            let mut rows = [0; 16];
            hash.rows(&ids[..=p], &mut rows);
            assert_eq!(&rows, want, "position {p}");
            // a context that is cut short by the window alone must be enough
            hash.rows(&ids[p.saturating_sub(hash.context())..=p], &mut rows);
            assert!(p > 2 || &rows == want);
        }
    }
}
