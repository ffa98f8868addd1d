"""Reference inverse frequencies for the RoPE types default, linear and yarn.

  python rope_twin.py            write rope_twin.json beside this file
  python rope_twin.py --check    compare the file with a fresh computation

The formulas are those of Hugging Face transformers (`modeling_rope_utils.py`: `_compute_linear_scaling_rope_parameters`,
`_compute_yarn_parameters`), which work in float32 except for the correction range and the attention factor (Python floats).
Needs only numpy.
"""
import json
import math
import os
import sys

import numpy as np

F = np.float32


def powers(theta, dim, native=False):
    """theta ** (2i / dim) as float32: computed in float64 and rounded once, or by numpy's float32 power"""
    e = np.arange(0, dim, 2, dtype=F) / F(dim)
    if native:
        return np.power(F(theta), e)
    return np.power(np.float64(F(theta)), e.astype(np.float64)).astype(F)


def yarn_attention_factor(factor):
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn_range(dim, theta, original, beta_fast, beta_slow, truncate):
    """first and last pair index of the blend, in float64"""
    def at(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = at(beta_fast), at(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    return low, high + 0.001 if low == high else high


def inverse_frequencies(p, native=False):
    """(inv_freq float32 [dim / 2], attention_factor)"""
    freq = powers(p["theta"], p["dim"], native)
    one = F(1)
    if p["type"] == "default":
        return one / freq, 1.0
    if p["type"] == "linear":
        return one / freq / F(p["factor"]), 1.0
    assert p["type"] == "yarn"
    low, high = yarn_range(p["dim"], p["theta"], p["original_max_position_embeddings"], p["beta_fast"], p["beta_slow"], p["truncate"])
    ramp = np.clip((np.arange(p["dim"] // 2, dtype=F) - F(low)) / F(high - low), F(0), one)
    keep = one - ramp
    inv = (one / (F(p["factor"]) * freq)) * (one - keep) + (one / freq) * keep
    a = p["attention_factor"]
    return inv, yarn_attention_factor(p["factor"]) if a is None else a


def yarn(factor, original, theta=1e7, beta_fast=32, beta_slow=1, attention_factor=None, truncate=True, dim=64):
    return {"type": "yarn", "dim": dim, "theta": theta, "factor": factor, "original_max_position_embeddings": original, "beta_fast": beta_fast,
            "beta_slow": beta_slow, "attention_factor": attention_factor, "truncate": truncate}


CASES = [
    ("default", {"type": "default", "dim": 64, "theta": 1e7}),
    ("default_theta_1e4", {"type": "default", "dim": 64, "theta": 1e4}),
    ("linear_2", {"type": "linear", "dim": 64, "theta": 1e7, "factor": 2.0}),
    ("linear_4", {"type": "linear", "dim": 64, "theta": 1e7, "factor": 4.0}),
    ("linear_3_theta_1e4", {"type": "linear", "dim": 64, "theta": 1e4, "factor": 3.0}),
    ("yarn_4_orig_32768", yarn(4.0, 32768)),
    ("yarn_8_orig_262144", yarn(8.0, 262144)),
    ("yarn_2.5_orig_262144_custom", yarn(2.5, 262144, beta_fast=24, beta_slow=2, attention_factor=1.25)),
    ("yarn_4_orig_32768_no_truncate", yarn(4.0, 32768, truncate=False)),
    ("yarn_16_orig_4096_theta_1e4", yarn(16.0, 4096, theta=1e4)),
    ("yarn_1_orig_32768", yarn(1.0, 32768)),
    ("yarn_4_orig_64_low_clamped", yarn(4.0, 64)),
]


def build():
    cases = []
    for name, p in CASES:
        inv, att = inverse_frequencies(p)
        assert inv.dtype == F and inv.shape == (p["dim"] // 2,)
        c = {"name": name, "params": p, "attention_factor": att}
        if p["type"] == "yarn":
            low, high = yarn_range(p["dim"], p["theta"], p["original_max_position_embeddings"], p["beta_fast"], p["beta_slow"], p["truncate"])
            c["blend_low"], c["blend_high"] = low, high
        c["inv_freq"] = inv.view(np.uint32).tolist()
        cases.append(c)
    return {"note": "inv_freq: float32 bit patterns as unsigned integers. theta ** (2i / dim) is computed in float64 and rounded once to float32; every later step "
                    "(reciprocal, factor, blend) is a float32 operation, rounded by itself (no fused multiply-add). attention_factor and the blend range are float64. "
                    "For these cases numpy's float32 power and PyTorch 1.13's (CPU) give the same bits; a math library with a less exact power may not.",
            "cases": cases}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rope_twin.json")
    d = build()
    if "--check" in sys.argv:
        assert json.load(open(path, encoding="utf-8")) == d, "rope_twin.json is out of date"
        print("equal")
        return
    head = json.dumps(d["note"])
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"note": ' + head + ',\n"cases": [\n' + ",\n".join(json.dumps(c) for c in d["cases"]) + "\n]}\n")


if __name__ == "__main__":
    main()
