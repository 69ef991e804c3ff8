/* hearth model describes a model file and reports the memory that it takes; hearth fit says what of it fits this
 * machine. Main thread. */
#include "cli/args.h"
#include "cli/setup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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
        ARGS_OPTIONS(options),
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

static int print_memory(const char *command, const hearth_config *config, void *ud)
{
    (void)ud;
    hearth_error error;
    hearth_log_open(NULL, "error", "text", NULL);
    return print_report(command, hearth_memory_report(config, hearth_config_model(config, 0), &error), &error);
}

static int vram(int argc, char **argv)
{
    const char *path = NULL;
    struct setup setup = {.has_operand = true};
    const struct args_option options[] = {setup_option_set(&setup)};
    const struct args_spec spec = {
        .command = "hearth model vram",
        .about = "Estimates the memory that a model takes, step by step, and prints what llama.cpp really allocates.",
        ARGS_OPTIONS(options),
        .operand = "PATH",
        .operand_value = &path,
        .examples = "  hearth model vram models/demo.gguf\n"
                    "  hearth model vram models/demo.gguf --set n_seq_max=4 --set context_window=2048\n",
    };
    return setup_run(&spec, &setup, argc, argv, print_memory, NULL);
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
        ARGS_COMMANDS(commands),
    };
    return command_dispatch(&group, argc, argv);
}

#define GIB (1024.0 * 1024 * 1024)
#define MIB (1024.0 * 1024)

/* ---- Text ---- */

struct size_text {
    char v[16];
};

static struct size_text size_of(uint64_t bytes)
{
    struct size_text text;
    bool small = (double)bytes < GIB;
    snprintf(text.v, sizeof text.v, "%.2f %s", (double)bytes / (small ? MIB : GIB), small ? "MiB" : "GiB");
    return text;
}

static void print_fit(const hearth_fit *fit)
{
    printf("model     %s, trained for %" PRId32 " tokens\n", fit->description, fit->n_ctx_train);
    printf("weights   %s", size_of(fit->weights_bytes).v);
    if (fit->projector_bytes > 0) printf(", projector %s", size_of(fit->projector_bytes).v);
    if (fit->draft_bytes > 0) printf(", draft model %s", size_of(fit->draft_bytes).v);
    printf("\n");
    if (fit->type == HEARTH_MODEL_CHAT) {
        printf("a token   ");
        for (size_t i = 0; i < HEARTH_FIT_TYPES; i++)
            printf("%s%" PRIu64 " bytes in %s cells", i > 0 ? ", " : "", fit->types[i].token_bytes, fit->types[i].name);
        printf("\n");
        printf("memory    %s free, %s of it for the model\n", size_of(fit->memory_free).v,
               size_of(fit->memory_budget).v);
        for (size_t i = 0; i < fit->n_devices; i++)
            printf("%-9s %s free, %s of it for the model (%s)\n", i == 0 ? "GPU" : "", size_of(fit->devices[i].free).v,
                   size_of(fit->devices[i].budget).v, fit->devices[i].name);
        if (fit->read_bytes > 0 && fit->read_rate > 0) /* weights are read once a token, and other work adds to that */
            printf("speed     at most %.3g tokens/s of one reply without drafts: "
                   "each reads %s of weights, of %s a second\n",
                   (double)fit->read_rate / (double)fit->read_bytes, size_of(fit->read_bytes).v,
                   size_of(fit->read_rate).v);
        printf("\n   window  slots  types        KV cells      compute       memory          GPU\n");
        for (size_t i = 0; i < fit->n_choices; i++) {
            const hearth_fit_choice *c = &fit->choices[i];
            char types[32];
            snprintf(types, sizeof types, "%s/%s", c->cache_type_k, c->cache_type_v);
            printf("%c %7" PRId32 "  %5" PRId32 "  %-9s %11s  %11s  %11s  %11s%s\n",
                   (int32_t)i == fit->recommended ? '*' : ' ', c->context_window, c->n_seq_max, types,
                   size_of(c->cells_bytes).v, size_of(c->compute_bytes).v, size_of(c->memory_bytes).v,
                   size_of(c->gpu_bytes).v, c->fits ? "" : "  does not fit");
        }
    }
    if (fit->recommended >= 0) {
        const hearth_fit_choice *c = &fit->choices[fit->recommended];
        printf("\n* --set context_window=%" PRId32 " --set n_seq_max=%" PRId32
               " --set cache_type_k=%s --set cache_type_v=%s\n",
               c->context_window, c->n_seq_max, c->cache_type_k, c->cache_type_v);
        printf("%s\nhearth serve takes these where they are not set.\n", fit->reason);
    } else {
        printf("\n%s\n", fit->reason);
    }
}

