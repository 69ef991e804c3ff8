# Says which tests of a file are not there, and which assert nothing. Read by scripts/checklist.sh:
#
#   awk -f scripts/asserts.awk -v names="NAME\nNAME..." TEST-FILE HELPER-FILE...
#
# A test asserts when what it is made of names an assertion (cmocka's assert_, fail and expect_, Node's assert), or a
# function of these files that does. What belongs to a test or a function is told by indentation, which formatters keep.

function indentation(text) {
    match(text, /^ */)
    return RLENGTH
}

# The identifiers of a text are added to those of a function. An assertion of cmocka's is a call, and none of its own.
function add_words(owner, text,    word, rest) {
    gsub(/\/\/.*|\/\*[^*]*\*\//, "", text)
    while (match(text, /[A-Za-z_$][A-Za-z0-9_$]*/)) {
        word = substr(text, RSTART, RLENGTH)
        rest = text = substr(text, RSTART + RLENGTH)
        if (script ? word == "assert" : word ~ /^(assert_[a-z_]+|fail|fail_msg|expect_[a-z_]+|check_expected[a-z_]*)$/ && rest ~ /^ ?\(/)
            says[owner, word] = 1
        words[owner, ++n_words[owner]] = word
    }
}

function define(name) {
    if (!(name in defined_in)) defined_in[name] = FILENAME
    return defined_in[name] == FILENAME ? name : "" # the test's own comes first
}

# ---- C: functions begin and end at the left margin, macros where no backslash is left ----

function read_c() {
    if (in_macro != "" || /^#define [A-Za-z_0-9]+\(/) {
        if (in_macro == "") {
            match($0, /^#define [A-Za-z_0-9]+/)
            in_macro = define(substr($0, 9, RLENGTH - 8))
        }
        if (in_macro != "") add_words(in_macro, $0)
        if ($0 !~ /\\$/) in_macro = ""
    } else if (owner != "") {
        if (/^}/) owner = ""
        else add_words(owner, $0)
    } else if (/^{/) {
        owner = candidate == "" ? "" : define(candidate)
        candidate = ""
    } else if (/^[A-Za-z_].*\(/) {
        match($0, /[A-Za-z_0-9]+\(/)
        candidate = /;$/ ? "" : substr($0, RSTART, RLENGTH - 1)
    }
}

# ---- JavaScript: what is begun on a line ends where a bracket closes on its indentation ----

function opens(text) {
    return text ~ /[{([]$/
}

function close_scripts(    depth) {
    depth = indentation($0)
    while (n_open > 0 && (depth < open_at[n_open] || (depth == open_at[n_open] && /^ *[})\]]/))) {
        add_words(open_name[n_open], $0)
        n_open--
    }
}

function open_script(name) {
    if (name == "") return
    add_words(name, $0)
    if (!opens($0)) return
    open_name[++n_open] = name
    open_at[n_open] = indentation($0)
}

function read_script(    i, name) {
    if ($0 == "") return
    close_scripts()
    for (i = 1; i <= n_open; i++) add_words(open_name[i], $0)
    for (i = 1; i <= n_wanted; i++)
        if (FILENAME == first && index($0, wanted[i])) open_script(define("test " i))
    if (match($0, /(function\*? |const )[A-Za-z_$0-9]+/)) {
        name = substr($0, RSTART, RLENGTH)
        sub(/.* /, "", name)
        if (/function|=>/) open_script(define(name))
    } else if (match($0, /^ +(async |static )*\*?[A-Za-z_$0-9]+\(.*\) {$/)) {
        name = $0
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        if (name !~ /^(if|for|while|switch|catch)$/) open_script(define(name))
    }
}

BEGIN {
    n_wanted = split(names, wanted, "\n")
    first = ARGV[1]
    script = first ~ /\.js$/
}

FNR == 1 { owner = candidate = in_macro = ""; n_open = 0 }
{ if (script) read_script(); else read_c() }

# ---- From each test to what it names ----

function asserts(name,    i, word) {
    if (name in seen) return 0
    seen[name] = 1
    for (i = 1; i <= n_words[name]; i++) {
        word = words[name, i]
        if ((name, word) in says && !(word in defined_in)) return 1
        if (word in defined_in && asserts(word)) return 1
    }
    return 0
}

END {
    for (i = 1; i <= n_wanted; i++) {
        name = script ? "test " i : wanted[i]
        delete seen
        if (!(name in defined_in) || defined_in[name] != first) print "no test '" wanted[i] "' in " first
        else if (!asserts(name)) print "the test '" wanted[i] "' in " first " asserts nothing"
    }
}
