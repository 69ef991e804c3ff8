/* The history of Responses requests, previous turns and references: see history.h. */
#include "serve/responses/history.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>
#include <string.h>

/* ---- The turn of a list of items ---- */

static void add_item(struct stored_turn *turn, const json_t *given, const char *name)
{
    json_t *item = json_copy((json_t *)given);
    const char *id = field_string(json_object_get(item, "id"));
    if (id == NULL || id[0] == '\0') {
        char *own = mem_format("item_%s_in%zu", name, turn->n);
        json_object_set_new(item, "id", json_string(own));
        free(own);
        id = json_string_value(json_object_get(item, "id"));
    }
    /* A message that was abbreviated (content as a string, without type or status) is completed, so that lists of items
     * show it in full. */
    json_t *content = json_object_get(item, "content"), *role = json_object_get(item, "role");
    if (role != NULL && json_object_get(item, "type") == NULL)
        json_object_set_new(item, "type", json_string("message"));
    if (role != NULL && convert_is(json_object_get(item, "type"), "message")) {
        const char *type = convert_is(role, "assistant") ? "output_text" : "input_text";
        if (json_object_get(item, "status") == NULL) json_object_set_new(item, "status", json_string("completed"));
        if (json_is_string(content))
            json_object_set_new(item, "content", json_pack("[{s:s,s:O}]", "type", type, "text", content));
    }
    char *text = json_text_of(item);
    struct buf bytes = {0};
    buf_puts(&bytes, text);
    stored_turn_add(turn, id, &bytes);
    free(text);
    json_decref(item);
}

struct stored_turn *history_turn(struct stored *stored, struct stored_turn *before, const json_t *items,
                                 const char *name)
{
    struct stored_turn *turn = stored_turn_new(stored, before);
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item) if (json_text_is_object(item)) add_item(turn, item, name);
    turn->n_input = turn->n;
    return turn;
}

/* ---- Previous turns ---- */

static int not_stored(const char *field, const char *id, const char *what, hearth_error *error)
{
    return error_at(error, ERRORS_NO_PREVIOUS, field,
                    "'%s': no %s '%.80s' is stored here: it was evicted or deleted, the server was started again "
                    "since, or it is another key's. Send the whole conversation as input",
                    field, what, id);
}

static int find_turn(struct history *history, const char *field, const char *id, hearth_error *error)
{
    struct stored_found found;
    const char *what = strcmp(field, "conversation") == 0 ? "conversation" : "response";
    bool right = strncmp(id, what[0] == 'c' ? "conv_" : "resp_", 5) == 0;
    if (!right || !stored_find(history->stored, history->owner, id, false, &found))
        return not_stored(field, id, what, error);
    history->before = found.turn;
    return HEARTH_OK;
}

/* The id in a field: a string; of a conversation also an object with "id". NULL with HEARTH_OK if there is none. */
static const char *id_in(const json_t *body, const char *field, hearth_error *error)
{
    const json_t *value = json_object_get(body, field);
    *error = (hearth_error){0};
    if (value == NULL || json_is_null(value)) return NULL;
    if (json_text_is_object(value) && strcmp(field, "conversation") == 0) value = json_object_get(value, "id");
    const char *id = field_string(value);
    if (id == NULL || id[0] == '\0') {
        error_at(error, HEARTH_INVALID, field, "'%s' must be an id", field);
        return NULL;
    }
    return id;
}

static int find_before(struct history *history, const json_t *body, hearth_error *error)
{
    const char *previous = id_in(body, "previous_response_id", error);
    if (error->code != HEARTH_OK) return (int)error->code;
    const char *conversation = id_in(body, "conversation", error);
    if (error->code != HEARTH_OK) return (int)error->code;
    if (previous != NULL && conversation != NULL)
        return error_at(error, HEARTH_INVALID, "conversation",
                        "'conversation' and 'previous_response_id' exclude each other: give one of them");
    history->conversation = mem_strdup(conversation);
    if (previous != NULL) return find_turn(history, "previous_response_id", previous, error);
    return conversation == NULL ? HEARTH_OK : find_turn(history, "conversation", conversation, error);
}

/* The same limit as for a body that would contain all the items. */
static int too_large(const struct history *history, const char *field, size_t bytes, hearth_error *error)
{
    return error_at(
        error, ERRORS_TOO_LARGE, field,
        "'%s' refers to %zu bytes of stored items: at most %zu (server.max_body_bytes). Begin a new conversation",
        field, bytes, history->max_bytes);
}

static json_t *read_before(const struct history *history, hearth_error *error)
{
    struct buf text = {0};
    const char *field = history->conversation != NULL ? "conversation" : "previous_response_id";
    if (history->before->all_bytes > history->max_bytes) {
        too_large(history, field, history->before->all_bytes, error);
        return NULL;
    }
    struct stored_item *items = stored_turn_items(history->before);
    buf_puts(&text, "[");
    for (size_t i = 0; i < history->before->all_n; i++) {
        if (i > 0) buf_puts(&text, ",");
        buf_append(&text, items[i].text, items[i].len);
    }
    buf_puts(&text, "]");
    free(items);
    json_t *list = fields_parse_any(text.v, text.len, error);
    buf_release(&text);
    return list;
}

/* ---- References ---- */

/* Item references of one request: each costs a scan of a response's items. */
#define REFERENCES_MAX 1024

/* An item's id contains its response's: KIND_RESPONSE_NUMBER. Its bytes are added to `bytes`; it is read as long as
 * they are not too many. */
