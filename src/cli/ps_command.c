/* hearth ps shows what a running server is doing; hearth stop has it unload a model. Main thread. */
#include "cli/ps_command.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/utf8.h"
#include "cli/args.h"
#include "cli/remote.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Characters of a model's name that are shown. */
#define NAME_WIDTH 26

static int64_t count_in(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static const char *word(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

/* ---- Cells ---- */

/* A text of a fixed number of characters, and two blanks; control characters are escaped, and what is longer ends in
 * three dots. */
static void put_left(struct buf *out, const char *text, size_t width)
{
    struct buf shown = {0};
    utf8_put_visible(&shown, text, strlen(text), false);
    const size_t n = utf8_count(buf_text(&shown), shown.len);
    if (n > width) {
        size_t bytes = shown.len; /* of the characters that are kept */
        for (size_t kept = n; kept > width - 3; kept -= ((unsigned char)shown.v[bytes] & 0xc0) != 0x80) bytes--;
        buf_printf(out, "%.*s...  ", (int)bytes, shown.v);
    } else {
        buf_printf(out, "%s%*s", buf_text(&shown), (int)(width - n) + 2, "");
    }
    buf_release(&shown);
}

/* Bytes as people read them: 0 B, 12.5 MB. */
static void put_size(struct buf *out, int64_t bytes, int width)
{
    static const char *const units[] = {"B ", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.95 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    buf_printf(out, "%*.*f %s  ", width - 3, unit == 0 ? 0 : 1, value, units[unit]);
}

/* ---- The queue ---- */

/* Skips the label of a Prometheus sample, in which quotes and backslashes are escaped. Returns the text after it; NULL:
 * it is another model's. */
static const char *after_label(const char *label, const char *model)
{
    for (; *model != '\0'; model++, label++) {
        if (*label == '\\') label++;
        if (*label != *model) return NULL;
    }
    return strncmp(label, "\"}", 2) == 0 ? label + 2 : NULL;
}

static int64_t sample(const char *metrics, const char *name, const char *model)
{
    const size_t len = strlen(name);
    for (const char *line = metrics; *line != '\0';) {
        const char *value = strncmp(line, name, len) == 0 ? after_label(line + len, model) : NULL;
        if (value != NULL) return strtoll(value, NULL, 10);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return 0;
}

int64_t ps_waiting(const char *metrics, const char *model)
{
    return sample(metrics, "hearth_admission_waiting{model=\"", model) +
           sample(metrics, "hearth_requests_waiting{model=\"", model);
}

/* ---- Tables ---- */

static bool is_busy(const json_t *slot)
{
    return strcmp(word(slot, "state"), "idle") != 0;
}

static void put_models(struct buf *out, const struct ps_facts *facts)
{
    size_t i, k;
    const json_t *model, *slot;
    buf_printf(out, "%-*s  %-9s  %-9s  %8s  %5s  %4s  %7s\n", NAME_WIDTH, "model", "state", "type", "window", "slots",
               "busy", "waiting");
    json_array_foreach(facts->models, i, model)
    {
        const char *name = word(model, "id");
        int busy = 0;
        json_array_foreach(facts->slots, k, slot) busy += strcmp(word(slot, "model"), name) == 0 && is_busy(slot);
        put_left(out, name, NAME_WIDTH);
        put_left(out, word(json_object_get(model, "status"), "value"), 9);
        put_left(out, word(model, "type"), 9);
        buf_printf(out, "%8lld  %5lld  %4d  %7lld\n", (long long)count_in(model, "context_window"),
                   (long long)count_in(json_object_get(model, "meta"), "slots"), busy,
                   (long long)ps_waiting(facts->metrics, name));
    }
}

/* The trouble of a tier has a line of its own. */
static void put_tier(struct buf *out, const char *name, const json_t *tier)
{
    const char *trouble = word(tier, "trouble");
    put_left(out, name, 8);
    if (json_is_true(json_object_get(tier, "on"))) {
        buf_printf(out, "%8lld  ", (long long)count_in(tier, "entries"));
        put_size(out, count_in(tier, "bytes"), 10);
        put_size(out, count_in(tier, "quota_bytes"), 10);
        buf_printf(out, "%8lld\n", (long long)count_in(tier, "evictions"));
    } else {
        buf_printf(out, "%8s\n", "off");
    }
    if (trouble[0] == '\0') return;
    buf_puts(out, "  ");
    utf8_put_visible(out, trouble, strlen(trouble), false);
    buf_puts(out, "\n");
}

void ps_put(struct buf *out, const struct ps_facts *facts)
{
    /* One line: that the server is well, or what it is loading, and how much of that is there. */
    struct buf line = {0};
    const json_t *model = json_object_get(facts->health, "model");
    buf_printf(&line, "%s: %s", facts->url, word(facts->health, "status"));
    if (model != NULL)
        buf_printf(&line, " %s, %.0f %%", word(facts->health, "model"),
                   100 * json_number_value(json_object_get(facts->health, "progress")));
    utf8_put_visible(out, line.v, line.len, false);
    buf_puts(out, "\n\n");
    buf_release(&line);
    put_models(out, facts);
    size_t i;
    const json_t *slot;
    if (json_array_size(facts->slots) != 0) {
        buf_printf(out, "\n%4s  %-*s  %-9s  %8s  %8s  %9s\n", "slot", NAME_WIDTH, "model", "state", "prompt", "cached",
                   "generated");
        /* The work of a busy slot; of an idle one, the tokens that it keeps. */
        json_array_foreach(facts->slots, i, slot)
        {
            const json_t *next = json_array_get(json_object_get(slot, "next_token"), 0);
            buf_printf(out, "%4lld  ", (long long)count_in(slot, "id"));
            put_left(out, word(slot, "model"), NAME_WIDTH);
            put_left(out, word(slot, "state"), 9);
            if (is_busy(slot))
                buf_printf(out, "%8lld  %8lld  %9lld\n", (long long)count_in(slot, "n_prompt_tokens"),
                           (long long)count_in(slot, "cached_tokens"), (long long)count_in(next, "n_decoded"));
            else
                buf_printf(out, "%8s  %8lld  %9s\n", "-", (long long)count_in(slot, "cached_tokens"), "-");
        }
    }
    const char *name;
    json_t *tier;
    buf_printf(out, "\n%-8s  %8s  %10s  %10s  %8s\n", "tier", "entries", "used", "quota", "evicted");
    json_object_foreach(facts->tiers, name, tier) put_tier(out, name, tier);
}

/* ---- hearth ps ---- */

#define PS "hearth ps"

/* Answers of the server; NULL until they are there. */
struct status {
    json_t *health, *models, *slots, *cache;
    struct buf metrics;
};

static int ask_server(const struct remote *remote, struct status *status, hearth_error *error)
{
    const struct {
        const char *path;
        json_t **answer;
    } rows[] = {{"/v1/models", &status->models}, {"/slots", &status->slots}, {"/cache", &status->cache}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *rows[i].answer = remote_ask_json(remote, rows[i].path, NULL, error);
        if (*rows[i].answer == NULL) return error->code;
    }
    /* Of /health the status says something, too: 503 is a server that is loading or stopping. */
    struct buf health = {0};
    long code = remote_ask(remote, "/health", NULL, &health);
    status->health = json_loadb(buf_text(&health), health.len, 0, NULL);
    const bool known = (code == 200 || code == 503) && json_object_get(status->health, "status") != NULL;
    if (!known) remote_refuse(remote, &(struct remote_reply){"/health", code, &health, "no response"}, error);
    buf_release(&health);
    if (!known) return error->code;
    code = remote_ask(remote, "/metrics", NULL, &status->metrics);
    if (code == 200) return HEARTH_OK;
    return remote_refuse(remote, &(struct remote_reply){"/metrics", code, &status->metrics, "no response"}, error);
}

static int run_ps(const char *url, bool as_json)
{
    struct status status = {0};
    hearth_error error;
    struct remote remote = remote_open(url);
    const int rc = ask_server(&remote, &status, &error);
    json_t *models = json_object_get(status.models, "data"), *tiers = json_object_get(status.cache, "tiers");
    if (rc == HEARTH_OK && as_json) {
        json_t *waiting = json_object();
        size_t i;
        const json_t *model;
        json_array_foreach(models, i, model)
        {
            const char *name = json_string_value(json_object_get(model, "id"));
            if (name != NULL)
                json_object_set_new(waiting, name, json_integer(ps_waiting(buf_text(&status.metrics), name)));
        }
        json_output_print(json_pack("{s:O, s:O?, s:O, s:O?, s:o}", "health", status.health, "models", models, "slots",
                                    status.slots, "tiers", tiers, "waiting", waiting));
    } else if (rc == HEARTH_OK) {
        const struct ps_facts facts = {.url = remote.url,
                                       .health = status.health,
                                       .models = models,
                                       .slots = status.slots,
                                       .tiers = tiers,
                                       .metrics = buf_text(&status.metrics)};
        struct buf out = {0};
        ps_put(&out, &facts);
        fputs(buf_text(&out), stdout);
        buf_release(&out);
    }
    json_decref(status.health);
    json_decref(status.models);
    json_decref(status.slots);
    json_decref(status.cache);
    buf_release(&status.metrics);
    remote_close(&remote);
    return rc == HEARTH_OK ? EXIT_FINE : args_fail(PS, &error, EXIT_FAILED);
}

int command_ps(int argc, char **argv)
{
    const char *url = REMOTE_DEFAULT;
    bool as_json = false;
    const struct args_option options[] = {
        {"server", "URL", "the server (" REMOTE_DEFAULT ")", .text = &url},
        {"json", NULL, "print what the server says as JSON", .flag = &as_json},
    };
    const struct args_spec spec = {
        .command = PS,
        .about =
            "Shows what a running server is doing: its models, with the requests that wait for admission, for the\n"
            "model or for a slot; its slots, with the tokens of the prompt, in its cells and generated; the tiers of\n"
            "its store. Where the server wants an API key, set HEARTH_API_KEY to one with the grants models, status\n"
            "and cache.",
        ARGS_OPTIONS(options),
        .examples = "  hearth ps\n"
                    "  hearth ps --server http://10.0.0.5:8080 --json\n",
    };
    int status;
    return args_read(&spec, argc, argv, &status) ? run_ps(url, as_json) : status;
}

/* ---- hearth stop ---- */

#define STOP "hearth stop"

/* How long unloading may take, which stores what is in the cells; and how often the server is asked. */
#define PATIENCE_MS 300000
#define EVERY_MS    50

/* Copies the model's state ("loaded") into `state`. */
static int ask_state(const struct remote *remote, const char *name, char state[32], hearth_error *error)
{
    json_t *answer = remote_ask_json(remote, "/v1/models", NULL, error);
    const json_t *models = json_object_get(answer, "data"), *found = NULL;
    if (answer == NULL) return error->code;
    for (size_t i = 0; i < json_array_size(models) && found == NULL; i++)
        if (strcmp(word(json_array_get(models, i), "id"), name) == 0) found = json_array_get(models, i);
    snprintf(state, 32, "%s", word(json_object_get(found, "status"), "value"));
    const int rc = found != NULL ? HEARTH_OK : remote_refuse_model(models, "there is no model", name, error);
    json_decref(answer);
    return rc;
}

static int stop_model(const struct remote *remote, const char *name, hearth_error *error)
{
    char state[32];
    int rc = ask_state(remote, name, state, error);
    if (rc == HEARTH_OK && (strcmp(state, "unloaded") == 0 || strcmp(state, "failed") == 0)) {
        printf("%s is not loaded\n", name);
        return HEARTH_OK;
    }
    if (rc == HEARTH_OK && strcmp(state, "unloading") != 0) {
        json_t *body = json_pack("{s:s}", "model", name);
        json_t *answer = remote_ask_json(remote, "/models/unload", body, error);
        if (answer == NULL) rc = error->code;
        json_decref(body);
        json_decref(answer);
    }
    if (rc == HEARTH_BUSY) error_prefix(error, "%s stays loaded while it has requests: ", name);
    const struct timespec pause = {.tv_nsec = EVERY_MS * 1000000};
    const int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(PATIENCE_MS);
    while (rc == HEARTH_OK && (rc = ask_state(remote, name, state, error)) == HEARTH_OK &&
           strcmp(state, "unloading") == 0) {
        if (clock_now(clock_monotonic()) > deadline)
            return error_set(error, HEARTH_BUSY, "%s is still being unloaded: hearth ps shows when it is done", name);
        nanosleep(&pause, NULL);
    }
    if (rc == HEARTH_OK)
        printf(strcmp(state, "unloaded") == 0 ? "%s is unloaded\n" : "%s was unloaded; a request loads it again\n",
               name);
    return rc;
}

int command_stop(int argc, char **argv)
{
    const char *url = REMOTE_DEFAULT, *name = NULL;
    const struct args_option options[] = {{"server", "URL", "the server (" REMOTE_DEFAULT ")", .text = &url}};
    const struct args_spec spec = {
        .command = STOP,
        .about =
            "Has a running server unload a model, and waits until its memory is free. What its cells hold is stored\n"
            "first; a later request loads it again. A model that has requests is not unloaded: the exit status is 1\n"
            "then. Where the server wants an API key, set HEARTH_API_KEY to one with the grants models and admin.",
        ARGS_OPTIONS(options),
        .operand = "MODEL",
        .operand_value = &name,
        .examples = "  hearth stop demo\n"
                    "  hearth stop Qwen3-8B-Q8_0 --server http://10.0.0.5:8080\n",
    };
    int status;
    if (!args_read(&spec, argc, argv, &status)) return status;
    hearth_error error;
    struct remote remote = remote_open(url);
    const int rc = stop_model(&remote, name, &error);
    remote_close(&remote);
    return rc == HEARTH_OK ? EXIT_FINE : args_fail(STOP, &error, EXIT_FAILED);
}
