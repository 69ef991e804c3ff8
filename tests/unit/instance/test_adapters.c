/* LoRA adapters through hearth.h: by number, with scales per request, with default scales changed at run time; and the
 * scopes and identities of different sets. */
#include "support.h"

#include "instance/models/adapters.h"
#include "instance/models/loaded_model.h"

#include <math.h>
#include <unistd.h>

static char *folder, *lora; /* lora: the value of the key */

/* The demo model with two adapters: scales 1 and 0. */
static hearth *start_with_adapters(void)
{
    return start(DEMO("lora", lora));
}

static void run_command(char *command)
{
    if (system(command) != 0) fail_msg("failed: %s", command);
    free(command);
}

/* ---- Requests ---- */

static void assert_refused(hearth *instance, const hearth_lora *wanted, size_t n, const char *expected)
{
    hearth_error error = {0};
    hearth_params params = text_params("Once", 1);
    params.lora = wanted;
    params.n_lora = n;
    assert_null(hearth_submit(instance, &params, caller_event, NULL, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_string_equal(error.param, "lora");
    assert_says(error.message, expected);
}

static void wrong_adapters_are_refused(void **state)
{
    (void)state;
    hearth *instance = start_with_adapters();
    assert_refused(instance, (const hearth_lora[]){{2, 1}}, 1, "there is no adapter 2");
    assert_refused(instance, (const hearth_lora[]){{-1, 1}}, 1, "there is no adapter -1");
    assert_refused(instance, (const hearth_lora[]){{1, 1}, {0, 1}, {1, 0}}, 3, "adapter 1 is named twice");
    assert_refused(instance, (const hearth_lora[]){{0, (double)NAN}}, 1, "scale");
    assert_refused(instance, (const hearth_lora[]){{0, 1e6}}, 1, "scale");
    hearth_close(instance);
    instance = start(DEMO("threads", "1"));
    assert_refused(instance, (const hearth_lora[]){{0, 1}}, 1, "there is no adapter 0");
    hearth_close(instance);
}

/* The reply and how much was reused, with adapters named or not. */
static char *ask(hearth *instance, const hearth_lora *wanted, size_t n, int32_t *reused)
{
    struct caller caller;
    hearth_params params = text_params("Once upon a time there was a house near the river", 12);
    params.lora = wanted;
    params.n_lora = n;
    params.sampling.ignore_eos = true;
    run(&caller, instance, &params);
    assert_false(caller.failed);
    *reused = caller.result.cache_n;
    hearth_request_release(caller.request);
    return buf_take(&caller.text);
}

static void a_request_that_names_none_has_the_configured_scales(void **state)
{
    (void)state;
    int32_t reused;
    hearth *instance = start_with_adapters();
    const hearth_lora as_configured[] = {{0, 1}};
    char *unsaid = ask(instance, NULL, 0, &reused);
    assert_int_equal(reused, 0);
    char *said = ask(instance, as_configured, 1, &reused);
    assert_true(reused > 0);
    assert_string_equal(said, unsaid);
    char *bare = ask(instance, as_configured, 0, &reused);
    assert_int_equal(reused, 0);
    assert_string_not_equal(bare, unsaid);
    free(unsaid);
    free(said);
    free(bare);
    hearth_close(instance);
}

static void the_list_tells_names_and_scales_and_new_scales_hold_from_then_on(void **state)
{
    (void)state;
    int32_t reused;
    hearth_error error = {0};
    hearth_adapter list[3] = {{0}};
    hearth *instance = start_with_adapters();
    assert_int_equal(hearth_lora_list(instance, NULL, list, 3, &error), 2);
    assert_int_equal(list[1].id, 1);
    assert_string_equal(list[0].file, "one.gguf");
    assert_string_equal(list[1].file, "other.gguf");
    assert_true(list[0].scale == 1 && list[1].scale == 0);
    assert_int_equal(hearth_lora_list(instance, "nobody", list, 3, &error), HEARTH_NOT_FOUND);
    char *before = ask(instance, NULL, 0, &reused);
    const hearth_lora other[] = {{1, 0.5}}, wrong[] = {{1, 0}, {7, 1}};
    assert_int_equal(hearth_lora_set(instance, "demo", wrong, 2, &error), HEARTH_INVALID);
    assert_int_equal(hearth_lora_list(instance, "demo", list, 3, &error), 2);
    assert_true(list[0].scale == 1 && list[1].scale == 0);
    assert_int_equal(hearth_lora_set(instance, "demo", other, 1, &error), HEARTH_OK);
    assert_int_equal(hearth_lora_list(instance, "demo", list, 3, &error), 2);
    assert_true(list[0].scale == 0 && list[1].scale == 0.5);
    char *after = ask(instance, NULL, 0, &reused);
    assert_int_equal(reused, 0);
    assert_string_not_equal(after, before);
    free(before);
    free(after);
    hearth_close(instance);
}

/* ---- Scopes and identities ---- */

static double *choose(struct adapters *adapters, const hearth_lora *wanted, size_t n)
{
    hearth_error error;
    double *scales;
    if (adapters_choose(adapters, wanted, n, &scales, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return scales;
}

static void sets_have_scopes_and_identities_of_their_own_in_whatever_order_they_are_written(void **state)
{
    (void)state;
    hearth_error error;
    hearth_config *config = DEMO("lora", lora);
    set(config, "cache.save_tier", "ram"); /* adapters have digests where states are stored */
    hearth *instance = start(config);
    struct adapters *adapters = adapters_open(instance->entries[0].config, &error);
    assert_non_null(adapters);
    assert_int_equal(adapters_load(adapters, instance->entries[0].model->weights, instance->store, &error), HEARTH_OK);
    if (!adapters_finish(adapters, &error)) fail_msg("%s", error.message);
    struct identity base = {.quant = 6};
    memset(base.model, 0xaa, sizeof base.model);
    memset(base.context, 0xbb, sizeof base.context);
    enum { SETS = 7 };
    double *sets[SETS] = {
        choose(adapters, (const hearth_lora[]){{0, 0}}, 1),
        choose(adapters, NULL, 0),
        choose(adapters, (const hearth_lora[]){{1, 1}}, 1),
        choose(adapters, (const hearth_lora[]){{0, 0.5}}, 1),
        choose(adapters, (const hearth_lora[]){{0, 1}, {1, 1}}, 2),
        choose(adapters, (const hearth_lora[]){{0, 1}, {1, 0.25}}, 2),
        choose(adapters, (const hearth_lora[]){{0, 0.25}, {1, 1}}, 2),
    };
    assert_null(sets[0]);
    for (int i = 0; i < SETS * 2; i++) {
        const char *salt = i < SETS ? NULL : "salt";
        uint64_t scope = adapters_scope(adapters, salt, sets[i % SETS]);
        struct identity identity = adapters_identity(adapters, &base, salt, sets[i % SETS]);
        for (int k = 0; k < i; k++) {
            const char *other = k < SETS ? NULL : "salt";
            struct identity its = adapters_identity(adapters, &base, other, sets[k % SETS]);
            assert_true(adapters_scope(adapters, other, sets[k % SETS]) != scope);
            assert_false(identity_equal(&its, &identity));
        }
    }
    double *again = choose(adapters, (const hearth_lora[]){{1, 0.25}, {0, 1}}, 2);
    assert_memory_equal(again, sets[5], 2 * sizeof *again);
    assert_true(adapters_scope(adapters, NULL, sets[0]) == 0);
    for (int i = 0; i < SETS; i++) free(sets[i]);
    free(again);
    adapters_close(adapters);
    hearth_close(instance);
}

/* An identity has 32 binary places of a scale. */
static void scales_that_identities_cannot_tell_apart_are_the_same(void **state)
{
    (void)state;
    hearth *instance = start_with_adapters();
    struct adapters *adapters = instance->entries[0].adapters;
    assert_null(choose(adapters, (const hearth_lora[]){{0, 1e-12}, {1, -1e-12}}, 2));
    double *one = choose(adapters, (const hearth_lora[]){{0, 0.1}}, 1);
    double *other = choose(adapters, (const hearth_lora[]){{0, 0.1 + 1e-12}, {1, -0.0}}, 2);
    assert_memory_equal(one, other, 2 * sizeof *one);
    free(one);
    free(other);
    hearth_close(instance);
}

/* ---- Loading ---- */

static void an_adapter_that_cannot_be_had_names_its_key(void **state)
{
    (void)state;
    hearth_error error = {0};
    char *demo = source_path("models/demo.gguf"), *value = mem_format("['%s/one.gguf', '%s']", folder, demo);
    hearth_config *config = DEMO("lora", value);
    hearth *instance = hearth_open(config, &error);
    assert_non_null(instance);
    assert_int_equal(hearth_load(instance, NULL, NULL, &error), HEARTH_INVALID);
    assert_says(error.message, "models.demo.lora[1].path: ");
    assert_says(error.message, "is not a LoRA adapter");
    hearth_close(instance);
    hearth_config_free(config);
    free(demo);
    free(value);
}

/* ---- */

static int set_up(void **state)
{
    (void)state;
    static const char *const names[] = {"one", "other"};
    const char *build = getenv("HEARTH_BUILD");
    char *demo = source_path("models/demo.gguf");
    hearth_log_open(NULL, "error", "text", NULL);
    folder = mem_format("%s/unit-lib-XXXXXX", build != NULL ? build : ".");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++)
        run_command(mem_format("'%s/bin/hearth-mkmodel' --lora-for '%s' --seed %d -o '%s/%s.gguf' >/dev/null", build,
                               demo, 2 * i + 12, folder, names[i]));
    lora = mem_format("['%s/one.gguf', {path: '%s/other.gguf', scale: 0}]", folder, folder);
    free(demo);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    run_command(mem_format("rm -r '%s'", folder));
    free(folder);
    free(lora);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_adapters_are_refused),
        cmocka_unit_test(a_request_that_names_none_has_the_configured_scales),
        cmocka_unit_test(the_list_tells_names_and_scales_and_new_scales_hold_from_then_on),
        cmocka_unit_test(sets_have_scopes_and_identities_of_their_own_in_whatever_order_they_are_written),
        cmocka_unit_test(scales_that_identities_cannot_tell_apart_are_the_same),
        cmocka_unit_test(an_adapter_that_cannot_be_had_names_its_key),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
