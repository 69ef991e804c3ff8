/* Tokenises text: on a stack that is large enough, and in chunks where it is long, with the same result as in one call.
 *
 * llama.cpp runs some patterns with std::regex, which recurses once for each character of a run: ten thousand letters
 * in a row use up eight megabytes. The stack for one character is measured when a model is opened. Texts with long runs
 * are tokenised on a thread with as much stack as they need, up to a bound. No state besides the model's; any
 * thread. */
#include "llm/tokenizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/thread.h"
#include "llm/model_struct.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define OWN_STACK     ((size_t)256 << 10) /* bytes that every thread has free */
#define SPARE_STACK   ((size_t)1 << 20)   /* bytes on top of what a run takes */
#define MEASURE_STACK ((size_t)16 << 20)
#define MEASURE_RUN   2048 /* characters */
#define TASK          "tokenises words without end"
#define RUN_STACK_MAX ((size_t)48 << 20)

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* On this thread's own stack. */
static void tokenize_here(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out)
{
    assert(in->len < INT32_MAX - 16); /* llama.cpp counts in int32_t; a request's limit is far below */
    const struct llama_vocab *vocab = model->vocab;
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

/* ---- A thread with a large stack ---- */

struct task {
    const struct llm_model *model;
    const struct llm_tokenizer_input *in;
    struct tokens *out;
};

static void *work(void *ud)
{
    struct task *task = ud;
    tokenize_here(task->model, task->in, task->out);
    return NULL;
}

/* `used`: bytes of the stack. HEARTH_NO_MEMORY: the system refuses such a thread now, and nothing was done. */
static int run_on(size_t size, struct task *task, size_t *used, hearth_error *error)
{
    pthread_t thread;
    pthread_attr_t attributes;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size = (size + page - 1) / page * page;
    void *stack = os_map_stack(size);
    if (stack == MAP_FAILED) return thread_refuse(errno, TASK, error);
    pthread_attr_init(&attributes);
    int refused = pthread_attr_setstack(&attributes, stack, size);
    if (refused == 0) refused = pthread_create(&thread, &attributes, work, task);
    if (refused == 0) {
        pthread_join(thread, NULL);
        size_t n = size / page, first = 0;
        unsigned char *resident = mem_alloc(n); /* the pages that were used */
        if (mincore(stack, size, resident) != 0) memset(resident, 1, n);
        while (first < n && (resident[first] & 1) == 0) first++;
        free(resident);
        *used = size - first * page;
    }
    pthread_attr_destroy(&attributes);
    munmap(stack, size);
    return refused == 0 ? HEARTH_OK : thread_refuse(refused, TASK, error);
}

/* ---- Measuring ---- */

static int measure_run(const struct llm_model *model, const char *character, size_t n, size_t *used,
                       hearth_error *error)
{
    struct buf text = {0};
    struct tokens tokens = {0};
    for (size_t i = 0; i < n; i++) buf_puts(&text, character);
    struct llm_tokenizer_input in = {.text = text.v, .len = text.len};
    int rc = run_on(MEASURE_STACK, &(struct task){model, &in, &tokens}, used, error);
    tokens_release(&tokens);
    buf_release(&text);
    return rc;
}

int llm_measure_recursion(const struct llm_model *model, size_t *bytes, hearth_error *error)
{
    static const char *const characters[] = {"a", "A", "1", ".", " ", "\n", "\xc3\xa4", "\xe4\xb8\xad"};
    size_t most = 0;
    for (size_t i = 0; i < sizeof characters / sizeof *characters; i++) {
        size_t one, many;
        if (measure_run(model, characters[i], 1, &one, error) < 0 ||
            measure_run(model, characters[i], MEASURE_RUN, &many, error) < 0)
            return HEARTH_NO_MEMORY;
        size_t each = many > one ? (many - one) / MEASURE_RUN : 0;
        if (each > most) most = each;
    }
    *bytes = most < 16 ? 0 : most + most / 4; /* less growth than 16 bytes a character is no recursion */
    return HEARTH_OK;
}

/* Bytes of the longest run of blanks, or of other characters. */
static size_t longest_run(const char *text, size_t len)
{
    size_t longest = 0, run = 0;
    for (size_t i = 0; i < len; i++) {
        run = i > 0 && is_blank(text[i]) == is_blank(text[i - 1]) ? run + 1 : 1;
        if (run > longest) longest = run;
    }
    return longest;
}

void llm_tokenize_whole(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out)
{
    size_t each = model->recursion;
    size_t need = each == 0 || in->len * each <= OWN_STACK ? 0 : longest_run(in->text, in->len) * each, used;
    const struct timespec pause = {.tv_nsec = 10000000};
    if (need <= OWN_STACK) {
        tokenize_here(model, in, out);
        return;
    }
    /* A thread that the system refuses now can be started when others have ended; leaving this text out would change
     * the prompt. */
    while (run_on(need + SPARE_STACK, &(struct task){model, in, out}, &used, NULL) < 0) nanosleep(&pause, NULL);
}

/* ---- Split points ---- */

/* llama.cpp takes up to 160 bytes of memory for each byte of a text that it tokenises in one call. So long texts are
 * tokenised in chunks. That is exact under two conditions. No token spans the split point, since then no merge does.
 * And the patterns that split a text into words split it there anyway, whatever follows:
 *
 *   between words: one blank between other characters. All patterns begin a word with it, or end one before it.
 *   between lines: one line end between other characters than blanks: the split point follows the line end.
 *
 * Both are used only where no token of the vocabulary has these two bytes adjacent. Nor may a special or user-defined
 * token begin or end there, since it is matched before the text is split into words. In vocabularies that put a blank
 * before every text, a chunk begins after its blank, which the tokenizer adds again; there, line ends are no split
 * points. A splitter is immutable. */
struct llm_splitter {
    bool words, lines;
    bool drops_blank;       /* the blank between two words is left out: the tokenizer adds it */
    bool before_blank[256]; /* some token has this byte before a blank, or a special token ends with it */
    bool after_blank[256];  /* a special token begins with it */
    bool after_line[256];   /* some token has this byte after a line end, or a special token begins with it */
    bool represents_all;    /* the tokens of a text hold all its bytes */
    size_t longest;         /* bytes of the longest token */
};

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

struct llm_splitter *llm_splitter_open(const struct llm_model *model)
{
    const struct llama_vocab *vocab = model->vocab;
    enum llama_vocab_type type = llama_vocab_type(vocab);
    struct llm_splitter *splitter = mem_alloc(sizeof *splitter);
    struct buf text = {0};
    splitter->represents_all = type == LLAMA_VOCAB_TYPE_SPM || type == LLAMA_VOCAB_TYPE_BPE;
    splitter->words = splitter->lines = splitter->represents_all;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        buf_clear(&text);
        llm_token_bytes(model, token, true, &text);
        const char *v = text.v;
        if (text.len > splitter->longest) splitter->longest = text.len;
        for (size_t i = 0; i + 1 < text.len; i++) {
            if (v[i + 1] == ' ') splitter->before_blank[(unsigned char)v[i]] = true;
            if (v[i] == '\n') splitter->after_line[(unsigned char)v[i + 1]] = true;
        }
        if (text.len == 0 || !llm_token_is_found_first(model, token)) continue;
        /* Such a token may include the blanks around it. */
        splitter->before_blank[(unsigned char)v[text.len - 1]] = true;
        splitter->after_blank[(unsigned char)v[0]] = true;
        splitter->after_line[(unsigned char)v[0]] = true;
        if (v[text.len - 1] == '\n') splitter->lines = false;
    }
    /* Whether a text that begins with a letter gets a blank before it. */
    struct tokens tokens = {0};
    llm_tokenize_whole(model, &(struct llm_tokenizer_input){.text = "a", .len = 1}, &tokens);
    buf_clear(&text);
    if (tokens.len > 0) llm_token_bytes(model, tokens.v[0], false, &text);
    splitter->drops_blank = text.len > 0 && text.v[0] == ' ';
    if (splitter->drops_blank) splitter->lines = false;
    tokens_release(&tokens);
    buf_release(&text);
    return splitter;
}

