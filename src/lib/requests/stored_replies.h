/* Replies that outlive the process: the token lists of the store, where they spell a prompt in another way than the
 * tokenizer does.
 *
 * The reply book forgets all when the process ends. What was sampled is in the store, with the cells: where a prompt's
 * tokens part from every stored list, some list may go on with the same bytes as the prompt. Then the prompt gets its
 * tokens, which finds its cells. Preparing threads. */
#ifndef LIB_REQUESTS_STORED_REPLIES_H
#define LIB_REQUESTS_STORED_REPLIES_H

#include "lib/requests/prompt_text.h"

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
