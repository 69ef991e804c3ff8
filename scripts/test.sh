#!/usr/bin/env bash
# Runs the tests. The last line printed is `N passed, N failed`, a line of its own; the exit status says the same.
#
#   scripts/test.sh                  everything, of the sanitizers' tests a part: `make test`
#   scripts/test.sh check [COMMIT]   what a change calls for (scripts/changed.sh), in a minute: `make check`
#   scripts/test.sh folder FOLDER    the unit tests of a folder: `make test-FOLDER`
#   scripts/test.sh thorough         the unit and end-to-end tests with all cases of random tests and matrices: `make thorough`
#   scripts/test.sh asan|tsan        the unit and end-to-end tests on that sanitizer's build: `make asan`, `make tsan`
#   scripts/test.sh fuzz             every fuzzer for FUZZ_SECONDS (120), and random configurations: `make fuzz`
#   scripts/test.sh crash            what kills a saving process, fails its calls, loses power, damages files: `make crash`
#
# Tests are built in build/checked, where assertions are on; what is about the programs that users get looks at build/.
# A step that fails does not stop those after it. Cases of test programs count one by one, any other step as one.
# `make test` does not run again what passed before and would see nothing new (scripts/unchanged.mjs); its cases count,
# and are told apart. ANEW=1 runs all.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

logs=build/logs
passed=0
failed=0
skipped=0
number=0
failed_logs=()
at_once=$(($(nproc) + 1)) # programs of tests: one more than there are processors, since each waits now and then

# Steps run in a subshell; one that counts its cases leaves "passed failed skipped" beside its log, and how many of those
# that passed did so before.
count() { printf '%d %d %d %d\n' "$@" >"$log.count"; }

step() { # title, command...
    local title=$1 log started status counts
    shift
    number=$((number + 1))
    log=$logs/$(printf '%02d' $number)-${title//[^A-Za-z0-9]/-}.log
    rm -f "$log.count"
    started=$EPOCHREALTIME
    printf '== %s\n' "$title"
    ("$@") >"$log" 2>&1
    status=$?
    if [ -e "$log.count" ]; then
        counts=$(<"$log.count")
    else
        counts=$([ $status = 0 ] && echo 1 0 0 0 || echo 0 1 0 0)
    fi
    # shellcheck disable=SC2086 # four numbers
    tally $counts
    [ $status = 0 ] || { sed 's/^/   | /' "$log" | tail -n 200; failed_logs+=("$log"); }
    awk -v a="$started" -v b="$EPOCHREALTIME" -v r="$([ $status = 0 ] && echo ok || echo FAILED)" -v c="$counts" \
        'BEGIN {
            split(c, n)
            printf "   %s, %d passed, %d failed, %.1f s%s\n", r, n[1], n[2], b - a, n[4] ? "; " n[4] " passed before, unchanged" : ""
        }'
}

tally() {
    passed=$((passed + $1))
    failed=$((failed + $2))
    skipped=$((skipped + $3))
}

# Steps that keep one processor busy run beside those that keep all: beside() starts a function's, joined() reports them.
# shellcheck disable=SC2030,SC2031 # the numbers of the subshell come back by a file
beside() { # function
    (
        number=$((number + 20)) passed=0 failed=0 skipped=0 failed_logs=()
        "$1" >$logs/beside.out 2>&1
        printf '%s\n' "$passed $failed $skipped" "${failed_logs[@]}" >$logs/beside.result
    ) &
}

