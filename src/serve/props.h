/* GET /props: what llama-server's clients want to know of a model before they use it. HTTP thread only. */
#ifndef SERVE_PROPS_H
#define SERVE_PROPS_H

#include "serve/call.h"

void props_show(struct call *call);
void props_refuse(struct call *call); /* POST /props */

#endif
