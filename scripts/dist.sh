#!/usr/bin/env bash
# Makes what a release consists of, in build/dist: the sources of the commit that is checked out, the Debian package, the
# tarball of the server, the Homebrew formula of these sources, and SHA256SUMS of all.
#
# HEARTH_RELEASES=URL   the folder where releases lie, for the formula
set -euo pipefail
cd "$(dirname "$0")/.."

[ -z "$(git status --porcelain --untracked-files=no)" ] || {
    echo "dist: files differ from the commit: commit them first, since the archive has the commit's" >&2
    exit 1
}
version=$(sed -n 's/^project(hearth VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
rm -rf build/dist
mkdir -p build/dist
git archive --prefix="hearth-$version/" HEAD | gzip -9n >"build/dist/hearth-$version.tar.gz"
scripts/deb.sh build/dist >/dev/null
scripts/tarball.sh build/dist >/dev/null
scripts/formula.sh "build/dist/hearth-$version.tar.gz" >build/dist/hearth.rb
cd build/dist
sha256sum -- * >SHA256SUMS
cat SHA256SUMS
