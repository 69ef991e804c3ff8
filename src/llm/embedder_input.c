/* Builds an embedder's inputs from tokens and from reranking pairs: see embedder_input.h. */
#include "llm/embedder_input.h"

#include "llm/llm_parts.h"

#include <string.h>

static const struct llama_vocab *vocab_of(const struct llm_model *model)
{
    return llama_model_get_vocab(llm_model_handle(model));
}

/* ---- Shortening ---- */

void llm_truncate_input(const struct llm_model *model, struct tokens *input, size_t limit, bool from_left)
{
    if (input->len <= limit) return;
    const struct llama_vocab *vocab = vocab_of(model);
    size_t excess = input->len - limit;
    size_t head = llama_vocab_is_control(vocab, input->v[0]) && limit > 1;
    size_t tail = llama_vocab_is_control(vocab, input->v[input->len - 1]) && limit > head + 1;
    size_t cut_at = from_left ? head : input->len - tail - excess; /* where the removed tokens begin */
    memmove(&input->v[cut_at], &input->v[cut_at + excess], (input->len - cut_at - excess) * sizeof *input->v);
    tokens_truncate(input, limit);
}

/* ---- Pairs ---- */

/* A pair's input: the document, and the tokens before and after it. */
struct pair_parts {
    struct tokens before, document, after;
};

static void release_pair_parts(struct pair_parts *pair_parts)
{
    tokens_release(&pair_parts->before);
    tokens_release(&pair_parts->document);
    tokens_release(&pair_parts->after);
}

static void push_if(struct tokens *out, bool wanted, llama_token token)
{
    if (wanted && token != LLAMA_TOKEN_NULL) tokens_push(out, token);
}

/* The order of llama-server, which uses the separator where a vocabulary has no EOS token. */
static void join_with_separators(const struct llm_model *model, const struct llm_pair *pair,
                                 struct pair_parts *pair_parts)
{
    const struct llama_vocab *vocab = vocab_of(model);
    llama_token sep = llama_vocab_sep(vocab), eos = llama_vocab_eos(vocab);
    if (eos == LLAMA_TOKEN_NULL) eos = sep;
    push_if(&pair_parts->before, llama_vocab_get_add_bos(vocab), llama_vocab_bos(vocab));
    llm_tokenize(model, pair->query, pair->query_len, false, false, &pair_parts->before);
    push_if(&pair_parts->before, llama_vocab_get_add_eos(vocab), eos);
    push_if(&pair_parts->before, llama_vocab_get_add_sep(vocab), sep);
    llm_tokenize(model, pair->document, pair->document_len, false, false, &pair_parts->document);
    push_if(&pair_parts->after, llama_vocab_get_add_eos(vocab), eos);
}

static const char query_mark[] = "{query}", document_mark[] = "{document}";

static bool starts_with(const char *text, const char *mark)
{
    return strncmp(text, mark, strlen(mark)) == 0;
}

/* Bytes up to the next placeholder. */
static size_t literal_len(const char *text)
{
    size_t len = 0;
    while (text[len] != '\0' && !starts_with(text + len, query_mark) && !starts_with(text + len, document_mark)) len++;
    return len;
}

static void fill_template(const struct llm_model *model, const struct llm_pair *pair, struct pair_parts *pair_parts)
{
    const char *text = llm_model_info(model)->rank_template;
    struct tokens *around = &pair_parts->before;
    while (*text != '\0') {
        if (starts_with(text, query_mark)) {
            llm_tokenize(model, pair->query, pair->query_len, false, false, around);
            text += strlen(query_mark);
        } else if (starts_with(text, document_mark)) {
            llm_tokenize(model, pair->document, pair->document_len, false, false, &pair_parts->document);
            around = &pair_parts->after;
            text += strlen(document_mark);
        } else {
            size_t len = literal_len(text);
            llm_tokenize(model, text, len, false, true, around);
            text += len;
        }
    }
}

/* The template filled in as one text: it may tokenise differently than in parts, and models were trained with one text.
 */
static void render_whole(const struct llm_model *model, const struct llm_pair *pair, struct tokens *out)
{
    struct buf whole = {0};
    const char *text = llm_model_info(model)->rank_template;
    while (*text != '\0') {
        bool query = starts_with(text, query_mark), document = starts_with(text, document_mark);
        size_t len = query ? strlen(query_mark) : document ? strlen(document_mark) : literal_len(text);
        if (query)
            buf_append(&whole, pair->query, pair->query_len);
        else
            buf_append(&whole, document ? pair->document : text, document ? pair->document_len : len);
        text += len;
    }
    llm_tokenize(model, whole.v, whole.len, false, true, out);
    buf_release(&whole);
}

static bool join_parts(struct pair_parts *pair_parts, size_t limit, struct tokens *out)
{
    size_t around = pair_parts->before.len + pair_parts->after.len;
    if (around > limit || (around == limit && pair_parts->document.len > 0)) return false;
    if (pair_parts->document.len > limit - around) tokens_truncate(&pair_parts->document, limit - around);
    tokens_append(out, pair_parts->before.v, pair_parts->before.len);
    tokens_append(out, pair_parts->document.v, pair_parts->document.len);
    tokens_append(out, pair_parts->after.v, pair_parts->after.len);
    return true;
}

static bool is_too_long(const struct llm_model *model, const struct llm_pair *pair)
{
    struct tokens document = {0};
    if (pair->max_document > 0) llm_tokenize(model, pair->document, pair->document_len, false, false, &document);
    bool too_long = pair->max_document > 0 && document.len > pair->max_document;
    tokens_release(&document);
    return too_long;
}

bool llm_join_pair(const struct llm_model *model, const struct llm_pair *pair, size_t limit, struct tokens *out)
{
    const char *text = llm_model_info(model)->rank_template;
    bool spells_special = llm_contains_special_token(model, pair->query, pair->query_len) ||
                          llm_contains_special_token(model, pair->document, pair->document_len);
    if (text != NULL && !spells_special && !is_too_long(model, pair)) {
        size_t before = out->len;
        render_whole(model, pair, out);
        if (out->len - before <= limit) return true;
        tokens_truncate(out, before);
    }
    struct pair_parts pair_parts = {0};
    if (text != NULL)
        fill_template(model, pair, &pair_parts);
    else
        join_with_separators(model, pair, &pair_parts);
    if (pair->max_document > 0) tokens_truncate(&pair_parts.document, pair->max_document);
    bool fits = join_parts(&pair_parts, limit, out);
    release_pair_parts(&pair_parts);
    return fits;
}
