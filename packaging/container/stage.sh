#!/usr/bin/env bash
# Puts together what the image has beside Debian's packages, and the list of these.
#
#   packaging/container/stage.sh INSTALLED IMAGE     INSTALLED: DESTDIR of `make install PREFIX=/usr`
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
installed=$1 image=$2

install -D -s "$installed/usr/bin/hearth" "$image/usr/bin/hearth"
install -D -m 644 "$installed/usr/share/hearth/models/demo.gguf" "$image/usr/share/hearth/models/demo.gguf"
install -D -m 644 "$here/hearth.yaml" "$image/etc/hearth/hearth.yaml"
install -D -m 644 "$here/../debian/copyright" "$image/usr/share/doc/hearth/copyright"

# The packages of the libraries that the program is linked to, without their namesakes of 32 bits. That of NVIDIA's driver
# comes from the machine.
mapfile -t libraries < <(ldd "$installed/usr/bin/hearth" | awk '$3 ~ /^\// && $1 !~ /^libcuda\./ { print "*/" $1 }')
dpkg -S "${libraries[@]}" | sed '/\/libx\?32\//d; s/:.*//' | sort -u >"$image/usr/share/doc/hearth/packages"