/* ---- JSON ---- */

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *json_of_choice(const hearth_fit *fit, const hearth_fit_choice *c)
{
    if (c->context_window == 0) return json_null();
    json_t *devices = json_array();
    for (size_t i = 0; i < fit->n_devices; i++) json_array_append_new(devices, integer(c->device_bytes[i]));
    return json_pack("{s:i, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:b}", "context_window", (int)c->context_window,
                     "n_seq_max", (int)c->n_seq_max, "cache_type_k", c->cache_type_k, "cache_type_v", c->cache_type_v,
                     "cells_bytes", integer(c->cells_bytes), "compute_bytes", integer(c->compute_bytes), "memory_bytes",
                     integer(c->memory_bytes), "gpu_bytes", integer(c->gpu_bytes), "device_bytes", devices, "fits",
                     (int)c->fits);
}

static json_t *json_of_devices(const hearth_fit *fit)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < fit->n_devices; i++) {
        const hearth_fit_device *device = &fit->devices[i];
        json_array_append_new(devices,
                              json_pack("{s:s, s:o, s:o, s:o}", "name", device->name, "free", integer(device->free),
                                        "budget", integer(device->budget), "planned_bytes", integer(device->planned)));
    }
    return devices;
}

/* null: the layers are to be divided as they are. */
static json_t *json_of_split(const hearth_fit *fit)
{
    json_t *split = json_array();
    int32_t sum = 0;
    for (size_t i = 0; i < fit->n_devices; i++) {
        json_array_append_new(split, json_integer(fit->tensor_split[i]));
        sum += fit->tensor_split[i];
    }
    if (sum > 0) return split;
    json_decref(split);
    return json_null();
}

static void print_fit_json(const hearth_fit *fit)
{
    json_t *types = json_object(), *choices = json_array();
    for (size_t i = 0; fit->type == HEARTH_MODEL_CHAT && i < HEARTH_FIT_TYPES; i++)
        json_object_set_new(types, fit->types[i].name, integer(fit->types[i].token_bytes));
    for (size_t i = 0; i < fit->n_choices; i++) json_array_append_new(choices, json_of_choice(fit, &fit->choices[i]));
    json_t *recommended = fit->recommended >= 0 ? json_of_choice(fit, &fit->choices[fit->recommended]) : json_null();
    json_output_print(json_pack(
        "{s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:o, s:o, s:o, s:o, "
        "s:o, s:s}",
        "description", fit->description, "type", hearth_model_type_name(fit->type), "layers", (int)fit->n_layer,
        "context_length", (int)fit->n_ctx_train, "weights_bytes", integer(fit->weights_bytes), "projector_bytes",
        integer(fit->projector_bytes), "draft_bytes", integer(fit->draft_bytes), "memory_free",
        integer(fit->memory_free), "memory_budget", integer(fit->memory_budget), "gpu_free", integer(fit->gpu_free),
        "gpu_budget", integer(fit->gpu_budget), "devices", json_of_devices(fit), "token_bytes", types, "choices",
        choices, "recommended", recommended, "n_gpu_layers", (int)fit->n_gpu_layers, "n_cpu_moe", (int)fit->n_cpu_moe,
        "tensor_split", json_of_split(fit), "suggested", json_of_choice(fit, &fit->suggested), "planned_memory_bytes",
        integer(fit->planned_memory), "read_bytes", integer(fit->read_bytes), "read_rate", integer(fit->read_rate),
        "reason", fit->reason));
}

