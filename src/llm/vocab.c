/* Tokenises text, in chunks where it is long, and turns tokens back into bytes. No state besides the model's; any
 * thread. */
#include "base/error.h"
#include "base/media_spans.h"
#include "base/memory.h"
#include "llm/llm_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void llm_tokenize_here(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out)
{
    assert(in->len < INT32_MAX - 16); /* llama.cpp counts in int32_t; a request's limit is far below */
    const struct llama_vocab *vocab = llama_model_get_vocab(llm_model_handle(model));
    int32_t len = (int32_t)in->len;
    /* A token is a byte or more in all but odd vocabularies, so the first call has room enough; a second one would
     * double the cost. */
    int32_t room = len + 16;
    llama_token *v = mem_grow(NULL, (size_t)room, sizeof *v);
    int32_t n = llama_tokenize(vocab, in->text, len, v, room, in->add_special, in->parse_special);
    if (n < 0 && n != INT32_MIN) {
        room = -n;
        v = mem_grow(v, (size_t)room, sizeof *v);
        n = llama_tokenize(vocab, in->text, len, v, room, in->add_special, in->parse_special);
    }
    if (n > 0) tokens_append(out, v, (size_t)n);
    free(v);
}

void llm_tokenize_until(const struct llm_model *model, const struct llm_tokenizer_input *in,
                        const struct llm_tokenising *how, struct tokens *out)
{
    const struct llm_splitter *splitter = llm_model_splitter(model);
    const struct llama_vocab *vocab = llama_model_get_vocab(llm_model_handle(model));
    struct llm_split split = llm_next_chunk(splitter, in->text, in->len, 0);
    if (split.end >= in->len) {
        llm_tokenize_chunk(model, in, how, out);
        return;
    }
    if (in->add_special && llama_vocab_get_add_bos(vocab)) tokens_push(out, llama_vocab_bos(vocab));
    for (size_t from = 0; from < in->len && !atomic_load_explicit(how->stop, memory_order_relaxed); from = split.next) {
        struct llm_tokenizer_input chunk = {.text = in->text + from, .parse_special = in->parse_special};
        split = llm_next_chunk(splitter, in->text, in->len, from);
        chunk.len = split.end - from;
        llm_tokenize_chunk(model, &chunk, how, out);
    }
    if (in->add_special && llama_vocab_get_add_eos(vocab)) tokens_push(out, llama_vocab_eos(vocab));
}

void llm_tokenize(const struct llm_model *model, const char *text, size_t len, bool add_special, bool parse_special,
                  struct tokens *out)
{
    static const atomic_bool never = false;
    llm_tokenize_until(model, &(struct llm_tokenizer_input){text, len, add_special, parse_special},
                       &(struct llm_tokenising){.stop = &never}, out);
}

/* Bytes of the longest run without a split point. */
static size_t longest_unsplittable(const struct llm_model *model, const char *text, size_t len)
{
    size_t longest = 0;
    for (size_t from = 0; from < len;) {
        struct llm_split split = llm_next_split(llm_model_splitter(model), text, len, from);
        if (split.end - from > longest) longest = split.end - from;
        from = split.next;
    }
    return longest;
}

int llm_check_text(const struct llm_model *model, const char *text, size_t len, hearth_error *error)
{
    size_t longest = longest_unsplittable(model, text, len);
    if (longest <= LLM_UNSPLITTABLE_MAX) return llm_check_run(model, text, len, error);
    return error_set(error, HEARTH_TOO_LONG,
                     "%zu bytes in a row without a single blank between two words: at most %d can be tokenised",
                     longest, LLM_UNSPLITTABLE_MAX);
}

size_t llm_longest_token(const struct llm_model *model)
{
    return llm_splitter_longest_token(llm_model_splitter(model));
}

void llm_token_bytes(const struct llm_model *model, int32_t token, bool special, struct buf *out)
{
    if (media_token_is_one(token)) return;
    const struct llama_vocab *vocab = llama_model_get_vocab(llm_model_handle(model));
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

bool llm_token_is_found_first(const struct llm_model *model, int32_t token)
{
    return llm_is_found_first(llama_model_get_vocab(llm_model_handle(model)), token);
}

bool llm_token_ends_generation(const struct llm_model *model, int32_t token)
{
    return llama_vocab_is_eog(llama_model_get_vocab(llm_model_handle(model)), token);
}

struct llm_fim_tokens llm_fim_tokens(const struct llm_model *model)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(llm_model_handle(model));
    return (struct llm_fim_tokens){.prefix = llama_vocab_fim_pre(vocab),
                                   .suffix = llama_vocab_fim_suf(vocab),
                                   .middle = llama_vocab_fim_mid(vocab),
                                   .repository = llama_vocab_fim_rep(vocab),
                                   .file = llama_vocab_fim_sep(vocab),
                                   .begin = llama_vocab_get_add_bos(vocab) ? llama_vocab_bos(vocab) : -1};
}
