/* Embeddings and reranking scores through hearth.h: types of models, inputs, shapes of vectors, cancelling, counters.
 */
#include "support.h"

#include <math.h>
#include <unistd.h>

static char *folder, *bert, *ranker, *decoder;

static char *make_file(const char *arch, const char *vocab, const char *options)
{
    char *path = mem_format("%s/%s.gguf", folder, arch);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s' %s -o '%s' >/dev/null",
                               getenv("HEARTH_BUILD"), arch, vocab, options, path);
    if (system(command) != 0) fail_msg("failed: %s", command);
    free(command);
    return path;
}

static int make_models(void **state)
{
    (void)state;
    folder = mem_format("%s/unit-lib-XXXXXX", getenv("HEARTH_BUILD"));
    assert_non_null(mkdtemp(folder));
    char *demo = source_path("models/demo.gguf");
    bert = make_file("bert", "bert-bge", "");
    ranker = make_file("reranker", "bert-bge", "");
    decoder = make_file("qwen3", demo, "");
    free(demo);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    free(command);
    free(folder);
    free(bert);
    free(ranker);
    free(decoder);
    return 0;
}

/* ---- Instances ---- */

static void set_key(hearth_config *config, const char *model, const char *name, const char *value)
{
    char *key = mem_format("models.%s.%s", model, name);
    set(config, key, value);
    free(key);
}

static void add_model(hearth_config *config, const char *name, const char *path)
{
    set(config, "cache.tiers.disk.quota_mb", "0");
    set_key(config, name, "path", path);
    set_key(config, name, "threads", "1");
}

/* A chat model first, then an embedding and a rerank model. */
static hearth *start_three(void)
{
    hearth_config *config = DEMO("context_window", "256");
    add_model(config, "bert", bert);
    add_model(config, "ranker", ranker);
    return start(config);
}

/* ---- Requests ---- */

struct waiter {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int ended;
    hearth_embedding *request;
    const hearth_embedded *result; /* NULL: it failed */
    hearth_error error;
};

static void on_end(void *ud, const hearth_embedded *result, const hearth_error *error)
{
    struct waiter *waiter = ud;
    pthread_mutex_lock(&waiter->mutex);
    waiter->result = result;
    if (error != NULL) waiter->error = *error;
    waiter->ended++;
    pthread_cond_broadcast(&waiter->changed);
    pthread_mutex_unlock(&waiter->mutex);
}

static struct waiter *new_waiter(void)
{
    struct waiter *waiter = mem_alloc(sizeof *waiter);
    pthread_mutex_init(&waiter->mutex, NULL);
    pthread_cond_init(&waiter->changed, NULL);
    return waiter;
}

static struct waiter *embed(hearth *instance, const hearth_embed_params *params)
{
    struct waiter *waiter = new_waiter();
    waiter->request = hearth_embed(instance, params, on_end, waiter, &waiter->error);
    if (waiter->request == NULL) return waiter;
    pthread_mutex_lock(&waiter->mutex);
    while (waiter->ended == 0) pthread_cond_wait(&waiter->changed, &waiter->mutex);
    pthread_mutex_unlock(&waiter->mutex);
    return waiter;
}

static void done(struct waiter *waiter)
{
    assert_int_equal(waiter->ended, waiter->request != NULL);
    hearth_embedding_release(waiter->request);
    free(waiter);
}

static void assert_fails(hearth *instance, const hearth_embed_params *params, hearth_code code, const char *param)
{
    struct waiter *waiter = embed(instance, params);
    assert_null(waiter->result);
    assert_int_equal(waiter->error.code, code);
    assert_string_equal(waiter->error.param, param);
    done(waiter);
}

static hearth_input text_input(const char *text)
{
    return (hearth_input){.text = text, .len = strlen(text)};
}

static hearth_embed_params params_of(const char *model, const hearth_input *inputs, size_t n)
{
    hearth_embed_params params = hearth_embed_params_default();
    params.model = model;
    params.inputs = inputs;
    params.n_inputs = n;
    return params;
}

static double length(const hearth_vector *vector)
{
    double sum = 0;
    for (int32_t i = 0; i < vector->width; i++) sum += (double)vector->v[i] * (double)vector->v[i];
    return sqrt(sum);
}