void llm_splitter_close(struct llm_splitter *splitter)
{
    free(splitter);
}

/* Whether neither the character before text[at] nor the one after it is a blank. */
static bool is_single_blank(const char *text, size_t len, size_t at)
{
    if (may_be_blank(text + at + 1, len - at - 1)) return false;
    size_t before = at - 1; /* where the character begins */
    while (before > 0 && ((unsigned char)text[before] & 0xc0) == 0x80) before--;
    return !may_be_blank(text + before, at - before);
}

struct llm_split llm_next_split(const struct llm_splitter *splitter, const char *text, size_t len, size_t from)
{
    for (size_t at = from + 1; at + 1 < len; at++) {
        bool words = splitter->words && text[at] == ' ' && !splitter->before_blank[(unsigned char)text[at - 1]] &&
                     !splitter->after_blank[(unsigned char)text[at + 1]] && is_single_blank(text, len, at);
        if (words) return (struct llm_split){at, at + (splitter->drops_blank ? 1 : 0)};
        bool lines = splitter->lines && at >= 2 && text[at - 1] == '\n' &&
                     !splitter->after_line[(unsigned char)text[at]] && is_single_blank(text, len, at - 1);
        if (lines) return (struct llm_split){at, at};
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

/* The chunk that begins at `from`: up to 8 KiB, or up to the first split point after them. Chunks depend on the text
 * around their ends, not on what precedes them: after a change in a text they are soon the same again. */
static struct llm_split next_chunk(const struct llm_splitter *splitter, const char *text, size_t len, size_t from)
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

/* ---- Texts ---- */

void llm_tokenize_until(const struct llm_model *model, const struct llm_tokenizer_input *in,
                        const struct llm_tokenising *how, struct tokens *out)
{
    assert(model != NULL && (in->text != NULL || in->len == 0) && how->stop != NULL);
    const struct llm_splitter *splitter = model->splitter;
    const struct llama_vocab *vocab = model->vocab;
    struct llm_split split = next_chunk(splitter, in->text, in->len, 0);
    if (split.end >= in->len) {
        llm_tokenize_chunk(model, in, how, out);
        return;
    }
    if (in->add_special && llama_vocab_get_add_bos(vocab)) tokens_push(out, llama_vocab_bos(vocab));
    for (size_t from = 0; from < in->len && !atomic_load_explicit(how->stop, memory_order_relaxed); from = split.next) {
        struct llm_tokenizer_input chunk = {.text = in->text + from, .parse_special = in->parse_special};
        split = next_chunk(splitter, in->text, in->len, from);
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

int llm_check_text(const struct llm_model *model, const char *text, size_t len, hearth_error *error)
{
    assert(model != NULL && (text != NULL || len == 0));
    size_t longest = 0; /* run without a split point */
    for (size_t from = 0; from < len;) {
        struct llm_split split = llm_next_split(model->splitter, text, len, from);
        if (split.end - from > longest) longest = split.end - from;
        from = split.next;
    }
    if (longest > LLM_UNSPLITTABLE_MAX)
        return error_set(error, HEARTH_TOO_LONG,
                         "%zu bytes in a row without a single blank between two words: at most %d can be tokenised",
                         longest, LLM_UNSPLITTABLE_MAX);
    size_t each = model->recursion, run = each == 0 ? 0 : longest_run(text, len);
    if (run * each <= RUN_STACK_MAX) return HEARTH_OK;
    return error_set(error, HEARTH_TOO_LONG,
                     "%zu bytes in a row without a blank, or of blanks: this model's tokenizer takes at most %zu", run,
                     RUN_STACK_MAX / each);
}

size_t llm_longest_token(const struct llm_model *model)
{
    assert(model != NULL);
    return model->splitter->represents_all ? model->splitter->longest : SIZE_MAX;
}
