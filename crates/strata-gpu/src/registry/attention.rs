//! Kernels of the family `attention`.

use super::{Kernel, Needs, kernel};

const DIGITS: &str = "attention/decode_digits.cu";
const FLOAT: &str = "attention/decode_float.cu";
const MERGE: &str = "attention/merge.cu";
const APPEND: &str = "attention/append.cu";
const PROMPT_INT8: &str = "attention/prompt_int8.cu";
const PROMPT_FLOAT: &str = "attention/prompt_float.cu";
const PROMPT_K8V4: &str = "attention/prompt_k8v4.cu";
/// Arguments of every prompt kernel.
const PROMPT: &str = "pppppppppiii";
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
    kernel("prompt_half_g12", "attention/prompt_half.cu", PROMPT, 128).needs(Needs::Cuda(75)).inexact(),
    kernel("prompt_int8_g8", PROMPT_INT8, PROMPT, 128).needs(Needs::Matrix(75)),
    kernel("prompt_int8_g12", PROMPT_INT8, PROMPT, 128).needs(Needs::Matrix(75)),
    kernel("prompt_int8_g16", PROMPT_INT8, PROMPT, 128).needs(Needs::Matrix(75)),
    kernel("prompt_k8v4_g8", PROMPT_K8V4, PROMPT, 128).needs(Needs::Matrix(75)),
    kernel("prompt_k8v4_g12", PROMPT_K8V4, PROMPT, 128).needs(Needs::Matrix(75)),
    kernel("prompt_k8v4_g16", PROMPT_K8V4, PROMPT, 128).needs(Needs::Matrix(75)),
    kernel("prompt_f16_g8", PROMPT_FLOAT, PROMPT, 128),
    kernel("prompt_f16_g12", PROMPT_FLOAT, PROMPT, 128),
    kernel("prompt_f16_g16", PROMPT_FLOAT, PROMPT, 128),
    kernel("prompt_q4_g8", PROMPT_FLOAT, PROMPT, 128),
    kernel("prompt_q4_g12", PROMPT_FLOAT, PROMPT, 128),
    kernel("prompt_q4_g16", PROMPT_FLOAT, PROMPT, 128),
];