/* ---- Types ---- */

static void models_say_what_they_are_for(void **state)
{
    (void)state;
    hearth *instance = start_three();
    hearth_model_info info;
    static const char *const types[] = {"chat", "embedding", "rerank"}, *const poolings[] = {"", "mean", "rank"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(hearth_model(instance, i, &info));
        assert_string_equal(hearth_model_type_name(info.type), types[i]);
        assert_string_equal(hearth_pooling_name(info.pooling), poolings[i]);
    }
    assert_int_equal(info.context_window, 512); /* what the encoder was trained for */
    hearth_close(instance);
}

static void a_request_without_a_model_goes_to_the_first_of_its_type(void **state)
{
    (void)state;
    hearth *instance = start_three();
    hearth_input input = text_input("hello");
    hearth_embed_params params = params_of(NULL, &input, 1);
    struct waiter *vectors = embed(instance, &params);
    assert_string_equal(vectors->result->model, "bert");
    params.query = "q";
    params.query_len = 1;
    struct waiter *scores = embed(instance, &params);
    assert_string_equal(scores->result->model, "ranker");
    done(vectors);
    done(scores);
    hearth_close(instance);
}

static void a_request_to_a_model_of_another_type_is_told_what_that_is_for(void **state)
{
    (void)state;
    hearth *instance = start_three();
    hearth_error error;
    hearth_input input = text_input("hello");
    hearth_embed_params params = params_of("demo", &input, 1);
    assert_fails(instance, &params, HEARTH_UNSUPPORTED, "model");
    params.model = "ranker";
    assert_fails(instance, &params, HEARTH_UNSUPPORTED, "model");
    params.model = "nobody";
    assert_fails(instance, &params, HEARTH_NOT_FOUND, "model");
    hearth_params chat = text_params("hello", 1);
    chat.model = "bert";
    assert_null(hearth_submit(instance, &chat, caller_event, NULL, &error));
    assert_int_equal(error.code, HEARTH_UNSUPPORTED);
    assert_says(error.message, "of the type embedding: it turns inputs into vectors");
    hearth_close(instance);
}

static void keys_make_an_embedding_model_of_a_decoder(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *type, *pooling;
    } rows[] = {{"embedding", "auto", "chat", ""},
                {"embedding", "true", "embedding", "last"},
                {"pooling", "mean", "embedding", "mean"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_config *config = hearth_config_new();
        hearth_model_info info;
        add_model(config, "m", decoder);
        set_key(config, "m", rows[i].key, rows[i].value);
        hearth *instance = start(config);
        assert_true(hearth_model(instance, 0, &info));
        assert_string_equal(hearth_model_type_name(info.type), rows[i].type);
        assert_string_equal(hearth_pooling_name(info.pooling), rows[i].pooling);
        hearth_close(instance);
    }
}

static void a_model_without_a_reranking_head_is_not_loaded_for_it(void **state)
{
    (void)state;
    hearth_error error;
    hearth_config *config = hearth_config_new();
    add_model(config, "m", bert);
    set_key(config, "m", "pooling", "rank");
    hearth *instance = hearth_open(config, &error);
    hearth_config_free(config);
    assert_int_equal(hearth_load(instance, NULL, NULL, &error), HEARTH_UNSUPPORTED);
    assert_says(error.message, "models.m: the model has no classification head");
    hearth_close(instance);
}

/* ---- Vectors ---- */

