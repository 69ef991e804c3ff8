/* /metrics: the counters, gauges and histograms of engines, embedding pools, models, the store and the log, in
 * Prometheus' text format. And hearth_activities(): the token counts of chat models, and the requests that wait for
 * them. A model is kept in memory while its queue is asked. Reads atomic values only, but for the queues; any
 * thread. */
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "instance/models/loaded_model.h"
#include "instance/models/model_manager.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Activities ---- */

/* Requests in the admission queue of a model, and those that wait for the model to be loaded. */
static size_t waiting_for_admission(struct model_entry *entry)
{
    size_t waiting = manager_waiting(entry);
    struct model *model = brief_lease_take(entry);
    if (model == NULL) return waiting;
    waiting += model->pool != NULL ? embed_waiting(model->pool) : admission_waiting(model->admission);
    brief_lease_end(entry);
    return waiting;
}

size_t hearth_activities(const hearth *instance, hearth_activity *activities, size_t max)
{
    size_t total = 0, n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++) {
        struct model_entry *entry = &instance->entries[i];
        if (!entry_is_listed(entry) || entry->facts.type != HEARTH_MODEL_CHAT) continue;
        const struct engine_stats *stats = &entry->engine_stats;
        if (total < max)
            activities[total] =
                (hearth_activity){.model = entry->config->name,
                                  .waiting = (int64_t)waiting_for_admission(entry) + metric_get(&stats->jobs_waiting),
                                  .prompt_tokens = metric_get(&stats->prompt_tokens),
                                  .cached_tokens = metric_get(&stats->cached_tokens),
                                  .generated_tokens = metric_get(&stats->generated_tokens)};
        total++;
    }
    return total;
}

/* ---- Metrics ---- */

/* A row of a table; all of a table are members of one struct. */
struct row {
    const char *name, *type, *help;
    size_t offset; /* of a metric_value, or of a struct histogram; in tables of the store, of a 64-bit number */
    const struct histogram_bounds *bounds; /* of a histogram, otherwise NULL */
};

/* The places of values. */
#define ENGINE(member)    offsetof(struct engine_stats, member), NULL
#define ENCODER(member)   offsetof(struct encoder_stats, member), NULL
#define POOL(member)      offsetof(struct embed_stats, member), NULL
#define LOADS(member)     offsetof(struct load_metrics, member), NULL
#define TOKENIZER(member) offsetof(struct llm_tokenizer_stats, member), NULL
#define TIER(member)      offsetof(hearth_tier, member), NULL
#define STORE(member)     offsetof(hearth_cache, member), NULL

