#!/usr/bin/env bash
# What each format costs the reference model: bits a value, perplexity, and KL divergence and top-1 against the Q8_0 file the others
# are made from.
#
#   benches/quality.sh [FORMAT ...]
#
# Prints a Markdown table. The text is tests/data/heldout_prose.txt, which nothing was tuned on. Variables: STRATA (the program),
# CTX and WINDOWS (how much of the text), OUT (a folder for the models and logits, removed at the end if it is not given), EXTRA (more
# flags of `strata quantize`, for example --imatrix FILE).
set -euo pipefail
cd "$(dirname "$0")/.."
strata=${STRATA:-target/release/strata}
source=models/refmodel-q8_0.gguf
text=tests/data/heldout_prose.txt
flags=(--ctx "${CTX:-1024}" --windows "${WINDOWS:-8}" --text "$text" --json)
formats=("$@")
if [ ${#formats[@]} -eq 0 ]; then
  formats=(Q8_0 Q6_K Q5_K Q5_1 Q5_0 Q4_K Q4_1 Q4_0 IQ4_NL IQ4_XS MXFP4 NVFP4 Q3_K IQ3_S IQ3_XXS Q2_K IQ2_S IQ2_XS IQ2_XXS Q2_0)
fi
if [ -n "${OUT:-}" ]; then
  mkdir -p "$OUT"
else
  OUT=$(mktemp -d)
  trap 'rm -r "$OUT"' EXIT
fi
field() { python3 -c 'import json, sys; print(eval(sys.argv[1], {"v": json.load(sys.stdin)}))' "$1"; }

"$strata" kld --model "$source" --save-logits "$OUT/base.logits" "${flags[@]}" > "$OUT/base.txt"
echo "| format | bits a value, all | of the expert stacks | perplexity | mean KL | p99 KL | top-1 equal |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
for format in "${formats[@]}"; do
  model=$OUT/$format.gguf
  # shellcheck disable=SC2086
  "$strata" quantize "$source" "$model" --type "$format" ${EXTRA:-} > "$OUT/$format.txt"
  bits=$("$strata" inspect "$model" --json | field '"%.2f | %.2f" % tuple(
    8 * sum(t["bytes"] for t in s) / sum(__import__("math").prod(t["dims"]) for t in s)
    for s in (v["tensors"], [t for t in v["tensors"] if "_exps." in t["name"]]))')
  "$strata" kld --model "$model" --base-logits "$OUT/base.logits" "${flags[@]}" > "$OUT/$format.json"
  figures=$(field '"%.1f | %.4f | %.3f | %.1f %%" % (v["perplexity"], v["kl"]["mean"], v["kl"]["p99"], 100 * v["same_top"]["share"])' < "$OUT/$format.json")
  echo "| $format | $bits | $figures |"
done