static void vectors_have_the_length_one_and_the_dimensions_asked_for(void **state)
{
    (void)state;
    hearth *instance = start_three();
    hearth_input inputs[] = {text_input("hello world"), text_input("something else")};
    hearth_embed_params params = params_of("bert", inputs, 2);
    struct waiter *whole = embed(instance, &params);
    params.dimensions = 8;
    struct waiter *cut = embed(instance, &params);
    params.dimensions = 0;
    params.norm = -1;
    struct waiter *raw = embed(instance, &params);
    for (size_t i = 0; i < 2; i++) {
        const hearth_vector *w = &whole->result->inputs[i], *c = &cut->result->inputs[i], *r = &raw->result->inputs[i];
        assert_int_equal(w->width, 64);
        assert_int_equal(c->width, 8);
        assert_true(fabs(length(w) - 1) < 1e-5 && fabs(length(c) - 1) < 1e-5);
        assert_true(fabs(length(r) - 1) > 0.1);
        double factor = (double)c->v[0] / (double)w->v[0];
        for (int k = 0; k < 8; k++) assert_true(fabs((double)c->v[k] - factor * (double)w->v[k]) < 1e-5);
        for (int k = 0; k < 64; k++) assert_true(fabs((double)r->v[k] - length(r) * (double)w->v[k]) < 1e-4);
    }
    done(whole);
    done(cut);
    done(raw);
    params.dimensions = 65;
    assert_fails(instance, &params, HEARTH_INVALID, "dimensions");
    hearth_close(instance);
}

static void text_and_its_tokens_give_the_same_vector(void **state)
{
    (void)state;
    hearth *instance = start_three();
    int32_t *tokens;
    int32_t n = hearth_tokenize(instance, "bert", "hello world", 11, true, false, &tokens, NULL);
    hearth_input inputs[] = {text_input("hello world"), {.tokens = tokens, .n_tokens = (size_t)n}};
    hearth_embed_params params = params_of("bert", inputs, 2);
    struct waiter *waiter = embed(instance, &params);
    assert_int_equal(waiter->result->inputs[0].n_tokens, n);
    assert_int_equal(waiter->result->n_tokens, 2 * n);
    for (int i = 0; i < 64; i++)
        assert_true(fabs((double)waiter->result->inputs[0].v[i] - (double)waiter->result->inputs[1].v[i]) < 1e-3);
    done(waiter);
    free(tokens);
    hearth_close(instance);
}

/* BOS and EOS are those of the first part. */
static void parts_give_the_vector_of_their_tokens(void **state)
{
    (void)state;
    hearth *instance = start_three();
    int32_t *first, *last;
    int32_t n = hearth_tokenize(instance, "bert", "hello", 5, true, false, &first, NULL);
    int32_t n_last = hearth_tokenize(instance, "bert", " world", 6, false, false, &last, NULL);
    int32_t tokens[16];
    memcpy(tokens, first, (size_t)n * sizeof *tokens);
    tokens[n] = 700;
    memcpy(tokens + n + 1, last, (size_t)n_last * sizeof *tokens);
    const hearth_part parts[] = {{.text = "hello", .len = 5}, {.token = 700}, {.text = " world", .len = 6}};
    hearth_input inputs[] = {{.parts = parts, .n_parts = 3}, {.tokens = tokens, .n_tokens = (size_t)(n + 1 + n_last)}};
    hearth_embed_params params = params_of("bert", inputs, 2);
    struct waiter *waiter = embed(instance, &params);
    assert_int_equal(waiter->result->inputs[0].n_tokens, n + 1 + n_last);
    for (int i = 0; i < 64; i++)
        assert_true(fabs((double)waiter->result->inputs[0].v[i] - (double)waiter->result->inputs[1].v[i]) < 1e-3);
    done(waiter);
    const hearth_part beyond = {.token = 1 << 20};
    hearth_input wrong = {.parts = &beyond, .n_parts = 1};
    params = params_of("bert", &wrong, 1);
    assert_fails(instance, &params, HEARTH_INVALID, "input");
    free(first);
    free(last);
    hearth_close(instance);
}

static void without_pooling_every_token_has_a_vector(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    add_model(config, "m", bert);
    set_key(config, "m", "pooling", "none");
    hearth *instance = start(config);
    hearth_input input = text_input("hello world");
    hearth_embed_params params = params_of("m", &input, 1);
    struct waiter *waiter = embed(instance, &params);
    assert_int_equal(waiter->result->inputs[0].n_vectors, waiter->result->inputs[0].n_tokens);
    assert_true(waiter->result->inputs[0].n_vectors >= 4);
    double length = 0; /* as the model gives it, whatever the norm */
    for (int i = 0; i < 64; i++) length += pow((double)waiter->result->inputs[0].v[i], 2);
    assert_true(fabs(sqrt(length) - 1) > 1e-2);
    params.dimensions = 8;
    struct waiter *cut = embed(instance, &params);
    const float *second = waiter->result->inputs[0].v + 64, *second_cut = cut->result->inputs[0].v + 8;
    double factor = (double)second_cut[0] / (double)second[0];
    for (int i = 0; i < 8; i++) assert_true(fabs((double)second_cut[i] - factor * (double)second[i]) < 1e-5);
    done(waiter);
    done(cut);
    hearth_close(instance);
}

