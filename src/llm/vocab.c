/* Gives the bytes of tokens, those of all tokens in one block for grammars, and finds special tokens that a text
 * spells. No state besides the model's; any thread. */
#include "llm/vocab.h"

#include "base/error.h"
#include "base/media_spans.h"
#include "base/memory.h"
#include "base/os.h"
#include "llm/model_struct.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- One token ---- */

void llm_token_bytes(const struct llm_model *model, int32_t token, bool special, struct buf *out)
{
    assert(model != NULL && out != NULL);
    if (media_token_is_one(token)) return;
    const struct llama_vocab *vocab = model->vocab;
    char few[64];
    int32_t n = llama_token_to_piece(vocab, token, few, sizeof few, 0, special);
    if (n >= 0) {
        buf_append(out, few, (size_t)n);
        return;
    }
    int32_t room = -n;
    char *bytes = mem_grow(NULL, (size_t)room, 1);
    n = llama_token_to_piece(vocab, token, bytes, room, 0, special);
    if (n > 0) buf_append(out, bytes, (size_t)n);
    free(bytes);
}

#define LACKED 128 /* tokens that one vocabulary may lack: padding, or special tokens of a later version */

int llm_vocabularies_match(const struct llm_model *model, const struct llm_model *other, hearth_error *error)
{
    const struct llama_vocab *a = model->vocab, *b = other->vocab;
    int32_t n = llama_vocab_n_tokens(a), m = llama_vocab_n_tokens(b), most = n < m ? n : m;
    if (llama_vocab_type(a) != llama_vocab_type(b))
        return error_set(error, HEARTH_INVALID, "its tokenizer is of another type than the model's");
    if (n > most + LACKED || m > most + LACKED)
        return error_set(error, HEARTH_INVALID, "its vocabulary has %d tokens, the model's %d", n, m);
    for (int32_t i = 0; i < most; i++) {
        if (strcmp(llama_vocab_get_text(a, i), llama_vocab_get_text(b, i)) == 0) continue;
        return error_set(error, HEARTH_INVALID,
                         "its vocabulary is another one than the model's: token %d is \"%s\" there, \"%s\" here", i,
                         llama_vocab_get_text(b, i), llama_vocab_get_text(a, i));
    }
    return HEARTH_OK;
}

bool llm_token_is_found_first(const struct llm_model *model, int32_t token)
{
    return (llama_vocab_get_attr(model->vocab, token) &
            (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_USER_DEFINED)) != 0;
}

bool llm_token_ends_generation(const struct llm_model *model, int32_t token)
{
    return llama_vocab_is_eog(model->vocab, token);
}

struct llm_fim_tokens llm_fim_tokens(const struct llm_model *model)
{
    const struct llama_vocab *vocab = model->vocab;
    return (struct llm_fim_tokens){.prefix = llama_vocab_fim_pre(vocab),
                                   .suffix = llama_vocab_fim_suf(vocab),
                                   .middle = llama_vocab_fim_mid(vocab),
                                   .repository = llama_vocab_fim_rep(vocab),
                                   .file = llama_vocab_fim_sep(vocab),
                                   .begin = llama_vocab_get_add_bos(vocab) ? llama_vocab_bos(vocab) : -1};
}

/* ---- The bytes of all tokens ---- */

struct llm_token_texts {
    struct buf bytes;
    size_t *starts; /* n + 1 offsets into bytes */
    int32_t *tokens;
    uint32_t *shared;
    bool *hidden;
    size_t n, longest;
};

struct llm_token_text llm_token_text_of(const struct llm_token_texts *texts, int32_t token)
{
    if (token < 0 || (size_t)token >= texts->n) return (struct llm_token_text){.v = ""};
    size_t start = texts->starts[token];
    return (struct llm_token_text){.v = texts->bytes.v + start, .len = texts->starts[token + 1] - start};
}

bool llm_token_is_hidden(const struct llm_token_texts *texts, int32_t token)
{
    return token >= 0 && (size_t)token < texts->n && texts->hidden[token];
}

struct llm_token_order llm_token_texts_sorted(const struct llm_token_texts *texts)
{
    return (struct llm_token_order){
        .tokens = texts->tokens, .shared = texts->shared, .n = texts->n, .longest = texts->longest};
}

static int by_bytes(const void *a, const void *b, void *texts)
{
    struct llm_token_text x = llm_token_text_of(texts, *(const int32_t *)a),
                          y = llm_token_text_of(texts, *(const int32_t *)b);
    int order = memcmp(x.v, y.v, x.len < y.len ? x.len : y.len);
    if (order != 0) return order;
    return (x.len > y.len) - (x.len < y.len);
}

