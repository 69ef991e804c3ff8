/* The model manager: models are loaded on demand, unloaded when they are idle, when another needs their memory, or by
 * hearth_unload_model(), and never while a request uses them. The clock is the test's; it waits for other threads. */
#include "support.h"

#include "fakes/fake_clock.h"
#include "instance/models/model_manager.h"

#include <llama.h>

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Scenes ---- */

struct scene {
    hearth *instance;
    struct fake_clock clock;
};

static hearth *open_at(hearth_config *config, struct fake_clock *clock)
{
    hearth_error error;
    hearth *instance = hearth_open(config, &error);
    if (instance == NULL) fail_msg("%s", error.message);
    hearth_config_free(config);
    fake_clock_init(clock);
    instance->clock = &clock->clock;
    return instance;
}

/* Every model is loaded on demand. */
static void begin(struct scene *s, hearth_config *config)
{
    hearth_error error;
    for (size_t i = 0; hearth_config_model(config, i) != NULL; i++) {
        char *key = mem_format("models.%s.load", hearth_config_model(config, i));
        set(config, key, "demand");
        free(key);
    }
    s->instance = open_at(config, &s->clock);
    if (hearth_load(s->instance, NULL, NULL, &error) != HEARTH_OK) fail_msg("%s", error.message);
}

static void finish(struct scene *s, struct caller *callers, size_t n)
{
    end(s->instance, callers, n);
    fake_clock_release(&s->clock);
}

static hearth_config *three_models(const char *budget)
{
    static const char *const names[] = {"a", "b", "c"};
    hearth_config *config = hearth_config_new();
    for (int i = 0; i < 3; i++) add_demo(config, names[i]);
    if (budget != NULL) set(config, "server.memory_budget_mb", budget);
    return config;
}

/* Room for two of the three, in mebibytes. */
static char *room_for_two(void)
{
    struct scene s;
    begin(&s, three_models(NULL));
    unsigned long long bytes = s.instance->entries[0].facts.bytes;
    finish(&s, NULL, 0);
    assert_true(bytes > 1 << 20); /* else whole mebibytes could not tell two from three */
    return mem_format("%llu", (2 * bytes >> 20) + 1);
}

static bool is_in_state(const struct model_entry *entry, const char *state)
{
    static const char *const names[] = {"unloaded", "loading", "loaded", "unloading", "failed"};
    return strcmp(names[entry->presence], state) == 0;
}

static void await_state(struct scene *s, size_t i, const char *state)
{
    struct model_entry *entry = &s->instance->entries[i];
    pthread_mutex_lock(&entry->manager->mutex);
    while (!is_in_state(entry, state)) pthread_cond_wait(&entry->manager->changed, &entry->manager->mutex);
    pthread_mutex_unlock(&entry->manager->mutex);
}

/* Waits until its load has at least begun. */
static void await_begun(struct scene *s, size_t i)
{
    struct model_entry *entry = &s->instance->entries[i];
    pthread_mutex_lock(&entry->manager->mutex);
    while (is_in_state(entry, "unloaded")) pthread_cond_wait(&entry->manager->changed, &entry->manager->mutex);
    pthread_mutex_unlock(&entry->manager->mutex);
}

/* Waits until no request has a lease on it. */
static void await_let_go(struct scene *s, size_t i)
{
    struct model_entry *entry = &s->instance->entries[i];
    pthread_mutex_lock(&entry->manager->mutex);
    while (entry->n_requests > 0) pthread_cond_wait(&entry->manager->changed, &entry->manager->mutex);
    pthread_mutex_unlock(&entry->manager->mutex);
}

static void assert_state(struct scene *s, size_t i, const char *expected)
{
    hearth_model_info info;
    assert_true(hearth_model(s->instance, i, &info));
    assert_string_equal(hearth_model_state_name(info.state), expected);
}

static void assert_metric(struct scene *s, const char *line)
{
    char *metrics = hearth_metrics(s->instance);
    assert_says(metrics, line);
    hearth_free(metrics);
}

static void let_go(struct caller *caller)
{
    hearth_request_release(caller->request);
    caller->request = NULL;
}

/* A short request, from its submission until its model has no lease any more. */
static void use(struct scene *s, struct caller *caller, size_t i)
{
    hearth_params params = text_params("Once upon a time", 3);
    params.model = s->instance->entries[i].config->name;
    run(caller, s->instance, &params);
    if (caller->failed) fail_msg("%s", caller->error.message);
    let_go(caller);
    await_let_go(s, i);
}

/* An endless request that blocks in the event of its first token. */
static void hold(struct scene *s, struct caller *caller, size_t i)
{
    hearth_params params = text_params("Once", HEARTH_UNSET);
    params.model = s->instance->entries[i].config->name;
    params.sampling.ignore_eos = true;
    caller_init(caller);
    caller->hold = true;
    caller_submit(caller, s->instance, &params);
    caller_await_tokens(caller, 1);
}

static void end_held(struct scene *s, struct caller *caller, size_t i)
{
    hearth_cancel(caller->request);
    caller_let_go(caller);
    caller_await_end(caller);
    let_go(caller);
    await_let_go(s, i);
}

/* One that cannot begin yet. */
static void submit(struct scene *s, struct caller *caller, size_t i)
{
    hearth_params params = text_params("Once upon a time", 3);
    params.model = s->instance->entries[i].config->name;
    caller_init(caller);
    caller_submit(caller, s->instance, &params);
}

static void assert_failed(const struct caller *caller, hearth_code code, const char *says)
{
    assert_true(caller->failed);
    assert_int_equal(caller->error.code, code);
    assert_says(caller->error.message, says);
}