static const struct row value_rows[] = {
    {"hearth_requests_done_total", "counter", "Requests that ended with a reply.", ENGINE(requests_done)},
    {"hearth_requests_failed_total", "counter", "Requests that failed in the engine.", ENGINE(requests_failed)},
    {"hearth_requests_cancelled_total", "counter", "Requests that their client cancelled.", ENGINE(requests_cancelled)},
    {"hearth_prompt_tokens_total", "counter", "Prompt tokens computed.", ENGINE(prompt_tokens)},
    {"hearth_cached_tokens_total", "counter", "Prompt tokens that did not have to be computed.", ENGINE(cached_tokens)},
    {"hearth_generated_tokens_total", "counter", "Tokens generated.", ENGINE(generated_tokens)},
    {"hearth_drafted_tokens_grammar_total", "counter", "Tokens drafted where a grammar left no choice.",
     ENGINE(drafted_tokens[DRAFT_GRAMMAR])},
    {"hearth_drafted_tokens_request_total", "counter", "Tokens drafted from the request's own prompt and reply.",
     ENGINE(drafted_tokens[DRAFT_REQUEST])},
    {"hearth_drafted_tokens_store_total", "counter", "Tokens drafted from other conversations of the same scope.",
     ENGINE(drafted_tokens[DRAFT_STORE])},
    {"hearth_draft_model_calls_total", "counter", "Decode calls of a draft model.", ENGINE(draft_model_calls)},
    {"hearth_drafted_tokens_model_total", "counter", "Tokens drafted by a draft model.",
     ENGINE(drafted_tokens[DRAFT_MODEL])},
    {"hearth_accepted_tokens_grammar_total", "counter", "Of the first ones, those that were sampled then.",
     ENGINE(accepted_tokens[DRAFT_GRAMMAR])},
    {"hearth_accepted_tokens_request_total", "counter", "Of the second ones, those that were sampled then.",
     ENGINE(accepted_tokens[DRAFT_REQUEST])},
    {"hearth_accepted_tokens_store_total", "counter", "Of the third ones, those that were sampled then.",
     ENGINE(accepted_tokens[DRAFT_STORE])},
    {"hearth_accepted_tokens_model_total", "counter", "Of the fourth ones, those that were sampled then.",
     ENGINE(accepted_tokens[DRAFT_MODEL])},
    {"hearth_decode_calls_total", "counter", "Decode calls.", ENGINE(decode_calls)},
    {"hearth_ticks_total", "counter", "Ticks of the engine.", ENGINE(ticks)},
    {"hearth_idle_evictions_total", "counter",
     "Idle conversations that left the KV cells, since they slowed others down by more than bringing them back costs.",
     ENGINE(idle_evictions)},
    {"hearth_moved_rows_total", "counter",
     "KV rows moved to lower cells, since the free cells below them cost others more than moving them.",
     ENGINE(moved_rows)},
    {"hearth_preemptions_total", "counter", "Requests that were preempted for one that had waited too long.",
     ENGINE(preemptions)},
    {"hearth_states_saved_total", "counter", "Snapshots and checkpoints copied out of the context.",
     ENGINE(snapshots_saved)},
    {"hearth_states_restored_total", "counter", "Snapshots and checkpoints copied back into the context.",
     ENGINE(snapshots_restored)},
    {"hearth_state_bytes", "gauge", "Bytes of snapshots and checkpoints kept outside the context.",
     ENGINE(snapshot_bytes)},
    {"hearth_threads", "gauge", "Threads that computed the last tick.", ENGINE(threads)},
    {"hearth_slots_busy", "gauge", "Slots with a request.", ENGINE(slots_busy)},
    {"hearth_requests_waiting", "gauge", "Admitted requests without a slot.", ENGINE(jobs_waiting)},
};

/* Of preparing requests. */
static const struct row tokenizer_rows[] = {
    {"hearth_tokenised_bytes_total", "counter",
     "Bytes of prompts that were tokenised, but for requests that use no cache.", TOKENIZER(tokenised_bytes)},
    {"hearth_tokenised_bytes_cached_total", "counter", "Bytes of prompts whose tokens were in the tokenizer cache.",
     TOKENIZER(cached_bytes)},
};

/* Of images and sounds. */
static const struct row encoder_rows[] = {
    {"hearth_media_encoded_total", "counter", "Images and sounds, or parts of them, that were encoded.",
     ENCODER(encoded)},
    {"hearth_media_encodings_fetched_total", "counter", "Encodings of images and sounds that were read from the store.",
     ENCODER(fetched)},
    {"hearth_media_encodings_shared_total", "counter",
     "Images and sounds whose encoding was there, or computed for another request already.", ENCODER(shared)},
    {"hearth_media_encodings_bytes", "gauge", "Memory of encoded images and sounds that are kept.",
     ENCODER(kept_bytes)},
};

/* Of an embedding or rerank model's pool of contexts. */
static const struct row pool_rows[] = {
    {"hearth_embed_requests_done_total", "counter", "Requests for vectors or scores that ended with a result.",
     POOL(jobs_done)},
    {"hearth_embed_requests_failed_total", "counter", "Requests for vectors or scores that failed.", POOL(jobs_failed)},
    {"hearth_embed_requests_cancelled_total", "counter", "Requests for vectors or scores that their client cancelled.",
     POOL(jobs_cancelled)},
    {"hearth_embed_inputs_total", "counter", "Inputs computed.", POOL(inputs)},
    {"hearth_embed_tokens_total", "counter", "Tokens of the inputs computed.", POOL(tokens)},
    {"hearth_embed_decode_calls_total", "counter", "Decode calls for inputs.", POOL(calls)},
    {"hearth_embed_contexts_busy", "gauge", "Contexts that compute inputs.", POOL(contexts_busy)},
};

/* Of loading and unloading a model. */
static const struct row load_rows[] = {
    {"hearth_model_loads_total", "counter", "Successful loads of the model.", LOADS(loads)},
    {"hearth_model_load_failures_total", "counter", "Loads of the model that failed.", LOADS(failures)},
    {"hearth_model_unloads_total", "counter", "Unloads of the model.", LOADS(unloads)},
    {"hearth_model_load_seconds", "histogram", "Time of a load.", offsetof(struct load_metrics, load_seconds),
     &histogram_seconds},
};

