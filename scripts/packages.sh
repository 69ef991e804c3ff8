#!/usr/bin/env bash
# Installs the Debian packages that building needs and that are missing; silent when none is.
#
#   scripts/packages.sh          what a build needs
#   scripts/packages.sh test     also what `make test` needs
#   scripts/packages.sh gpu      also what `make gpu-check` needs where there is no card
#
# Programs are looked for by their command, so that one from elsewhere will do; libraries are asked of dpkg.
set -euo pipefail

programs='cmake:cmake ninja-build:ninja pkg-config:pkg-config git:git curl:curl openssl:openssl'
libraries='build-essential ca-certificates libevent-dev libjansson-dev libyaml-dev libssl-dev libisal-dev
    libpcre2-dev libcurl4-openssl-dev libedit-dev libcmocka-dev node-llhttp libpng-dev libturbojpeg0-dev libwebp-dev
    libgif-dev libsndfile1-dev libsamplerate0-dev libhiredis-dev libzmq3-dev libmp3lame-dev' # the last: libsndfile1-dev
    # lacks it as dependency

# llama.cpp's source and what the web page is made with come through npm, once.
deps=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}
if [ "${1:-}" = test ]; then
    programs+=' nodejs:node npm:npm clang:clang clang-format:clang-format clang-tidy:clang-tidy valgrind:valgrind tmux:tmux
        llvm:llvm-symbolizer poppler-utils:pdftotext chromium:chromium zsh:zsh fish:fish lintian:lintian
        redis-server:redis-server systemd:systemd-analyze' # names of functions; what reads PDF; a browser; shells that have
        # completions; what looks at Debian packages; the server of the tier `remote`; what spells the filters of services
    libraries+=' libclang-rt-dev python3-jinja2 python3-venv' # of the sanitizers and fuzzers, clang itself does not depend on
        # it; what templates are compared with, for /usr/bin/python3; what `make real` installs clients with
elif [ "${1:-}" = gpu ]; then
    libraries+=' mesa-vulkan-drivers libvulkan1'
elif ! compgen -G "$deps/page-*/licences.txt" >/dev/null ||
    { [ -z "${LLAMA_CPP_DIR:-}" ] && ! compgen -G "$deps/llama.cpp-*/.complete" >/dev/null; }; then
    programs+=' nodejs:node npm:npm'
fi

missing=()
for entry in $programs; do
    command -v "${entry#*:}" >/dev/null || missing+=("${entry%%:*}")
done
if command -v dpkg-query >/dev/null; then
    # shellcheck disable=SC2086 # a list of words
    installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' $libraries 2>/dev/null || true)"
    for package in $libraries; do
        [[ $installed == *" installed:$package "* ]] || missing+=("$package")
    done
fi
[ ${#missing[@]} -gt 0 ] || exit 0

say() { printf 'packages: %s\n' "$*" >&2; }
if ! command -v apt-get >/dev/null; then
    say "missing, and there is no apt-get to install them: ${missing[*]} (names as in Debian)"
    exit 1
elif [ "$(id -u)" = 0 ]; then
    as_root=()
elif command -v sudo >/dev/null; then
    as_root=(sudo)
else
    say "missing: ${missing[*]}; neither root nor sudo, so have them installed: apt-get install ${missing[*]}"
    exit 1
fi

say "installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    say "apt-get failed; install by hand: apt-get install ${missing[*]}"
    exit 1
fi
