/* Routes that prepare a prompt without a generation: tokenize, detokenize, apply a chat template, count tokens, and
 * the tokens of a chat or a completion as vLLM answers them, for routers. HTTP thread only. */
#ifndef SERVE_NATIVE_PROMPT_H
#define SERVE_NATIVE_PROMPT_H

#include "serve/core/call.h"

void prompt_tokenize(struct call *call);          /* POST /tokenize, /v1/tokenize */
void prompt_detokenize(struct call *call);        /* POST /detokenize, /v1/detokenize */
void prompt_apply_template(struct call *call);    /* POST /apply-template, /v1/apply-template */
void prompt_count(struct call *call);             /* POST /chat/completions/input_tokens, with /v1 too */
void prompt_count_response(struct call *call);    /* POST /responses/input_tokens, with /v1 too */
void prompt_render_chat(struct call *call);       /* POST /v1/chat/completions/render */
void prompt_render_completion(struct call *call); /* POST /v1/completions/render */

#endif
