/* POST /v1/chat/completions: OpenAI's form of chat choices. No state; HTTP thread only. */
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/fields/fields.h"
#include "serve/openai/openai.h"

/* ---- Calls ---- */

/* A call's own object: the name where the call begins, and its text. */
static void put_called(struct buf *out, bool is_custom, const char *name, const char *text, size_t len)
{
    if (name != NULL) member_puts(out, "name", name);
    member_put(out, is_custom ? "input" : "arguments", text, len);
}

/* Calls of custom tools differ from calls of functions in their type and in the name of their text. */
static const char *type_of(bool is_custom)
{
    return is_custom ? "custom" : "function";
}

/* ---- Deltas of streams ---- */

/* In the form of OpenAI's deprecated functions there is but one call, which is never a custom tool's. */
static void put_call_delta(const struct openai_form *form, struct buf *out, const hearth_delta *delta, bool is_custom)
{
    const bool begins = delta->type == HEARTH_DELTA_CALL;
    const char *name = begins ? delta->name : NULL;
    const size_t len = begins ? 0 : delta->len;
    if (form->has_functions) {
        buf_puts(out, "\"function_call\":{");
        put_called(out, false, name, delta->text, len);
        buf_puts(out, "}");
        return;
    }
    buf_printf(out, "\"tool_calls\":[{\"index\":%zu,", delta->index);
    if (begins) {
        member_puts(out, "id", delta->id);
        buf_printf(out, ",\"type\":\"%s\",", type_of(is_custom));
    }
    buf_printf(out, "\"%s\":{", type_of(is_custom));
    put_called(out, is_custom, name, delta->text, len);
    buf_puts(out, "}}]");
}

static void put_chat_delta(const struct openai_form *form, struct buf *out, const hearth_delta *delta, bool is_custom)
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
    case HEARTH_DELTA_ARGUMENTS:
        put_call_delta(form, out, delta, is_custom);
        break;
    }
    buf_puts(out, "}");
}

/* ---- Whole answers ---- */

static void put_calls(struct buf *out, const struct answer *answer, const json_t *custom)
{
    buf_puts(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < answer->n_calls; i++) {
        const struct answer_call *call = &answer->calls[i];
        const bool is_custom = custom_tool_is_among(custom, call->name);
        struct buf input = {0};
        if (is_custom) custom_tool_put_input(&input, &call->arguments);
        const struct buf *text = is_custom ? &input : &call->arguments;
        buf_puts(out, i == 0 ? "{" : ",{");
        member_puts(out, "id", call->id);
        buf_printf(out, ",\"type\":\"%s\",\"%s\":{", type_of(is_custom), type_of(is_custom));
        put_called(out, is_custom, call->name, text->v, text->len);
        buf_puts(out, "}}");
        buf_release(&input);
    }
    buf_puts(out, "]");
}

static void put_chat_whole(const struct openai_form *form, struct buf *out, const struct answer *answer,
                           const json_t *custom)
{
    buf_puts(out, "\"message\":{\"role\":\"assistant\",");
    if (answer->text.len == 0 && answer->n_calls > 0)
        buf_puts(out, "\"content\":null");
    else
        member_put(out, "content", answer->text.v, answer->text.len);
    if (answer->reasoning.len > 0) member_put(out, "reasoning_content", answer->reasoning.v, answer->reasoning.len);
    if (answer->n_calls > 0 && form->has_functions) {
        const struct answer_call *call = &answer->calls[0];
        buf_puts(out, ",\"function_call\":{");
        put_called(out, false, call->name, call->arguments.v, call->arguments.len);
        buf_puts(out, "}");
    } else if (answer->n_calls > 0) {
        put_calls(out, answer, custom);
    }
    buf_puts(out, ",\"refusal\":null}");
}

static void put_chat_logprobs(struct pieces *out, struct token_logprobs *const *logprobs, size_t n,
                              const size_t *offsets)
{
    (void)offsets;
    buf_puts(&out->text, "{\"content\":");
    token_logprobs_put_list(out, logprobs, n);
    buf_puts(&out->text, ",\"refusal\":null}");
}

#define FORM(calls_, has_functions_)                                                                                   \
    {                                                                                                                  \
        .id_prefix = "chatcmpl-", .object = "chat.completion", .chunk = "chat.completion.chunk",                       \
        .opening = "\"delta\":{\"role\":\"assistant\",\"content\":null}", .empty = "\"delta\":{}", .calls = (calls_),  \
        .put_delta = put_chat_delta, .put_whole = put_chat_whole, .put_logprobs = put_chat_logprobs,                   \
        .has_functions = (has_functions_)                                                                              \
    }

const struct openai_form openai_chat_form = FORM("tool_calls", false),
                         openai_functions_form = FORM("function_call", true);

static void answer_chat(struct call *call, void *ud)
{
    struct fields *fields = ud;
    openai_answer(call, fields->has_functions ? &openai_functions_form : &openai_chat_form, fields);
}

const struct reading_form openai_chat =
    READING_FORM(fields_open_chat, fields_size, answer_chat, fields_close, errors_put);
