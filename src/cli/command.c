/* Dispatches to a command of a table: see command.h. */
#include "cli/command.h"

#include "base/nearest.h"
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

static void print_usage(const struct command_group *group, FILE *out)
{
    fprintf(out, "Usage: %s COMMAND [options]\n\n%s\n\nCommands:\n", group->program, group->about);
    for (size_t i = 0; i < group->n_commands; i++)
        fprintf(out, "  %-11s %s\n", group->commands[i].name, group->commands[i].summary);
    fprintf(out, "\nExamples:\n%s\n%s COMMAND --help shows its options.\n", group->examples, group->program);
}

static int refuse_command(const struct command_group *group, const char *word)
{
    struct args_list names = {0};
    for (size_t i = 0; i < group->n_commands; i++) args_append(&names, group->commands[i].name);
    const char *nearest = nearest_name(word, names.v, names.len);
    if (nearest)
        fprintf(stderr, "%s: unknown command '%s'; did you mean '%s'?\n", group->program, word, nearest);
    else
        fprintf(stderr, "%s: unknown command '%s'; see %s --help\n", group->program, word, group->program);
    args_release(&names);
    return EXIT_USAGE;
}

static int observe_group(const struct command_group *group)
{
    const struct args_observer *observer = args_observer();
    observer->on_group(observer->ud, group);
    char *no_words[] = {NULL};
    for (size_t i = 0; i < group->n_commands; i++) group->commands[i].run(0, no_words);
    return EXIT_FINE;
}

int command_dispatch(const struct command_group *group, int argc, char **argv)
{
    if (args_observer() != NULL) return observe_group(group);
    if (argc < 1) {
        print_usage(group, stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0 || strcmp(argv[0], "help") == 0) {
        print_usage(group, stdout);
        return EXIT_FINE;
    }
    for (size_t i = 0; i < group->n_commands; i++)
        if (strcmp(argv[0], group->commands[i].name) == 0) return group->commands[i].run(argc - 1, argv + 1);
    return refuse_command(group, argv[0]);
}
