/* Compaction of conversations: see responses.h. The reading thread makes a chat of the conversation with one
 * more message, which asks for the summary; so the conversation's own prefix is in the cache. The exchange owns the
 * state from then on; answering threads.
 *
 * Nothing is stored: the item itself holds the summary, as base64 behind a mark, since clients hand it on as it is. */

#include "base/base64.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "serve/fields/convert.h"
#include "serve/fields/unknown.h"
#include "serve/responses/responses.h"

#include <stdlib.h>
#include <string.h>

#define MARK "hearth.summary.1:"

static const char wish[] =
    "Write a summary of this conversation. It will stand in its place, so that whoever goes on knows only that and "
    "what "
    "the user has said. Tell what the user wants and has decided; what was done and found out, with names of files, "
    "commands, values and errors as they are; what is still open; and what was about to be done next. Write the "
    "summary "
    "alone.";

static const char preface[] = "Summary of the conversation so far:\n\n";

/* ---- Items ---- */

json_t *compaction_text(const json_t *item)
{
    const char *content = json_string_value(json_object_get(item, "encrypted_content"));
    struct base64_bytes bytes = {0};
    if (content == NULL || strncmp(content, MARK, strlen(MARK)) != 0) return NULL;
    content += strlen(MARK);
    if (base64_get(&bytes, content, strlen(content)) != BASE64_GOOD) return NULL;
    struct buf text = {0};
    buf_puts(&text, preface);
    buf_append(&text, bytes.v, bytes.len);
    json_t *told = json_stringn(text.v, text.len); /* NULL where it is no UTF-8 */
    buf_release(&text);
    free(bytes.v);
    return told;
}

/* ---- A request ---- */

struct compact {
    struct fields *fields; /* until the exchange has them */
    struct history history;
    struct stored_item *items; /* of the whole conversation; they belong to the history's turns */
    bool *from_user;           /* of each */
    size_t n;
    int64_t created;
};

static void close_compact(void *ud)
{
    struct compact *compact = ud;
    if (compact->fields != NULL) fields_close(compact->fields);
    free(compact->items);
    free(compact->from_user);
    history_close(&compact->history);
    free(compact);
}

static size_t compact_size(const void *ud)
{
    const struct compact *compact = ud;
    return fields_size(compact->fields) + history_size(&compact->history);
}

/* The conversation, and behind it the wish for a summary, as text alone, without calls. */
static int ask_for_summary(json_t *body, hearth_error *error)
{
    static const char *const not_meant[] = {"stream", "store", "text", "include", "top_logprobs"};
    const json_t *given = json_object_get(body, "input");
    json_t *input = json_is_array(given) ? json_incref((json_t *)given) : json_array();
    if (json_is_string(given)) json_array_append_new(input, json_pack("{s:s,s:O}", "role", "user", "content", given));
    bool any =
        json_array_size(input) > 0 || fields_asks(body, "previous_response_id") || fields_asks(body, "conversation");
    if (given != NULL && !json_is_null(given) && !json_is_string(given) && !json_is_array(given)) any = false;
    json_array_append_new(input, json_pack("{s:s,s:s}", "role", "user", "content", wish));
    json_object_set_new(body, "input", input);
    for (size_t i = 0; i < sizeof not_meant / sizeof *not_meant; i++) json_object_del(body, not_meant[i]);
    json_object_del(body, "tool_choice");
    if (fields_asks(body, "tools")) json_object_set_new(body, "tool_choice", json_string("none"));
    if (any) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "input",
                    "'input' must be the conversation to compact: a string, or a list of at least one item");
}

static void *read_compact(struct buf *body, const struct reading_caller *caller, hearth_error *error)
{
    struct compact *compact = mem_alloc(sizeof *compact);
    json_t *given = fields_parse_body(body, error);
    if (given != NULL && ask_for_summary(given, error) == HEARTH_OK)
        compact->fields = responses_open_fields(given, caller, HISTORY_KEEPS, &compact->history, error);
    json_decref(given);
    if (compact->fields == NULL) {
        close_compact(compact);
        return NULL;
    }
    /* Notes whose items are the user's, but for the wish, which comes last. */
    compact->items = stored_turn_items(compact->history.turn);
    compact->n = compact->history.turn->all_n - 1;
    compact->from_user = mem_alloc((compact->n + 1) * sizeof *compact->from_user);
    for (size_t i = 0; i < compact->n; i++) {
        json_t *item = json_text_read(compact->items[i].text, compact->items[i].len, NULL);
        const json_t *type = json_object_get(item, "type"), *role = json_object_get(item, "role");
        compact->from_user[i] = convert_is(type, "message") && convert_is(role, "user");
        json_decref(item);
    }
    return compact;
}

/* ---- The answer ---- */

/* An answer without a summary must not replace a conversation. */
static int check(const void *state, const struct answer *answers, hearth_error *error)
{
    (void)state;
    for (size_t i = 0; i < answers->text.len; i++)
        if (strchr(" \t\r\n", answers->text.v[i]) == NULL) return HEARTH_OK;
    if (answers->result.finish == HEARTH_FINISH_LENGTH)
        return error_at(
            error, HEARTH_TOO_LONG, "input",
            "the context window has no room for a summary behind the conversation: leave out its oldest items");
    return error_set(error, HEARTH_INTERNAL, "the model wrote no summary: nothing was compacted. Try again");
}

static void put_compacted(void *ud, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    const struct compact *compact = ud;
    buf_printf(out, "{\"id\":\"resp_%s\",\"object\":\"response.compaction\",\"created_at\":%lld,\"output\":[",
               compact->history.id, (long long)compact->created);
    for (size_t i = 0; i < compact->n; i++) {
        if (!compact->from_user[i]) continue;
        buf_append(out, compact->items[i].text, compact->items[i].len);
        buf_puts(out, ",");
    }
    buf_printf(out, "{\"id\":\"cmp_%s_0\",\"type\":\"compaction\",\"encrypted_content\":\"" MARK, compact->history.id);
    base64_put(out, answers->text.v, answers->text.len);
    buf_puts(out, "\"}");
    buf_puts(out, "],\"usage\":");
    responses_put_usage(out, answers);
    buf_puts(out, "}");
}

static const struct dialect dialect = {
    .check = check, .whole = put_compacted, .error = responses_put_error, .release = close_compact};

static void answer_compact(struct call *call, void *ud)
{
    struct compact *compact = ud;
    struct fields *fields = compact->fields;
    unknown_report(call, fields);
    compact->created = clock_unix_ms() / 1000;
    compact->fields = NULL;
    fields->n = 1;
    fields_start(call, fields, (struct exchange_plan){.dialect = &dialect, .state = compact});
}

const struct reading_form responses_compact =
    READING_FORM_WITH(read_compact, compact_size, answer_compact, close_compact, responses_put_error);
