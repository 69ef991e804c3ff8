/* The KV store of an instance: store parameters from the configuration, the identity of a model's states, and the
 * store's status as hearth.h reports it. No data of its own. */
#include "instance/models/instance_store.h"

#include "instance/models/loaded_model.h"
#include "instance/models/model_manager.h"
#include "llm/model_identity.h"
#include "store/remote/remote_backend.h"

#include <math.h>
#include <string.h>

/* Bytes of memory that saves in the queue may take; further saves wait or are dropped. */
#define BACKLOG_BYTES (256u << 20)

/* Milliseconds after which a disk counts as hung on one slab; cache.evict_save_timeout_ms may only lengthen it. */
#define HANGS_MS 10000

/* ---- Opening ---- */

enum store_tier tier_named(const char *name)
{
    enum store_tier tier = 0;
    while (tier < STORE_TIERS && strcmp(store_tier_names[tier], name) != 0) tier++;
    return tier;
}

static uint64_t quota_of(const struct config_cache *cache, enum store_tier tier)
{
    return (uint64_t)cache->tiers[tier].quota_mb << 20;
}

/* The quota of the tier `ram` bounds the states that engines keep in memory and the tier's slabs together. Each has
 * half where saves go to that tier, else states have all of it. */
static uint64_t slab_quota(const struct config_cache *cache, enum store_tier tier)
{
    enum store_tier_kind kind = store_tier_kind(tier);
    if (kind == STORE_SERVER && cache->tiers[tier].server.url == NULL) return 0;
    if (kind != STORE_MEMORY) return quota_of(cache, tier);
    return tier == tier_named(cache->save_tier) ? quota_of(cache, tier) / 2 : 0;
}

uint64_t instance_store_state_budget(const struct hearth_config *config, size_t n_models)
{
    uint64_t states = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (store_tier_kind(i) == STORE_MEMORY) states += quota_of(&config->cache, i) - slab_quota(&config->cache, i);
    return states / (n_models > 0 ? n_models : 1);
}

static struct remote_params server_of(const struct config_cache *cache, enum store_tier tier)
{
    const struct config_server_tier *server = &cache->tiers[tier].server;
    return (struct remote_params){.url = server->url,
                                  .prefix = server->prefix,
                                  .user = server->user,
                                  .password_file = server->password_file,
                                  .ca_file = server->ca_file,
                                  .certificate_file = server->certificate_file,
                                  .certificate_key_file = server->certificate_key_file,
                                  .key_file = server->key_file,
                                  .encrypts = server->encrypt,
                                  .ttl_s = (int64_t)ceil(server->ttl),
                                  .timeout_ns = clock_from_ms(server->timeout_ms),
                                  .stride = (int32_t)cache->boundary_align_tokens};
}

int instance_store_open(const struct hearth_config *config, struct store **store, hearth_error *error)
{
    const struct config_cache *cache = &config->cache;
    bool any = false, any_tier = false;
    for (size_t i = 0; i < config->n_models; i++)
        any = any || config->models[i].incremental_cache || config->models[i].system_prompt_cache;
    int64_t hangs_ms = cache->evict_save_timeout_ms > HANGS_MS ? cache->evict_save_timeout_ms : HANGS_MS;
    struct store_params params = {.stride = (int32_t)cache->boundary_align_tokens,
                                  .save_tier = tier_named(cache->save_tier),
                                  .backlog = BACKLOG_BYTES,
                                  .save_timeout_ns = clock_from_ms(hangs_ms),
                                  .fetch_timeout_ns = clock_from_ms(cache->fetch_timeout_ms),
                                  .scan_grace_ns = clock_from_ms(cache->session_resume_wait_ms),
                                  .files = files_machine()};
    struct remote_params servers[STORE_TIERS];
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        servers[i] = server_of(cache, i);
        params.tiers[i] = (struct store_tier_params){.quota = slab_quota(cache, i),
                                                     .path = cache->tiers[i].path,
                                                     .server = &servers[i],
                                                     .probe_timeout_ns = servers[i].timeout_ns};
        any_tier = any_tier || params.tiers[i].quota > 0;
    }
    *store = NULL;
    if (!any || !any_tier) return HEARTH_OK;
    *store = store_open(&params, error);
    return *store == NULL ? (int)error->code : HEARTH_OK;
}

/* ---- Identity ---- */

