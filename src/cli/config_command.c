/* hearth config: checks a configuration file, lists all keys. Main thread. */
#include "cli/args.h"
#include "cli/setup.h"
#include "serve/serve.h"

#include <stdio.h>

static int check(int argc, char **argv)
{
    const char *path = NULL;
    const struct args_spec spec = {
        .command = "hearth config check",
        .about = "Checks a configuration file and prints every error as file:line: key: message.\n"
                 "The exit status is 0 where there is none, and 2 otherwise.",
        .operand = "FILE",
        .operand_value = &path,
        .examples = "  hearth config check hearth.yaml\n",
    };
    int status;
    if (!args_read(&spec, argc, argv, &status)) return status;
    hearth_config *config = hearth_config_new();
    hearth_error error;
    size_t reported = 0;
    status = hearth_config_load(config, path, setup_report, &reported, &error);
    if (status == 0) status = hearth_config_check(config, setup_report, &reported, &error);
    if (status == 0) status = serve_check(config, &error);
    if (status < 0 && reported == 0) args_fail(spec.command, &error, EXIT_USAGE);
    hearth_config_free(config);
    if (status == 0) printf("%s: no errors\n", path);
    return status == 0 ? EXIT_FINE : EXIT_USAGE;
}

static void print_and_free(char *text)
{
    fputs(text, stdout);
    hearth_free(text);
}

static int dump(int argc, char **argv)
{
    const struct args_spec spec = {
        .command = "hearth config dump",
        .about = "Prints all keys with their defaults and meanings, as a file to start from.",
        .examples = "  hearth config dump > hearth.yaml\n",
    };
    int status;
    if (!args_read(&spec, argc, argv, &status)) return status;
    hearth_config *config = hearth_config_new();
    print_and_free(hearth_config_dump(config));
    hearth_config_free(config);
    return EXIT_FINE;
}

static int manual(int argc, char **argv)
{
    bool as_page = false;
    const struct args_option options[] = {
        {"man", NULL, "as the manual page hearth.yaml(5)", .flag = &as_page},
    };
    const struct args_spec spec = {
        .command = "hearth config manual",
        .about = "Prints the table of all keys as Markdown: docs/config.md.",
        ARGS_OPTIONS(options),
        .examples = "  hearth config manual > docs/config.md\n"
                    "  hearth config manual --man | man -l -\n",
    };
    int status;
    if (!args_read(&spec, argc, argv, &status)) return status;
    print_and_free(as_page ? hearth_config_man() : hearth_config_manual());
    return EXIT_FINE;
}

int command_config(int argc, char **argv)
{
    static const struct command commands[] = {
        {"check", "find every error in a configuration file", check},
        {"dump", "print all keys with defaults and meanings", dump},
        {"manual", "print the table of keys in docs/config.md", manual},
    };
    static const struct command_group group = {
        .program = "hearth config",
        .about = "The configuration and its keys.",
        .examples = "  hearth config dump > hearth.yaml\n"
                    "  hearth config check hearth.yaml\n",
        ARGS_COMMANDS(commands),
    };
    return command_dispatch(&group, argc, argv);
}
