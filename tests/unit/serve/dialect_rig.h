/* For tests of dialects: checks conversions of bodies, and builds answers delta by delta, as an exchange does. */
#ifndef UNIT_SERVE_DIALECT_RIG_H
#define UNIT_SERVE_DIALECT_RIG_H

#include "serve/core/exchange.h"
#include "serve/fields/fields.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Bodies ---- */

static inline json_t *rig_json(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &error);
    if (json == NULL) fail_msg("%s: %s", error.text, text);
    return json;
}

/* Checks that the chat has the members of `expected`, it may have others, and that `paths` were left out (NULL: any).
 */
static inline void assert_converts_but(fields_converter *convert, const char *body, const char *expected,
                                       const char *paths)
{
    hearth_error error = {0};
    struct uploads uploads = {0};
    struct header_list left_out = {0};
    json_t *given = rig_json(body), *wanted = rig_json(expected), *chat = convert(given, &uploads, &left_out, &error),
           *value;
    const char *name;
    if (chat == NULL) fail_msg("%s: %s", body, error.message);
    if (paths != NULL && strcmp(left_out.names, paths) != 0) fail_msg("'%s' left out of %s", left_out.names, body);
    json_object_foreach(wanted, name, value)
    {
        json_t *found = json_object_get(chat, name);
        char *text = json_dumps(found, JSON_COMPACT | JSON_ENCODE_ANY);
        if (json_is_null(value) ? found != NULL : !json_equal(found, value)) fail_msg("%s of %s: %s", name, body, text);
        free(text);
    }
    json_decref(given);
    json_decref(wanted);
    json_decref(chat);
    uploads_release(&uploads);
}

static inline void assert_converts(fields_converter *convert, const char *body, const char *expected)
{
    assert_converts_but(convert, body, expected, NULL);
}

struct rig_refusal {
    const char *body;
    int code;
    const char *param;
};

static inline void assert_refused(fields_converter *convert, const struct rig_refusal *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hearth_error error = {0};
        struct uploads uploads = {0};
        struct header_list left_out = {0};
        json_t *given = rig_json(rows[i].body), *chat = convert(given, &uploads, &left_out, &error);
        if (chat != NULL) fail_msg("not refused: %s", rows[i].body);
        if (error.code != rows[i].code || strcmp(error.param, rows[i].param) != 0)
            fail_msg("%s: %d %s %s", rows[i].body, error.code, error.param, error.message);
        assert_non_null(strstr(error.message, rows[i].param));
        json_decref(given);
        uploads_release(&uploads);
    }
}

/* ---- Answers ---- */

/* The body of an answer that is sent in pieces. */
static inline void rig_put_pieces(const struct dialect *dialect, void *state, const struct answer *answers, size_t n,
                                  struct buf *out)
{
    struct pieces body = {0};
    dialect->pieces(state, answers, n, &body);
    pieces_put_all(&body, out);
}

struct rig {
    const struct dialect *dialect;
    void *state;
    struct answer answer;
    struct buf out;
};

static inline void rig_add(struct rig *rig, hearth_delta delta)
{
    struct exchange_piece piece = {.delta = &delta, .token = -1, .answer = &rig->answer};
    delta.len = delta.text == NULL ? 0 : strlen(delta.text);
    answer_add(&rig->answer, &delta);
    answer_add_token(&rig->answer);
    rig->dialect->more(rig->state, &piece, &rig->out);
}

static inline void rig_reasoning(struct rig *rig, const char *text)
{
    rig_add(rig, (hearth_delta){.type = HEARTH_DELTA_REASONING, .text = text});
}

static inline void rig_content(struct rig *rig, const char *text)
{
    rig_add(rig, (hearth_delta){.type = HEARTH_DELTA_CONTENT, .text = text});
}

static inline void rig_call(struct rig *rig, const char *name, const char *arguments)
{
    size_t index = rig->answer.n_calls;
    rig_add(rig, (hearth_delta){.type = HEARTH_DELTA_CALL, .index = index, .id = "call_1", .name = name});
    rig_add(rig, (hearth_delta){.type = HEARTH_DELTA_ARGUMENTS, .index = index, .text = arguments});
}

static inline void rig_end(struct rig *rig, hearth_result result)
{
    rig->answer.result = result;
    rig->answer.done = true;
    rig->dialect->done(rig->state, 0, &rig->answer, &rig->out);
    rig->dialect->ended(rig->state, &rig->answer, 1, &rig->out);
}

/* Checks the next part of the output; closing the rig checks that nothing is left. */
static inline void rig_expect(struct rig *rig, const char *expected)
{
    size_t len = strlen(expected);
    if (rig->out.len < len || memcmp(rig->out.v, expected, len) != 0)
        fail_msg("expected: %s\nthere is: %s", expected, rig->out.v == NULL ? "" : rig->out.v);
    buf_drop_front(&rig->out, len);
}

static inline void rig_skip(struct rig *rig)
{
    buf_clear(&rig->out);
}

static inline void rig_close(struct rig *rig)
{
    if (rig->out.len > 0) fail_msg("unexpected output: %s", rig->out.v);
    rig->dialect->release(rig->state);
    answer_release(&rig->answer);
    buf_release(&rig->out);
}

#endif
