/* The tokenizer cache (llm/tokenizer_cache.h): with it the tokens are those of the whole text, for every vocabulary,
 * whatever was tokenised before; of a text that was appended to or edited only what is new is tokenised. */
#include "support.h"

#include "fakes/cases.h"
#include "llm/tokenizer.h"
#include "llm/tokenizer_cache.h"

#include <dirent.h>
#include <pthread.h>

/* The end of a chunk moves by less than that. */
enum { CHUNK = 8 << 10, LARGE = 16 << 20 };

/* ---- Random text ---- */

struct noise {
    uint32_t state;
};

static uint32_t draw(struct noise *noise, uint32_t below)
{
    noise->state ^= noise->state << 13;
    noise->state ^= noise->state >> 17;
    noise->state ^= noise->state << 5;
    return noise->state % below;
}

static const char *const scraps[] = {
    "a",
    "The",
    "word",
    "Don't",
    "x1",
    "12345",
    ".",
    "...",
    "!?",
    "();",
    "<tag>",
    "</s>",
    "<|im_end|>",
    "<s>",
    "<|im_start|>",
    "[INST]",
    "<|eot_id|>",
    "<|endoftext|>",
    "\xc3\xa4",
    "\xe4\xb8\xad\xe6\x96\x87",
    "\xc2\xa0",
    "\xf0\x9f\x98\x80",
    "http://x.y/z",
    "__init__",
    "\xd0\x9f\xd1\x80\xd0\xb8",
    "<unk>",
    "e.g.",
    "=== ",
    "\n  if (x) {\n",
    "}\n",
    "  ",
    "\n\n",
    "\t",
    "user",
    "assistant",
};

/* Words with a blank or a line end after most, as in prose and code. */
static void fill(struct noise *noise, struct buf *text, size_t len)
{
    for (size_t end = text->len + len; text->len < end;) {
        buf_puts(text, scraps[draw(noise, sizeof scraps / sizeof *scraps)]);
        if (draw(noise, 4) > 0) buf_puts(text, draw(noise, 8) == 0 ? "\n" : " ");
    }
}

static void insert(struct buf *text, size_t at, const struct buf *what)
{
    struct buf rest = {0};
    buf_append(&rest, text->v + at, text->len - at);
    text->len = at;
    buf_append(text, what->v, what->len);
    buf_append(text, rest.v, rest.len);
    buf_release(&rest);
}

/* Somewhere between two characters. */
static size_t draw_place(struct noise *noise, const struct buf *text)
{
    size_t at = draw(noise, (uint32_t)text->len);
    while (at > 0 && ((unsigned char)text->v[at] & 0xc0) == 0x80) at--;
    return at;
}

/* As conversations change: by their end, by a message, by a word. */
static void change(struct noise *noise, struct buf *text)
{
    struct buf more = {0};
    size_t at = draw_place(noise, text), end = draw_place(noise, text);
    switch (draw(noise, 4)) {
    case 0:
    case 1:
        fill(noise, text, 1 + draw(noise, 6000));
        break;
    case 2:
        fill(noise, &more, 1 + draw(noise, 100));
        insert(text, at, &more);
        break;
    default:
        if (at > end) at = end;
        if (end > at + 200) end = at;
        memmove(text->v + at, text->v + end, text->len - end);
        text->len -= end - at;
    }
    buf_release(&more);
}

/* ---- Comparing ---- */

static const atomic_bool never = false;

struct cached {
    struct llm_model *model;
    struct llm_tokenizer_stats stats;
    struct llm_tokenizer_cache *cache;
};

static void cached_open(struct cached *c, struct llm_model *model, size_t bytes)
{
    *c = (struct cached){.model = model};
    c->cache = llm_tokenizer_cache_open(bytes, &c->stats);
}

static void assert_same_tokens(const struct cached *c, const char *text, size_t len, int flags, const char *salt)
{
    struct tokens whole = {0}, cached = {0};
    struct llm_tokenizer_input in = {text, len, (flags & 1) != 0, (flags & 2) != 0};
    llm_tokenize_whole(c->model, &in, &whole);
    llm_tokenize_until(c->model, &in, &(struct llm_tokenising){&never, c->cache, salt}, &cached);
    assert_int_equal(cached.len, whole.len);
    if (whole.len > 0) assert_memory_equal(cached.v, whole.v, whole.len * sizeof *whole.v);
    tokens_release(&whole);
    tokens_release(&cached);
}

