#!/usr/bin/env bash
# Compares hearth with llama-server: same llama.cpp, same model file, same threads, cells and KV type, everything else
# as each has it by default. Prints one table; ends with 0 unless something cannot be run.
#
#   bench/run.sh [WORKLOAD]...   all of them, or only these: gap
#
# BENCH_PEER=1     build llama-server if it is not there (some minutes); without it hearth is measured alone
# BENCH_ROUNDS=3   how often a workload measures; the table has the medians
# HEARTH_BUILD     the build folder (build)
#
# The servers run one after the other, never at once: two llama.cpp processes on the same cores spin against each other.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${HEARTH_BUILD:-build}
out=$build/bench
rounds=${BENCH_ROUNDS:-3}
workloads=("${@:-gap}")

threads=2
slots=2
context=16384 # of a slot
max_decode_gap=250

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- The model --------------------------------------------------------------------------------------------------

# A row costs 1 to 4 ms on two cores: much more than what a server adds to it, and minutes are enough for a run.
shape='--arch qwen3 --vocab gpt-2 --layers 12 --embd 768 --heads 12 --kv-heads 4 --head-dim 64 --ff 2304 --type q8_0'
model=

make_model() {
    model=$out/qwen3-$(printf '%s' "$shape $context" | sha256sum | cut -c1-12).gguf
    [ ! -e "$model" ] || return 0
    say "making $model"
    # shellcheck disable=SC2086 # a list of words
    "$build/bin/hearth-mkmodel" $shape --ctx "$context" -o "$model.new"
    mv "$model.new" "$model"
}

# ---- The servers ------------------------------------------------------------------------------------------------

server= # its process
url=
log=

stop_server() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap stop_server EXIT

server_fails() {
    tail -n 5 "$log" >&2
    die "$1, see $log"
}

# The port is the server's choice; its output tells.
wait_until_ready() {
    local deadline=$((SECONDS + 120))
    until url=$(grep -oEm1 'listen(s|ing) on http://127\.0\.0\.1:[0-9]+' "$log" | grep -oE 'http.*') &&
        curl -fso /dev/null "$url/health"; do
        kill -0 "$server" 2>/dev/null || server_fails "the server ended"
        [ $SECONDS -lt $deadline ] || server_fails "the server is not ready after 120 s"
        sleep 0.1
    done
}

start_hearth() {
    log=$out/hearth.log
    "$build/bin/hearth" serve --model "$model" --host 127.0.0.1 --port 0 --set threads=$threads --set n_seq_max=$slots \
        --set context_window=$context --set max_decode_gap_ms=$max_decode_gap --set cache_type_k=f16 \
        --set cache_type_v=f16 >"$log" 2>&1 &
    server=$!
    wait_until_ready
}

start_llama_server() {
    log=$out/llama-server.log
    "$llama_server" --model "$model" --host 127.0.0.1 --port 0 --threads $threads --parallel $slots \
        --ctx-size $((slots * context)) --cache-type-k f16 --cache-type-v f16 >"$log" 2>&1 &
    server=$!
    wait_until_ready
}

# Sets llama_server; empty where there is none.
find_llama_server() {
    llama_server=$(scripts/llama.sh)/build/bin/llama-server
    if [ "${BENCH_PEER:-0}" = 1 ]; then
        llama_server=$(scripts/llama.sh --server)
    elif [ ! -x "$llama_server" ]; then
        say "llama-server is not built: measuring hearth alone (BENCH_PEER=1 builds it, in some minutes)"
        llama_server=
    fi
}

# ---- The workloads ----------------------------------------------------------------------------------------------
# run_NAME SIDE writes $out/NAME.SIDE.json with the server at $url. hearth is first, so that what it had to do can be
# given to its peer.

prompt_of() { sed -nE 's/.*"prompt_tokens": ([0-9]+).*/\1/p' "$1"; }

run_gap() {
    local prompt=()
    [ "$1" = hearth ] || prompt=(--prompt "$(prompt_of "$out/gap.hearth.json")")
    "$build/bin/hearth_bench_gap" --url "$url" --rounds "$rounds" --context $context --max-decode-gap $max_decode_gap \
        "${prompt[@]}" --json >"$out/gap.$1.json"
}

# Every workload against one server.
run_side() {
    local side=$1 name
    say "$side: starting"
    "start_${side//-/_}"
    for name in "${workloads[@]}"; do
        say "$side: $name"
        "run_$name" "$side" || server_fails "$name failed against $side"
    done
    stop_server
}

for name in "${workloads[@]}"; do
    declare -F "run_$name" >/dev/null || die "no workload '$name'"
done
[ -x "$build/bin/hearth" ] || die "hearth is not built: run \`make bench\`"
cmake --build "$build" --target bench hearth-mkmodel >"$out.log" 2>&1 || { cat "$out.log" >&2; die "building failed"; }
mkdir -p "$out"
find_llama_server
make_model

# The threads of llama.cpp wait for each other hundreds of times a token: what else runs costs more than its share.
load=$(cut -d' ' -f1 /proc/loadavg)
[ "${load%.*}" = 0 ] || say "the machine is busy (load $load): the times will say more about that than about the servers"

run_side hearth
[ -z "$llama_server" ] || run_side llama-server

results=()
for name in "${workloads[@]}"; do
    results+=("$out/$name.hearth.json")
    [ -n "$llama_server" ] && results+=("$out/$name.llama-server.json") || results+=(-)
done
"$build/bin/hearth_bench_table" "${results[@]}"
printf '%s threads, %s slots of %s cells, f16 KV, %s\n' $threads $slots $context "$(nproc) cores"
