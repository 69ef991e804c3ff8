/* Shared by the tests of replies that come back: a vocabulary, random words of it, and what two token lists have in
 * common. */
#ifndef UNIT_INSTANCE_VOCABULARY_H
#define UNIT_INSTANCE_VOCABULARY_H

#include "support.h"

#include "llm/model.h"

#include <ctype.h>
#include <jansson.h>

/* ---- A vocabulary, and words ---- */

static struct llm_model *weights;
static struct tokens words; /* short tokens of letters, digits and blanks: few texts of them have only these */

static inline void open_vocabulary(char *path)
{
    hearth_error error;
    struct llm_model_params params = {.path = path, .split_mode = "layer"};
    weights = llm_model_open(&params, &error);
    if (weights == NULL) fail_msg("%s", error.message);
    free(path);
    tokens_truncate(&words, 0);
    for (int32_t token = 0; token < llm_model_info(weights)->n_vocab; token++) {
        struct buf bytes = {0};
        llm_token_bytes(weights, token, false, &bytes);
        bool plain = bytes.len > 0 && bytes.len <= 2;
        for (size_t i = 0; i < bytes.len; i++)
            plain = plain && (bytes.v[i] == ' ' || isalnum((unsigned char)bytes.v[i]));
        if (plain) tokens_push(&words, token);
        buf_release(&bytes);
    }
    assert_true(words.len > 30);
}

static inline int demo(void **state)
{
    (void)state;
    llm_init();
    open_vocabulary(source_path("models/demo.gguf"));
    return 0;
}

static inline int close_vocabulary(void **state)
{
    (void)state;
    llm_model_close(weights);
    tokens_release(&words);
    return 0;
}

static inline unsigned rolled(unsigned *seed, unsigned sides)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (*seed >> 8) % sides;
}

static inline void add_words(unsigned *seed, size_t n, struct tokens *out)
{
    while (n-- > 0) tokens_push(out, words.v[rolled(seed, (unsigned)words.len)]);
}

static inline void spell(const struct tokens *tokens, struct buf *text)
{
    for (size_t i = 0; i < tokens->len; i++) llm_token_bytes(weights, tokens->v[i], true, text);
}

static inline void add_random_text(unsigned *seed, size_t n, struct buf *text)
{
    struct tokens some = {0};
    add_words(seed, n, &some);
    spell(&some, text);
    tokens_release(&some);
}

/* ---- Tokenising ---- */

static bool parses_special = true;

static inline void tokenise(const void *ud, size_t from, size_t to, struct tokens *out)
{
    const struct buf *text = ud;
    llm_tokenize(weights, text->v + from, to - from, from == 0, parses_special, out);
}

static inline struct tokens plainly(const struct buf *text)
{
    struct tokens out = {0};
    tokenise(text, 0, text->len, &out);
    return out;
}

static inline void assert_same(const struct tokens *a, const struct tokens *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->v, b->v, a->len * sizeof *a->v);
}

/* That the model sees the text. BOS has none of it. */
static inline void assert_spells(const struct tokens *tokens, const struct buf *text)
{
    struct buf spelled = {0};
    spell(tokens, &spelled);
    size_t skipped = spelled.len - text->len;
    assert_true(spelled.len >= text->len);
    assert_memory_equal(spelled.v + skipped, text->v, text->len);
    buf_release(&spelled);
}

/* ---- What two lists mean ---- */

/* The text without blanks, which some vocabularies add, and the control tokens in their order. */
static inline void gather(const struct tokens *tokens, struct buf *solid, struct tokens *control)
{
    struct buf text = {0};
    spell(tokens, &text);
    for (size_t i = 0; i < text.len; i++)
        if (text.v[i] != ' ') buf_append(solid, &text.v[i], 1);
    for (size_t i = 0; i < tokens->len; i++)
        if (llm_token_is_found_first(weights, tokens->v[i])) tokens_push(control, tokens->v[i]);
    buf_release(&text);
}

static inline void assert_means_the_same(const struct tokens *a, const struct tokens *b)
{
    struct buf solid[2] = {{0}};
    struct tokens control[2] = {{0}};
    gather(a, &solid[0], &control[0]);
    gather(b, &solid[1], &control[1]);
    assert_int_equal(solid[0].len, solid[1].len);
    assert_memory_equal(solid[0].v, solid[1].v, solid[0].len);
    assert_same(&control[0], &control[1]);
    for (size_t i = 0; i < 2; i++) {
        buf_release(&solid[i]);
        tokens_release(&control[i]);
    }
}

static inline bool is_utf8(const struct buf *bytes)
{
    json_t *text = json_stringn(bytes->v, bytes->len); /* which takes nothing else */
    bool valid = text != NULL;
    json_decref(text);
    return valid;
}

/* Any token whose bytes are whole characters: clients' texts are UTF-8. */
static inline int32_t any_token(unsigned *seed)
{
    struct buf bytes = {0};
    int32_t token = 0;
    do {
        bytes.len = 0;
        token = (int32_t)rolled(seed, (unsigned)llm_model_info(weights)->n_vocab);
        llm_token_bytes(weights, token, true, &bytes);
    } while (bytes.len == 0 || !is_utf8(&bytes));
    buf_release(&bytes);
    return token;
}

#endif