/* Of engines. */
static const struct row histogram_rows[] = {
    {"hearth_queue_wait_seconds", "histogram", "From submission to a slot.", offsetof(struct engine_stats, queue_wait),
     &histogram_seconds},
    {"hearth_time_to_first_token_seconds", "histogram", "From submission to the first token.",
     offsetof(struct engine_stats, first_token), &histogram_seconds},
    {"hearth_tick_seconds", "histogram", "Time of a tick.", offsetof(struct engine_stats, tick), &histogram_seconds},
    {"hearth_batch_tokens", "histogram", "Tokens of a decode call.", offsetof(struct engine_stats, batch),
     &histogram_tokens},
};

/* Of the store, which all models share. */
static const struct row cache_rows[] = {
    {"hearth_cache_hits_exact_total", "counter", "Requests whose whole prompt came from the store.", STORE(hits_exact)},
    {"hearth_cache_hits_resume_total", "counter", "Requests that resumed the stored entry that their parent_key names.",
     STORE(hits_resume)},
    {"hearth_cache_hits_longest_prefix_total", "counter", "Requests that reused a stored prefix.",
     STORE(hits_longest_prefix)},
    {"hearth_cache_misses_total", "counter", "Requests of which nothing was resident or stored.", STORE(misses)},
    {"hearth_cache_saves_cold_total", "counter", "Prompts stored once they were computed.", STORE(saves_cold)},
    {"hearth_cache_saves_continued_total", "counter", "Saves of sequences that still grow.", STORE(saves_continued)},
    {"hearth_cache_saves_finish_total", "counter", "Sequences stored when their request ended.", STORE(saves_finish)},
    {"hearth_cache_saves_evict_total", "counter", "Sequences stored before they were evicted from cells.",
     STORE(saves_evict)},
    {"hearth_cache_saves_shutdown_total", "counter", "Sequences stored when their engine stopped.",
     STORE(saves_shutdown)},
    {"hearth_cache_saves_dropped_total", "counter", "Saves that were dropped.", STORE(saves_dropped)},
    {"hearth_cache_duplicate_dropped_total", "counter", "Saves of what was stored already.", STORE(duplicate_dropped)},
    {"hearth_cache_corrupt_files_total", "counter", "Stored files that were found damaged.", STORE(corrupt_files)},
    {"hearth_cache_longest_prefix_probes_total", "counter", "Keys looked up.", STORE(longest_prefix_probes)},
    {"hearth_cache_pack_nanoseconds_total", "counter", "Time for packing states into slabs.", STORE(pack_ns)},
    {"hearth_cache_load_nanoseconds_total", "counter", "Time for reading and checking slabs.", STORE(load_ns)},
    {"hearth_cache_written_bytes_total", "counter", "Bytes stored.", STORE(written_bytes)},
    {"hearth_cache_read_bytes_total", "counter", "Bytes read back.", STORE(read_bytes)},
    {"hearth_cache_backlog_bytes", "gauge", "Bytes of saves in progress.", STORE(backlog_bytes)},
    {"hearth_cache_probes_total", "counter", "Questions to the server of a tier, each for all blocks of a prompt.",
     STORE(probes)},
    {"hearth_cache_probes_failed_total", "counter", "Those that it did not answer in time.", STORE(probes_failed)},
    {"hearth_cache_uploaded_bytes_total", "counter", "Bytes stored on the server of a tier.", STORE(uploaded_bytes)},
    {"hearth_cache_uploads_dropped_total", "counter", "Saves of which that server did not get all blocks.",
     STORE(uploads_dropped)},
};

/* Of each of its tiers. */
static const struct row tier_rows[] = {
    {"hearth_cache_entries", "gauge", "Entries of a tier.", TIER(entries)},
    {"hearth_cache_bytes", "gauge", "Bytes that a tier holds.", TIER(bytes)},
    {"hearth_cache_quota_bytes", "gauge", "Bytes that a tier may hold.", TIER(quota_bytes)},
    {"hearth_cache_evictions_total", "counter", "Entries evicted from a tier.", TIER(evictions)},
};

