/* Presets: a name for a model, a system message and sampling parameters, in every request that names it. */
#include "support.h"

#include <math.h>

#define HELLO "[{\"role\":\"user\",\"content\":\"Who are you?\"}]"

static hearth_preset preset_of(const char *name, const char *model, const char *system)
{
    return (hearth_preset){.name = name,
                           .model = model,
                           .system = system,
                           .sampling = hearth_params_default().sampling,
                           .max_tokens = HEARTH_UNSET};
}

static void add(hearth *instance, const hearth_preset *preset)
{
    hearth_error error;
    if (hearth_set_preset(instance, preset, &error) != HEARTH_OK) fail_msg("%s", error.message);
}

/* The prompt of a request, as text; to be freed. */
static char *prompt_of(hearth *instance, struct caller *caller, const char *model, const char *messages)
{
    hearth_error error;
    hearth_params params = hearth_params_default();
    params.model = model;
    params.messages = json_of(messages);
    params.max_tokens = 1;
    params.keep_prompt = true;
    caller_init(caller);
    caller_submit(caller, instance, &params);
    if (hearth_wait(caller->request, &error) != HEARTH_OK) fail_msg("%s", error.message);
    hearth_prompt prompt = hearth_request_prompt(caller->request);
    return mem_strndup(prompt.text, prompt.len);
}

static void the_system_message_is_put_before_messages_without_one(void **state)
{
    (void)state;
    struct caller callers[6];
    hearth *instance = start(demo_config(NULL));
    hearth_preset preset = preset_of("pirate:latest", "demo", "You are a pirate.");
    add(instance, &preset);
    static const char said[] =
        "[{\"role\":\"system\",\"content\":\"You are a pirate.\"},{\"role\":\"user\",\"content\":\"Who are you?\"}]";
    static const char own[] =
        "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Who are you?\"}]";
    char *expected = prompt_of(instance, &callers[0], "demo", said);
    char *expected_own = prompt_of(instance, &callers[1], "demo", own);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "pirate" : "pirate:latest";
        char *with = prompt_of(instance, &callers[2 + i], name, HELLO);
        char *without = prompt_of(instance, &callers[4 + i], name, own);
        assert_string_equal(with, expected);
        assert_string_equal(without, expected_own);
        free(with);
        free(without);
    }
    free(expected);
    free(expected_own);
    end(instance, callers, 6);
}

static void its_sampling_and_limits_hold_where_the_request_says_nothing(void **state)
{
    (void)state;
    static const char *const stop[] = {"zzz"};
    struct caller callers[2];
    hearth *instance = start(demo_config(NULL));
    hearth_preset preset = preset_of("cool", "demo", NULL);
    preset.sampling.temperature = 0.25;
    preset.sampling.top_k = 7;
    preset.sampling.seed = 11;
    preset.max_tokens = 3;
    preset.stop = stop;
    preset.n_stop = 1;
    add(instance, &preset);
    for (int i = 0; i < 2; i++) {
        struct caller *caller = &callers[i];
        hearth_error error;
        hearth_params params = text_params("Today is", 0);
        params.sampling = hearth_params_default().sampling;
        params.model = "cool";
        params.max_tokens = i == 0 ? HEARTH_UNSET : 2;
        if (i == 1) params.sampling.top_k = 5;
        caller_init(caller);
        caller_submit(caller, instance, &params);
        if (hearth_wait(caller->request, &error) != HEARTH_OK) fail_msg("%s", error.message);
        const hearth_sampling *sampling = hearth_request_sampling(caller->request);
        assert_true(fabs(sampling->temperature - 0.25) < 1e-9);
        assert_int_equal(sampling->top_k, i == 0 ? 7 : 5);
        assert_int_equal(sampling->seed, 11);
        assert_int_equal(caller->result.predicted_n, i == 0 ? 3 : 2);
    }
    end(instance, callers, 2);
}

