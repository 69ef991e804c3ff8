/* Cuts slices out of raw states, and joins slices to one state. No state of its own, any thread. Input is not trusted:
 * a cell that is missing or duplicated fails the call. */
#include "llm/state_layout.h"

#include "base/memory.h"

#include <stdlib.h>

void llm_state_contents_release(struct llm_state_contents *contents)
{
    for (size_t i = 0; i < LLM_MAX_KV; i++) free(contents->runs[i].v);
}

bool llm_cut_rows(const struct llm_state_format *format, const void *raw, size_t size, int32_t from, int32_t to,
                  struct buf *slice, struct llm_regions *regions)
{
    struct llm_parsed_state parsed;
    struct llm_state_contents contents = {.what = LLM_STATE_SNAPSHOT, .n_stream = 1};
    *regions = (struct llm_regions){0};
    bool ok = format->n_rows > 0 && from < to && llm_parse_state(format, LLM_STATE_SNAPSHOT, raw, size, &parsed) &&
              llm_find_cells(format, &parsed.kv[0], from, to, &contents.runs[0]) &&
              llm_compose_state(format, &contents, slice, regions);
    llm_state_contents_release(&contents);
    return ok;
}

bool llm_find_checkpoint(const struct llm_state_format *format, const struct llm_parsed_state *parsed, int32_t n,
                         struct llm_state_contents *contents)
{
    if (n <= 0 || (format->recurrent && parsed->state == NULL)) return false;
    if (format->recurrent && llm_state_pos(parsed->state) != n - 1) return false;
    for (size_t i = format->n_rows; i < format->n_kv; i++) {
        const struct llm_kv_view *view = &parsed->kv[i];
        if (view->n == 0 || view->n > (uint32_t)n) return false;
        if (!llm_find_cells(format, view, n - (int32_t)view->n, n, &contents->runs[i])) return false;
    }
    contents->state = parsed->state;
    return true;
}

bool llm_cut_checkpoint(const struct llm_state_format *format, const void *raw, size_t size, int32_t n,
                        struct buf *slice, struct llm_regions *regions)
{
    struct llm_parsed_state parsed;
    struct llm_state_contents contents = {.what = LLM_STATE_CHECKPOINT, .n_stream = 1};
    *regions = (struct llm_regions){0};
    bool ok =
        llm_state_format_has_checkpoints(format) && llm_parse_state(format, LLM_STATE_CHECKPOINT, raw, size, &parsed) &&
        llm_find_checkpoint(format, &parsed, n, &contents) && llm_compose_state(format, &contents, slice, regions);
    llm_state_contents_release(&contents);
    return ok;
}

static bool find_all(const struct llm_state_format *format, const struct llm_state_slice *slices, size_t n,
                     struct llm_parsed_state *parsed, struct llm_runs *runs)
{
    for (size_t i = 0; i < n; i++) {
        const struct llm_state_slice *slice = &slices[i];
        if (slice->from != (i == 0 ? 0 : slices[i - 1].to) || slice->to <= slice->from) return false;
        if (!llm_parse_state(format, LLM_STATE_SNAPSHOT, slice->bytes, slice->size, &parsed[i])) return false;
        if (!llm_find_cells(format, &parsed[i].kv[0], slice->from, slice->to, runs)) return false;
    }
    return n > 0;
}

bool llm_join_rows(const struct llm_state_format *format, const struct llm_state_slice *slices, size_t n,
                   struct buf *joined)
{
    struct llm_state_contents contents = {.what = LLM_STATE_SNAPSHOT, .n_stream = format->n_stream};
    struct llm_parsed_state *parsed = mem_alloc((n + 1) * sizeof *parsed); /* the runs borrow from it */
    bool ok = format->n_rows > 0 && find_all(format, slices, n, parsed, &contents.runs[0]) &&
              llm_compose_state(format, &contents, joined, NULL);
    llm_state_contents_release(&contents);
    free(parsed);
    return ok;
}
