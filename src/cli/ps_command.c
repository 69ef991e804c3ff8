/* hearth ps: shows what a running server is doing. Main thread. */
#include "base/error.h"
#include "cli/args.h"
#include "cli/command.h"
#include "cli/ps.h"
#include "cli/remote.h"

#include <stdbool.h>
#include <stdio.h>

#define COMMAND "hearth ps"

/* Answers of the server; NULL until they are there. */
struct status {
    json_t *health, *models, *slots, *cache;
    struct buf metrics;
};

/* ---- Asking ---- */

/* Of /health the status says something, too: 503 is a server that is loading or stopping. */
static int ask_health(const struct remote *remote, struct status *status, hearth_error *error)
{
    struct buf answer = {0};
    const long code = remote_ask(remote, "/health", NULL, &answer);
    status->health = json_loadb(buf_text(&answer), answer.len, 0, NULL);
    const bool known = (code == 200 || code == 503) && json_object_get(status->health, "status") != NULL;
    if (!known) remote_refuse(remote, &(struct remote_reply){"/health", code, &answer, "no response"}, error);
    buf_release(&answer);
    return known ? HEARTH_OK : (int)error->code;
}

static int ask_metrics(const struct remote *remote, struct status *status, hearth_error *error)
{
    const long code = remote_ask(remote, "/metrics", NULL, &status->metrics);
    if (code == 200) return HEARTH_OK;
    return remote_refuse(remote, &(struct remote_reply){"/metrics", code, &status->metrics, "no response"}, error);
}

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
    const int rc = ask_health(remote, status, error);
    return rc == HEARTH_OK ? ask_metrics(remote, status, error) : rc;
}

/* ---- Printing ---- */

static json_t *models_of(const struct status *status)
{
    return json_object_get(status->models, "data");
}

static json_t *waiting_of(const struct status *status)
{
    json_t *waiting = json_object();
    size_t i;
    const json_t *model;
    json_array_foreach(models_of(status), i, model)
    {
        const char *name = json_string_value(json_object_get(model, "id"));
        if (name != NULL)
            json_object_set_new(waiting, name, json_integer(ps_waiting(buf_text(&status->metrics), name)));
    }
    return waiting;
}

static void print_json(const struct status *status)
{
    json_t *all =
        json_pack("{s:O, s:O?, s:O, s:O?, s:o}", "health", status->health, "models", models_of(status), "slots",
                  status->slots, "tiers", json_object_get(status->cache, "tiers"), "waiting", waiting_of(status));
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
}

static void print_tables(const struct remote *remote, const struct status *status)
{
    const struct ps_facts facts = {.url = remote->url,
                                   .health = status->health,
                                   .models = models_of(status),
                                   .slots = status->slots,
                                   .tiers = json_object_get(status->cache, "tiers"),
                                   .metrics = buf_text(&status->metrics)};
    struct buf out = {0};
    ps_put(&out, &facts);
    fputs(buf_text(&out), stdout);
    buf_release(&out);
}

static void release(struct status *status)
{
    json_decref(status->health);
    json_decref(status->models);
    json_decref(status->slots);
    json_decref(status->cache);
    buf_release(&status->metrics);
}

static int run_ps(const char *url, bool as_json)
{
    struct status status = {0};
    hearth_error error;
    struct remote remote = remote_open(url);
    const int rc = ask_server(&remote, &status, &error);
    if (rc == HEARTH_OK && as_json)
        print_json(&status);
    else if (rc == HEARTH_OK)
        print_tables(&remote, &status);
    release(&status);
    remote_close(&remote);
    return rc == HEARTH_OK ? EXIT_FINE : args_fail(COMMAND, &error, EXIT_FAILED);
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
        .command = COMMAND,
        .about =
            "Shows what a running server is doing: its models, with the requests that wait for admission, for the\n"
            "model or for a slot; its slots, with the tokens of the prompt, in its cells and generated; the tiers of\n"
            "its store. Where the server wants an API key, set HEARTH_API_KEY to one with the grants models, status\n"
            "and cache.",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .examples = "  hearth ps\n"
                    "  hearth ps --server http://10.0.0.5:8080 --json\n",
    };
    int status;
    return args_read(&spec, argc, argv, &status) ? run_ps(url, as_json) : status;
}
