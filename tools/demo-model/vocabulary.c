/* Byte-pair encoding over counted words: again and again the most frequent pair of neighbours becomes one token. The
 * corpus has few words that are frequent, so counting all pairs anew each time is fast enough. */
#include "vocabulary.h"

#include "base/buf.h"
#include "base/hash_table.h"
#include "base/memory.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <ctype.h>
#include <llama.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text;
    enum llama_token_type type;
} specials[] = {
    {"<|endoftext|>", LLAMA_TOKEN_TYPE_CONTROL},
    {"<|im_start|>", LLAMA_TOKEN_TYPE_CONTROL},
    {"<|im_end|>", LLAMA_TOKEN_TYPE_CONTROL},
    {"<tool_call>", LLAMA_TOKEN_TYPE_USER_DEFINED},
    {"</tool_call>", LLAMA_TOKEN_TYPE_USER_DEFINED},
    {"<tool_response>", LLAMA_TOKEN_TYPE_USER_DEFINED},
    {"</tool_response>", LLAMA_TOKEN_TYPE_USER_DEFINED},
    {"<tools>", LLAMA_TOKEN_TYPE_USER_DEFINED},
    {"</tools>", LLAMA_TOKEN_TYPE_USER_DEFINED},
};

enum { BYTES = 256, SPECIALS = sizeof specials / sizeof *specials };

/* ---- The sample ---- */

struct word {
    struct hash_link link;
    struct word *next; /* in order of appearance */
    char *text;
    size_t len, count;
};

struct sample {
    struct hash_table words;
    struct word *first, **last;
    pcre2_code *pattern;
    pcre2_match_data *match;
};

struct sample *sample_open(void)
{
    static const char pattern[] = "'(?i:s|t|re|ve|m|ll|d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                                  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    struct sample *sample = mem_alloc(sizeof *sample);
    int number;
    PCRE2_SIZE at;
    sample->last = &sample->first;
    sample->pattern = pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1, PCRE2_UTF | PCRE2_UCP, &number, &at, NULL);
    if (sample->pattern == NULL) abort(); /* the pattern is a constant */
    pcre2_jit_compile(sample->pattern, PCRE2_JIT_COMPLETE);
    sample->match = pcre2_match_data_create(1, NULL);
    return sample;
}

void sample_close(struct sample *sample)
{
    if (sample == NULL) return;
    for (struct word *word = sample->first, *next; word != NULL; word = next) {
        next = word->next;
        free(word->text);
        free(word);
    }
    hash_release(&sample->words);
    pcre2_match_data_free(sample->match);
    pcre2_code_free(sample->pattern);
    free(sample);
}

static void count_word(struct sample *sample, const char *text, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < len; i++) hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    hash ^= hash >> 29;
    for (struct hash_link *h = hash_first(&sample->words, hash); h != NULL; h = hash_next(h)) {
        struct word *word = container_of(struct word, link, h);
        if (word->len != len || memcmp(word->text, text, len) != 0) continue;
        word->count++;
        return;
    }
    struct word *word = mem_alloc(sizeof *word);
    *word = (struct word){.text = mem_strndup(text, len), .len = len, .count = 1};
    hash_add(&sample->words, &word->link, hash);
    *sample->last = word;
    sample->last = &word->next;
}

void sample_add(struct sample *sample, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        int found = pcre2_match(sample->pattern, (PCRE2_SPTR)text, len, at, 0, sample->match, NULL);
        if (found < 1) return;
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(sample->match);
        count_word(sample, text + ends[0], ends[1] - ends[0]);
        at = ends[1];
    }
}

/* ---- Merging ---- */

/* A token's bytes; while merging, tokens are numbered as in the vocabulary. */
struct symbol {
    char *bytes;
    size_t len;
};

/* A word as tokens. */
struct split {
    int *symbols;
    size_t n, count;
};

struct merger {
    struct symbol *symbols;
    int n_symbols, most; /* tokens so far, and how many there may be */
    struct split *words;
    size_t n_words;
    size_t *pairs; /* most x most counts; all 0 between two rounds */
};

static void open_words(struct merger *m, const struct sample *sample, size_t least)
{
    for (const struct word *word = sample->first; word != NULL; word = word->next) {
        if (word->count < least) continue;
        m->words = mem_grow(m->words, m->n_words + 1, sizeof *m->words);
        struct split *split = &m->words[m->n_words++];
        *split = (struct split){mem_alloc(word->len * sizeof(int)), word->len, word->count};
        for (size_t i = 0; i < word->len; i++) split->symbols[i] = (uint8_t)word->text[i];
    }
}

static bool ascii(const struct symbol *symbol)
{
    for (size_t i = 0; i < symbol->len; i++)
        if ((uint8_t)symbol->bytes[i] >= 0x80) return false;
    return true;
}

static bool may_merge(const struct merger *m, int left, int right)
{
    const struct symbol *a = &m->symbols[left], *b = &m->symbols[right];
    char before = a->bytes[a->len - 1];
    bool name_begins = (before == ' ' || before == '"' || before == '\'') && isupper((uint8_t)b->bytes[0]);
    return !name_begins && ascii(a) && ascii(b);
}

static size_t *pair_count(const struct merger *m, const int *symbols)
{
    return &m->pairs[(size_t)symbols[0] * (size_t)m->most + (size_t)symbols[1]];
}