/* Bytes of the text that had to be tokenised. */
static int64_t tokenise(struct cached *c, const char *text, size_t len, const char *salt)
{
    int64_t before = metric_get(&c->stats.tokenised_bytes);
    struct tokens tokens = {0};
    struct llm_tokenizer_input in = {text, len, true, true};
    llm_tokenize_until(c->model, &in, &(struct llm_tokenising){&never, c->cache, salt}, &tokens);
    tokens_release(&tokens);
    return metric_get(&c->stats.tokenised_bytes) - before;
}

/* ---- Exactness ---- */

/* Random flags, since the same text has other tokens with others, and a cache that is too small half of the time. */
static void check_vocabulary(struct llm_model *model, uint32_t seed)
{
    struct noise noise = {seed};
    struct cached c;
    struct buf text = {0};
    cached_open(&c, model, seed % 2 == 0 ? LARGE : 30000);
    fill(&noise, &text, 20000);
    for (int i = 0; i < 12; i++) {
        assert_same_tokens(&c, text.v, text.len, (int)draw(&noise, 4), draw(&noise, 4) == 0 ? "a salt" : NULL);
        change(&noise, &text);
    }
    for (int i = 0; i < 40; i++) { /* messages, one by one */
        size_t from = draw_place(&noise, &text), len = 300 + draw(&noise, 900);
        assert_same_tokens(&c, text.v + from, text.len - from < len ? text.len - from : len, (int)draw(&noise, 4), "");
    }
    assert_true(metric_get(&c.stats.tokenised_bytes) > 0);
    llm_tokenizer_cache_close(c.cache);
    buf_release(&text);
}

/* The vocabulary files have no weights, and need none here. */
static struct llm_model *open_vocabulary(const char *name)
{
    hearth_error error;
    char *path = mem_format("%s/source/models/%s", env("HEARTH_LLAMA"), name);
    struct llm_model *model = llm_model_open(&(struct llm_model_params){.path = path, .split_mode = "layer"}, &error);
    if (model == NULL) fail_msg("%s", error.message);
    free(path);
    return model;
}

static void tokens_are_those_of_the_whole_text_with_every_vocabulary(void **state)
{
    (void)state;
    char *list = mem_format("%s/source/models", env("HEARTH_LLAMA"));
    DIR *dir = opendir(list);
    uint32_t n = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name, *end = strrchr(name, '.');
        if (strncmp(name, "ggml-vocab-", 11) != 0 || strcmp(end, ".gguf") != 0) continue;
        print_message("%s\n", name);
        struct llm_model *model = open_vocabulary(name);
        n++;
        check_vocabulary(model, 2 * n + n % 2);
        if (is_thorough()) check_vocabulary(model, 2 * n + 1 - n % 2);
        llm_model_close(model);
    }
    closedir(dir);
    free(list);
    assert_true(n >= 15);
}

static void the_same_text_has_other_tokens_where_it_may_spell_special_ones(void **state)
{
    (void)state;
    struct llm_model *model = open_demo();
    struct cached c;
    struct buf text = {0};
    cached_open(&c, model, LARGE);
    while (text.len < 3000) buf_puts(&text, "say <|im_end|> and ");
    for (int i = 0; i < 12; i++) assert_same_tokens(&c, text.v, text.len, i, NULL);
    assert_int_equal(metric_get(&c.stats.cached_bytes), 8 * (int64_t)text.len);
    assert_int_equal(metric_get(&c.stats.tokenised_bytes), 4 * (int64_t)text.len);
    llm_tokenizer_cache_close(c.cache);
    llm_model_close(model);
    buf_release(&text);
}

/* ---- What is tokenised ---- */

