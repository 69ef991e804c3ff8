/* hearth completions: prints a shell's completions, made of the tables of all commands: their options, what values may
 * be, and the keys of the configuration. Main thread.
 *
 * Each shell writes a part for a group of commands and one for a command, in the order in which args_observe() shows
 * them. */
#include "base/buf.h"
#include "base/error.h"
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

#define COMMAND "hearth completions"

/* ---- What a value may be ---- */

enum value_kind { VALUE_ANY, VALUE_FILE, VALUE_KEY, VALUE_CHOICE };

static enum value_kind kind_of(const char *name, const char *choices)
{
    if (choices != NULL) return VALUE_CHOICE;
    if (strcmp(name, "KEY=VALUE") == 0) return VALUE_KEY;
    return strstr(name, "FILE") != NULL || strstr(name, "PATH") != NULL ? VALUE_FILE : VALUE_ANY;
}

/* Appends the choices, separated by blanks. */
static void put_choices(struct buf *out, const char *choices)
{
    static const char separators[] = "|, ";
    for (const char *at = choices + strspn(choices, separators); *at != '\0';) {
        size_t len = strcspn(at, separators);
        if (at != choices) buf_puts(out, " ");
        buf_append(out, at, len);
        at += len;
        at += strspn(at, separators);
    }
}

/* Appends the keys of the configuration, those of models without "models.*.", separated by blanks. */
static void put_keys(struct buf *out)
{
    static const char of_models[] = "models.*.";
    const char *key;
    for (size_t i = 0; (key = hearth_config_key(i)) != NULL; i++) {
        bool in_model = strncmp(key, of_models, sizeof of_models - 1) == 0;
        buf_printf(out, "%s%s", i > 0 ? " " : "", in_model ? key + sizeof of_models - 1 : key);
    }
}

/* Appends the words of a command, "hearth kv ls", joined by a character; without the first. */
static void put_path(struct buf *out, const char *command, char joint)
{
    const char *rest = strchr(command, ' ');
    for (rest = rest == NULL ? "" : rest + 1; *rest != '\0'; rest++)
        buf_printf(out, "%c", *rest == ' ' ? joint : *rest);
}

/* Appends a text for a place between single quotes; `special` are characters that get a backslash. */
static void put_quoted(struct buf *out, const char *text, const char *quote, const char *special)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            buf_puts(out, quote);
        else if (*text == '\n')
            buf_puts(out, " ");
        else
            buf_printf(out, "%s%c", strchr(special, *text) != NULL ? "\\" : "", *text);
    }
}

/* ---- bash ---- */

static void bash_begin(struct buf *out)
{
    buf_puts(out, "# Completions of hearth for bash, made by: " COMMAND " bash\n\n_hearth_keys=\"");
    put_keys(out);
    buf_puts(out, "\"\n\n"
                  "# Of the command $1, after the word $2: what the value of that option is, or else the options, the\n"
                  "# words and the kind of operand that may follow.\n"
                  "_hearth_table()\n"
                  "{\n"
                  "    value= options=--help words= operand=\n"
                  "    case $1 in\n");
}

static void bash_group(struct buf *out, const struct command_group *group)
{
    buf_puts(out, "    '");
    put_path(out, group->program, ' ');
    buf_puts(out, "')\n        words='");
    for (size_t i = 0; i < group->n_commands; i++) buf_printf(out, "%s%s", i > 0 ? " " : "", group->commands[i].name);
    buf_puts(out, "' ;;\n");
}

/* As a shell's word: a kind, or choices after "choice". */
static void bash_kind(struct buf *out, const char *name, const char *choices)
{
    static const char *const kinds[] = {"any", "file", "key", "choice "};
    enum value_kind kind = kind_of(name, choices);
    buf_printf(out, "'%s", kinds[kind]);
    if (kind == VALUE_CHOICE) put_choices(out, choices);
    buf_puts(out, "'");
}

