/* The parameters of a request: copies, completed sampling parameters, and hashes of its messages. Any thread. */
#ifndef INSTANCE_PARAMETERS_PARAMETERS_H
#define INSTANCE_PARAMETERS_PARAMETERS_H

#include "base/sha256.h"
#include "config/config.h"
#include "hearth.h"
#include "llm/model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Copies of hearth_params, which outlive the call of hearth_submit() ---- */

/* A copy that shares nothing; params_free() it. */
hearth_params *params_copy(const hearth_params *params);

/* The same, but what params->shared owns is not copied: the copy takes a reference to it, and has neither model nor
 * request_id. */
hearth_params *params_keep(const hearth_params *params);
void params_free(hearth_params *params); /* NULL is fine */

/* ---- Hashes of a conversation's leading messages, one for each number of them ----
 * They name a conversation in logs and in /slots. They hash what the request says, not the prompt made of it: equal
 * hashes may have different tokens (a template that prints the day). Only the tokens decide what is reused. */

/* The parts of a request that the template gets. */
struct chat_seen {
    const char *template_source;
    const json_t *kwargs, *tools; /* NULL: none */
    const json_t *messages;
    const uint8_t (*media)[SHA256_BYTES]; /* of the contents of n_media media, which parts name by their place */
    size_t n_media;
};

struct chat_identity {
    size_t n_messages;
    uint64_t *hashes; /* n_messages + 1: hashes[i] covers template, arguments, tools and the first i messages */
    bool starts_with_system;
};

/* Equal content has equal hashes, however its JSON was spaced and its keys are ordered. */
void chat_identify(const struct chat_seen *seen, struct chat_identity *identity);
void chat_identity_release(struct chat_identity *identity);

/* The scope of a cache_salt: 8 bytes of its SHA-256, so that nobody can choose a salt that finds the cells of another.
 * 0 for NULL and "". */
uint64_t chat_scope(const char *salt);

/* Whether the role is "system" or its newer name "developer". NULL is neither. */
bool chat_is_system_role(const char *role);

/* ---- Sampling parameters ----
 * Those that are not given come from the configuration, then the model's file, then the defaults. */

/* Fails with HEARTH_INVALID where a value is out of range; error->param names the field. */
int sampling_check(const hearth_sampling *sampling, int32_t n_vocab, hearth_error *error);

/* Fails with HEARTH_INVALID where the configuration names an unknown sampler; error->param names the key. */
int sampling_check_config(const struct config_model *config, hearth_error *error);

/* Takes from `others` the numbers and the seed that are not given. */
void sampling_take(hearth_sampling *sampling, const hearth_sampling *others);

/* The parameters with every value filled in. Lists are borrowed from `given`, the configuration or the model. */
hearth_sampling sampling_complete(const hearth_sampling *given, const struct config_model *config,
                                  const struct llm_model *model);

/* Gives the biases of texts to the texts' tokens. Returns the new list of all biases, which `sampling`
 * borrows and the caller frees; NULL: no bias has a text. */
hearth_bias *sampling_spell_biases(hearth_sampling *sampling, const struct llm_model *model);

#endif
