/* Parses command lines, dispatches to commands and prints help, from tables: see args.h. */
#include "cli/args.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void args_append(struct args_list *list, const char *value)
{
    list->v = mem_grow(list->v, list->len + 1, sizeof *list->v);
    list->v[list->len++] = value;
}

void args_release(struct args_list *list)
{
    free(list->v);
    *list = (struct args_list){0};
}

static int refuse_option(const struct args_spec *spec, const char *arg, size_t len, hearth_error *error)
{
    struct args_list names = {0};
    for (size_t i = 0; i < spec->n_options; i++) args_append(&names, spec->options[i].name);
    char *name = mem_strndup(arg, len);
    const char *nearest = nearest_name(name, names.v, names.len);
    if (nearest)
        error_at(error, HEARTH_INVALID, name, "unknown option --%s; did you mean --%s?", name, nearest);
    else
        error_at(error, HEARTH_INVALID, name, "unknown option --%s; see %s --help", name, spec->command);
    free(name);
    args_release(&names);
    return HEARTH_INVALID;
}

static void store(const struct args_option *option, const char *value)
{
    if (option->text)
        *option->text = value;
    else
        args_append(option->list, value);
}

/* Takes the option at argv[*i], and its value, which may be the next word. */
static int take_option(const struct args_spec *spec, int argc, char **argv, int *i, hearth_error *error)
{
    const char *name = argv[*i] + 2;
    const size_t len = strcspn(name, "=");
    const struct args_option *option = NULL;
    for (size_t k = 0; k < spec->n_options && !option; k++) {
        const char *known = spec->options[k].name;
        if (strlen(known) == len && memcmp(known, name, len) == 0) option = &spec->options[k];
    }
    if (!option) return refuse_option(spec, name, len, error);
    if (option->flag && name[len] == '=')
        return error_at(error, HEARTH_INVALID, option->name, "--%s takes no value", option->name);
    if (option->flag)
        *option->flag = true;
    else if (name[len] == '=')
        store(option, name + len + 1);
    else if (*i + 1 < argc)
        store(option, argv[++*i]);
    else
        return error_at(error, HEARTH_INVALID, option->name, "--%s needs a value: --%s %s", option->name, option->name,
                        option->value);
    return 0;
}

static int take_operand(const struct args_spec *spec, const char *value, hearth_error *error)
{
    if (!spec->operand)
        return error_set(error, HEARTH_INVALID, "unexpected argument '%s'; see %s --help", value, spec->command);
    if (*spec->operand_value && spec->second && !*spec->second_value) {
        *spec->second_value = value;
        return 0;
    }
    if (*spec->operand_value)
        return error_set(error, HEARTH_INVALID, "one %s is enough: '%s' is one too many", spec->operand, value);
    *spec->operand_value = value;
    return 0;
}

int args_parse(const struct args_spec *spec, int argc, char **argv, bool *help, hearth_error *error)
{
    *help = false;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        *help = *help || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (*help) return 0;
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        int status = 0;
        if (options_ended || argv[i][0] != '-' || argv[i][1] == '\0')
            status = take_operand(spec, argv[i], error);
        else if (strcmp(argv[i], "--") == 0)
            options_ended = true;
        else if (argv[i][1] == '-')
            status = take_option(spec, argc, argv, &i, error);
        else
            status = error_set(error, HEARTH_INVALID, "unknown option %s; options begin with two dashes", argv[i]);
        if (status < 0) return status;
    }
    if (spec->operand && !spec->operand_is_optional && !*spec->operand_value)
        return error_set(error, HEARTH_INVALID, "%s is missing: %s %s", spec->operand, spec->command, spec->operand);
    return 0;
}

static void print_help(const struct args_spec *spec)
{
    printf("Usage: %s%s", spec->command, spec->n_options > 0 ? " [options]" : "");
    if (spec->operand) printf(spec->operand_is_optional ? " [%s]" : " %s", spec->operand);
    if (spec->second) printf(" [%s]", spec->second);
    printf("\n\n%s\n", spec->about);
    if (spec->n_options > 0) printf("\nOptions:\n");
    for (size_t i = 0; i < spec->n_options; i++) {
        const struct args_option *option = &spec->options[i];
        const int used =
            printf("  --%s %s%s", option->name, option->value ? option->value : "", option->list ? " ..." : "");
        printf("%*s%s\n", used < 26 ? 26 - used : 1, "", option->meaning);
    }
    printf("\nExamples:\n%s", spec->examples);
}

int args_fail(const char *command, const hearth_error *error, int status)
{
    log_flush(1000); /* milliseconds; log lines from before the failure are printed first */
    struct buf shown = {0};
    utf8_put_visible(&shown, error->message, strlen(error->message), false);
    terminal_clear_line();
    fprintf(stderr, "%s: %s\n", command, buf_text(&shown));
    buf_release(&shown);
    return status;
}

static const struct args_observer *current_observer;

void args_observe(const struct args_observer *observer)
{
    current_observer = observer;
}

bool args_read(const struct args_spec *spec, int argc, char **argv, int *status)
{
    bool help;
    hearth_error error;
    if (current_observer != NULL) {
        current_observer->on_command(current_observer->ud, spec);
        *status = EXIT_FINE;
        return false;
    }
    if (args_parse(spec, argc, argv, &help, &error) < 0) {
        *status = args_fail(spec->command, &error, EXIT_USAGE);
        return false;
    }
    if (help) {
        print_help(spec);
        *status = EXIT_FINE;
    }
    return !help;
}

/* ---- Commands ---- */

static void print_usage(const struct command_group *group, FILE *out)
{
    fprintf(out, "Usage: %s COMMAND [options]\n\n%s\n\nCommands:\n", group->program, group->about);
    for (size_t i = 0; i < group->n_commands; i++)
        fprintf(out, "  %-11s %s\n", group->commands[i].name, group->commands[i].summary);
    fprintf(out, "\nExamples:\n%s\n%s COMMAND --help shows its options.\n", group->examples, group->program);
}

int command_dispatch(const struct command_group *group, int argc, char **argv)
{
    const struct args_observer *observer = current_observer;
    if (observer != NULL) {
        observer->on_group(observer->ud, group);
        char *no_words[] = {NULL};
        for (size_t i = 0; i < group->n_commands; i++) group->commands[i].run(0, no_words);
        return EXIT_FINE;
    }
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
    struct args_list names = {0};
    for (size_t i = 0; i < group->n_commands; i++) args_append(&names, group->commands[i].name);
    const char *nearest = nearest_name(argv[0], names.v, names.len);
    if (nearest)
        fprintf(stderr, "%s: unknown command '%s'; did you mean '%s'?\n", group->program, argv[0], nearest);
    else
        fprintf(stderr, "%s: unknown command '%s'; see %s --help\n", group->program, argv[0], group->program);
    args_release(&names);
    return EXIT_USAGE;
}

/* ---- JSON ---- */

void json_output_print(json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(json);
}
