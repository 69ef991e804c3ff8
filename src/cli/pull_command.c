/* hearth pull, models, rm and run: models by reference, in the models folder. On a terminal the progress of a pull is
 * one line that changes; elsewhere a line for every tenth of a file. Main thread. */
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/args.h"
#include "cli/chat_command.h"
#include "cli/setup.h"
#include "cli/terminal.h"
#include "pull/declare.h"
#include "pull/models_folder.h"
#include "pull/pull.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* The options of a command that concern a pull, as they were given; NULL: not given. */
struct pulling {
    const char *text; /* the reference */
    const char *name, *mmproj, *connections, *stall, *retries;
    bool http;
};

#define PULLING_OPTIONS(p)                                                                                             \
    {"name", "NAME", "the model's name (its file's)", .text = &(p)->name},                                             \
        {"mmproj", "PLACE", "URL or file of its projector, which a repository brings along", .text = &(p)->mmproj},    \
        {"connections", "N", "ranges of a file that are fetched at once (4)", .text = &(p)->connections},              \
        {"stall", "SECONDS", "without bytes, after which a connection is given up (30)", .text = &(p)->stall},         \
        {"retries", "N", "failures in a row after which the pull ends (5)", .text = &(p)->retries},                    \
    {                                                                                                                  \
        "http", NULL, "allow http without encryption, beyond this machine", .flag = &(p)->http                         \
    }

#define PROGRESS_LINES 10        /* of a file's progress, where there is no terminal */
#define COLUMNS_USUAL  79        /* of a terminal that does not say how wide it is, but for the last */
#define LINE_BYTES     100000000 /* between two of them, where its size is not known */

/* ---- Progress ---- */

struct meter {
    bool is_terminal;
    size_t index; /* of the last report */
    bool checking;
    int64_t lines; /* that the file has got so far */
};

/* Appends a number of bytes as people read it: "2.71 GB". */
static void put_bytes(struct buf *out, int64_t bytes)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++) value /= 1000;
    buf_printf(out, unit == 0 ? "%.0f %s" : value < 10 ? "%.2f %s" : "%.1f %s", value, units[unit]);
}

/* "[1/2] Qwen3-8B-Q4_K_M.gguf: " and the figures: where that is wider than so many columns, the name is cut. */
static void put_progress(struct buf *out, const struct pull_progress *p, size_t columns)
{
    struct buf before = {0}, figures = {0};
    if (p->n_files > 1) buf_printf(&before, "[%zu/%zu] ", p->index + 1, p->n_files);
    /* "45 % of 2.71 GB, 35.2 MB/s, 0:42 left" */
    if (p->checking) buf_puts(&figures, "checking, ");
    if (p->total > 0) buf_printf(&figures, "%d %% of ", (int)((double)p->done * 100 / (double)p->total));
    put_bytes(&figures, p->total > 0 ? p->total : p->done);
    if (p->rate > 0) {
        buf_puts(&figures, ", ");
        put_bytes(&figures, (int64_t)p->rate);
        buf_puts(&figures, "/s");
        if (p->total > 0 && !p->checking) {
            buf_puts(&figures, ", ");
            double seconds = (double)(p->total - p->done) / p->rate;
            long whole = seconds < 359999 ? (long)seconds : 359999;
            if (whole >= 3600)
                buf_printf(&figures, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
            else
                buf_printf(&figures, "%ld:%02ld", whole / 60, whole % 60);
            buf_puts(&figures, " left");
        }
    }
    size_t taken = before.len + strlen(": ") + figures.len, room = columns > taken ? columns - taken : 0,
           shown = strlen(p->file);
    if (shown > room) shown = room - utf8_incomplete_tail(p->file, room);
    buf_printf(out, "%s%.*s: %s", buf_text(&before), (int)shown, p->file, buf_text(&figures));
    buf_release(&before);
    buf_release(&figures);
}

static void report_progress(void *ud, const struct pull_progress *p)
{
    struct meter *meter = ud;
    struct buf text = {0};
    int64_t lines = p->total > 0 ? p->done * PROGRESS_LINES / p->total : p->done / LINE_BYTES;
    bool is_new = meter->index != p->index || meter->checking != p->checking;
    bool is_due = is_new ? !p->checking : lines > meter->lines && !p->checking;
    struct winsize size = {0};
    size_t columns = SIZE_MAX;
    if (meter->is_terminal)
        columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : COLUMNS_USUAL;
    put_progress(&text, p, columns);
    if (meter->is_terminal)
        fprintf(stderr, "\r\033[K%.*s", (int)columns, text.v);
    else if (is_due)
        fprintf(stderr, "%s\n", text.v);
    fflush(stderr);
    if (is_new || is_due) meter->lines = lines;
    meter->index = p->index;
    meter->checking = p->checking;
    buf_release(&text);
}

/* ---- Options ---- */

static int read_count(const char *name, const char *text, int least, int most, int *out, hearth_error *error)
{
    char *end = NULL;
    if (text == NULL) return HEARTH_OK;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < least || value > most)
        return error_at(error, HEARTH_INVALID, name, "--%s %s: write a whole number from %d to %d", name, text, least,
                        most);
    *out = (int)value;
    return HEARTH_OK;
}

