/* POST /v1/completions: OpenAI's form of a completion's choices. No state; HTTP thread only. */
#include "base/utf8.h"
#include "serve/openai.h"

static void put_text(struct buf *out, const char *text, size_t len)
{
    buf_puts(out, "\"text\":");
    utf8_put_json_string(out, text, len);
}

static void put_closing(struct buf *out)
{
    put_text(out, "", 0);
}

const struct openai_form openai_completion_form = {.route = FIELDS_COMPLETION,
                                                   .id_prefix = "cmpl-",
                                                   .object = "text_completion",
                                                   .chunk = "text_completion",
                                                   .put_piece = put_text,
                                                   .put_closing = put_closing,
                                                   .put_whole = put_text};

void openai_completion(struct call *call)
{
    openai_start(call, &openai_completion_form);
}
