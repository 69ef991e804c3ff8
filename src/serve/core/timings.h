/* Times and token counts of a reply in llama-server's form. Pure functions; any thread. */
#ifndef SERVE_CORE_TIMINGS_H
#define SERVE_CORE_TIMINGS_H

#include "base/buf.h"
#include "hearth.h"

/* ,"timings":{…} */
void timings_put(struct buf *out, const hearth_result *result);

/* ,"prompt_progress":{…}: cached tokens count as processed. */
void timings_put_progress(struct buf *out, const hearth_result *result);

#endif