/* The most frequent pair; of several the first in the vocabulary. False: there is none. */
static bool best_pair(const struct merger *m, int pair[2])
{
    size_t best = 0;
    for (size_t w = 0; w < m->n_words; w++)
        for (size_t i = 0; i + 1 < m->words[w].n; i++) *pair_count(m, m->words[w].symbols + i) += m->words[w].count;
    for (size_t w = 0; w < m->n_words; w++) {
        for (size_t i = 0; i + 1 < m->words[w].n; i++) {
            const int *s = m->words[w].symbols + i;
            size_t count = *pair_count(m, s);
            bool first = s[0] < pair[0] || (s[0] == pair[0] && s[1] < pair[1]);
            if (count < best || (count == best && !first) || !may_merge(m, s[0], s[1])) continue;
            best = count;
            pair[0] = s[0];
            pair[1] = s[1];
        }
    }
    for (size_t w = 0; w < m->n_words; w++)
        for (size_t i = 0; i + 1 < m->words[w].n; i++) *pair_count(m, m->words[w].symbols + i) = 0;
    return best > 0;
}

/* The token of these bytes: two different pairs may spell the same one. */
static int find_symbol(struct merger *m, char *bytes, size_t len)
{
    for (int i = 0; i < m->n_symbols; i++) {
        if (m->symbols[i].len != len || memcmp(m->symbols[i].bytes, bytes, len) != 0) continue;
        free(bytes);
        return i;
    }
    m->symbols[m->n_symbols] = (struct symbol){bytes, len};
    return m->n_symbols++;
}

static int join(struct merger *m, const int pair[2])
{
    const struct symbol *a = &m->symbols[pair[0]], *b = &m->symbols[pair[1]];
    char *bytes = mem_alloc(a->len + b->len);
    memcpy(bytes, a->bytes, a->len);
    memcpy(bytes + a->len, b->bytes, b->len);
    return find_symbol(m, bytes, a->len + b->len);
}

static void replace(struct split *word, const int pair[2], int by)
{
    size_t out = 0;
    for (size_t i = 0; i < word->n; out++) {
        bool here = i + 1 < word->n && word->symbols[i] == pair[0] && word->symbols[i + 1] == pair[1];
        word->symbols[out] = here ? by : word->symbols[i];
        i += here ? 2 : 1;
    }
    word->n = out;
}

/* ---- The result ---- */

/* Bytes are spelled as in GPT-2: those that are visible letters as themselves, the others as letters from U+0100 on. */
static void spell(struct buf *out, const struct symbol *symbol)
{
    for (size_t i = 0; i < symbol->len; i++) {
        int byte = (uint8_t)symbol->bytes[i];
        bool visible = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        int hidden = byte < 33 ? byte : byte < 161 ? byte - 127 + 33 : 67; /* how many such bytes come before it */
        int letter = visible ? byte : 256 + hidden;
        if (letter < 0x80) {
            buf_append(out, (char[]){(char)letter}, 1);
        } else {
            buf_append(out, (char[]){(char)(0xc0 | letter >> 6), (char)(0x80 | (letter & 0x3f))}, 2);
        }
    }
}

static void add_token(struct vocabulary *v, char *text, enum llama_token_type type)
{
    v->tokens[v->n_tokens] = text;
    v->types[v->n_tokens++] = (int32_t)type;
}

static void add_merge(struct vocabulary *v, const struct merger *m, const int pair[2])
{
    struct buf text = {0};
    spell(&text, &m->symbols[pair[0]]);
    buf_puts(&text, " ");
    spell(&text, &m->symbols[pair[1]]);
    v->merges = mem_grow(v->merges, (size_t)v->n_merges + 1, sizeof *v->merges);
    v->merges[v->n_merges++] = buf_take(&text);
}

static void merge_all(struct vocabulary *v, struct merger *m)
{
    for (int pair[2] = {0, 0}; m->n_symbols < m->most && best_pair(m, pair);) {
        int joined = join(m, pair);
        add_merge(v, m, pair);
        for (size_t w = 0; w < m->n_words; w++) replace(&m->words[w], pair, joined);
    }
}

static void close_merger(struct merger *m)
{
    for (int i = 0; i < m->n_symbols; i++) free(m->symbols[i].bytes);
    for (size_t w = 0; w < m->n_words; w++) free(m->words[w].symbols);
    free(m->symbols);
    free(m->words);
    free(m->pairs);
}

void vocabulary_make(struct vocabulary *v, const struct sample *sample, int size, size_t least)
{
    struct merger m = {.most = size - SPECIALS};
    *v = (struct vocabulary){.tokens = mem_alloc((size_t)size * sizeof *v->tokens),
                             .types = mem_alloc((size_t)size * sizeof *v->types)};
    m.symbols = mem_alloc((size_t)m.most * sizeof *m.symbols);
    m.pairs = mem_alloc((size_t)m.most * (size_t)m.most * sizeof *m.pairs);
    for (int byte = 0; byte < BYTES; byte++) {
        m.symbols[m.n_symbols] = (struct symbol){mem_alloc(1), 1};
        m.symbols[m.n_symbols++].bytes[0] = (char)byte;
    }
    open_words(&m, sample, least);
    merge_all(v, &m);
    for (int i = 0; i < m.n_symbols; i++) {
        struct buf text = {0};
        spell(&text, &m.symbols[i]);
        add_token(v, buf_take(&text), LLAMA_TOKEN_TYPE_NORMAL);
    }
    for (int i = 0; i < SPECIALS; i++) add_token(v, mem_strdup(specials[i].text), specials[i].type);
    close_merger(&m);
}

void vocabulary_release(struct vocabulary *v)
{
    for (int i = 0; i < v->n_tokens; i++) free(v->tokens[i]);
    for (int i = 0; i < v->n_merges; i++) free(v->merges[i]);
    free(v->tokens);
    free(v->types);
    free(v->merges);
    *v = (struct vocabulary){0};
}
