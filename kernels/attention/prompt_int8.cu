// Prompt attention over int8 caches, exact: the kernels of prompt_int8.cuh for 8, 12 and 16 heads a KV head.
#include "attention/prompt_int8.cuh"

#if STRATA_MATRIX
#define PROMPT_INT8(G, groups) \
    KERNEL_HELD(128, groups, 5) prompt_int8_g##G(PROMPT_PARAMETERS(i8, i8)) { prompt_int8<G, DigitForm<G>>(PROMPT_ARGUMENTS(i8, i8)); }
PROMPT_INT8(8, PROMPT_GROUPS)
PROMPT_INT8(12, PROMPT_GROUPS)
PROMPT_INT8(16, 2)
#endif