static void assert_unload_refused(struct scene *s, const char *model, hearth_code code, const char *message)
{
    hearth_error error = {0};
    assert_int_equal(hearth_unload_model(s->instance, model, &error), code);
    assert_string_equal(error.message, message);
}

static void unload(struct scene *s, size_t i)
{
    hearth_error error;
    const char *name = s->instance->entries[i].config->name;
    if (hearth_unload_model(s->instance, name, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_int_equal(hearth_await_model(s->instance, name, &error), HEARTH_OK);
    assert_state(s, i, "unloaded");
}

/* ---- What llama.cpp has in memory ---- */

static int n_weights, n_contexts; /* opened and not freed yet */

struct llama_model *__real_llama_model_load_from_file(const char *path, struct llama_model_params params);
struct llama_model *__wrap_llama_model_load_from_file(const char *path, struct llama_model_params params);
struct llama_model *__wrap_llama_model_load_from_file(const char *path, struct llama_model_params params)
{
    struct llama_model *weights = __real_llama_model_load_from_file(path, params);
    n_weights += weights != NULL;
    return weights;
}

void __real_llama_model_free(struct llama_model *weights);
void __wrap_llama_model_free(struct llama_model *weights);
void __wrap_llama_model_free(struct llama_model *weights)
{
    n_weights -= weights != NULL;
    __real_llama_model_free(weights);
}

struct llama_context *__real_llama_init_from_model(struct llama_model *weights, struct llama_context_params params);
struct llama_context *__wrap_llama_init_from_model(struct llama_model *weights, struct llama_context_params params);
struct llama_context *__wrap_llama_init_from_model(struct llama_model *weights, struct llama_context_params params)
{
    struct llama_context *context = __real_llama_init_from_model(weights, params);
    n_contexts += context != NULL;
    return context;
}

void __real_llama_free(struct llama_context *context);
void __wrap_llama_free(struct llama_context *context);
void __wrap_llama_free(struct llama_context *context)
{
    n_contexts -= context != NULL;
    __real_llama_free(context);
}

/* ---- On demand ---- */

static void a_model_on_demand_is_known_at_once_and_loaded_with_the_first_request(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    hearth_model_info info, loaded;
    begin(&s, DEMO("context_window", "512"));
    assert_true(hearth_model(s.instance, 0, &info));
    assert_int_equal(info.state, HEARTH_MODEL_UNLOADED);
    assert_string_equal(info.architecture, "llama");
    assert_int_equal(info.type, HEARTH_MODEL_CHAT);
    assert_int_equal(info.context_window, 512);
    assert_true(info.has_chat_template && info.size_bytes > 0 && info.created > 0);
    assert_int_equal(hearth_slots(s.instance, NULL, 0), 0);
    assert_metric(&s, "\nhearth_models_loaded 0\n");
    use(&s, &caller, 0);
    assert_true(hearth_model(s.instance, 0, &loaded));
    assert_int_equal(loaded.state, HEARTH_MODEL_LOADED);
    assert_ptr_equal(loaded.architecture, info.architecture);
    assert_true(loaded.size_bytes == info.size_bytes && loaded.n_params == info.n_params);
    assert_int_equal(hearth_slots(s.instance, NULL, 0), 1);
    assert_metric(&s, "\nhearth_models_loaded 1\n");
    assert_metric(&s, "hearth_model_loads_total{model=\"demo\"} 1\n");
    assert_metric(&s, "hearth_model_load_seconds_count{model=\"demo\"} 1\n");
    finish(&s, &caller, 1);
}

static void requests_that_come_together_load_a_model_once(void **state)
{
    (void)state;
    struct scene s;
    struct caller callers[4];
    begin(&s, three_models(NULL));
    for (int i = 0; i < 4; i++) submit(&s, &callers[i], 1);
    for (int i = 0; i < 4; i++) {
        caller_await_end(&callers[i]);
        assert_false(callers[i].failed);
    }
    assert_metric(&s, "hearth_model_loads_total{model=\"b\"} 1\n");
    assert_metric(&s, "hearth_model_loads_total{model=\"a\"} 0\n");
    finish(&s, callers, 4);
}

static void what_a_request_asks_wrongly_is_told_without_loading(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    begin(&s, DEMO(NULL));
    hearth_params params = greedy(1);
    params.tokens = (const int32_t[]){1 << 30};
    params.n_tokens = 1;
    assert_null(hearth_submit(s.instance, &params, caller_event, NULL, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_state(&s, 0, "unloaded");
    finish(&s, NULL, 0);
}

static void note_vectors(void *ud, const hearth_embedded *result, const hearth_error *error)
{
    struct caller *caller = ud;
    pthread_mutex_lock(&caller->mutex);
    caller->failed = error != NULL;
    caller->n_tokens = error != NULL ? 0 : (int)result->n_tokens;
    caller->n_last++;
    pthread_cond_broadcast(&caller->changed);
    pthread_mutex_unlock(&caller->mutex);
}

static void embed(struct scene *s)
{
    hearth_error error;
    struct caller caller;
    hearth_embed_params params = hearth_embed_params_default();
    hearth_input input = {.text = "Once upon a time", .len = 16};
    params.inputs = &input;
    params.n_inputs = 1;
    caller_init(&caller);
    hearth_embedding *embedding = hearth_embed(s->instance, &params, note_vectors, &caller, &error);
    if (embedding == NULL) fail_msg("%s", error.message);
    caller_await_end(&caller);
    assert_false(caller.failed);
    assert_true(caller.n_tokens > 0);
    hearth_embedding_release(embedding);
    await_let_go(s, 0);
}

static void an_embedding_model_is_loaded_and_unloaded_as_well(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, DEMO("embedding", "true"));
    embed(&s);
    unload(&s, 0);
    embed(&s);
    assert_metric(&s, "hearth_embed_requests_done_total{model=\"demo\"} 2\n");
    assert_metric(&s, "hearth_model_loads_total{model=\"demo\"} 2\n");
    finish(&s, NULL, 0);
}

/* Nobody should wait for a model on the thread that asks. */
static void tokenising_asks_for_a_model_that_is_not_there(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    int32_t *tokens = NULL;
    begin(&s, DEMO(NULL));
    assert_int_equal(hearth_tokenize(s.instance, NULL, "a", 1, true, true, &tokens, &error), HEARTH_UNAVAILABLE);
    assert_int_equal(hearth_await_model(s.instance, "demo", &error), HEARTH_OK);
    assert_state(&s, 0, "loaded");
    assert_true(hearth_tokenize(s.instance, NULL, "a", 1, true, true, &tokens, &error) > 0);
    free(tokens);
    finish(&s, NULL, 0);
}

/* ---- Unloading ---- */

static void an_idle_model_is_unloaded_by_the_clock_and_loaded_again(void **state)
{
    (void)state;
    struct scene s;
    struct caller callers[2];
    begin(&s, DEMO("idle_unload", "60"));
    use(&s, &callers[0], 0);
    fake_clock_advance(&s.clock, clock_from_ms(59999));
    assert_state(&s, 0, "loaded");
    fake_clock_advance(&s.clock, clock_from_ms(1));
    await_state(&s, 0, "unloaded");
    assert_int_equal(hearth_slots(s.instance, NULL, 0), 0);
    assert_metric(&s, "\nhearth_models_loaded 0\n");
    assert_metric(&s, "hearth_model_unloads_total{model=\"demo\"} 1\n");
    assert_metric(&s, "hearth_state_bytes{model=\"demo\"} 0\n");
    assert_metric(&s, "hearth_slots_busy{model=\"demo\"} 0\n");
    assert_metric(&s, "hearth_requests_done_total{model=\"demo\"} 1\n"); /* counters survive */
    use(&s, &callers[1], 0);
    assert_string_equal(callers[1].text.v, callers[0].text.v);
    assert_metric(&s, "hearth_requests_done_total{model=\"demo\"} 2\n");
    finish(&s, callers, 2);
}

static int64_t state_bytes(struct scene *s)
{
    return metric_get(&s->instance->entries[0].engine_stats.snapshot_bytes);
}

/* A conversation in cells, or a system prompt in a snapshot: both are gone when the model is unloaded. */
static void unloading_leaves_nothing_in_memory(void **state)
{
    (void)state;
    for (int spc = 0; spc < 2; spc++) {
        struct scene s;
        struct caller callers[4];
        hearth_params params = chat_params(CODE_QUESTION);
        begin(&s, DEMO("system_prompt_cache", spc ? "true" : "false", "n_seq_max", "2"));
        for (int i = 0; i < 4; i++) {
            if (i % 2 == 0) assert_true(n_weights == 0 && n_contexts == 0);
            run(&callers[i], s.instance, &params);
            if (callers[i].failed) fail_msg("%s", callers[i].error.message);
            assert_int_equal(callers[i].result.cache_n > 0, i % 2); /* the second finds what the first left */
            let_go(&callers[i]);
            await_let_go(&s, 0);
            if (i % 2 == 0) continue;
            assert_true(n_weights == 1 && n_contexts == 1);
            assert_int_equal(state_bytes(&s) > 0, spc);
            unload(&s, 0);
            assert_int_equal(hearth_slots(s.instance, NULL, 0), 0);
            assert_int_equal(state_bytes(&s), 0);
        }
        assert_true(n_weights == 0 && n_contexts == 0);
        finish(&s, callers, 4);
    }
}

static void a_running_request_keeps_its_model(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    begin(&s, DEMO("idle_unload", "60"));
    hold(&s, &caller, 0);
    assert_unload_refused(&s, "demo", HEARTH_BUSY, "unload: cannot unload, too many active-streams[1]");
    fake_clock_advance(&s.clock, clock_from_ms(3600000));
    assert_state(&s, 0, "loaded");
    hearth_cancel(caller.request);
    caller_let_go(&caller);
    caller_await_end(&caller);
    /* Its handle is not released, and may be cancelled. */
    assert_unload_refused(&s, "demo", HEARTH_BUSY, "unload: cannot unload, too many active-streams[1]");
    hearth_cancel(caller.request);
    let_go(&caller);
    await_let_go(&s, 0);
    assert_state(&s, 0, "loaded"); /* idle from now on, not from the submission on */
    fake_clock_advance(&s.clock, clock_from_ms(60000));
    await_state(&s, 0, "unloaded");
    finish(&s, &caller, 1);
}

static void what_is_not_loaded_cannot_be_unloaded(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    hearth_error error;
    begin(&s, DEMO(NULL));
    assert_unload_refused(&s, "demo", HEARTH_INVALID, "unload: already unloaded");
    assert_unload_refused(&s, "other", HEARTH_NOT_FOUND, "model 'other' does not exist; there is: demo");
    use(&s, &caller, 0);
    assert_int_equal(hearth_load_model(s.instance, "demo", &error), HEARTH_INVALID);
    assert_string_equal(error.message, "load: already loaded");
    unload(&s, 0);
    assert_unload_refused(&s, "demo", HEARTH_INVALID, "unload: already unloaded");
    assert_int_equal(hearth_load_model(s.instance, "demo", &error), HEARTH_OK);
    assert_int_equal(hearth_await_model(s.instance, "demo", &error), HEARTH_OK);
    assert_state(&s, 0, "loaded");
    finish(&s, &caller, 1);
}

static int32_t ask_again(struct scene *s, struct caller *caller)
{
    hearth_params params = chat_params(CODE_QUESTION);
    params.max_tokens = 8;
    params.sampling.ignore_eos = true;
    run(caller, s->instance, &params);
    if (caller->failed) fail_msg("%s", caller->error.message);
    let_go(caller);
    await_let_go(s, 0);
    return caller->result.cache_n;
}

static void allow_files_of(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_conversation_outlives_the_unloading_of_its_model(void **state)
{
    (void)state;
    struct scene s;
    struct caller callers[2];
    char folder[] = "/tmp/hearth-manager-XXXXXX";
    assert_non_null(mkdtemp(folder));
    hearth_config *config = DEMO("cache_min_tokens", "4");
    set(config, "cache.tiers.disk.quota_mb", "64");
    set(config, "cache.tiers.disk.path", folder);
    set(config, "cache.boundary_align_tokens", "16");
    begin(&s, config);
    /* The save that a full disk refused at the end of the request is repeated when the model is unloaded. */
    hearth_cache cache;
    allow_files_of(0);
    assert_int_equal(ask_again(&s, &callers[0]), 0);
    do {
        sched_yield();
        hearth_cache_status(s.instance, &cache);
    } while (cache.saves_dropped == 0);
    allow_files_of(RLIM_INFINITY);
    assert_int_equal(cache.tiers[2].entries, 0);
    unload(&s, 0);
    hearth_cache_status(s.instance, &cache);
    assert_true(cache.saves_shutdown > 0 && cache.tiers[2].entries > 0);
    assert_int_equal(cache.backlog_bytes, 0);
    assert_true(ask_again(&s, &callers[1]) > 0);
    assert_string_equal(callers[1].text.v, callers[0].text.v);
    finish(&s, callers, 2);
    char *command = mem_format("rm -r %s", folder);
    assert_int_equal(system(command), 0);
    free(command);
}

/* A reader has a reference to the format of the reply and to nothing else. */
static void a_reader_may_outlive_its_model(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    begin(&s, DEMO(NULL));
    hearth_params params = chat_params(CODE_QUESTION);
    run(&caller, s.instance, &params);
    hearth_reader *reader = hearth_reader_open(caller.request);
    assert_non_null(reader);
    let_go(&caller);
    await_let_go(&s, 0);
    unload(&s, 0);
    finish(&s, &caller, 1);
    hearth_reader_close(reader);
}

/* ---- server.memory_budget_mb ---- */

static void the_least_recently_used_model_is_unloaded_for_another(void **state)
{
    (void)state;
    struct scene s;
    struct caller callers[6];
    char *budget = room_for_two();
    begin(&s, three_models(budget));
    static const size_t order[] = {0, 1, 0, 2, 1};
    static const char *const after[][3] = {{"loaded", "unloaded", "unloaded"},
                                           {"loaded", "loaded", "unloaded"},
                                           {"loaded", "loaded", "unloaded"},
                                           {"loaded", "unloaded", "loaded"},
                                           {"unloaded", "loaded", "loaded"}};
    for (size_t i = 0; i < 5; i++) {
        use(&s, &callers[i], order[i]);
        fake_clock_advance(&s.clock, clock_from_ms(1000));
        for (size_t m = 0; m < 3; m++) assert_state(&s, m, after[i][m]);
    }
    finish(&s, callers, 5);
    free(budget);
}

static void a_model_waits_for_room_and_is_told_which_key_is_short(void **state)
{
    (void)state;
    struct scene s;
    struct caller held[2], late, lucky;
    char *budget = room_for_two();
    begin(&s, three_models(budget));
    hold(&s, &held[0], 0);
    hold(&s, &held[1], 1);
    submit(&s, &late, 2);
    assert_state(&s, 2, "loading");
    fake_clock_advance(&s.clock, clock_from_ms(30000));
    caller_await_end(&late);
    assert_failed(&late, HEARTH_BUSY, "server.memory_budget_mb");
    submit(&s, &lucky, 2);
    end_held(&s, &held[1], 1);
    caller_await_end(&lucky);
    assert_false(lucky.failed);
    assert_state(&s, 0, "loaded");
    assert_state(&s, 1, "unloaded");
    end_held(&s, &held[0], 0);
    hearth_cancel(late.request); /* long over */
    finish(&s, (struct caller[]){held[0], held[1], late, lucky}, 4);
    free(budget);
}

static void a_request_that_waits_for_its_model_can_be_cancelled_or_cut_off(void **state)
{
    (void)state;
    struct scene s;
    struct caller held[3], cancelled, cut, again;
    char *budget = room_for_two();
    begin(&s, three_models(budget));
    hold(&s, &held[0], 0);
    hold(&s, &held[1], 1);
    submit(&s, &cancelled, 2);
    submit(&s, &cut, 2);
    assert_metric(&s, "hearth_admission_waiting{model=\"c\"} 2\n");
    assert_unload_refused(&s, "c", HEARTH_BUSY, "unload: cannot unload, too many active-streams[2]");
    hearth_cancel(cancelled.request);
    caller_await_end(&cancelled);
    assert_failed(&cancelled, HEARTH_CANCELLED, "cancelled");
    end_held(&s, &held[0], 0);
    caller_await_end(&cut);
    assert_false(cut.failed);
    let_go(&cut);
    await_let_go(&s, 2);
    hold(&s, &held[2], 2);
    submit(&s, &again, 0);
    caller_let_go(&held[1]);
    caller_let_go(&held[2]);
    hearth_drain(s.instance, 0);
    caller_await_end(&again);
    assert_failed(&again, HEARTH_UNAVAILABLE, "engine shutting down");
    finish(&s, (struct caller[]){held[0], held[1], held[2], cancelled, cut, again}, 6);
    free(budget);
}

static void what_can_never_have_room_is_refused_at_the_start(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    s.instance = open_at(three_models("1"), &s.clock);
    assert_int_equal(hearth_load(s.instance, NULL, NULL, &error), HEARTH_NO_MEMORY);
    assert_string_equal(error.param, "server.memory_budget_mb");
    finish(&s, NULL, 0);
    char *budget = room_for_two();
    s.instance = open_at(three_models(budget), &s.clock);
    assert_int_equal(hearth_load(s.instance, NULL, NULL, &error), HEARTH_NO_MEMORY);
    assert_says(error.message, "model 'c' takes");
    finish(&s, NULL, 0);
    free(budget);
}

/* ---- Failed loads ---- */

static char *copy_of_demo(void)
{
    char *demo = source_path("models/demo.gguf");
    char *path = mem_format("%s/unit-lib-manager-%d.gguf", getenv("HEARTH_BUILD"), (int)getpid());
    char *command = mem_format("cp %s %s", demo, path);
    assert_int_equal(system(command), 0);
    free(command);
    free(demo);
    return path;
}

static void spoil(const char *path)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs("This is no model.\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_load_that_fails_is_told_and_tried_again_with_the_next_request(void **state)
{
    (void)state;
    struct scene s;
    struct caller callers[3];
    char *path = copy_of_demo();
    begin(&s, DEMO("path", path));
    spoil(path);
    for (int i = 0; i < 2; i++) {
        submit(&s, &callers[i], 0);
        caller_await_end(&callers[i]);
        assert_failed(&callers[i], HEARTH_UNAVAILABLE, "model 'demo' could not be loaded: ");
        assert_says(callers[i].error.message, "GGUF");
        assert_state(&s, 0, "failed");
    }
    assert_metric(&s, "hearth_model_load_failures_total{model=\"demo\"} 2\n");
    hearth_error error;
    assert_int_equal(hearth_await_model(s.instance, "demo", &error), HEARTH_INVALID);
    free(copy_of_demo());
    use(&s, &callers[2], 0);
    assert_state(&s, 0, "loaded");
    finish(&s, callers, 3);
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void a_file_that_is_no_model_is_refused_at_the_start(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    char *path = copy_of_demo();
    spoil(path);
    s.instance = open_at(DEMO("path", path, "load", "demand"), &s.clock);
    assert_int_equal(hearth_load(s.instance, NULL, NULL, &error), HEARTH_INVALID);
    assert_says(error.message, "is not a GGUF file");
    finish(&s, NULL, 0);
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* hearth_close() at any moment of a load. */
static void an_optional_model_that_cannot_be_read_is_left_out(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    hearth_error error;
    char *path = copy_of_demo();
    hearth_config *config = three_models(NULL);
    spoil(path);
    set(config, "models.a.path", path);
    set(config, "models.a.optional", "true");
    set(config, "models.c.optional", "true");
    set(config, "server.any_model_name", "true");
    begin(&s, config);
    assert_int_equal(atomic_load(&s.instance->n_entries), 2);
    assert_string_equal(s.instance->entries[0].config->name, "b");
    assert_string_equal(s.instance->entries[1].config->name, "c");
    assert_int_equal(hearth_find_model(s.instance, "a", &error), HEARTH_UNAVAILABLE);
    assert_string_equal(error.message, "the model could not be loaded");
    assert_int_equal(hearth_find_model(s.instance, "c", &error), 1);
    use(&s, &caller, 1);
    finish(&s, &caller, 1);
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void a_model_that_is_loaded_at_the_start_is_not_optional(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    char *path = copy_of_demo();
    hearth_config *config = three_models(NULL);
    spoil(path);
    set(config, "models.a.path", path);
    set(config, "models.a.optional", "true");
    s.instance = open_at(config, &s.clock);
    assert_true(hearth_load(s.instance, NULL, NULL, &error) < 0);
    finish(&s, NULL, 0);
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void the_end_may_come_in_the_middle_of_a_load(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct scene s;
        struct caller caller;
        begin(&s, DEMO(NULL));
        submit(&s, &caller, 0);
        if (i % 3 == 1) await_begun(&s, 0);
        if (i % 3 == 2) await_state(&s, 0, "loaded");
        hearth_drain(s.instance, 0);
        caller_await_end(&caller);
        assert_true(!caller.failed || caller.error.code == HEARTH_UNAVAILABLE || caller.error.code == HEARTH_CANCELLED);
        finish(&s, &caller, 1);
    }
}

/* ---- Adding and removing ---- */

static hearth_config *demo_on_demand(const char *name)
{
    hearth_config *config = hearth_config_new();
    add_demo(config, name);
    char *key = mem_format("models.%s.load", name);
    set(config, key, "demand");
    free(key);
    return config;
}

static int add(struct scene *s, const char *name, hearth_error *error)
{
    hearth_config *config = demo_on_demand(name);
    int rc = hearth_add_model(s->instance, config, name, error);
    hearth_config_free(config);
    return rc;
}

static void added(struct scene *s, const char *name)
{
    hearth_error error;
    if (add(s, name, &error) != HEARTH_OK) fail_msg("%s", error.message);
}

static void removed(struct scene *s, const char *name)
{
    hearth_error error;
    if (hearth_remove_model(s->instance, name, &error) != HEARTH_OK) fail_msg("%s", error.message);
}

static void a_model_is_added_used_removed_and_added_again(void **state)
{
    (void)state;
    struct scene s;
    struct caller callers[2];
    hearth_error error;
    hearth_config *config = DEMO(NULL);
    set(config, "server.metrics_names", "vllm");
    begin(&s, config);
    added(&s, "new");
    assert_state(&s, 1, "unloaded");
    assert_int_equal(hearth_find_model(s.instance, "new:latest", &error), 1);
    use(&s, &callers[0], 1);
    assert_metric(&s, "hearth_model_loads_total{model=\"new\"} 1\n");
    removed(&s, "new");
    assert_int_equal(n_weights, 0);
    assert_state(&s, 1, "removed");
    char *metrics = hearth_metrics(s.instance);
    assert_null(strstr(metrics, "\"new\""));
    hearth_free(metrics);
    assert_int_equal(hearth_remove_model(s.instance, "new", &error), HEARTH_NOT_FOUND);
    assert_string_equal(error.message, "model 'new' does not exist; there is: demo");
    added(&s, "new");
    assert_int_equal(hearth_find_model(s.instance, "new", &error), 2);
    assert_state(&s, 1, "removed");
    use(&s, &callers[1], 2);
    finish(&s, callers, 2);
}

static void one_of_the_configuration_can_be_removed_and_another_have_its_name(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    hearth_error error;
    begin(&s, three_models(NULL));
    removed(&s, "a");
    assert_int_equal(hearth_find_model(s.instance, "a", &error), HEARTH_NOT_FOUND);
    assert_string_equal(error.message, "model 'a' does not exist; there is: b, c");
    hearth_params params = greedy(1);
    params.model = "a";
    assert_null(hearth_submit(s.instance, &params, caller_event, NULL, &error));
    assert_int_equal(error.code, HEARTH_NOT_FOUND);
    assert_int_equal(hearth_find_model(s.instance, NULL, &error), 1); /* the first that is left */
    added(&s, "a");
    assert_int_equal(hearth_find_model(s.instance, "a", &error), 3);
    use(&s, &caller, 3);
    finish(&s, &caller, 1);
}

static void a_model_in_use_is_not_removed(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    hearth_error error;
    begin(&s, DEMO(NULL));
    added(&s, "new");
    hold(&s, &caller, 1);
    assert_int_equal(hearth_remove_model(s.instance, "new", &error), HEARTH_BUSY);
    assert_string_equal(error.message, "model 'new' is in use by 1 request: remove it once they have ended");
    assert_state(&s, 1, "loaded");
    end_held(&s, &caller, 1);
    removed(&s, "new");
    assert_int_equal(n_weights, 0);
    finish(&s, &caller, 1);
}

/* Between finding a model and asking for a lease it may be removed. */
static void who_has_found_a_model_before_it_was_removed_gets_none(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    begin(&s, three_models(NULL));
    struct lease lease = {.entry = &s.instance->entries[1]};
    removed(&s, "b");
    assert_int_equal(lease_take(&lease, &error), LEASE_REFUSED);
    assert_int_equal(error.code, HEARTH_NOT_FOUND);
    assert_string_equal(error.message, "model 'b' was removed");
    assert_null(brief_lease_take(&s.instance->entries[1]));
    finish(&s, NULL, 0);
}

static void what_cannot_be_added_leaves_no_trace(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    char *path = copy_of_demo();
    begin(&s, DEMO("aliases", "[nick]"));
    assert_int_equal(add(&s, "demo", &error), HEARTH_INVALID);
    assert_string_equal(error.message, "there is a model 'demo' already");
    assert_int_equal(add(&s, "nick", &error), HEARTH_INVALID);
    hearth_config *config = demo_on_demand("new");
    assert_int_equal(hearth_add_model(s.instance, config, "other", &error), HEARTH_NOT_FOUND);
    set(config, "models.new.load", "start");
    assert_int_equal(hearth_add_model(s.instance, config, "new", &error), HEARTH_INVALID);
    assert_says(error.message, "models.new.load");
    set(config, "models.new.load", "demand");
    set(config, "models.new.path", path);
    spoil(path);
    assert_int_equal(hearth_add_model(s.instance, config, "new", &error), HEARTH_INVALID);
    assert_says(error.message, "is not a GGUF file");
    assert_int_equal(unlink(path), 0);
    assert_true(hearth_add_model(s.instance, config, "new", &error) < 0);
    hearth_config_free(config);
    free(path);
    assert_int_equal(atomic_load(&s.instance->n_entries), 1);
    added(&s, "new");
    finish(&s, NULL, 0);
}

static void one_that_cannot_fit_the_budget_is_not_added(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    hearth_config *config = three_models(NULL), *large = demo_on_demand("large");
    set(config, "server.memory_budget_mb", "100");
    set(large, "models.large.n_seq_max", "200");
    set(large, "models.large.n_batch", "256");
    begin(&s, config);
    assert_int_equal(hearth_add_model(s.instance, large, "large", &error), HEARTH_NO_MEMORY);
    assert_says(error.message, "server.memory_budget_mb");
    hearth_config_free(large);
    finish(&s, NULL, 0);
}

static void as_many_are_added_as_there_is_room_for(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    begin(&s, DEMO(NULL));
    for (int i = 0; i < HEARTH_ADDED_MODELS; i++) {
        added(&s, "new");
        removed(&s, "new");
    }
    assert_int_equal(add(&s, "new", &error), HEARTH_NO_MEMORY);
    assert_string_equal(error.message, "256 models were added already: start hearth anew to add more");
    finish(&s, NULL, 0);
}

static void a_model_takes_the_name_of_one_that_was_left_out(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    hearth_error error;
    char *path = copy_of_demo();
    hearth_config *config = three_models(NULL);
    spoil(path);
    set(config, "models.a.path", path);
    set(config, "models.a.optional", "true");
    begin(&s, config);
    added(&s, "a");
    assert_int_equal(hearth_find_model(s.instance, "a", &error), 2);
    use(&s, &caller, 2);
    assert_int_equal(add(&s, "a", &error), HEARTH_INVALID);
    assert_string_equal(error.message, "there is a model 'a' already");
    assert_int_equal(hearth_remove_model(s.instance, "x", &error), HEARTH_NOT_FOUND);
    assert_string_equal(error.message, "model 'x' does not exist; there is: b, c, a");
    finish(&s, &caller, 1);
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void the_default_model_is_that_of_its_name_also_when_it_was_added_again(void **state)
{
    (void)state;
    struct scene s;
    hearth_error error;
    hearth_config *config = three_models(NULL);
    set(config, "server.default_model", "b");
    begin(&s, config);
    assert_int_equal(hearth_find_model(s.instance, NULL, &error), 1);
    removed(&s, "b");
    assert_int_equal(hearth_find_model(s.instance, NULL, &error), 0);
    added(&s, "b");
    assert_int_equal(hearth_find_model(s.instance, NULL, &error), 3);
    finish(&s, NULL, 0);
}

/* ---- Status and brief leases ---- */

struct onlooker {
    hearth *instance;
    _Atomic bool enough;
};

static void *look(void *ud)
{
    struct onlooker *onlooker = ud;
    hearth *instance = onlooker->instance;
    while (!atomic_load(&onlooker->enough)) {
        hearth_slot slots[8];
        hearth_model_info info;
        int32_t *tokens = NULL;
        size_t n = hearth_slots(instance, slots, 8);
        for (size_t i = 0; i < n && i < 8; i++)
            if (strlen(slots[i].model) != 1) abort();
        for (size_t i = 0; hearth_model(instance, i, &info); i++)
            if (strcmp(info.architecture, "llama") != 0) abort();
        if (hearth_tokenize(instance, "b", "Once", 4, true, true, &tokens, NULL) > 0) free(tokens);
        hearth_free(hearth_metrics(instance));
    }
    return NULL;
}

static void models_are_looked_at_while_they_are_loaded_and_unloaded(void **state)
{
    (void)state;
    enum { ROUNDS = 8 };
    struct scene s;
    struct caller callers[ROUNDS];
    pthread_t threads[2];
    char *budget = room_for_two();
    begin(&s, three_models(budget));
    struct onlooker onlooker = {.instance = s.instance};
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, look, &onlooker);
    for (size_t i = 0; i < ROUNDS; i++) use(&s, &callers[i], i % 3);
    atomic_store(&onlooker.enough, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    finish(&s, callers, ROUNDS);
    free(budget);
}

static void models_are_looked_at_while_others_come_and_go(void **state)
{
    (void)state;
    struct scene s;
    struct caller callers[4];
    hearth_error error;
    pthread_t threads[2];
    begin(&s, three_models(NULL));
    struct onlooker onlooker = {.instance = s.instance};
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, look, &onlooker);
    for (size_t i = 0; i < 4; i++) {
        added(&s, "d");
        use(&s, &callers[i], (size_t)hearth_find_model(s.instance, "d", &error));
        removed(&s, "d");
    }
    atomic_store(&onlooker.enough, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    finish(&s, callers, 4);
}

/* ---- Invariants ---- */

/* As where the queue of an embedding model is full. */
static void a_request_that_was_refused_with_its_model_does_not_count(void **state)
{
    (void)state;
    struct scene s;
    struct caller caller;
    hearth_error error;
    begin(&s, DEMO(NULL));
    use(&s, &caller, 0);
    struct lease lease = {.entry = &s.instance->entries[0]};
    assert_int_equal(lease_take(&lease, &error), LEASE_READY);
    assert_unload_refused(&s, "demo", HEARTH_BUSY, "unload: cannot unload, too many active-streams[1]");
    lease_end(&lease);
    unload(&s, 0);
    finish(&s, &caller, 1);
}

#ifndef NDEBUG

static struct lease stray = {.station = LEASE_QUEUED};

static void plant_no_model(struct model_entry *entry)
{
    entry->model = NULL;
}

static void plant_load(struct model_entry *entry)
{
    entry->presence = HEARTH_MODEL_LOADING;
}

static void plant_unknown_state(struct model_entry *entry)
{
    entry->presence = HEARTH_MODEL_REMOVED;
}

static void plant_request_of_an_unloaded_one(struct model_entry *entry)
{
    entry[1].n_requests = 1;
}

static void plant_brief_lease_of_an_unloaded_one(struct model_entry *entry)
{
    entry[1].n_brief = 1;
}

static void plant_active(struct model_entry *entry)
{
    entry->n_active = 1;
}

static void plant_waiting_count(struct model_entry *entry)
{
    entry->n_waiting = 1;
}

static void plant_half_a_list(struct model_entry *entry)
{
    entry->waiting.first = &stray;
}

static void plant_stray_lease(struct model_entry *entry)
{
    entry->waiting = (struct lease_list){&stray, &stray}; /* of no entry */
    entry->n_waiting = 1;
}

static void plant_untold_failure(struct model_entry *entry)
{
    stray.station = LEASE_FAILED; /* without an error */
    entry->manager->failed = (struct lease_list){&stray, &stray};
}

static void plant_order(struct model_entry *entry)
{
    entry->wanted_at = entry->manager->n_wanted + 1;
}

static void plant_wish_for_what_is_there(struct model_entry *entry)
{
    entry->asked = true;
}

static void plant_removed_and_loaded(struct model_entry *entry)
{
    atomic_store(&entry->removed, true);
}

static void plant_failure_without_reason(struct model_entry *entry)
{
    entry[1].presence = HEARTH_MODEL_FAILED;
}

static void plant_two_loads(struct model_entry *entry)
{
    entry[1].presence = entry[2].presence = HEARTH_MODEL_LOADING;
}

static void plant_less_memory(struct model_entry *entry)
{
    entry->manager->budget = entry->facts.bytes - 1;
}

/* In another process: whether the check ends it. */
static bool is_caught(hearth *instance, void (*plant)(struct model_entry *entry))
{
    struct model_manager *manager = instance->manager;
    int status = 0;
    pthread_mutex_lock(&manager->mutex);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        if (plant != NULL) plant(&instance->entries[0]);
        model_manager_check(manager);
        _exit(0);
    }
    pthread_mutex_unlock(&manager->mutex);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void what_breaks_an_invariant_of_the_manager_is_caught(void **state)
{
    (void)state;
    static void (*const plants[])(struct model_entry * entry) = {plant_no_model,
                                                                 plant_load,
                                                                 plant_unknown_state,
                                                                 plant_request_of_an_unloaded_one,
                                                                 plant_brief_lease_of_an_unloaded_one,
                                                                 plant_active,
                                                                 plant_waiting_count,
                                                                 plant_half_a_list,
                                                                 plant_stray_lease,
                                                                 plant_untold_failure,
                                                                 plant_order,
                                                                 plant_wish_for_what_is_there,
                                                                 plant_removed_and_loaded,
                                                                 plant_failure_without_reason,
                                                                 plant_two_loads,
                                                                 plant_less_memory};
    struct scene s;
    struct caller caller;
    begin(&s, three_models(NULL));
    use(&s, &caller, 0);
    assert_false(is_caught(s.instance, NULL));
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++)
        if (!is_caught(s.instance, plants[i])) fail_msg("fault %zu is not caught", i);
    finish(&s, &caller, 1);
}

#endif

int main(void)
{
    hearth_log_open("/dev/null", "error", "text", NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_on_demand_is_known_at_once_and_loaded_with_the_first_request),
        cmocka_unit_test(a_model_is_added_used_removed_and_added_again),
        cmocka_unit_test(one_of_the_configuration_can_be_removed_and_another_have_its_name),
        cmocka_unit_test(a_model_in_use_is_not_removed),
        cmocka_unit_test(who_has_found_a_model_before_it_was_removed_gets_none),
        cmocka_unit_test(what_cannot_be_added_leaves_no_trace),
        cmocka_unit_test(one_that_cannot_fit_the_budget_is_not_added),
        cmocka_unit_test(as_many_are_added_as_there_is_room_for),
        cmocka_unit_test(a_model_takes_the_name_of_one_that_was_left_out),
        cmocka_unit_test(the_default_model_is_that_of_its_name_also_when_it_was_added_again),
        cmocka_unit_test(models_are_looked_at_while_others_come_and_go),
        cmocka_unit_test(requests_that_come_together_load_a_model_once),
        cmocka_unit_test(what_a_request_asks_wrongly_is_told_without_loading),
        cmocka_unit_test(an_embedding_model_is_loaded_and_unloaded_as_well),
        cmocka_unit_test(tokenising_asks_for_a_model_that_is_not_there),
        cmocka_unit_test(an_idle_model_is_unloaded_by_the_clock_and_loaded_again),
        cmocka_unit_test(unloading_leaves_nothing_in_memory),
        cmocka_unit_test(a_running_request_keeps_its_model),
        cmocka_unit_test(what_is_not_loaded_cannot_be_unloaded),
        cmocka_unit_test(a_conversation_outlives_the_unloading_of_its_model),
        cmocka_unit_test(a_reader_may_outlive_its_model),
        cmocka_unit_test(the_least_recently_used_model_is_unloaded_for_another),
        cmocka_unit_test(a_model_waits_for_room_and_is_told_which_key_is_short),
        cmocka_unit_test(a_request_that_waits_for_its_model_can_be_cancelled_or_cut_off),
        cmocka_unit_test(what_can_never_have_room_is_refused_at_the_start),
        cmocka_unit_test(a_load_that_fails_is_told_and_tried_again_with_the_next_request),
        cmocka_unit_test(a_file_that_is_no_model_is_refused_at_the_start),
        cmocka_unit_test(an_optional_model_that_cannot_be_read_is_left_out),
        cmocka_unit_test(a_model_that_is_loaded_at_the_start_is_not_optional),
        cmocka_unit_test(the_end_may_come_in_the_middle_of_a_load),
        cmocka_unit_test(models_are_looked_at_while_they_are_loaded_and_unloaded),
        cmocka_unit_test(a_request_that_was_refused_with_its_model_does_not_count),
#ifndef NDEBUG
        cmocka_unit_test(what_breaks_an_invariant_of_the_manager_is_caught),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