static void a_text_that_grows_costs_what_is_new_and_a_chunk(void **state)
{
    (void)state;
    struct llm_model *model = open_vocabulary("ggml-vocab-qwen2.gguf");
    struct noise noise = {7};
    struct cached c;
    struct buf text = {0};
    cached_open(&c, model, LARGE);
    fill(&noise, &text, 400000);
    assert_int_equal(tokenise(&c, text.v, text.len, NULL), text.len);
    assert_int_equal(tokenise(&c, text.v, text.len, NULL), 0);
    for (int i = 0; i < 20; i++) {
        size_t before = text.len;
        fill(&noise, &text, 1 + draw(&noise, 20000));
        int64_t tokenised = tokenise(&c, text.v, text.len, NULL);
        if (tokenised > (int64_t)(text.len - before) + CHUNK)
            fail_msg("%lld of %zu new bytes", (long long)tokenised, text.len - before);
    }
    llm_tokenizer_cache_close(c.cache);
    llm_model_close(model);
    buf_release(&text);
}

/* Chunks end where the text around their ends says so: after an edit they are soon the same again. */
static void an_edit_in_the_middle_costs_a_few_chunks(void **state)
{
    (void)state;
    struct llm_model *model = open_vocabulary("ggml-vocab-qwen2.gguf");
    struct noise noise = {8};
    struct cached c;
    struct buf text = {0}, word = {0};
    int64_t all = 0;
    enum { EDITS = 40 };
    cached_open(&c, model, LARGE);
    fill(&noise, &text, 400000);
    tokenise(&c, text.v, text.len, NULL);
    buf_puts(&word, "indeed ");
    for (int i = 0; i < EDITS; i++) {
        insert(&text, draw_place(&noise, &text), &word);
        int64_t tokenised = tokenise(&c, text.v, text.len, NULL);
        assert_true(tokenised > 0);
        if (tokenised > 12 * CHUNK) fail_msg("edit %d: %lld bytes", i, (long long)tokenised);
        all += tokenised;
    }
    print_message("%lld bytes an edit\n", (long long)(all / EDITS));
    assert_true(all / EDITS < 3 * CHUNK);
    llm_tokenizer_cache_close(c.cache);
    llm_model_close(model);
    buf_release(&text);
    buf_release(&word);
}

static void what_was_tokenised_under_another_salt_is_not_found(void **state)
{
    (void)state;
    static const char *const salts[] = {"a", "b", "ab", "a\x01"};
    struct llm_model *model = open_demo();
    struct noise noise = {9};
    struct cached c;
    struct buf text = {0};
    cached_open(&c, model, LARGE);
    fill(&noise, &text, 20000);
    assert_int_equal(tokenise(&c, text.v, text.len, NULL), text.len);
    assert_int_equal(tokenise(&c, text.v, text.len, ""), 0);
    for (size_t i = 0; i < sizeof salts / sizeof *salts; i++) {
        assert_int_equal(tokenise(&c, text.v, text.len, salts[i]), text.len);
        assert_int_equal(tokenise(&c, text.v, text.len, salts[i]), 0);
    }
    buf_clear(&text); /* a salt is no beginning of the text */
    while (text.len < 1000) buf_puts(&text, "aa ");
    assert_int_equal(tokenise(&c, text.v, text.len, "aa "), text.len);
    assert_int_equal(tokenise(&c, text.v + 3, text.len - 3, "aa aa "), text.len - 3);
    assert_int_equal(tokenise(&c, text.v + 3, text.len - 3, "aa "), text.len - 3);
    llm_tokenizer_cache_close(c.cache);
    llm_model_close(model);
    buf_release(&text);
}

static void short_texts_are_tokenised_each_time(void **state)
{
    (void)state;
    struct llm_model *model = open_demo();
    struct noise noise = {10};
    struct cached c;
    struct buf text = {0};
    cached_open(&c, model, LARGE);
    fill(&noise, &text, 1000);
    for (int i = 0; i < 3; i++) assert_int_equal(tokenise(&c, text.v, 500, NULL), 500);
    assert_int_equal(tokenise(&c, "", 0, NULL), 0);
    llm_tokenizer_cache_close(c.cache);
    llm_model_close(model);
    buf_release(&text);
}

/* ---- Room ---- */

