/* The dialect of llama-server's native completions. The exchange owns its state; answering threads, but
 * for what begins it.
 *
 * An answer is an object, or a list of one for each choice. A stream has pieces with "stop":false, and for each choice
 * a final one that has everything but the text and tokens already sent. */
#include "serve/native/native.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "serve/core/answer.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/server.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"
#include "serve/fields/unknown.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct native {
    const struct fields *fields; /* the request, until it is prepared */
    char *model;
    struct buf settings; /* the request's part of "generation_settings" */
    bool stream, return_tokens, timings_per_token;
    bool scores;        /* answers have the logprobs of prompts */
    bool post_sampling; /* answers have post-sampling probabilities in place of logprobs */
    json_t *selected;   /* "response_fields": paths of the answer's members; NULL: all */
};

/* Paths of "response_fields"; an answer has fewer members. */
#define MAX_PATHS 1024

/* ---- Pieces ---- */

static void put_tokens(struct buf *out, const int32_t *tokens, size_t n)
{
    buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; i < n; i++) buf_printf(out, "%s%d", i == 0 ? "" : ",", tokens[i]);
    buf_puts(out, "]");
}

static void put_logprob(struct buf *out, const hearth_logprob *logprob, bool post_sampling)
{
    buf_printf(out, "{\"id\":%d,\"token\":", logprob->token);
    logprob_put_text(out, logprob);
    buf_puts(out, ",\"bytes\":");
    logprob_put_bytes(out, logprob);
    if (post_sampling)
        buf_printf(out, ",\"prob\":%.9g", exp(logprob_finite(logprob->log)));
    else
        buf_printf(out, ",\"logprob\":%.9g", logprob_finite(logprob->log));
}

