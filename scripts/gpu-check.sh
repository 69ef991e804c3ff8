#!/usr/bin/env bash
# Tests hearth on a GPU: `make gpu-check`. The portable build loads the backend. tests/gpu serves models there, and the
# exactness tests compare what is cached with what is computed on the device, for every kind of memory.
#
#   scripts/gpu-check.sh            the cards of this machine; where it has none, Mesa's lavapipe: a Vulkan device that the
#                                   processor plays, with memory of its own. Debian's packages of it are installed. It has
#                                   tests/gpu alone, and two kinds of models: in others it ends the process (Mesa 22.3)
#   scripts/gpu-check.sh FILE       a backend to put beside the libraries first, such as a libggml-cuda.so
#
# Behind the tests come rates, of a model of 8 billion weights (BENCH_SHAPE= names another one): bytes a second of saving and
# restoring cells, what kept conversations cost, the gap beside a prompt, decoding and reading prompts, the first token after
# a restart. BENCH_LLAMA_SERVER= names a llama-server for the same card, to be measured beside it.
#
# Without an own build/portable/lib/hearth/libggml-*.so for the card, node-llama-cpp's of Vulkan is fetched.
set -euo pipefail
cd "$(dirname "$0")/.."

# The shape of Llama 3 8B, with random weights.
eight_billion='--arch llama --vocab gpt-2 --layers 32 --embd 4096 --heads 32 --kv-heads 8 --head-dim 128 --ff 14336 --type q8_0'
say() { printf 'gpu-check: %s\n' "$*" >&2; }

scripts/packages.sh test
libraries=build/portable/lib/hearth
scripts/build.sh portable hearth hearth-mkmodel >/dev/null
[ -z "${1:-}" ] || install -m 644 "$1" "$libraries"
has_card() { build/portable/bin/hearth version | grep -qE '^backend (vulkan|cuda|hip|sycl|musa|cann): loaded, [1-9]'; }

if ! has_card; then
    [ -e "$libraries/libggml-vulkan.so" ] || scripts/backend.sh vulkan >/dev/null
    if ! has_card; then
        say "no card that llama.cpp can use: on lavapipe"
        export LAVAPIPE=1
        export GGML_VK_VISIBLE_DEVICES=0 GGML_VK_DISABLE_F16=1 # llama.cpp leaves out devices of the processor, and it has no 16-bit numbers
        if ! has_card; then
            scripts/packages.sh gpu
        fi
        has_card || { build/portable/bin/hearth version; say "there is no device"; exit 1; }
    fi
fi
build/portable/bin/hearth version

LLAMA_SERVER=$(scripts/llama.sh --server)
export LLAMA_SERVER
node=$(echo "$PWD"/tests/e2e/node_modules/node-linux-*/bin/node)
[ -x "$node" ] || node=node
HEARTH_BUILD=$PWD/build/portable "$node" --test --test-concurrency=1 tests/gpu/gpu.test.js
if [ -z "${LAVAPIPE:-}" ]; then
    mapfile -t programs < <(ctest --test-dir build/portable -N -R '^exactness_' | sed -nE 's/^ *Test +#[0-9]+: //p')
    scripts/build.sh portable "${programs[@]}" >/dev/null
    TESTS_QUARTER=${TESTS_QUARTER:-0} ctest --test-dir build/portable -R '^exactness_' --output-on-failure --timeout 3600
    export BENCH_SHAPE=${BENCH_SHAPE:-$eight_billion}
fi
# On lavapipe rates say nothing of a card, and are left out unless a small shape is named.
# The llama-server of this machine computes on the CPU.
export BENCH_LLAMA_SERVER=${BENCH_LLAMA_SERVER:-/dev/null}
[ -z "${BENCH_SHAPE:-}" ] || BENCH_PAIRS=${BENCH_PAIRS:-1} HEARTH_BUILD=build/portable bench/run.sh full restore idle gap decode prefill restart
