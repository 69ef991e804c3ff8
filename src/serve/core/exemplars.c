/* Exemplars: see exemplars.h. The histograms are the library's, which knows no traces; a request's result has the very
 * numbers that it counted there. */
#include "serve/core/exemplars.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "serve/core/models.h"

#include <stdlib.h>
#include <string.h>

/* Buckets that have one, at most; of models that come beyond that none are kept. */
#define MOST 4096

static struct exemplar *find(const struct exemplars *all, const char *sample, size_t len, size_t *at)
{
    /* The position of the sample, or where it would be. */
    size_t low = 0, high = all->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strncmp(all->v[middle].sample, sample, len) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low;
    bool there = *at < all->n && strncmp(all->v[*at].sample, sample, len) == 0 && all->v[*at].sample[len] == '\0';
    return there ? &all->v[*at] : NULL;
}

const struct exemplar *exemplars_find(const struct exemplars *all, const char *sample, size_t len)
{
    size_t at;
    return find(all, sample, len, &at);
}

static void note(struct exemplars *all, const char *metric, const char *labels, struct exemplar values)
{
    struct buf sample = {0};
    size_t at;
    metrics_put_bucket(&sample, metric, labels, &histogram_seconds, histogram_bucket(&histogram_seconds, values.value));
    struct exemplar *found = find(all, sample.v, sample.len, &at);
    if (found == NULL && all->n < MOST) {
        all->v = mem_grow(all->v, all->n + 1, sizeof *all->v);
        found = &all->v[at];
        memmove(found + 1, found, (all->n - at) * sizeof *all->v);
        all->n++;
        *found = (struct exemplar){.sample = mem_strdup(sample.v)};
    }
    if (found != NULL) {
        values.sample = found->sample;
        *found = values;
    }
    buf_release(&sample);
}

/* The model whose histograms have the request: the one that it names, by whatever name, or the only chat model. False:
 * it is uncertain.
 */
static bool find_model(const hearth *instance, const char *named, char name[TRACE_TEXT])
{
    hearth_model_info info;
    size_t n = 0;
    for (size_t i = 0; models_next(instance, &i, &info); i++) {
        if (info.type != HEARTH_MODEL_CHAT) continue;
        trace_set_text(name, info.name);
        if (models_is_called(&info, named)) return true;
        n++;
    }
    return n == 1;
}

void exemplars_note(struct exemplars *all, const hearth *instance, const struct trace *trace,
                    const hearth_result *result)
{
    char model[TRACE_TEXT];
    struct exemplar values = {.unix_s = (double)clock_unix_ms() / 1e3, .value = result->queue_ms / 1e3};
    struct buf labels = {0};
    if (!trace->self.sampled || result->slot < 0 || !find_model(instance, trace->model, model)) return;
    trace_put_hex(trace->self.trace, TRACE_ID_BYTES, values.trace_id);
    metrics_put_label(&labels, "model", model);
    note(all, "hearth_queue_wait_seconds", labels.v, values);
    values.value = (result->queue_ms + result->prompt_ms) / 1e3;
    if (result->predicted_n > 0) note(all, "hearth_time_to_first_token_seconds", labels.v, values);
    buf_release(&labels);
}

void exemplars_release(struct exemplars *all)
{
    for (size_t i = 0; i < all->n; i++) free(all->v[i].sample);
    free(all->v);
    *all = (struct exemplars){0};
}