/* Reads a reference with the user's short names. Release it in either case. */
static int read_reference(const char *text, struct pull_reference *reference, hearth_error *error)
{
    char *names = pull_names_path();
    int rc = pull_reference_read(text, names, reference, error);
    free(names);
    return rc;
}

/* Pulls it into the models folder of the configuration. Release `model` after HEARTH_OK. */
static int get_model(const struct pulling *pulling, const hearth_config *config, const struct pull_reference *reference,
                     struct pull_model *model, hearth_error *error)
{
    struct meter meter = {.is_terminal = isatty(STDERR_FILENO), .index = SIZE_MAX};
    struct pull_options options = pull_options_default();
    options.name = pulling->name;
    options.allow_http = pulling->http;
    options.report = report_progress;
    options.ud = &meter;
    int rc = read_count("connections", pulling->connections, 1, PULL_CONNECTIONS_MAX, &options.connections, error);
    if (rc == HEARTH_OK) rc = read_count("stall", pulling->stall, 1, 3600, &options.stall_seconds, error);
    if (rc == HEARTH_OK) rc = read_count("retries", pulling->retries, 0, 1000, &options.retries, error);
    struct pull_reference projector = {0};
    if (rc == HEARTH_OK && pulling->mmproj != NULL) rc = read_reference(pulling->mmproj, &projector, error);
    options.projector = pulling->mmproj != NULL ? &projector : NULL;
    char *folder = rc == HEARTH_OK ? pull_folder_of(config, error) : NULL;
    if (folder == NULL) {
        pull_reference_release(&projector);
        return (int)error->code;
    }
    options.folder = folder;
    signal(SIGPIPE, SIG_IGN); /* a connection that breaks off while it is written to is tried again */
    rc = pull_model(reference, &options, model, error);
    terminal_clear_line();
    pull_reference_release(&projector);
    free(folder);
    return rc;
}

#define REFERENCES                                                                                                     \
    "REF is a repository of Hugging Face, hf:OWNER/REPO or hf:OWNER/REPO:QUANT, a URL or a path that ends in .gguf, "  \
    "or\n"                                                                                                             \
    "a short name (~/.config/hearth/names has a line for each, NAME REF)."

static int status_of(const hearth_error *error)
{
    return error->code == HEARTH_INVALID ? EXIT_USAGE : EXIT_FAILED;
}

/* ---- pull ---- */

