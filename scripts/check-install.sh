#!/usr/bin/env bash
# Installs into an empty folder and uses what lies there as a packager and a user would: the programs run from their new
# place, and a small program is linked to the shared and to the static library through pkg-config and run.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
DESTDIR=$root cmake --install build --prefix /usr >/dev/null
usr=$root/usr
export HEARTH_CONFIG= XDG_CACHE_HOME= # nothing of this machine counts

for file in bin/hearth bin/hearth-mkmodel include/hearth.h include/hearth_sampling.h lib/libhearth.a lib/libhearth.so lib/pkgconfig/hearth.pc \
    lib/systemd/system/hearth.service lib/systemd/system/hearth.socket share/hearth/models/demo.gguf \
    share/doc/hearth/grafana/hearth.json \
    share/doc/hearth/prometheus/hearth.rules.yml share/man/man1/hearth.1 share/man/man1/hearth-mkmodel.1 share/man/man5/hearth.yaml.5 \
    share/bash-completion/completions/hearth share/zsh/site-functions/_hearth share/fish/vendor_completions.d/hearth.fish; do
    [ -s "$usr/$file" ] || { echo "not installed: $file"; exit 1; }
done
service=$usr/lib/systemd/system/hearth.service
for line in 'ExecStart=/usr/bin/hearth ' MemoryDenyWriteExecute=yes CacheDirectory=hearth LimitNOFILE= '#MemoryMax=' RestartSec=5; do
    grep -q "^$line" "$service" || { echo "hearth.service lacks $line"; exit 1; }
done
if command -v systemd-analyze >/dev/null; then
    sed "s|=/usr/bin|=$usr/bin|" "$service" >"$root/hearth.service"
    cp "$usr/lib/systemd/system/hearth.socket" "$root"
    systemd-analyze verify --man=no "$root/hearth.service" "$root/hearth.socket" || { echo "hearth.service has a fault"; exit 1; }
fi

foreign=$(nm -D --defined-only "$usr/lib/libhearth.so" | grep -vE ' (hearth_[a-z_]+|HEARTH_0)(@@.*)?$' || true)
foreign+=$(nm --defined-only --extern-only "$usr/lib/libhearth.a" | grep -E ' [A-Zuvw] ' | grep -v ' hearth_' || true)
[ -z "$foreign" ] || { printf 'the library exports more than hearth_*:\n%s\n' "$foreign" | head; exit 1; }

# A name of hearth's inside must not clash with the program's.
cat >"$root/use.c" <<'PROGRAM'
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>

int log_open(void) { return 7; }

int main(int argc, char **argv)
{
    hearth_error error = {0};
    char *report = argc > 1 ? hearth_model_report(argv[1], &error) : NULL;
    if (report) puts(report); else fputs(error.message, stderr);
    hearth_free(report);
    return report && log_open() == 7 ? 0 : 1;
}
PROGRAM
export PKG_CONFIG_PATH=$usr/lib/pkgconfig
# shellcheck disable=SC2046 # flags are words
{
    cc -o "$root/shared" "$root/use.c" $(pkg-config --cflags --libs hearth)
    cc -o "$root/static" "$root/use.c" $(pkg-config --cflags --libs --static hearth | sed 's/-lhearth/-l:libhearth.a/')
}
LD_LIBRARY_PATH=$usr/lib "$root/shared" "$usr/share/hearth/models/demo.gguf" | grep -q '^architecture *llama'
"$root/static" "$usr/share/hearth/models/demo.gguf" | grep -q '^architecture *llama'

# Every example is compiled as its first lines say, and says what it should. None may store in the user's folder.
says() { # PATTERN NAME ARGUMENT...
    local pattern=$1 name=$2
    shift 2
    # shellcheck disable=SC2046 # flags are words
    cc -Wall -Wextra -Werror -o "$root/$name" "$usr/share/doc/hearth/examples/$name.c" $(pkg-config --cflags --libs hearth)
    HOME=$root LD_LIBRARY_PATH=$usr/lib "$root/$name" "$usr/share/hearth/models/demo.gguf" "$@" >"$root/out" 2>"$root/err" ||
        { cat "$root/err"; echo "examples/$name.c fails"; exit 1; }
    grep -qE "$pattern" "$root/out" || { cat "$root/out"; echo "examples/$name.c does not say $pattern"; exit 1; }
    used+=" $name"
}
used=
says '[a-z]{3}' chat 'Who are you?'
says '^(Ada|Bea) says: [0-9]+ tokens computed, [1-9][0-9]+ cached$' several # whichever came second
says '^they diverge after [1-9][0-9]* tokens .*, before "[^"]' lookup 'Once upon a time there was' 'Once upon a hill there was'
for example in "$usr"/share/doc/hearth/examples/*.c; do
    [[ "$used " == *" $(basename "$example" .c) "* ]] || { echo "$example is compiled by nobody"; exit 1; }
done

echo 'What is a prompt cache?' | HOME=$root "$usr/bin/hearth" chat >/dev/null
