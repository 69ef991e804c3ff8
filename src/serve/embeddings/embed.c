/* Embedding and reranking requests in flight. A request is freed when its end has been posted to the HTTP thread,
 * whether or not the client is still connected. Until then the library's thread owns `answer` and `error`,
 * the HTTP thread everything else. */
#include "serve/embeddings/embed.h"

#include "base/memory.h"
#include "serve/core/server.h"

#include <stdlib.h>

struct embedding_call {
    struct call *call; /* NULL: the client disconnected */
    struct http_server *http;
    struct workers *workers;
    struct ratelimit *ratelimit; /* of the API key: holds one of its slots while the request runs */
    const struct embed_form *form;
    void *state;
    hearth_embedding *request;
    struct buf answer;
    hearth_error error; /* HEARTH_OK: `answer` holds the result */
    size_t counted;     /* bytes of the state, in the sum of all bodies */
};

static void release_call(void *ud)
{
    struct embedding_call *ec = ud;
    hearth_embedding_release(ec->request);
    ec->form->release(ec->state);
    buf_release(&ec->answer);
    free(ec);
}

static void free_call(struct embedding_call *ec)
{
    http_recount(ec->http, ec->counted, 0);
    workers_release(ec->workers, release_call, ec);
}

static void fail_embedding(struct embedding_call *ec)
{
    hearth_error renamed = ec->form->rename == NULL ? ec->error : ec->form->rename(ec->state, &ec->error);
    call_fail(ec->call, &renamed, ec->form->put_error);
}

static void on_arrived(void *ud)
{
    struct embedding_call *ec = ud;
    ratelimit_count_tokens(ec->ratelimit, hearth_embedding_tokens(ec->request));
    ratelimit_return_slots(ec->ratelimit, 1);
    if (ec->call != NULL && ec->error.code != HEARTH_OK)
        fail_embedding(ec);
    else if (ec->call != NULL)
        call_reply(ec->call, 200, "application/json", &ec->answer);
    free_call(ec);
}

static void on_end(void *ud, const hearth_embedded *result, const hearth_error *error)
{
    struct embedding_call *ec = ud;
    if (error != NULL)
        ec->error = *error;
    else
        ec->form->put(ec->state, result, &ec->answer);
    http_post(ec->http, on_arrived, ec);
}

static void on_gone(void *ud)
{
    struct embedding_call *ec = ud;
    struct call *call = ec->call;
    ec->call = NULL;
    hearth_embedding_cancel(ec->request);
    call_gone(call);
}

void embed_start(struct call *call, const hearth_embed_params *params, const struct embed_form *form, void *state)
{
    struct embedding_call *ec = mem_alloc(sizeof *ec);
    *ec = (struct embedding_call){.call = call,
                                  .http = call->server->http,
                                  .workers = call->server->workers,
                                  .ratelimit = call->limit,
                                  .form = form,
                                  .state = state};
    ec->counted = call->counted;
    call->counted = 0;
    call_set_model(call, params->model);
    if (ratelimit_take_slots(ec->ratelimit, 1, &ec->error) == HEARTH_OK) {
        hearth_embed_params lent = *params;
        lent.lent = true;
        ec->request = hearth_embed(call->server->instance, &lent, on_end, ec, &ec->error);
        if (ec->request != NULL) {
            http_watch(call->http, on_gone, ec);
            return;
        }
        ratelimit_return_slots(ec->ratelimit, 1);
    }
    fail_embedding(ec);
    free_call(ec);
}
