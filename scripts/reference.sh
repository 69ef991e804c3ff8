#!/usr/bin/env bash
# Prints a reference page made from the sources: what is logged, or what is measured. `make test` compares the pages in docs/
# with it.
#
#   scripts/reference.sh log      docs/log.md
#   scripts/reference.sh metrics  docs/metrics.md
set -euo pipefail
cd "$(dirname "$0")/.."

# Every call of log_event() in src/, one row each: texts and levels are those among which the call chooses.
log() {
    cat <<'PAGE'
# What the log says

One line for an event: time, level, group, event, and fields as `name=value`; with `server.log_format: json` an object.
`server.log_level` names the lowest level that is written. Lines that only a debugger needs have the level `debug`.

This page is made from the sources: `scripts/reference.sh log > docs/log.md`.

| group | event | level | fields |
| --- | --- | --- | --- |
PAGE
    scripts/sources.sh src | grep -E '\.(c|cpp)$' | while read -r file; do
        awk -v RS='\001' -v group="$(sed -nE 's/#define LOG_GROUP +"(.*)"/\1/p' "$file" "${file%/*}"/*.h 2>/dev/null | head -n 1)" '
        function words(text, pattern, n, out, word) {
            while (match(text, pattern)) {
                word = substr(text, RSTART, RLENGTH)
                text = substr(text, RSTART + RLENGTH)
                out = out (out == "" ? "" : "\n") word
            }
            return out
        }
        {
            rest = $0
            while (match(rest, /[^a-z_]log_event\(/)) {
                rest = substr(rest, RSTART + RLENGTH)
                call = substr(rest, 1, index(rest, ";") - 1)
                gsub(/"[ \n]+"/, "", call) # texts in several pieces
                fields = match(call, /log_(str|int|num|bool|hex)\(/) ? substr(call, RSTART) : ""
                head = fields == "" ? call : substr(call, 1, RSTART - 1)
                levels = words(head, "LOG_(DEBUG|INFO|WARN|ERROR)")
                gsub("LOG_", "", levels); gsub("\n", ", ", levels)
                texts = words(head, "\"[^\"]*\"")
                gsub("\"", "", texts)
                n = split(texts, text, "\n")
                own = group
                first = 1
                if (head !~ /LOG_GROUP/) { own = text[1]; first = 2 }
                names = words(fields, "log_(str|int|num|bool|hex)\\(\"[^\"]*\"")
                gsub(/log_(str|int|num|bool|hex)\(/, "", names); gsub("\"", "`", names); gsub("\n", ", ", names)
                event = ""
                if (first > n) event = "one of several texts: " FILENAME
                for (i = first; i <= n; i++) event = event (event == "" ? "" : " / ") text[i]
                printf "| %s | %s | %s | %s |\n", own, event, tolower(levels), names
            }
        }' "$file"; done | LC_ALL=C sort -u
}

metrics() {
    cat <<'PAGE'
# What is measured

`GET /metrics` has these in Prometheus' text format; those of engines and pools have the label `model`, those of tiers
`tier`. A histogram has `_bucket`, `_sum` and `_count`. Rates and quantiles are a query's business:
`histogram_quantile(0.99, rate(hearth_time_to_first_token_seconds_bucket[5m]))`. With `server.metrics_names: vllm` there
are [a few more](fleet.md#gauges-under-vllms-names), for routers.

This page is made from the sources: `scripts/reference.sh metrics > docs/metrics.md`.

| metric | type | means |
| --- | --- | --- |
PAGE
    scripts/sources.sh src | grep '\.c$' | while read -r file; do awk -v RS='\001' '
        {
            gsub(/"[ \n]+"/, "")
            rest = $0
            while (match(rest, /"hearth_[a-z0-9_]+",[ \n]+("(counter|gauge|histogram)",[ \n]+)?"[^"]*"/)) {
                row = substr(rest, RSTART, RLENGTH)
                rest = substr(rest, RSTART + RLENGTH)
                n = split(row, part, "\"")
                type = n > 5 ? part[4] : rest ~ /^,[ \n]+offsetof/ ? "histogram" : "gauge"
                means = part[n - 1]
                if (means == "" || means ~ /=/) continue # a label
                if (means !~ /[.]$/) means = means "."
                printf "| `%s` | %s | %s |\n", part[2], type, means
            }
        }' "$file"; done | LC_ALL=C sort -u
}

case ${1:-} in
    log | metrics) "$1" ;;
    *) sed -n '2,7s/^# \?//p' "$0"; exit 2 ;;
esac