static void put_token(struct buf *out, const struct token_logprobs *logprobs, bool post_sampling)
{
    put_logprob(out, &logprobs->v[0], post_sampling);
    buf_printf(out, ",\"%s\":[", post_sampling ? "top_probs" : "top_logprobs");
    for (size_t k = 1; k < logprobs->n; k++) {
        if (k > 1) buf_puts(out, ",");
        put_logprob(out, &logprobs->v[k], post_sampling);
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}

static void put_logprobs_of(const void *items, size_t i, struct buf *out)
{
    struct token_logprobs *const *logprobs = items;
    put_token(out, logprobs[i], false);
}

static void put_probs_of(const void *items, size_t i, struct buf *out)
{
    struct token_logprobs *const *logprobs = items;
    put_token(out, logprobs[i], true);
}

/* ---- Final objects ---- */

/* All members but the long lists, which come last. A stream has sent its text and tokens already. */
static void put_members(const struct native *native, size_t index, const struct answer *answer, struct buf *out)
{
    const hearth_result *r = &answer->result;
    size_t text = native->stream ? 0 : answer->text.len;
    size_t tokens = native->stream ? 0 : answer->tokens.len;
    buf_printf(out, "\"index\":%zu", index);
    member_put(out, "content", answer->text.v, text);
    put_tokens(out, answer->tokens.v, tokens);
    buf_printf(out, ",\"id_slot\":%d,\"stop\":true", r->slot);
    member_put(out, "model", native->model, strlen(native->model));
    buf_printf(out, ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d,\"generation_settings\":{", r->predicted_n,
               r->n_prompt);
    settings_put_sampling(out, answer->sampling);
    buf_puts(out, ",");
    buf_append(out, native->settings.v, native->settings.len);
    buf_puts(out, "}");
    const char *word = r->stop_string != NULL ? r->stop_string : "";
    bool has_line = answer->text.len > 0 && memchr(answer->text.v, '\n', answer->text.len) != NULL;
    const char *stop_type = r->finish == HEARTH_FINISH_LENGTH ? "limit" : r->stop_string != NULL ? "word" : "eos";
    member_put(out, "prompt", answer->prompt.text, answer->prompt.len);
    buf_printf(out, ",\"has_new_line\":%s,\"truncated\":false,\"stop_type\":\"%s\"", has_line ? "true" : "false",
               stop_type);
    member_puts(out, "stopping_word", word);
    /* The last generated token is not in the KV cache yet. */
    buf_printf(out, ",\"tokens_cached\":%d", r->n_prompt + (r->predicted_n > 0 ? r->predicted_n - 1 : 0));
    timings_put(out, r);
}

/* The members that may be long. */
enum long_member { PROBABILITIES, PROMPT_LOGPROBS, N_LONG };
static const char *const long_names[N_LONG] = {"completion_probabilities", "prompt_logprobs"};

static bool has_long(const struct native *native, const struct answer *answer, enum long_member which)
{
    return which == PROBABILITIES ? !native->stream && answer->n_logprobs > 0 : native->scores;
}

static void put_long(const struct native *native, const struct answer *answer, enum long_member which,
                     struct pieces *out)
{
    if (which == PROMPT_LOGPROBS) {
        prompt_logprobs_put(out, answer->prompt_logprobs, answer->n_prompt_logprobs);
        return;
    }
    buf_puts(&out->text, "[");
    pieces_put_list(out, (struct pieces_list){.items = answer->logprobs,
                                              .n = answer->n_logprobs,
                                              .put = native->post_sampling ? put_probs_of : put_logprobs_of});
    buf_puts(&out->text, "]");
}

static void put_all_long(const struct native *native, const struct answer *answer, struct pieces *out)
{
    for (int which = 0; which < N_LONG; which++) {
        if (!has_long(native, answer, (enum long_member)which)) continue;
        buf_printf(&out->text, ",\"%s\":", long_names[which]);
        put_long(native, answer, (enum long_member)which, out);
    }
}

/* ---- "response_fields": "a/b" selects the member b of the member a, and is named "a/b" in the answer ---- */

/* Which long member a path means; N_LONG: none. */
static enum long_member long_of(const char *path)
{
    for (int which = 0; which < N_LONG; which++) {
        size_t len = strlen(long_names[which]);
        if (strncmp(path, long_names[which], len) != 0) continue;
        if (path[len] == '\0' || strcmp(path + len, "/") == 0) return (enum long_member)which;
    }
    return N_LONG;
}

/* An answer as the paths see it: its members as a tree, but for the long ones. */
struct selection {
    const struct native *native;
    const struct answer *answer;
    json_t *members;
    size_t n; /* put so far */
};

static void put_path(struct selection *selection, const json_t *path, struct pieces *out)
{
    const char *text = json_string_value(path);
    const enum long_member which = long_of(text);
    const json_t *found = selection->members;
    for (const char *at = text; found != NULL && *at != '\0';) {
        size_t len = strcspn(at, "/");
        found = json_object_getn(found, at, len);
        at += len + (at[len] == '/');
    }
    if (which == N_LONG ? found == NULL : !has_long(selection->native, selection->answer, which)) return;
    buf_puts(&out->text, selection->n++ == 0 ? "{" : ",");
    json_text_write(&out->text, path);
    buf_puts(&out->text, ":");
    if (which != N_LONG) {
        put_long(selection->native, selection->answer, which, out);
    } else if (*text == '\0') { /* the whole answer */
        struct buf members = {0};
        json_text_write(&members, selection->members);
        buf_append(&out->text, members.v, members.len - 1);
        put_all_long(selection->native, selection->answer, out);
        buf_puts(&out->text, "}");
        buf_release(&members);
    } else {
        json_text_write(&out->text, found);
    }
}

static void put_selected(const struct native *native, size_t index, const struct answer *answer, struct pieces *out)
{
    struct buf text = {0};
    struct selection selection = {.native = native, .answer = answer};
    json_t *path;
    size_t i;
    buf_puts(&text, "{");
    put_members(native, index, answer, &text);
    buf_puts(&text, "}");
    selection.members = json_text_read(text.v, text.len, NULL);
    buf_release(&text);
    json_array_foreach(native->selected, i, path) put_path(&selection, path, out);
    buf_puts(&out->text, selection.n == 0 ? "{}" : "}");
    json_decref(selection.members);
}

void native_put_answer(const void *state, size_t index, const struct answer *answer, struct pieces *out)
{
    const struct native *native = state;
    if (native->selected != NULL) {
        put_selected(native, index, answer, out);
        return;
    }
    buf_puts(&out->text, "{");
    put_members(native, index, answer, &out->text);
    put_all_long(native, answer, out);
    buf_puts(&out->text, "}");
}

/* ---- The dialect ---- */

static void put_whole(void *state, const struct answer *answers, size_t n, struct pieces *out)
{
    if (n > 1) buf_puts(&out->text, "[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(&out->text, ",");
        native_put_answer(state, i, &answers[i], out);
    }
    if (n > 1) buf_puts(&out->text, "]");
}

static void prepare(void *state)
{
    struct native *native = state;
    settings_put_request(&native->settings, native->fields);
    native->fields = NULL;
}

/* Begins a piece: its text and tokens, and the counts so far. */
static void open_piece(struct buf *out, const struct exchange_piece *piece, const hearth_result *r)
{
    const hearth_delta *delta = piece->delta;
    buf_printf(out, "data: {\"index\":%zu", piece->index);
    member_put(out, "content", delta != NULL ? delta->text : NULL, delta != NULL ? delta->len : 0);
    put_tokens(out, &piece->token, piece->token >= 0);
    buf_printf(out, ",\"stop\":false,\"id_slot\":%d,\"tokens_predicted\":%d,\"tokens_evaluated\":%d", r->slot,
               r->predicted_n, r->n_prompt);
}

static void put_progress(void *state, size_t index, const hearth_result *result, struct buf *out)
{
    const struct native *native = state;
    open_piece(out, &(struct exchange_piece){.index = index, .token = -1}, result);
    if (native->timings_per_token) timings_put(out, result);
    timings_put_progress(out, result);
    buf_puts(out, "}\n\n");
}

static void put_more(void *state, const struct exchange_piece *piece, struct buf *out)
{
    const struct native *native = state;
    const struct token_logprobs *logprobs = piece->logprobs;
    open_piece(out, piece, &piece->answer->result);
    if (native->timings_per_token) timings_put(out, &piece->answer->result);
    if (logprobs != NULL) {
        buf_puts(out, ",\"completion_probabilities\":[");
        put_token(out, logprobs, native->post_sampling);
        buf_puts(out, "]");
    }
    buf_puts(out, "}\n\n");
}

static void put_done(void *state, size_t index, const struct answer *answer, struct buf *out)
{
    struct pieces final = {0};
    native_put_answer(state, index, answer, &final);
    buf_puts(out, "data: ");
    pieces_put_all(&final, out);
    buf_puts(out, "\n\n");
}

static void put_ended(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)answers, (void)n, (void)out; /* no [DONE]: "stop":true ends the stream */
}

