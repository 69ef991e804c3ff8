#!/usr/bin/env bash
# Compares hearth with llama-server: same llama.cpp, same model file, same threads, cells and KV type, everything else
# as each has it by default.
#
#   bench/run.sh short           what `make bench` runs: every kind of workload, with sizes that fit into 12 minutes
#   bench/run.sh full            what `make bench-full` runs: with the sizes that the goals are meant for, and some more
#   bench/run.sh [short|full] WORKLOAD...   only these, with the sizes of either (full); their names are in the lists
#                                below
#   bench/run.sh growth          how figures grow: stored conversations, slots, windows
#   bench/run.sh evict index start   what the store evicts, what its index costs, how long it takes to start: without a
#                                server or a model, each with a table of its own
#   bench/run.sh streams idle_streams   agents, and idle conversations, with a stream of cells for each of the four slots
#   bench/run.sh idle_hybrid     idle conversations of a model whose states cannot be cut
#
# BENCH_PEER=1     build llama-server if it is not there (some minutes); without it hearth is measured alone
# BENCH_PAIRS=3    how often both servers run each workload
# BENCH_OUT        where the results go (bench/out)
# BENCH_SHAPE      the model, in hearth-mkmodel's words, in place of those below that are timed: for a machine with a GPU
# BENCH_LLAMA_SERVER   another llama-server, such as one that was built for the GPU
# HEARTH_BUILD     the build folder (build)
#
# A pair is hearth, then llama-server: fresh processes, nothing cached, one after the other, since two llama.cpp
# processes that compute on the same cores spin against each other. bench/compare.mjs makes ratios pair by pair, a table,
# bench.json and bench.svg of what the workloads' programs print, and has the goals.
#
# Ends with 0 unless something could not be run.
set -euo pipefail
cd "$(dirname "$0")/.."

export HEARTH_CONFIG= # no configuration of this machine counts
build=${HEARTH_BUILD:-build}
out=$build/bench
results=${BENCH_OUT:-bench/out}
pairs=${BENCH_PAIRS:-3}

threads=2
max_decode_gap=250

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- What runs --------------------------------------------------------------------------------------------------

compared=(conversation agents subagents idle restart gap decode prefill cache mixed hybrid hybrid_agents stored
    media adapters constrained shapes remote connections ready)
more=(tails long spc restore sampling)
growth=(index start slots1 slots2 slots4 slots8 slots16 slots32 slots64 window4 window8 window16 window32 window64
    window128)

# ---- The workloads ----------------------------------------------------------------------------------------------
# set_NAME sets the servers' model, their number of slots, and the context of each; alone=hearth where there is nothing
# to compare hearth with, alone=program where there is no server either, starts=program where the program starts the
# server. run_NAME SIDE prints the program's JSON, with the server at $url. Sizes of a short run come second:
# `of FULL SHORT`.

of() { [ "$size" = full ] && echo "$1" || echo "$2"; }

# A batch token takes 1 to 4 ms on two cores: much more than what a server adds to it, and a run takes only minutes.
large='--arch qwen3 --vocab gpt-2 --layers 12 --embd 768 --heads 12 --kv-heads 4 --head-dim 64 --ff 2304 --type q8_0'

# A quarter of it.
small='--arch qwen3 --vocab gpt-2 --layers 6 --embd 512 --heads 8 --kv-heads 4 --head-dim 64 --ff 1536 --type q8_0'

# For workloads that count tokens, or where the server's own work is what is measured.
tiny='--arch qwen3 --vocab gpt-2 --layers 1 --embd 32 --heads 1 --kv-heads 1 --head-dim 16 --ff 32'

program() {
    local name=$1
    shift
    "$build/bin/hearth_bench_$name" --json "$@"
}
client() {
    local name=$1
    shift
    program "$name" --url "$url" "$@"
}

set_conversation() {
    shape=$(of "$large" "$small")
    slots=2
    context=8192
}
run_conversation() { client conversation --turns "$(of 20 8)"; }