static void put_cache(const struct hearth *instance, struct buf *out)
{
    hearth_cache cache;
    hearth_cache_status(instance, &cache);
    for (size_t i = 0; i < sizeof cache_rows / sizeof *cache_rows; i++) {
        int64_t value = *(const int64_t *)(const void *)((const char *)&cache + cache_rows[i].offset);
        metrics_put_head(out, cache_rows[i].name, cache_rows[i].type, cache_rows[i].help);
        metrics_put_value(out, cache_rows[i].name, "", (double)value);
    }
    for (size_t i = 0; i < sizeof tier_rows / sizeof *tier_rows; i++) {
        metrics_put_head(out, tier_rows[i].name, tier_rows[i].type, tier_rows[i].help);
        for (size_t t = 0; t < HEARTH_TIERS; t++) {
            const char *tier = (const char *)&cache.tiers[t];
            char labels[32];
            snprintf(labels, sizeof labels, "tier=\"%s\"", cache.tiers[t].name);
            metrics_put_value(out, tier_rows[i].name, labels,
                              (double)*(const uint64_t *)(const void *)(tier + tier_rows[i].offset));
        }
    }
}

static void labels_of(const struct model_entry *entry, struct buf *labels)
{
    buf_clear(labels);
    metrics_put_label(labels, "model", entry->config->name);
}

static const void *engine_stats_of(const struct model_entry *entry)
{
    return entry->facts.type == HEARTH_MODEL_CHAT ? &entry->engine_stats : NULL;
}

static const void *tokenizer_stats_of(const struct model_entry *entry)
{
    return entry->facts.type == HEARTH_MODEL_CHAT ? &entry->tokenizer_stats : NULL;
}

static const void *encoder_stats_of(const struct model_entry *entry)
{
    return entry->config->mmproj != NULL ? &entry->encoder_stats : NULL;
}

static const void *pool_stats_of(const struct model_entry *entry)
{
    return entry->facts.type == HEARTH_MODEL_CHAT ? NULL : &entry->pool_stats;
}

static const void *load_metrics_of(const struct model_entry *entry)
{
    return &entry->load_metrics;
}

/* One table for every model: `of` returns the struct that its offsets refer to, or NULL where a model has none. */
static void put_rows(const struct hearth *instance, const struct row *rows, size_t n_rows,
                     const void *(*of)(const struct model_entry *entry), struct buf *out)
{
    struct buf labels = {0};
    size_t n = atomic_load(&instance->n_entries);
    for (const struct row *row = rows; row < rows + n_rows; row++) {
        metrics_put_head(out, row->name, row->type, row->help);
        for (size_t m = 0; m < n; m++) {
            const char *stats = of(&instance->entries[m]);
            if (stats == NULL || !entry_is_listed(&instance->entries[m])) continue;
            const void *value = stats + row->offset;
            labels_of(&instance->entries[m], &labels);
            if (row->bounds != NULL)
                metrics_put_histogram(out, row->name, labels.v, value, row->bounds);
            else
                metrics_put_value(out, row->name, labels.v, (double)metric_get(value));
        }
    }
    buf_release(&labels);
}

/* ---- Under vLLM's names ---- */

/* The gauges that routers for vLLM's servers ask of one about a chat model (server.metrics_names). */
struct vllm_values {
    double waiting, running;
    double usage;   /* of the cells, by running requests: those of idle conversations are there for the next one */
    int64_t blocks; /* that all cells would make */
};

/* Part of the cells that busy slots use. A model that is not loaded uses none. */
static double cells_in_use(struct model_entry *entry, int64_t cells)
{
    double used = 0;
    struct model *model = brief_lease_take(entry);
    if (model == NULL) return 0;
    size_t n = engine_slots(model->engine, NULL, 0);
    hearth_slot *slots = mem_alloc((n + 1) * sizeof *slots);
    engine_slots(model->engine, slots, n);
    brief_lease_end(entry);
    for (size_t i = 0; i < n; i++) used += slots[i].state == HEARTH_SLOT_IDLE ? 0 : slots[i].n_past;
    free(slots);
    return cells > 0 ? used / (double)cells : 0;
}

static struct vllm_values vllm_values_of(struct model_entry *entry)
{
    const hearth_model_info *info = &entry->facts.info;
    int64_t cells = (int64_t)info->context_window * info->n_slots;
    return (struct vllm_values){.waiting = (double)waiting_for_admission(entry) +
                                           (double)metric_get(&entry->engine_stats.jobs_waiting),
                                .running = (double)metric_get(&entry->engine_stats.slots_busy),
                                .usage = cells_in_use(entry, cells),
                                .blocks = cells / HEARTH_BLOCK};
}

