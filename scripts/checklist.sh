#!/usr/bin/env bash
# Checks tests/checklist.tsv: every row of the list of behaviours has a place where it is shown, and the place exists.
#
# Columns, separated by tabs: id, where, remark. A row may stand on several lines. `where` is one of
#   test:FILE:NAME      a test, by its function or its title; it must assert something
#   doc:FILE#HEADING    a section of a document
#   issue:NUMBER        work that is still to come
set -euo pipefail
cd "$(dirname "$0")/.."

table=tests/checklist.tsv
rows='A 123 B 78 C 90 E 34 X 55'

bad=0
complain() {
    printf '%s\n' "$*"
    bad=1
}

[ -f "$table" ] || { echo "$table is missing"; exit 1; }

expected=$(set -- $rows; while [ $# -gt 0 ]; do seq -f "$1%g" 1 "$2"; shift 2; done)
listed=$(grep -v '^#' "$table" | cut -f1 | grep -vx id | sort -u)
for id in $(comm -23 <(sort <<<"$expected") <(echo "$listed")); do complain "$id: no line"; done
for id in $(comm -13 <(sort <<<"$expected") <(echo "$listed")); do complain "$id: not a row of the list"; done

# What tests of a file may be made of, beside what stands in it.
helpers_of() { # file
    case $1 in
        *.js) ls tests/e2e/lib/*.js ;;
        *) ls "$(dirname "$1")"/*.h tests/fakes/*.[ch] 2>/dev/null ;;
    esac
}

check_tests() { # file, names a line each
    [ -f "$1" ] || { complain "no file $1"; return; }
    local faults
    # shellcheck disable=SC2046 # a list of files
    faults=$(awk -v names="$2" -f scripts/asserts.awk "$1" $(helpers_of "$1"))
    [ -z "$faults" ] || complain "$faults"
}

check_heading() { # id, file#heading
    local file=${2%%#*} heading=${2#*#}
    if [ ! -f "$file" ]; then
        complain "$1: no file $file"
    elif ! sed -nE 's/^#+ +(.*)$/\1/p' "$file" | grep -qxF -- "$heading"; then
        complain "$1: no heading '$heading' in $file"
    fi
}

declare -A tests
while IFS=$'\t' read -r id where _; do
    case $where in
        test:*:*)
            where=${where#test:}
            tests[${where%%:*}]+=${where#*:}$'\n'
            ;;
        doc:*'#'*) check_heading "$id" "${where#doc:}" ;;
        issue:[0-9]* | issue:media) ;;
        *) complain "$id: '$where' is none of test:FILE:NAME, doc:FILE#HEADING, issue:NUMBER" ;;
    esac
done < <(grep -v '^#' "$table" | grep -v $'^id\t')
for file in "${!tests[@]}"; do check_tests "$file" "$(sort -u <<<"${tests[$file]%$'\n'}")"; done
exit $bad
