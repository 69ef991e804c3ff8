/* The answer to POST /models/fit: see fits.h. A thread of pulls.c looks the files up and counts; the answer is the HTTP
 * thread's. Where the client leaves, the thread ends.
 *
 *     {"model": "hf:OWNER/REPO:QUANT"}
 *     {"model": the name that it would have, "size_bytes", "files": [{"name", "size_bytes"}], "fits",
 *      "context_window", "n_seq_max", "memory_bytes", "free_bytes", "gpu_bytes", "gpu_free_bytes", "reason"} */
#include "serve/pulls/fits.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "pull/declare.h"
#include "pull/pull.h"
#include "serve/core/call.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/pulls/pulls.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

/* The thread works on it. */
struct question {
    char *reference;
    _Atomic bool cancelled;
    struct buf files; /* of the answer, with its name and its size */
    hearth_fit fit;
};

/* A client that waits for the answer; HTTP thread only. */
struct asker {
    struct pulls_follower follower; /* the first member: its callbacks get it */
    struct call *call;
    const struct question *question; /* there until the answer was given */
};

/* ---- Finding out; on the thread ---- */

static bool is_cancelled(void *ud)
{
    struct question *question = ud;
    return atomic_load(&question->cancelled);
}

static void put_files(const struct pull_model *model, struct buf *out)
{
    int64_t sum = 0;
    for (size_t i = 0; i < model->n_files; i++) sum += model->files[i].size;
    member_puts(out, "model", model->name);
    buf_printf(out, ",\"size_bytes\":%" PRId64 ",\"files\":[", sum);
    for (size_t i = 0; i < model->n_files; i++) {
        buf_puts(out, i > 0 ? ",{" : "{");
        member_puts(out, "name", model->files[i].name);
        buf_printf(out, ",\"size_bytes\":%" PRId64 "}", model->files[i].size);
    }
    buf_puts(out, "]");
}

/* As it would be served once it was pulled. The machine is this one; that its memory is named leaves out a measurement
 * of how fast it is, which would take all cores from replies for a moment. */
static int count(void *ud, const char *folder, const struct pull_model *model, hearth_error *error)
{
    struct question *question = ud;
    const hearth_fit_machine machine = {.memory = os_free_memory()};
    hearth_config *config = hearth_config_new();
    put_files(model, &question->files);
    int rc = pull_declare(config, folder, model, error);
    if (rc == HEARTH_OK) rc = hearth_fit_on(config, model->name, &machine, &question->fit, error);
    hearth_config_free(config);
    return rc;
}

static int find_out(void *ud, hearth_error *error)
{
    struct question *question = ud;
    struct pull_reference reference;
    int rc = pulls_read_reference(question->reference, &reference, error);
    if (rc == HEARTH_OK) {
        struct pull_options options = pulls_options(&reference);
        options.is_cancelled = is_cancelled;
        options.ud = question;
        rc = pull_preview(&reference, &options, count, question, error);
    }
    pull_reference_release(&reference);
    if (rc != HEARTH_OK) snprintf(error->param, sizeof error->param, "model");
    return rc;
}

static void release_question(void *ud)
{
    struct question *question = ud;
    free(question->reference);
    buf_release(&question->files);
    free(question);
}

/* ---- The answer; on the HTTP thread ---- */

/* The choice that is recommended, or suggested with other keys, or else the one that needs least. */
static hearth_fit_choice choice_of(const hearth_fit *fit)
{
    if (fit->recommended >= 0) return fit->choices[fit->recommended];
    if (fit->suggested.context_window > 0) return fit->suggested;
    if (fit->n_choices > 0) return fit->choices[fit->n_choices - 1];
    return (hearth_fit_choice){.memory_bytes = fit->weights_bytes + fit->projector_bytes};
}

/* Of embedding and rerank models, for which nothing is chosen, the weights have to. */
static bool does_fit(const hearth_fit *fit)
{
    uint64_t room = fit->memory_budget > 0 ? fit->memory_budget + fit->gpu_budget : fit->memory_free + fit->gpu_free;
    if (fit->type == HEARTH_MODEL_CHAT) return fit->recommended >= 0;
    return fit->memory_free == 0 || fit->weights_bytes + fit->projector_bytes <= room;
}

static void put_fit(const hearth_fit *fit, struct buf *out)
{
    const hearth_fit_choice choice = choice_of(fit);
    bool fits = does_fit(fit);
    buf_printf(out, ",\"fits\":%s,\"context_window\":%d,\"n_seq_max\":%d", fits ? "true" : "false",
               (int)choice.context_window, (int)choice.n_seq_max);
    buf_printf(out, ",\"memory_bytes\":%" PRIu64 ",\"free_bytes\":%" PRIu64, choice.memory_bytes, fit->memory_free);
    buf_printf(out, ",\"gpu_bytes\":%" PRIu64 ",\"gpu_free_bytes\":%" PRIu64 ",", choice.gpu_bytes, fit->gpu_free);
    if (fit->type != HEARTH_MODEL_CHAT && !fits) {
        char *reason = mem_format("the weights do not fit: they are %.2f GiB, and %.2f GiB of memory are free",
                                  (double)choice.memory_bytes / GIB, (double)fit->memory_free / GIB);
        member_puts(out, "reason", reason);
        free(reason);
    } else {
        member_puts(out, "reason", fit->reason);
    }
}

static void on_end(struct pulls_follower *follower, const char *model, const hearth_error *error)
{
    struct asker *asker = (struct asker *)follower;
    struct buf body = {0};
    (void)model;
    if (error != NULL) {
        call_fail(asker->call, error, errors_put);
    } else {
        buf_puts(&body, "{");
        buf_append(&body, asker->question->files.v, asker->question->files.len);
        put_fit(&asker->question->fit, &body);
        buf_puts(&body, "}");
        call_reply(asker->call, 200, "application/json", &body);
    }
    free(asker);
}

static void on_gone(void *ud)
{
    struct asker *asker = ud;
    call_gone(asker->call);
    pulls_leave(&asker->follower);
    free(asker);
}

/* ---- The route ---- */

static void *read_reference(struct buf *body, hearth_error *error)
{
    return body_read_name(body, "model", error);
}

static void ask(struct call *call, void *reference)
{
    hearth_error error;
    struct question *question = mem_alloc(sizeof *question);
    question->reference = reference;
    struct asker *asker = mem_alloc(sizeof *asker);
    *asker = (struct asker){.follower = {.on_end = on_end}, .call = call, .question = question};
    const struct pulls_task task = {
        .run = find_out, .release = release_question, .ud = question, .cancelled = &question->cancelled};
    if (pulls_run(call->server->pulls, &task, &asker->follower, &error) == HEARTH_OK) {
        http_watch(call->http, on_gone, asker);
        return;
    }
    call_fail(call, &error, errors_put);
    free(asker);
}

const struct reading_form fit_asked = READING_FORM(read_reference, body_name_size, ask, free, errors_put);
