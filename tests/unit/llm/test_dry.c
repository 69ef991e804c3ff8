/* DRY: the same penalties as llama.cpp's sampler gives, for breakers of every kind, and prepared in time. */
#include "support.h"

#include "base/log.h"
#include "llm/chain.h"
#include "llm/dry.h"
#include "llm/model_struct.h"

#include <time.h>

enum { MAX_BREAKERS = 64, MAX_RECENT = 300 };

static uint64_t rng = 7;

static uint32_t below(uint32_t n)
{
    rng = rng * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(rng >> 33) % n;
}

static struct llm_model *open_vocabulary(const char *name)
{
    hearth_error error;
    char *path = mem_format("%s/source/models/ggml-vocab-%s.gguf", env("HEARTH_LLAMA"), name);
    struct llm_model *model = llm_model_open(&(struct llm_model_params){.path = path, .split_mode = "layer"}, &error);
    if (model == NULL) fail_msg("%s", error.message);
    free(path);
    return model;
}

static const struct llama_vocab *vocab_of(const struct llm_model *model)
{
    return llama_model_get_vocab(llm_model_handle(model));
}

/* ---- Breakers and tokens that meet ---- */

/* Parts of the text of some tokens: within one, or across two of them. */
static char *random_breaker(const struct llm_model *model)
{
    struct buf text = {0};
    uint32_t n = (uint32_t)llm_model_info(model)->n_vocab, n_tokens = 1 + below(4);
    for (uint32_t i = 0; i < n_tokens; i++) llm_token_bytes(model, (int32_t)below(n), true, &text);
    buf_append(&text, "", 0);
    while (text.len > 1 && below(2) == 0) buf_drop_front(&text, 1);
    size_t keep = 1 + below(60);
    char *breaker = mem_format("%.*s", (int)(keep < text.len ? keep : text.len), buf_text(&text));
    buf_release(&text);
    return breaker;
}

/* A text with repetitions in it, and breakers. */
static struct tokens random_recent(const struct llm_model *model, char *const *breakers, size_t n_breakers)
{
    struct tokens recent = {0};
    uint32_t n_vocab = (uint32_t)llm_model_info(model)->n_vocab;
    while (recent.len < MAX_RECENT) {
        uint32_t way = below(10), n = 1 + below(12);
        if (way == 0 && n_breakers > 0) {
            const char *text = breakers[below((uint32_t)n_breakers)];
            llm_tokenize(model, text, strlen(text), false, false, &recent);
        } else if (way < 3 || recent.len < 20) {
            tokens_push(&recent, (int32_t)below(n_vocab));
        } else {
            size_t from = below((uint32_t)recent.len - 12);
            for (uint32_t i = 0; i < n; i++) tokens_push(&recent, recent.v[from + i]);
        }
    }
    return recent;
}

/* ---- Against llama.cpp's ---- */

static float *penalised(struct llama_sampler *sampler, const struct tokens *recent, size_t n, int32_t n_vocab)
{
    llama_token_data *data = mem_alloc((size_t)n_vocab * sizeof *data);
    float *logits = mem_alloc((size_t)n_vocab * sizeof *logits);
    for (int32_t i = 0; i < n_vocab; i++) data[i] = (llama_token_data){.id = i, .logit = (float)(i % 97) / 7};
    llama_token_data_array all = {.data = data, .size = (size_t)n_vocab, .selected = -1, .sorted = false};
    for (size_t i = 0; i < n; i++) llama_sampler_accept(sampler, recent->v[i]);
    llama_sampler_apply(sampler, &all);
    for (int32_t i = 0; i < n_vocab; i++) logits[data[i].id] = data[i].logit;
    free(data);
    return logits;
}

static struct dry_params random_params(void)
{
    static const float multipliers[] = {0.8F, 3, 0.001F}, bases[] = {1.75F, 1, 1.0000001F, 40};
    return (struct dry_params){.multiplier = multipliers[below(3)],
                               .base = bases[below(4)],
                               .allowed_length = (int32_t)below(4),
                               .last_n = 1 + (int32_t)below(below(2) == 0 ? 40 : MAX_RECENT)};
}

static size_t n_penalised; /* tokens, in all comparisons */

static void compare(const struct llm_model *model, char *const *breakers, size_t n_breakers, int n_texts)
{
    int32_t n_vocab = llm_model_info(model)->n_vocab;
    struct dry_params params = random_params();
    struct llama_sampler *theirs =
        llama_sampler_init_dry(vocab_of(model), params.multiplier, params.base, params.allowed_length, params.last_n,
                               (const char **)(uintptr_t)breakers, n_breakers);
    for (int i = 0; i < n_texts; i++) {
        struct tokens recent = random_recent(model, breakers, n_breakers);
        struct llama_sampler *ours =
            dry_open(&params, dry_breakers_of(model->dry_sets, (const char *const *)breakers, n_breakers));
        llama_sampler_reset(theirs);
        for (size_t n = recent.len - 3; n <= recent.len; n++) {
            size_t from = n == recent.len - 3 ? 0 : n - 1;
            struct tokens more = {.v = recent.v + from, .len = n - from};
            float *a = penalised(ours, &more, more.len, n_vocab), *b = penalised(theirs, &more, more.len, n_vocab);
            if (memcmp(a, b, (size_t)n_vocab * sizeof *a) != 0) fail_msg("other penalties, text %d", i);
            for (int32_t t = 0; t < n_vocab; t++) n_penalised += a[t] < (float)(t % 97) / 7;
            free(a);
            free(b);
        }
        llama_sampler_free(ours);
        tokens_release(&recent);
    }
    llama_sampler_free(theirs);
}

