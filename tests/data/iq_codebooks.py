#!/usr/bin/env python3
"""The codebooks of the IQ1, IQ2 and IQ3 formats as the public `gguf` package has them, as Rust arrays of packed words.

    pip install gguf numpy
    python iq_codebooks.py

Prints what `crates/strata-quant/src/formats/codebooks.rs` holds, before rustfmt. A word is one entry: value i of it is at bit
4i (IQ3, four values a word) or at bit 2i (IQ1 and IQ2, eight values a word), by its rank among the values the format has.
"""

import numpy as np
from gguf.quants import IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS

for cls in [IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_S]:
    name = cls.__name__.replace("IQ1_S", "IQ1")
    cls.init_grid()
    grid = np.searchsorted(cls.grid_map, cls.grid.reshape(cls.grid_shape))
    words = (grid << 16 // cls.grid_shape[1] * np.arange(cls.grid_shape[1])).sum(axis=1)
    print(f"\nconst {name}: [u16; {len(words)}] = [")
    for row in words.reshape(-1, 16):
        print("    " + " ".join(f"0x{w:04x}," for w in row))
    print("];")

# the sign table is computed in Rust: bit 7 makes the number of signs even
signs = np.frombuffer(IQ2_XXS.ksigns, dtype=np.uint8)
assert all(s == i | (i.bit_count() & 1) << 7 for i, s in enumerate(signs.tolist())) and len(signs) == 128
