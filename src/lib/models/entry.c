/* Model entries: finding them by name and type, reading the facts of a model, and reporting them through hearth.h. */
#include "lib/models/entry.h"

#include "base/error.h"
#include "base/memory.h"
#include "lib/models/context_params.h"
#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"
#include "lib/models/template_text.h"
#include "lib/parameters/request_params.h"
#include "lib/parameters/sampling.h"
#include "llm/projector.h"
#include "media/media.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Finding ---- */

bool entry_is_listed(const struct model_entry *entry)
{
    return !atomic_load(&entry->removed);
}

/* The entry of a section of the configuration; NULL: not read yet, or left out. */
static struct model_entry *entry_of(const struct hearth *instance, const struct config_model *section)
{
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++)
        if (instance->entries[i].config == section) return &instance->entries[i];
    return NULL;
}

static bool is_removed(const struct hearth *instance, const struct config_model *section)
{
    const struct model_entry *entry = entry_of(instance, section);
    return entry != NULL && !entry_is_listed(entry);
}

/* Whether hearth_load() is through with the configuration. */
static bool is_all_read(const struct hearth *instance)
{
    return atomic_load(&instance->n_entries) + atomic_load(&instance->n_left_out) >= instance->config->n_models;
}

static bool is_left_out(const struct hearth *instance, const struct config_model *section)
{
    return is_all_read(instance) && entry_of(instance, section) == NULL;
}

/* The section of an added model that the name leads to; NULL: none. */
static const struct config_model *resolve_added(const struct hearth *instance, const char *name)
{
    const struct config_model *section = NULL;
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n && section == NULL; i++) {
        const struct model_entry *entry = &instance->entries[i];
        if (entry->own != NULL && entry_is_listed(entry)) section = config_resolve_model(entry->own, name);
    }
    return section;
}

/* The section that the name leads to, of the configuration or of an added model; NULL: none. One that was left out
 * gives its name to an added model. */
static const struct config_model *resolve(const struct hearth *instance, const char *name)
{
    const struct config_model *section = config_resolve_model(instance->config, name);
    if (section != NULL && is_removed(instance, section)) section = NULL;
    if (section != NULL && !is_left_out(instance, section)) return section;
    const struct config_model *added = resolve_added(instance, name);
    return added != NULL ? added : section;
}

bool instance_knows_model(const struct hearth *instance, const char *name)
{
    const struct config_model *section = resolve(instance, name);
    return section != NULL && !is_left_out(instance, section);
}

static struct model_entry *first_listed(const struct hearth *instance)
{
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++)
        if (entry_is_listed(&instance->entries[i])) return &instance->entries[i];
    return NULL;
}

static void put_name(struct buf *out, const char *name)
{
    buf_printf(out, "%s%s", out->len == 0 ? "" : ", ", name);
}

static void list_names(const struct hearth *instance, struct buf *out)
{
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < instance->config->n_models; i++) {
        const struct config_model *section = &instance->config->models[i];
        if (!is_removed(instance, section) && !is_left_out(instance, section)) put_name(out, section->name);
    }
    for (size_t i = 0; i < n; i++)
        if (instance->entries[i].own != NULL && entry_is_listed(&instance->entries[i]))
            put_name(out, instance->entries[i].config->name);
}

struct model_entry *instance_find_model(const struct hearth *instance, const char *name, hearth_error *error)
{
    const struct config_model *meant = name == NULL ? NULL : resolve(instance, name);
    struct model_entry *found = name == NULL    ? first_listed(instance)
                                : meant != NULL ? entry_of(instance, meant)
                                                : NULL;
    if (found != NULL) return found;
    if (name == NULL || meant != NULL) {
        bool is_over = atomic_load(&instance->load_failed) || is_all_read(instance);
        error_set(error, HEARTH_UNAVAILABLE,
                  is_over ? "the model could not be loaded" : "loading model: try again in a moment");
        return NULL;
    }
    struct buf names = {0};
    list_names(instance, &names);
    error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist; there is: %s", name,
             names.len > 0 ? names.v : "none");
    buf_release(&names);
    return NULL;
}

/* The model for requests that name none, or one that does not exist: server.default_model, else the first of the type,
 * and for an unknown name only where the choice is unambiguous; NULL: there is none. */
