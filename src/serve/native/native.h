/* llama-server's own routes: completions and POST /infill, and those that prepare a prompt, show properties or set
 * adapters. HTTP thread only; lists and GET /props are made on answering threads. */
#ifndef SERVE_NATIVE_NATIVE_H
#define SERVE_NATIVE_NATIVE_H

#include "base/buf.h"
#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/core/reading.h"
#include "serve/fields/fields.h"

/* The routes. */
extern const struct reading_form native_completion;
extern const struct reading_form native_infill;

/* For the routes and tests: the dialects, and their state, which copies what it needs. NULL with the error: a
 * field that only these routes read is invalid. */
extern const struct dialect native_dialect, native_infill_dialect;
/* The state reads the fields once more when it is prepared. */
void *native_state(const struct fields *fields, const char *model, hearth_error *error);

/* Puts the final object of a choice, for OpenAI's "__verbose"; in a stream it has no text. */
void native_put_answer(const void *state, size_t index, const struct answer *answer, struct pieces *out);

void props_show(struct call *call);      /* GET /props */
void props_refuse(struct call *call);    /* POST /props */
void props_tokenizer(struct call *call); /* GET /tokenizer_info */

/* The query parameter `model` names the model; default: the first. */
void adapters_list(struct call *call);         /* GET /lora-adapters */
extern const struct reading_form adapters_set; /* POST /lora-adapters: sets the scales for requests without "lora" */

/* Append members of "generation_settings", in answers and in GET /props, without braces: sampling parameters (those not
 * set are left out), and the request's other parameters. Pure functions; any thread. */
void settings_put_sampling(struct buf *out, const hearth_sampling *sampling);
void settings_put_request(struct buf *out, const struct fields *fields);

/* Prompts without a generation; the last two answer with tokens as vLLM does, for routers. */
extern const struct reading_form prompt_tokenize;          /* POST /tokenize, /v1/tokenize */
extern const struct reading_form prompt_detokenize;        /* POST /detokenize, /v1/detokenize */
void prompt_apply_template(struct call *call);             /* POST /apply-template, /v1/apply-template */
extern const struct reading_form prompt_count;             /* POST /chat/completions/input_tokens, with /v1 too */
extern const struct reading_form prompt_count_response;    /* POST /responses/input_tokens, with /v1 too */
extern const struct reading_form prompt_render_chat;       /* POST /v1/chat/completions/render */
extern const struct reading_form prompt_render_completion; /* POST /v1/completions/render */

#endif
