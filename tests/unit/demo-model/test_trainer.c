#include "checkpoint.h"
#include "documents.h"
#include "support.h"

static const struct stage stages[] = {
    {.steps = 3, .mix = {.longest = 120, .room = 160}, .batches = 3, .rate = 0.01f},
    {.steps = 4, .mix = {.longest = 200, .room = 256, .drills = 50}, .batches = 2, .rate = 0.01f, .falls = true},
};

static const struct plan plan = {.shape = TINY_SHAPE, .stages = stages, .n_stages = 2, .warm_up = 2, .seed = 3};

static void open_trainer(struct trainer *trainer, const struct tokenizer *tokenizer, int threads)
{
    hearth_error error = {0};
    if (trainer_open(trainer, &plan, tokenizer, threads, &error) != 0) fail_msg("%s", error.message);
}

static void rates_rise_and_fall(void **state)
{
    (void)state;
    assert_float_equal(trainer_rate(&plan, 0, 0), 0.005f, 1e-6f);
    assert_float_equal(trainer_rate(&plan, 0, 2), 0.01f, 1e-6f);
    assert_float_equal(trainer_rate(&plan, 1, 2), 0.005f, 1e-6f);
    assert_float_equal(trainer_rate(&plan, 1, 3), 0.0025f, 1e-6f);
}

static void a_batch_depends_on_seed_and_number_alone(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    const struct documents documents = {&tokenizer, 3}, others = {&tokenizer, 4};
    const struct mix mix = {.longest = 200, .room = 512, .drills = 50};
    for (uint64_t i = 0; i < 20; i++) {
        struct batch one = {0}, again = {0}, other = {0};
        documents_fill(&documents, i, &mix, &one);
        documents_fill(&documents, i, &mix, &again);
        documents_fill(&others, i, &mix, &other);
        assert_in_range(one.n_tokens, 200, 512);
        assert_int_equal(one.n_tokens, again.n_tokens);
        assert_memory_equal(one.tokens, again.tokens, (size_t)one.n_tokens * sizeof *one.tokens);
        assert_memory_equal(one.weights, again.weights, (size_t)one.n_tokens * sizeof *one.weights);
        assert_true(one.n_tokens != other.n_tokens ||
                    memcmp(one.tokens, other.tokens, (size_t)one.n_tokens * sizeof *one.tokens) != 0);
        for (int d = 0; d < one.n_documents; d++) assert_in_range(one.starts[d + 1] - one.starts[d], 10, 200);
        batch_release(&one);
        batch_release(&again);
        batch_release(&other);
    }
    tokenizer_close(&tokenizer);
}

static bool speaks_of(const struct tokenizer *tokenizer, const struct batch *batch, const char *text)
{
    char *all = tokenizer_decode(tokenizer, batch->tokens, batch->n_tokens);
    bool does = strstr(all, text) != NULL;
    free(all);
    return does;
}

/* A system prompt that says who the model is stands in no drill. */
static void the_mix_says_how_many_documents_are_drills(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    const struct documents documents = {&tokenizer, 3};
    int personas[2] = {0};
    for (int drills = 0; drills <= 100; drills += 100) {
        const struct mix mix = {.longest = 200, .room = 512, .drills = drills};
        struct batch batch = {0};
        for (uint64_t i = 0; i < 40; i++) {
            documents_fill(&documents, i, &mix, &batch);
            if (speaks_of(&tokenizer, &batch, "assistant.")) personas[drills / 100]++;
        }
        batch_release(&batch);
    }
    assert_in_range(personas[0], 5, 40);
    assert_int_equal(personas[1], 0);
    tokenizer_close(&tokenizer);
}

