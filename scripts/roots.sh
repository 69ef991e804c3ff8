#!/usr/bin/env bash
# Starts the tarball (`make tarball`) where it was not built: in roots of other distributions, and on other processors as qemu
# plays them. In each it says which kind of processor llama.cpp's code was chosen for, serves the demo model, and answers a
# request. By hand, as root: the roots are fetched with debootstrap, into the folder of llama.cpp, 60 MB each.
#
#   scripts/roots.sh TARBALL [ROOT…]      Debian 11, 12, 13, Ubuntu 20.04, 22.04 and 24.04, unless some are named
#
# Programs of a root run with its own files, in namespaces of mounts and processes. qemu-user plays the processor, not the
# kernel. HEARTH_DEBIAN and HEARTH_UBUNTU name mirrors.
set -euo pipefail
tarball=$(readlink -f "${1:?the tarball}")
shift
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin
deps=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}
debian=${HEARTH_DEBIAN:-http://deb.debian.org/debian} ubuntu=${HEARTH_UBUNTU:-http://archive.ubuntu.com/ubuntu}
say() { printf 'roots: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
for program in debootstrap gpgv qemu-x86_64 unshare curl; do
    command -v "$program" >/dev/null || die "$program is missing: apt-get install debootstrap gpgv qemu-user util-linux curl"
done
[ "$(uname -m)" = x86_64 ] || die "the tarball is one of x86-64"

# Packages are unpacked and not configured, which is enough for a program that brings what it needs.
make_root() {
    local suite=$1 mirror=$2 root=$deps/root-$1 archive
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg check
    [ "$mirror" != "$ubuntu" ] || keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    check=--keyring=$keys
    if [ ! -e "$keys" ]; then # Debian 12 has no package of Ubuntu's
        say "$keys is not there: what comes from $mirror is not verified"
        check=--no-check-gpg
    fi
    local steps=() # Ubuntu's are those of gutsy, whatever the name; Debian 12 does not know the newest
    [ "$mirror" != "$ubuntu" ] || steps=(/usr/share/debootstrap/scripts/gutsy)
    [ -e "$root/.complete" ] && return
    say "fetching $suite"
    rm -rf "$root"
    debootstrap --foreign --variant=minbase "$check" "$suite" "$root" "$mirror" "${steps[@]}" >"$deps/root-$suite.log" 2>&1 ||
        { tail -n 5 "$deps/root-$suite.log" >&2; die "debootstrap failed"; }
    for archive in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$archive" "$root"; done
    rm -f "$root"/var/cache/apt/archives/*.deb
    touch "$root/.complete"
}

# A server that the words after the name and the folder of its cache start answers a request; it ends with this function.
try() {
    local name=$1 cache=$2 port=$((20000 + RANDOM % 20000)) pid text='' i
    shift 2
    "$@" serve --host 127.0.0.1 --port "$port" --set cache.tiers.disk.path="$cache" >"$work/log" 2>&1 &
    pid=$!
    for ((i = 0; i < 240; i++)); do
        curl -sf "http://127.0.0.1:$port/health" >/dev/null && break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.5
    done
    text=$(curl -s --max-time 240 "http://127.0.0.1:$port/v1/chat/completions" \
        -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}' |
        sed -nE 's/.*"content": ?"([^"]*)".*/\1/p') || true
    pkill -TERM -P "$pid" 2>/dev/null || kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    printf '%-24s %-40s %s\n' "$name" "$("$@" version 2>/dev/null | sed -n 's/^CPU //p')" "${text:-no answer}"
    [ -n "$text" ] || { tail -n 5 "$work/log" >&2; failed=1; }
}

mkdir -p "$deps"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "$tarball"
unpacked=$(echo "$work"/hearth-*)
failed=0
[ $# -gt 0 ] || set -- bullseye bookworm trixie focal jammy noble
for suite; do
    case $suite in
        bullseye | bookworm | trixie) make_root "$suite" "$debian" ;;
        *) make_root "$suite" "$ubuntu" ;;
    esac
    root=$deps/root-$suite
    rm -rf "$root/opt/hearth"
    mkdir -p "$root/opt/hearth"
    cp -r "$unpacked/." "$root/opt/hearth"
    # shellcheck disable=SC2016 # the inner shell's
    in_root=(unshare --mount --pid --fork --kill-child sh -c 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" /opt/hearth/bin/hearth "$@"' "$root")
    rm -rf "$root/tmp/hearth-cache"
    try "$suite" /tmp/hearth-cache "${in_root[@]}"
done
# Their own C library, since qemu does not follow the script that chooses one.
for cpu in qemu64 core2duo Nehalem SandyBridge Haswell Skylake-Server; do
    try "qemu -cpu $cpu" "$work/cache-$cpu" env HEARTH_PROGRAM="$unpacked/bin/hearth" qemu-x86_64 -cpu "$cpu" "$unpacked/libexec/ld.so" \
        --library-path "$unpacked/lib/hearth:$unpacked/lib/hearth/c" "$unpacked/libexec/hearth"
done
exit $failed
