/* The routes that load and unload models, in the form of llama-server's router: the body is {"model": "NAME"}, the
 * answer comes at once, and GET /v1/models shows the progress. HTTP thread only; no state. */
#ifndef SERVE_STATUS_LIFECYCLE_H
#define SERVE_STATUS_LIFECYCLE_H

#include "serve/core/call.h"

void lifecycle_load(struct call *call);   /* POST /models/load */
void lifecycle_unload(struct call *call); /* POST /models/unload */

#endif
