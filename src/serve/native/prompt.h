/* Routes that prepare a prompt without a generation: tokenize, detokenize, apply a chat template, count tokens. HTTP
 * thread only. */
#ifndef SERVE_NATIVE_PROMPT_H
#define SERVE_NATIVE_PROMPT_H

#include "serve/core/call.h"

void prompt_tokenize(struct call *call);       /* POST /tokenize, /v1/tokenize */
void prompt_detokenize(struct call *call);     /* POST /detokenize, /v1/detokenize */
void prompt_apply_template(struct call *call); /* POST /apply-template, /v1/apply-template */
void prompt_count(struct call *call);          /* POST /chat/completions/input_tokens, with /v1 too */
void prompt_count_response(struct call *call); /* POST /responses/input_tokens, with /v1 too */

#endif
