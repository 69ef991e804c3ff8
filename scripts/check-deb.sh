#!/usr/bin/env bash
# Makes the Debian package and uses it: lintian finds nothing, it is the same when it is made again, and dpkg installs,
# upgrades, removes and purges it in an empty root. The service runs there as its unit says, and finds after the upgrade
# what it stored before it. (Without a chroot, whose libraries would have to be fetched: the scripts of the package heed
# DPKG_ROOT.)
#
#   scripts/check-deb.sh [BUILD]      of what is in BUILD (build); build/portable has what `make deb` packs
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
fail() { echo "deb: $*"; exit 1; }

build=${1:-build}
deb=$(scripts/deb.sh "$work/first" "$build")
cmp -s "$deb" "$(scripts/deb.sh "$work/second" "$build")" || fail "made twice, the packages differ"
lintian --fail-on error,warning "$deb" || fail "lintian finds faults"

[ "$(id -u)" = 0 ] && as_root=() || as_root=(fakeroot)
root=$work/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/etc"
: >"$root/var/lib/dpkg/status"
use() { # dpkg's options and words
    "${as_root[@]}" dpkg --root="$root" --log=/dev/null --force-script-chrootless --force-depends --force-confold "$@" >"$work/dpkg.log" 2>&1 ||
        { cat "$work/dpkg.log"; fail "dpkg $* fails"; }
}

use -i "$deb"
for file in usr/bin/hearth lib/systemd/system/hearth.service lib/systemd/system/hearth.socket etc/hearth/hearth.yaml etc/logrotate.d/hearth \
    usr/lib/sysusers.d/hearth.conf usr/share/man/man5/hearth.yaml.5.gz usr/share/bash-completion/completions/hearth; do
    [ -s "$root/$file" ] || fail "not installed: $file"
done
grep -q '^hearth:' "$root/etc/passwd" || fail "there is no user hearth"
"$root/usr/bin/hearth" config check "$root/etc/hearth/hearth.yaml" >/dev/null || fail "its configuration has a fault"
sed 's/^#//' "$root/etc/hearth/hearth.yaml" | grep -v '^ [A-Z~a-z]' | sed '/^  *path: .*gguf/s|/srv.*|'"$root"'/usr/share/hearth/models/demo.gguf|; /api_keys_file/d' >"$work/example.yaml"
"$root/usr/bin/hearth" config check "$work/example.yaml" >/dev/null || fail "what its configuration shows has a fault"

# The service as systemd would start it: the unit's command and environment, the folders of a user of its own.
for folder in lib cache; do
    mkdir -p "$root/var/$folder/private/hearth"
    ln -s private/hearth "$root/var/$folder/hearth"
done
serve() {
    local unit=$root/lib/systemd/system/hearth.service command environment
    read -ra command < <(sed -n 's/^ExecStart=//p' "$unit")
    read -ra environment < <(sed -n "s/^Environment=//p" "$unit" | sed "s|=/|=$root/|g")
    : >"$work/log"
    # The package's configuration stands where the user's is looked for.
    env "${environment[@]}" XDG_CONFIG_HOME="$root/etc" HEARTH_SERVER_LISTEN=127.0.0.1:0 \
        "$root${command[0]}" "${command[@]:1}" >"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 600); do
        url=$(sed -nE 's|.*(http://127\.0\.0\.1:[0-9]+).*|\1|p' "$work/log" | head -n 1)
        [ -z "$url" ] || ! curl -sf "$url/health" >/dev/null || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/log"
    fail "the installed service does not start"
}
stop() {
    kill "$server"
    wait "$server" || fail "the service does not end well"
    server=
}
cached() { # a conversation's first turn: how many tokens of it were there
    curl -sf "$url/v1/chat/completions" -d "{\"model\": \"demo\", \"max_tokens\": 8, \"messages\": [{\"role\": \"user\",
        \"content\": \"$(printf 'The time of the year is %s. ' {1..40})\"}]}" | sed -nE 's/.*"cached_tokens": ?([0-9]+).*/\1/p'
}

serve
[ "$(cached)" = 0 ] || fail "the first conversation is not the first"
stop
[ -s "$root/var/cache/private/hearth/kv/index" ] || fail "the service does not store in its cache folder"

echo '# mine' >>"$root/etc/hearth/hearth.yaml"
dpkg-deb -R "$deb" "$work/newer"
sed -i 's/^Version: .*/Version: 999.0/' "$work/newer/DEBIAN/control"
echo '# new' >>"$work/newer/etc/hearth/hearth.yaml"
rm "$work/newer/usr/share/doc/hearth/NEWS.md"
dpkg-deb --root-owner-group --build "$work/newer" "$work/newer.deb" >/dev/null
use -i "$work/newer.deb"
[ "$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f='${Version}' hearth)" = 999.0 ] || fail "the upgrade is not one"
[ ! -e "$root/usr/share/doc/hearth/NEWS.md" ] || fail "an upgrade leaves what the new version has not"
tail -n 1 "$root/etc/hearth/hearth.yaml" | grep -q '^# mine' || fail "an upgrade loses what was written into the configuration"
tail -n 1 "$root/etc/hearth/hearth.yaml.dpkg-dist" | grep -q '^# new' || fail "an upgrade does not show its own configuration"
serve
[ "$(cached)" -gt 100 ] || fail "after an upgrade a conversation is not found"
stop
use -r hearth
left=$(find "$root" -path "$root/var/lib/dpkg" -prune -o -ipath '*hearth*' ! -type d -printf '%P\n' | sed -E 's|^(var/[a-z]+)/.*|\1|' | sort -u)
# Configuration, what was stored, and the links by which systemd knows whether the service was enabled.
[ "$left" = "etc/hearth/hearth.yaml
etc/hearth/hearth.yaml.dpkg-dist
etc/logrotate.d/hearth
etc/systemd/system/hearth.service
etc/systemd/system/hearth.socket
etc/systemd/system/multi-user.target.wants/hearth.service
var/cache
var/lib" ] || fail "removed, it leaves: $left"
use -P hearth
left=$(find "$root" -path "$root/var/lib/dpkg" -prune -o -ipath '*hearth*' -print)
[ -z "$left" ] || fail "purged, it leaves: $left"
