/* Anthropic's Messages: POST /v1/messages and /v1/messages/count_tokens. Bodies are converted to OpenAI chats
 * (anthropic_body.c, any thread); the dialect in anthropic.c writes Anthropic's blocks and events. HTTP thread only. */
#ifndef SERVE_ANTHROPIC_ANTHROPIC_H
#define SERVE_ANTHROPIC_ANTHROPIC_H

#include "serve/core/exchange.h"
#include "serve/core/reading.h"
#include "serve/fields/fields.h"

#include <jansson.h>

/* The routes. */
extern const struct reading_form anthropic_messages;
extern const struct reading_form anthropic_count_tokens;

/* {"type":"error","error":{"type","message"},"request_id"}. `request_id` is not NULL. */
void anthropic_put_error(struct buf *out, const hearth_error *error, const char *request_id);

/* Converts a body to an OpenAI chat: a fields_converter. */
json_t *anthropic_chat(const json_t *body, struct uploads *uploads, struct header_list *left_out, hearth_error *error);
extern const struct fields_api anthropic_api;

/* For tests: the dialect and its state. `id` and `model` are copied. */
extern const struct dialect anthropic_dialect;
void *anthropic_state(const char *id, const char *model);

#endif
