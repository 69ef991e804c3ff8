/* Command lines: a command's options stand in one table, which parses them and prints their help.
 *
 * Options are written --name VALUE or --name=VALUE; `--` ends them. Every command has --help. All strings are borrowed
 * from argv or from the table. Only the main thread comes here. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>

/* What a program says to its caller by ending. */
enum { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct args_list {
    const char **v;
    size_t len;
};

/* An option takes a value and puts it into exactly one of `text` (the last one given holds) and `list`; or it takes
 * none, and sets `flag`. */
struct args_option {
    const char *name;    /* without the dashes */
    const char *value;   /* what the help calls its value; NULL: of a flag */
    const char *meaning; /* for the help, one line */
    const char **text;
    struct args_list *list;
    bool *flag;
};

struct args_spec {
    const char *command;               /* "hearth serve" */
    const char *about;                 /* what it does, for the help */
    const struct args_option *options; /* may be NULL */
    size_t n_options;
    const char *operand; /* what the help calls the one operand, which must be given; NULL: there is none */
    const char **operand_value;
    const char *examples; /* for the help, whole lines */
};

void args_append(struct args_list *list, const char *value);
void args_release(struct args_list *list);

/* Fills in what the table points at. `*help` is set, and nothing else checked, where --help was given. Returns 0 or
 * HEARTH_INVALID with a message that names the nearest option. */
int args_parse(const struct args_spec *spec, int argc, char **argv, bool *help, hearth_error *error);

/* The same for a command's first line: prints help or fault. False: the command ends with *status. */
bool args_read(const struct args_spec *spec, int argc, char **argv, int *status);

/* Prints one line, "hearth serve: message", and returns the status, for the command to end with. */
int args_fail(const char *command, const hearth_error *error, int status);

#endif