static int pull_and_print(const char *command, const hearth_config *config, void *ud)
{
    const struct pulling *pulling = ud;
    struct pull_reference reference;
    struct pull_model model = {0};
    hearth_error error;
    hearth_log_open(NULL, "error", "text", NULL);
    int rc = read_reference(pulling->text, &reference, &error);
    if (rc == HEARTH_OK) rc = get_model(pulling, config, &reference, &model, &error);
    pull_reference_release(&reference);
    if (rc != HEARTH_OK) return args_fail(command, &error, status_of(&error));
    struct buf size = {0};
    put_bytes(&size, pull_model_bytes(&model));
    printf("%s: %zu %s, %s\n  hearth chat --model %s\n  hearth serve\n", model.name, model.n_files,
           model.n_files == 1 ? "file" : "files", size.v, model.name);
    buf_release(&size);
    pull_model_release(&model);
    return EXIT_FINE;
}

int command_pull(int argc, char **argv)
{
    struct setup setup = {.keys_only = true};
    struct pulling pulling = {0};
    const struct args_option options[] = {PULLING_OPTIONS(&pulling), setup_option_config(&setup),
                                          setup_option_set(&setup)};
    const struct args_spec spec = {
        .command = "hearth pull",
        .about = "Fetches a model, all its parts and its projector, into the models folder (HEARTH_MODELS, else\n"
                 "~/.local/share/hearth/models), where serve, chat and run find it by its name.\n\n" REFERENCES "\n\n"
                 "A pull that was interrupted goes on where it was. HF_TOKEN is the token for repositories that want\n"
                 "one, HF_ENDPOINT a mirror; https_proxy and no_proxy are minded.",
        ARGS_OPTIONS(options),
        .operand = "REF",
        .operand_value = &pulling.text,
        .examples = "  hearth pull hf:Qwen/Qwen3-8B-GGUF:Q4_K_M\n"
                    "  hearth pull https://example.org/models/tiny.gguf --name tiny\n",
    };
    return setup_run(&spec, &setup, argc, argv, pull_and_print, &pulling);
}

/* ---- models, rm ---- */

/* A command over the models folder, and what its words ask for. */
struct folder_action {
    int (*run)(const char *command, const char *folder, const struct folder_action *action);
    const char *name; /* the operand */
    bool as_json;
};

static int act_on_folder(const char *command, const hearth_config *config, void *ud)
{
    const struct folder_action *action = ud;
    hearth_error error;
    char *folder = pull_folder_of(config, &error);
    if (folder == NULL) return args_fail(command, &error, EXIT_FAILED);
    int status = action->run(command, folder, action);
    free(folder);
    return status;
}

/* The first row, of *n, has the columns' names above it. */
static void print_row(size_t *n, const char *name, const char *size, const char *day, const char *from)
{
    struct buf shown = {0};
    utf8_put_visible(&shown, from, strlen(from), false);
    if ((*n)++ == 0) printf("%-40s  %10s  %-10s  %s\n", "name", "size", "pulled", "from");
    printf("%-40s  %10s  %-10s  %s\n", name, size, day, buf_text(&shown));
    buf_release(&shown);
}

static void print_model(void *ud, const struct pull_model *model)
{
    char day[32] = "";
    struct tm tm;
    struct buf size = {0};
    const time_t seconds = (time_t)(model->pulled_ms / 1000);
    if (localtime_r(&seconds, &tm)) strftime(day, sizeof day, "%Y-%m-%d", &tm);
    put_bytes(&size, pull_model_bytes(model));
    print_row(ud, model->name, size.v, day, model->reference);
    buf_release(&size);
}

struct json_list {
    const char *folder;
    json_t *models;
};