/* `n` texts of 4,000 bytes, which take some 8 KB each: other ones for another seed. */
static void tokenise_texts(struct cached *c, uint32_t seed, int n, int64_t *tokenised)
{
    *tokenised = 0;
    for (int i = 0; i < n; i++) {
        struct noise noise = {seed + (uint32_t)i};
        struct buf text = {0};
        fill(&noise, &text, 4000);
        *tokenised += tokenise(c, text.v, 4000, NULL);
        buf_release(&text);
    }
}

static void what_was_used_least_recently_is_evicted(void **state)
{
    (void)state;
    struct llm_model *model = open_demo();
    struct cached c;
    int64_t tokenised;
    cached_open(&c, model, 400000);
    tokenise_texts(&c, 1000, 8, &tokenised);
    assert_int_equal(tokenised, 8 * 4000);
    for (uint32_t i = 1; i < 20; i++) { /* 8 texts in use, and others that come once */
        tokenise_texts(&c, 1000 * (i + 1), 8, &tokenised);
        assert_int_equal(tokenised, 8 * 4000);
        tokenise_texts(&c, 1000, 8, &tokenised);
        assert_int_equal(tokenised, 0);
    }
    tokenise_texts(&c, 2000, 8, &tokenised);
    assert_int_equal(tokenised, 8 * 4000);
    llm_tokenizer_cache_close(c.cache);
    llm_model_close(model);
}

static void what_is_larger_than_the_cache_is_not_kept(void **state)
{
    (void)state;
    struct llm_model *model = open_demo();
    struct cached c;
    int64_t tokenised;
    cached_open(&c, model, 1000);
    for (int i = 0; i < 2; i++) {
        tokenise_texts(&c, 1000, 2, &tokenised);
        assert_int_equal(tokenised, 2 * 4000);
    }
    llm_tokenizer_cache_close(c.cache);
    llm_model_close(model);
}

/* ---- Threads ---- */

struct worker {
    struct cached *c;
    const struct buf *text;
    uint32_t seed;
    pthread_t thread;
};

/* Texts of the same characters, with several beginnings and ends, so that threads look for and add the same chunks. */
static void *tokenise_many(void *ud)
{
    struct worker *worker = ud;
    struct noise noise = {worker->seed};
    for (int i = 0; i < cases(30, 10); i++) {
        size_t from = draw(&noise, 3) * 7000, len = worker->text->len - from - draw(&noise, 3) * 5000;
        while (from > 0 && ((unsigned char)worker->text->v[from] & 0xc0) == 0x80) from--;
        assert_same_tokens(worker->c, worker->text->v + from, len, (int)draw(&noise, 4), NULL);
    }
    return NULL;
}

static void threads_share_a_cache(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct llm_model *model = open_demo();
    struct noise noise = {11};
    struct cached c;
    struct buf text = {0};
    struct worker workers[THREADS];
    fill(&noise, &text, 40000);
    for (size_t bytes = 50000; bytes <= LARGE; bytes += LARGE - 50000) {
        cached_open(&c, model, bytes);
        for (uint32_t i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){.c = &c, .text = &text, .seed = 100 + i};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, tokenise_many, &workers[i]), 0);
        }
        for (size_t i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
        assert_true(metric_get(&c.stats.cached_bytes) > 0);
        llm_tokenizer_cache_close(c.cache);
    }
    llm_model_close(model);
    buf_release(&text);
}

int main(void)
{
    llm_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_the_whole_text_with_every_vocabulary),
        cmocka_unit_test(the_same_text_has_other_tokens_where_it_may_spell_special_ones),
        cmocka_unit_test(a_text_that_grows_costs_what_is_new_and_a_chunk),
        cmocka_unit_test(an_edit_in_the_middle_costs_a_few_chunks),
        cmocka_unit_test(what_was_tokenised_under_another_salt_is_not_found),
        cmocka_unit_test(short_texts_are_tokenised_each_time),
        cmocka_unit_test(what_was_used_least_recently_is_evicted),
        cmocka_unit_test(what_is_larger_than_the_cache_is_not_kept),
        cmocka_unit_test(threads_share_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
