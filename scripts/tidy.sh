#!/usr/bin/env bash
# Runs clang-tidy (checks: .clang-tidy) over src/ and tools/, in parallel. A file that passed is not looked at
# again until it, a header it includes, its flags or the checks change: results are kept by content beside the built
# llama.cpp (scripts/llama.sh), so that another checkout has them, too, and for a month.
set -euo pipefail
cd "$(dirname "$0")/.."

export passed=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}/tidy tool flags=build/compile_commands.json
mkdir -p "$passed"
find "$passed" -type f -mtime +30 -delete
tool=$(clang-tidy --version; cat .clang-tidy)

# Headers that are not the project's stand for what the tool's version and the build's flags say.
check() {
    local file=$1 key
    key=$({
        echo "$tool"
        grep -F "$PWD/$file\"" -B 1 $flags | sed "s|$PWD||g"
        gcc -MM -MG -D_GNU_SOURCE -Isrc -Iinclude "$file" | tr -d '\\' | cut -d: -f2 | xargs -n 1 |
            while read -r header; do [ ! -e "$header" ] || cat "$header"; done
    } | sha256sum | cut -c1-32)
    if [ ! -e "$passed/$key" ]; then clang-tidy --quiet -p build "$file" 2>/dev/null || return 1; fi
    touch "$passed/$key"
}
export -f check

# A header is seen through the files that include it; a file that no target builds has no flags to check it with.
scripts/sources.sh src tools | grep -E '\.(c|cpp)$' |
    while read -r file; do grep -qF "$PWD/$file\"" $flags && echo "$file"; done |
    xargs -P "$(nproc)" -I{} bash -c 'check {}'
