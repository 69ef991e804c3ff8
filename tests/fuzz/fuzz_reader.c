/* Fuzzes the parser of chat replies with ASCII text in pieces, whose lengths are part of the input: it gives
 * reasoning, content and calls, and no byte of content that the reply lacks. */
#include "base/buf.h"
#include "chat/chat.h"
#include "json_trees.h"

#include <stdlib.h>
#include <string.h>

#define TEMPLATE                                                                                                       \
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}"     \
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"

static void require(bool holds)
{
    if (!holds) abort();
}

static void take(void *ud, const hearth_delta *delta)
{
    struct buf *content = ud;
    require(delta->text != NULL || delta->len == 0);
    require(delta->type != HEARTH_DELTA_CALL || (delta->id[0] != '\0' && delta->name[0] != '\0'));
    if (delta->type == HEARTH_DELTA_CONTENT) buf_append(content, delta->text, delta->len);
}

static const struct chat_format *format_of(const char *messages)
{
    hearth_error error = {0};
    const struct chat_format *format;
    struct chat_template *template_ =
        chat_template_open(&(struct chat_template_params){.source = TEMPLATE, .bos = "<s>", .eos = "</s>"}, &error);
    require(template_ != NULL);
    struct chat_request request = {
        .messages = tree_of(messages), .parallel_tool_calls = -1, .add_generation_prompt = true};
    require(chat_format_open(template_, &request, NULL, &format, &error) == HEARTH_OK);
    chat_template_close(template_);
    return format;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct chat_format *format;
    if (format == NULL) format = format_of("[{\"role\":\"user\",\"content\":\"Hi\"}]");
    struct chat_reader *reader = chat_reader_open(format);
    struct buf content = {0};
    char *reply = malloc(size + 1);
    for (size_t i = 0; i < size; i++) reply[i] = (char)(data[i] & 0x7f);
    for (size_t at = 0, n; at < size; at += n) {
        n = 1 + data[at] % 32;
        if (n > size - at) n = size - at;
        chat_reader_add(reader, reply + at, n, take, &content);
    }
    chat_reader_end(reader, take, &content);
    require(content.len <= size);
    chat_reader_close(reader);
    free(reply);
    buf_release(&content);
    return 0;
}
