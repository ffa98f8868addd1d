#!/usr/bin/env bash
# Memory tiers: a model larger than the memory it may use gives the tokens that it gives with memory to spare.
#
#   benches/tiers.sh [MODEL]      makes a synthetic model of 12 GB in $DIR (default: .) without MODEL
#
# LIMIT (6GiB) is the limit of a control group made for the run: needs root and control groups with memory, version 1 or 2.
# Prints one line a run (hash, speed, bytes) and keeps each run's JSON in $OUT (default: a new temporary folder).
set -euo pipefail
cd "$(dirname "$0")/.."
strata=${STRATA:-target/release/strata}
limit=${LIMIT:-6GiB}
out=${OUT:-$(mktemp -d)}
tokens=${TOKENS:-24}
ids=$(seq -s, 11 7 450)
model=${1:-}
if [ -z "$model" ]; then
    model=${DIR:-.}/tiers-12g.gguf
    [ -e "$model" ] || "$strata" synth --type Q4_K --down Q4_K --ff 768 --layers 12 --experts 256 --used 8 --vocab 32000 --ngram-rows 15000000 "$model"
fi

bytes=$(numfmt --from=iec-i "${limit%B}")
if [ -e /sys/fs/cgroup/cgroup.controllers ] && grep -qw memory /sys/fs/cgroup/cgroup.controllers; then
    root=/sys/fs/cgroup file=memory.max
    echo +memory >"$root/cgroup.subtree_control" 2>/dev/null || true
elif [ -d /sys/fs/cgroup/memory ]; then
    root=/sys/fs/cgroup/memory file=memory.limit_in_bytes
else
    echo "no control groups with memory here" >&2
    exit 2
fi
group=$root/strata-tiers-$$
mkdir "$group"
trap 'rmdir "$group"' EXIT
echo "$bytes" >"$group/$file"

# pages that another group has paid for would not count: the file starts cold in every run
cold() { dd of="$model" oflag=nocache conv=notrunc,fdatasync count=0 status=none; }

# name, "limited" or "free", arguments
one() {
    local name=$1 where=$2
    shift 2
    cold
    (
        [ "$where" = free ] || echo "$BASHPID" >"$group/cgroup.procs"
        exec "$strata" run --model "$model" --ids "$ids" -n "$tokens" --ignore-eos --spec 0 --ctx 1024 --chunk 64 --json "$@"
    ) >"$out/$name.json"
    python3 - "$name" "$out/$name.json" <<'PY'
import json, sys
d = json.load(open(sys.argv[2])); m = d["memory"]; g = 1 << 30
p, x, e, n = m["plan"], m["measured"], m["experts"] or {}, m["ngram"] or {}
share = lambda v: "-" if v is None else f"{100 * v:.0f} %"
print(f"{sys.argv[1]:<22} {d['token_hash']} prefill {d['prefill_tok_s']:.1f} decode {d['decode_tok_s']:.2f} tok/s | "
      f"resident {share(e.get('resident_share'))} guessed {share(e.get('guessed_share'))} cached {share(e.get('in_page_cache_share'))} | "
      f"rows {n.get('rows')} cached {share(n.get('cached_share'))} read {n.get('read_bytes', 0) >> 10} KiB | "
      f"read {x['read_bytes'] / g:.2f} GiB, {x['major_faults']} major faults | anonymous + locked {x['total_bytes'] / g:.3f} GiB, "
      f"planned {p['total_bytes'] / g:.3f} ({x['total_to_plan']:.3f}), file pages {x['file_bytes'] / g:.2f}", flush=True)
PY
}

echo "$(basename "$model"): $(stat -c %s "$model") bytes, limit $bytes; results in $out"
one free free
one limited limited
one limited-no-guess limited --lookahead off
one limited-all-streamed limited --resident-budget 0
one limited-no-lock limited --mlock off
one limited-ngram-mmap limited --ngram mmap
hashes=$(python3 -c 'import json,sys,glob; print(len({json.load(open(f))["token_hash"] for f in glob.glob(sys.argv[1] + "/*.json")}))' "$out")
[ "$hashes" = 1 ] && echo "one token hash" || { echo "DIFFERENT TOKENS"; exit 1; }
