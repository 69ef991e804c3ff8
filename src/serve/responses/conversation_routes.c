/* The routes over what is stored: see responses.h. The reading thread parses bodies; the answering threads do
 * everything else, one route at a time. A route that changes an entry as it was found does so under stored_lock(),
 * since the turns of responses come from other threads. */

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields.h"
#include "serve/responses/history.h"
#include "serve/responses/responses.h"

#include <stdlib.h>
#include <string.h>

/* ---- Lists of items ---- */

#define LIMIT_DEFAULT 20
#define LIMIT_MAX     100

/* Writes a list of `n` items. */
static void put_list(struct buf *out, const struct stored_item *items, size_t n, bool has_more)
{
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        buf_append(out, items[i].text, items[i].len);
    }
    buf_printf(out, "],\"has_more\":%s,", has_more ? "true" : "false");
    if (n == 0) {
        buf_puts(out, "\"first_id\":null,\"last_id\":null}");
        return;
    }
    member_puts(out, "first_id", items[0].id);
    member_puts(out, "last_id", items[n - 1].id);
    buf_puts(out, "}");
}

/* Answers with a page of the first `n` items of a turn (NULL: none) and the turns before it. The query says which:
 * ?limit=20 (1 to 100), ?order=desc (newest first) or asc, ?after=ID. */
static void reply_list(struct call *call, const struct stored_turn *turn, size_t n)
{
    struct stored_item *items = stored_turn_items(turn);
    const char *order = http_query(call->http, "order"), *after = http_query(call->http, "after");
    const bool is_ascending = order != NULL && strcmp(order, "asc") == 0;
    size_t limit = LIMIT_DEFAULT, start = 0;
    hearth_error error;
    struct buf body = {0};
    int rc = body_limit(http_query(call->http, "limit"), LIMIT_MAX, &limit, &error);
    if (rc == HEARTH_OK && order != NULL && !is_ascending && strcmp(order, "desc") != 0)
        rc = error_at(&error, HEARTH_INVALID, "order", "'order' must be \"asc\" or \"desc\"");
    if (rc == HEARTH_OK && !is_ascending) {
        for (size_t i = 0; i < n / 2; i++) {
            struct stored_item item = items[i];
            items[i] = items[n - 1 - i];
            items[n - 1 - i] = item;
        }
    }
    for (size_t i = 0; rc == HEARTH_OK && after != NULL && i < n && start == 0; i++)
        if (strcmp(items[i].id, after) == 0) start = i + 1;
    if (rc == HEARTH_OK && after != NULL && start == 0)
        rc = error_at(&error, HEARTH_INVALID, "after", "'after' is the id of none of the items");
    if (rc == HEARTH_OK) {
        size_t shown = n - start < limit ? n - start : limit;
        put_list(&body, items + start, shown, start + shown < n);
        call_reply(call, 200, "application/json", &body);
    } else {
        call_fail(call, &error, errors_put);
    }
    free(items);
}

/* Answers with 404 in OpenAI's form. `what`: "response". */
static void reply_miss(struct call *call, const char *what, const char *id)
{
    call_refuse(call, errors_put, ERRORS_NO_ENTRY, "",
                "no %s '%.80s' is stored here: it was never stored, it was evicted or deleted, the server was started "
                "again since, or it is another key's",
                what, id);
}

/* ---- Stored responses ---- */

/* Finds what the path names, a response or a conversation, with its id; false: the call was answered with 404. */
static bool find_stored(struct call *call, const char *what, bool with_text, struct stored_found *found)
{
    char *id = call_path_part(call, 0);
    bool is_right = strncmp(id, what[0] == 'c' ? "conv_" : "resp_", 5) == 0;
    if (is_right && stored_find(call->server->stored, call->owner, id, with_text, found)) {
        found->id = id;
        return true;
    }
    reply_miss(call, what, id);
    free(id);
    return false;
}