static void release(void *state)
{
    struct native *native = state;
    free(native->model);
    buf_release(&native->settings);
    json_decref(native->selected);
    free(native);
}

/* The fields' names for fill-in-the-middle: prefix and suffix. */
static void put_infill_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    static const struct convert_name names[] = {{"prompt", "input_prefix"}, {"suffix", "input_suffix"}};
    hearth_error renamed = convert_rename(error, names, sizeof names / sizeof *names);
    errors_put(out, &renamed, request_id);
}

#define DIALECT(put_error)                                                                                             \
    {                                                                                                                  \
        .prepare = prepare, .started = exchange_put_no_start, .progress = put_progress, .more = put_more,              \
        .done = put_done, .ended = put_ended, .broken = exchange_put_broken, .pieces = put_whole,                      \
        .error = (put_error), .release = release                                                                       \
    }

const struct dialect native_dialect = DIALECT(errors_put), native_infill_dialect = DIALECT(put_infill_error);

/* ---- Starting ---- */

/* The list of paths has each once. An empty one selects everything, as in llama-server. */
static int read_response_fields(struct native *native, const json_t *value, hearth_error *error)
{
    size_t i;
    json_t *path;
    if (value == NULL || json_is_null(value)) return HEARTH_OK;
    bool good = json_is_array(value) && json_array_size(value) <= MAX_PATHS;
    json_array_foreach(value, i, path) good = good && field_string(path) != NULL;
    if (!good)
        return error_at(error, HEARTH_INVALID, "response_fields",
                        "'response_fields' must be a list of at most %d strings", MAX_PATHS);
    if (json_array_size(value) == 0) return HEARTH_OK;
    json_t *seen = json_object();
    native->selected = json_array();
    json_array_foreach(value, i, path)
    {
        const char *text = json_string_value(path);
        if (json_object_get(seen, text) != NULL) continue;
        json_object_set_new(seen, text, json_true());
        json_array_append(native->selected, path);
    }
    json_decref(seen);
    return HEARTH_OK;
}

void *native_state(const struct fields *fields, const char *model, hearth_error *error)
{
    struct native *native = mem_alloc(sizeof *native);
    native->model = mem_strdup(model);
    native->stream = fields->stream;
    native->timings_per_token = fields->timings_per_token;
    native->scores = fields->scores;
    native->post_sampling = fields->params.post_sampling_probs;
    native->fields = fields;
    int rc = read_response_fields(native, json_object_get(fields->body, "response_fields"), error);
    if (rc == HEARTH_OK) rc = body_bool(fields->body, "return_tokens", &native->return_tokens, error);
    if (rc == HEARTH_OK) return native;
    release(native);
    return NULL;
}