# 12 agents: 600 shared + 12 x (300 own + 6 replies of 20 + 5 x 40 added) = 8,040 of 16,384 cells.
set_agents() {
    shape=$(of "$large" "$small")
    slots=4
    context=4096
}
# shellcheck disable=SC2046 # numbers
run_agents() { client agents $(of '3 6 12' 6); }

# A main agent and five others, each of which has a third of its prompt for itself.
set_subagents() {
    shape=$small
    slots=4
    context=$(of 24576 8192)
}
run_subagents() {
    client agents --name subagents --main --interleaved --turns 2 --main-prompt "$(of 20000 5000)" \
        --shared "$(of 4000 1000)" --own "$(of 2000 500)" 6
}

# As many agents as slots, and more: where each slot has a stream of cells of its own, they evict each other.
set_streams() {
    set_tails
    settings='--set kv_unified=false --set cache.tiers.disk.quota_mb=0'
    alone=hearth
}
run_streams() { client agents --name streams 4 8 12; }

# The first prompts differ in their last 5 % only, as they do behind a long system prompt.
# 6 agents: 2,000 + 6 x (100 + 320) = 4,520 cells.
set_tails() {
    shape=$tiny
    slots=4
    context=4096
}
run_tails() { client agents --name tails --shared 2000 --own 100 6; }

# One main agent, three with another system prompt: 2 x 20,000 + 4 x (8,000 + 320) = 73,280 of 160,000 cells.
set_long() {
    shape=$tiny
    slots=4
    context=40000
}
run_long() { client agents --name long --main --shared 20000 --own 8000 4; }

# 12 conversations of 2,000 tokens that are kept, and somebody who has none.
set_idle() {
    shape=$(of "$large" "$small")
    slots=4
    context=8192
}
run_idle() { client idle --conversations "$(of 12 6)"; }

# The same with a stream of cells for each slot, where what is kept beside the slots' own leaves at once.
set_idle_streams() {
    set_idle
    settings='--set kv_unified=false'
    alone=hearth
}
run_idle_streams() { run_idle; }

# The same with a hybrid model, whose conversations stay: three layers of four have a state in place of cells.
set_idle_hybrid() {
    set_idle
    shape=${shape/qwen3/qwen35}
}
run_idle_hybrid() { run_idle; }

# A conversation whose server ends between its turns. The program asks for that; its last output is its report.
set_restart() {
    shape=$(of "$large" "$small")
    slots=2
    context=16384
}
run_restart() {
    local line program says answers=$out/restart.answers
    rm -f "$answers"
    mkfifo "$answers"
    exec 3<>"$answers" {says}< <(client restart --prompt "$(of 8192 4096)" <"$answers")
    program=$!
    while IFS= read -r line <&"$says"; do
        case $line in
            'restart '*)
                kill_servers "-${line#* }"
                serve "$1" || break
                printf '%s\n' "$url" >&3
                ;;
            *) printf '%s\n' "$line" ;;
        esac
    done
    exec 3>&- {says}<&-
    wait "$program"
}

# A prompt of 50 ticks. hearth's comes first: so that both servers have the same one, the others get its length.
set_gap() {
    shape=$large
    slots=2
    context=16384
}
run_gap() {
    local prompt=() first=$out/gap.1.hearth.json
    [ "$pair $1" = '1 hearth' ] || prompt=(--prompt "$(sed -nE 's/.*"prompt_tokens": ([0-9]+).*/\1/p' "$first")")
    [ "$size" = full ] || prompt=(--prompt 2560)
    client gap --rounds 1 --context "$context" --max-decode-gap $max_decode_gap "${prompt[@]}"
}

set_decode() {
    shape=$(of "$large" "$small")
    slots=16
    context=3072
}
# shellcheck disable=SC2046 # numbers
run_decode() { client decode --shared "$(of 2000 1000)" --reply "$(of 96 48)" $(of '1 2 4 8 16' '1 4 16'); }

