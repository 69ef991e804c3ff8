#!/usr/bin/env bash
# Runs the tests. The last line printed is `N passed, N failed`, a line of its own; the exit status says the same.
#
#   scripts/test.sh             everything, of the sanitizers' tests a part: `make test`
#   scripts/test.sh asan|tsan   the unit and end-to-end tests on that sanitizer's build: `make asan`, `make tsan`
#   scripts/test.sh fuzz        every fuzzer for FUZZ_SECONDS (120), and random configurations: `make fuzz`
#   scripts/test.sh crash       of `all`, what kills a saving process, fails its calls, loses power, damages files: `make crash`
#
# A step that fails does not stop those after it. Cases of test programs count one by one, any other step as one.
set -uo pipefail
cd "$(dirname "$0")/.."

logs=build/logs
passed=0
failed=0
skipped=0
number=0
failed_logs=()

# Steps run in a subshell; one that counts its cases leaves "passed failed skipped" here.
count() { printf '%d %d %d\n' "$@" >"$logs/count"; }

step() { # title, command...
    local title=$1 log started status counts
    shift
    number=$((number + 1))
    log=$logs/$(printf '%02d' $number)-${title//[^A-Za-z0-9]/-}.log
    rm -f "$logs/count"
    started=$EPOCHREALTIME
    printf '== %s\n' "$title"
    ("$@") >"$log" 2>&1
    status=$?
    if [ -e "$logs/count" ]; then
        counts=$(<"$logs/count")
    else
        counts=$([ $status = 0 ] && echo 1 0 0 || echo 0 1 0)
    fi
    # shellcheck disable=SC2086 # three numbers
    tally $counts
    [ $status = 0 ] || { sed 's/^/   | /' "$log" | tail -n 200; failed_logs+=("$log"); }
    awk -v a="$started" -v b="$EPOCHREALTIME" -v r="$([ $status = 0 ] && echo ok || echo FAILED)" -v c="$counts" \
        'BEGIN { split(c, n); printf "   %s, %d passed, %d failed, %.1f s\n", r, n[1], n[2], b - a }'
}

tally() {
    passed=$((passed + $1))
    failed=$((failed + $2))
    skipped=$((skipped + $3))
}

# The cases that failed, once more and at the end, since a step's own end may stand far from them.
failures() {
    grep -h -A 8 -E '^ *(not ok |# not ok|✖)|\((Failed|Timeout|.*Exception.*)\)$|ERROR: .*Sanitizer|WARNING: .*Sanitizer' \
        "$@" | sed 's/^/   | /' | head -n 150
}

finish() {
    [ ${#failed_logs[@]} = 0 ] || failures "${failed_logs[@]}"
    printf '%d passed, %d failed' $passed $failed
    [ $skipped = 0 ] || printf ', %d skipped' $skipped
    printf '\n'
    [ $failed = 0 ]
    exit
}

# ---- Steps ------------------------------------------------------------------------------------------------------

format() { scripts/sources.sh | xargs clang-format --dry-run -Werror; }

folder_of() { [ "$1" = release ] && echo build || echo "build/$1"; }

strict() { HEARTH_WERROR=ON scripts/build.sh "$@"; }

# ctest counts programs; the cases are counted from what cmocka prints. A program that ended badly without a failed
# case (a crash, a time-out, a sanitizer's report) counts as one failure.
unit() { # preset [targets [ctest's option...]]
    local folder status preset=$1 targets=${2:-tests}
    folder=$(folder_of "$preset")
    shift $(($# > 1 ? 2 : 1))
    # shellcheck disable=SC2086 # words
    strict "$preset" $targets || return
    rm -f "$folder/Testing/Temporary/LastTest.log"
    CMOCKA_MESSAGE_OUTPUT=TAP ctest --test-dir "$folder" -j "$(nproc)" --output-on-failure "$@"
    status=$?
    # shellcheck disable=SC2046 # three numbers
    count $(awk '
        function close_program() { if (open && !fine && !bad) failed++; open = fine = bad = 0 }
        /^[0-9]+\/[0-9]+ Testing: / { close_program(); open = 1 }
        /^Test Passed\.$/ { fine = 1 }
        /^(not )?ok [0-9]+ # SKIP/ { skipped++; next }
        /^ok [0-9]+ - / { passed++ }
        /^not ok [0-9]+ - / { failed++; bad = 1 }
        END { close_program(); if (!passed) failed++; print passed + 0, failed + 0, skipped + 0 }
    ' "$folder/Testing/Temporary/LastTest.log")
    return $status
}

# End-to-end tests drive the built programs; they come with their own client libraries, and with the Node that these
# want: a distribution's may be older. Its package is looked for, since npm passes over an optional one that it cannot
# get; and not node_modules/.bin, where npm 9 takes the link away together with the packages of other platforms.
# Several files run at once, and those that measure time one after the other when these are done.
e2e() { # preset
    local status=0 tap=$PWD/$logs/e2e node measures='^// Measures time'
    node=$PWD/tests/e2e/node_modules/node-linux-$(uname -m | sed 's/^x86_64$/x64/; s/^aarch64$/arm64/')/bin/node
    HEARTH_BUILD=$PWD/$(folder_of "$1")
    strict "$1" all || return
    LLAMA_SERVER=$(scripts/llama.sh --server) || return
    export HEARTH_BUILD LLAMA_SERVER
    cd tests/e2e || return
    if [ ! -x "$node" ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
        npm ci --silent --no-audit --no-fund || return
    fi
    [ -x "$node" ] || { echo "npm has not installed $node; tests/e2e/package.json names the platforms"; return 1; }
    rm -f "$tap"-*.tap
    # shellcheck disable=SC2046 # names of files
    node_tests "$tap-together.tap" "$(nproc)" $(grep -L "$measures" ./*.test.js) || status=1
    # shellcheck disable=SC2046
    node_tests "$tap-alone.tap" 1 $(grep -l "$measures" ./*.test.js) || status=1
    cd ../..
    # shellcheck disable=SC2046 # three numbers; a run that ended before it reported has failed
    count $(awk '
        /^# (pass|fail|cancelled|skipped|todo) / { n[$2] += $3; reports += $2 == "pass" }
        END { print n["pass"] + 0, n["fail"] + n["cancelled"] + 2 - reports, n["skipped"] + n["todo"] }
    ' "$tap"-*.tap)
    return $status
}

node_tests() { # report, how many at once, file...
    "$node" --test --test-concurrency="$2" --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$1" "${@:3}"
}

fuzz() { # seconds each
    local source name bad=0 names=()
    for source in tests/fuzz/fuzz_*.c; do names+=("$(basename "$source" .c)"); done
    scripts/build.sh fuzz "${names[@]}" || return
    for name in "${names[@]}"; do
        mkdir -p "build/fuzz/corpus/$name"
        local folders=("build/fuzz/corpus/$name")
        [ ! -d "tests/fuzz/corpus/${name#fuzz_}" ] || folders+=("tests/fuzz/corpus/${name#fuzz_}")
        build/fuzz/bin/"$name" -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
            -artifact_prefix=build/fuzz/ "${folders[@]}" || bad=$((bad + 1))
    done
    count $((${#names[@]} - bad)) $bad 0
    [ $bad = 0 ]
}

# As many of each architecture as there are seconds, from another seed each time.
configurations() { # seconds
    local program=unit_lib_test_configurations
    scripts/build.sh release $program hearth-mkmodel || return
    export HEARTH_BUILD=$PWD/build HEARTH_SOURCE=$PWD HEARTH_CONFIGURATIONS=$1 HEARTH_SEED=${HEARTH_SEED:-$(date +%s)}
    echo "HEARTH_SEED=$HEARTH_SEED"
    build/bin/$program
}

sanitized() { # command...
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp:print_suppressions=0
    export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/scripts/tsan.supp
    "$@"
}

# Every commit builds and runs one part of the unit tests on one of the sanitizers' builds: which one follows from its
# hash, so that all have their turn, and a part that failed fails again. What is no checkout goes by the day. The programs
# that take minutes there (exactness, crash, families) have no turn: `make asan` and `make tsan` run them. Nor has a test
# that is another one's program once more (_under_unit).
parts=10
choose_part() {
    local hash presets=(asan tsan)
    hash=$(git rev-parse --short=6 HEAD 2>/dev/null || date +%j)
    preset=${presets[16#$hash % 2]}
    part=$((16#$hash / 2 % parts + 1))
    part_options=(-I "$part,,$parts" -E '^(exactness|crash)_|_families$|_under_unit$')
    part_tests=$(ctest --test-dir build -N "${part_options[@]}" | sed -nE 's/^ *Test +#[0-9]+: //p')
}

# ---- What was asked for -----------------------------------------------------------------------------------------

mkdir -p $logs
scripts/packages.sh test || exit
case ${1:-all} in
    asan | tsan)
        step "unit tests ($1)" sanitized unit "$1"
        step "end-to-end tests ($1)" sanitized e2e "$1"
        ;;
    fuzz)
        step "fuzzers" fuzz "${FUZZ_SECONDS:-120}"
        step "random configurations" configurations "${FUZZ_SECONDS:-120}"
        ;;
    crash) step "crash tests" unit release tests -R '^crash_|_faults$|^unit_store_test_store_fetch$' ;;
    all)
        step "format" format
        step "layers" scripts/layers.sh
        step "build with gcc, no warnings" strict release all tests bench
        step "clang-tidy" scripts/tidy.sh
        step "unit tests" unit release
        step "counts of the engine" node bench/check.mjs
        step "documents" scripts/check-docs.sh
        step "checklist" scripts/checklist.sh
        step "hardening of what was built" scripts/check-hardening.sh
        choose_part
        # shellcheck disable=SC2086 # words
        step "build with clang and $preset, no warnings" strict "$preset" all bench $part_tests
        step "unit tests ($preset, part $part of $parts)" sanitized unit "$preset" "$part_tests" "${part_options[@]}"
        step "install, and a program linked to the library" scripts/check-install.sh
        step "Debian package" scripts/check-deb.sh
        step "end-to-end tests" e2e release
        ;;
    *) sed -n '2,8s/^# \?//p' "$0"; exit 2 ;;
esac
finish
