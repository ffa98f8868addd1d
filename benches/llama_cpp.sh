#!/usr/bin/env bash
# Strata and llama.cpp in turn, one process each, on the same files: prompts of 512 tokens and 64 generated ones.
#
#   [ROUNDS=9] [THREADS=2] [FILES="..."] benches/llama_cpp.sh
#
# FILES        of refmodel q4_k iq3_s iq2_xs q8_0 (the default is all): the reference model's trunk, and synthetic models of
#              1.2 B parameters whose experts have these types; q4_k is also measured with 4,096 tokens in the context
# LLAMA_BENCH  a llama-bench that knows qwen4exp. Without it one is built, outside the project, from the source package of
#              llama-cpp-python 0.3.36; nothing in the project depends on it
# STRATA       a built binary to use instead of building one
# PYTHON       a Python with numpy and gguf, for the synthetic files. Without it one is set up beside the build
# CACHE        where all of that is kept (default: ~/.cache/strata-bench)
# RESULTS      where the samples go (default: benches/results/llama_cpp.csv)
set -euo pipefail
cd "$(dirname "$0")/.."
ROUNDS=${ROUNDS:-9} THREADS=${THREADS:-2} FILES=${FILES:-refmodel q4_k iq3_s iq2_xs q8_0}
CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/strata-bench} RESULTS=${RESULTS:-benches/results/llama_cpp.csv}
version=0.3.36
mkdir -p "$CACHE" "$(dirname "$RESULTS")"

venv=$CACHE/venv
set_up() { # packages: into a Python environment beside the build
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet "$@"
}
if [ -z "${PYTHON:-}" ]; then
    set_up numpy gguf
    PYTHON=$venv/bin/python
fi

if [ -z "${LLAMA_BENCH:-}" ]; then
    LLAMA_BENCH=$CACHE/llama-build/bin/llama-bench
    if [ ! -x "$LLAMA_BENCH" ]; then
        set_up cmake ninja scikit-build-core
        PATH=$venv/bin:$PATH
        # pip asks the package for its metadata, which wants its build tools but builds nothing
        [ -f "$CACHE/llama_cpp_python-$version.tar.gz" ] ||
            "$venv/bin/python" -m pip download --quiet --no-deps --no-build-isolation --no-binary :all: --dest "$CACHE" "llama-cpp-python==$version"
        tar -xzf "$CACHE/llama_cpp_python-$version.tar.gz" -C "$CACHE"
        cmake -G Ninja -S "$CACHE/llama_cpp_python-$version/vendor/llama.cpp" -B "$CACHE/llama-build" -DCMAKE_BUILD_TYPE=Release \
            -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_APP=OFF \
            -DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT=vendored
        cmake --build "$CACHE/llama-build" --target llama-bench
    fi
fi

if [ -z "${STRATA:-}" ]; then
    cargo build --release --locked --quiet
    STRATA=$(cargo metadata --format-version 1 --no-deps | grep -oE '"target_directory":"[^"]*"' | cut -d'"' -f4)/release/strata
fi

synthetic() { # file, type of gate and up matrices, type of down matrices
    [ -f "$1" ] && return
    "$PYTHON" benches/synth_gguf.py --layers 8 --experts 64 --used 4 --hidden 1024 --ff 640 --heads 8 --kh 8 --vh 16 --vocab 32000 \
        --lowrank 128 --ngram-rows 200000 --exp "$2" --down "$3" "$1.part"
    mv "$1.part" "$1"
}
tests=()
for name in $FILES; do
    file=$CACHE/$name.gguf depths=0
    case $name in
    refmodel)
        [ -f "$file" ] || cargo run --release --locked --quiet -p strata-gguf --example split_mtp -- models/refmodel-q8_0.gguf "$file"
        ;;
    q4_k) synthetic "$file" Q4_K Q8_0; depths=0,4096 ;;
    iq3_s) synthetic "$file" IQ3_S IQ4_NL ;;
    iq2_xs) synthetic "$file" IQ2_XS IQ4_NL ;;
    q8_0) synthetic "$file" Q8_0 Q8_0 ;;
    *) echo "unknown file $name" >&2 && exit 2 ;;
    esac
    tests+=("$file:$depths")
done
exec "$PYTHON" benches/compare.py --strata "$STRATA" --llama "$LLAMA_BENCH" --rounds "$ROUNDS" --threads "$THREADS" --out "$RESULTS" "${tests[@]}"