/* What the assistant says counts, with the end of the turn; the rest counts little. */
static void weights_follow_who_speaks(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    struct conversation conversation = {0};
    struct batch batch = {0};
    conversation_add(&conversation, ROLE_USER, "My name is Ottilie.");
    conversation_add(&conversation, ROLE_ASSISTANT, "Nice to meet you, Ottilie.");
    conversation_add(&conversation, ROLE_USER, "Hello.");
    conversation_add(&conversation, ROLE_ASSISTANT, "Hi!")->foreign = true;
    documents_add(&tokenizer, &conversation, &batch);
    int first = -1, last = -1;
    for (int i = 0; i < batch.n_tokens; i++) {
        if (batch.weights[i] < 1.0f) continue;
        if (first < 0) first = i;
        last = i;
    }
    for (int i = first; i <= last; i++) assert_true(batch.weights[i] == 1.0f);
    char *spoken = tokenizer_decode(&tokenizer, batch.tokens + first, last + 1 - first);
    assert_string_equal(spoken, "Nice to meet you, Ottilie.<|im_end|>");
    free(spoken);
    batch_release(&batch);
    conversation_release(&conversation);
    tokenizer_close(&tokenizer);
}

static void one_thread_and_three_learn_the_same(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    struct trainer one, three;
    open_trainer(&one, &tokenizer, 1);
    open_trainer(&three, &tokenizer, 3);
    while (one.stage < plan.n_stages) {
        struct step_report a = trainer_step(&one), b = trainer_step(&three);
        assert_int_equal(a.tokens, b.tokens);
        double difference = a.loss.loss / a.loss.weight - b.loss.loss / b.loss.weight;
        assert_true(difference < 2e-3 && difference > -2e-3);
    }
    assert_int_equal(three.stage, plan.n_stages);
    assert_true(trainer_cost_left(&one) == 0);
    trainer_close(&one);
    trainer_close(&three);
    tokenizer_close(&tokenizer);
}

static void a_training_is_resumed_where_it_was_saved(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    struct trainer first, second;
    open_trainer(&first, &tokenizer, 1);
    open_trainer(&second, &tokenizer, 1);
    char *path = in_folder("checkpoint");
    hearth_error error = {0};
    assert_int_equal(checkpoint_load(&second, path, &error), HEARTH_NOT_FOUND);
    for (int i = 0; i < 4; i++) trainer_step(&first);
    assert_int_equal(checkpoint_save(&first, path, &error), 0);
    assert_int_equal(checkpoint_load(&second, path, &error), 0);
    assert_int_equal(second.stage, 1);
    assert_int_equal(second.step, 1);
    while (first.stage < plan.n_stages) {
        struct step_report a = trainer_step(&first), b = trainer_step(&second);
        assert_true(a.loss.loss == b.loss.loss);
    }
    assert_memory_equal(first.weights, second.weights, first.layout.size * sizeof(float));
    trainer_close(&first);
    trainer_close(&second);
    free(path);
    tokenizer_close(&tokenizer);
}

static void a_checkpoint_of_another_plan_or_a_damaged_one_is_refused(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    struct trainer trainer, other;
    open_trainer(&trainer, &tokenizer, 1);
    struct plan another = plan;
    char *path = in_folder("checkpoint");
    hearth_error error = {0};
    another.seed++;
    assert_int_equal(trainer_open(&other, &another, &tokenizer, 1, &error), 0);
    assert_int_equal(checkpoint_save(&trainer, path, &error), 0);
    assert_int_equal(checkpoint_load(&other, path, &error), HEARTH_INVALID);
    assert_non_null(strstr(error.message, "another training"));
    assert_int_equal(truncate(path, 5000), 0);
    assert_int_equal(checkpoint_load(&trainer, path, &error), HEARTH_INVALID);
    assert_non_null(strstr(error.message, "damaged"));
    trainer_close(&trainer);
    trainer_close(&other);
    free(path);
    tokenizer_close(&tokenizer);
}

static int open_all(void **state)
{
    if (open_folder(state) != 0) return -1;
    write_vocabulary(&plan.shape);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_rise_and_fall),
        cmocka_unit_test(a_batch_depends_on_seed_and_number_alone),
        cmocka_unit_test(the_mix_says_how_many_documents_are_drills),
        cmocka_unit_test(weights_follow_who_speaks),
        cmocka_unit_test(one_thread_and_three_learn_the_same),
        cmocka_unit_test(a_training_is_resumed_where_it_was_saved),
        cmocka_unit_test(a_checkpoint_of_another_plan_or_a_damaged_one_is_refused),
    };
    return cmocka_run_group_tests(tests, open_all, remove_folder);
}
