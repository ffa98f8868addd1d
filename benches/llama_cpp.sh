#!/usr/bin/env bash
# Strata and llama.cpp in turn, one process each, on the reference model's trunk: 512 prompt tokens, 128 generated.
#
#   LLAMA_BENCH=/path/to/llama-bench [ROUNDS=9] [THREADS=2] benches/llama_cpp.sh
#
# llama-bench comes from any llama.cpp that knows qwen4exp (docs/BENCHMARKS.md); nothing in the project depends on it.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${LLAMA_BENCH:?set it to a llama-bench that knows qwen4exp}"
ROUNDS=${ROUNDS:-9}
THREADS=${THREADS:-2}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --release --locked --quiet
cargo run --release --locked --quiet -p strata-gguf --example split_mtp -- models/refmodel-q8_0.gguf "$work/trunk.gguf"
strata=$(cargo metadata --format-version 1 --no-deps | grep -oE '"target_directory":"[^"]*"' | cut -d'"' -f4)/release/strata
ids=$(seq -s, 1 7 3584)

for _ in $(seq "$ROUNDS"); do
    "$strata" run --model "$work/trunk.gguf" --ids "$ids" -n 129 --ignore-eos --threads "$THREADS" --json |
        tr ',{' '\n\n' | awk -F': *' '/"prefill_tok_s"/{p=$2} /"decode_tok_s"/{d=$2} END{print "strata", p, d}'
    "$LLAMA_BENCH" -m "$work/trunk.gguf" -p 512 -n 128 -t "$THREADS" -r 1 -o json 2>/dev/null |
        awk -F'[:,] *' '/"n_prompt"/{prompt=$2} /"avg_ts"/{if (prompt > 0) p=$2; else d=$2} END{print "llama.cpp", p, d}'
done | tee "$work/raw" >&2

median() { awk -v e="$1" -v c="$2" '$1==e{print $c}' "$work/raw" | sort -g | awk '{v[NR]=$1} END{m=(NR%2)?v[(NR+1)/2]:(v[NR/2]+v[NR/2+1])/2; printf "%.0f %.0f %.0f", m, v[1], v[NR]}'; }
for what in "prefill 2" "decode 3"; do
    set -- $what
    read -r s smin smax <<<"$(median strata "$2")"
    read -r l lmin lmax <<<"$(median llama.cpp "$2")"
    echo "$1: strata $s tok/s ($smin to $smax), llama.cpp $l ($lmin to $lmax), ratio of medians $(awk "BEGIN{printf \"%.2f\", $s/$l}")"
done
