/* Ollama's POST /api/pull and DELETE /api/delete. HTTP thread only; what a request asks for is in the struct asked that
 * its call has, from the body to the last line. */
#include "serve/ollama/ollama.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/pulls/pulls.h"

#include <stdlib.h>
#include <string.h>

#define BACKLOG_MOST 65536 /* bytes that a client has not taken, above which it gets no news */

struct asked {
    struct pulls_follower follower; /* the first member: its callbacks get it */
    char *model;
    bool stream, insecure;
    struct call *call;
    bool begun; /* the stream */
};

/* ---- The body ---- */

static void release_asked(void *ud)
{
    struct asked *asked = ud;
    free(asked->model);
    free(asked);
}

static size_t asked_size(const void *ud)
{
    const struct asked *asked = ud;
    return sizeof *asked + strlen(asked->model);
}

/* "name" is the older name of "model". */
static void *read_asked(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    const char *model = NULL;
    bool stream = true, insecure = false;
    if (tree == NULL) return NULL;
    int rc = body_text(tree, "name", &model, error);
    if (rc == HEARTH_OK) rc = body_text(tree, "model", &model, error);
    if (rc == HEARTH_OK) rc = body_bool(tree, "stream", &stream, error);
    if (rc == HEARTH_OK) rc = body_bool(tree, "insecure", &insecure, error);
    if (rc == HEARTH_OK && (model == NULL || model[0] == '\0'))
        rc = error_at(error, HEARTH_INVALID, "model", "'model' is missing: name the model");
    struct asked *asked = rc == HEARTH_OK ? mem_alloc(sizeof *asked) : NULL;
    if (asked != NULL) *asked = (struct asked){.model = mem_strdup(model), .stream = stream, .insecure = insecure};
    json_decref(tree);
    return asked;
}

/* ---- Lines ---- */

static void put_status(struct buf *out, const char *status)
{
    buf_puts(out, "{");
    member_puts(out, "status", status);
}

/* Clients tell files apart by the digest; where the source has none the file's name does for it. */
static void put_fetching(struct buf *out, const struct pulls_news *news)
{
    bool has_digest = news->digest[0] != '\0';
    char *digest = mem_format("%s%s", has_digest ? "sha256:" : "", has_digest ? news->digest : news->file);
    char *status = mem_format("pulling %.12s", news->digest);
    if (!has_digest) {
        free(status);
        status = mem_format("pulling %s", news->file);
    }
    put_status(out, status);
    member_puts(out, "digest", digest);
    if (news->total >= 0) buf_printf(out, ",\"total\":%lld", (long long)news->total);
    buf_printf(out, ",\"completed\":%lld,", (long long)news->done);
    member_puts(out, "file", news->file);
    free(status);
    free(digest);
}

static void send_line(struct asked *asked, struct buf *line)
{
    if (!asked->begun) call_begin(asked->call, "application/x-ndjson");
    asked->begun = true;
    http_send(asked->call->http, line->v, line->len);
    buf_release(line);
}

/* ---- What comes of it ---- */

static void on_news(struct pulls_follower *follower, const struct pulls_news *news)
{
    struct asked *asked = (struct asked *)follower;
    struct buf line = {0};
    if (!asked->stream || http_backlog(asked->call->http) > BACKLOG_MOST) return;
    static const char *const statuses[] = {[PULLS_LISTING] = "pulling manifest",
                                           [PULLS_CHECKING] = "verifying sha256 digest",
                                           [PULLS_SERVING] = "writing manifest"};
    if (news->step == PULLS_FETCHING)
        put_fetching(&line, news);
    else
        put_status(&line, statuses[news->step]);
    buf_puts(&line, "}\n");
    send_line(asked, &line);
}

static void put_success(struct buf *out, const char *model)
{
    put_status(out, "success");
    member_puts(out, "model", model);
    buf_puts(out, "}");
}

/* An error that comes before the first line has a status of its own. */
static void on_pulled(struct pulls_follower *follower, const char *model, const hearth_error *error)
{
    struct asked *asked = (struct asked *)follower;
    struct buf line = {0};
    if (error != NULL && !asked->begun) {
        call_fail(asked->call, error, ollama_put_error);
    } else if (!asked->stream) {
        put_success(&line, model);
        call_reply(asked->call, 200, "application/json", &line);
    } else {
        if (error != NULL)
            ollama_put_error(&line, error, NULL);
        else
            put_success(&line, model);
        buf_puts(&line, "\n");
        send_line(asked, &line);
        call_end(asked->call);
    }
    release_asked(asked);
}

static void on_removed(struct pulls_follower *follower, const char *model, const hearth_error *error)
{
    struct asked *asked = (struct asked *)follower;
    struct buf none = {0};
    (void)model;
    if (error != NULL)
        call_fail(asked->call, error, ollama_put_error);
    else
        call_reply(asked->call, 200, NULL, &none);
    release_asked(asked);
}

static void on_gone(void *ud)
{
    struct asked *asked = ud;
    call_gone(asked->call);
    pulls_leave(&asked->follower);
    release_asked(asked);
}

/* ---- Routes ---- */

static void await_end(struct call *call, struct asked *asked, int rc, const hearth_error *error)
{
    if (rc == HEARTH_OK) {
        http_watch(call->http, on_gone, asked);
        return;
    }
    call_fail(call, error, ollama_put_error);
    release_asked(asked);
}

static void begin_pull(struct call *call, void *ud)
{
    struct asked *asked = ud;
    hearth_error error;
    asked->call = call;
    asked->follower = (struct pulls_follower){.on_news = on_news, .on_end = on_pulled};
    int rc = pulls_pull(call->server->pulls, asked->model, asked->insecure, &asked->follower, &error);
    await_end(call, asked, rc, &error);
}

static void begin_removal(struct call *call, void *ud)
{
    struct asked *asked = ud;
    hearth_error error;
    if (ollama_remove_preset(call, asked->model)) {
        release_asked(asked);
        return;
    }
    asked->call = call;
    asked->follower = (struct pulls_follower){.on_end = on_removed};
    int rc = pulls_remove(call->server->pulls, asked->model, &asked->follower, &error);
    await_end(call, asked, rc, &error);
}

const struct reading_form ollama_pull =
    READING_FORM(read_asked, asked_size, begin_pull, release_asked, ollama_put_error);

const struct reading_form ollama_delete =
    READING_FORM(read_asked, asked_size, begin_removal, release_asked, ollama_put_error);