/* ---- Inputs ---- */

static void inputs_that_do_not_fit_are_refused_or_shortened_as_asked(void **state)
{
    (void)state;
    hearth *instance = start_three();
    struct buf text = {0};
    for (int i = 0; i < 600; i++) buf_puts(&text, "word ");
    hearth_input inputs[] = {text_input("short"), text_input(text.v)};
    hearth_embed_params params = params_of("bert", inputs, 2);
    struct waiter *refused = embed(instance, &params);
    assert_int_equal(refused->error.code, HEARTH_TOO_LONG);
    assert_says(refused->error.message,
                "input[1] has 602 tokens, which is too large to process. This model's maximum context length is 512");
    params.truncate = HEARTH_TRUNCATE_WINDOW;
    struct waiter *window = embed(instance, &params);
    assert_int_equal(window->result->inputs[0].n_tokens, 3);
    assert_int_equal(window->result->inputs[1].n_tokens, 512);
    params.truncate = 10;
    struct waiter *ten = embed(instance, &params);
    assert_int_equal(ten->result->inputs[1].n_tokens, 10);
    done(refused);
    done(window);
    done(ten);
    buf_release(&text);
    hearth_close(instance);
}

static void wrong_inputs_are_named(void **state)
{
    (void)state;
    hearth *instance = start_three();
    int32_t beyond = 1 << 20, below = -1;
    hearth_input many[HEARTH_INPUTS_MAX + 1] = {{.text = "a", .len = 1}};
    hearth_embed_params params = params_of("bert", many, HEARTH_INPUTS_MAX + 1);
    assert_fails(instance, &params, HEARTH_INVALID, "input");
    params.n_inputs = 0;
    assert_fails(instance, &params, HEARTH_INVALID, "input");
    hearth_input wrong[] = {{.tokens = &beyond, .n_tokens = 1}, {.tokens = &below, .n_tokens = 1}, {.text = NULL}};
    for (size_t i = 0; i < 3; i++) {
        params = params_of("bert", &wrong[i], 1);
        assert_fails(instance, &params, HEARTH_INVALID, "input");
    }
    params = params_of("ranker", wrong, 1); /* documents are texts */
    params.query = "q";
    params.query_len = 1;
    assert_fails(instance, &params, HEARTH_INVALID, "documents");
    hearth_input nothing = {.tokens = &beyond, .n_tokens = 0};
    params = params_of("bert", &nothing, 1);
    assert_fails(instance, &params, HEARTH_INVALID, "input");
    hearth_close(instance);
}

/* ---- Reranking scores ---- */

static void scores_are_from_0_to_1_unless_asked_raw(void **state)
{
    (void)state;
    hearth *instance = start_three();
    hearth_input documents[] = {text_input("one"), text_input("two three"), text_input("")};
    hearth_embed_params params = params_of("ranker", documents, 3);
    params.query = "what";
    params.query_len = 4;
    struct waiter *scores = embed(instance, &params);
    params.raw_scores = true;
    struct waiter *raw = embed(instance, &params);
    for (size_t i = 0; i < 3; i++) {
        const hearth_vector *s = &scores->result->inputs[i], *r = &raw->result->inputs[i];
        assert_int_equal(s->width, 1);
        assert_true(fabs((double)s->v[0] - 1 / (1 + exp(-(double)r->v[0]))) < 1e-5);
    }
    assert_true(scores->result->inputs[0].v[0] != scores->result->inputs[1].v[0]);
    done(scores);
    done(raw);
    hearth_close(instance);
}

