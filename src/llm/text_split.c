/* Finds split points in long texts: where a text can be split so that its chunks have the same tokens as the whole; and
 * chooses those where chunks end.
 *
 * llama.cpp takes up to 160 bytes of memory for each byte of a text that it tokenises in one call, and some of its
 * patterns recurse once a letter. So long texts are tokenised in chunks. That is exact where no token spans the split
 * point, since then no merge does, and where the patterns that split a text into words split it there anyway,
 * whatever follows:
 *
 *   between words: one blank between other characters. All patterns begin a word with it, or end one before it.
 *   between lines: one line end between other characters than blanks: the split point follows the line end.
 *
 * Both are used only where no token of the vocabulary has these two bytes adjacent, and where no special or
 * user-defined token, which is matched before the text is split into words, begins or ends there. In vocabularies that
 * put a blank before every text, a chunk begins after its blank, which the tokenizer adds again; there, line ends are
 * no split points. A splitter is immutable. */
#include "base/memory.h"
#include "llm/llm_parts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct llm_splitter {
    bool words, lines;
    bool drops_blank;       /* the blank between two words is left out: the tokenizer adds it */
    bool before_blank[256]; /* some token has this byte before a blank, or a special token ends with it */
    bool after_blank[256];  /* a special token begins with it */
    bool after_line[256];   /* some token has this byte after a line end, or a special token begins with it */
    bool represents_all;    /* the tokens of a text hold all its bytes */
    size_t longest;         /* bytes of the longest token */
};

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether the text begins with a blank, or with the leading bytes of a non-ASCII character that patterns may take for
 * one or that replaces it in many vocabularies (U+2581). */
static bool may_be_blank(const char *text, size_t len)
{
    static const char *const beginnings[] = {"\xc2\x85", "\xc2\xa0", "\xe1\x9a",    "\xe2\x80",
                                             "\xe2\x81", "\xe2\x96", "\xe3\x80\x80"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        size_t n = strlen(beginnings[i]);
        if (n <= len && memcmp(text, beginnings[i], n) == 0) return true;
    }
    return len > 0 && is_blank(text[0]);
}

static size_t begin_of_character(const char *text, size_t end)
{
    size_t at = end - 1;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

/* Special and user-defined tokens, which the tokenizer matches before it splits the text into words, together with the
 * blanks around them. */
bool llm_is_found_first(const struct llama_vocab *vocab, llama_token token)
{
    return (llama_vocab_get_attr(vocab, token) &
            (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_USER_DEFINED)) != 0;
}

static void note_token(struct llm_splitter *splitter, const struct buf *text)
{
    const char *v = text->v;
    if (text->len > splitter->longest) splitter->longest = text->len;
    for (size_t i = 0; i + 1 < text->len; i++) {
        if (v[i + 1] == ' ') splitter->before_blank[(unsigned char)v[i]] = true;
        if (v[i] == '\n') splitter->after_line[(unsigned char)v[i + 1]] = true;
    }
}

/* Such a token may include the blanks around it. */
static void note_found_first(struct llm_splitter *splitter, const struct buf *text)
{
    if (text->len == 0) return;
    splitter->before_blank[(unsigned char)text->v[text->len - 1]] = true;
    splitter->after_blank[(unsigned char)text->v[0]] = true;
    splitter->after_line[(unsigned char)text->v[0]] = true;
    if (text->v[text->len - 1] == '\n') splitter->lines = false;
}

/* Whether a text that begins with a letter gets a blank before it. */
static bool adds_leading_blank(const struct llm_model *model)
{
    struct tokens tokens = {0};
    struct buf first = {0};
    llm_tokenize_whole(model, &(struct llm_tokenizer_input){.text = "a", .len = 1}, &tokens);
    if (tokens.len > 0) llm_token_bytes(model, tokens.v[0], false, &first);
    bool adds = first.len > 0 && first.v[0] == ' ';
    tokens_release(&tokens);
    buf_release(&first);
    return adds;
}

struct llm_splitter *llm_splitter_open(const struct llm_model *model)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(llm_model_handle(model));
    enum llama_vocab_type type = llama_vocab_type(vocab);
    struct llm_splitter *splitter = mem_alloc(sizeof *splitter);
    struct buf text = {0};
    splitter->represents_all = type == LLAMA_VOCAB_TYPE_SPM || type == LLAMA_VOCAB_TYPE_BPE;
    splitter->words = splitter->lines = splitter->represents_all;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        buf_clear(&text);
        llm_token_bytes(model, token, true, &text);
        note_token(splitter, &text);
        if (llm_is_found_first(vocab, token)) note_found_first(splitter, &text);
    }
    buf_release(&text);
    splitter->drops_blank = adds_leading_blank(model);
    if (splitter->drops_blank) splitter->lines = false;
    return splitter;
}

