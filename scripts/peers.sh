#!/usr/bin/env bash
# Compares hearth with llama-server, Ollama and Kronk on one real model, SmolLM2: `make peers`, three quarters of an hour on an
# otherwise idle machine. Prints a table, and writes peers.json and peers.svg into bench/out.
#
#   scripts/peers.sh [RUNS]
#   scripts/peers.sh drafts [RUNS]    what drafts bring, beside llama-server's own (bench/drafts.mjs): `make drafts`
#
# llama-server is the one that the tests use. Ollama is built from its Go module, where `go` is there and the module can be
# fetched, with that llama-server beneath it. KRONK_BIN=... names a binary of Kronk's. What is missing is said, and left out.
set -euo pipefail
cd "$(dirname "$0")/.."

ollama_version=v0.34.0
ollama_folder=$PWD/build/peers/ollama

say() { echo "make peers: $*" >&2; }

# Ollama looks for its helpers in ../lib/ollama. It quantizes what it is given; a GGUF file is only copied.
build_ollama() {
    command -v go >/dev/null || { say "no Ollama: there is no Go to build it with"; return; }
    if [ ! -x "$ollama_folder/bin/ollama" ]; then
        say "building Ollama $ollama_version"
        mkdir -p "$ollama_folder/bin"
        (cd "$ollama_folder" && GOBIN=$ollama_folder/bin go install "github.com/ollama/ollama@$ollama_version") ||
            { say "no Ollama: its Go module cannot be fetched or built"; return; }
    fi
    mkdir -p "$ollama_folder/lib/ollama"
    ln -sf "$LLAMA_SERVER" "$ollama_folder/lib/ollama/llama-server"
    printf '#!/bin/sh\nwhile [ $# -gt 3 ]; do shift; done\nexec cp "$1" "$2"\n' >"$ollama_folder/lib/ollama/llama-quantize"
    chmod +x "$ollama_folder/lib/ollama/llama-quantize"
    export OLLAMA=$ollama_folder/bin/ollama
}

scripts/packages.sh test
LLAMA_SERVER=$(scripts/llama.sh --server)
export LLAMA_SERVER HEARTH=$PWD/build/bin/hearth
if [ "${1:-}" = drafts ]; then
    model=$(scripts/real.sh fetch smollm2)
    exec node bench/drafts.mjs "$model" "${2:-3}"
fi
build_ollama
[ -n "${KRONK_BIN:-}" ] || say "no Kronk: KRONK_BIN names no binary"
model=$(scripts/real.sh fetch smollm2)
mkdir -p bench/out
node=$(echo "$PWD"/tests/e2e/node_modules/node-linux-*/bin/node)
[ -x "$node" ] || node=node
"$node" bench/peers.mjs "$model" bench/out "${1:-3}"
