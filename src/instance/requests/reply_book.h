/* The reply book of a model: the tokens of the replies that it sampled, found by the text before them.
 *
 * A client sends a reply back as text, and a tokenizer does not always make of it the tokens that were sampled. From
 * the first that differs on, the conversation would be computed again. So a prompt's text is compared with what was
 * answered. Where it goes on, after the same text and the same tokens of the same scope, with the same bytes as a
 * reply, its tokens are the sampled ones. The model sees the same text, and the KV cache compares tokens, as ever.
 *
 * Any thread; locks are held for lookups and insertions in memory only. */
#ifndef INSTANCE_REQUESTS_REPLY_BOOK_H
#define INSTANCE_REQUESTS_REPLY_BOOK_H

#include "base/tokens.h"
#include "instance/requests/prompt_text.h"

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

/* ---- Replies that outlive the process ----
 * The token lists of the store, where they spell a prompt in another way than the tokenizer does.
 *
 * The reply book forgets all when the process ends. The store has the sampled tokens, with the cells. Where a prompt's
 * tokens diverge from every stored list, some list may go on with the same bytes as the prompt. Then the prompt gets
 * its tokens, which finds its cells. Preparing threads. */

/* The stored lists of one identity. Zeroed: there are none. */
struct stored_lists {
    /* How many of the tokens some list begins with. */
    int32_t (*common)(const void *ud, const int32_t *tokens, int32_t n);
    /* Of lists that begin with these tokens: appends the next tokens of each way on, to one of the `max` empty lists
     * each. Returns how many there are. */
    size_t (*ways_on)(const void *ud, const int32_t *tokens, int32_t n, struct tokens *ways, size_t max);
    const void *ud;
};

/* Replaces tokens of the text, which its tokenizer and the reply book made, by those that are stored, as far as they
 * are not spelled oddly. Returns whether it has. */
bool stored_replies_take(const struct stored_lists *lists, const struct prompt_text *text, struct tokens *tokens);

#endif