static struct model_entry *default_model(const struct hearth *instance, bool is_named, hearth_model_type type)
{
    const struct config_server *server = &instance->config->server;
    const struct config_model *chosen = server->default_model == NULL ? NULL : resolve(instance, server->default_model);
    struct model_entry *first = NULL;
    size_t n = atomic_load(&instance->n_entries), n_fit = 0;
    for (size_t i = 0; i < n; i++) {
        struct model_entry *entry = &instance->entries[i];
        if (entry->facts.type != type || !entry_is_listed(entry)) continue;
        if (entry->config == chosen) return entry;
        if (n_fit++ == 0) first = entry;
    }
    if (!is_named) return first;
    return n_fit == 1 && is_all_read(instance) ? first : NULL;
}

struct model_entry *instance_pick_model(const struct hearth *instance, const char *name, hearth_model_type type,
                                        hearth_error *error)
{
    static const char *const uses[] = {"writes text", "turns inputs into vectors", "judges documents by a query"};
    bool is_there = name != NULL && resolve(instance, name) != NULL;
    /* server.any_model_name holds for chat models alone: vectors of another model than the named one are useless. */
    bool any = !is_there && type == HEARTH_MODEL_CHAT && instance->config->server.any_model_name;
    struct model_entry *other = name == NULL || any ? default_model(instance, name != NULL, type) : NULL;
    if (other != NULL) return other;
    struct model_entry *entry = instance_find_model(instance, name, error);
    if (entry == NULL || entry->facts.type == type) return entry;
    hearth_model_type its = entry->facts.type;
    error_at(error, HEARTH_UNSUPPORTED, "model",
             "model '%s' is of the type %s: it %s. This request needs a model of the type %s, which %s",
             entry->config->name, hearth_model_type_name(its), uses[its], hearth_model_type_name(type), uses[type]);
    return NULL;
}

/* ---- Facts ---- */

/* Of this machine's memory: a model on RPC servers has its weights and cells in theirs. */
static double bytes_here(const struct config_model *config, const struct llm_context_params *context,
                         const struct llm_model *weights, hearth_model_type type)
{
    if (type != HEARTH_MODEL_CHAT) return config->rpc.len > 0 ? 0 : embedding_bytes(config, weights, context);
    struct estimate e = estimate_memory(config, context, llm_model_info(weights));
    return config->rpc.len > 0 ? e.projector : e.total;
}

static int read_facts(struct model_facts *facts, const struct config_model *config, const struct llm_model *weights,
                      hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(weights);
    struct llm_context_params context;
    struct llm_projector_kinds kinds = {0};
    int rc = model_context_params(config, info, &context, error);
    if (rc == HEARTH_OK && config->mmproj != NULL) rc = llm_projector_inspect(config->mmproj, &kinds, error);
    if (rc != HEARTH_OK) return rc;
    bool templated = config->jinja_file != NULL || info->chat_template != NULL;
    facts->type = embedding_decide_type(config, weights);
    facts->bytes = (uint64_t)bytes_here(config, &context, weights, facts->type);
    memcpy(facts->architecture, info->architecture, sizeof facts->architecture);
    memcpy(facts->description, info->description, sizeof facts->description);
    facts->info = (hearth_model_info){
        .name = config->name,
        .aliases = (const char *const *)config->aliases.v,
        .n_aliases = config->aliases.len,
        .path = config->path,
        .type = facts->type,
        .kind = info->kind,
        .pooling = facts->type != HEARTH_MODEL_CHAT ? embedding_pooling(config, weights) : HEARTH_POOLING_UNSPECIFIED,
        .size_bytes = info->size_bytes,
        .n_params = info->n_params,
        .weights_type = info->weights_type,
        .vocab_type = info->vocab_type,
        .n_vocab = info->n_vocab,
        .n_embd = info->n_embd,
        .n_embd_out = info->n_embd_out,
        .n_layer = info->n_layer,
        .n_swa = info->n_swa,
        .n_ctx_train = info->n_ctx_train,
        .context_window = context.window,
        .n_slots = (int32_t)config->n_seq_max,
        .has_chat_template = facts->type == HEARTH_MODEL_CHAT && templated,
        .images = facts->type == HEARTH_MODEL_CHAT && kinds.images,
        .sounds = facts->type == HEARTH_MODEL_CHAT && kinds.sounds,
        .videos = facts->type == HEARTH_MODEL_CHAT && kinds.images && media_video_is_read(),
    };
    return HEARTH_OK;
}