static void start(struct call *call, const struct dialect *dialect, struct fields *fields)
{
    hearth_error error;
    unknown_report(call, fields);
    struct native *native = native_state(fields, call_model(call, fields->params.model), &error);
    if (native == NULL) {
        workers_release(call->server->workers, fields_close, fields);
        call_fail(call, &error, errors_put);
        return;
    }
    fields->params.keep_prompt = true;
    struct exchange_plan plan = {.dialect = dialect,
                                 .state = native,
                                 .stream = fields->stream,
                                 .tokens = fields->stream || native->return_tokens};
    fields_start(call, fields, plan);
}

static void answer(struct call *call, void *fields)
{
    start(call, &native_dialect, fields);
}

const struct reading_form native_completion =
    READING_FORM(fields_open_completion, fields_size, answer, fields_close, errors_put);

/* ---- POST /infill ---- */

/* Fill-in-the-middle as llama-server's editor clients request it. The body is parsed as a completion whose prompt is
 * the prefix. */

#define SNIPPETS_MAX 256

static int read_snippets(struct fields *fields, const json_t *value, hearth_error *error)
{
    size_t n = json_array_size(value);
    if (value == NULL || json_is_null(value)) return HEARTH_OK;
    bool good = json_is_array(value) && n <= SNIPPETS_MAX;
    if (good) fields->snippets = mem_alloc((n + 1) * sizeof *fields->snippets);
    for (size_t i = 0; good && i < n; i++) {
        const json_t *item = json_array_get(value, i), *name = body_find(item, "filename");
        hearth_snippet *snippet = &fields->snippets[i];
        snippet->name = name == NULL ? "tmp" : field_string(name);
        snippet->text = field_string(json_object_get(item, "text"));
        good = snippet->name != NULL && snippet->text != NULL;
    }
    if (!good)
        return error_at(error, HEARTH_INVALID, "input_extra",
                        "'input_extra' must be a list of up to %d {\"filename\": string, \"text\": string}, without "
                        "zero characters",
                        SNIPPETS_MAX);
    fields->params.snippets = fields->snippets;
    fields->params.n_snippets = n;
    return HEARTH_OK;
}

/* Reads the fields of /infill. `typed`, the body's own prompt, goes back into the tree, since the parameters borrow
 * it. */
static int read_infill_fields(struct fields *fields, json_t *typed, hearth_error *error)
{
    const json_t *suffix = json_object_get(fields->body, "input_suffix");
    if (typed != NULL) json_object_set(fields->body, "prompt", typed);
    if (!json_is_string(suffix))
        return error_at(error, HEARTH_INVALID, "input_suffix",
                        "'input_suffix' must be a string: the text after the part to fill in");
    if (typed != NULL && !json_is_null(typed) && !json_is_string(typed))
        return error_at(error, HEARTH_INVALID, "prompt", "'prompt' must be a string");
    fields->params.suffix = json_string_value(suffix);
    fields->params.suffix_len = json_string_length(suffix);
    fields->params.typed = json_string_value(typed); /* what the user has typed at the cursor already */
    fields->params.typed_len = json_string_length(typed);
    return read_snippets(fields, json_object_get(fields->body, "input_extra"), error);
}

static void *read_infill(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    if (tree == NULL) return NULL;
    json_t *typed = json_incref(json_object_get(tree, "prompt")), *prefix = json_object_get(tree, "input_prefix");
    struct fields *fields = NULL;
    if (json_is_string(prefix)) {
        json_object_set(tree, "prompt", prefix);
        fields = fields_open_tree(tree, FIELDS_COMPLETION, NULL, error);
    } else {
        error_at(error, HEARTH_INVALID, "input_prefix",
                 "'input_prefix' must be a string: the text before the part to fill in");
        json_decref(tree);
    }
    if (fields != NULL && read_infill_fields(fields, typed, error) != HEARTH_OK) {
        fields_close(fields);
        fields = NULL;
    }
    json_decref(typed);
    return fields;
}

static void answer_infill(struct call *call, void *fields)
{
    start(call, &native_infill_dialect, fields);
}

const struct reading_form native_infill =
    READING_FORM(read_infill, fields_size, answer_infill, fields_close, errors_put);
