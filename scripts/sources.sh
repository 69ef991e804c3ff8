#!/usr/bin/env bash
# Prints hearth's own C and C++ files, one a line; the folders may be narrowed: scripts/sources.sh src
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- include src tools tests bench examples
find "$@" -name node_modules -prune -o -type f \( -name '*.c' -o -name '*.h' -o -name '*.cpp' \) -print | LC_ALL=C sort
