#!/usr/bin/env python3
"""The codebooks of IQ3_S and IQ2_XS as the public `gguf` package has them, as Rust arrays of packed words.

    pip install gguf numpy
    python iq_codebooks.py

Prints what `crates/strata-quant/src/codebooks.rs` holds. A word is one entry: value i of it is at bit 4i (IQ3_S, four
values a word) or at bit 2i (IQ2_XS, eight values a word), by its rank among the values the format has.
"""

import numpy as np
from gguf.quants import IQ2_XS, IQ2_XXS, IQ3_S

for name, cls, bits in [("IQ3_S", IQ3_S, 4), ("IQ2_XS", IQ2_XS, 2)]:
    cls.init_grid()
    grid = np.searchsorted(cls.grid_map, cls.grid.reshape(cls.grid_shape))
    words = (grid << bits * np.arange(cls.grid_shape[1])).sum(axis=1)
    print(f"const {name}: [u16; {len(words)}] = [")
    for row in words.reshape(-1, 16):
        print("    " + " ".join(f"0x{w:04x}," for w in row))
    print("];")

# the sign table is computed in Rust: bit 7 makes the number of signs even
signs = np.frombuffer(IQ2_XXS.ksigns, dtype=np.uint8)
assert all(s == i | (i.bit_count() & 1) << 7 for i, s in enumerate(signs.tolist())) and len(signs) == 128
