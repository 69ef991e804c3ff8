/* Keys by path: setting, getting, defaults, and derived values. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

static void refused(hearth_config *config, const char *key, const char *value, const char *message)
{
    hearth_error error = {0};
    assert_int_equal(hearth_config_set(config, key, value, &error), HEARTH_INVALID);
    assert_string_equal(error.message, message);
}

static void get_is(const hearth_config *config, const char *key, const char *expected)
{
    const char *text = hearth_config_get(config, key);
    if (expected == NULL) {
        assert_null(text);
    } else {
        assert_non_null(text);
        assert_string_equal(text, expected);
    }
}

static void the_defaults_are_the_documented_ones(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"server.listen", "127.0.0.1:8080"},
        {"server.api_keys_file", NULL},
        {"server.isolate_keys", "auto"},
        {"server.allowed_origins", ""},
        {"server.allowed_hosts", ""},
        {"server.max_body_bytes", "33554432"},
        {"server.max_connections", "1024"},
        {"server.first_request_timeout", "10"},
        {"server.socket_mode", "0600"},
        {"server.socket_group", NULL},
        {"server.drain_timeout", "10"},
        {"server.log_level", "info"},
        {"server.log_format", "text"},
        {"server.insecure_logging", "false"},
        {"cache.boundary_align_tokens", "256"},
        {"cache.continued_interval", "2048"},
        {"cache.evict_save_timeout_ms", "30000"},
        {"cache.session_resume_wait_ms", "500"},
        {"cache.save_tier", "disk"},
        {"cache.tiers.disk.quota_mb", "8192"},
        {"cache.tiers.ram_file.path", "/dev/shm/hearth"},
        {"models.m.context_window", "8192"},
        {"models.m.n_seq_max", "1"},
        {"models.m.n_seq_spare", "-1"},
        {"models.m.queue_depth", "2"},
        {"models.m.max_prompt_bytes", "4194304"},
        {"models.m.n_ubatch", "512"},
        {"models.m.max_decode_gap_ms", "250"},
        {"models.m.admission_timeout", "30"},
        {"models.m.cache_type_k", "f16"},
        {"models.m.system_prompt_cache", "false"},
        {"models.m.system_prompt_assumed", "false"},
        {"models.m.incremental_cache", "true"},
        {"models.m.cache_min_tokens", "100"},
        {"models.m.cache_slot_timeout", "30"},
        {"models.m.n_gpu_layers", "0"},
        {"models.m.lora", ""},
        {"models.m.rope_freq_base", NULL},
        {"models.m.sampling.temperature", "0.8"},
        {"models.m.sampling.top_k", "40"},
        {"models.m.sampling.top_p", "0.9"},
        {"models.m.sampling.min_p", "0"},
        {"models.m.sampling.repeat_penalty", "1"},
        {"models.m.sampling.repeat_last_n", "64"},
    };
    hearth_config *config = hearth_config_new();
    assert_null(hearth_config_model(config, 0));
    set(config, "models.m.path", "x.gguf");
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) get_is(config, expected[i][0], expected[i][1]);
    hearth_config_free(config);
}

static void a_key_is_set_from_its_yaml_spelling(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    set(config, "models.demo.n_seq_max", "4");
    assert_int_equal(config_find_model(config, "demo")->n_seq_max, 4);
    set(config, "models.demo.cache-type-k", "q8_0");
    get_is(config, "models.demo.cache_type_k", "q8_0");
    set(config, "models.demo.lora", "[{path: a, scale: 2}]");
    get_is(config, "models.demo.lora", "{path: a, scale: 2}");
    set(config, "models.demo.rope_freq_base", "10000.5");
    set(config, "models.demo.rope_freq_base", "null");
    assert_true(isnan(config_find_model(config, "demo")->rope_freq_base));
    set(config, "server.listen", "[a:1, b:2]");
    get_is(config, "server.listen", "a:1,b:2");
    set(config, "server.listen", "[::1]:8080");
    get_is(config, "server.listen", "[::1]:8080");
    set(config, "server.log_file", "a: b #c.log");
    get_is(config, "server.log_file", "a: b #c.log");
    set(config, "server.log_file", "'null'");
    get_is(config, "server.log_file", "null");
    set(config, "server.log_file", "");
    assert_null(config->server.log_file);
    hearth_config_free(config);
}

static void a_switch_can_be_written_like_a_bool(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    set(config, "models.m.flash_attention", "True");
    get_is(config, "models.m.flash_attention", "on");
    set(config, "models.m.kv_unified", "off");
    get_is(config, "models.m.kv_unified", "false");
    set(config, "models.m.offload_kqv", "NO");
    get_is(config, "models.m.offload_kqv", "false");
    hearth_config_free(config);
}

static void a_models_name_may_hold_dots_and_key_names(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2.5-7b", "a.b.c", "m.sampling", "x.path.y", "v1."};
    hearth_config *config = hearth_config_new();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char key[80];
        snprintf(key, sizeof key, "models.%s.n_batch", names[i]);
        set(config, key, "77");
        snprintf(key, sizeof key, "models.%s.sampling.top_k", names[i]);
        if (strcmp(names[i], "m.sampling")) set(config, key, "5");
        assert_string_equal(hearth_config_model(config, i), names[i]);
        assert_int_equal(config_find_model(config, names[i])->n_batch, 77);
    }
    assert_int_equal(config->n_models, sizeof names / sizeof names[0]);
    get_is(config, "models.qwen2.5-7b.sampling.top_k", "5");
    hearth_config_free(config);
}

static void a_wrong_key_or_value_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    refused(config, "models.m.n_seq_mx", "4",
            "models.m.n_seq_mx: unknown key; the nearest known one is models.NAME.n_seq_max");
    refused(config, "models.m.n_seq_max", "4x", "models.m.n_seq_max: expects a whole number from 0 to 256; got \"4x\"");
    refused(config, "models.m.n_seq_max", "99999999999999999999",
            "models.m.n_seq_max: expects a whole number from 0 to 256; got \"99999999999999999999\"");
    refused(config, "models.m.sampling.top_p", "1.5",
            "models.m.sampling.top_p: expects a number from 0 to 1; got \"1.5\"");
    refused(config, "models.m.sampling.top_p", "nan",
            "models.m.sampling.top_p: expects a number from 0 to 1; got \"nan\"");
    refused(config, "models.m.preempt", "later", "models.m.preempt: expects one of park, fail; got \"later\"");
    refused(config, "server.socket_mode", "0777", "server.socket_mode: expects one of 0600, 0660, 0666; got \"0777\"");
    refused(config, "server.socket_group", "[a]", "server.socket_group: expects a string, or null; got a list");
    refused(config, "server.first_request_timeout", "0",
            "server.first_request_timeout: expects seconds from 0.1 to 86400; got \"0\"");
    refused(config, "models.m.path", "\xff", "models.m.path: expects a path, or null; got \"\xef\xbf\xbd\"");
    refused(config, "models..path", "x", "models..path: a model's name has 1 to 128 bytes");
    refused(config, "server.max_body_bytes", "null",
            "server.max_body_bytes: expects a whole number from 1024 to 1099511627776; got null");
    refused(config, "server", "x", "server: is a section: name a key in it");
    refused(config, "models.m.sampling", "x", "models.m.sampling: is a section: name a key in it");
    refused(config, "", "x", "unknown key; the nearest known one is cache.tiers.ram");
    refused(config, "server.listen", "[a, [b]]", "server.listen: expects a string or a list of strings; got a list");
    assert_int_equal(config->n_models, 0);
    hearth_config_free(config);
}

static void an_unknown_key_or_model_has_no_value(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    assert_null(hearth_config_get(config, "server.listn"));
    assert_null(hearth_config_get(config, "server"));
    assert_null(hearth_config_get(config, "models"));
    assert_null(hearth_config_get(config, "models.m.n_batch"));
    get_is(config, "server.max-body-bytes", "33554432");
    hearth_config_free(config);
}

static void no_slots_are_read_as_one(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    set(config, "models.m.n_seq_max", "0");
    assert_int_equal(config_find_model(config, "m")->n_seq_max, 1);
    hearth_config_free(config);
}

static void the_system_prompt_cache_turns_the_incremental_one_off_unless_that_was_set(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    set(config, "models.m.system_prompt_cache", "true");
    assert_false(config_find_model(config, "m")->incremental_cache);
    set(config, "models.m.system_prompt_cache", "false");
    assert_true(config_find_model(config, "m")->incremental_cache);
    set(config, "models.m.incremental_cache", "true");
    set(config, "models.m.system_prompt_cache", "true");
    assert_true(config_find_model(config, "m")->incremental_cache);
    hearth_config_free(config);
}

static void n_ubatch_follows_mmproj_and_n_batch_unless_it_was_set(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    set(config, "models.m.mmproj", "p.gguf");
    get_is(config, "models.m.n_ubatch", "2048");
    set(config, "models.m.n_batch", "1000");
    get_is(config, "models.m.n_ubatch", "1000");
    set(config, "models.m.n_ubatch", "300");
    get_is(config, "models.m.n_ubatch", "300");
    hearth_config_free(config);
}

static void a_copy_shares_nothing_and_remembers_what_was_set(void **state)
{
    (void)state;
    hearth_config *config = loaded("server: {log_file: a.log}\nmodels: {m: {incremental_cache: true, lora: [x]}}\n");
    struct hearth_config *copy = config_copy(config);
    set(config, "server.log_file", "b.log");
    hearth_config_free(config);
    get_is(copy, "server.log_file", "a.log");
    get_is(copy, "models.m.lora", "{path: x, scale: 1}");
    set(copy, "models.m.system_prompt_cache", "true");
    assert_true(config_find_model(copy, "m")->incremental_cache);
    hearth_config_free(copy);
}

static void without_a_name_the_first_model_is_found(void **state)
{
    (void)state;
    hearth_config *config = loaded("models: {b: {}, a: {}}\n");
    assert_string_equal(config_find_model(config, NULL)->name, "b");
    assert_string_equal(config_find_model(config, "a")->name, "a");
    assert_null(config_find_model(config, "c"));
    hearth_config_free(config);
}

static void *ask_often(void *config)
{
    for (int i = 0; i < 1000; i++) {
        if (strcmp(hearth_config_get(config, "models.m.n_batch"), "77")) return config;
    }
    return NULL;
}

static void several_threads_may_ask_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    hearth_config *config = loaded("models: {m: {n_batch: 77}}\n");
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask_often, config), 0);
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    hearth_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_are_the_documented_ones),
        cmocka_unit_test(a_key_is_set_from_its_yaml_spelling),
        cmocka_unit_test(a_switch_can_be_written_like_a_bool),
        cmocka_unit_test(a_models_name_may_hold_dots_and_key_names),
        cmocka_unit_test(a_wrong_key_or_value_is_refused_and_changes_nothing),
        cmocka_unit_test(an_unknown_key_or_model_has_no_value),
        cmocka_unit_test(no_slots_are_read_as_one),
        cmocka_unit_test(the_system_prompt_cache_turns_the_incremental_one_off_unless_that_was_set),
        cmocka_unit_test(n_ubatch_follows_mmproj_and_n_batch_unless_it_was_set),
        cmocka_unit_test(a_copy_shares_nothing_and_remembers_what_was_set),
        cmocka_unit_test(without_a_name_the_first_model_is_found),
        cmocka_unit_test(several_threads_may_ask_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
