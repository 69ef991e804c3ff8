/* The corpus: conversations made up from a seed. The same seed and number, the same conversation, on every machine. Any
 * thread. */
#ifndef DEMO_CORPUS_H
#define DEMO_CORPUS_H

#include "corpus/conversation.h"

#include <stdint.h>

/* Makes up one conversation of about so many characters; it may be shorter, and some are longer. */
void corpus_make(struct conversation *conversation, uint64_t seed, uint64_t number, size_t length);

/* Makes up a short one, of one kind of turn, of those that take longest to learn: lists, copied lines and words, calls
 * with two arguments, calls of two tools in turn, facts that were stated some turns ago, or were not. */
void corpus_drill(struct conversation *conversation, uint64_t seed, uint64_t number);

#endif
