//! Kernels of the family `selection`.

use super::{Kernel, Needs, kernel};

const TOPK: &str = "selection/topk.cu";
const TOPK_CLUSTER: &str = "selection/topk_cluster.cu";

pub(super) static KERNELS: &[Kernel] = &[
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
