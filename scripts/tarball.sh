#!/usr/bin/env bash
# Makes a tarball of the server that starts on any Linux of this architecture, in build/dist: the portable build with the
# libraries that it needs. Where the system's C library is older than this machine's, it is started with the one that is
# inside. It is unpacked anywhere, and writes nothing there. Prints the tarball's path.
#
#   scripts/tarball.sh [FOLDER]      into FOLDER (build/dist), of what is in build/portable
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(mkdir -p "${1:-build/dist}" && cd "${1:-build/dist}" && pwd)
version=$(sed -n 's/^project(hearth VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
name=hearth-$version-linux-$(uname -m)
die() { echo "tarball: $*" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
[ -d build/portable/lib/hearth ] || die "build/portable is not there: make portable"
DESTDIR=$work cmake --install build/portable --prefix /all >/dev/null
root=$work/$name
install -d "$root/bin" "$root/lib/hearth" "$root/lib/hearth/c" "$root/share/hearth/models" "$root/share/doc"
install -D -s "$work/all/bin/hearth" "$root/libexec/hearth"
cp -P "$work"/all/lib/hearth/*.so* "$root/lib/hearth"
cp "$work/all/share/hearth/models/demo.gguf" "$root/share/hearth/models"
cp -r "$work/all/share/man" "$work/all/share/bash-completion" "$work/all/share/zsh" "$work/all/share/fish" "$root/share"
cp packaging/debian/copyright "$root/share/doc/copyright"
cp CHANGELOG.md "$root/share/doc"

# The C library and what GPU drivers are linked to beside it are the system's, where these are new enough: drivers are made
# for them.
loader=$(ldd "$root/libexec/hearth" | sed -nE 's/^\s*(\/\S*ld-linux\S*) .*/\1/p')
while read -r path; do
    case $path in
        "$root"/*) ;;
        */libc.so.* | */libm.so.* | */libdl.so.* | */libpthread.so.* | */librt.so.* | */libresolv.so.* | */libstdc++.so.* | */libgcc_s.so.*)
            install -m 644 "$path" "$root/lib/hearth/c" ;;
        *) install -m 644 "$path" "$root/lib/hearth" ;;
    esac
done < <(ldd "$root/libexec/hearth" "$root"/lib/hearth/*.so | sed -nE 's/^.* => (\/\S+) .*/\1/p' | sort -u)
for library in libnss_dns.so.2 libnss_files.so.2; do # of names of machines, where the C library is the one that is inside
    path=$(dirname "$(readlink -f "$loader")")/$library
    [ ! -e "$path" ] || install -m 644 "$path" "$root/lib/hearth/c"
done
install -m 755 "$loader" "$root/libexec/ld.so"
find "$root/lib/hearth" -maxdepth 1 -type f -exec strip --strip-unneeded {} +

glibc=$(getconf GNU_LIBC_VERSION | sed 's/.* //')
cat >"$root/bin/hearth" <<END
#!/bin/sh
# Starts hearth, with the C library of the system or, where that is older than $glibc, with the one in lib/hearth/c.
program=\$(readlink -f "\$0")
root=\${program%/bin/hearth}
export HEARTH_PROGRAM="\$program"
if [ -z "\${SSL_CERT_FILE:-}" ] && [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then # where libcurl was told to look
    for file in /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
        [ ! -e "\$file" ] || { export SSL_CERT_FILE="\$file"; break; }
    done
fi
have=\$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
[ -n "\$have" ] || have=0
has_library() {
    for folder in /lib /lib64 /usr/lib /usr/lib64 /lib/$(uname -m)-linux-gnu /usr/lib/$(uname -m)-linux-gnu; do
        [ ! -e "\$folder/\$1" ] || return 0
    done
    return 1
}
if [ "\$(printf '%s\n' $glibc "\$have" | sort -V | head -n 1)" = $glibc ] && has_library libstdc++.so.6; then
    exec "\$root/libexec/hearth" "\$@"
fi
exec "\$root/libexec/ld.so" --library-path "\$root/lib/hearth:\$root/lib/hearth/c" "\$root/libexec/hearth" "\$@"
END
chmod 755 "$root/bin/hearth"
"$root/bin/hearth" version >/dev/null || die "what was packed does not start"
# The other way, too.
"$root/libexec/ld.so" --library-path "$root/lib/hearth:$root/lib/hearth/c" "$root/libexec/hearth" version >/dev/null || die "it does not start with its own C library"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -czf "$target/$name.tar.gz" "$name"
echo "$target/$name.tar.gz"
