/* GET /props: the properties of a model in llama-server's form. Answering threads, where it is not refused. */
#ifndef SERVE_NATIVE_PROPS_H
#define SERVE_NATIVE_PROPS_H

#include "serve/core/call.h"

void props_show(struct call *call);
void props_refuse(struct call *call);    /* POST /props */
void props_tokenizer(struct call *call); /* GET /tokenizer_info */

#endif
