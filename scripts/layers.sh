#!/usr/bin/env bash
# Checks which folder of src/ includes which: the tables below are the whole truth. Every folder may include its own
# headers, the system's, and hearth.h; files beside rooms may include those of all of them. tools/, tests/ and bench/ are
# free.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed() {
    case $1 in
        base) echo '' ;;
        grammar | media | http | chat) echo base ;;
        llm) echo base grammar ;;
        config) echo base store ;; # the table of tiers alone
        store) echo base ;;
        draft) echo base ;;
        engine) echo base llm store draft ;;
        embed) echo base llm ;;
        instance) echo base config llm chat media store engine embed ;;
        serve) echo base http pull ;;
        pull) echo base ;;
        cli) echo base serve pull ;;
        *) return 1 ;;
    esac
}

# Rooms of one folder, in the order of what they build on.
room_allowed() {
    case $1 in
        store/slabs) echo '' ;;
        store/index | store/backends) echo store/slabs ;;
        store/remote) echo store/slabs store/backends ;;
        instance/parameters | instance/media | instance/events) echo '' ;;
        instance/models) echo instance/parameters instance/media instance/events ;;
        instance/requests) echo instance/parameters instance/media instance/events instance/models ;;
        instance/reports) echo instance/models ;;
        cli/chat) echo cli ;; # what commands share
        serve/tracing) echo '' ;;
        serve/core) echo serve/tracing ;;
        serve/fields | serve/events) echo serve/core ;;
        serve/pulls) echo serve/core serve/fields ;;
        serve/embeddings | serve/anthropic | serve/responses) echo serve/core serve/fields ;;
        serve/ollama) echo serve/core serve/fields serve/embeddings serve/pulls ;;
        serve/status) echo serve/tracing serve/core serve/fields serve/anthropic serve/responses serve/ollama ;; # lookups have any body
        serve/page) echo serve/core serve/status ;;
        serve/native) echo serve/core serve/fields serve/responses serve/status ;;
        serve/openai) echo serve/core serve/fields serve/native ;; # with "__verbose" both forms
        *) return 1 ;;
    esac
}

# llama.cpp stays behind src/llm; the C++ shim of src/chat sees its helper library as well.
llama='^(llama|ggml|gguf|mtmd)[a-z-]*\.h(pp)?$'

bad=0
complain() {
    printf '%s\n' "$*"
    bad=1
}