static void add_model_json(void *ud, const struct pull_model *model)
{
    const struct json_list *list = ud;
    json_t *files = json_array();
    for (size_t i = 0; i < model->n_files; i++) {
        const struct pull_stored *file = &model->files[i];
        char *path = pull_file_path(list->folder, model->name, file->name);
        json_array_append_new(files, json_pack("{s:s, s:I, s:s, s:b}", "path", path, "size", (json_int_t)file->size,
                                               "sha256", file->sha, "projector", (int)file->is_projector));
        free(path);
    }
    json_array_append_new(list->models, json_pack("{s:s, s:s, s:I, s:I, s:o}", "name", model->name, "reference",
                                                  model->reference, "size", (json_int_t)pull_model_bytes(model),
                                                  "pulled_ms", (json_int_t)model->pulled_ms, "files", files));
}

static void print_fault(void *ud, const char *name, const char *why)
{
    (void)ud;
    fprintf(stderr, "hearth models: %s: %s\n", name, why);
}

/* Presets, whose files say what they are of: those that POST /api/create made. */
static void print_preset(void *ud, const char *name, const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    const char *from = json_string_value(json_object_get(json, "from"));
    print_row(ud, name, "preset", "", from == NULL ? "" : from);
    json_decref(json);
}

static void add_preset(void *ud, const char *name, const char *text)
{
    const struct json_list *list = ud;
    json_t *json = json_loads(text, 0, NULL);
    json_array_append_new(list->models, json_pack("{s:s, s:o*}", "name", name, "preset", json));
}

static int run_models(const char *command, const char *folder, const struct folder_action *action)
{
    const bool as_json = action->as_json;
    size_t n = 0;
    hearth_error error;
    struct json_list list = {folder, json_array()};
    const struct pull_visitor rows = {print_model, print_fault, &n}, objects = {add_model_json, print_fault, &list};
    const struct pull_preset_visitor preset_rows = {print_preset, print_fault, &n},
                                     preset_objects = {add_preset, print_fault, &list};
    int rc = pull_folder_list(folder, as_json ? &objects : &rows, &error);
    if (rc == HEARTH_OK) rc = pull_presets_list(folder, as_json ? &preset_objects : &preset_rows, &error);
    if (rc == HEARTH_OK && as_json) json_output_print(json_incref(list.models));
    if (rc == HEARTH_OK && !as_json && n == 0) printf("no models in %s: hearth pull REF fetches one\n", folder);
    json_decref(list.models);
    return rc == HEARTH_OK ? EXIT_FINE : args_fail(command, &error, EXIT_FAILED);
}

int command_models(int argc, char **argv)
{
    struct setup setup = {.keys_only = true};
    struct folder_action action = {.run = run_models};
    const struct args_option options[] = {setup_option_config(&setup),
                                          setup_option_set(&setup),
                                          {"json", NULL, "as JSON, for programs", .flag = &action.as_json}};
    const struct args_spec spec = {
        .command = "hearth models",
        .about =
            "Lists the models that hearth pull fetched: name, size, day, and what they were pulled from; and presets.",
        ARGS_OPTIONS(options),
        .examples = "  hearth models\n"
                    "  hearth models --json\n",
    };
    return setup_run(&spec, &setup, argc, argv, act_on_folder, &action);
}

static int run_rm(const char *command, const char *folder, const struct folder_action *action)
{
    const char *name = action->name;
    hearth_error error;
    int rc = pull_folder_remove(folder, name, &error);
    if (rc == HEARTH_NOT_FOUND && pull_preset_remove(folder, name, NULL) == HEARTH_OK) rc = HEARTH_OK;
    if (rc != HEARTH_OK) return args_fail(command, &error, status_of(&error));
    printf("removed %s\n", name);
    return EXIT_FINE;
}

int command_rm(int argc, char **argv)
{
    struct setup setup = {.keys_only = true};
    struct folder_action action = {.run = run_rm};
    const struct args_option options[] = {setup_option_config(&setup), setup_option_set(&setup)};
    const struct args_spec spec = {
        .command = "hearth rm",
        .about =
            "Removes a pulled model or a preset from the models folder: its own files and no others. A server that "
            "has\n"
            "it loaded goes on with it.",
        ARGS_OPTIONS(options),
        .operand = "NAME",
        .operand_value = &action.name,
        .examples = "  hearth rm Qwen3-8B-Q4_K_M\n",
    };
    return setup_run(&spec, &setup, argc, argv, act_on_folder, &action);
}

