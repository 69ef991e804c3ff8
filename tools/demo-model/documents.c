#include "documents.h"

#include "corpus/corpus.h"
#include "random.h"

#include <stdlib.h>

/* Tokens of the assistant count 1, the others little: they teach to read. */
static const float weights[] = {[PIECE_READ] = 0.1f, [PIECE_SPOKEN] = 1.0f};

/* Where pieces go. */
struct sink {
    const struct tokenizer *tokenizer;
    struct batch *batch;
    int32_t *tokens;
    int capacity;
};

static void add_piece(void *ud, enum piece piece, const char *text, size_t len)
{
    struct sink *sink = ud;
    int n = tokenizer_encode(sink->tokenizer, text, len, &sink->tokens, &sink->capacity);
    batch_add(sink->batch, sink->tokens, n, weights[piece]);
}

static void add_pieces(const struct tokenizer *tokenizer, const struct conversation *conversation, struct batch *batch)
{
    struct sink sink = {.tokenizer = tokenizer, .batch = batch};
    conversation_pieces(conversation, conversation->n_messages, add_piece, &sink);
    free(sink.tokens);
}

void documents_add(const struct tokenizer *tokenizer, const struct conversation *conversation, struct batch *batch)
{
    add_pieces(tokenizer, conversation, batch);
    batch_end_document(batch);
}

/* Half of the documents may have the whole length, and a quarter of all nearly have it; the others are shorter. In
 * characters, of which a token has more than two here, since replies come on top. */
static size_t pick_length(uint64_t seed, uint64_t number, int longest)
{
    static const int parts[] = {8, 3, 1, 1};
    struct random random = random_of(~seed, number);
    int which = random_below(&random, 4), most = longest * 22 / 10 / parts[which];
    return (size_t)random_between(&random, which == 3 ? most * 4 / 5 : most / 4, most);
}

static void make_document(uint64_t seed, uint64_t number, const struct mix *mix, struct conversation *conversation)
{
    struct random random = random_of(seed ^ UINT64_MAX / 3, number);
    if (random_chance(&random, mix->drills)) {
        corpus_drill(conversation, seed, number);
    } else {
        corpus_make(conversation, seed, number, pick_length(seed, number, mix->longest));
    }
}

void documents_fill(const struct documents *documents, uint64_t number, const struct mix *mix, struct batch *batch)
{
    enum { TRIED = 64 }; /* documents for one batch */
    batch_clear(batch);
    for (uint64_t i = 0; i < TRIED; i++) {
        struct conversation conversation = {0};
        make_document(documents->seed, number * TRIED + i, mix, &conversation);
        add_pieces(documents->tokenizer, &conversation, batch);
        conversation_release(&conversation);
        bool fits = batch_pending(batch) <= mix->longest && batch->n_tokens <= mix->room;
        if (fits) {
            batch_end_document(batch);
        } else {
            batch_drop_document(batch);
            if (batch->n_tokens > mix->room / 2) return;
        }
    }
}
