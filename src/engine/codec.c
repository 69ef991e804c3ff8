/* Adapts src/llm's state format to the store's codec: src/llm splits and joins llama.cpp's states, the store names the
 * regions. No data of its own; called on the store's threads. */
#include "engine/core.h"

#include "base/memory.h"

#include <stdlib.h>

static bool cut_slab(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from, int32_t to,
                     struct buf *payload, struct slab_region **regions, size_t *n_regions)
{
    const struct llm_state_format *format = ud;
    struct llm_regions parts = {0};
    bool done = kind == SLAB_ROWS ? llm_cut_rows(format, raw, size, from, to, payload, &parts)
                                  : llm_cut_checkpoint(format, raw, size, to, payload, &parts);
    if (!done) return false;
    *regions = mem_alloc((parts.len + 1) * sizeof **regions);
    *n_regions = parts.len;
    for (size_t i = 0; i < parts.len; i++)
        (*regions)[i] = (struct slab_region){.what = parts.v[i].what,
                                             .layer = parts.v[i].layer,
                                             .type = parts.v[i].type,
                                             .rows = parts.v[i].rows,
                                             .row_bytes = parts.v[i].row_bytes,
                                             .offset = parts.v[i].offset,
                                             .size = parts.v[i].size};
    free(parts.v);
    return true;
}

static bool join_slabs(const void *ud, const struct store_piece *pieces, size_t n, struct buf *joined)
{
    struct llm_state_slice *parts = mem_alloc(n * sizeof *parts);
    for (size_t i = 0; i < n; i++)
        parts[i] = (struct llm_state_slice){
            .bytes = pieces[i].bytes, .size = pieces[i].size, .from = pieces[i].from, .to = pieces[i].to};
    bool done = llm_join_rows(ud, parts, n, joined);
    free(parts);
    return done;
}

struct store_codec codec_of(const struct llm_state_format *format)
{
    return (struct store_codec){.ud = format,
                                .rows = llm_state_format_has_rows(format),
                                .has_state = llm_state_format_has_checkpoints(format),
                                .appends = llm_state_format_appends(format),
                                .cut = cut_slab,
                                .join = join_slabs};
}
