#!/usr/bin/env bash
# Compiles and links hearth with llama.cpp's CUDA backend where there is neither a card nor NVIDIA's toolkit: a clean clone
# of HEAD, and a toolkit of NVIDIA's packages of PyPI (700 MB). By hand, three quarters of an hour on two cores. It ends with
# what `hearth version` says beside a driver that has no card.
#
#   scripts/cuda-link.sh              for one architecture (90)
#   scripts/cuda-link.sh 86-real      for another one, as CMAKE_CUDA_ARCHITECTURES names it
set -euo pipefail
cd "$(dirname "$0")/.."

architectures=${1:-90-real}
deps=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}
toolkit=$deps/cuda-13.0
packages=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.0.2.14)

say() { printf 'cuda-link: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Each package has its part of the folder nvidia/cu13. What links needs names without versions, and the driver's library:
# one that has its functions, and says to each call that there is no card.
make_toolkit() {
    [ -e "$toolkit/.complete" ] && return
    local work library
    work=$(mktemp -d "$deps/cuda.XXXXXX")
    say "fetching ${packages[*]}"
    python3 -m venv "$work/venv" && "$work/venv/bin/python" -m pip install --quiet --no-deps "${packages[@]}" ||
        die "cannot fetch them: python3 with venv, and PyPI are needed"
    rm -rf "$toolkit"
    mv "$work"/venv/lib/python*/site-packages/nvidia/cu13 "$toolkit"
    rm -rf "$work"
    chmod +x "$toolkit"/bin/* "$toolkit"/nvvm/bin/*
    for library in "$toolkit"/lib/*.so.*; do ln -s "$(basename "$library")" "${library%%.so.*}.so"; done
    ln -s lib "$toolkit/lib64"
    mkdir -p "$toolkit/lib/stubs"
    sed -nE 's/^CUresult CUDAAPI (cu[A-Za-z0-9_]+)\(.*/int \1(void) { return 100; }/p' "$toolkit/include/cuda.h" | sort -u |
        cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$toolkit/lib/stubs/libcuda.so" -x c -
    ln -s libcuda.so "$toolkit/lib/stubs/libcuda.so.1"
    touch "$toolkit/.complete"
}

[ "$(uname -m)" = x86_64 ] || die "the packages are those of x86-64"
mkdir -p "$deps"
make_toolkit
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet . "$work/hearth"
export PATH="$toolkit/bin:$PATH" CUDAToolkit_ROOT=$toolkit
nvcc --version | tail -n 2
SECONDS=0
# A folder of its own, since other builds would wait for this one.
HEARTH_DEPS=$deps/cuda-link LLAMA_FLAGS="-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=$architectures" make -C "$work/hearth"
say "built and linked in $((SECONDS / 60)) minutes"
readelf -d "$work/hearth/build/bin/hearth" | grep -E 'NEEDED.*(cu[dab]|nv)'
LD_LIBRARY_PATH=$toolkit/lib:$toolkit/lib/stubs "$work/hearth/build/bin/hearth" version
