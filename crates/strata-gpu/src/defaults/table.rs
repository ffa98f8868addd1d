//! The defaults of architectures, the only place where there are any.

/// A default.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The family it is for: whole names, as compilers know them.
    pub archs: &'static [&'static str],
    /// A switch of [`Tables`](super::Tables).
    pub switch: &'static str,
    pub value: &'static str,
    /// Every kernel that calls may get because of it; all must be exact.
    pub kernels: &'static [&'static str],
}

/// 164 KiB of shared memory and more, 64 Ki registers a multiprocessor.
const DATA_CENTER: &[&str] = &["sm_80", "sm_90a", "sm_100"];
/// RDNA4, and the RDNA3.5 of 192 vector registers a lane at 1,024 threads.
const RDNA4: &[&str] = &["gfx1151", "gfx1200", "gfx1201"];
/// RDNA3 with as many.
const RDNA3_LARGE: &[&str] = &["gfx1100", "gfx1101"];
/// RDNA2, and RDNA3 with two thirds of them.
const RDNA_SMALL: &[&str] =
    &["gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036", "gfx1102", "gfx1103", "gfx1150", "gfx1152", "gfx1153"];

/// The table.
pub static TABLE: &[Entry] = &[
    // queries of up to four rows stay in registers
    Entry {
        archs: DATA_CENTER,
        switch: "score.rows",
        value: "15",
        kernels: &["qsa_scores_rows1", "qsa_scores_rows2", "qsa_scores_rows3", "qsa_scores_rows4"],
    },
    // measured on an H200: up to 63 queries leave a multiprocessor too few workgroups of whole queries, and chunks are faster
    Entry {
        archs: &["sm_90a"],
        switch: "attention.prompt_min",
        value: "64",
        kernels: &["attn_chunk_fp16", "attn_chunk_int8_tiles8", "attn_chunk_q4_0", "attn_chunk_k8v4_tiles8"],
    },
    // measured there too: the clusters' exchanges cost two microseconds, which 8,192 blocks do not take one workgroup
    Entry { archs: &["sm_90a"], switch: "topk.cluster_solo", value: "8192", kernels: &["qsa_topk_cluster9", "qsa_topk_cluster17"] },
    // 1,024 threads of short rows wait for each other longer than 256 read the scores anew
    Entry { archs: RDNA4, switch: "topk.reg_min", value: "4096", kernels: &["qsa_topk_ref"] },
    Entry { archs: RDNA3_LARGE, switch: "topk.reg_min", value: "7168", kernels: &["qsa_topk_ref"] },
    Entry { archs: RDNA_SMALL, switch: "topk.reg_min", value: "7168", kernels: &["qsa_topk_ref"] },
    // 66 keys a thread fit the registers
    Entry { archs: RDNA4, switch: "topk.reg_max", value: "66", kernels: &["qsa_topk_reg66"] },
    Entry { archs: RDNA3_LARGE, switch: "topk.reg_max", value: "66", kernels: &["qsa_topk_reg66"] },
];

/// The architecture without the features that AMD's drivers add (`gfx90a:sramecc+:xnack-`). `None` where what follows is no
/// feature.
pub(super) fn base_name(arch: &str) -> Option<&str> {
    let (name, features) = arch.split_once(':').map_or((arch, None), |(name, rest)| (name, Some(rest)));
    let feature = |f: &str| {
        let word = f.strip_suffix(['+', '-']).unwrap_or_default();
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    features.is_none_or(|f| name.starts_with("gfx") && f.split(':').all(feature)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_dropped_and_nothing_else() {
        assert_eq!(base_name("gfx1201"), Some("gfx1201"));
        assert_eq!(base_name("gfx90a:sramecc-:xnack-"), Some("gfx90a"));
        for wrong in ["gfx1201:", "gfx1201:xnack", "gfx1201:+", "gfx1201:xnack-:", "sm_90a:xnack-", "gfx1201:é-"] {
            assert_eq!(base_name(wrong), None, "{wrong}");
        }
    }
}
