//! Kernels of the family `selection`.

use super::{Kernel, Needs, kernel};

const SCORES: &str = "selection/scores.cu";
const SCORES_THREAD: &str = "selection/scores_thread.cu";
const SCORES_MATRIX: &str = "selection/scores_matrix.cu";
const TOPK: &str = "selection/topk.cu";
const TOPK_CLUSTER: &str = "selection/topk_cluster.cu";

const fn rows(name: &'static str) -> Kernel {
    kernel(name, SCORES, "pppppi", 256)
}

pub(super) static KERNELS: &[Kernel] = &[
    kernel("qsa_scores_warp", SCORES, "pppppi", 256),
    kernel("qsa_scores_tail", SCORES, "ppppii", 256),
    kernel("qsa_scores_multi", SCORES, "pppppii", 256),
    rows("qsa_scores_rows1"),
    rows("qsa_scores_rows2"),
    rows("qsa_scores_rows3"),
    rows("qsa_scores_rows4"),
    rows("qsa_scores_rows5"),
    rows("qsa_scores_rows6"),
    rows("qsa_scores_rows7"),
    rows("qsa_scores_rows8"),
    kernel("qsa_scores_slots", SCORES, "pppppi", 256),
    kernel("qsa_scores_thread", SCORES_THREAD, "ppppiii", 128),
    kernel("qsa_scores_bf16", SCORES_MATRIX, "ppppii", 128).needs(Needs::Matrix(80)).inexact(),
    kernel("qsa_scores_tf32", SCORES_MATRIX, "ppppii", 128).needs(Needs::Cuda(80)).inexact(),
    kernel("qsa_topk_ref", TOPK, "pppii", 256),
    kernel("qsa_topk_wide", TOPK, "pppii", 1024),
    kernel("qsa_topk_reg2", TOPK, "pppii", 1024),
    kernel("qsa_topk_reg9", TOPK, "pppii", 1024),
    kernel("qsa_topk_reg17", TOPK, "pppii", 1024),
    kernel("qsa_topk_reg33", TOPK, "pppii", 1024),
    kernel("qsa_topk_reg66", TOPK, "pppii", 1024).needs(Needs::Hip),
    kernel("qsa_topk_cluster9", TOPK_CLUSTER, "pppiii", 1024).needs(Needs::Cuda(90)),
    kernel("qsa_topk_cluster17", TOPK_CLUSTER, "pppiii", 1024).needs(Needs::Cuda(90)),
];
