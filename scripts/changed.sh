#!/usr/bin/env bash
# What a change calls for, as `make check` does it. What differs from a commit counts, committed or not.
#
#   scripts/changed.sh files [COMMIT]    the files, those that are gone left out (HEAD: what is not committed)
#   scripts/changed.sh tidy [COMMIT]     what clang-tidy is to look at
#   scripts/changed.sh tests [COMMIT]    targets of unit tests, after a line for people that begins with #
#
# What is tested follows from the compiler's dependency files in build/checked: `ninja -t deps`.
set -euo pipefail
cd "$(dirname "$0")/.."

files() {
    { git diff --name-only "${1:-HEAD}"; git ls-files --others --exclude-standard; } | sort -u |
        while read -r file; do [ ! -f "$file" ] || echo "$file"; done
}

# Each file, and what is compiled from it: a line "FILE OBJECT" each.
objects() {
    ninja -C build/checked -t deps 2>/dev/null | sed "s|$PWD/||" | awk '
        FNR == NR { changed[$0] = 1; next }
        /^[^ ]/ { object = $1; sub(/^CMakeFiles\//, "", object); sub(/:$/, "", object) }
        $1 in changed { print $1, object }' <(files "$1") -
}

# What was changed, and what includes a header that was; where that is much, as of base, three of these show its own faults.
tidy() {
    local file users
    files "$1" | grep -E '^(src|tools|include)/.*\.(c|cpp|h|hpp)$' | while read -r file; do
        if [[ $file != *.h* ]]; then echo "$file"; continue; fi
        users=$(grep -rlE --include='*.c' --include='*.cpp' "^#include [\"<]([^\">]*/)?${file##*/}[\">]" src tools) || continue
        if [ "$(wc -l <<<"$users")" -gt 12 ]; then head -n 3 <<<"$users"; else echo "$users"; fi
    done | sort -u
}

# A source or header touches the folder of src/ that it lies in, and those that include it. A header that more than three
# folders include touches its own alone. Of a test, and of what only tests include, the programs are run.
tests() {
    files "$1" | sed -nE 's#^tests/(unit/([^/]+)|exactness|crash)/(test_[^/]+)\.(c|cpp)$#\1_\3#; s#^unit/#unit_#p; s#^(exactness|crash)_#&#p'
    objects "$1" | awk '
        function folder_of(path) { split(path, part, "/"); return part[2] }
        { split($2, target, ".dir/") }
        $1 ~ /^(src|include)\// && match(target[1], /^hearth_/) {
            folder = substr(target[1], 8)
            if (!(($1, folder) in seen)) { seen[$1, folder] = 1; users[$1] = users[$1] " " folder; n[$1]++ }
        }
        $1 ~ /^tests\// && target[1] ~ /^(unit|exactness|crash)_/ { print target[1] }
        END {
            for (file in n) {
                if (n[file] > 3) { wide = wide " " file; users[file] = file ~ /^src/ ? folder_of(file) : "instance serve" }
                m = split(users[file], list, " ")
                for (i = 1; i <= m; i++) print list[i]
            }
            if (wide != "") print "#" wide ": included by more folders than are tested here; `make test` has them all"
        }' | sort -u
}

what=${1:-files} since=${2:-HEAD}
case $what in
    files | tidy) $what "$since" ;;
    tests)
        found=$(tests "$since")
        grep '^#' <<<"$found" || true
        all=$(ctest --test-dir build/checked -N -LE demo-model | sed -nE 's/^ *Test +#[0-9]+: //p')
        for name in $(grep -v '^#' <<<"$found"); do grep -E "^($name|unit_${name}_.*)$" <<<"$all" || true; done | sort -u
        ;;
    *) sed -n '2,9s/^# \?//p' "$0"; exit 2 ;;
esac