static void bash_command(struct buf *out, const struct args_spec *spec)
{
    buf_puts(out, "    '");
    put_path(out, spec->command, ' ');
    buf_puts(out, "')\n        options='");
    for (size_t i = 0; i < spec->n_options; i++) buf_printf(out, "--%s ", spec->options[i].name);
    buf_puts(out, "--help'\n");
    if (spec->operand != NULL) {
        buf_puts(out, "        operand=");
        bash_kind(out, spec->operand, spec->operand_choices);
        buf_puts(out, "\n");
    }
    buf_puts(out, "        case $2 in\n");
    for (size_t i = 0; i < spec->n_options; i++) {
        const struct args_option *option = &spec->options[i];
        if (option->value == NULL) continue;
        buf_printf(out, "        --%s) value=", option->name);
        bash_kind(out, option->value, option->choices);
        buf_puts(out, " ;;\n");
    }
    buf_puts(out, "        esac ;;\n");
}

/* Bash makes words of their own of '='. compopt fails outside of a completion, as in tests. */
static void bash_end(struct buf *out)
{
    buf_puts(out,
             "    *) return 1 ;;\n"
             "    esac\n"
             "}\n\n"
             "# Sets COMPREPLY to what the kind $1 offers.\n"
             "_hearth_offer()\n"
             "{\n"
             "    case $1 in\n"
             "    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
             "    key) compopt -o nospace 2>/dev/null; mapfile -t COMPREPLY < <(compgen -S = -W \"$_hearth_keys\" -- "
             "\"$cur\") ;;\n"
             "    choice*) mapfile -t COMPREPLY < <(compgen -W \"${1#choice }\" -- \"$cur\") ;;\n"
             "    esac\n"
             "}\n\n"
             "_hearth()\n"
             "{\n"
             "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
             "    local command= i value options words operand\n"
             "    COMPREPLY=()\n"
             "    if [[ $cur == = ]]; then\n"
             "        cur=\n"
             "    elif [[ $before == = ]]; then\n"
             "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
             "    fi\n"
             "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
             "        [[ ${COMP_WORDS[i]} != -- ]] || return 0 # what follows is another program's\n"
             "        _hearth_table \"$command\" ''\n"
             "        [[ \" $words \" != *\" ${COMP_WORDS[i]} \"* ]] || command=${command:+$command }${COMP_WORDS[i]}\n"
             "    done\n"
             "    _hearth_table \"$command\" \"$before\"\n"
             "    if [[ -n $value ]]; then\n"
             "        _hearth_offer \"$value\"\n"
             "    elif [[ $cur == -* ]]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
             "    elif [[ -n $words ]]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
             "    elif [[ ${COMP_WORDS[COMP_CWORD]} != = && ${COMP_WORDS[COMP_CWORD - 1]} != = ]]; then\n"
             "        _hearth_offer \"$operand\"\n"
             "    fi\n"
             "}\n\n"
             "complete -F _hearth hearth\n");
}

/* ---- zsh ---- */

static void zsh_begin(struct buf *out)
{
    buf_puts(out, "#compdef hearth\n# Completions of hearth for zsh, made by: " COMMAND " zsh\n\n"
                  "_hearth_keys() {\n    local -a keys\n    keys=(");
    put_keys(out);
    buf_puts(out, ")\n    compadd -q -S = -- $keys\n}\n\n");
}

static void zsh_function(struct buf *out, const char *command)
{
    buf_puts(out, "_hearth");
    if (strchr(command, ' ') != NULL) buf_puts(out, "_");
    put_path(out, command, '_');
    buf_puts(out, "() {\n");
}

