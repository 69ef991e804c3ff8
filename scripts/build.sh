#!/usr/bin/env bash
# Builds one preset of CMakePresets.json, with all that has to be there first.
#
#   scripts/build.sh PRESET [TARGET]...      release builds in build/, the others in build/PRESET/; portable runs on any
#                                            processor of this architecture
#
# HEARTH_WERROR=ON   warnings are errors, from now on in that folder
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
folder=build
[ "$preset" = release ] || folder=build/$preset

export HEARTH_PORTABLE=OFF
[ "$preset" != portable ] || HEARTH_PORTABLE=ON
scripts/packages.sh
prefix=$(scripts/llama.sh)
page=$(scripts/page.sh)

has() { grep -qsx "$1" "$folder/CMakeCache.txt"; }

options=("-DHEARTH_LLAMA_PREFIX=$prefix" "-DHEARTH_PAGE_VENDOR=$page")
if [ ! -e "$folder/build.ninja" ] || ! has "HEARTH_LLAMA_PREFIX:PATH=$prefix" || ! has "HEARTH_PAGE_VENDOR:PATH=$page"; then
    configure=yes
fi
if [ "${HEARTH_WERROR:-OFF}" = ON ]; then
    options+=(-DHEARTH_WERROR=ON)
    has HEARTH_WERROR:BOOL=ON || configure=yes
fi
if [ -n "${configure:-}" ]; then
    mkdir -p "$folder"
    cmake --preset "$preset" "${options[@]}" >"$folder/configure.log" 2>&1 || {
        cat "$folder/configure.log" >&2
        exit 1
    }
fi
exec ninja -C "$folder" "$@"
