#!/usr/bin/env bash
# Runs clang-tidy (checks: .clang-tidy) over src/ and tools/, in parallel. A file that passed is not looked at
# again until it, a header it includes, its flags or the checks change: results are kept by content beside the built
# llama.cpp (scripts/llama.sh), so that another checkout has them, too, and for a month.
#
#   scripts/tidy.sh [FILE]...      only these; flags are those of build/checked
#   scripts/tidy.sh --list         prints which files it would look at
set -euo pipefail
cd "$(dirname "$0")/.."

all() { scripts/sources.sh src tools | grep -E '\.(c|cpp)$'; }
if [ "${1:-}" = --list ]; then
    all
    exit
fi

export passed=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}/tidy folder=build/checked
mkdir -p "$passed"
find "$passed" -type f -mtime +30 -delete
if [ $# = 0 ]; then
    mapfile -t < <(all)
    set -- "${MAPFILE[@]}"
fi

# A line a file: its name, a tab, and all that decides what is found: its flags, and the contents of what it includes.
# Headers that are not the project's stand for what the tool's version and the build's flags say. Every #include counts,
# also one that is not compiled. A file that no target builds has no flags to check it with.
describe() {
    {
        scripts/sources.sh include src tools tests | xargs sha256sum
        echo '=='
        scripts/sources.sh include src tools tests | xargs grep -oE '^[[:space:]]*#[[:space:]]*include +["<][^">]+' || true
        echo '=='
        sed "s|$PWD/||g" $folder/compile_commands.json # its last line does not end
        printf '\n==\n'
        printf '%s\n' "$@"
    } | awk '
        function find_file(from, name,    i, path) {
            path = from; sub(/[^\/]*$/, "", path)
            for (i = 0; i < n_places; i++) if ((i ? places[i] : path) name in sum) return (i ? places[i] : path) name
            return ""
        }
        function collect(file,    list, n, i) { # its contents and those of what it includes, once each
            if (file in seen) return
            seen[file] = 1
            all = all " " sum[file]
            n = split(includes[file], list, "\n")
            for (i = 1; i < n; i++) if ((file, list[i]) in found) collect(found[file, list[i]])
                else if ((found[file, list[i]] = find_file(file, list[i])) != "") collect(found[file, list[i]])
        }
        BEGIN { n_places = split("src/ include/ tests/ tools/demo-model/", places, " ") + 1; sum[""] = "" }
        $0 == "==" { part++; next }
        part == 0 { sum[$2] = $1 }
        part == 1 { at = index($0, ":"); name = $0; sub(/.*["<]/, "", name)
                    includes[substr($0, 1, at - 1)] = includes[substr($0, 1, at - 1)] name "\n" }
        part == 2 && /"command":/ { command = $0 }
        part == 2 && /"file":/ { gsub(/.*": "|".*/, ""); flags[$0] = command }
        part == 3 && $0 in flags { split("", seen); all = ""; collect($0); print $0 "\t" flags[$0] all }'
}

check() { # file, key
    if ! clang-tidy --quiet -p $folder "$1" 2>/dev/null; then return 1; fi
    touch "$passed/$2"
}
export -f check

tool=$(clang-tidy --version; cat .clang-tidy)
describe "$@" | while IFS= read -r line; do
    key=$(sha256sum <<<"$tool$line")
    key=${key:0:32}
    if [ -e "$passed/$key" ]; then touch "$passed/$key"; else printf '%s %s\n' "${line%%$'\t'*}" "$key"; fi
done | xargs -r -P "$(nproc)" -L 1 bash -c 'check "$@"' _
