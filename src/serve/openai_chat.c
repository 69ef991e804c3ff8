/* POST /v1/chat/completions: OpenAI's form of a chat's choices. No state; HTTP thread only. */
#include "base/utf8.h"
#include "serve/openai.h"

static void put_opening(struct buf *out)
{
    buf_puts(out, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
}

static void put_piece(struct buf *out, const char *text, size_t len)
{
    buf_puts(out, "\"delta\":{\"content\":");
    utf8_put_json_string(out, text, len);
    buf_puts(out, "}");
}

/* Empty: text repeated here would be printed twice by every client. */
static void put_closing(struct buf *out)
{
    buf_puts(out, "\"delta\":{}");
}

static void put_whole(struct buf *out, const char *text, size_t len)
{
    buf_puts(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    utf8_put_json_string(out, text, len);
    buf_puts(out, ",\"refusal\":null}");
}

const struct openai_form openai_chat_form = {.route = FIELDS_CHAT,
                                             .id_prefix = "chatcmpl-",
                                             .object = "chat.completion",
                                             .chunk = "chat.completion.chunk",
                                             .opens_with_role = true,
                                             .put_opening = put_opening,
                                             .put_piece = put_piece,
                                             .put_closing = put_closing,
                                             .put_whole = put_whole};

void openai_chat(struct call *call)
{
    openai_start(call, &openai_chat_form);
}
