#!/usr/bin/env bash
# Compares hearth with llama-server: same llama.cpp, same model file, same threads, cells and KV type, everything else
# as each has it by default. Prints one table; ends with 0 unless something cannot be run.
#
#   bench/run.sh [WORKLOAD]...   all of them, or only these: gap agents tails long idle cache spc slots1 slots2 slots4
#                                slots8 restart stored restore
#   bench/run.sh evict index start   what the store evicts, what its index costs, how long it takes to start: without a
#                                    server or a model, each with a table of its own
#   bench/run.sh streams         agents, with a stream of cells for each of the four slots: why slots are to be as many
#
# BENCH_PEER=1     build llama-server if it is not there (some minutes); without it hearth is measured alone
# BENCH_ROUNDS=3   how often a workload measures; the table has the medians
# HEARTH_BUILD     the build folder (build)
#
# The servers run one after the other: two llama.cpp processes that compute on the same cores spin against each other.
# `stored` has two of hearth's and asks one of them at a time; an idle one uses no CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${HEARTH_BUILD:-build}
out=$build/bench
rounds=${BENCH_ROUNDS:-3}
workloads=("$@")
[ $# -gt 0 ] || workloads=(gap agents tails long idle cache spc slots1 slots2 slots4 slots8 restart stored restore)

threads=2
max_decode_gap=250

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- The workloads ----------------------------------------------------------------------------------------------
# set_NAME sets the servers' model, their number of slots, and the context of each; alone=hearth where there is nothing
# to compare hearth with, alone=program where there is no server either. run_NAME SIDE writes $out/NAME.SIDE.json with
# the server at $url. hearth runs first, so that llama-server can be given the same prompt lengths.

# A batch token takes 1 to 4 ms on two cores: much more than what a server adds to it, and a run takes only minutes.
set_gap() {
    shape='--arch qwen3 --vocab gpt-2 --layers 12 --embd 768 --heads 12 --kv-heads 4 --head-dim 64 --ff 2304 --type q8_0'
    slots=2
    context=16384
}

prompt_of() { sed -nE 's/.*"prompt_tokens": ([0-9]+).*/\1/p' "$1"; }

run_gap() {
    local prompt=()
    [ "$1" = hearth ] || prompt=(--prompt "$(prompt_of "$out/gap.hearth.json")")
    "$build/bin/hearth_bench_gap" --url "$url" --rounds "$rounds" --context "$context" --max-decode-gap $max_decode_gap \
        "${prompt[@]}" --json >"$out/gap.$1.json"
}

# These workloads count tokens, so that the smallest model will do.
tiny='--arch qwen3 --vocab gpt-2 --layers 1 --embd 32 --heads 1 --kv-heads 1 --head-dim 16 --ff 32'

run_agents_with() {
    local name=$1 side=$2
    shift 2
    "$build/bin/hearth_bench_agents" --url "$url" --name "$name" --json "$@" >"$out/$name.$side.json"
}

# 12 agents: 600 shared + 12 x (300 own + 6 replies of 20 + 5 x 40 added) = 8,040 of 16,384 cells.
set_agents() {
    shape=$tiny
    slots=4
    context=4096
}
run_agents() { run_agents_with agents "$1"; }

# As many agents as slots, and more: where each slot has a stream of cells of its own, they evict each other.
set_streams() {
    set_agents
    settings='--set kv_unified=false --set cache.tiers.disk.quota_mb=0'
    alone=hearth
}
run_streams() { run_agents_with streams "$1" 4 8 12; }

# The first prompts differ in their last 5 % only, as they do behind a long system prompt.
# 6 agents: 2,000 + 6 x (100 + 320) = 4,520 cells.
set_tails() { set_agents; }
run_tails() { run_agents_with tails "$1" --shared 2000 --own 100 6; }

# One main agent, three with another system prompt: 2 x 20,000 + 4 x (8,000 + 320) = 73,280 of 160,000 cells.
set_long() {
    shape=$tiny
    slots=4
    context=40000
}
run_long() { run_agents_with long "$1" --main --shared 20000 --own 8000 4; }

# 12 conversations of 2,000 tokens that are kept, and somebody who has none. The model of gap.
set_idle() {
    set_gap
    slots=4
    context=8192
}
run_idle() {
    "$build/bin/hearth_bench_idle" --url "$url" --rounds "$rounds" --json >"$out/idle.$1.json"
}

# A chat of 2,000 tokens, 77 % of them system prompt, with either way of caching: the model of gap, which says roles in
# plain words.
set_cache() {
    set_gap
    printf '%s' '{%- for m in messages -%}{{- m.role + ":" + m.content + "\n" -}}{%- endfor -%}' >"$out/plain.jinja"
    shape="$shape --template $out/plain.jinja"
    context=4096
}
run_cache() { run_chats cache "$1"; }

set_spc() {
    set_cache
    settings='--set system_prompt_cache=true'
}
run_spc() { run_chats spc "$1"; }

run_chats() {
    "$build/bin/hearth_bench_cache" --url "$url" --name "$1" --rounds "$rounds" --json >"$out/$1.$2.json"
}

# Throughput and latency by number of slots: 8 clients at once, the model of gap.
for n in 1 2 4 8; do
    eval "set_slots$n() { set_gap; slots=$n; context=2048; }"
    eval "run_slots$n() { run_slots \"\$1\"; }"
done
run_slots() {
    "$build/bin/hearth_bench_slots" --url "$url" --slots "$slots" --rounds "$rounds" --json >"$out/slots$slots.$1.json"
}

# A conversation of 8,192 tokens whose server is killed between its turns.
set_restart() { set_gap; }

# The program asks for the restart; its last output is its report.
run_restart() {
    local line program says answers=$out/restart.answers
    rm -f "$answers"
    mkfifo "$answers"
    exec 3<>"$answers" {says}< <("$build/bin/hearth_bench_restart" --url "$url" --rounds "$rounds" --json <"$answers")
    program=$!
    while IFS= read -r line <&"$says"; do
        [ "$line" = restart ] || { printf '%s\n' "$line"; continue; }
        kill_servers -9
        "serve_${1//-/_}"
        printf '%s\n' "$url" >&3
    done >"$out/restart.$1.json"
    exec 3>&- {says}<&-
    wait "$program"
}

# A stream that is stored every 256 tokens, and one that is not.
set_stored() {
    set_gap
    context=4096
    settings='--set cache.continued_interval=256'
    alone=hearth
}
run_stored() {
    local stores=$url
    settings='--set cache.tiers.disk.quota_mb=0 --set cache.tiers.ram_file.quota_mb=0'
    serve_hearth without
    "$build/bin/hearth_bench_stored" --url "$stores" --without "$url" --rounds "$rounds" --json >"$out/stored.$1.json"
}

# The shape of Qwen3-0.6B: 112 KiB of cells a token. In one process, without a server.
set_restore() {
    shape='--arch qwen3 --vocab gpt-2 --layers 28 --embd 1024 --heads 16 --kv-heads 8 --head-dim 128 --ff 3072 --type q8_0'
    context=4096
    alone=program
}
run_restore() {
    rm -rf "$out/kv"
    "$build/bin/hearth_bench_restore" --model "$model" --folder "$out/kv" --threads $threads --json \
        >"$out/restore.$1.json" 2>"$out/restore.log"
    rm -rf "$out/kv"
}

# ---- The model --------------------------------------------------------------------------------------------------

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

servers=() # their processes
url=       # of the last one
log=

kill_servers() {
    local server
    for server in "${servers[@]}"; do
        kill "$1" "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    done
    servers=()
}
trap 'kill_servers -TERM' EXIT

server_fails() {
    tail -n 5 "$log" >&2
    die "$1, see $log"
}

# The server chooses its port and prints it.
wait_until_ready() {
    local deadline=$((SECONDS + 120))
    until url=$(grep -oEm1 'listen(s|ing) on http://127\.0\.0\.1:[0-9]+' "$log" | grep -oE 'http.*') &&
        curl -fso /dev/null "$url/health"; do
        kill -0 "${servers[-1]}" 2>/dev/null || server_fails "the server ended"
        [ $SECONDS -lt $deadline ] || server_fails "the server is not ready after 120 s"
        sleep 0.1
    done
}

# Empty before the server starts, so that nothing is read from the log of an earlier one.
new_log() {
    log=$out/$1.log
    : >"$log"
}

settings= # of hearth, for this workload only

start_hearth() {
    rm -rf "$out/kv" # every workload begins with nothing stored
    serve_hearth
}

serve_hearth() {
    new_log "hearth${1:+-$1}"
    # shellcheck disable=SC2086 # a list of words
    "$build/bin/hearth" serve --model "$model" --host 127.0.0.1 --port 0 --set threads=$threads --set n_seq_max="$slots" \
        --set context_window="$context" --set max_decode_gap_ms=$max_decode_gap --set cache_type_k=f16 \
        --set cache_type_v=f16 --set admission_timeout=600 --set cache.tiers.disk.path="$out/kv" $settings >"$log" 2>&1 &
    servers+=($!)
    wait_until_ready
}

start_llama_server() { serve_llama_server; }

serve_llama_server() {
    new_log llama-server
    "$llama_server" --model "$model" --host 127.0.0.1 --port 0 --threads $threads --parallel "$slots" \
        --ctx-size $((slots * context)) --cache-type-k f16 --cache-type-v f16 >"$log" 2>&1 &
    servers+=($!)
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

# ---- The runs ---------------------------------------------------------------------------------------------------

run_workload() {
    local name=$1 side=$2
    say "$name: $side"
    [ "$alone" = program ] || "start_${side//-/_}"
    "run_$name" "$side" || server_fails "$name failed against $side"
    kill_servers -TERM
}

# These programs need no server and no model.
run_evict() { "$build/bin/hearth_bench_evict"; }
run_index() { "$build/bin/hearth_bench_index"; }
run_start() { "$build/bin/hearth_bench_start" 10000 35000 100000 1000000; }

for name in "${workloads[@]}"; do
    declare -F "run_$name" >/dev/null || die "no workload '$name'"
done
[ -e "$build/build.ninja" ] || die "hearth is not configured: run \`make bench\`"
cmake --build "$build" --target hearth bench hearth-mkmodel >"$out.log" 2>&1 || { cat "$out.log" >&2; die "building failed"; }
mkdir -p "$out"
find_llama_server

# The threads of llama.cpp wait for each other hundreds of times a token: what else runs costs more than its share.
load=$(cut -d' ' -f1 /proc/loadavg)
[ "${load%.*}" = 0 ] || say "the machine is busy (load $load): the times will say more about that than about the servers"

results=()
for name in "${workloads[@]}"; do
    settings=''
    alone=''
    if ! declare -F "set_$name" >/dev/null; then
        "run_$name"
        continue
    fi
    "set_$name"
    make_model
    run_workload "$name" hearth
    results+=("$out/$name.hearth.json")
    if [ -z "$llama_server" ] || [ -n "$alone" ]; then
        results+=(-)
        continue
    fi
    run_workload "$name" llama-server
    results+=("$out/$name.llama-server.json")
done
[ ${#results[@]} -gt 0 ] || exit 0
"$build/bin/hearth_bench_table" "${results[@]}"
printf '%s threads, f16 KV, %s cores\n' $threads "$(nproc)"