static struct llm_token_texts *open_texts(const struct llm_model *model)
{
    struct llm_token_texts *texts = mem_alloc(sizeof *texts);
    texts->n = (size_t)model->info.n_vocab;
    texts->starts = mem_alloc((texts->n + 1) * sizeof *texts->starts);
    texts->tokens = mem_alloc((texts->n + 1) * sizeof *texts->tokens);
    texts->shared = mem_alloc((texts->n + 1) * sizeof *texts->shared);
    texts->hidden = mem_alloc((texts->n + 1) * sizeof *texts->hidden);
    struct buf shown = {0};
    buf_append(&texts->bytes, "", 0);
    for (size_t i = 0; i < texts->n; i++) {
        llm_token_bytes(model, (int32_t)i, true, &texts->bytes);
        texts->starts[i + 1] = texts->bytes.len;
        texts->tokens[i] = (int32_t)i;
        buf_clear(&shown);
        llm_token_bytes(model, (int32_t)i, false, &shown);
        texts->hidden[i] = shown.len == 0;
        size_t len = texts->starts[i + 1] - texts->starts[i];
        if (len > texts->longest) texts->longest = len;
    }
    buf_release(&shown);
    if (texts->n > 0) os_sort(texts->tokens, texts->n, sizeof *texts->tokens, by_bytes, texts);
    for (size_t i = 1; i < texts->n; i++) {
        struct llm_token_text a = llm_token_text_of(texts, texts->tokens[i - 1]);
        struct llm_token_text b = llm_token_text_of(texts, texts->tokens[i]);
        uint32_t n = 0;
        while (n < a.len && n < b.len && a.v[n] == b.v[n]) n++;
        texts->shared[i] = n;
    }
    return texts;
}

const struct llm_token_texts *llm_model_token_texts(const struct llm_model *model)
{
    assert(model != NULL);
    pthread_mutex_lock(&model->texts->mutex);
    if (model->texts->v == NULL) model->texts->v = open_texts(model);
    const struct llm_token_texts *texts = model->texts->v;
    pthread_mutex_unlock(&model->texts->mutex);
    return texts;
}

void llm_token_texts_close(struct llm_token_texts *texts)
{
    if (texts == NULL) return;
    buf_release(&texts->bytes);
    free(texts->starts);
    free(texts->tokens);
    free(texts->shared);
    free(texts->hidden);
    free(texts);
}

/* ---- Special tokens in a text ---- */

/* A user's words must stay plain text even where they spell a special token. Code that tokenises them checks here
 * first, and takes the slower way only where it has to. */
struct llm_special_tokens {
    const char **texts; /* borrowed from the vocabulary; sorted */
    size_t n;
    size_t first[257]; /* texts[first[c]] … texts[first[c + 1] - 1] begin with byte c */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct llm_special_tokens *llm_special_tokens_open(const struct llama_vocab *vocab)
{
    struct llm_special_tokens *specials = mem_alloc(sizeof *specials);
    int32_t n_vocab = llama_vocab_n_tokens(vocab);
    for (llama_token token = 0; token < n_vocab; token++) {
        const char *text = llama_vocab_get_text(vocab, token);
        /* Tokenising matches these in a text only with parse_special. */
        bool special =
            (llama_vocab_get_attr(vocab, token) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0;
        if (!special || text == NULL || text[0] == '\0') continue;
        specials->texts = mem_grow(specials->texts, specials->n + 1, sizeof *specials->texts);
        specials->texts[specials->n++] = text;
    }
    if (specials->n > 0) qsort(specials->texts, specials->n, sizeof *specials->texts, by_text);
    for (size_t c = 0, i = 0; c < 256; c++) {
        specials->first[c] = i;
        while (i < specials->n && (unsigned char)specials->texts[i][0] == c) i++;
        specials->first[c + 1] = i;
    }
    return specials;
}

void llm_special_tokens_close(struct llm_special_tokens *specials)
{
    if (specials == NULL) return;
    free(specials->texts);
    free(specials);
}

/* The first of texts[from] … texts[to - 1] whose byte at `depth` is at least `c`; they share the bytes before it. */
static size_t first_from(const struct llm_special_tokens *specials, size_t from, size_t to, size_t depth, int c)
{
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if ((unsigned char)specials->texts[middle][depth] < c)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Narrows the list down byte by byte, since most special tokens of a vocabulary share a prefix and a text may repeat
 * that prefix. Of texts with the same prefix the one that ends there comes first. */
static bool begins_special(const struct llm_special_tokens *specials, const char *text, size_t len)
{
    size_t from = specials->first[(unsigned char)text[0]], to = specials->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; from < to; depth++) {
        if (specials->texts[from][depth] == '\0') return true;
        if (depth == len) return false;
        int c = (unsigned char)text[depth];
        from = first_from(specials, from, to, depth, c);
        to = first_from(specials, from, to, depth, c + 1);
    }
    return false;
}

bool llm_contains_special_token(const struct llm_model *model, const char *text, size_t len)
{
    assert(model != NULL && (text != NULL || len == 0));
    for (size_t at = 0; at < len; at++)
        if (begins_special(model->special_tokens, text + at, len - at)) return true;
    return false;
}
