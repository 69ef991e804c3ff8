/* POST /v1/responses/compact: a conversation becomes its user's messages and one item with a summary of it, which the
 * model writes. The client sends these items in place of the conversation from then on. */
#ifndef SERVE_RESPONSES_RESPONSES_COMPACT_H
#define SERVE_RESPONSES_RESPONSES_COMPACT_H

#include "serve/core/call.h"

#include <jansson.h>

void responses_compact(struct call *call);

/* What the model is told in place of a compaction item: the summary that it holds. NULL: it is none of hearth's, and
 * cannot be read. */
json_t *compaction_text(const json_t *item);

#endif
