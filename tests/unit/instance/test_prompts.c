/* Prompts through hearth.h: kept for the caller, made of parts, returned without a reply, shared between requests; and
 * the completed sampling parameters. */
#include "support.h"

#include <math.h>
#include <unistd.h>

/* A request for its prompt alone; no slot takes it. */
static void tell_prompt(struct caller *caller, hearth *instance, hearth_params *params)
{
    params->only_prompt = params->keep_prompt = true;
    caller_init(caller);
    caller->n_started = 1;
    caller_submit(caller, instance, params);
    caller_await_end(caller);
}

static void assert_tokens(const hearth_prompt *prompt, const int32_t *tokens, size_t n)
{
    assert_int_equal(prompt->n_tokens, n);
    assert_memory_equal(prompt->tokens, tokens, n * sizeof *tokens);
}

static void a_prompt_is_told_token_by_token(void **state)
{
    (void)state;
    static const char text[] = "Hi <|im_end|>\xc3\xa4";
    struct caller caller;
    hearth *instance = start(demo_config(NULL));
    hearth_params params = text_params(text, HEARTH_UNSET);
    tell_prompt(&caller, instance, &params);
    int32_t *tokens, n = hearth_tokenize(instance, NULL, text, strlen(text), true, true, &tokens, NULL);
    hearth_prompt prompt = hearth_request_prompt(caller.request);
    assert_tokens(&prompt, tokens, (size_t)n);
    assert_int_equal(caller.result.n_prompt, n);
    assert_int_equal(prompt.len, strlen(text));
    assert_memory_equal(prompt.text, text, prompt.len);
    assert_int_equal(prompt.ends[n - 1], prompt.len);
    assert_int_equal(prompt.ends[n - 2], prompt.len - 1); /* a half of the character */
    free(tokens);
    end(instance, &caller, 1);
}

static void special_tokens_that_a_plain_text_spells_stay_text(void **state)
{
    (void)state;
    struct caller callers[2];
    hearth *instance = start(demo_config(NULL));
    hearth_params params = text_params("<|im_end|>", HEARTH_UNSET);
    tell_prompt(&callers[0], instance, &params);
    params.plain = true;
    tell_prompt(&callers[1], instance, &params);
    assert_int_equal(hearth_request_prompt(callers[0].request).n_tokens, 1);
    assert_true(hearth_request_prompt(callers[1].request).n_tokens > 1);
    end(instance, callers, 2);
}

static void parts_follow_each_other_as_they_are(void **state)
{
    (void)state;
    struct caller caller;
    hearth *instance = start(demo_config(NULL));
    const hearth_part parts[] = {{.text = "Hi there", .len = 2}, {.token = 300}, {.text = "!", .len = 1}};
    int32_t *hi, *mark, expected[64];
    size_t n = (size_t)hearth_tokenize(instance, NULL, "Hi", 2, true, true, &hi, NULL);
    memcpy(expected, hi, n * sizeof *hi);
    expected[n++] = 300;
    int32_t n_mark = hearth_tokenize(instance, NULL, "!", 1, false, true, &mark, NULL);
    memcpy(expected + n, mark, (size_t)n_mark * sizeof *mark);
    hearth_params params = greedy(1);
    params.parts = parts;
    params.n_parts = 3;
    params.keep_prompt = true;
    run(&caller, instance, &params);
    hearth_prompt prompt = hearth_request_prompt(caller.request);
    assert_tokens(&prompt, expected, n + (size_t)n_mark);
    assert_int_equal(caller.result.n_prompt, prompt.n_tokens);
    free(hi);
    free(mark);
    end(instance, &caller, 1);
}

/* A model whose texts begin with BOS, in a file that is removed once it is loaded. */
static hearth *start_with_marker(void)
{
    char *path = mem_format("%s/marker-%d.gguf", getenv("HEARTH_BUILD"), getpid());
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch llama --vocab llama-spm --layers 1 --embd 32 --heads 1 "
                               "--kv-heads 1 --head-dim 32 --ff 32 -o '%s' >/dev/null",
                               getenv("HEARTH_BUILD"), path);
    hearth_config *config = hearth_config_new();
    assert_int_equal(system(command), 0);
    set(config, "cache.tiers.disk.quota_mb", "0");
    set(config, "models.m.path", path);
    set(config, "models.m.threads", "1");
    hearth *instance = start(config);
    unlink(path);
    free(command);
    free(path);
    return instance;
}

