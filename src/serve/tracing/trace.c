/* From a result's durations to stages on a time line: see trace.h. */
#include "serve/tracing/trace.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

struct stage {
    const char *name;
    double ms;           /* negative: it has not ended, or never began */
    bool may_be_missing; /* it is no stage where it took no time */
    const char *attribute;
    int64_t value;
};

enum { ADMISSION, TOKENISE, LOOKUP, QUEUE, RESTORE, PREFILL, DECODE, SAVE, N_STAGES };

/* Restoring comes first in the slot, so its time is laid there; a request that was preempted had to restore its cells
 * again later. */
static double restore_of(const hearth_result *r)
{
    return r->predicted_n > 0 && r->restore_ms > r->prompt_ms ? r->prompt_ms : r->restore_ms;
}

static void list_stages(const struct trace_progress *progress, struct stage stages[N_STAGES])
{
    const hearth_result *r = progress->result;
    bool placed = r->slot >= 0, any = r->predicted_n > 0;
    double restore = placed ? restore_of(r) : 0;
    const struct stage all[N_STAGES] = {
        [ADMISSION] = {.name = "admission", .ms = r->admission_ms},
        [TOKENISE] = {.name = "tokenise", .ms = r->prepare_ms},
        [LOOKUP] = {.name = "lookup", .ms = r->lookup_ms},
        [QUEUE] = {.name = "queue-wait",
                   .ms = placed ? r->queue_ms - r->admission_ms - r->prepare_ms - r->lookup_ms : -1},
        [RESTORE] = {"restore", restore, true, "hearth.tokens.cached", r->cache_n},
        [PREFILL] = {"prefill", any ? r->prompt_ms - restore : -1, false, "hearth.tokens.computed", r->prompt_n},
        [DECODE] = {"decode", progress->done && any ? r->predicted_ms : -1, false, "gen_ai.usage.output_tokens",
                    r->predicted_n},
        [SAVE] = {.name = "save", .ms = progress->done ? r->save_ms : 0, .may_be_missing = true},
    };
    for (int i = 0; i < N_STAGES; i++) stages[i] = all[i];
}

static void count_tokens(struct trace *trace, const struct trace_progress *progress)
{
    const hearth_result *r = progress->result;
    if (r->slot < 0) return;
    trace->computed = true;
    trace->cached_n += r->cache_n;
    trace->prompt_n += r->prompt_n;
    trace->predicted_n += r->predicted_n;
    if (progress->done && trace->n_finishes < TRACE_FINISHES)
        trace->finish[trace->n_finishes++] = r->finish == HEARTH_FINISH_STOP ? 's' : 'l';
}

static void add_stages(struct trace *trace, const struct trace_progress *progress)
{
    struct stage stages[N_STAGES];
    int64_t at = progress->submitted_at;
    list_stages(progress, stages);
    count_tokens(trace, progress);
    for (const struct stage *s = stages; s < stages + N_STAGES; s++) {
        bool ended = s->ms >= 0;
        if (!ended && progress->done) continue; /* it had no such stage */
        if (ended && s->may_be_missing && s->ms == 0) continue;
        int64_t to = ended ? at + (int64_t)(s->ms * 1e6) : progress->until;
        if (to > progress->until) to = progress->until;
        trace->stages[trace->n_stages++] = (struct trace_stage){.name = s->name,
                                                                .from = at,
                                                                .to = to,
                                                                .choice = trace->n_choices,
                                                                .attribute = s->attribute,
                                                                .value = s->value};
        at = to;
        if (!ended) break;
    }
}

void trace_add_choice(struct trace *trace, const struct trace_progress *progress)
{
    trace->stages = mem_grow(trace->stages, trace->n_stages + N_STAGES, sizeof *trace->stages);
    if (progress->result != NULL)
        add_stages(trace, progress);
    else
        trace->stages[trace->n_stages++] = (struct trace_stage){
            .name = "waiting", .from = progress->submitted_at, .to = progress->until, .choice = trace->n_choices};
    trace->n_choices++;
}

void trace_set_text(char out[TRACE_TEXT], const char *text)
{
    snprintf(out, TRACE_TEXT, "%s", text == NULL ? "" : text);
}

void trace_free(struct trace *trace)
{
    if (trace == NULL) return;
    free(trace->stages);
    free(trace);
}
