#include "corpus/conversation.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char *const role_names[] = {"system", "user", "assistant", "tool"};

void conversation_release(struct conversation *c)
{
    for (size_t i = 0; i < c->n_messages; i++) {
        struct message *message = &c->messages[i];
        free(message->content);
        for (int k = 0; k < message->n_calls; k++) {
            free(message->calls[k].name);
            free(message->calls[k].arguments);
        }
    }
    for (size_t i = 0; i < c->n_tools; i++) free(c->tools[i]);
    free(c->messages);
    free(c->tools);
    *c = (struct conversation){0};
}

struct message *conversation_add(struct conversation *c, enum role role, const char *content)
{
    c->messages = mem_grow(c->messages, c->n_messages + 1, sizeof *c->messages);
    struct message *message = &c->messages[c->n_messages++];
    *message = (struct message){.role = role, .content = mem_strdup(content)};
    return message;
}

void conversation_add_call(struct message *message, char *name, char *arguments)
{
    message->calls[message->n_calls++] = (struct tool_call){name, arguments};
}

void conversation_add_tool(struct conversation *c, char *json)
{
    c->tools = mem_grow(c->tools, c->n_tools + 1, sizeof *c->tools);
    c->tools[c->n_tools++] = json;
}

/* ---- As the template writes it ---- */

static void put_tools(const struct conversation *c, struct buf *out)
{
    buf_puts(out, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided "
                  "with function signatures within <tools></tools> XML tags:\n<tools>");
    for (size_t i = 0; i < c->n_tools; i++) buf_printf(out, "\n%s", c->tools[i]);
    buf_puts(out, "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
                  "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
                  "<args-json-object>}\n</tool_call>");
}

/* The system message: its content, if there is one, and the tools. Returns how many messages that was. */
static size_t put_system(const struct conversation *c, size_t n, struct buf *out)
{
    bool given = n > 0 && c->messages[0].role == ROLE_SYSTEM;
    if (!given && c->n_tools == 0) return 0;
    buf_puts(out, "<|im_start|>system\n");
    if (given) buf_puts(out, c->messages[0].content);
    if (given && c->n_tools > 0) buf_puts(out, "\n\n");
    if (c->n_tools > 0) put_tools(c, out);
    buf_puts(out, "<|im_end|>\n");
    return given ? 1 : 0;
}

/* Results of tools that follow each other are one message of the user's. */
static void put_result(const struct conversation *c, size_t i, size_t n, struct buf *out)
{
    if (i == 0 || c->messages[i - 1].role != ROLE_TOOL) buf_puts(out, "<|im_start|>user");
    buf_printf(out, "\n<tool_response>\n%s\n</tool_response>", c->messages[i].content);
    if (i + 1 == n || c->messages[i + 1].role != ROLE_TOOL) buf_puts(out, "<|im_end|>\n");
}

void conversation_spoken(const struct message *message, struct buf *out)
{
    buf_puts(out, message->content);
    for (int k = 0; k < message->n_calls; k++) {
        if (out->len > 0) buf_puts(out, "\n");
        buf_printf(out, "<tool_call>\n{\"name\": \"%s\", \"arguments\": %s}\n</tool_call>", message->calls[k].name,
                   message->calls[k].arguments);
    }
}

static void flush(struct buf *text, enum piece piece, piece_fn put, void *ud)
{
    if (text->len > 0) put(ud, piece, buf_text(text), text->len);
    buf_clear(text);
}

static void put_assistant(const struct message *message, struct buf *text, piece_fn put, void *ud)
{
    buf_puts(text, "<|im_start|>assistant\n");
    flush(text, PIECE_READ, put, ud);
    conversation_spoken(message, text);
    buf_puts(text, "<|im_end|>");
    flush(text, message->foreign ? PIECE_READ : PIECE_SPOKEN, put, ud);
    buf_puts(text, "\n");
}

void conversation_pieces(const struct conversation *c, size_t n, piece_fn put, void *ud)
{
    struct buf text = {0};
    for (size_t i = put_system(c, n, &text); i < n; i++) {
        const struct message *message = &c->messages[i];
        if (message->role == ROLE_ASSISTANT) {
            put_assistant(message, &text, put, ud);
        } else if (message->role == ROLE_TOOL) {
            put_result(c, i, n, &text);
        } else {
            buf_printf(&text, "<|im_start|>%s\n%s<|im_end|>\n", role_names[message->role], message->content);
        }
    }
    flush(&text, PIECE_READ, put, ud);
    buf_release(&text);
}

/* ---- As JSON ---- */

static void put_calls(struct buf *out, const struct message *message)
{
    buf_puts(out, ",\"tool_calls\":[");
    for (int k = 0; k < message->n_calls; k++) {
        buf_printf(out, "%s{\"id\":\"call%d\",\"type\":\"function\",\"function\":{\"name\":", k > 0 ? "," : "", k);
        utf8_put_json_string(out, message->calls[k].name, strlen(message->calls[k].name));
        buf_puts(out, ",\"arguments\":");
        utf8_put_json_string(out, message->calls[k].arguments, strlen(message->calls[k].arguments));
        buf_puts(out, "}}");
    }
    buf_puts(out, "]");
}

char *conversation_messages_json(const struct conversation *c, size_t n)
{
    struct buf out = {0};
    int result = 0; /* results come in the order of the calls */
    for (size_t i = 0; i < n; i++) {
        const struct message *message = &c->messages[i];
        buf_printf(&out, "%s{\"role\":\"%s\",\"content\":", i > 0 ? "," : "[", role_names[message->role]);
        utf8_put_json_string(&out, message->content, strlen(message->content));
        if (message->n_calls > 0) put_calls(&out, message);
        result = message->role == ROLE_TOOL ? result : 0;
        if (message->role == ROLE_TOOL) buf_printf(&out, ",\"tool_call_id\":\"call%d\"", result++);
        buf_puts(&out, "}");
    }
    buf_puts(&out, "]");
    return buf_take(&out);
}

char *conversation_tools_json(const struct conversation *c)
{
    if (c->n_tools == 0) return NULL;
    struct buf out = {0};
    for (size_t i = 0; i < c->n_tools; i++) buf_printf(&out, "%s%s", i > 0 ? "," : "[", c->tools[i]);
    buf_puts(&out, "]");
    return buf_take(&out);
}