set_prefill() {
    shape=$(of "$large" "$small")
    slots=2
    context=16384
}
# shellcheck disable=SC2046 # numbers
run_prefill() { client prefill $(of '512 2048 8192' '512 2048'); }

# A template that says roles in plain words.
plain_template() {
    printf '%s' '{%- for m in messages -%}{{- m.role + ":" + m.content + "\n" -}}{%- endfor -%}' >"$out/plain.jinja"
    shape="$shape --template $out/plain.jinja"
}

# A chat of 2,000 tokens, 77 % of them system prompt, with either way of caching.
set_cache() {
    shape=$(of "$large" "$small")
    plain_template
    slots=2
    context=4096
}
run_cache() { client cache --name cache --rounds 1; }

set_spc() {
    set_cache
    settings='--set system_prompt_cache=true'
}
run_spc() { client cache --name spc --rounds 1; }

# 20 short requests, two a second, while one long prompt after the other is read.
set_mixed() {
    shape=$(of "$large" "$small")
    slots=4
    context=$(of 8192 16384)
}
run_mixed() { client mixed --long-prompt "$(of 4096 6144)" --interval "$(of 500 300)"; }

# The chat of `cache` with a model whose states cannot be cut at any position.
set_hybrid() {
    shape='--arch qwen35 --vocab gpt-2 --layers 4 --embd 64 --heads 2 --kv-heads 1 --head-dim 32 --ff 64'
    plain_template
    slots=2
    context=4096
}
run_hybrid() { client cache --name hybrid --rounds 1; }

# Agents that share 600 of 900 tokens with that model; nothing says where their messages end.
set_hybrid_agents() {
    set_hybrid
    slots=4
}
run_hybrid_agents() { client agents --name hybrid_agents 6; }

# A stream that is stored every 256 tokens, and one that is not: two of hearth's servers, one of which is asked at a
# time; an idle one uses no CPU.
set_stored() {
    shape=$(of "$large" "$small")
    slots=2
    context=4096
    settings='--set cache.continued_interval=256'
    alone=hearth
}
run_stored() {
    local stores=$url
    settings='--set cache.tiers.disk.quota_mb=0 --set cache.tiers.ram_file.quota_mb=0'
    serve "$1" without || return
    program stored --url "$stores" --without "$url" --rounds "$(of 2 1)"
}

# Questions about images, with an encoder of 100 million weights: 448 pixels a side are 1,024 patches, 256 tokens.
set_media() {
    shape="${small/qwen3/qwen2vl}"
    plain_template
    slots=6
    context=4096
    projector='--mmproj qwen2vl --layers 12 --embd 768 --heads 12 --ff 3072'
}
run_media() { client media --log "$log" --side "$(of 448 280)"; }

# 8 clients at once on 8 slots, half of them under one adapter and half under another.
set_adapters() {
    shape=$(of "$large" "$small")
    slots=8
    context=2048
    n_adapters=2
}
run_adapters() { client slots --name adapters --adapters $n_adapters --slots $slots --rounds "$(of 3 1)"; }

# The template is one that has tools. The vocabulary is small: random weights propose what a schema refuses more often
# than trained ones do, and llama-server then asks its grammar about every token, which takes a minute with 50,000.
set_constrained() {
    shape="${tiny/gpt-2/models/demo.gguf} --template $templates/Qwen3-Coder.jinja"
    slots=2
    context=8192
}
run_constrained() { client constrained --rounds "$(of 3 1)"; }

set_shapes() {
    shape="$(of "$small" "$tiny") --template $templates/Qwen3-Coder.jinja"
    slots=4
    context=$(of 32768 12288)
}
run_shapes() { client shapes --percent "$(of 50 20)"; }

# The chat of `cache`, with all layers and cells on a device of another machine: llama.cpp's RPC server, on loopback.
set_remote() {
    shape=$small
    plain_template
    slots=2
    context=4096
    device=rpc
}
run_remote() { client cache --name remote --rounds 1; }