void llm_splitter_close(struct llm_splitter *splitter)
{
    free(splitter);
}

size_t llm_splitter_longest_token(const struct llm_splitter *splitter)
{
    return splitter->represents_all ? splitter->longest : SIZE_MAX;
}

/* Whether neither the character before text[at] nor the one after it is a blank. */
static bool is_single_blank(const char *text, size_t len, size_t at)
{
    if (may_be_blank(text + at + 1, len - at - 1)) return false;
    size_t before = begin_of_character(text, at);
    return !may_be_blank(text + before, at - before);
}

static bool splits_words(const struct llm_splitter *splitter, const char *text, size_t len, size_t at)
{
    if (!splitter->words || text[at] != ' ' || splitter->before_blank[(unsigned char)text[at - 1]]) return false;
    return !splitter->after_blank[(unsigned char)text[at + 1]] && is_single_blank(text, len, at);
}

static bool splits_lines(const struct llm_splitter *splitter, const char *text, size_t len, size_t at)
{
    if (!splitter->lines || at < 2 || text[at - 1] != '\n') return false;
    return !splitter->after_line[(unsigned char)text[at]] && is_single_blank(text, len, at - 1);
}

/* ---- Split points ---- */

struct llm_split llm_next_split(const struct llm_splitter *splitter, const char *text, size_t len, size_t from)
{
    for (size_t at = from + 1; at + 1 < len; at++) {
        if (splits_words(splitter, text, len, at)) return (struct llm_split){at, at + (splitter->drops_blank ? 1 : 0)};
        if (splits_lines(splitter, text, len, at)) return (struct llm_split){at, at};
    }
    return (struct llm_split){len, len};
}

/* ---- Chunks ---- */

/* A chunk ends at one of the split points that are so many bytes after its beginning: at the one with the smallest hash
 * of the bytes before it. Two texts that are the same from some place on choose the same end as soon as it is in the
 * window of both, and all that follow. The last chunk is what is left of a text, since more of it may come. */
enum { CHUNK_LEAST = 2 << 10, CHUNK_MOST = 8 << 10 };

static uint64_t hash_before(const char *text, size_t at)
{
    uint64_t words[2];
    memcpy(words, text + at - sizeof words, sizeof words);
    uint64_t mixed = (words[0] ^ words[1] << 32 ^ words[1] >> 32) * 0x9e3779b97f4a7c15u;
    return (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
}

struct llm_split llm_next_chunk(const struct llm_splitter *splitter, const char *text, size_t len, size_t from)
{
    if (len - from <= CHUNK_MOST) return (struct llm_split){len, len};
    struct llm_split chosen = llm_next_split(splitter, text, len, from + CHUNK_LEAST), next = chosen;
    uint64_t least = hash_before(text, chosen.end);
    while (next.end <= from + CHUNK_MOST) {
        uint64_t hash = hash_before(text, next.end);
        if (hash < least) {
            chosen = next;
            least = hash;
        }
        next = llm_next_split(splitter, text, len, next.end);
    }
    return chosen;
}