for path in src/*/; do
    folder=$(basename "$path")
    if ! others=$(allowed "$folder"); then
        complain "src/$folder: not in the table of scripts/layers.sh"
        continue
    fi
    while IFS=: read -r file line text; do
        room=${file%/*} room=${room#src/}
        [[ $text =~ [\<\"]([^\>\"]+) ]] || continue
        name=${BASH_REMATCH[1]}
        top=${name%%/*}
        if [[ $name =~ $llama ]]; then
            [ "$folder" = llm ] || [ "$folder" = chat ] ||
                complain "$file:$line: $name is llama.cpp's; only src/llm and the shim in src/chat may include it"
        elif [ "$top" != "$name" ] && [ -d "src/$top" ] && [ "$top" != "$folder" ]; then
            [[ " $others " == *" $top "* ]] || complain "$file:$line: src/$folder may not include src/$top ($name)"
        elif [ "$room" != "$folder" ] && [ "$top" = "$folder" ] && [ "${name%/*}" != "$room" ]; then
            rooms=$(room_allowed "$room") || { complain "src/$room: not in the table of scripts/layers.sh"; continue; }
            [[ " $rooms " == *" ${name%/*} "* ]] || complain "$file:$line: src/$room may not include $name"
        fi
    done < <(grep -nHE '^[[:space:]]*#[[:space:]]*include' -r "$path" || true)
done
# A file is known by its name, in comments and in conversation.
while read -r name; do
    complain "$(echo $(find src -name "$name")): files of one name in several folders"
done < <(find src -type f -printf '%f\n' | sort | uniq -d)
# Numbers of clients keep their digits in base/json_text.h alone. status.c writes numbers of its own, shortened.
while IFS=: read -r file line _; do
    complain "$file:$line: jansson reads and writes JSON text here; base/json_text.h does that for clients' numbers"
done < <(grep -nHEr '\bjson_(load|dump)[a-z_]*\(|\bjson_is_object\(' src/serve src/instance | grep -v '^src/serve/status/status.c:' || true)
# What llama.cpp does not promise is listed in docs/llama-internals.md, and only the files that are listed rely on it: its
# internal headers, its log, the bytes of its states, the text of its helpers' grammars and errors.
while read -r file; do
    grep -qF "\`$file\`" docs/llama-internals.md || complain "$file: relies on llama.cpp's internals; docs/llama-internals.md does not list it"
done < <(grep -lEr '<llama-|_log_set\(|llama_state_seq_|LLM_HEADER_BYTES|grammar\.(find|compare|erase)\(|what\.(find|compare)\(|jinja::statement\b' src/llm src/chat)
while read -r file; do
    [ -e "$file" ] || complain "docs/llama-internals.md: no file $file"
done < <(grep -oE '`(src|tests)/[^`]+`' docs/llama-internals.md | tr -d '`' | sort -u)
while IFS=: read -r file line _; do
    complain "$file:$line: a text of llama.cpp's log is read; src/llm/llama_log.c does that"
done < <(grep -nHEr 'strstr\([^)]*(reason|captured)' src/llm | grep -v '^src/llm/llama_log.c:' || true)
# Which tiers there are is the store's business.
while IFS=: read -r file line _; do
    complain "$file:$line: a tier is named outside src/store; loop over STORE_TIERS"
done < <(grep -nHEr 'STORE_(RAM|RAM_FILE|DISK|REMOTE)\b|"(ram|ram_file|disk|remote)"' src include --include='*.[ch]' --include='*.cpp' |
    grep -v '^src/store/' || true)
# What Linux has and others have not is asked for by base/os.h. (base/os_linux.c, base/os_confine_linux.c and base/os_bsd.c; the texts of
# config/table.c may name it.)
linux='sys/(eventfd|signalfd|prctl|random|syscall|epoll|inotify|timerfd|event|sysctl)\.h|linux/|malloc\.h|asm/'
calls='eventfd|signalfd|sigtimedwait|memfd_create|prctl|unshare|close_range|pidfd_open|openat2|sched_[gs]etaffinity|pthread_[gs]etaffinity_np|getrandom|pipe2|accept4|strerrordesc_np|malloc_usable_size|malloc_trim|memrchr|mempcpy|strchrnul|qsort_r|gettid|posix_fadvise|madvise|fdatasync|sync_file_range|fallocate|posix_fallocate|copy_file_range|inotify_\w+|epoll_\w+|timerfd_\w+|syscall|renameat2|ppoll|dup3|secure_getenv|pthread_condattr_setclock|pthread_setname_np|clock_nanosleep|kqueue|sysctlbyname|newlocale|uselocale|strtod_l|strerror_r'
names='O_PATH|O_TMPFILE|O_DIRECT|SOCK_CLOEXEC|SOCK_NONBLOCK|MSG_NOSIGNAL|MSG_CMSG_CLOEXEC|SO_PEERCRED|POLLRDHUP|SCHED_BATCH|MADV_\w+|MAP_NORESERVE|CPU_SET\w*|CPU_ISSET|cpu_set_t|st_[amc]tim|RUSAGE_THREAD|EUCLEAN|PTHREAD_MUTEX_ADAPTIVE_NP|SYS_\w+|PR_[A-Z]+_\w+'
while IFS=: read -r file line _; do
    complain "$file:$line: a system's own call or name; base/os.h has these"
done < <(grep -nHEr "#include <($linux)|\b($calls)\(|\b($names)\b|\"/(proc|sys)/" src --include='*.[ch]' --include='*.cpp' | grep -vE '^src/(base/os(_linux|_confine_linux|_bsd)?\.[ch]|config/table\.c):' || true)
exit $bad