static void zsh_group(struct buf *out, const struct command_group *group)
{
    zsh_function(out, group->program);
    buf_puts(out, "    local -a commands\n    commands=(\n");
    for (size_t i = 0; i < group->n_commands; i++) {
        buf_printf(out, "        '%s:", group->commands[i].name);
        put_quoted(out, group->commands[i].summary, "'\\''", ":");
        buf_puts(out, "'\n");
    }
    buf_puts(out, "    )\n"
                  "    if (( CURRENT == 2 )); then\n"
                  "        _describe -t commands command commands\n"
                  "        return\n"
                  "    fi\n"
                  "    shift words\n"
                  "    (( CURRENT-- ))\n"
                  "    case $words[1] in\n");
    for (size_t i = 0; i < group->n_commands; i++) {
        buf_printf(out, "    %s) _hearth_", group->commands[i].name);
        put_path(out, group->program, '_');
        buf_printf(out, "%s%s ;;\n", strchr(group->program, ' ') != NULL ? "_" : "", group->commands[i].name);
    }
    buf_puts(out, "    esac\n}\n\n");
}

static void zsh_value(struct buf *out, const char *name, const char *choices)
{
    static const char *const actions[] = {" ", "_files", "_hearth_keys", NULL};
    enum value_kind kind = kind_of(name, choices);
    buf_printf(out, ":%s:", name);
    if (kind != VALUE_CHOICE) {
        buf_puts(out, actions[kind]);
        return;
    }
    buf_puts(out, "(");
    put_choices(out, choices);
    buf_puts(out, ")");
}

static void zsh_command(struct buf *out, const struct args_spec *spec)
{
    zsh_function(out, spec->command);
    buf_puts(out, "    _arguments -S : \\\n");
    for (size_t i = 0; i < spec->n_options; i++) {
        const struct args_option *option = &spec->options[i];
        buf_printf(out, "        '%s--%s%s[", option->list != NULL ? "*" : "", option->name,
                   option->value != NULL ? "=" : "");
        put_quoted(out, option->meaning, "'\\''", "[]\\");
        buf_puts(out, "]");
        if (option->value != NULL) zsh_value(out, option->value, option->choices);
        buf_puts(out, "' \\\n");
    }
    buf_puts(out, "        '(- :)--help[print help]'");
    if (spec->operand != NULL) {
        buf_puts(out, " \\\n        '1");
        zsh_value(out, spec->operand, spec->operand_choices);
        buf_puts(out, "'");
    }
    buf_puts(out, "\n}\n\n");
}

/* The file is either a function that zsh loads, or read by a user's own start file. */
static void zsh_end(struct buf *out)
{
    buf_puts(out,
             "if [[ $funcstack[1] == _hearth ]]; then\n    _hearth \"$@\"\nelse\n    compdef _hearth hearth\nfi\n");
}

/* ---- fish ---- */

static void fish_begin(struct buf *out)
{
    buf_puts(out, "# Completions of hearth for fish, made by: " COMMAND " fish\n\n"
                  "# Whether the words after hearth are these, options and more words aside.\n"
                  "function __hearth_in\n"
                  "    set -l words (commandline -opc)[2..-1]\n"
                  "    set -l n (count $argv)\n"
                  "    test $n -eq 0; and return 0\n"
                  "    test (count $words) -ge $n; and test \"$words[1..$n]\" = \"$argv\"\n"
                  "end\n\n"
                  "# Whether no word follows these.\n"
                  "function __hearth_after\n"
                  "    test (count (commandline -opc)) -eq (math 1 + (count $argv)); and __hearth_in $argv\n"
                  "end\n\n"
                  "set -g __hearth_keys ");
    put_keys(out);
    buf_puts(out, "\ncomplete -c hearth -f\n");
}

static void fish_condition(struct buf *out, const char *function, const char *command)
{
    buf_printf(out, "complete -c hearth -n '%s ", function);
    put_path(out, command, ' ');
    buf_puts(out, "'");
}

static void fish_group(struct buf *out, const struct command_group *group)
{
    for (size_t i = 0; i < group->n_commands; i++) {
        fish_condition(out, "__hearth_after", group->program);
        buf_printf(out, " -a %s -d '", group->commands[i].name);
        put_quoted(out, group->commands[i].summary, "\\'", "\\");
        buf_puts(out, "'\n");
    }
}

