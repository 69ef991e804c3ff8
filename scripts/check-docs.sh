#!/usr/bin/env bash
# Checks that the documents speak of what is there: pages made from the program and the sources are up to date, every file
# that is named exists, every link leads to a page and a heading. Counts sentences that are hard to read.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
complain() {
    printf '%s\n' "$*"
    bad=1
}
pages=(README.md CONTRIBUTING.md docs/*.md docs/design/*.md patches/README.md)

# ---- Pages that are made ----

build/bin/hearth config manual | diff -u docs/config.md - || bad=1
for name in log metrics; do scripts/reference.sh $name | diff -u docs/$name.md - || bad=1; done
for name in $(sed -nE 's/^ +(NUMBER|INTEGER)\((\w+),.*/\2/p' include/hearth_sampling.h); do
    grep -q "\`$name\`" docs/sampling.md || complain "docs/sampling.md does not name $name"
done

# ---- Files ----
# In backticks, with a folder: from the top, or from src/. Names with a star, and those that begin elsewhere, are not meant.

exists() { [ -e "$1" ] || [ -e "src/$1" ] || [ -e "tests/$1" ]; }

while IFS=: read -r page path; do
    exists "$path" || complain "$page names $path: there is no such file"
done < <(grep -oHE '`(src|tests|docs|scripts|tools|bench|include|packaging|examples|base|grammar|llm|http|media|pull|page|patches|chat|config|store|engine|embed|instance|lib|serve|cli)/[A-Za-z0-9_./-]+\.(c|h|cpp|hpp|sh|js|md|tsv|map|in)`' "${pages[@]}" | tr -d '`')

# ---- Links ----

anchors() { grep -E '^#+ ' "$1" | sed -E 's/^#+ +//; s/`//g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9_ -]//g; s/ /-/g'; }

while IFS=: read -r page link; do
    file=${link%%#*} folder=$(dirname "$page")
    target=$page
    [ -z "$file" ] || target=$folder/$file
    [ -e "$target" ] || { complain "$page links to $link: there is no such file"; continue; }
    [[ $link != *#* ]] || anchors "$target" | grep -qxF "${link#*#}" || complain "$page links to $link: there is no such heading"
done < <(grep -oHE '\]\([^) ]+\)' "${pages[@]}" | sed -E 's/\]\((.*)\)$/\1/' | grep -vE ':(https?|mailto):')

# ---- Sentences ----

scripts/prose.sh --check || bad=1
exit $bad
