#!/usr/bin/env bash
# Fetches what the web page takes from npm, once: the renderers of markdown and of formulas, the sanitiser and the
# highlighter, each one file, with their licences. The last line printed is the folder.
set -euo pipefail

deps=${HEARTH_DEPS:-$HOME/.cache/hearth/deps}
# package@version, the file in it, its name on the page, the integrity of the package
packages='marked@18.2.1 lib/marked.esm.js marked.js ii4bxCTCqqwpT86XZWgJNs+ZnAIZksmLGYMViWA7PDIXYIeNo1x6cDdX3JOip9NM/cI6p8z57FxliACboTruMA==
katex@0.19.1 dist/katex.min.js katex.js jG8uKntjSEcm2EpQOh0XturpPuuC9r3Sq5HLHdsFdWZT27E672SF19QEi+of0/YeOy15lDgRhKvr5614uRrEfA==
dompurify@3.4.18 dist/purify.es.mjs purify.js ofe3wI/uNm68HInABYFJYqQxRw1EaKAjNdrFVKqjUY+UZurvNd2L/HuQe097s/4RivWiZyP6tT7aoT8atjfhwg==
@highlightjs/cdn-assets@11.12.0 es/highlight.min.js highlight.js KvOKXODaiFmId9xaq3xc5xCL66wVLUuOngDbO9B/kewbFTqdGbn2nJxNhN3H5R1cgDTVj6R8vH0zgiNDEGjpDw=='
folder=$deps/page-$(printf '%s' "$packages" | sha256sum | cut -c1-12)

die() { printf 'page: %s\n' "$*" >&2; exit 1; }

fetch() { # package@version, file, name, integrity; into $work
    local archive got
    (cd "$work" && npm pack --silent "$1" >/dev/null) || die "cannot fetch $1"
    archive=("$work"/*.tgz)
    got=$(openssl dgst -sha512 -binary "${archive[0]}" | base64 -w0)
    [ "$got" = "$4" ] || die "integrity of $1 is sha512-$got, expected sha512-$4"
    tar -xzf "${archive[0]}" -C "$work"
    grep -v '^//# sourceMappingURL=' "$work/package/$2" >"$work/files/$3"
    { printf '%s\n\n' "$1"; cat "$work"/package/LICENSE*; printf '\n'; } >>"$work/files/licences.txt"
    rm -r "${archive[0]}" "$work/package"
}

mkdir -p "$deps"
exec 9>"$deps/.page.lock"
flock 9 # two checkouts may fetch at once
if [ ! -e "$folder/licences.txt" ]; then
    command -v npm >/dev/null || die "npm is needed to fetch what the page is made with (scripts/packages.sh installs it)"
    work=$(mktemp -d "$deps/page.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/files"
    while read -r package; do
        # shellcheck disable=SC2086 # four words
        fetch $package
    done <<<"$packages"
    rm -rf "$folder"
    mv "$work/files" "$folder"
fi
echo "$folder"