/* ---- The command ---- */

/* The options of `hearth fit` about the machine. */
struct fit_question {
    bool as_json;
    const char *memory, *gpus; /* GiB; numbers with commas between them */
};

/* The next number of such a list, in bytes. False: there is none. */
static bool next_gib(const char **text, uint64_t *bytes)
{
    char *end;
    double gib = strtod(*text, &end);
    bool valid = end != *text && gib > 0 && gib < 1e6 && (*end == '\0' || (*end == ',' && end[1] != '\0'));
    if (!valid) return false;
    *bytes = (uint64_t)(gib * GIB);
    *text = *end == ',' ? end + 1 : end;
    return true;
}

/* False: an option is no number. */
static bool read_machine(const struct fit_question *question, hearth_fit_machine *machine)
{
    const char *memory = question->memory != NULL ? question->memory : "", *gpus = question->gpus;
    *machine = (hearth_fit_machine){0};
    if (question->memory != NULL && (!next_gib(&memory, &machine->memory) || memory[0] != '\0')) return false;
    if (gpus == NULL) return true;
    do {
        if (machine->n_devices == HEARTH_FIT_DEVICES || !next_gib(&gpus, &machine->devices[machine->n_devices]))
            return false;
        machine->n_devices++;
    } while (*gpus != '\0');
    return true;
}

static int run_fit(const char *command, const hearth_config *config, void *ud)
{
    const struct fit_question *question = ud;
    hearth_fit_machine machine;
    hearth_error error = {0};
    hearth_fit fit;
    hearth_log_open(NULL, "error", "text", NULL);
    if (!read_machine(question, &machine)) {
        snprintf(error.message, sizeof error.message,
                 "--memory is a number of GiB, --gpus one for each GPU, as 24 or 24,8, and %d at most",
                 HEARTH_FIT_DEVICES);
        error.code = HEARTH_INVALID;
        return args_fail(command, &error, EXIT_USAGE);
    }
    int rc = hearth_fit_on(config, NULL, &machine, &fit, &error);
    if (rc == HEARTH_OK) (question->as_json ? print_fit_json : print_fit)(&fit);
    if (rc != HEARTH_OK) return args_fail(command, &error, EXIT_FAILED);
    return fit.recommended >= 0 || fit.type != HEARTH_MODEL_CHAT ? EXIT_FINE : EXIT_FAILED;
}

int command_fit(int argc, char **argv)
{
    const char *path = NULL;
    struct fit_question question = {0};
    struct setup setup = {.has_operand = true};
    const struct args_option options[] = {
        {"mmproj", "FILE", "projection file for images or sound", .text = &setup.mmproj},
        {"memory", "GIB", "for a machine with so much free memory", .text = &question.memory},
        {"gpus", "GIB,...", "and with GPUs that have so much free", .text = &question.gpus},
        setup_option_set(&setup),
        json_output_option(&question.as_json),
    };
    const struct args_spec spec = {
        .command = "hearth fit",
        .about = "Says which context windows, slots and types of KV cells of a model fit the memory and the GPUs of\n"
                 "this machine as it is now, and which of them hearth serve takes where nothing is set. Reads the\n"
                 "file's header only. What --set sets is kept. The exit status is 1 where nothing fits.",
        ARGS_OPTIONS(options),
        .operand = "FILE",
        .operand_value = &path,
        .examples = "  hearth fit Qwen3-8B-Q8_0.gguf\n"
                    "  hearth fit Qwen3-8B-Q8_0.gguf --set n_seq_max=2 --json\n"
                    "  hearth fit Qwen3-30B-A3B-Q4_K_M.gguf --memory 64 --gpus 12\n",
    };
    return setup_run(&spec, &setup, argc, argv, run_fit, &question);
}