static void retrieve(struct call *call, const char *what)
{
    struct stored_found found;
    if (!find_stored(call, what, true, &found)) return;
    call_reply(call, 200, "application/json", &found.text);
    stored_release(call->server->stored, &found);
}

static void delete_stored(struct call *call, const char *what, const char *object)
{
    struct stored_found found;
    if (!find_stored(call, what, false, &found)) return;
    stored_remove(call->server->stored, call->owner, found.id);
    struct buf body = {0};
    buf_puts(&body, "{");
    member_puts(&body, "id", found.id);
    buf_printf(&body, ",\"object\":\"%s\",\"deleted\":true}", object);
    call_reply(call, 200, "application/json", &body);
    stored_release(call->server->stored, &found);
}

void responses_retrieve(struct call *call)
{
    const char *stream = http_query(call->http, "stream");
    if (stream == NULL || strcmp(stream, "true") != 0)
        retrieve(call, "response");
    else
        call_refuse(call, responses_put_error, HEARTH_UNSUPPORTED, "stream",
                    "'stream' is for responses that run in the background, which none does here: leave it out");
}

void responses_delete(struct call *call)
{
    delete_stored(call, "response", "response");
}

/* Lists the items of the response's prompt: those it continued, then its input. */
void responses_list_items(struct call *call)
{
    struct stored_found found;
    if (!find_stored(call, "response", false, &found)) return;
    reply_list(call, found.turn, found.turn->all_n - (found.turn->n - found.turn->n_input));
    stored_release(call->server->stored, &found);
}

void responses_cancel(struct call *call)
{
    struct stored_found found;
    if (!find_stored(call, "response", false, &found)) return;
    call_refuse(
        call, responses_put_error, HEARTH_INVALID, "background",
        "only a response that runs in the background can be cancelled, and none does here: close the connection "
        "of the request instead");
    stored_release(call->server->stored, &found);
}

/* ---- Bodies ---- */

struct conversation_request {
    struct stored *stored;
    struct stored_turn *turn; /* the items of the body */
    char *metadata;           /* NULL: not given */
};

static void close_conversation_request(void *ud)
{
    struct conversation_request *request = ud;
    stored_turn_unref(request->stored, request->turn);
    free(request->metadata);
    free(request);
}

static size_t conversation_request_size(const void *ud)
{
    const struct conversation_request *request = ud;
    return sizeof *request + request->turn->all_bytes + (request->metadata == NULL ? 0 : strlen(request->metadata));
}

/* All that OpenAI's API lets be sent, 16 values of 512 characters with keys of 64, is less. */
#define METADATA_MAX 65536

static int read_metadata(struct conversation_request *request, const json_t *body, hearth_error *error)
{
    const json_t *metadata = json_object_get(body, "metadata");
    if (metadata == NULL || json_is_null(metadata)) return HEARTH_OK;
    if (!json_text_is_object(metadata))
        return error_at(error, HEARTH_INVALID, "metadata", "'metadata' must be an object");
    request->metadata = json_text_of(metadata);
    size_t len = strlen(request->metadata);
    if (len > METADATA_MAX)
        return error_at(error, HEARTH_INVALID, "metadata", "'metadata' has %zu bytes as JSON, more than %d: shorten it",
                        len, METADATA_MAX);
    return HEARTH_OK;
}

/* Checks the items as input of a response, and empties the data of their media. responses_chat() names them "input[0]"
 * in errors; here they are "items[0]". */
static int check_items(const json_t *items, hearth_error *error)
{
    struct uploads uploads = {0};
    struct header_list unused = {0}; /* named when the items come into a prompt */
    json_t *body = json_pack("{s:O}", "input", items), *chat = responses_chat(body, &uploads, &unused, error);
    uploads_release(&uploads);
    if (chat == NULL && strncmp(error->param, "input", strlen("input")) == 0) {
        hearth_error renamed = convert_rename(error, &(struct convert_name){"input[]", "items[]"}, 1);
        *error = renamed;
    }
    json_decref(body);
    json_decref(chat);
    return chat == NULL ? (int)error->code : HEARTH_OK;
}