struct identity instance_store_identity(const struct config_model *config, const uint8_t digest[SHA256_BYTES])
{
    struct identity identity = {.quant = quant_code(llm_file_quant(config->path))};
    memcpy(identity.model, digest, SHA256_BYTES);
    struct buf parameters = {0};
    buf_puts(&parameters, "hearth states 1\ncontrol vectors none\nprojector none\n");
    if (config->deterministic) {
        /* Other machines round otherwise, which only deterministic runs must not mix. Of the keys that came later only
         * what is set is put here: earlier identities stay. */
        buf_printf(&parameters, "split %s\n", config->split_mode);
        for (size_t i = 0; i < config->rpc.len; i++) buf_printf(&parameters, "rpc %s\n", config->rpc.v[i]);
        for (size_t i = 0; i < config->tensor_split.len; i++)
            buf_printf(&parameters, "part %s\n", config->tensor_split.v[i]);
        for (size_t i = 0; i < config->devices.len; i++) buf_printf(&parameters, "device %s\n", config->devices.v[i]);
        for (size_t i = 0; i < config->override_tensors.len; i++)
            buf_printf(&parameters, "override %s\n", config->override_tensors.v[i]);
        if (config->main_gpu > 0) buf_printf(&parameters, "main gpu %lld\n", (long long)config->main_gpu);
        if (config->n_cpu_moe > 0) buf_printf(&parameters, "experts in memory %lld\n", (long long)config->n_cpu_moe);
        if (config->cpu_moe) buf_puts(&parameters, "experts in memory\n");
    }
    sha256_of(parameters.v, parameters.len, identity.context);
    buf_release(&parameters);
    return identity;
}

/* ---- Numbers ---- */

_Static_assert(HEARTH_TIERS == (int)STORE_TIERS, "hearth.h has room for every tier");

const char *hearth_tier_name(size_t i)
{
    return i < STORE_TIERS ? store_tier_names[i] : NULL;
}

void hearth_cache_status(const hearth *instance, hearth_cache *out)
{
    *out = (hearth_cache){0};
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct store_tier_status status = {0};
        if (instance->store != NULL) store_tier_status(instance->store, i, &status);
        out->tiers[i] = (hearth_tier){.name = store_tier_names[i],
                                      .on = status.on,
                                      .entries = status.entries,
                                      .bytes = status.bytes,
                                      .quota_bytes = status.quota,
                                      .evictions = status.evictions};
        memcpy(out->tiers[i].trouble, status.trouble, sizeof out->tiers[i].trouble);
    }
    if (instance->store == NULL) return;
    const struct store_stats *stats = store_stats(instance->store);
    const struct {
        int64_t *to;
        const metric_value *from;
    } values[] = {{&out->hits_exact, &stats->hits_exact},
                  {&out->hits_resume, &stats->hits_resume},
                  {&out->hits_longest_prefix, &stats->hits_longest_prefix},
                  {&out->misses, &stats->misses},
                  {&out->saves_cold, &stats->saves[SLAB_COLD]},
                  {&out->saves_continued, &stats->saves[SLAB_CONTINUED]},
                  {&out->saves_finish, &stats->saves[SLAB_FINISH]},
                  {&out->saves_evict, &stats->saves[SLAB_EVICT]},
                  {&out->saves_shutdown, &stats->saves[SLAB_SHUTDOWN]},
                  {&out->saves_dropped, &stats->saves_dropped},
                  {&out->duplicate_dropped, &stats->duplicate_dropped},
                  {&out->corrupt_files, &stats->corrupt_files},
                  {&out->longest_prefix_probes, &stats->longest_prefix_probes},
                  {&out->pack_ns, &stats->pack_ns},
                  {&out->load_ns, &stats->load_ns},
                  {&out->written_bytes, &stats->written_bytes},
                  {&out->read_bytes, &stats->read_bytes},
                  {&out->backlog_bytes, &stats->backlog_bytes},
                  {&out->probes, &stats->probes},
                  {&out->probes_failed, &stats->probes_failed},
                  {&out->uploaded_bytes, &stats->uploaded_bytes},
                  {&out->uploads_dropped, &stats->uploads_dropped}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) *values[i].to = metric_get(values[i].from);
}

size_t hearth_unstored_models(const hearth *instance, hearth_unstored *out, size_t max)
{
    size_t n = 0, n_entries = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n_entries; i++) {
        struct model_entry *entry = &instance->entries[i];
        hearth_unstored one = {.model = entry->config->name};
        manager_unstored(entry, one.reason, sizeof one.reason);
        if (one.reason[0] == '\0') continue;
        if (n < max) out[n] = one;
        n++;
    }
    return n;
}
