/* How long a reply took, as llama-server's clients read it. Pure functions; any thread. */
#ifndef SERVE_CORE_TIMINGS_H
#define SERVE_CORE_TIMINGS_H

#include "base/buf.h"
#include "hearth.h"

/* ,"timings":{…} */
void timings_put(struct buf *out, const hearth_result *result);

/* ,"prompt_progress":{…}: what was cached counts as processed. */
void timings_put_progress(struct buf *out, const hearth_result *result);

#endif
