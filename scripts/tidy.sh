#!/usr/bin/env bash
# Runs clang-tidy (checks: .clang-tidy) over src/ and tools/, in parallel. A file that passed is not looked at
# again until it, a header it includes or the checks change: results are kept in build/tidy by content.
set -euo pipefail
cd "$(dirname "$0")/.."

export passed=build/tidy
mkdir -p "$passed"
export tool
tool=$(clang-tidy --version; cat .clang-tidy)

check() {
    local file=$1 headers key
    headers=$(gcc -MM -D_GNU_SOURCE -Isrc -Iinclude "$file" 2>/dev/null | tr -d '\\' | cut -d: -f2) || headers=$file
    # shellcheck disable=SC2086 # a list of words
    key=$(cat <(echo "$tool") $headers | sha256sum | cut -c1-32)
    [ ! -e "$passed/$key" ] || return 0
    clang-tidy --quiet -p build "$file" 2>/dev/null || return 1
    touch "$passed/$key"
}
export -f check

# A header is seen through the files that include it; a file that no target builds has no flags to check it with.
scripts/sources.sh src tools | grep -E '\.(c|cpp)$' |
    while read -r file; do grep -qF "$PWD/$file\"" build/compile_commands.json && echo "$file"; done |
    xargs -P "$(nproc)" -I{} bash -c 'check {}'