set_connections() {
    shape=$tiny
    slots=64
    context=256
    settings='--set server.max_connections=2000'
    alone=hearth
}
run_connections() { client connections --pid "${servers[0]}" --idle "$(of 5 2)"; }

# The shape of Qwen3-0.6B: 112 KiB of cells a token.
qwen='--arch qwen3 --vocab gpt-2 --layers 28 --embd 1024 --heads 16 --kv-heads 8 --head-dim 128 --ff 3072 --type q8_0'

if [ -n "${BENCH_SHAPE:-}" ]; then large=$BENCH_SHAPE small=$BENCH_SHAPE qwen=$BENCH_SHAPE; fi

set_ready() {
    shape=$(of "$qwen" "$large")
    slots=4
    context=4096
    starts=program
}
run_ready() {
    port=PORT
    command_of "$1"
    local ready=(program ready --name "$name" --log "$out/$1.log" -- "${command[@]}")
    # A virtual machine gets memory from its host when it touches it for the first time, which takes seconds: by whoever
    # comes first.
    [ "$pair" -gt 1 ] || "${ready[@]}" >/dev/null || return
    rm -rf "$out/kv"
    "${ready[@]}"
}

# In one process, without a server.
set_restore() {
    shape=$qwen
    alone=program
}
run_restore() {
    rm -rf "$out/kv"
    program restore --model "$model" --folder "$out/kv" --threads $threads 2>"$out/restore.log" || return
    rm -rf "$out/kv"
}

# What samplers cost beside a decode call of 16 slots; in one process as well.
set_sampling() {
    shape=$large
    alone=program
}
run_sampling() { program sampling --model "$model" --threads $threads; }

# Throughput and latency by number of slots: 8 clients at once, and where slots are more, as many.
for n in 1 2 4 8 16 32 64; do
    eval "set_slots$n() { shape=\$(of \"\$large\" \"\$small\"); slots=$n; context=2048; }"
    eval "run_slots$n() { client slots --slots $n --clients $((n > 8 ? n : 8)); }"
done

# Start, memory, the first token and a reply's by the window of one slot.
for n in 4 8 16 32 64 128; do
    eval "set_window$n() { set_ready; shape=\$large; slots=1; context=$((n * 1024)); }"
    eval "run_window$n() { run_ready \"\$1\"; }"
done

# ---- The model --------------------------------------------------------------------------------------------------

model=
n_adapters=0
adapters= # their files, with commas between them

make_adapters() {
    local i file
    adapters=
    for ((i = 1; i <= n_adapters; i++)); do
        file=${model%.gguf}-adapter$i.gguf
        [ -e "$file" ] || "$build/bin/hearth-mkmodel" --lora-for "$model" --rank 8 --seed $i -o "$file"
        adapters+=${adapters:+,}$file
    done
}

projector= # its kind and sizes; empty: none
mmproj=    # its file

make_projector() {
    mmproj=
    [ -n "$projector" ] || return 0
    mmproj=${model%.gguf}-mmproj.gguf
    # shellcheck disable=SC2086 # a list of words
    [ -e "$mmproj" ] || "$build/bin/hearth-mkmodel" $projector --for "$model" -o "$mmproj"
}

make_model() {
    model=$out/model-$(printf '%s' "$shape" | sha256sum | cut -c1-12).gguf
    [ ! -e "$model" ] || return 0
    say "making $model"
    # shellcheck disable=SC2086 # a list of words
    "$build/bin/hearth-mkmodel" $shape --ctx 131072 -o "$model.new"
    mv "$model.new" "$model"
}

# ---- The device -------------------------------------------------------------------------------------------------

device=   # rpc: the model is on an RPC server
endpoint= # of it; empty: there is none
worker=   # its process

end_device() {
    [ -z "$worker" ] || { kill -KILL "$worker" && wait "$worker"; } 2>/dev/null || true
    worker='' endpoint=''
}

