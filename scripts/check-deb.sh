#!/usr/bin/env bash
# Makes the Debian package and uses it: lintian finds nothing, it is the same when it is made again, and dpkg installs,
# upgrades, removes and purges it in an empty root, where the program runs. (Without a chroot, whose libraries would have
# to be fetched: the scripts of the package heed DPKG_ROOT.)
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "deb: $*"; exit 1; }

deb=$(scripts/deb.sh "$work/first")
cmp -s "$deb" "$(scripts/deb.sh "$work/second")" || fail "made twice, the packages differ"
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
said=$(echo 'What is a prompt cache?' | HOME=$work HEARTH_CONFIG=$root/etc/hearth/hearth.yaml HEARTH_MODEL=$root/usr/share/hearth/models/demo.gguf "$root/usr/bin/hearth" chat)
[ -n "$said" ] || fail "the installed program says nothing"

echo '# mine' >>"$root/etc/hearth/hearth.yaml"
mkdir -p "$root/var/lib/hearth" "$root/var/cache/private/hearth"
use -i "$deb" # as an upgrade does
grep -q '^# mine' "$root/etc/hearth/hearth.yaml" || fail "an upgrade loses what was written into the configuration"
use -r hearth
[ ! -e "$root/usr/bin/hearth" ] && [ -e "$root/etc/hearth/hearth.yaml" ] && [ -d "$root/var/lib/hearth" ] ||
    fail "removed, it should leave the configuration and what was stored, and nothing else"
use -P hearth
left=$(find "$root" -path "$root/var/lib/dpkg" -prune -o -ipath '*hearth*' -print)
[ -z "$left" ] || fail "purged, it leaves: $left"