static const struct vllm_row {
    const char *name, *help;
    size_t offset; /* of a double in struct vllm_values */
} vllm_rows[] = {
    {"vllm:num_requests_waiting", "Requests that wait for admission or a slot.", offsetof(struct vllm_values, waiting)},
    {"vllm:num_requests_running", "Slots with a request.", offsetof(struct vllm_values, running)},
    {"vllm:kv_cache_usage_perc", "Part of the KV cells that running requests use, 0 to 1.",
     offsetof(struct vllm_values, usage)},
};

static void put_vllm(const struct hearth *instance, struct buf *out)
{
    static const char info[] = "vllm:cache_config_info";
    struct buf labels = {0};
    for (size_t i = 0; i < sizeof vllm_rows / sizeof *vllm_rows; i++) {
        const struct vllm_row *row = &vllm_rows[i];
        metrics_put_head(out, row->name, "gauge", row->help);
        for (size_t m = 0, n = atomic_load(&instance->n_entries); m < n; m++) {
            struct model_entry *entry = &instance->entries[m];
            if (entry->facts.type != HEARTH_MODEL_CHAT || !entry_is_listed(entry)) continue;
            struct vllm_values values = vllm_values_of(entry);
            buf_clear(&labels);
            metrics_put_label(&labels, "model_name", entry->config->name);
            metrics_put_value(out, row->name, labels.v,
                              *(const double *)(const void *)((const char *)&values + row->offset));
        }
    }
    metrics_put_head(out, info, "gauge", "Tokens of a block of cache events, and how many blocks the KV cells make.");
    for (size_t m = 0, n = atomic_load(&instance->n_entries); m < n; m++) {
        struct model_entry *entry = &instance->entries[m];
        if (entry->facts.type != HEARTH_MODEL_CHAT || !entry_is_listed(entry)) continue;
        buf_clear(&labels);
        buf_printf(&labels, "block_size=\"%d\",num_gpu_blocks=\"%lld\",", HEARTH_BLOCK,
                   (long long)vllm_values_of(entry).blocks);
        metrics_put_label(&labels, "model_name", entry->config->name);
        metrics_put_value(out, info, labels.v, 1);
    }
    buf_release(&labels);
}

#define ROWS(table) (table), sizeof(table) / sizeof *(table)

char *hearth_metrics(const hearth *instance)
{
    struct buf out = {0};
    put_rows(instance, ROWS(value_rows), engine_stats_of, &out);
    put_rows(instance, ROWS(tokenizer_rows), tokenizer_stats_of, &out);
    put_rows(instance, ROWS(encoder_rows), encoder_stats_of, &out);
    put_rows(instance, ROWS(histogram_rows), engine_stats_of, &out);
    put_rows(instance, ROWS(pool_rows), pool_stats_of, &out);
    put_rows(instance, ROWS(load_rows), load_metrics_of, &out);
    metrics_put_head(&out, "hearth_admission_waiting", "gauge", "Requests that wait for admission.");
    struct buf labels = {0};
    for (size_t m = 0, n = atomic_load(&instance->n_entries); m < n; m++) {
        struct model_entry *entry = &instance->entries[m];
        if (!entry_is_listed(entry)) continue;
        labels_of(entry, &labels);
        metrics_put_value(&out, "hearth_admission_waiting", labels.v, (double)waiting_for_admission(entry));
    }
    buf_release(&labels);
    size_t loaded = 0;
    for (size_t m = 0; m < atomic_load(&instance->n_entries); m++) loaded += manager_has(&instance->entries[m]);
    metrics_put_head(&out, "hearth_models_loaded", "gauge", "Models in memory.");
    metrics_put_value(&out, "hearth_models_loaded", "", (double)loaded);
    put_cache(instance, &out);
    metrics_put_head(&out, "hearth_log_lines_dropped_total", "counter",
                     "Lines of the log that its queue had no room for, or that could not be written.");
    metrics_put_value(&out, "hearth_log_lines_dropped_total", "", (double)log_lines_dropped());
    if (instance->config->server.metrics_names == CONFIG_METRICS_VLLM) put_vllm(instance, &out);
    return buf_take(&out);
}
