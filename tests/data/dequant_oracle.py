#!/usr/bin/env python3
"""SHA-256 of dequantised and quantised blocks as the public `gguf` package computes them.

    pip install gguf numpy
    python dequant_oracle.py > dequant_sha256.json

Blocks come from a splitmix64 stream, by the rules of `strata_quant::testing`, so that the Rust tests make the same
bytes. Q2_0, which the package does not know, is decoded here. Hashes are of little-endian float32 values (decode) and of block bytes (encode).
"""

import hashlib
import json

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

BLOCKS = 20_000
# name -> offsets of the half-precision scales in a block
SCALES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_0": [0], "MXFP4": [0], "NVFP4": [],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
    "IQ3_S": [0], "IQ3_XXS": [0], "IQ2_S": [0], "IQ2_XS": [0], "IQ2_XXS": [0], "IQ1_M": [48], "IQ1_S": [0],
}
# not in the package: type id, values and bytes of a block
OTHERS = {"Q2_0": (42, 64, 18)}
# name -> exponent bits, mantissa bits
FLOATS = {"F32": (8, 23), "F16": (5, 10), "BF16": (8, 7)}
ENCODERS = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


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


def layout(name: str) -> tuple[int, int, int]:
    """Type id, values and bytes of a block."""
    if name in OTHERS:
        return OTHERS[name]
    dtype = GGMLQuantizationType[name]
    return dtype.value, *GGML_QUANT_SIZES[dtype]


def decoded(name: str, blocks: np.ndarray) -> np.ndarray:
    if name == "Q2_0":
        # a half, then four codes a byte, lowest bits first: (code - 1) * d
        d = blocks[:, :2].copy().view("<f2").astype(np.float32)
        codes = blocks[:, 2:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8) & 3
        return d * (codes.reshape(len(blocks), 64).astype(np.float32) - 1)
    return dequantize(blocks, GGMLQuantizationType[name])


def put_scales(name: str, blocks: np.ndarray, halves: np.ndarray) -> None:
    for at, half in zip(SCALES[name], halves.T, strict=True):
        if name == "MXFP4":  # the power of two at or below the magnitude
            blocks[:, at] = (half >> 10 & 31) + 127 - 15
        elif name == "IQ1_M":  # four bits in the upper half of each second byte
            for quarter in range(4):
                high = blocks[:, at + 2 * quarter + 1]
                high[:] = high & 15 | ((half >> 4 * quarter & 15) << 4).astype(np.uint8)
        else:
            blocks[:, at] = half & 0xFF
            blocks[:, at + 1] = half >> 8


def random_blocks(name: str, n: int, seed: int) -> np.ndarray:
    if name in FLOATS:
        return random_floats(name, n, seed)
    _, _, size = layout(name)
    n_words = -(-size // 8)
    words = splitmix64(seed, n * (n_words + len(SCALES[name]))).reshape(n, -1)
    blocks = np.ascontiguousarray(words[:, :n_words]).astype("<u8").view(np.uint8)[:, :size].copy()
    put_scales(name, blocks, small_floats(words[:, n_words:], 5, 10).astype("<u2"))
    return blocks


def sha256(a: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()


decode, extremes, encode = {}, {}, {}
for name in [*FLOATS, *SCALES]:
    seed = layout(name)[0] + 1000
    values = decoded(name, random_blocks(name, BLOCKS, seed))
    assert values.dtype == np.float32 and np.isfinite(values).all()
    decode[name] = {"seed": seed, "blocks": BLOCKS, "sha256": sha256(values)}
for name in SCALES:
    # all bits clear, all set, every other; scales with exponent 8, other bits from the stream, word after word
    seed, n = layout(name)[0] + 3000, 64
    values = []
    for i, fill in enumerate([0x00, 0xFF, 0x55, 0xAA]):
        blocks = np.full((n, layout(name)[2]), fill, dtype=np.uint8)
        halves = splitmix64(seed + 100 * i, n * len(SCALES[name])) & np.uint64(0x83FF) | np.uint64(0x2000)
        put_scales(name, blocks, halves.astype("<u2").reshape(n, -1))
        values.append(decoded(name, blocks))
    extremes[name] = {"seed": seed, "blocks": n, "sha256": sha256(np.concatenate(values))}
for name in ENCODERS:
    dtype = GGMLQuantizationType[name]
    seed, n_values = dtype.value + 2000, 32 * BLOCKS
    values = random_floats("F32", n_values, seed).view("<f4").reshape(BLOCKS, 32)
    encode[name] = {"seed": seed, "values": n_values, "sha256": sha256(quantize(values, dtype))}
print(json.dumps({"decode": decode, "extremes": extremes, "encode": encode}, indent=1))