start_device() {
    local program port deadline=$((SECONDS + 20))
    [ -n "$device" ] || return 0
    program=$(scripts/llama.sh)/build/bin/ggml-rpc-server
    port=$((20000 + RANDOM % 12000)) # below those that the kernel gives to clients
    [ -x "$program" ] || { say "ggml-rpc-server is not built (BENCH_PEER=1 builds it, with llama-server)"; return 1; }
    "$program" -H 127.0.0.1 -p $port -t $threads -d CPU >"$out/device.log" 2>&1 &
    worker=$!
    until (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        kill -0 $worker 2>/dev/null && [ $SECONDS -lt $deadline ] || { tail -n 5 "$out/device.log" >&2; return 1; }
        sleep 0.1
    done
    endpoint=127.0.0.1:$port
}

# ---- The servers ------------------------------------------------------------------------------------------------

servers=() # their processes
url=       # of the last one
log=
port=0     # the server chooses one
settings=  # of hearth, for this workload only
command=()
peak_kib=0 # the most memory that one of them had

note_peak() {
    local kib
    kib=$(sed -nE 's/^VmHWM: *([0-9]+) kB/\1/p' "/proc/$1/status" 2>/dev/null || true)
    [ "${kib:-0}" -le "$peak_kib" ] || peak_kib=$kib
}

# llama-server 0.5.0 may wait for a lock for ever when it is to end just as a client gives up a stream.
kill_servers() {
    local server deadline
    for server in "${servers[@]}"; do
        note_peak "$server"
        kill "$1" "$server" 2>/dev/null || true
        deadline=$((SECONDS + 30))
        while kill -0 "$server" 2>/dev/null; do
            if [ $SECONDS -ge $deadline ]; then
                say 'the server does not end: it is killed'
                kill -KILL "$server" || true
                deadline=$((SECONDS + 30))
            fi
            sleep 0.05
        done
        wait "$server" 2>/dev/null || true
    done
    servers=()
}
trap 'kill_servers -TERM; end_device' EXIT

# The server prints its port.
wait_until_ready() {
    local deadline=$((SECONDS + 120))
    until url=$(grep -oEm1 'listen(s|ing) on http://127\.0\.0\.1:[0-9]+' "$log" | grep -oE 'http.*') &&
        curl -fso /dev/null "$url/health"; do
        if ! kill -0 "${servers[-1]}" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
            tail -n 5 "$log" >&2
            say "the server ended or is not ready after 120 s, see $log"
            return 1
        fi
        sleep 0.1
    done
}

# Sets `command` to the one that serves the model.
command_of() {
    case $1 in
        hearth)
            # shellcheck disable=SC2206 # a list of words
            command=("$build/bin/hearth" serve --model "$model" --host 127.0.0.1 --port $port --set threads=$threads
                --set n_seq_max="$slots" --set context_window="$context" --set max_decode_gap_ms=$max_decode_gap
                --set cache_type_k=f16 --set cache_type_v=f16 --set admission_timeout=600
                --set cache.tiers.disk.path="$out/kv" --set lora="[$adapters]" ${mmproj:+--mmproj "$mmproj"}
                ${endpoint:+--set rpc="$endpoint"} $settings)
            ;;
        llama-server)
            command=("$llama_server" --model "$model" --host 127.0.0.1 --port "$port" --threads "$threads"
                --parallel "$slots" --ctx-size $((slots * context)) --cache-type-k f16 --cache-type-v f16
                ${adapters:+--lora "$adapters"} ${mmproj:+--mmproj "$mmproj"}
                ${endpoint:+--rpc "$endpoint" --gpu-layers 99})
            ;;
    esac
}

# The log is empty before the server starts, so that nothing is read from that of an earlier one.
serve() {
    log=$out/$1${2:+-$2}.log
    : >"$log"
    command_of "$1"
    "${command[@]}" >"$log" 2>&1 &
    servers+=($!)
    wait_until_ready
}