static json_t *find_referenced_item(const struct history *history, const char *id, size_t *bytes)
{
    const char *first = strchr(id, '_'), *last = strrchr(id, '_');
    struct stored_found found;
    if (first == NULL || last == first) return NULL;
    char *response = mem_format("resp_%.*s", (int)(last - first - 1), first + 1);
    json_t *item = NULL;
    if (stored_find(history->stored, history->owner, response, false, &found)) {
        size_t i = 0;
        while (i < found.turn->n && strcmp(found.turn->items[i].id, id) != 0) i++;
        const struct stored_item *its = i < found.turn->n ? &found.turn->items[i] : NULL;
        if (its != NULL) *bytes += its->len;
        if (its != NULL && *bytes <= history->max_bytes) item = json_text_read(its->text, its->len, NULL);
        stored_release(history->stored, &found);
    }
    free(response);
    return item;
}

static int resolve(struct history *history, json_t *input, hearth_error *error)
{
    size_t i, n = 0, bytes = 0;
    json_t *item;
    json_array_foreach(input, i, item)
    {
        const json_t *type = json_object_get(item, "type");
        const char *id = field_string(json_object_get(item, "id"));
        bool is_bare = type == NULL && json_object_size(item) == 1;
        if (id == NULL || (!is_bare && !convert_is(type, "item_reference"))) continue;
        struct field_path at = field_path_of("input[%zu].id", i);
        if (++n > REFERENCES_MAX)
            return error_at(error, HEARTH_INVALID, "input", "'input' refers to more than %d items", REFERENCES_MAX);
        json_t *found = find_referenced_item(history, id, &bytes);
        if (bytes > history->max_bytes) return too_large(history, "input", bytes, error);
        if (found == NULL) return not_stored(at.v, id, "item", error);
        json_array_set_new(input, i, found);
    }
    return HEARTH_OK;
}

/* ---- Opening and closing ---- */

int history_open(struct history *history, json_t *body, const struct reading_caller *caller, enum history_use use,
                 json_t **before, hearth_error *error)
{
    *history =
        (struct history){.stored = caller->stored, .owner = mem_strdup(caller->owner), .max_bytes = caller->max_bytes};
    *before = NULL;
    call_random_name(history->id, sizeof history->id);
    bool store = true;
    if (body_bool(body, "store", &store, error) != HEARTH_OK) return (int)error->code;
    history->is_stored = store && stored_is_on(history->stored);
    if (find_before(history, body, error) != HEARTH_OK) return (int)error->code;
    if (resolve(history, json_object_get(body, "input"), error) != HEARTH_OK) return (int)error->code;
    if (history->before != NULL && (*before = read_before(history, error)) == NULL) return (int)error->code;
    /* The response repeats these fields with the values that hold. */
    json_object_set_new(body, "store", json_boolean(history->is_stored));
    if (history->conversation != NULL)
        json_object_set_new(body, "conversation", json_pack("{s:s}", "id", history->conversation));
    bool stores = use == HISTORY_STORES && (history->is_stored || history->conversation != NULL);
    if (stores || use == HISTORY_KEEPS) {
        const json_t *input = json_object_get(body, "input");
        json_t *wrapped = json_is_string(input) ? json_pack("[{s:s,s:O}]", "role", "user", "content", input) : NULL;
        /* A conversation's turn is appended to its last one when the answer is complete. */
        bool appends = history->conversation != NULL && use == HISTORY_STORES;
        history->turn = history_turn(history->stored, appends ? NULL : history->before,
                                     wrapped != NULL ? wrapped : input, history->id);
        json_decref(wrapped);
    }
    if (!stores || history->conversation == NULL) return HEARTH_OK;
    /* Before anything is computed: a conversation that could not take the turn would lose it. */
    size_t bytes = history->turn->all_bytes + (history->before == NULL ? 0 : history->before->all_bytes);
    if (stored_can_hold(history->stored, bytes)) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "conversation",
                    "the conversation has %zu bytes with this input, which server.responses_max_mb does not let be "
                    "stored: delete items of it, begin another one, or raise that key",
                    bytes);
}

void history_close(struct history *history)
{
    if (history->stored == NULL) return;
    stored_turn_unref(history->stored, history->turn);
    stored_turn_unref(history->stored, history->before);
    free(history->conversation);
    free(history->owner);
    *history = (struct history){.stored = NULL};
}

size_t history_size(const struct history *history)
{
    if (history->turn == NULL) return 0;
    return history->turn->all_bytes - (history->turn->before == NULL ? 0 : history->turn->before->all_bytes);
}

void history_finish(struct history *history, struct buf *response)
{
    if (history->conversation != NULL) {
        stored_lock(history->stored);
        enum stored_change kept = stored_extend(history->stored, history->owner, history->conversation, history->turn);
        stored_unlock(history->stored);
        if (kept == STORED_TOO_LARGE)
            log_event(LOG_WARN, "serve", "a conversation is too large for another turn",
                      log_str("id", history->conversation));
    }
    if (history->is_stored) {
        char *id = mem_format("resp_%s", history->id);
        const struct stored_entry entry = {.owner = history->owner, .id = id, .text = response, .turn = history->turn};
        if (!stored_put(history->stored, &entry))
            log_event(LOG_WARN, "serve", "a response is too large to be stored", log_str("id", id));
        free(id);
    }
    buf_release(response);
    stored_turn_unref(history->stored, history->turn);
    history->turn = NULL;
}
