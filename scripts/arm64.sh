#!/usr/bin/env bash
# Builds hearth for ARM (aarch64 Linux) on another machine, with Debian's cross compiler and the libraries of Debian's arm64,
# and runs tests under qemu-user. By hand. qemu is slow, and hides weak ordering of memory and pages of other sizes.
#
#   scripts/arm64.sh                 build/arm64: hearth and unit tests, which are run
#   scripts/arm64.sh exactness       the exactness tests of tokens as well
#
# HEARTH_DEBIAN=http://...   a mirror of Debian, in place of deb.debian.org
set -euo pipefail
cd "$(dirname "$0")/.."

deps=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}
root=$deps/debian-arm64
say() { printf 'arm64: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

for program in debootstrap aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v "$program" >/dev/null || PATH=$PATH:/usr/sbin command -v "$program" >/dev/null ||
        die "$program is missing: apt-get install debootstrap gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user"
done

# The packages are fetched and unpacked; nothing of them is run, so that the root is no system.
make_root() {
    [ -e "$root/.complete" ] && return
    local libraries archive
    libraries=$(sed -n "/^libraries='/,/'/p" scripts/packages.sh | tr -d "'" | sed 's/libraries=//; s/#.*//; s/build-essential\|ca-certificates\|node-llhttp//g' | xargs | tr ' ' ,)
    say "fetching Debian's arm64 libraries into $root"
    rm -rf "$root"
    PATH=$PATH:/usr/sbin debootstrap --foreign --arch=arm64 --variant=minbase --include="libstdc++-12-dev,$libraries" bookworm "$root" \
        "${HEARTH_DEBIAN:-http://deb.debian.org/debian}" >"$deps/debian-arm64.log" 2>&1 || { tail -n 5 "$deps/debian-arm64.log" >&2; die "debootstrap failed"; }
    for archive in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$archive" "$root"; done
    # Absolute links would lead out of the root.
    find "$root/usr/lib" -lname '/*' | while read -r link; do ln -sfn "$root$(readlink "$link")" "$link"; done
    touch "$root/.complete"
}

make_toolchain() {
    cat >"$root/toolchain.cmake" <<CMAKE
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT $root)
set(CMAKE_FIND_ROOT_PATH $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L $root)
CMAKE
}

mkdir -p "$deps"
make_root
make_toolchain
export CMAKE_TOOLCHAIN_FILE=$root/toolchain.cmake
export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig
export LLAMA_FLAGS="-DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16 ${LLAMA_FLAGS:-}"
case ${1:-} in
    exactness) tests=(exactness_test_tokens) ;;
    '') tests=() ;;
    *) die "$1: exactness, or nothing" ;;
esac
scripts/build.sh arm64 hearth hearth-mkmodel
# Left out: tests of system calls that qemu-user has not (openat2, Landlock), those that take hours in it (templates, whole
# configurations), and those of the trainer of the demo model.
mapfile -t unit < <(ctest --test-dir build/arm64 -N -R '^unit_' | sed -nE 's/^ *Test +#[0-9]+: //p' |
    grep -vE '_under_unit$|^unit_demo-model|^unit_chat_|_configurations$|_output_constraint$|^unit_media_test_(child|media_fetch)$|^unit_base_test_os$')
scripts/build.sh arm64 "${unit[@]}" "${tests[@]}"
# Tests start these by themselves, as the kernel would.
for program in hearth hearth-mkmodel; do
    if head -c 4 "build/arm64/bin/$program" | grep -q ELF; then
        mv "build/arm64/bin/$program" "build/arm64/bin/$program.aarch64"
    fi
    printf '#!/bin/sh\nexec qemu-aarch64 -L %s %s "$@"\n' "$root" "$PWD/build/arm64/bin/$program.aarch64" >"build/arm64/bin/$program"
    chmod +x "build/arm64/bin/$program"
done
build/arm64/bin/hearth version
ctest --test-dir build/arm64 -j"$(nproc)" -R "^($(IFS='|'; echo "${unit[*]}${tests:+|${tests[*]}}"))\$" --output-on-failure
