#!/usr/bin/env bash
# Checks that the programs and the library were built as CMakeLists.txt means them to be: at an address that nobody knows,
# with nothing both writable and executable, with function pointers of libraries read-only, with guarded stacks and
# fortified copies, and with marked targets of indirect jumps where the processor looks for them.
#
#   scripts/check-hardening.sh [FILE]...      without a file: what `make` has built in build/
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- build/bin/hearth build/bin/hearth-mkmodel build/lib/libhearth.so
bad=0
complain() {
    printf '%s\n' "$*"
    bad=1
}

has() { grep -qE -- "$1" <<<"$2"; }

# The compiler marks functions; the linker marks the file only where the C library's own start files are marked, too.
check_branches() { # file, its symbols
    local name
    [ "$(uname -m)" = x86_64 ] || return 0
    name=$(awk '$4 == "FUNC" && $7 != "UND" && $8 ~ /^(main|hearth_open)(@|$)/ { sub(/@.*/, "", $8); print $8; exit }' <<<"$2")
    [ -n "$name" ] || { complain "$1: no function to look at"; return; }
    has '[[:space:]]endbr64' "$(objdump -d --no-show-raw-insn --disassemble="$name" "$1" | grep -m 1 -E '^ ')" ||
        complain "$1: $name() does not begin with endbr64 (-fcf-protection)"
}

for file in "$@"; do
    [ -f "$file" ] || { complain "$file is missing: build it first"; continue; }
    header=$(readelf -hW "$file")
    segments=$(readelf -lW "$file")
    dynamic=$(readelf -dW "$file")
    symbols=$(readelf -sW "$file")
    has 'Type:[[:space:]]+DYN' "$header" || complain "$file: not position independent (-fPIE, -pie)"
    has '\bGNU_RELRO\b' "$segments" || complain "$file: no segment that becomes read-only (-z relro)"
    has '\(FLAGS(_1)?\).*\bNOW\b|\(BIND_NOW\)' "$dynamic" || complain "$file: functions are bound late (-z now)"
    has '\(TEXTREL\)' "$dynamic" && complain "$file: its code is relocated"
    has '\(R(UN)?PATH\)' "$dynamic" && complain "$file: it names folders to look for libraries in"
    has '[[:space:]]RWE[[:space:]]' "$segments" && complain "$file: a segment is writable and executable"
    has '\bGNU_STACK\b' "$segments" || complain "$file: its stack may be executable (-z noexecstack)"
    has '\b__stack_chk_fail\b' "$symbols" || complain "$file: no guarded stacks (-fstack-protector-strong)"
    has '\b__[a-z]+_chk\b' "$symbols" || complain "$file: no fortified functions (-D_FORTIFY_SOURCE)"
    check_branches "$file" "$symbols"
done
exit $bad