static void one_made_of_another_has_what_it_leaves_open(void **state)
{
    (void)state;
    hearth *instance = start(demo_config(NULL));
    hearth_preset first = preset_of("a", "demo", "You are a pirate.");
    first.sampling.top_k = 7;
    add(instance, &first);
    hearth_preset second = preset_of("b", "a", NULL);
    second.sampling.temperature = 0;
    add(instance, &second);
    assert_int_equal(hearth_remove_preset(instance, "a", NULL), HEARTH_OK);
    const hearth_preset *found = hearth_find_preset(instance, "b");
    assert_string_equal(found->model, "demo");
    assert_string_equal(found->system, "You are a pirate.");
    assert_int_equal(found->sampling.top_k, 7);
    assert_true(found->sampling.temperature == 0);
    hearth_release_preset(found);
    hearth_close(instance);
}

static void names_are_found_listed_in_order_and_refused(void **state)
{
    (void)state;
    hearth *instance = start(demo_config(NULL));
    hearth_error error;
    static const char *const names[] = {"c", "a", "bb", "b"};
    for (size_t i = 0; i < 4; i++) {
        hearth_preset preset = preset_of(names[i], "demo", NULL);
        add(instance, &preset);
        add(instance, &preset);
    }
    static const char *const sorted[] = {"a", "b", "bb", "c"};
    for (size_t i = 0; i < 4; i++) {
        const hearth_preset *preset = hearth_preset_at(instance, i);
        assert_string_equal(preset->name, sorted[i]);
        hearth_release_preset(preset);
    }
    assert_null(hearth_preset_at(instance, 4));
    assert_true(hearth_find_model(instance, "bb", NULL) >= 0);
    assert_int_equal(hearth_remove_preset(instance, "bb", NULL), HEARTH_OK);
    assert_int_equal(hearth_remove_preset(instance, "bb", &error), HEARTH_NOT_FOUND);
    hearth_preset bad = preset_of("demo", "demo", NULL);
    assert_int_equal(hearth_set_preset(instance, &bad, &error), HEARTH_INVALID);
    assert_string_equal(error.param, "name");
    bad = preset_of("x", "nobody", NULL);
    assert_int_equal(hearth_set_preset(instance, &bad, &error), HEARTH_NOT_FOUND);
    bad = preset_of("x", "demo", NULL);
    bad.sampling.top_p = 7;
    assert_int_equal(hearth_set_preset(instance, &bad, &error), HEARTH_INVALID);
    assert_string_equal(error.param, "top_p");
    hearth_close(instance);
}

static void a_model_that_comes_later_has_its_name(void **state)
{
    (void)state;
    struct caller callers[3];
    hearth_error error;
    hearth *instance = start(demo_config(NULL));
    hearth_preset preset = preset_of("late", "demo", "You are a pirate.");
    add(instance, &preset);
    char *before = prompt_of(instance, &callers[0], "late", HELLO);
    assert_non_null(strstr(before, "pirate"));
    assert_int_equal(hearth_remove_model(instance, "late", &error), HEARTH_NOT_FOUND);
    hearth_config *config = hearth_config_new();
    add_demo(config, "late");
    set(config, "models.late.load", "demand");
    if (hearth_add_model(instance, config, "late", &error) != HEARTH_OK) fail_msg("%s", error.message);
    hearth_config_free(config);
    char *after = prompt_of(instance, &callers[1], "late", HELLO),
         *own = prompt_of(instance, &callers[2], "demo", HELLO);
    assert_string_equal(after, own);
    assert_null(hearth_find_preset(instance, "late"));
    free(before);
    free(after);
    free(own);
    end(instance, callers, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_message_is_put_before_messages_without_one),
        cmocka_unit_test(its_sampling_and_limits_hold_where_the_request_says_nothing),
        cmocka_unit_test(one_made_of_another_has_what_it_leaves_open),
        cmocka_unit_test(names_are_found_listed_in_order_and_refused),
        cmocka_unit_test(a_model_that_comes_later_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
