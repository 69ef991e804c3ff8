/* The command line: the commands of the program, their options, help and errors, all from tables.
 *
 * A command is a row of a group; the options of a command are one table, from which they are parsed and --help is
 * printed. Options are written --name VALUE or --name=VALUE; `--` ends them. Every command has --help. All strings are
 * borrowed from argv or from the tables. Main thread only. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "hearth.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Exit statuses of the program. The last is a shell's for a command that Ctrl-C ended. */
enum { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

struct args_list {
    const char **v;
    size_t len;
};

/* An option has a value, which goes into exactly one of `text` (the last one given counts) and `list`; or it has none,
 * and sets `flag`. */
struct args_option {
    const char *name;    /* without the dashes */
    const char *value;   /* the name of its value in the help; NULL: a flag */
    const char *meaning; /* for the help, one line */
    const char **text;
    struct args_list *list;
    bool *flag;
    const char
        *choices; /* words that the value may be, separated by bars, commas or blanks, for completions; NULL: any */
};

struct args_spec {
    const char *command;               /* "hearth serve" */
    const char *about;                 /* what it does, for the help */
    const struct args_option *options; /* may be NULL */
    size_t n_options;
    const char *operand; /* the name of the one operand in the help; NULL: there is none */
    const char **operand_value;
    bool operand_is_optional;
    const char *second; /* the name of an operand that may follow it; NULL: none may */
    const char **second_value;
    const char *operand_choices; /* as an option's choices */
    const char *examples;        /* for the help, whole lines */
};

#define ARGS_OPTIONS(table) .options = (table), .n_options = sizeof(table) / sizeof *(table)

void args_append(struct args_list *list, const char *value);
void args_release(struct args_list *list);

/* Stores the values through the table's pointers. With --help `*help` is set and nothing is checked. Returns 0 or
 * HEARTH_INVALID with a message that names the nearest option. */
int args_parse(const struct args_spec *spec, int argc, char **argv, bool *help, hearth_error *error);

/* The same, and prints help or the error. False: the command ends with *status. */
bool args_read(const struct args_spec *spec, int argc, char **argv, int *status);

/* While there is an observer, commands only describe themselves. args_read() passes it the command's table, which lives
 * for the call, and returns false. command_dispatch() passes it a group and then calls all commands of the group. Shell
 * completions are made so. */
struct command_group;

struct args_observer {
    void (*on_command)(void *ud, const struct args_spec *spec);
    void (*on_group)(void *ud, const struct command_group *group);
    void *ud;
};

void args_observe(const struct args_observer *observer); /* NULL: commands run */

/* Prints one line to stderr, "hearth serve: message", and returns the status, for the command to end with. Control
 * characters are shown as escapes. */
int args_fail(const char *command, const hearth_error *error, int status);

/* ---- Commands ---- */

struct command {
    const char *name;
    const char *summary;               /* one line for the list of commands */
    int (*run)(int argc, char **argv); /* the words after its name */
};

struct command_group {
    const char *program; /* the words before the command's name: "hearth", "hearth model" */
    const char *about;
    const char *examples; /* whole lines */
    const struct command *commands;
    size_t n_commands;
};

#define ARGS_COMMANDS(table) .commands = (table), .n_commands = sizeof(table) / sizeof *(table)

/* Runs the command named by argv[0]. Without one, prints the list of commands to stderr and returns EXIT_USAGE. */
int command_dispatch(const struct command_group *group, int argc, char **argv);

/* The program itself: main.c. */
extern const struct command_group command_program;

int command_serve(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_run(int argc, char **argv);
int command_pull(int argc, char **argv);
int command_models(int argc, char **argv);
int command_rm(int argc, char **argv);
int command_launch(int argc, char **argv);
int command_ps(int argc, char **argv);
int command_stop(int argc, char **argv);
int command_model(int argc, char **argv);
int command_fit(int argc, char **argv);
int command_completions(int argc, char **argv);
int command_kv(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_config(int argc, char **argv);

/* ---- JSON ---- */

static inline struct args_option json_output_option(bool *flag)
{
    return (struct args_option){.name = "json", .meaning = "print a JSON object", .flag = flag};
}

/* Prints it to standard output, indented, and lets go of it. */
void json_output_print(json_t *json);

#endif
