/* Instances: loading one model or several, errors of loading, and the state afterwards. */
#include "support.h"

#include "chat/chat.h"

#include <unistd.h>

static hearth *opened(hearth_config *config)
{
    hearth_error error;
    hearth *instance = hearth_open(config, &error);
    if (instance == NULL) fail_msg("%s", error.message);
    hearth_config_free(config);
    return instance;
}

static void assert_not_opened(hearth_config *config, const char *expected)
{
    hearth_error error = {0};
    assert_null(hearth_open(config, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_says(error.message, expected);
    hearth_config_free(config);
}

static void assert_not_loaded(hearth_config *config, hearth_code code, const char *expected)
{
    hearth_error error = {0};
    hearth_model_info info;
    hearth *instance = opened(config);
    assert_int_equal(hearth_load(instance, NULL, NULL, &error), code);
    assert_int_equal(error.code, code);
    assert_says(error.message, expected);
    assert_null(strchr(error.message, '\n'));
    assert_false(hearth_model(instance, 0, &info));
    hearth_close(instance);
}

/* A file in the build folder with this content; the caller removes it and frees the path. */
static char *write_file(const char *name, const char *content)
{
    char *path = mem_format("%s/unit-lib-%d-%s", getenv("HEARTH_BUILD"), (int)getpid(), name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void remove_file(char *path)
{
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* ---- Loading ---- */

static void both_caches_at_once_are_refused(void **state)
{
    (void)state;
    assert_not_opened(DEMO("system_prompt_cache", "true", "incremental_cache", "true"),
                      "cannot enable both SystemPromptCache and IncrementalCache; use IncrementalCache alone (it "
                      "includes the system prompt)");
}

static void a_model_without_a_file_is_not_opened(void **state)
{
    (void)state;
    assert_not_opened(DEMO("path", "/nowhere/a.gguf"), "/nowhere/a.gguf");
    hearth_config *config = hearth_config_new();
    set(config, "models.m.threads", "1");
    assert_not_opened(config, "name the GGUF file");
}

static void what_cannot_be_loaded_is_told_in_one_line(void **state)
{
    (void)state;
    char *text = write_file("text.gguf", "This is no model.\n");
    char *faulty = write_file("faulty.jinja", "{% for %}");
    assert_not_loaded(DEMO("path", text), HEARTH_INVALID, text);
    assert_not_loaded(DEMO("jinja_file", faulty), HEARTH_INVALID, "%}");
    assert_not_loaded(DEMO("chat_template_kwargs", "{messages: []}"), HEARTH_INVALID, "chat_template_kwargs.messages");
    assert_not_loaded(DEMO("n_seq_max", "8", "n_batch", "4", "n_ubatch", "4"), HEARTH_INVALID,
                      "at least n_seq_max (8)");
    assert_not_loaded(DEMO("lora", text), HEARTH_INVALID, "models.demo.lora[0].path");
    assert_not_loaded(DEMO("mmproj", text), HEARTH_INVALID, "mmproj: ");
    remove_file(text);
    remove_file(faulty);
}

static void a_window_is_no_larger_than_the_model_was_trained_for(void **state)
{
    (void)state;
    hearth_model_info info;
    hearth *instance = start(DEMO("context_window", "4096"));
    assert_true(hearth_model(instance, 0, &info));
    assert_int_equal(info.context_window, 2048);
    hearth_close(instance);
}

static void cells_that_memory_cannot_hold_are_refused_with_numbers(void **state)
{
    (void)state;
    assert_not_loaded(DEMO("context_window", "8000000", "n_seq_max", "256", "rope_scaling", "linear"), HEARTH_NO_MEMORY,
                      "256 slots x 8000000 tokens need");
    assert_not_loaded(DEMO("context_window", "8000000", "n_seq_max", "256", "rope_scaling", "linear"), HEARTH_NO_MEMORY,
                      "lower n_seq_max or context_window, or set cache_type_k and cache_type_v to q8_0");
}

struct progress {
    float last;
    int calls;
    float abort_at;
};

static bool follow(void *ud, const char *model, float fraction)
{
    struct progress *progress = ud;
    assert_string_equal(model, "demo");
    assert_true(fraction >= progress->last && fraction <= 1);
    progress->last = fraction;
    progress->calls++;
    return fraction < progress->abort_at;
}

static void loading_tells_its_progress_and_can_be_broken_off(void **state)
{
    (void)state;
    hearth_error error;
    struct progress whole = {.abort_at = 2}, half = {.abort_at = 0.5F};
    hearth *instance = opened(DEMO(NULL));
    assert_int_equal(hearth_load(instance, follow, &whole, &error), HEARTH_OK);
    assert_true(whole.last == 1 && whole.calls > 2);
    hearth_close(instance);
    instance = opened(DEMO(NULL));
    assert_int_equal(hearth_load(instance, follow, &half, &error), HEARTH_CANCELLED);
    assert_true(half.last >= 0.5F && half.last < 1);
    hearth_close(instance);
}

static int n_templates;

struct chat_template *__real_chat_template_open(const struct chat_template_params *params, hearth_error *error);
struct chat_template *__wrap_chat_template_open(const struct chat_template_params *params, hearth_error *error);
struct chat_template *__wrap_chat_template_open(const struct chat_template_params *params, hearth_error *error)
{
    n_templates++;
    return __real_chat_template_open(params, error);
}

/* What one opening compiles is shown by tests/unit/chat/test_compile.cpp. */
static void the_template_is_read_and_compiled_once(void **state)
{
    (void)state;
    char *path = write_file("own.jinja", "{{ messages[0].content }} said");
    n_templates = 0;
    hearth *instance = start(DEMO("jinja_file", path));
    remove_file(path); /* nobody needs it any more */
    struct caller callers[3];
    hearth_params params = chat_params("[{\"role\":\"user\",\"content\":\"Once\"}]");
    params.max_tokens = 1;
    for (int i = 0; i < 2; i++) run(&callers[i], instance, &params);
    hearth_params same = text_params("Once said", 1);
    run(&callers[2], instance, &same);
    for (int i = 0; i < 3; i++) assert_false(callers[i].failed);
    assert_int_equal(callers[0].result.prompt_n, callers[2].result.prompt_n + callers[2].result.cache_n);
    assert_int_equal(callers[2].result.prompt_n, 1); /* the same tokens: all but the last are cached */
    end(instance, callers, 3);
    assert_int_equal(n_templates, 1);
}

/* ---- Several models ---- */

static hearth_config *two_models(void)
{
    hearth_config *config = hearth_config_new();
    add_demo(config, "first");
    add_demo(config, "second");
    set(config, "models.first.context_window", "512");
    set(config, "models.second.context_window", "1024");
    set(config, "models.second.n_seq_max", "3");
    return config;
}

static void two_models_serve_side_by_side(void **state)
{
    (void)state;
    hearth *instance = start(two_models());
    hearth_model_info info;
    assert_true(hearth_model(instance, 1, &info));
    assert_string_equal(info.name, "second");
    assert_string_equal(info.architecture, "llama");
    assert_int_equal(info.kind, HEARTH_KIND_DENSE);
    assert_int_equal(info.context_window, 1024);
    assert_int_equal(info.n_slots, 3);
    assert_int_equal(info.n_ctx_train, 2048);
    assert_true(info.has_chat_template && info.created > 0);
    assert_true(hearth_model(instance, 0, &info));
    assert_string_equal(info.name, "first");
    assert_int_equal(info.context_window, 512);
    assert_false(hearth_model(instance, 2, &info));

    struct caller callers[4];
    static const char *const names[] = {"first", "second", NULL, "second"};
    for (int i = 0; i < 4; i++) {
        hearth_params params = chat_params("[{\"role\":\"user\",\"content\":\"Who are you?\"}]");
        params.model = names[i];
        run(&callers[i], instance, &params);
        assert_string_equal(callers[i].text.v, callers[0].text.v);
    }
    assert_true(callers[2].result.cache_n > 0); /* no name means the first: its cells, and no other model's */
    assert_int_equal(callers[1].result.cache_n, 0);
    char *metrics = hearth_metrics(instance);
    assert_says(metrics, "hearth_requests_done_total{model=\"first\"} 2\n");
    assert_says(metrics, "hearth_requests_done_total{model=\"second\"} 2\n");
    hearth_free(metrics);
    end(instance, callers, 4);
}

static void slots_of_all_models_are_listed(void **state)
{
    (void)state;
    hearth *instance = start(two_models());
    struct caller caller;
    hearth_params params = text_params("Once upon a time", 3);
    params.model = "second";
    run(&caller, instance, &params);
    hearth_drain(instance, 100000); /* hearth_slots() reports the last tick: this waits for it */
    hearth_slot slots[5] = {0};
    assert_int_equal(hearth_slots(instance, NULL, 0), 4);
    assert_int_equal(hearth_slots(instance, slots, 2), 4);
    assert_null(slots[2].model);
    assert_int_equal(hearth_slots(instance, slots, 5), 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(slots[i].model, i == 0 ? "first" : "second");
        assert_int_equal(slots[i].id, i == 0 ? 0 : i - 1);
        assert_int_equal(slots[i].state, HEARTH_SLOT_IDLE);
        bool used = i == 1 + caller.result.slot;
        assert_int_equal(slots[i].seq_id >= 0, used);
        assert_int_equal(slots[i].cached_tokens > 0, used);
        assert_int_equal(slots[i].last_used > 0, used);
        assert_int_equal(slots[i].hash[0] != '\0', used);
    }
    end(instance, &caller, 1);
}

static void an_unknown_model_is_named_with_those_there_are(void **state)
{
    (void)state;
    hearth_error error = {0};
    hearth *instance = start(two_models());
    hearth_params params = text_params("a", 1);
    params.model = "gpt-17";
    assert_null(hearth_submit(instance, &params, caller_event, NULL, &error));
    assert_int_equal(error.code, HEARTH_NOT_FOUND);
    assert_string_equal(error.param, "model");
    assert_string_equal(error.message, "model 'gpt-17' does not exist; there is: first, second");
    int32_t *tokens = NULL;
    assert_int_equal(hearth_tokenize(instance, "gpt-17", "a", 1, true, true, &tokens, &error), HEARTH_NOT_FOUND);
    assert_null(tokens);
    hearth_close(instance);
}

/* Requests with a prompt that every model refuses, since the error names the model. */
struct asking {
    hearth *instance;
    struct caller callers[16];
    size_t n;
    char prompt[10001];
};

static struct asking *begin_asking(hearth_config *config)
{
    struct asking *asking = mem_alloc(sizeof *asking);
    asking->instance = start(config);
    memset(asking->prompt, '7', sizeof asking->prompt - 1);
    return asking;
}

static void end_asking(struct asking *asking)
{
    end(asking->instance, asking->callers, asking->n);
    free(asking);
}

static void assert_found(const hearth *instance, const char *name, const char *expected)
{
    hearth_error error;
    hearth_model_info info;
    int32_t index = hearth_find_model(instance, name, &error);
    assert_int_equal(index < 0, expected == NULL);
    if (index < 0) {
        assert_int_equal(index, HEARTH_NOT_FOUND);
        assert_string_equal(error.param, "model");
        return;
    }
    assert_true(hearth_model(instance, (size_t)index, &info));
    assert_string_equal(info.name, expected);
}

static void assert_answers(struct asking *asking, const char *name, const char *expected)
{
    struct caller *caller = &asking->callers[asking->n];
    hearth_error error;
    assert_found(asking->instance, name, expected);
    hearth_params params = text_params(asking->prompt, 1);
    params.model = name;
    caller_init(caller);
    caller->request = hearth_submit(asking->instance, &params, caller_event, caller, &error);
    if (expected == NULL) {
        assert_null(caller->request);
        assert_int_equal(error.code, HEARTH_NOT_FOUND);
        return;
    }
    assert_non_null(caller->request);
    asking->n++;
    caller_await_end(caller);
    char *key = mem_format("models.%s.context_window", expected);
    assert_says(caller->error.message, key);
    free(key);
}

static void models_are_called_by_aliases_and_tags(void **state)
{
    (void)state;
    hearth_config *config = two_models();
    set(config, "models.second.aliases", "[gpt-4o, big]");
    struct asking *asking = begin_asking(config);
    assert_answers(asking, NULL, "first");
    assert_answers(asking, "second", "second");
    assert_answers(asking, "gpt-4o", "second");
    assert_answers(asking, "first:latest", "first");
    assert_answers(asking, "big:latest", "second");
    static const char *const unknown[] = {"first:7b", "gpt-5", ":latest", "latest", ""};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) assert_answers(asking, unknown[i], NULL);
    end_asking(asking);
}

static void requests_for_unknown_models_go_to_the_default_one(void **state)
{
    (void)state;
    hearth_config *config = two_models();
    set(config, "models.second.aliases", "[big]");
    set(config, "server.default_model", "big");
    struct asking *asking = begin_asking(config);
    assert_answers(asking, NULL, "second");
    assert_answers(asking, "gpt-5", "second");
    assert_answers(asking, "first", "first");
    end_asking(asking);

    config = hearth_config_new();
    add_demo(config, "only");
    set(config, "models.only.context_window", "1024");
    asking = begin_asking(config);
    assert_answers(asking, "gpt-5", "only");
    end_asking(asking);

    config = hearth_config_new();
    add_demo(config, "only");
    set(config, "server.default_model", "only");
    set(config, "server.any_model_name", "false");
    asking = begin_asking(config);
    assert_answers(asking, "gpt-5", NULL);
    end_asking(asking);
}

static void models_loaded_before_a_failure_stay_usable(void **state)
{
    (void)state;
    hearth_error error;
    char *text = write_file("text.gguf", "This is no model.\n");
    hearth_config *config = two_models();
    set(config, "models.second.path", text);
    hearth *instance = opened(config);
    struct caller caller;
    hearth_params params = text_params("Once", 3);
    assert_null(hearth_submit(instance, &params, caller_event, NULL, &error)); /* nothing is loaded yet */
    assert_int_equal(error.code, HEARTH_UNAVAILABLE);
    assert_int_equal(hearth_load(instance, NULL, NULL, &error), HEARTH_INVALID);
    assert_says(error.message, text);
    run(&caller, instance, &params);
    assert_false(caller.failed);
    params.model = "second";
    assert_null(hearth_submit(instance, &params, caller_event, NULL, &error));
    assert_int_equal(error.code, HEARTH_UNAVAILABLE);
    remove_file(text);
    end(instance, &caller, 1);
}

/* ---- The context ---- */

static int occurrences(const char *path, const char *word)
{
    char line[4096];
    int n = 0;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) n += strstr(line, word) != NULL;
    fclose(file);
    return n;
}

static void the_context_is_created_once_and_kept(void **state)
{
    (void)state;
    hearth_error error;
    char *log = write_file("log", "");
    assert_int_equal(hearth_log_open(log, "debug", "text", &error), HEARTH_OK);
    hearth *instance = start(DEMO("n_seq_max", "2"));
    const char *made = "constructing llama_context";
    int after_load = occurrences(log, made);
    assert_int_equal(after_load, 1); /* llama.cpp says so when it makes one */
    struct caller callers[4];
    for (int i = 0; i < 4; i++) {
        hearth_params params = text_params(i % 2 ? "Once" : "My name is", 5);
        run(&callers[i], instance, &params);
    }
    assert_int_equal(occurrences(log, made), after_load);
    assert_int_equal(occurrences(log, "slot-started"), 4);
    end(instance, callers, 4);
    assert_int_equal(hearth_log_open(NULL, "error", "text", &error), HEARTH_OK);
    remove_file(log);
}

static void the_log_tells_engine_slot_and_sequence(void **state)
{
    (void)state;
    hearth_error error;
    char *log = write_file("log", "");
    assert_int_equal(hearth_log_open(log, "info", "text", &error), HEARTH_OK);
    hearth *instance = start(DEMO("n_seq_max", "3"));
    struct caller caller;
    hearth_params params = text_params("Once", 4);
    params.sampling.ignore_eos = true;
    params.request_id = "my-id";
    run(&caller, instance, &params);
    int prompt = caller.result.prompt_n, slot = caller.result.slot;
    end(instance, &caller, 1);
    assert_int_equal(hearth_log_open(NULL, "error", "text", &error), HEARTH_OK);

    char *line = mem_format(" batch-engine: slot-started model=demo slot=%d seq=%d id=my-id prompt_tokens=%d "
                            "cached_tokens=0\n",
                            slot, slot, prompt);
    assert_int_equal(occurrences(log, line), 1);
    free(line);
    line = mem_format(" batch-engine: slot-finished model=demo slot=%d seq=%d id=my-id how=length total_prompt=%d "
                      "output_tokens=4 time_ms=",
                      slot, slot, prompt);
    assert_int_equal(occurrences(log, line), 1);
    free(line);
    assert_int_equal(occurrences(log, " active_streams=0\n"), 1);
    assert_int_equal(occurrences(log, " batch-engine: started model=demo slots=3"), 1);
    assert_true(occurrences(log, " batch-engine: drain-started model=demo active_slots=") > 0);
    assert_true(occurrences(log, " batch-engine: drain-finished model=demo") > 0);
    assert_int_equal(occurrences(log, " batch-engine: stopped model=demo\n"), 1);
    remove_file(log);
}

/* ---- */

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_caches_at_once_are_refused),
        cmocka_unit_test(a_model_without_a_file_is_not_opened),
        cmocka_unit_test(what_cannot_be_loaded_is_told_in_one_line),
        cmocka_unit_test(a_window_is_no_larger_than_the_model_was_trained_for),
        cmocka_unit_test(cells_that_memory_cannot_hold_are_refused_with_numbers),
        cmocka_unit_test(loading_tells_its_progress_and_can_be_broken_off),
        cmocka_unit_test(the_template_is_read_and_compiled_once),
        cmocka_unit_test(two_models_serve_side_by_side),
        cmocka_unit_test(slots_of_all_models_are_listed),
        cmocka_unit_test(an_unknown_model_is_named_with_those_there_are),
        cmocka_unit_test(models_are_called_by_aliases_and_tags),
        cmocka_unit_test(requests_for_unknown_models_go_to_the_default_one),
        cmocka_unit_test(models_loaded_before_a_failure_stay_usable),
        cmocka_unit_test(the_context_is_created_once_and_kept),
        cmocka_unit_test(the_log_tells_engine_slot_and_sequence),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
