/* POST /v1/chat/completions: OpenAI's form of chat choices. No state; HTTP thread only. */
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/fields/fields.h"
#include "serve/openai/openai.h"

#include <string.h>

/* ---- Deltas of streams ---- */

static void put_call_begin(struct buf *out, const hearth_delta *delta)
{
    buf_printf(out, "\"tool_calls\":[{\"index\":%zu,", delta->index);
    member_puts(out, "id", delta->id);
    buf_puts(out, ",\"type\":\"function\",\"function\":{");
    member_puts(out, "name", delta->name);
    buf_puts(out, ",\"arguments\":\"\"}}]");
}

static void put_call_more(struct buf *out, const hearth_delta *delta)
{
    buf_printf(out, "\"tool_calls\":[{\"index\":%zu,\"function\":{", delta->index);
    member_put(out, "arguments", delta->text, delta->len);
    buf_puts(out, "}}]");
}

static void put_custom_begin(struct buf *out, const hearth_delta *delta)
{
    buf_printf(out, "\"tool_calls\":[{\"index\":%zu,", delta->index);
    member_puts(out, "id", delta->id);
    buf_puts(out, ",\"type\":\"custom\",\"custom\":{");
    member_puts(out, "name", delta->name);
    buf_puts(out, ",\"input\":\"\"}}]");
}

static void put_custom_more(struct buf *out, const hearth_delta *delta)
{
    buf_printf(out, "\"tool_calls\":[{\"index\":%zu,\"custom\":{", delta->index);
    member_put(out, "input", delta->text, delta->len);
    buf_puts(out, "}}]");
}

/* A call in OpenAI's deprecated form, "function_call". */
static void put_function_begin(struct buf *out, const hearth_delta *delta)
{
    buf_puts(out, "\"function_call\":{");
    member_puts(out, "name", delta->name);
    buf_puts(out, ",\"arguments\":\"\"}");
}

static void put_function_more(struct buf *out, const hearth_delta *delta)
{
    buf_puts(out, "\"function_call\":{");
    member_put(out, "arguments", delta->text, delta->len);
    buf_puts(out, "}");
}

/* Writers of the deltas of a call. */
struct calls {
    void (*begin)(struct buf *out, const hearth_delta *delta);
    void (*more)(struct buf *out, const hearth_delta *delta);
};

static void put_any_delta(struct buf *out, const hearth_delta *delta, const struct calls *calls)
{
    buf_puts(out, "\"delta\":{");
    switch (delta->type) {
    case HEARTH_DELTA_REASONING:
        member_put(out, "reasoning_content", delta->text, delta->len);
        break;
    case HEARTH_DELTA_CONTENT:
        member_put(out, "content", delta->text, delta->len);
        break;
    case HEARTH_DELTA_CALL:
        calls->begin(out, delta);
        break;
    case HEARTH_DELTA_ARGUMENTS:
        calls->more(out, delta);
        break;
    }
    buf_puts(out, "}");
}

static void put_chat_delta(struct buf *out, const hearth_delta *delta, bool is_custom)
{
    static const struct calls functions = {put_call_begin, put_call_more}, custom = {put_custom_begin, put_custom_more};
    put_any_delta(out, delta, is_custom ? &custom : &functions);
}

/* "functions" are no custom tools. */
static void put_function_delta(struct buf *out, const hearth_delta *delta, bool is_custom)
{
    (void)is_custom;
    put_any_delta(out, delta, &(struct calls){put_function_begin, put_function_more});
}

/* ---- Whole answers ---- */

static void put_function_call(struct buf *out, const struct answer_call *call)
{
    buf_puts(out, "\"function\",\"function\":{");
    member_puts(out, "name", call->name);
    member_put(out, "arguments", call->arguments.v, call->arguments.len);
}

static void put_custom_call(struct buf *out, const struct answer_call *call)
{
    struct buf input = {0};
    custom_tool_put_input(&input, &call->arguments);
    buf_puts(out, "\"custom\",\"custom\":{");
    member_puts(out, "name", call->name);
    member_put(out, "input", buf_text(&input), input.len);
    buf_release(&input);
}

static void put_calls(struct buf *out, const struct answer *answer, const json_t *custom)
{
    buf_puts(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < answer->n_calls; i++) {
        const struct answer_call *call = &answer->calls[i];
        buf_puts(out, i == 0 ? "{" : ",{");
        member_puts(out, "id", call->id);
        buf_puts(out, ",\"type\":");
        (custom_tool_is_among(custom, call->name) ? put_custom_call : put_function_call)(out, call);
        buf_puts(out, "}}");
    }
    buf_puts(out, "]");
}

static void put_function(struct buf *out, const struct answer *answer, const json_t *custom)
{
    (void)custom;
    const struct answer_call *call = &answer->calls[0];
    buf_puts(out, ",\"function_call\":{");
    member_puts(out, "name", call->name);
    member_put(out, "arguments", call->arguments.v, call->arguments.len);
    buf_puts(out, "}");
}

static void put_message(struct buf *out, const struct answer *answer, const json_t *custom,
                        void (*put)(struct buf *out, const struct answer *answer, const json_t *custom))
{
    buf_puts(out, "\"message\":{\"role\":\"assistant\",");
    if (answer->text.len == 0 && answer->n_calls > 0)
        buf_puts(out, "\"content\":null");
    else
        member_put(out, "content", answer->text.v, answer->text.len);
    if (answer->reasoning.len > 0) member_put(out, "reasoning_content", answer->reasoning.v, answer->reasoning.len);
    if (answer->n_calls > 0) put(out, answer, custom);
    buf_puts(out, ",\"refusal\":null}");
}

static void put_chat_whole(struct buf *out, const struct answer *answer, const json_t *custom)
{
    put_message(out, answer, custom, put_calls);
}

static void put_function_whole(struct buf *out, const struct answer *answer, const json_t *custom)
{
    put_message(out, answer, custom, put_function);
}

static void put_chat_logprobs(struct pieces *out, struct token_logprobs *const *logprobs, size_t n,
                              const size_t *offsets)
{
    (void)offsets;
    buf_puts(&out->text, "{\"content\":");
    token_logprobs_put_list(out, logprobs, n);
    buf_puts(&out->text, ",\"refusal\":null}");
}

#define FORM(calls_, put_delta_, put_whole_)                                                                           \
    {                                                                                                                  \
        .id_prefix = "chatcmpl-", .object = "chat.completion", .chunk = "chat.completion.chunk",                       \
        .opening = "\"delta\":{\"role\":\"assistant\",\"content\":null}", .empty = "\"delta\":{}", .calls = (calls_),  \
        .put_delta = (put_delta_), .put_whole = (put_whole_), .put_logprobs = put_chat_logprobs                        \
    }

const struct openai_form openai_chat_form = FORM("tool_calls", put_chat_delta, put_chat_whole),
                         openai_functions_form = FORM("function_call", put_function_delta, put_function_whole);

static void answer_chat(struct call *call, void *ud)
{
    struct fields *fields = ud;
    openai_answer(call, fields->has_functions ? &openai_functions_form : &openai_chat_form, fields);
}

const struct reading_form openai_chat =
    READING_FORM(fields_open_chat, fields_size, answer_chat, fields_close, errors_put);
