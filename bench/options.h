/* Parses the command lines of the workloads by a table of options.
 *
 * Static inline, since each program needs it once. One thread; texts point into argv. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXIT_BAD_USAGE = 2, OPTIONS_MAX = 15 };

/* One of the targets is set, and keeps its value where the option is not given. */
struct option_row {
    const char *name; /* without the dashes */
    long *number;     /* from 1 to a billion */
    const char **text;
    bool *flag; /* takes no value */
};

static inline bool options_number(long *target, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < 1 || value > 1000000000) return false;
    *target = value;
    return true;
}

static inline bool options_set(const struct option_row *row, const char *value)
{
    if (row->flag != NULL) *row->flag = true;
    if (row->text != NULL) *row->text = value;
    if (row->number == NULL || options_number(row->number, value)) return true;
    fprintf(stderr, "--%s must be a number from 1 to a billion, not '%s'\n", row->name, value);
    return false;
}

/* Returns the index in argv of the first argument that is no option, or -1 where one is wrong, after printing the
 * error. The table ends with a row without a name. */
static inline int options_parse(int argc, char **argv, const struct option_row *rows)
{
    struct option list[OPTIONS_MAX + 1] = {{0}};
    for (size_t i = 0; i < OPTIONS_MAX && rows[i].name != NULL; i++) {
        list[i].name = rows[i].name;
        list[i].has_arg = rows[i].flag != NULL ? no_argument : required_argument;
    }
    int id, index = 0;
    while ((id = getopt_long(argc, argv, "", list, &index)) != -1)
        if (id == '?' || !options_set(&rows[index], optarg)) return -1;
    return optind;
}

#endif