/* ---- run ---- */

struct run_options {
    struct pulling pulling;
    struct setup setup;
    struct chat_options chat;
};

/* The model that the reference means, which is pulled unless it is there: its name, or a file's path, for --model. */
static int find_or_pull(struct run_options *run, const hearth_config *config, char **model, hearth_error *error)
{
    struct pull_reference reference = {0};
    struct pull_model found = {0};
    hearth_error none;
    char *folder = pull_folder_of(config, error);
    if (folder == NULL) return (int)error->code;
    int rc = pull_folder_find(folder, run->pulling.text, NULL, &found, &none) == HEARTH_OK
                 ? HEARTH_OK
                 : read_reference(run->pulling.text, &reference, error);
    bool is_file = rc == HEARTH_OK && found.name == NULL && reference.kind == PULL_FILE;
    if (rc == HEARTH_OK && found.name == NULL && !is_file &&
        pull_folder_find(folder, NULL, reference.text, &found, &none) != HEARTH_OK)
        rc = get_model(&run->pulling, config, &reference, &found, error);
    if (rc == HEARTH_OK) *model = mem_strdup(is_file ? reference.place : found.name);
    if (is_file) run->setup.mmproj = run->pulling.mmproj;
    pull_reference_release(&reference);
    pull_model_release(&found);
    free(folder);
    return rc;
}

static int run_model(const char *command, struct run_options *run)
{
    char *model = NULL;
    int status;
    hearth_error error;
    /* A configuration for the models folder's sake: that of the command, without its models. */
    struct setup keys = {.config = run->setup.config, .keys_only = true};
    for (size_t i = 0; i < run->setup.sets.len; i++)
        if (strncmp(run->setup.sets.v[i], "server.", strlen("server.")) == 0)
            args_append(&keys.sets, run->setup.sets.v[i]);
    hearth_config *config = setup_open(command, &keys, &status);
    setup_release(&keys);
    if (config == NULL) return status;
    hearth_log_open(NULL, "error", "text", NULL);
    int rc = find_or_pull(run, config, &model, &error);
    hearth_config_free(config);
    if (rc != HEARTH_OK) return args_fail(command, &error, status_of(&error));
    args_append(&run->setup.models, model);
    config = setup_open(command, &run->setup, &status);
    if (config) status = chat_command_run(command, config, &run->chat);
    hearth_config_free(config);
    free(model);
    return status;
}

int command_run(int argc, char **argv)
{
    struct run_options run = {.setup = {.log_level = "error"}};
    const struct args_option options[] = {
        {"system", "TEXT", "system prompt", .text = &run.chat.system},
        {"no-history", NULL, "what is typed is not kept for the next time", .flag = &run.chat.no_history},
        PULLING_OPTIONS(&run.pulling),
        setup_option_config(&run.setup),
        setup_option_set(&run.setup),
        setup_option_log_level(&run.setup),
    };
    const struct args_spec spec = {
        .command = "hearth run",
        .about =
            "Talks to a model, which is pulled first if it is not there: hearth pull, then hearth chat. With PROMPT\n"
            "it answers that and ends.\n\n" REFERENCES " The name of a model that was pulled will do.",
        ARGS_OPTIONS(options),
        .operand = "REF",
        .operand_value = &run.pulling.text,
        .second = "PROMPT",
        .second_value = &run.chat.prompt,
        .examples = "  hearth run hf:Qwen/Qwen3-8B-GGUF:Q4_K_M\n"
                    "  hearth run Qwen3-8B-Q4_K_M 'Who are you?'\n",
    };
    int status;
    if (args_read(&spec, argc, argv, &status)) status = run_model(spec.command, &run);
    setup_release(&run.setup);
    return status;
}
