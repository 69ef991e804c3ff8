/* Sequence breakers of DRY (texts that end a repetition), prepared for a model: which tokens contain one, and which
 * begin one that further tokens complete. They are what llama.cpp finds, which takes the text of every token for each
 * breaker of each sampler; here the texts are taken once per model, and a set of breakers is prepared once for all
 * samplers that have it, of several choices and requests.
 *
 * A prepared set is immutable and reference-counted; any thread. */
#ifndef LLM_DRY_BREAKERS_H
#define LLM_DRY_BREAKERS_H

#include "llm/model.h"

#include <stdint.h>

struct llama_vocab;
struct dry_breakers;

/* The sets of one model that were used last. A lock is held while one is looked up, and while the texts of the
 * vocabulary are taken at the first use; never while a set is prepared. */
struct dry_sets;

struct dry_sets *dry_sets_open(const struct llama_vocab *vocab);
void dry_sets_close(struct dry_sets *sets); /* NULL is fine */

/* This model's, which owns them. */
struct dry_sets *llm_model_dry_sets(const struct llm_model *model);

/* The caller gives it to dry_breakers_unref(). */
struct dry_breakers *dry_breakers_of(struct dry_sets *sets, const char *const *texts, size_t n);
void dry_breakers_unref(struct dry_breakers *breakers);

/* Whether the token contains a breaker. */
bool dry_breakers_contain(const struct dry_breakers *breakers, int32_t token);

/* How many tokens after recent[i] belong to the longest breaker that begins there, where recent[0] is the last token;
 * -1: none begins there. */
int32_t dry_breakers_match(const struct dry_breakers *breakers, const int32_t *recent, int32_t i);

#endif