/* An empty body is an empty object. */
static void *read_conversation_request(struct buf *text, const struct reading_caller *caller, hearth_error *error)
{
    if (!stored_is_on(caller->stored)) {
        error_set(error, HEARTH_UNSUPPORTED, "conversations are not kept here: server.responses_max is 0");
        return NULL;
    }
    json_t *body = text->len == 0 ? json_object() : fields_parse_body(text, error);
    if (body == NULL) return NULL;
    struct conversation_request *request = mem_alloc(sizeof *request);
    request->stored = caller->stored;
    int rc = read_metadata(request, body, error);
    const json_t *items = body_find(body, "items");
    if (rc == HEARTH_OK && items != NULL && !json_is_array(items))
        rc = error_at(error, HEARTH_INVALID, "items", "'items' must be a list of items");
    if (rc == HEARTH_OK) {
        char name[HISTORY_ID_SIZE];
        call_random_name(name, sizeof name);
        request->turn = history_turn(request->stored, NULL, items, name);
        if (json_array_size(items) > 0) rc = check_items(items, error);
    }
    json_decref(body);
    if (rc == HEARTH_OK) return request;
    close_conversation_request(request);
    return NULL;
}

#define FORM(does)                                                                                                     \
    {                                                                                                                  \
        .read_with = read_conversation_request, .size = conversation_request_size, .answer = (does), .is_away = true,  \
        .release = close_conversation_request, .put_error = errors_put                                                 \
    }

/* ---- One conversation ---- */

static void put_conversation(struct buf *out, const char *id, int64_t created, const char *metadata)
{
    buf_puts(out, "{");
    member_puts(out, "id", id);
    buf_printf(out, ",\"object\":\"conversation\",\"created_at\":%lld,\"metadata\":%s}", (long long)created,
               metadata == NULL ? "{}" : metadata);
}

/* Answers 400: with what the body adds the conversation would be larger than everything may be together. */
static void refuse_size(struct call *call, const char *param)
{
    call_refuse(
        call, errors_put, HEARTH_INVALID, param,
        "the conversation would be larger than server.responses_max_mb lets it be, and stays as it was: send less "
        "in '%s', delete items of it, begin another one, or raise that key",
        param);
}

/* Answers with the body what was changed, or with what stood in the way. Between being found and changed a conversation
 * may have left: other requests go on meanwhile. */
static void answer_change(struct call *call, enum stored_change change, const char *param, const char *id,
                          struct buf *body)
{
    if (change == STORED_CHANGED)
        call_reply(call, 200, "application/json", body);
    else if (change == STORED_ABSENT)
        reply_miss(call, "conversation", id);
    else
        refuse_size(call, param);
}

static void answer_create(struct call *call, void *ud)
{
    struct conversation_request *request = ud;
    char name[HISTORY_ID_SIZE], *id;
    struct buf text = {0}, body = {0};
    call_random_name(name, sizeof name);
    id = mem_format("conv_%s", name);
    put_conversation(&text, id, clock_unix_ms() / 1000, request->metadata);
    buf_append(&body, text.v, text.len);
    const struct stored_entry entry = {.owner = call->owner, .id = id, .text = &text, .turn = request->turn};
    if (stored_put(request->stored, &entry))
        call_reply(call, 200, "application/json", &body);
    else
        refuse_size(call, "items");
    buf_release(&body);
    free(id);
    close_conversation_request(request);
}

const struct reading_form conversations_create = FORM(answer_create);

void conversations_retrieve(struct call *call)
{
    retrieve(call, "conversation");
}

