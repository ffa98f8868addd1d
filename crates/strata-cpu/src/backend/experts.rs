//! The routed experts of a call: rows grouped by expert, two products, no allocation.

use super::{Cpu, zeroed};
use crate::matmul::{ExpertGroup, ExpertStack, Matrix, matmul_experts, prepare};
use strata_ops::backend::{Backend, ExpertStacks, OpError, Routes};
use strata_ops::matmul::{Acts, Forms};
use strata_quant::DType;

/// Working memory of the experts of up to a number of rows.
pub struct ExpertScratch {
    /// How many places each expert has, then where its next place goes.
    next: Vec<u32>,
    groups: Vec<ExpertGroup>,
    /// Of every place: the row of the activations, and `row * ranks + rank`.
    rows: Vec<u32>,
    places: Vec<u32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    hidden: Vec<f32>,
    acts: Acts,
    /// `[rows, ranks, hidden]`.
    pub(super) out: Vec<f32>,
    used: usize,
}

impl ExpertScratch {
    pub(super) fn new(stacks: &ExpertStacks<Matrix>, rows: usize, ranks: usize) -> Result<ExpertScratch, OpError> {
        let n = rows * ranks;
        Ok(ExpertScratch {
            next: vec![0; stacks.experts],
            groups: Vec::with_capacity(stacks.experts.min(n)),
            rows: vec![0; n],
            places: vec![0; n],
            gate: zeroed(n * stacks.width, "expert gates")?,
            up: zeroed(n * stacks.width, "expert values")?,
            hidden: zeroed(n * stacks.width, "expert hidden layers")?,
            acts: Acts::new(n, stacks.width, Forms::of([stacks.down.dtype()])),
            out: zeroed(n * stacks.hidden, "expert outputs")?,
            used: 0,
        })
    }

    /// Bytes of [`ExpertScratch::new`] for stacks whose down matrices are of format `down`.
    pub fn bytes<M>(stacks: &ExpertStacks<M>, down: DType, rows: usize, ranks: usize) -> u128 {
        let n = rows * ranks;
        let lists = 4 * stacks.experts + size_of::<ExpertGroup>() * stacks.experts.min(n) + 8 * n;
        let floats = n as u128 * (3 * stacks.width + stacks.hidden) as u128 * 4;
        lists as u128 + floats + Acts::bytes(n, stacks.width, Forms::of([down]))
    }

    /// Sorts the places by expert (a counting sort: order within an expert is that of the rows).
    fn group(&mut self, routes: &Routes, n: usize) {
        let used = n * routes.ranks;
        self.used = used;
        self.next.fill(0);
        for id in &routes.ids[..used] {
            self.next[*id as usize] += 1;
        }
        self.groups.clear();
        let mut start = 0;
        for (expert, count) in self.next.iter_mut().enumerate() {
            let end = start + *count;
            if *count > 0 {
                self.groups.push(ExpertGroup { expert: expert as u32, start, end });
            }
            *count = start;
            start = end;
        }
        for (place, id) in routes.ids[..used].iter().enumerate() {
            let at = &mut self.next[*id as usize];
            self.rows[*at as usize] = (place / routes.ranks) as u32;
            self.places[*at as usize] = place as u32;
            *at += 1;
        }
    }

    /// Gate and up products and the hidden layer of every place.
    pub(super) fn hidden(&mut self, cpu: &Cpu, stacks: &ExpertStacks<Matrix>, acts: &Acts, routes: &Routes, n: usize) {
        self.group(routes, n);
        let mut two = [
            ExpertStack { w: &stacks.gate, rows: stacks.width, out: &mut self.gate },
            ExpertStack { w: &stacks.up, rows: stacks.width, out: &mut self.up },
        ];
        matmul_experts(&cpu.pool, &mut two, &self.groups, &self.rows, &self.places, acts);
        let len = self.used * stacks.width;
        cpu.silu_mul(&self.gate, &self.up, len, &mut self.hidden);
        prepare(&cpu.pool, cpu.simd, &self.hidden[..len], self.used, &mut self.acts);
    }

    /// Down products: place by place into `out`.
    pub(super) fn down(&mut self, cpu: &Cpu, stacks: &ExpertStacks<Matrix>) {
        let mut one = [ExpertStack { w: &stacks.down, rows: stacks.hidden, out: &mut self.out }];
        matmul_experts(&cpu.pool, &mut one, &self.groups, &self.places, &self.places, &self.acts);
    }
}