/* Compares the facts that requests were checked with. */
static bool are_equal(const struct model_facts *a, const struct model_facts *b)
{
    const hearth_model_info *i = &a->info, *k = &b->info;
    return a->type == b->type && strcmp(a->architecture, b->architecture) == 0 && i->pooling == k->pooling &&
           i->size_bytes == k->size_bytes && i->n_params == k->n_params && i->n_vocab == k->n_vocab &&
           i->n_embd_out == k->n_embd_out && i->context_window == k->context_window &&
           i->has_chat_template == k->has_chat_template;
}

/* The texts that hearth_model() reports. A template file that cannot be read fails later, when the template is opened.
 */
static void read_texts(struct model_facts *facts, const struct config_model *config, const struct llm_model *weights)
{
    const struct llm_model_info *info = llm_model_info(weights);
    hearth_params nothing = hearth_params_default();
    hearth_error unread;
    char *template_ = facts->type == HEARTH_MODEL_CHAT ? model_template_text(config, weights, &unread) : NULL;
    nothing.sampling = sampling_complete(&nothing.sampling, config, weights);
    nothing.sampling.seed = -1;
    facts->defaults = params_copy(&nothing);
    facts->chat_template = template_ != NULL ? template_ : mem_strdup("");
    facts->bos_text = mem_strdup(info->bos_text);
    facts->eos_text = mem_strdup(info->eos_text);
    const struct chat_template_params source = {
        .source = facts->chat_template, .bos = facts->bos_text, .eos = facts->eos_text};
    facts->chat_template_caps = chat_capabilities(&source);
    chat_transcription_texts(&source, &facts->transcription_system, &facts->transcription_user);
    facts->info.chat_template_caps = facts->chat_template_caps;
    facts->info.transcription_system = facts->transcription_system;
    facts->info.transcription_user = facts->transcription_user;
    facts->info.chat_template = facts->chat_template;
    facts->info.bos_text = facts->bos_text;
    facts->info.eos_text = facts->eos_text;
    facts->info.architecture = facts->architecture;
    facts->info.description = facts->description;
}

int entry_learn(struct model_entry *entry, const struct llm_model *weights, hearth_error *error)
{
    struct model_facts facts = {0};
    int rc = read_facts(&facts, entry->config, weights, error);
    if (rc != HEARTH_OK) return rc;
    bool first = entry->facts.info.name == NULL;
    if (!first && !are_equal(&facts, &entry->facts))
        return error_at(error, HEARTH_INVALID, entry->config->path,
                        "%s is another model than it was: start hearth anew to serve it", entry->config->path);
    if (!first) return HEARTH_OK;
    entry->facts = facts;
    read_texts(&entry->facts, entry->config, weights);
    return HEARTH_OK;
}

void entry_release(struct model_entry *entry)
{
    adapters_close(entry->adapters);
    free(entry->facts.chat_template);
    free(entry->facts.chat_template_caps);
    free(entry->facts.transcription_system);
    free(entry->facts.transcription_user);
    free(entry->facts.bos_text);
    free(entry->facts.eos_text);
    params_free(entry->facts.defaults);
    hearth_config_free(entry->own);
}

/* ---- hearth.h ---- */

bool hearth_model_sampling(const hearth *instance, size_t index, hearth_sampling *sampling)
{
    if (index >= atomic_load(&instance->n_entries)) return false;
    *sampling = instance->entries[index].facts.defaults->sampling;
    return true;
}

int32_t hearth_find_model(const hearth *instance, const char *name, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    bool is_there = name != NULL && resolve(instance, name) != NULL;
    const struct model_entry *entry = is_there ? instance_find_model(instance, name, error)
                                               : instance_pick_model(instance, name, HEARTH_MODEL_CHAT, error);
    return entry == NULL ? (int32_t)error->code : (int32_t)(entry - instance->entries);
}

bool hearth_model(const hearth *instance, size_t index, hearth_model_info *out)
{
    if (index >= atomic_load(&instance->n_entries)) return false;
    struct model_entry *entry = &instance->entries[index];
    *out = entry->facts.info;
    out->created_ms = atomic_load(&entry->created_ms);
    out->created = out->created_ms / 1000;
    out->state = manager_state(entry);
    return true;
}