static void answer_update(struct call *call, void *ud)
{
    struct conversation_request *request = ud;
    struct stored *stored = request->stored;
    struct stored_found found;
    struct buf text = {0}, body = {0};
    if (find_stored(call, "conversation", true, &found)) {
        json_t *json = json_text_read(found.text.v, found.text.len, NULL);
        int64_t created = json_integer_value(json_object_get(json, "created_at"));
        json_decref(json);
        put_conversation(&text, found.id, created, request->metadata);
        buf_append(&body, text.v, text.len);
        enum stored_change change = stored_set_text(stored, call->owner, found.id, &text);
        answer_change(call, change, "metadata", found.id, &body);
        buf_release(&text);
        buf_release(&body);
        stored_release(stored, &found);
    }
    close_conversation_request(request);
}

const struct reading_form conversations_update = FORM(answer_update);

void conversations_delete(struct call *call)
{
    delete_stored(call, "conversation", "conversation.deleted");
}

/* ---- Items ---- */

void conversations_list_items(struct call *call)
{
    struct stored_found found;
    if (!find_stored(call, "conversation", false, &found)) return;
    reply_list(call, found.turn, found.turn->all_n);
    stored_release(call->server->stored, &found);
}

static void answer_added(struct call *call, void *ud)
{
    struct conversation_request *request = ud;
    struct stored_found found;
    struct buf body = {0};
    if (find_stored(call, "conversation", false, &found)) {
        struct stored_item *items = stored_turn_items(request->turn);
        put_list(&body, items, request->turn->n, false);
        free(items);
        enum stored_change change = stored_extend(request->stored, call->owner, found.id, request->turn);
        answer_change(call, change, "items", found.id, &body);
        buf_release(&body);
        stored_release(request->stored, &found);
    }
    close_conversation_request(request);
}

const struct reading_form conversations_add_items = FORM(answer_added);

/* The item that the path names; NULL: the call was answered with 404. The caller frees the list. */
static const struct stored_item *find_item(struct call *call, const struct stored_turn *turn,
                                           struct stored_item **items)
{
    char *wanted = call_path_part(call, 1);
    const struct stored_item *item = NULL;
    *items = stored_turn_items(turn);
    for (size_t i = 0; i < turn->all_n && item == NULL; i++)
        if (strcmp((*items)[i].id, wanted) == 0) item = &(*items)[i];
    if (item == NULL) reply_miss(call, "item", wanted);
    free(wanted);
    return item;
}

void conversations_show_item(struct call *call)
{
    struct stored_found found;
    if (!find_stored(call, "conversation", false, &found)) return;
    struct stored_item *items;
    const struct stored_item *item = find_item(call, found.turn, &items);
    struct buf body = {0};
    if (item != NULL) {
        buf_append(&body, item->text, item->len);
        call_reply(call, 200, "application/json", &body);
    }
    free(items);
    stored_release(call->server->stored, &found);
}

static void delete_item(struct call *call)
{
    struct stored_found found;
    struct stored *stored = call->server->stored;
    if (!find_stored(call, "conversation", true, &found)) return;
    struct stored_item *items;
    const struct stored_item *item = find_item(call, found.turn, &items);
    if (item != NULL) {
        /* A new turn in place of the one with the item and those behind it, without the item: turns are immutable, and
         * responses may hold them too. */
        struct stored_turn *turn = found.turn;
        size_t at = (size_t)(item - items), n = turn->all_n;
        while (turn->before != NULL && turn->before->all_n > at) turn = turn->before;
        struct stored_turn *copy = stored_turn_new(stored, turn->before);
        for (size_t i = turn->before == NULL ? 0 : turn->before->all_n; i < n; i++) {
            struct buf text = {0};
            if (i == at) continue;
            buf_append(&text, items[i].text, items[i].len);
            stored_turn_add(copy, items[i].id, &text);
        }
        stored_set_turn(stored, call->owner, found.id, copy); /* it is smaller than before, and fits */
        stored_turn_unref(stored, copy);
        call_reply(call, 200, "application/json", &found.text);
    }
    free(items);
    stored_release(call->server->stored, &found);
}

void conversations_delete_item(struct call *call)
{
    struct stored *stored = call->server->stored;
    stored_lock(stored);
    delete_item(call);
    stored_unlock(stored);
}
