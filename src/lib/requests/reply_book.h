/* The reply book of a model: the tokens of the replies that it sampled, found by the text before them.
 *
 * A client sends a reply back as text, and a tokenizer does not always make of it the tokens that were sampled: from
 * the first that differs on, the conversation would be computed again. So a prompt's text is compared with what was
 * answered: where the prompt goes on, after the same text and the same tokens of the same scope, with the same bytes as
 * a reply, its tokens are the sampled ones. The model sees the same text, and the KV cache compares tokens, as ever.
 *
 * Any thread; locks are held for lookups and insertions in memory only. */
#ifndef LIB_REQUESTS_REPLY_BOOK_H
#define LIB_REQUESTS_REPLY_BOOK_H

#include "base/tokens.h"
#include "lib/requests/prompt_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reply_book;

/* Holds replies of at most so many bytes; those that were neither added nor found for longest are dropped. */
struct reply_book *reply_book_open(size_t bytes);
void reply_book_close(struct reply_book *book); /* NULL is fine */

/* Where a reply begins: behind a whole prompt. */
struct reply_place {
    uint64_t scope;        /* of the request: scopes share nothing */
    uint64_t text, tokens; /* hashes of the prompt */
    size_t n_bytes;        /* of the prompt; 0: its reply is not kept */
    size_t n_tokens;       /* likewise */
};

/* Appends the tokens of the text to `out`, which is empty; says where its reply will begin. */
void reply_book_tokenise(struct reply_book *book, uint64_t scope, const struct prompt_text *text, struct tokens *out,
                         struct reply_place *place);

/* Keeps the tokens that were sampled at the place. Short: for the engine's thread. */
void reply_book_add(struct reply_book *book, const struct reply_place *place, const struct tokens *reply);

/* The prompt has these tokens now. */
void reply_place_move(struct reply_place *place, const struct tokens *tokens);

#endif
