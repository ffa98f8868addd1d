#!/usr/bin/env python3
"""SHA-256 of dequantised and quantised blocks as the public `gguf` package computes them.

    pip install gguf numpy
    python dequant_oracle.py > dequant_sha256.json

Blocks come from a splitmix64 stream, by the rules of `strata_quant::testing`, so that the Rust tests make the same
bytes. Hashes are of little-endian float32 values (decode) and of block bytes (encode).
"""

import hashlib
import json

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

BLOCKS = 20_000
# name -> offsets of the half-precision scales in a block
SCALES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
    "IQ3_S": [0], "IQ2_XS": [0],
}
# name -> exponent bits, mantissa bits
FLOATS = {"F32": (8, 23), "F16": (5, 10), "BF16": (8, 7)}
ENCODERS = ["F16", "BF16", "Q8_0", "Q4_0"]


def splitmix64(seed: int, n: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def small_floats(words: np.ndarray, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """Bits of floats of either sign with magnitudes in [2^-10, 2^-5)."""
    u = np.uint64
    exponent = u(2 ** (exponent_bits - 1) - 1 - 10) + (words >> u(32) & u(0x7FFFFFFF)) % u(5)
    sign = words >> u(63)
    return (sign << u(exponent_bits) | exponent) << u(mantissa_bits) | words & u(2**mantissa_bits - 1)


def random_floats(name: str, n: int, seed: int) -> np.ndarray:
    exponent_bits, mantissa_bits = FLOATS[name]
    bits = small_floats(splitmix64(seed, n), exponent_bits, mantissa_bits)
    return bits.astype("<u4" if name == "F32" else "<u2").view(np.uint8)


def random_blocks(name: str, n: int, seed: int) -> np.ndarray:
    if name in FLOATS:
        return random_floats(name, n, seed)
    _, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    n_words = -(-size // 8)
    words = splitmix64(seed, n * (n_words + len(SCALES[name]))).reshape(n, -1)
    blocks = np.ascontiguousarray(words[:, :n_words]).astype("<u8").view(np.uint8)[:, :size].copy()
    for i, at in enumerate(SCALES[name]):
        half = small_floats(words[:, n_words + i], 5, 10).astype("<u2")
        blocks[:, at : at + 2] = half.reshape(n, 1).view(np.uint8)
    return blocks


def sha256(a: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()


decode, encode = {}, {}
for name in [*FLOATS, *SCALES]:
    dtype = GGMLQuantizationType[name]
    blocks = random_blocks(name, BLOCKS, dtype.value + 1000)
    values = dequantize(blocks, dtype)
    assert values.dtype == np.float32 and np.isfinite(values).all()
    decode[name] = {"seed": dtype.value + 1000, "blocks": BLOCKS, "sha256": sha256(values)}
for name in ENCODERS:
    dtype = GGMLQuantizationType[name]
    seed, n_values = dtype.value + 2000, 32 * BLOCKS
    values = random_floats("F32", n_values, seed).view("<f4").reshape(BLOCKS, 32)
    encode[name] = {"seed": seed, "values": n_values, "sha256": sha256(quantize(values, dtype))}
print(json.dumps({"decode": decode, "encode": encode}, indent=1))