# Sets llama_server, empty where there is none, and where its templates are.
find_llama_server() {
    templates=$(scripts/llama.sh)/source/models/templates
    llama_server=${BENCH_LLAMA_SERVER:-$(scripts/llama.sh)/build/bin/llama-server}
    if [ "${BENCH_PEER:-0}" = 1 ]; then
        llama_server=$(scripts/llama.sh --server)
    elif [ ! -x "$llama_server" ]; then
        say "llama-server is not built: measuring hearth alone (BENCH_PEER=1 builds it, in some minutes)"
        llama_server=
    fi
}

# ---- The runs ---------------------------------------------------------------------------------------------------
# Each leaves a line in runs.jsonl: {workload, side, pair, peak_kib, report}; report is null where it failed.

failures=0

run_one() { # workload, side, pair
    local name=$1 report=$out/$1.$3.$2.json status=0
    pair=$3 peak_kib=0 port=0 settings='' alone='' starts='' n_adapters=0 projector='' device=''
    "set_$name"
    make_model
    make_adapters
    make_projector
    rm -rf "$out/kv" # every run begins with nothing stored
    say "$name: $2, $pair of $pairs"
    if [ "$alone$starts" = program ] || { start_device && serve "$2"; }; then
        "run_$name" "$2" >"$report" || status=1
    else
        status=1
    fi
    kill_servers -TERM
    end_device
    [ $status = 0 ] || { say "$name could not be run against $2, see $log"; failures=$((failures + 1)); }
    printf '{"workload": "%s", "side": "%s", "pair": %d, "peak_kib": %d, "report": %s}\n' "$name" "$2" "$pair" \
        "$peak_kib" "$([ $status = 0 ] && tr '\n' ' ' <"$report" || echo null)" >>"$out/runs.jsonl"
}

run_pairs() { # workload
    local name=$1 n
    alone=''
    "set_$name"
    for ((n = 1; n <= ($([ "$alone" = program ] && echo 1 || echo pairs)); n++)); do
        run_one "$name" hearth $n
        [ -z "$llama_server" ] || [ -n "$alone" ] || run_one "$name" llama-server $n
    done
}

# These programs need no server and no model. They count slabs; a conversation has 32 of them.
slabs=(10000 35000 100000 1000000)
run_evict() { "$build/bin/hearth_bench_evict"; }
run_index() { "$build/bin/hearth_bench_index" "${slabs[@]}"; }
run_start() { "$build/bin/hearth_bench_start" "${slabs[@]}"; }

# ---- What was asked for -----------------------------------------------------------------------------------------

size=full
case ${1:-} in
    short | full)
        size=$1
        shift
        ;;
esac
workloads=("$@")
if [ $# = 0 ]; then
    workloads=("${compared[@]}")
    [ "$size" = short ] || workloads+=("${more[@]}")
elif [ "$*" = growth ]; then
    workloads=("${growth[@]}")
    slabs=(320 3200 32000 320000) # 10 to 10,000 conversations
fi
for name in "${workloads[@]}"; do
    declare -F "run_$name" >/dev/null || die "no workload '$name'"
done
[ -e "$build/build.ninja" ] || die "hearth is not configured: run \`make bench\`"
command -v node >/dev/null || die "bench/compare.mjs needs node: run \`scripts/packages.sh test\`"
cmake --build "$build" --target hearth bench hearth-mkmodel >"$out.log" 2>&1 || { cat "$out.log" >&2; die "building failed"; }
mkdir -p "$out" "$results"
: >"$out/runs.jsonl"
find_llama_server
ulimit -n "$(ulimit -Hn)" # `connections` has a thousand of them

# The threads of llama.cpp wait for each other hundreds of times a token: what else runs costs more than its share.
load=$(cut -d' ' -f1 /proc/loadavg)
[ "${load%.*}" = 0 ] || say "the machine is busy (load $load): the times will say more about that than about the servers"

for name in "${workloads[@]}"; do
    if declare -F "set_$name" >/dev/null; then run_pairs "$name"; else "run_$name"; fi
done
[ ! -s "$out/runs.jsonl" ] || node bench/compare.mjs "$size" $threads "$out/runs.jsonl" "$results"
say "took $SECONDS s"
[ $failures = 0 ] || die "$failures runs failed"