static void penalties_are_those_of_llama_cpp(void **state)
{
    (void)state;
    static const struct {
        const char *vocabulary;
        int n_sets;
    } rows[] = {{"gpt-2", 4}, {"llama-spm", 5}, {"bert-bge", 4}, {"phi-3", 4}, {"qwen2", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_model *model = open_vocabulary(rows[i].vocabulary);
        for (int set = 0; set < rows[i].n_sets; set++) {
            char *breakers[MAX_BREAKERS];
            size_t n = set == 0 ? 2 : below(5);
            for (size_t k = 0; k < n; k++) breakers[k] = k == 0 ? mem_strdup("\n") : random_breaker(model);
            compare(model, breakers, n, 8);
            for (size_t k = 0; k < n; k++) free(breakers[k]);
        }
        llm_model_close(model);
    }
    assert_true(n_penalised > 100);
}

/* ---- Time ---- */

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds_to_open(struct llm_model *model, char *const *breakers, size_t n)
{
    static const char *const only_dry[] = {"dry"};
    struct llm_sampling sampling = {.params = {.samplers = only_dry,
                                               .n_samplers = 1,
                                               .temperature = 1,
                                               .dry_multiplier = 0.8,
                                               .dry_base = 1.75,
                                               .dry_allowed_length = 2,
                                               .dry_penalty_last_n = -1,
                                               .dry_breakers = (const char *const *)breakers,
                                               .n_dry_breakers = n},
                                    .window = 4096};
    struct tokens nothing = {0};
    double began = cpu_seconds();
    struct llm_sampler *sampler = llm_sampler_open(model, &sampling, &nothing, NULL);
    llm_sampler_close(sampler);
    return cpu_seconds() - began;
}

/* llama.cpp takes the same time for each breaker. */
static void sixty_four_breakers_are_prepared_in_less_time_than_llama_cpp_takes_for_eight_and_then_kept(void **state)
{
    (void)state;
    struct llm_model *model = open_vocabulary("qwen2");
    char *breakers[MAX_BREAKERS];
    for (size_t i = 0; i < MAX_BREAKERS; i++)
        breakers[i] = mem_format("%c%zu and so on, with some more words in it", "eans"[i % 4], i);
    double began = cpu_seconds();
    llama_sampler_free(llama_sampler_init_dry(vocab_of(model), 0.8F, 1.75F, 2, 64, (const char **)breakers, 2));
    double of_eight = (cpu_seconds() - began) * 4;
    double first = seconds_to_open(model, breakers, MAX_BREAKERS), again = 0;
    for (int i = 0; i < 20; i++) again += seconds_to_open(model, breakers, MAX_BREAKERS);
    print_message("64 breakers: %.3f s, then %.6f s; llama.cpp takes %.3f s for 8\n", first, again / 20, of_eight);
    assert_true(first < of_eight);
    assert_true(again / 20 < first / 20);
    for (size_t i = 0; i < MAX_BREAKERS; i++) free(breakers[i]);
    llm_model_close(model);
}

static void sets_that_were_used_long_ago_are_forgotten_and_prepared_again(void **state)
{
    (void)state;
    struct llm_model *model = open_vocabulary("bert-bge");
    struct dry_sets *sets = model->dry_sets;
    struct dry_breakers *first = NULL;
    for (int i = 0; i < 12; i++) {
        char text[16];
        const char *one = text;
        snprintf(text, sizeof text, "b%d", i);
        struct dry_breakers *b = dry_breakers_of(sets, &one, 1), *same = dry_breakers_of(sets, &one, 1);
        assert_ptr_equal(b, same);
        dry_breakers_unref(same);
        if (i == 0) first = b;
        if (i > 0) dry_breakers_unref(b);
    }
    const char *one = "b0";
    struct dry_breakers *anew = dry_breakers_of(sets, &one, 1);
    assert_ptr_not_equal(anew, first);
    dry_breakers_unref(anew);
    dry_breakers_unref(first);
    llm_model_close(model);
}

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    return log_open(NULL, "error", "text", &error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(penalties_are_those_of_llama_cpp),
        cmocka_unit_test(sixty_four_breakers_are_prepared_in_less_time_than_llama_cpp_takes_for_eight_and_then_kept),
        cmocka_unit_test(sets_that_were_used_long_ago_are_forgotten_and_prepared_again),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