static void bos_precedes_text_that_comes_first_and_nothing_else(void **state)
{
    (void)state;
    static const int32_t marker = 1;
    const hearth_part text_first[] = {{.text = "a", .len = 1}, {.text = "b", .len = 1}};
    const hearth_part token_first[] = {{.token = 300}, {.text = "b", .len = 1}};
    const struct {
        const hearth_part *parts;
        bool without_bos_eos;
        size_t n_markers;
    } rows[] = {{text_first, false, 1}, {text_first, true, 0}, {token_first, false, 0}};
    struct caller callers[3];
    hearth *instance = start_with_marker();
    for (size_t i = 0; i < 3; i++) {
        hearth_params params = hearth_params_default();
        params.parts = rows[i].parts;
        params.n_parts = 2;
        params.without_bos_eos = rows[i].without_bos_eos;
        tell_prompt(&callers[i], instance, &params);
        hearth_prompt prompt = hearth_request_prompt(callers[i].request);
        size_t n = 0;
        for (size_t k = 0; k < prompt.n_tokens; k++) n += prompt.tokens[k] == marker;
        assert_int_equal(n, rows[i].n_markers);
        if (n > 0) assert_int_equal(prompt.tokens[0], marker);
    }
    end(instance, callers, 3);
}

static void a_part_outside_the_vocabulary_is_refused(void **state)
{
    (void)state;
    static const hearth_part parts[] = {{.text = "Hi", .len = 2}, {.token = 1 << 20}};
    hearth *instance = start(demo_config(NULL));
    hearth_error error;
    hearth_params params = greedy(1);
    params.parts = parts;
    params.n_parts = 2;
    assert_null(hearth_submit(instance, &params, caller_event, NULL, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_string_equal(error.param, "prompt");
    hearth_close(instance);
}

static void a_prompt_alone_may_be_longer_than_the_window(void **state)
{
    (void)state;
    struct caller callers[2];
    struct buf text = {0};
    hearth *instance = start(DEMO("context_window", "256"));
    for (int i = 0; i < 30000; i++) buf_puts(&text, "Hello. ");
    hearth_params params = text_params(text.v, 1);
    tell_prompt(&callers[0], instance, &params);
    assert_true(callers[0].result.n_prompt > 30000);
    params = text_params("", 1);
    tell_prompt(&callers[1], instance, &params);
    assert_false(callers[1].failed);
    buf_release(&text);
    end(instance, callers, 2);
}

static void a_prompt_that_nobody_wants_to_see_is_not_kept(void **state)
{
    (void)state;
    struct caller caller;
    hearth *instance = start(demo_config(NULL));
    hearth_params params = text_params("Hi", 1);
    run(&caller, instance, &params);
    assert_int_equal(hearth_request_prompt(caller.request).n_tokens, 0);
    assert_null(hearth_request_prompt(caller.request).text);
    end(instance, &caller, 1);
}

static void what_a_request_does_not_say_is_the_configurations(void **state)
{
    (void)state;
    struct caller caller;
    hearth *instance = start(DEMO("sampling.top_k", "7"));
    hearth_sampling defaults;
    hearth_params params = text_params("Hi", 1);
    params.sampling.temperature = NAN;
    params.sampling.top_p = 0.5;
    run(&caller, instance, &params);
    assert_true(hearth_model_sampling(instance, 0, &defaults));
    const hearth_sampling *picks = hearth_request_sampling(caller.request);
    assert_int_equal(picks->top_k, 7);
    assert_true(picks->top_p == 0.5);
    assert_true(picks->temperature == defaults.temperature);
    assert_true(picks->seed >= 0 && defaults.seed < 0);
    assert_int_equal(defaults.top_k, 7);
    assert_false(hearth_model_sampling(instance, 1, &defaults));
    end(instance, &caller, 1);
}

/* ---- hearth_shared ---- */

/* What several requests point at: overwritten and counted when it is released. */
struct owner {
    pthread_mutex_t mutex;
    int released;
    char text[32];
    const char *stop[1];
    char stop_text[8];
};

static void note_released(void *ud)
{
    struct owner *owner = ud;
    pthread_mutex_lock(&owner->mutex);
    owner->released++;
    memset(owner->text, '#', sizeof owner->text);
    pthread_mutex_unlock(&owner->mutex);
}

static int releases(struct owner *owner)
{
    pthread_mutex_lock(&owner->mutex);
    int n = owner->released;
    pthread_mutex_unlock(&owner->mutex);
    return n;
}

static void what_is_shared_is_not_copied_and_is_released_once_with_the_last_request(void **state)
{
    (void)state;
    struct owner owner = {.mutex = PTHREAD_MUTEX_INITIALIZER, .text = "My name is", .stop_text = "zzz"};
    struct caller callers[3];
    hearth *instance = start(demo_config(NULL));
    hearth_params params = text_params(owner.text, 3);
    owner.stop[0] = owner.stop_text;
    params.stop = owner.stop;
    params.n_stop = 1;
    params.shared = hearth_shared_new(note_released, &owner);
    for (int i = 0; i < 3; i++) {
        caller_init(&callers[i]);
        caller_submit(&callers[i], instance, &params);
    }
    hearth_shared_unref(params.shared);
    for (int i = 0; i < 3; i++) {
        caller_await_end(&callers[i]);
        assert_false(callers[i].failed);
        assert_int_equal(releases(&owner), 0); /* handles have references to it */
    }
    end(instance, callers, 3);
    assert_int_equal(releases(&owner), 1);
}

static void a_request_that_cannot_be_handed_in_does_not_hold_on_to_what_is_shared(void **state)
{
    (void)state;
    struct owner owner = {.mutex = PTHREAD_MUTEX_INITIALIZER, .text = "My name is"};
    hearth *instance = start(demo_config(NULL));
    hearth_params params = text_params(owner.text, -5);
    hearth_error error;
    params.shared = hearth_shared_new(note_released, &owner);
    assert_null(hearth_submit(instance, &params, caller_event, NULL, &error));
    assert_string_equal(error.param, "max_tokens");
    assert_int_equal(releases(&owner), 0);
    hearth_shared_unref(params.shared);
    assert_int_equal(releases(&owner), 1);
    hearth_close(instance);
}

/* ---- Sizes ---- */

static char *repeat(const char *text, size_t len)
{
    struct buf all = {0};
    while (all.len < len) buf_puts(&all, text);
    return buf_take(&all);
}

static void assert_too_long(hearth *instance, const hearth_params *params, const char *param, const char *part)
{
    struct caller caller;
    hearth_error error = {0};
    caller_init(&caller);
    caller.request = hearth_submit(instance, params, caller_event, &caller, &error);
    if (caller.request != NULL) {
        caller_await_end(&caller);
        assert_true(caller.failed);
        error = caller.error;
        hearth_request_release(caller.request);
    }
    assert_int_equal(error.code, HEARTH_TOO_LONG);
    assert_string_equal(error.param, param);
    if (strstr(error.message, part) == NULL) fail_msg("%s", error.message);
}

static void text_is_refused_by_its_size(void **state)
{
    (void)state;
    hearth *instance = start(DEMO("context_window", "256", "max_prompt_bytes", "400000"));
    char *words = repeat("word ", 390000), *more = repeat("word ", 410000), *one = repeat("word", 390000);
    hearth_params params = text_params(more, 1);
    assert_too_long(instance, &params, "prompt", "models.demo.max_prompt_bytes");
    params = text_params("a", 1);
    params.grammar = more;
    assert_too_long(instance, &params, "grammar", "models.demo.max_prompt_bytes");
    params = text_params(words, 1);
    assert_too_long(instance, &params, "prompt", " tokens or more, in ");
    params.only_prompt = true;
    params.text = one;
    assert_too_long(instance, &params, "prompt", "without a single blank between two words");
    char *messages = mem_format("[{\"role\":\"user\",\"content\":\"%s\"}]", words);
    params = chat_params(messages);
    assert_too_long(instance, &params, "messages", " tokens or more, in ");
    int32_t *tokens;
    hearth_error error;
    assert_int_equal(hearth_tokenize(instance, NULL, one, strlen(one), false, false, &tokens, &error), HEARTH_TOO_LONG);
    assert_true(hearth_tokenize(instance, NULL, words, strlen(words), false, false, &tokens, &error) > 10000);
    free(tokens);
    free(messages);
    free(words);
    free(more);
    free(one);
    hearth_close(instance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_told_token_by_token),
        cmocka_unit_test(special_tokens_that_a_plain_text_spells_stay_text),
        cmocka_unit_test(parts_follow_each_other_as_they_are),
        cmocka_unit_test(bos_precedes_text_that_comes_first_and_nothing_else),
        cmocka_unit_test(a_part_outside_the_vocabulary_is_refused),
        cmocka_unit_test(a_prompt_alone_may_be_longer_than_the_window),
        cmocka_unit_test(a_prompt_that_nobody_wants_to_see_is_not_kept),
        cmocka_unit_test(what_a_request_does_not_say_is_the_configurations),
        cmocka_unit_test(what_is_shared_is_not_copied_and_is_released_once_with_the_last_request),
        cmocka_unit_test(a_request_that_cannot_be_handed_in_does_not_hold_on_to_what_is_shared),
        cmocka_unit_test(text_is_refused_by_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
