/* hearth model: describes a model file, and reports the memory that a model takes. Main thread. */
#include "cli/args.h"
#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/setup.h"

#include <stdio.h>

/* Prints a report and frees it; NULL: the report failed with the error. */
static int print_report(const char *command, char *report, const hearth_error *error)
{
    if (!report) return args_fail(command, error, EXIT_FAILED);
    fputs(report, stdout);
    hearth_free(report);
    return EXIT_FINE;
}

static int info(int argc, char **argv)
{
    const char *path = NULL;
    bool as_json = false;
    const struct args_option options[] = {json_output_option(&as_json)};
    const struct args_spec spec = {
        .command = "hearth model info",
        .about = "Describes a model file: architecture, kind, type, context, template, size.",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .operand = "PATH",
        .operand_value = &path,
        .examples = "  hearth model info models/demo.gguf\n"
                    "  hearth model info models/demo.gguf --json\n",
    };
    int status;
    if (!args_read(&spec, argc, argv, &status)) return status;
    hearth_error error;
    hearth_log_open(NULL, "error", "text", NULL);
    char *report = (as_json ? hearth_model_report_json : hearth_model_report)(path, &error);
    return print_report(spec.command, report, &error);
}

static int print_memory(const char *command, const struct setup *setup)
{
    int status;
    hearth_config *config = setup_open(command, setup, &status);
    if (!config) return status;
    hearth_error error;
    hearth_log_open(NULL, "error", "text", NULL);
    status = print_report(command, hearth_memory_report(config, hearth_config_model(config, 0), &error), &error);
    hearth_config_free(config);
    return status;
}

static int vram(int argc, char **argv)
{
    const char *path = NULL;
    struct setup setup = {0};
    const struct args_option options[] = {setup_option_set(&setup)};
    const struct args_spec spec = {
        .command = "hearth model vram",
        .about = "Estimates the memory that a model takes, step by step, and prints what llama.cpp really allocates.",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .operand = "PATH",
        .operand_value = &path,
        .examples = "  hearth model vram models/demo.gguf\n"
                    "  hearth model vram models/demo.gguf --set n_seq_max=4 --set context_window=2048\n",
    };
    int status;
    if (args_read(&spec, argc, argv, &status)) {
        args_append(&setup.models, path);
        status = print_memory(spec.command, &setup);
    }
    setup_release(&setup);
    return status;
}

int command_model(int argc, char **argv)
{
    static const struct command commands[] = {
        {"info", "describe a model file", info},
        {"vram", "estimate and measure the memory of a model", vram},
    };
    static const struct command_group group = {
        .program = "hearth model",
        .about = "Model files.",
        .examples = "  hearth model info models/demo.gguf\n"
                    "  hearth model vram models/demo.gguf --set n_seq_max=4\n",
        .commands = commands,
        .n_commands = sizeof commands / sizeof *commands,
    };
    return command_dispatch(&group, argc, argv);
}
