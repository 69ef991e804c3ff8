/* DRY: penalises tokens that would continue a repetition of what came before. The same results as llama.cpp's sampler
 * of that name, bit by bit. That one takes seconds to prepare the sequence breakers (texts that end a repetition) of
 * each sampler: it takes the text of every token for each breaker. Here the texts are taken once per model, and a set
 * of breakers is prepared once for all samplers that have it, of several choices and requests.
 *
 * A prepared set is immutable and reference-counted; any thread. A sampler's state belongs to the thread that has the
 * chain. */
#ifndef LLM_DRY_H
#define LLM_DRY_H

#include <stddef.h>
#include <stdint.h>

struct llama_sampler;
struct llama_vocab;
struct dry_breakers;

/* The sets of one model that were used last. A lock is held while one is looked up, and while the texts of the
 * vocabulary are taken at the first use; never while a set is prepared. */
struct dry_sets;

struct dry_sets *dry_sets_open(const struct llama_vocab *vocab);
void dry_sets_close(struct dry_sets *sets); /* NULL is fine */

/* The caller gives it to dry_breakers_unref(). */
struct dry_breakers *dry_breakers_of(struct dry_sets *sets, const char *const *texts, size_t n);
void dry_breakers_unref(struct dry_breakers *breakers);

struct dry_params {
    float multiplier, base;
    int32_t allowed_length; /* of a repetition without a penalty */
    int32_t last_n;         /* tokens that it looks back at, from 1 */
};

/* Takes the reference to the breakers. The sampler is one of llama.cpp's, for a chain. */
struct llama_sampler *dry_open(const struct dry_params *params, struct dry_breakers *breakers);

#endif
