#!/usr/bin/env bash
# Fetches a backend of llama.cpp for GPUs, of the pinned version, and puts it beside the libraries of a portable build, which
# loads it from there: `hearth version` then says whether it can be used. It comes from node-llama-cpp's packages of npm, so
# that nothing has to be compiled.
#
#   scripts/backend.sh vulkan [FOLDER]    for all cards with a Vulkan driver; it needs libvulkan.so.1 (Debian: libvulkan1)
#   scripts/backend.sh cuda [FOLDER]      for NVIDIA's; it needs the driver, libcudart.so.13 and libcublas.so.13
#
# FOLDER is build/portable/lib/hearth, unless named; of the Debian package it is /usr/lib/hearth.
#
# llama.cpp cannot tell whether a backend is of its own version: fetch it again after an update of hearth.
set -euo pipefail

version=3.22.1
name=${1:-}
folder=${2:-$(dirname "$0")/../build/portable/lib/hearth}
say() { printf 'backend: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

case $(uname -m)-$name in
    x86_64-vulkan) integrity=bBxqU+JOcBu1nb5Qj2zcMci+JByT1E8EajHvYodyNfVIPkEhXh+/HMwR1/BT7xP08YK0hks+kM8fglER0P8JEg== ;;
    x86_64-cuda) integrity=8rQCjyNNLZJUFit+YpjwlC4hwkKgOMIkB2wuycKBf8NU2O3ySKbiWZQ8aw9ku2nUTXjSnUIrE6KB88itduTBuA== ;;
    x86_64-*) die "unknown backend '$name': vulkan or cuda" ;;
    *) die "there are none for $(uname -m): build hearth for the GPU (docs/models.md)" ;;
esac
[ -e "$folder/libggml-base.so" ] || die "$folder has no libraries of a portable build: make portable"
command -v npm >/dev/null || die "npm is needed to fetch it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "fetching libggml-$name.so of @node-llama-cpp/linux-x64-$name@$version"
(cd "$work" && npm pack --silent "@node-llama-cpp/linux-x64-$name@$version" >/dev/null) || die "cannot fetch it"
got=$(openssl dgst -sha512 -binary "$work"/*.tgz | base64 -w0)
[ "$got" = "$integrity" ] || die "its integrity is sha512-$got, expected sha512-$integrity"
file=package/bins/linux-x64-$name/libggml-$name.so
tar -xzf "$work"/*.tgz -C "$work" "$file"
install -m 644 "$work/$file" "$folder"
echo "$folder/libggml-$name.so"
