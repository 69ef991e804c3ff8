/* Model entries: reading the facts of a model from its file or its weights. */
#include "instance/models/loaded_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "chat/chat.h"
#include "instance/models/model_context.h"
#include "instance/models/model_names.h"
#include "instance/parameters/parameters.h"
#include "llm/projector.h"
#include "media/media.h"

#include <stdlib.h>
#include <string.h>

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
    bool chats = facts->type == HEARTH_MODEL_CHAT, remote = config->rpc.len > 0;
    /* Of this machine's memory: a model on RPC servers has its weights and cells in theirs. */
    if (chats) {
        struct estimate e = estimate_memory(config, &context, info);
        facts->bytes = (uint64_t)(remote ? e.projector + e.draft : e.total);
    } else if (!remote) {
        facts->bytes = (uint64_t)embedding_bytes(config, weights, &context);
    }
    memcpy(facts->architecture, info->architecture, sizeof facts->architecture);
    memcpy(facts->description, info->description, sizeof facts->description);
    facts->info = (hearth_model_info){
        .name = config->name,
        .aliases = (const char *const *)config->aliases.v,
        .n_aliases = config->aliases.len,
        .tags = (const char *const *)config->tags.v,
        .n_tags = config->tags.len,
        .path = config->path,
        .type = facts->type,
        .kind = info->kind,
        .pooling = chats ? HEARTH_POOLING_UNSPECIFIED : embedding_pooling(config, weights),
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
        .has_chat_template = chats && templated,
        .images = chats && kinds.images,
        .sounds = chats && kinds.sounds,
        .videos = chats && kinds.images && media_video_is_read(config->media_unconfined),
    };
    return HEARTH_OK;
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
    const hearth_model_info *is = &facts.info, *was = &entry->facts.info;
    bool first = was->name == NULL;
    bool same = facts.type == entry->facts.type && strcmp(facts.architecture, entry->facts.architecture) == 0 &&
                is->pooling == was->pooling && is->size_bytes == was->size_bytes && is->n_params == was->n_params &&
                is->n_vocab == was->n_vocab && is->n_embd_out == was->n_embd_out &&
                is->context_window == was->context_window && is->has_chat_template == was->has_chat_template;
    if (!first && !same) /* requests were checked with these facts */
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

bool entry_is_listed(const struct model_entry *entry)
{
    return !atomic_load(&entry->removed);
}