static void a_query_that_leaves_no_room_is_refused(void **state)
{
    (void)state;
    hearth *instance = start_three();
    struct buf text = {0};
    for (int i = 0; i < 600; i++) buf_puts(&text, "word ");
    hearth_input documents[] = {text_input("one"), text_input(text.v)};
    hearth_embed_params params = params_of("ranker", documents, 2);
    params.truncate = HEARTH_TRUNCATE_WINDOW;
    params.query = "what";
    params.query_len = 4;
    struct waiter *cut = embed(instance, &params);
    assert_int_equal(cut->result->inputs[1].n_tokens, 512);
    done(cut);
    params.max_document_tokens = 1;
    cut = embed(instance, &params);
    assert_int_equal(cut->result->inputs[1].n_tokens, cut->result->inputs[0].n_tokens);
    done(cut);
    params.max_document_tokens = -1;
    assert_fails(instance, &params, HEARTH_INVALID, "max_document_tokens");
    params.max_document_tokens = 0;
    params.query = text.v;
    params.query_len = text.len;
    assert_fails(instance, &params, HEARTH_TOO_LONG, "query");
    buf_release(&text);
    hearth_close(instance);
}

/* ---- Endings, numbers ---- */

static void after_draining_nothing_is_taken_and_everything_has_ended(void **state)
{
    (void)state;
    hearth *instance = start_three();
    hearth_input inputs[64];
    for (int i = 0; i < 64; i++) inputs[i] = text_input("some words to be computed");
    hearth_embed_params params = params_of("bert", inputs, 64);
    struct waiter *waiters[8];
    for (int i = 0; i < 8; i++) {
        waiters[i] = new_waiter();
        waiters[i]->request = hearth_embed(instance, &params, on_end, waiters[i], &waiters[i]->error);
    }
    hearth_embedding_cancel(waiters[7]->request);
    hearth_drain(instance, 0);
    for (int i = 0; i < 8; i++) done(waiters[i]);
    assert_fails(instance, &params, HEARTH_UNAVAILABLE, "");
    hearth_close(instance);
}

static void calls_inputs_and_tokens_are_counted(void **state)
{
    (void)state;
    hearth *instance = start_three();
    hearth_input inputs[64];
    for (int i = 0; i < 64; i++) inputs[i] = text_input("word");
    hearth_embed_params params = params_of("bert", inputs, 64);
    struct waiter *waiter = embed(instance, &params);
    done(waiter);
    char *metrics = hearth_metrics(instance);
    assert_says(metrics, "hearth_embed_decode_calls_total{model=\"bert\"} 1\n");
    assert_says(metrics, "hearth_embed_inputs_total{model=\"bert\"} 64\n");
    assert_says(metrics, "hearth_embed_tokens_total{model=\"bert\"} 192\n");
    assert_says(metrics, "hearth_decode_calls_total{model=\"demo\"} 0\n");
    assert_null(strstr(metrics, "hearth_decode_calls_total{model=\"bert\"}"));
    assert_int_equal(hearth_slots(instance, NULL, 0), 1); /* the chat model's */
    hearth_free(metrics);
    hearth_close(instance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_say_what_they_are_for),
        cmocka_unit_test(a_request_without_a_model_goes_to_the_first_of_its_type),
        cmocka_unit_test(a_request_to_a_model_of_another_type_is_told_what_that_is_for),
        cmocka_unit_test(keys_make_an_embedding_model_of_a_decoder),
        cmocka_unit_test(a_model_without_a_reranking_head_is_not_loaded_for_it),
        cmocka_unit_test(vectors_have_the_length_one_and_the_dimensions_asked_for),
        cmocka_unit_test(text_and_its_tokens_give_the_same_vector),
        cmocka_unit_test(parts_give_the_vector_of_their_tokens),
        cmocka_unit_test(without_pooling_every_token_has_a_vector),
        cmocka_unit_test(inputs_that_do_not_fit_are_refused_or_shortened_as_asked),
        cmocka_unit_test(wrong_inputs_are_named),
        cmocka_unit_test(scores_are_from_0_to_1_unless_asked_raw),
        cmocka_unit_test(a_query_that_leaves_no_room_is_refused),
        cmocka_unit_test(after_draining_nothing_is_taken_and_everything_has_ended),
        cmocka_unit_test(calls_inputs_and_tokens_are_counted),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
