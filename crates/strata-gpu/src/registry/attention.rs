//! Kernels of the family `attention`.

use super::{Kernel, Needs, kernel};

const DIGITS: &str = "attention/decode_digits.cu";
const FLOAT: &str = "attention/decode_float.cu";
const MERGE: &str = "attention/merge.cu";
const APPEND: &str = "attention/append.cu";
/// Arguments of every chunk kernel.
const CHUNK: &str = "pppppppppppiii";

pub(super) static KERNELS: &[Kernel] = &[
    kernel("attn_chunk_fp16", FLOAT, CHUNK, 256),
    kernel("attn_chunk_fp16_plain", FLOAT, CHUNK, 256),
    kernel("attn_chunk_q4_0", FLOAT, CHUNK, 256),
    kernel("attn_chunk_q4_0_plain", FLOAT, CHUNK, 256),
    kernel("attn_chunk_int8_f32", FLOAT, CHUNK, 256).inexact(),
    kernel("attn_chunk_int8_tiles8", DIGITS, CHUNK, 256).needs(Needs::Cuda(75)),
    kernel("attn_chunk_int8_tiles4", DIGITS, CHUNK, 128).needs(Needs::Matrix(75)),
    kernel("attn_chunk_int8_dot", DIGITS, CHUNK, 256),
    kernel("attn_chunk_k8v4_tiles8", DIGITS, CHUNK, 256).needs(Needs::Cuda(75)),
    kernel("attn_chunk_k8v4_dot", DIGITS, CHUNK, 256),
    kernel("attn_chunk_k8v4_plain", DIGITS, CHUNK, 256),
    kernel("attn_merge", MERGE, "pppppi", 256),
    kernel("attn_merge_rotated", MERGE, "pppppi", 256),
    kernel("kv_append_fp16", APPEND, "ppppppppi", 32),
    kernel("kv_append_int8", APPEND, "ppppppppi", 32),
    kernel("kv_append_q4_0", APPEND, "ppppppppi", 32),
    kernel("kv_append_k8v4", APPEND, "ppppppppi", 32),
    kernel("index_key_append", "attention/index_key.cu", "ppppppppfi", 32),
];
