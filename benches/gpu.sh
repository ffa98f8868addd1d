#!/usr/bin/env bash
# Builds, checks and times the GPU kernels on a machine with a card; everything the tables of docs/BENCHMARKS.md come from.
#
#   benches/gpu.sh [parity] [sanitize] [bench] [small]      default: parity sanitize bench
#
# STRATA   a built binary to use instead of building one
# BACKEND  cuda (default) or hip
# OUT      folder for the logs (default: target/gpu)
set -uo pipefail
cd "$(dirname "$0")/.."
backend=${BACKEND:-cuda} out=${OUT:-target/gpu}
mkdir -p "$out"
steps=${*:-parity sanitize bench}
if [ -z "${STRATA:-}" ]; then
    cargo build --release --locked -p strata || exit 1
    STRATA=${CARGO_TARGET_DIR:-target}/release/strata
fi
failed=0
run() { # name, command...: logged, its end shown
    local name=$1
    shift
    echo "== $name: $*"
    timeout "${LIMIT:-500}" "$@" >"$out/$name.log" 2>&1
    local code=$?
    tail -n "${LINES_SHOWN:-60}" "$out/$name.log"
    [ $code -eq 0 ] || { echo "== $name FAILED ($code)"; failed=1; }
}
case $backend in
cuda) nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,memory.total --format=csv,noheader ;;
esac
for step in $steps; do
    case $step in
    small) run parity-small "$STRATA" parity --backend "$backend" ;;
    parity) run parity-full "$STRATA" parity --backend "$backend" --full ;;
    sanitize)
        for tool in memcheck racecheck; do
            run "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$STRATA" parity --backend "$backend"
        done
        ;;
    bench) run bench "$STRATA" bench --backend "$backend" ;;
    *) echo "unknown step $step" >&2; exit 2 ;;
    esac
done
exit $failed