static void fish_value(struct buf *out, const char *name, const char *choices)
{
    enum value_kind kind = kind_of(name, choices);
    if (kind == VALUE_FILE) buf_puts(out, " -F");
    if (kind == VALUE_KEY) buf_puts(out, " -a '$__hearth_keys='");
    if (kind != VALUE_CHOICE) return;
    buf_puts(out, " -a '");
    put_choices(out, choices);
    buf_puts(out, "'");
}

static void fish_command(struct buf *out, const struct args_spec *spec)
{
    for (size_t i = 0; i < spec->n_options; i++) {
        const struct args_option *option = &spec->options[i];
        fish_condition(out, "__hearth_in", spec->command);
        buf_printf(out, " -l %s", option->name);
        bool is_file = option->value != NULL && kind_of(option->value, option->choices) == VALUE_FILE;
        if (option->value != NULL) buf_puts(out, is_file ? " -r" : " -x"); /* -x: and no files */
        if (option->value != NULL) fish_value(out, option->value, option->choices);
        buf_puts(out, " -d '");
        put_quoted(out, option->meaning, "\\'", "\\");
        buf_puts(out, "'\n");
    }
    fish_condition(out, "__hearth_in", spec->command);
    buf_puts(out, " -l help -d 'print help'\n");
    if (spec->operand == NULL || kind_of(spec->operand, spec->operand_choices) == VALUE_ANY) return;
    fish_condition(out, "__hearth_in", spec->command);
    fish_value(out, spec->operand, spec->operand_choices);
    buf_puts(out, "\n");
}

/* ---- The command ---- */

struct shell {
    const char *name;
    void (*begin)(struct buf *out);
    void (*group)(struct buf *out, const struct command_group *group);
    void (*command)(struct buf *out, const struct args_spec *spec);
    void (*end)(struct buf *out); /* NULL: nothing is left to write */
};

static const struct shell shells[] = {
    {"bash", bash_begin, bash_group, bash_command, bash_end},
    {"zsh", zsh_begin, zsh_group, zsh_command, zsh_end},
    {"fish", fish_begin, fish_group, fish_command, NULL},
};

struct output {
    const struct shell *shell;
    struct buf text;
};

static void see_group(void *ud, const struct command_group *group)
{
    struct output *output = ud;
    output->shell->group(&output->text, group);
}

static void see_command(void *ud, const struct args_spec *spec)
{
    struct output *output = ud;
    output->shell->command(&output->text, spec);
}

static int run_completions(const char *name)
{
    hearth_error error;
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, name) != 0) continue;
        struct output output = {.shell = &shells[i]};
        const struct args_observer observer = {.on_group = see_group, .on_command = see_command, .ud = &output};
        shells[i].begin(&output.text);
        args_observe(&observer);
        command_dispatch(&command_program, 0, NULL);
        args_observe(NULL);
        if (shells[i].end != NULL) shells[i].end(&output.text);
        fputs(buf_text(&output.text), stdout);
        buf_release(&output.text);
        return EXIT_FINE;
    }
    error_at(&error, HEARTH_INVALID, "shell", "unknown shell %s: there are bash, zsh and fish", name);
    return args_fail(COMMAND, &error, EXIT_USAGE);
}

int command_completions(int argc, char **argv)
{
    const char *shell = NULL;
    const struct args_spec spec = {
        .command = COMMAND,
        .about = "Prints completions of commands, options and keys for bash, zsh or fish. Packages install them.",
        .operand = "SHELL",
        .operand_value = &shell,
        .operand_choices = "bash|zsh|fish",
        .examples = "  hearth completions bash > ~/.local/share/bash-completion/completions/hearth\n"
                    "  hearth completions zsh > ~/.zfunc/_hearth\n"
                    "  hearth completions fish > ~/.config/fish/completions/hearth.fish\n",
    };
    int status;
    return args_read(&spec, argc, argv, &status) ? run_completions(shell) : status;
}
