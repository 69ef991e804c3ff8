#!/usr/bin/env bash
# Makes a Debian package of what is built: the server with its manual pages, completions, unit, user, configuration and
# demo model; not the library, which `make install` installs. Prints the package's path. The same sources, built by the
# same compiler, make the same package, byte for byte.
#
#   scripts/deb.sh [FOLDER] [BUILD]      into FOLDER (build/dist), of what is in BUILD (build/portable)
#
# HEARTH_MAINTAINER='NAME <ADDRESS>'   who the package names as its maintainer (git's user)
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(mkdir -p "${1:-build/dist}" && cd "${1:-build/dist}" && pwd)
build=${2:-build/portable}
version=$(sed -n 's/^project(hearth VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
architecture=$(dpkg --print-architecture)
maintainer=${HEARTH_MAINTAINER:-$(git log -1 --format='%an <%ae>')}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
debian=$PWD/packaging/debian

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
umask 022

# ---- What is installed, in Debian's places ----

DESTDIR=$work/all cmake --install "$build" --prefix /usr >/dev/null
all=$work/all/usr
doc=$root/usr/share/doc/hearth
install -d "$root/DEBIAN" "$root/lib/systemd/system" "$doc" "$root/usr/share/zsh/vendor-completions"
install -D -s "$all/bin/hearth" "$root/usr/bin/hearth"
if [ -d "$all/lib/hearth" ]; then # llama.cpp's libraries, of a portable build
    install -d "$root/usr/lib/hearth"
    cp -P "$all"/lib/hearth/*.so* "$root/usr/lib/hearth"
    find "$root/usr/lib/hearth" -type f -exec strip --strip-unneeded {} + -exec chmod 644 {} +
fi
install -D -m 644 "$all/share/hearth/models/demo.gguf" "$root/usr/share/hearth/models/demo.gguf"
install -D -m 644 "$all/share/man/man1/hearth.1" "$root/usr/share/man/man1/hearth.1"
install -D -m 644 "$all/share/man/man5/hearth.yaml.5" "$root/usr/share/man/man5/hearth.yaml.5"
install -D -m 644 "$all/share/bash-completion/completions/hearth" "$root/usr/share/bash-completion/completions/hearth"
install -m 644 "$all/share/zsh/site-functions/_hearth" "$root/usr/share/zsh/vendor-completions/_hearth"
install -D -m 644 "$all/share/fish/vendor_completions.d/hearth.fish" "$root/usr/share/fish/vendor_completions.d/hearth.fish"
install -m 644 "$all/lib/systemd/system/hearth.service" "$all/lib/systemd/system/hearth.socket" "$root/lib/systemd/system"
install -D -m 644 "$debian/hearth.sysusers" "$root/usr/lib/sysusers.d/hearth.conf"
install -D -m 644 "$debian/hearth.yaml" "$root/etc/hearth/hearth.yaml"
install -D -m 644 "$debian/hearth.logrotate" "$root/etc/logrotate.d/hearth"
install -m 644 "$debian/copyright" "$doc/copyright"
install -m 644 CHANGELOG.md "$doc/NEWS.md"
install -D -m 644 "$all/share/doc/hearth/grafana/hearth.json" "$doc/grafana/hearth.json"
install -D -m 644 "$all/share/doc/hearth/prometheus/hearth.rules.yml" "$doc/prometheus/hearth.rules.yml"
sed -i '/^\.BR hearth\\-mkmodel (1)$/d; s/^\.BR hearth\.yaml (5),$/.BR hearth.yaml (5)/' "$root/usr/share/man/man1/hearth.1"
{
    printf 'hearth (%s) stable; urgency=medium\n\n  * See NEWS.md.\n\n' "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
} >"$doc/changelog"
gzip -9n "$doc/changelog" "$root"/usr/share/man/man*/*

# ---- What dpkg reads ----

install -m 755 "$debian/postinst" "$debian/prerm" "$debian/postrm" "$root/DEBIAN"
printf '/etc/hearth/hearth.yaml\n/etc/logrotate.d/hearth\n' >"$root/DEBIAN/conffiles"
(cd "$root" && find usr lib -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
mkdir "$work/debian"
printf 'Source: hearth\n\nPackage: hearth\nArchitecture: any\n' >"$work/debian/control" # what dpkg-shlibdeps wants to see
mapfile -t programs < <(cd "$work" && find root/usr/bin root/usr/lib/hearth -type f 2>/dev/null)
depends=$(cd "$work" && dpkg-shlibdeps -O -lroot/usr/lib/hearth --ignore-missing-info "${programs[@]}" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { echo "deb: dpkg-shlibdeps finds no libraries that $build/bin/hearth needs" >&2; exit 1; }
features=$("$root/usr/bin/hearth" version | sed -n 's/^CPU //p')
if [ -d "$root/usr/lib/hearth" ]; then
    built="It has code for all kinds of processors of its architecture, and takes what the machine's can do. Backends of llama.cpp for GPUs are loaded from /usr/lib/hearth, where they have been put."
else
    built="It was built for processors that have: ${features:-nothing in particular}."
fi
{
    sed -e "s#@VERSION@#$version#; s#@ARCHITECTURE@#$architecture#; s#@MAINTAINER@#$maintainer#; s#@DEPENDS@#$depends#" \
        -e "s#@SIZE@#$(du -sk --apparent-size "$root" | cut -f1)#" "$debian/control.in"
    fmt -w 76 <<<"$built" | sed 's/^/ /'
} >"$root/DEBIAN/control"

find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
package=$target/hearth_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
echo "$package"
