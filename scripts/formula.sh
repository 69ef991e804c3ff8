#!/usr/bin/env bash
# Prints the Homebrew formula (packaging/homebrew) of an archive of the sources, as scripts/dist.sh makes it.
#
#   scripts/formula.sh ARCHIVE
#
# HEARTH_RELEASES=URL   the folder where releases lie (that of the archive, for a try on this machine)
set -euo pipefail

archive=$(realpath "$1")
name=$(basename "$archive")
releases=${HEARTH_RELEASES:-file://$(dirname "$archive")}
sed -e "s#@HOMEPAGE@#$releases#; s#@URL@#$releases/$name#; s#@SHA256@#$(sha256sum "$archive" | cut -d' ' -f1)#" \
    "$(dirname "$0")/../packaging/homebrew/hearth.rb.in"
