// Prompt attention over int8 caches, exact: the kernels of prompt_int8.cuh for 8, 12 and 16 heads a KV head.
#include "attention/prompt_int8.cuh"

#if STRATA_MATRIX
#if STRATA_HIP && STRATA_SMALL_FILE
#define PROMPT_WAVES 4
#else
#define PROMPT_WAVES 5
#endif
#define PROMPT_INT8(G, groups) \
    KERNEL_HELD(128, groups, PROMPT_WAVES) prompt_int8_g##G(PROMPT_PARAMETERS(i8, i8)) { prompt_int8<G, DigitForm<G>>(PROMPT_ARGUMENTS(i8, i8)); }
PROMPT_INT8(8, PROMPT_GROUPS)
PROMPT_INT8(12, PROMPT_GROUPS_12)
PROMPT_INT8(16, 2)
#endif