joined() {
    local result
    wait $!
    cat $logs/beside.out
    mapfile -t result <$logs/beside.result
    # shellcheck disable=SC2086 # three numbers
    tally ${result[0]}
    failed_logs+=("${result[@]:1}")
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

format() { # [file...]
    if [ $# -gt 0 ]; then printf '%s\n' "$@"; else scripts/sources.sh; fi | xargs -r -P "$(nproc)" -n 50 clang-format --dry-run -Werror
}

tidy_of() { # commit
    local files
    mapfile -t files < <(scripts/changed.sh tidy "$1")
    [ ${#files[@]} = 0 ] || scripts/tidy.sh "${files[@]}"
}

# What the last ten commits changed, and an eighth of the other files, by the commit's hash. Without those commits all.
tidy_part() {
    local files eighth before=HEAD~10
    git rev-parse --quiet --verify $before >/dev/null || { scripts/tidy.sh; return; }
    eighth=$((16#$(commit_number) / 8 % 8))
    mapfile -t files < <({
        scripts/changed.sh tidy $before
        scripts/tidy.sh --list | awk -v part=$eighth 'NR % 8 == part'
    } | sort -u)
    echo "# ${#files[@]} files: those that differ from $before, and part $((eighth + 1)) of 8 of the others"
    scripts/tidy.sh "${files[@]}"
}

folder_of() { [ "$1" = release ] && echo build || echo "build/$1"; }

strict() { HEARTH_WERROR=ON scripts/build.sh "$@"; }

# What "NAME PASSED FAILED SKIPPED ..." lines say, of those that ran now, and "NAME PASSED" of those that did before.
count_of() { # lines of now, lines of before
    # shellcheck disable=SC2046 # four numbers
    count $(awk '
        FILENAME == ARGV[1] { passed += $2; failed += $3; skipped += $4; next }
        { passed += $2; before += $2 }
        END { if (!passed) failed++; print passed + 0, failed + 0, skipped + 0, before + 0 }' "$1" "$2")
}

# Those of the tests, NAME=FILE each, that need not run: "NAME PASSED" a line.
unchanged() { # folder, test...
    [ -n "$reuses" ] && git rev-parse --quiet --verify HEAD >/dev/null || return 0
    node scripts/unchanged.mjs begin "$@"
}

record() { [ -z "$reuses" ] || node scripts/unchanged.mjs end "$1"; } # folder

# ctest counts programs; the cases are counted from what cmocka prints. A program that ended badly without a failed
# case (a crash, a time-out, a sanitizer's report) counts as one failure.
unit() { # preset [targets [ctest's option...]]
    local folder status preset=$1 targets=${2:-tests} before now
    folder=$(folder_of "$preset")
    before=$folder/tests.before now=$folder/tests.now
    shift $(($# > 1 ? 2 : 1))
    # shellcheck disable=SC2086 # words
    strict "$preset" $targets || return
    [[ $* == *demo-model* ]] || set -- -LE demo-model "$@"
    # One that runs another program than its own has no record.
    tests_in "$folder" "$@" | while read -r name; do [ ! -x "$folder/bin/$name" ] || echo "$name=$folder/bin/$name"; done >"$now"
    # shellcheck disable=SC2046 # words
    unchanged "$folder" $(<"$now") >"$before" || return
    [ ! -s "$before" ] || set -- "$@" -E "^($(cut -d' ' -f1 "$before" | paste -sd'|'))\$"
    rm -f "$folder"/Testing/Temporary/LastTest.log* # ctest -N leaves one, too
    CMOCKA_MESSAGE_OUTPUT=TAP ctest --test-dir "$folder" -j $at_once --output-on-failure "$@"
    status=$?
    awk '
        function close_program() {
            if (name) print name, passed + 0, failed + (!fine && !failed), skipped + 0
            name = ""; passed = failed = skipped = fine = 0
        }
        /^[0-9]+\/[0-9]+ Testing: / { close_program(); name = $3 }
        /^Test Passed\.$/ { fine = 1 }
        /^(not )?ok [0-9]+ # SKIP/ { skipped++; next }
        /^ok [0-9]+ - / { passed++ }
        /^not ok [0-9]+ - / { failed++ }
        END { close_program() }
    ' "$folder"/Testing/Temporary/LastTest.log* >"$now"
    record "$folder" <"$now"
    count_of "$now" "$before"
    return $status
}

# End-to-end tests drive the built programs; they come with their own client libraries, and with the Node that these
# want: a distribution's may be older. Its package is looked for, since npm passes over an optional one that it cannot
# get; and not node_modules/.bin, where npm 9 takes the link away together with the packages of other platforms.
# Several files run at once, and those that measure time one after the other when these are done.
e2e() { # preset
    local status=0 folder now before node files measures='^// Measures time'
    folder=$(folder_of "$1")
    now=$PWD/$folder/e2e.now before=$PWD/$folder/e2e.before
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
    cd ../..
    # shellcheck disable=SC2046 # names of files
    unchanged "$folder" $(printf '%s\n' tests/e2e/*.test.js | sed -E 's|.*/(.*)|\1=&|') >"$before" || return
    cd tests/e2e || return
    cut -d' ' -f1 "$before" | sort >"$before.names"
    mapfile -t files < <(printf '%s\n' *.test.js | sort | comm -23 - "$before.names")
    rm -f "$now".*
    if [ ${#files[@]} -gt 0 ]; then
        # shellcheck disable=SC2046 # names of files
        node_tests "$now.together" $at_once $(grep -L "$measures" "${files[@]}") || status=1
        # shellcheck disable=SC2046
        node_tests "$now.alone" 1 $(grep -l "$measures" "${files[@]}") || status=1
    fi
    cd ../..
    touch "$now.together" "$now.alone"
    # A file without a line has not come to an end.
    awk 'FILENAME != "-" { print; told[$1] = 1; next } NF && !($1 in told) { print $1, 0, 1, 0 }' \
        "$now.together" "$now.alone" - <<<"$(printf '%s\n' "${files[@]}")" >"$now"
    record "$folder" <"$now"
    count_of "$now" "$before"
    return $status
}

node_tests() { # file of counts, how many at once, file...
    [ $# -gt 2 ] || return 0
    "$node" --test --test-concurrency="$2" --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=./lib/counts.js --test-reporter-destination="$1" "${@:3}"
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
    local program=unit_instance_test_configurations
    scripts/build.sh checked $program hearth-mkmodel || return
    export HEARTH_BUILD=$PWD/build/checked HEARTH_SOURCE=$PWD HEARTH_CONFIGURATIONS=$1 HEARTH_SEED=${HEARTH_SEED:-$(date +%s)}
    echo "HEARTH_SEED=$HEARTH_SEED"
    build/checked/bin/$program
}

sanitized() { # command...
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp:print_suppressions=0
    export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/scripts/tsan.supp
    "$@"
}

commit_number() { git rev-parse --short=6 HEAD 2>/dev/null || date +%j; }

parts=24
# Of the large matrices one quarter (tests/fakes/cases.h, tests/e2e/lib/wait.js).
choose_quarter() { export TESTS_QUARTER=${TESTS_QUARTER:-$((16#$(commit_number) / 2 / parts % 4))}; }

# Every commit builds and runs one part of the unit tests on one of the sanitizers' builds: which one follows from its
# hash, so that all have their turn, and a part that failed fails again. What is no checkout goes by the day. A part is
# neighbours in the list, since what they are linked to has to be built for them. Some programs have no turn,
# `make asan` and `make tsan` run them: those that take minutes there; a test that is another one's program once more
# (_under_unit); and under ThreadSanitizer those that have one thread only.
choose_part() {
    local hash without='^(exactness|crash)_|_families$|_configurations$|_output_constraint$|_under_unit$' presets=(asan tsan)
    hash=$(commit_number)
    preset=${presets[16#$hash % 2]}
    part=$((16#$hash / 2 % parts))
    [ $preset = asan ] || without+='|^unit_chat_|_text_split$'
    part_tests=$(tests_of -LE demo-model -E "$without" | awk -v part=$part -v parts=$parts '
        { name[NR] = $0 } END { for (i = int(part * NR / parts); i < int((part + 1) * NR / parts); i++) print name[i + 1] }')
}

tests_in() { ctest --test-dir "$1" -N "${@:2}" | sed -nE 's/^ *Test +#[0-9]+: //p'; } # folder, ctest's option...
tests_of() { tests_in build/checked "$@"; } # ctest's option...

# Of the tests that a change calls for those that, quickest first, take CHECK_SECONDS (30) in all, as they took when they
# last ran; those that bear the name of a changed file in any case.
choose_tests() { # commit
    local all names costs=build/checked/Testing/Temporary/CTestCostData.txt
    all=$(scripts/changed.sh tests "$1")
    grep '^#' <<<"$all"
    names=$(scripts/changed.sh files "$1" | sed -E 's|.*/||; s/\.[a-z]+$//; s/^test_//' | paste -sd'|')
    [ -e $costs ] || costs=/dev/null
    all=$(grep -v '^#' <<<"$all" | awk -v names="_test_($names)\$" '
        !asked { cost[$1] = $3; next }
        NF { print $1 ~ names ? 0 : cost[$1] + 0, $1 }' $costs asked=1 - | sort -n |
        awk -v most=$((${CHECK_SECONDS:-30} * $(nproc))) '{ sum += $1; print (sum <= most ? "run " : "leave ") $2 }')
    chosen=$(sed -n 's/^run //p' <<<"$all")
    left=$(sed -n 's/^leave //p' <<<"$all" | paste -sd' ')
    [ -z "$left" ] || echo "# slower ones, left to \`make test\`: $left"
}

# What looks at the programs as users get them, and at the documents.
of_the_release() {
    step "counts of the engine" node bench/check.mjs
    step "documents" scripts/check-docs.sh
    step "checklist" scripts/checklist.sh
    step "hardening of what was built" scripts/check-hardening.sh
    step "install, and a program linked to the library" scripts/check-install.sh
    step "Debian package" scripts/check-deb.sh
}

# ---- What was asked for -----------------------------------------------------------------------------------------

mkdir -p $logs
scripts/packages.sh test || exit
reuses=
choose_quarter
case ${1:-all} in
    check)
        mapfile -t sources < <(scripts/changed.sh files "${2:-HEAD}" | grep -E '\.(c|h|cpp)$')
        echo "# ${#sources[@]} files of C and C++ differ from ${2:-HEAD}"
        [ ${#sources[@]} = 0 ] || step "format" format "${sources[@]}"
        step "layers" scripts/layers.sh
        step "build" strict checked hearth hearth-mkmodel
        step "clang-tidy" tidy_of "${2:-HEAD}"
        choose_tests "${2:-HEAD}"
        [ -z "$chosen" ] || step "unit tests" unit checked "$chosen" -R "^($(paste -sd'|' <<<"$chosen"))\$"
        ;;
    folder)
        scripts/build.sh checked hearth-mkmodel >/dev/null || exit
        chosen=$(tests_of -R "^(unit_)?$2_")
        [ -n "$chosen" ] || { echo "there are no unit tests of a folder $2"; exit 2; }
        step "unit tests of $2" unit checked "$chosen" -R "^(unit_)?$2_"
        ;;
    thorough)
        export TESTS_THOROUGH=1
        step "unit tests, all cases" unit checked
        step "end-to-end tests, all cases" e2e checked
        step "clang-tidy" scripts/tidy.sh
        ;;
    asan | tsan)
        step "unit tests ($1)" sanitized unit "$1"
        step "end-to-end tests ($1)" sanitized e2e "$1"
        ;;
    fuzz)
        step "fuzzers" fuzz "${FUZZ_SECONDS:-120}"
        step "random configurations" configurations "${FUZZ_SECONDS:-120}"
        ;;
    crash) step "crash tests" unit checked tests -R '^crash_|_faults$|^unit_store_test_store_fetch$' ;;
    all)
        [ -n "${ANEW:-}" ] || reuses=1
        step "format" format
        step "layers" scripts/layers.sh
        step "build with assertions, no warnings" strict checked all tests
        step "build of a release, no warnings" strict release all bench
        step "clang-tidy" tidy_part
        step "unit tests" unit checked
        choose_part
        beside of_the_release
        # shellcheck disable=SC2086 # words
        step "build with clang and $preset, no warnings" strict "$preset" $part_tests
        step "unit tests ($preset, part $((part + 1)) of $parts)" sanitized unit "$preset" "$part_tests" \
            -R "^($(paste -sd'|' <<<"$part_tests"))\$"
        joined
        step "end-to-end tests" e2e checked
        ;;
    *) sed -n '2,13s/^# \?//p' "$0"; exit 2 ;;
esac
finish
