/* The routes of stored responses. Answering threads; no state. */
#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/member.h"
#include "serve/core/path.h"
#include "serve/core/server.h"
#include "serve/responses/item_list.h"
#include "serve/responses/responses.h"

#include <stdlib.h>
#include <string.h>

/* Finds the response that the path names, and returns its id, owned by the caller; NULL: the call was answered with
 * 404. */
static char *find_response(struct call *call, bool with_text, struct stored_found *found)
{
    char *id = path_part(call->route, call->path, 0);
    bool is_response = strncmp(id, "resp_", 5) == 0;
    if (is_response && stored_find(call->server->stored, call->owner, id, with_text, found)) return id;
    item_list_miss(call, "response", id);
    free(id);
    return NULL;
}

void responses_retrieve(struct call *call)
{
    const char *stream = http_query(call->http, "stream");
    struct stored_found found;
    hearth_error error;
    if (stream != NULL && strcmp(stream, "true") == 0) {
        error_at(&error, HEARTH_UNSUPPORTED, "stream",
                 "'stream' is for responses that run in the background, which none does here: leave it out");
        call_fail(call, &error, responses_put_error);
        return;
    }
    struct stored *stored = call->server->stored;
    char *id = find_response(call, true, &found);
    if (id == NULL) return;
    call_reply(call, 200, "application/json", &found.text);
    stored_release(stored, &found);
    free(id);
}

void responses_delete(struct call *call)
{
    struct stored *stored = call->server->stored;
    struct stored_found found;
    char *id = find_response(call, false, &found);
    if (id == NULL) return;
    stored_remove(stored, call->owner, id);
    stored_release(stored, &found);
    item_list_deleted(call, "response", id);
    free(id);
}

/* Lists the items of the response's prompt: those it continued, then its input. */
void responses_list_items(struct call *call)
{
    struct stored *stored = call->server->stored;
    struct stored_found found;
    char *id = find_response(call, false, &found);
    if (id == NULL) return;
    item_list_reply(call, found.turn, found.turn->all_n - (found.turn->n - found.turn->n_input));
    stored_release(stored, &found);
    free(id);
}

void responses_cancel(struct call *call)
{
    struct stored *stored = call->server->stored;
    struct stored_found found;
    hearth_error error;
    char *id = find_response(call, false, &found);
    if (id == NULL) return;
    stored_release(stored, &found);
    error_at(&error, HEARTH_INVALID, "background",
             "only a response that runs in the background can be cancelled, and none does here: close the connection "
             "of the request instead");
    call_fail(call, &error, responses_put_error);
    free(id);
}
