/* Reading YAML files: what is accepted, and the messages for what is not. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static const struct config_model *only_model(const hearth_config *config, const char *name)
{
    assert_int_equal(config->n_models, 1);
    assert_string_equal(hearth_config_model(config, 0), name);
    assert_null(hearth_config_model(config, 1));
    return config_find_model(config, name);
}

static void a_high_throughput_example_parses(void **state)
{
    (void)state;
    hearth_config *config = loaded("models:\n"
                                   "  Qwen3-8B-Q8_0:\n"
                                   "    context_window: 8192\n"
                                   "    n_seq_max: 8\n"
                                   "    n_batch: 2048\n"
                                   "    n_ubatch: 512\n"
                                   "    cache_type_k: q8_0\n"
                                   "    cache_type_v: q8_0\n"
                                   "    system_prompt_cache: true\n");
    const struct config_model *model = only_model(config, "Qwen3-8B-Q8_0");
    assert_int_equal(model->context_window, 8192);
    assert_int_equal(model->n_seq_max, 8);
    assert_int_equal(model->n_batch, 2048);
    assert_int_equal(model->n_ubatch, 512);
    assert_string_equal(model->cache_type_k, "q8_0");
    assert_string_equal(model->cache_type_v, "q8_0");
    assert_true(model->system_prompt_cache);
    hearth_config_free(config);
}

static void a_mixture_of_experts_example_parses(void **state)
{
    (void)state;
    hearth_config *config = loaded("models:\n"
                                   "  Qwen3-Coder-30B-A3B-Q8_0:\n"
                                   "    incremental_cache: true\n"
                                   "    split_mode: row # Best for MoE architecture\n"
                                   "    cache_type_k: f16 # Safer for MoE routing accuracy\n"
                                   "    cache_type_v: f16\n");
    const struct config_model *model = only_model(config, "Qwen3-Coder-30B-A3B-Q8_0");
    assert_true(model->incremental_cache);
    assert_string_equal(model->split_mode, "row");
    assert_string_equal(model->cache_type_k, "f16");
    assert_string_equal(model->cache_type_v, "f16");
    hearth_config_free(config);
}

static void a_hybrid_example_parses(void **state)
{
    (void)state;
    hearth_config *config = loaded("models:\n"
                                   "  Qwen3-Coder-Next-UD-Q4_K_XL:\n"
                                   "    incremental_cache: true\n"
                                   "    cache_type_k: f16 # Required for hybrid models\n"
                                   "    cache_type_v: f16 # Required for hybrid models\n");
    const struct config_model *model = only_model(config, "Qwen3-Coder-Next-UD-Q4_K_XL");
    assert_true(model->incremental_cache);
    assert_string_equal(model->cache_type_k, "f16");
    assert_string_equal(model->cache_type_v, "f16");
    hearth_config_free(config);
}

static void every_section_of_the_documented_file_parses(void **state)
{
    (void)state;
    hearth_config *config = loaded("server:\n"
                                   "  listen: [127.0.0.1:8080, 'unix:/run/hearth.sock']\n"
                                   "  api_keys_file: null\n"
                                   "  max_body_bytes: 33554432\n"
                                   "  isolate_keys: true\n"
                                   "  allowed_origins: ['https://chat.example', 'chrome-extension://*']\n"
                                   "  allowed_hosts: box.example\n"
                                   "  drain_timeout: 2.5\n"
                                   "cache:\n"
                                   "  save_tier: ram_file\n"
                                   "  tiers:\n"
                                   "    ram:      {quota_mb: 1}\n"
                                   "    ram_file: {quota_mb: 2, path: /dev/shm/x}\n"
                                   "    disk:     {quota_mb: 3, path: /var/cache/x}\n"
                                   "models:\n"
                                   "  demo:\n"
                                   "    kv_unified: true\n"
                                   "    flash_attention: on\n"
                                   "    rope_scaling: yarn\n"
                                   "    rope_freq_base: 1e6\n"
                                   "    lora: [{path: a.gguf, scale: 0.5}, b.gguf]\n"
                                   "    sampling: {temperature: 0.1, top_k: 1, top_p: 0.2, min_p: 0.3}\n");
    assert_int_equal(config->server.listen.len, 2);
    assert_string_equal(config->server.listen.v[1], "unix:/run/hearth.sock");
    assert_null(config->server.api_keys_file);
    assert_int_equal(config->server.isolate_keys, CONFIG_TRUE);
    assert_int_equal(config->server.allowed_origins.len, 2);
    assert_string_equal(config->server.allowed_origins.v[1], "chrome-extension://*");
    assert_int_equal(config->server.allowed_hosts.len, 1);
    assert_string_equal(config->server.allowed_hosts.v[0], "box.example");
    assert_true(config->server.drain_timeout == 2.5);
    assert_string_equal(config->cache.save_tier, "ram_file");
    assert_int_equal(config->cache.tiers[STORE_RAM].quota_mb, 1);
    assert_int_equal(config->cache.tiers[STORE_DISK].quota_mb, 3);
    assert_string_equal(config->cache.tiers[STORE_RAM_FILE].path, "/dev/shm/x");
    const struct config_model *model = only_model(config, "demo");
    assert_int_equal(model->kv_unified, CONFIG_TRUE);
    assert_string_equal(model->flash_attention, "on");
    assert_true(model->rope_freq_base == 1e6);
    assert_true(isnan(model->rope_freq_scale));
    assert_int_equal(model->lora.len, 2);
    assert_true(model->lora.v[0].scale == 0.5 && model->lora.v[1].scale == 1);
    assert_string_equal(model->lora.v[1].path, "b.gguf");
    assert_int_equal(model->sampling.top_k, 1);
    hearth_config_free(config);
}

static void kebab_case_is_read_like_snake_case(void **state)
{
    (void)state;
    hearth_config *config = loaded("server: {max-body-bytes: 4096}\n"
                                   "models: {a-b_c: {system-prompt-cache: true, sampling: {top-k: 7}}}\n");
    assert_int_equal(config->server.max_body_bytes, 4096);
    const struct config_model *model = only_model(config, "a-b_c");
    assert_true(model->system_prompt_cache);
    assert_int_equal(model->sampling.top_k, 7);
    hearth_config_free(config);
}

static void an_empty_file_an_empty_section_and_a_model_without_keys_are_fine(void **state)
{
    (void)state;
    hearth_config_free(loaded(""));
    hearth_config_free(loaded("# nothing\n---\n"));
    hearth_config_free(loaded("server:\nmodels: {}\n"));
    hearth_config *config = loaded("models:\n  demo:\n");
    assert_int_equal(only_model(config, "demo")->n_seq_max, 1);
    hearth_config_free(config);
}

static void a_scalar_is_a_list_of_one(void **state)
{
    (void)state;
    hearth_config *config = loaded("server:\n  listen: '[::1]:99'\nmodels:\n  m:\n    lora: {path: x}\n");
    assert_int_equal(config->server.listen.len, 1);
    assert_string_equal(config->server.listen.v[0], "[::1]:99");
    assert_int_equal(only_model(config, "m")->lora.len, 1);
    hearth_config_free(config);
}

static void the_home_folder_is_put_in_for_a_tilde(void **state)
{
    (void)state;
    setenv("HOME", "/home/somebody", 1);
    unsetenv("XDG_CACHE_HOME");
    hearth_config *config = loaded("models: {m: {path: ~/m.gguf, mmproj: /x/~/y}}\n");
    assert_string_equal(only_model(config, "m")->path, "/home/somebody/m.gguf");
    assert_string_equal(only_model(config, "m")->mmproj, "/x/~/y");
    assert_string_equal(config->cache.tiers[STORE_DISK].path, "/home/somebody/.cache/hearth/kv");
    hearth_config_free(config);
    setenv("XDG_CACHE_HOME", "/var/cache", 1);
    config = loaded("models: {m: {path: ~/.cache/m.gguf, mmproj: ~/.cached/y}}\n");
    assert_string_equal(only_model(config, "m")->path, "/var/cache/m.gguf");
    assert_string_equal(only_model(config, "m")->mmproj, "/home/somebody/.cached/y");
    assert_string_equal(config->cache.tiers[STORE_DISK].path, "/var/cache/hearth/kv");
    hearth_config_free(config);
    unsetenv("XDG_CACHE_HOME");
}

static void a_later_file_overrides_an_earlier_one(void **state)
{
    (void)state;
    hearth_config *config = loaded("server: {drain_timeout: 1, listen: [a:1, b:2]}\nmodels: {m: {n_batch: 64}}\n");
    assert_int_equal(load(config, "server: {listen: [c:3]}\nmodels: {m: {n_seq_max: 2}}\n", NULL, NULL), HEARTH_OK);
    assert_true(config->server.drain_timeout == 1);
    assert_int_equal(config->server.listen.len, 1);
    assert_string_equal(config->server.listen.v[0], "c:3");
    assert_int_equal(only_model(config, "m")->n_batch, 64);
    assert_int_equal(only_model(config, "m")->n_seq_max, 2);
    hearth_config_free(config);
}

static void all_errors_of_a_file_are_reported_with_their_lines_and_the_first_is_returned(void **state)
{
    (void)state;
    const char *text = "server:\n"
                       "  listn: 127.0.0.1:80\n"
                       "  drain_timeout: soon\n"
                       "  log_level: loud\n"
                       "models:\n"
                       "  demo:\n"
                       "    n-seq-max: 1000\n"
                       "    n_batch: \"4\"\n"
                       "    deterministic: maybe\n"
                       "    cache_type_k:\n"
                       "    path: [a, b]\n"
                       "    n_seq_max: 2\n"
                       "  'a b': {}\n"
                       "sampling: {}\n";
    const char *expected =
        "2|server.listn|unknown key; the nearest known one is server.listen\n"
        "3|server.drain_timeout|expects seconds from 0 to 86400; got \"soon\"\n"
        "4|server.log_level|expects one of error, warn, info, debug; got \"loud\"\n"
        "7|models.demo.n_seq_max|expects a whole number from 0 to 256; got \"1000\"\n"
        "8|models.demo.n_batch|expects a whole number from 1 to 1048576; got the string \"4\"\n"
        "9|models.demo.deterministic|expects true or false; got \"maybe\"\n"
        "10|models.demo.cache_type_k|expects one of auto, f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl; got "
        "null\n"
        "11|models.demo.path|expects a path, or null; got a list\n"
        "12|models.demo.n_seq_max|stands here a second time, after line 7\n"
        "13|models.a b|a model's name has no spaces or control characters\n"
        "14|sampling|unknown key; the nearest known one is models.NAME.sampling\n";
    assert_faults(text, expected);

    hearth_error error = {0};
    hearth_config *config = hearth_config_new();
    assert_int_equal(load(config, text, NULL, &error), HEARTH_INVALID);
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_string_equal(error.param, "server.listn");
    assert_string_equal(error.message,
                        "test.yaml:2: server.listn: unknown key; the nearest known one is server.listen");
    hearth_config_free(config);
}

static void a_file_with_an_error_changes_nothing(void **state)
{
    (void)state;
    hearth_config *config = loaded("server: {drain_timeout: 3}\n");
    assert_int_equal(load(config, "server: {drain_timeout: 4, x: 1}\nmodels: {m: {}}\n", NULL, NULL), HEARTH_INVALID);
    assert_true(config->server.drain_timeout == 3);
    assert_int_equal(config->n_models, 0);
    hearth_config_free(config);
}

static void the_nearest_known_key_is_named(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"sever: {}\n", "1|sever|", "server"},
        {"n_seq_max: 4\n", "1|n_seq_max|", "models.NAME.n_seq_max"},
        {"cache: {tiers: {dsk: {}}}\n", "1|cache.tiers.dsk|", "cache.tiers.disk"},
        {"cache: {tiers: {disk: {quota_gb: 1}}}\n", "1|cache.tiers.disk.quota_gb|", "cache.tiers.disk.quota_mb"},
        {"models: {m: {sampling: {top-q: 1}}}\n", "1|models.m.sampling.top_q|", "models.NAME.sampling.top_k"},
        {"models: {m: {contextwindow: 1}}\n", "1|models.m.contextwindow|", "models.NAME.context_window"},
        {"server: {path: x}\n", "1|server.path|", "cache.tiers.ram_file.path"},
        /* Names of other servers. */
        {"server: {port: 80}\n", "1|server.port|", "server.listen"},
        {"models: {m: {n_ctx: 1}}\n", "1|models.m.n_ctx|", "models.NAME.context_window"},
        {"models: {m: {ctx-size: 1}}\n", "1|models.m.ctx_size|", "models.NAME.context_window"},
        {"parallel: 4\n", "1|parallel|", "models.NAME.n_seq_max"},
        {"models: {m: {num_ctx: 1}}\n", "1|models.m.num_ctx|", "models.NAME.context_window"},
        {"OLLAMA_KEEP_ALIVE: 5m\n", "1|OLLAMA_KEEP_ALIVE|", "models.NAME.idle_unload"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf expected = {0};
        buf_printf(&expected, "%sunknown key; the nearest known one is %s\n", cases[i][1], cases[i][2]);
        assert_faults(cases[i][0], expected.v);
        buf_release(&expected);
    }
}

static void what_is_no_yaml_is_reported_with_its_line(void **state)
{
    (void)state;
    assert_faults("server:\n  listen: [a\nmodels: {}\n",
                  "3||not valid YAML: while parsing a flow sequence, did not find expected ',' or ']'\n");
    assert_faults(
        "a: 1\n\tb: 2\n",
        "2||not valid YAML: while scanning a plain scalar, found a tab character that violates indentation\n");
    assert_faults("server:\n\n  log_file: \xff\n", "3||not valid YAML: invalid leading UTF-8 octet\n");
}

static void what_hearth_does_not_read_of_yaml_is_refused(void **state)
{
    (void)state;
    assert_faults("server: &a {}\nmodels: *a\n", "2||YAML aliases (*name) are not supported: write the value out\n");
    assert_faults("server:\n  log_file: !!str x\n", "2||YAML tags (!…) are not supported: remove it\n");
    assert_faults("server: {}\n---\nserver: {}\n", "2||a second YAML document: a configuration is one\n");
    assert_faults("- server\n", "1||expects sections: server, cache or models\n");
    assert_faults("server: 8080\n", "1|server|expects keys with values below it\n");
    assert_faults("models:\n  m: x.gguf\n", "2|models.m|expects keys with values below it\n");
    assert_faults("server:\n  ? [a]\n  : b\n", "2|server|a key must be a name\n");
    assert_faults("models: {'*': {}}\n", "1|models.*|a model's name must say which one\n");
    assert_faults("models: {m: {}, m: {}}\n", "1|models.m|stands here a second time, after line 1\n");
    assert_faults("server: {log_file: \"a\\nb\"}\n",
                  "1|server.log_file|expects a path, or null; got the string \"a?b\"\n");
    assert_faults("server: {log_file: \"a\\0b\"}\n",
                  "1|server.log_file|expects a path, or null; got the string \"a?b\"\n");
    assert_faults("models: {m: {lora: [{scale: 1}]}}\n",
                  "1|models.m.lora|expects a list of {path: FILE, scale: NUMBER}; got a map\n");
}

static void text_of_some_size(struct buf *text, const char *part, int times)
{
    for (int i = 0; i < times; i++) buf_puts(text, part);
}

static void what_is_nested_too_deeply_or_too_large_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *part;
        int times;
        const char *expected;
    } cases[] = {
        {"[", 100000, "1||nested too deeply for a configuration\n"},
        {"{a: ", 100000, "1||nested too deeply for a configuration\n"},
        {"- x\n", 2000, "1025||too many entries for a configuration\n"},
        {"# padding\n", 200000, "0||larger than 1 MiB: this is no configuration\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf text = {0};
        text_of_some_size(&text, cases[i].part, cases[i].times);
        assert_faults(text.v, cases[i].expected);
        buf_release(&text);
    }
}

static void there_can_be_256_models_and_no_more(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_puts(&text, "models:\n");
    for (int i = 0; i < 256; i++) buf_printf(&text, "  m%d:\n", i);
    hearth_config *config = loaded(text.v);
    assert_int_equal(config->n_models, 256);
    hearth_error error = {0};
    assert_int_equal(hearth_config_set(config, "models.more.path", "x", &error), HEARTH_INVALID);
    assert_string_equal(error.message, "models.more.path: there are too many models");
    hearth_config_free(config);
    buf_puts(&text, "  more:\n");
    assert_faults(text.v, "258|models.more|there are too many models\n");
    buf_release(&text);
}

static void a_file_is_read_from_disk_and_named_in_its_errors(void **state)
{
    (void)state;
    char path[] = "/tmp/hearth-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *text = "server: {max_connections: 7}\n";
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    hearth_config *config = hearth_config_new();
    hearth_error error = {0};
    assert_int_equal(hearth_config_load(config, path, NULL, NULL, &error), HEARTH_OK);
    assert_int_equal(config->server.max_connections, 7);
    unlink(path);

    struct buf reported = {0};
    assert_int_equal(hearth_config_load(config, path, note_fault, &reported, &error), HEARTH_NOT_FOUND);
    assert_string_equal(reported.v, "0||cannot be read: No such file or directory\n");
    assert_int_equal(strncmp(error.message, path, strlen(path)), 0);
    assert_int_equal(hearth_config_load(config, "/", NULL, NULL, &error), HEARTH_IO);
    buf_release(&reported);
    hearth_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_high_throughput_example_parses),
        cmocka_unit_test(a_mixture_of_experts_example_parses),
        cmocka_unit_test(a_hybrid_example_parses),
        cmocka_unit_test(every_section_of_the_documented_file_parses),
        cmocka_unit_test(kebab_case_is_read_like_snake_case),
        cmocka_unit_test(an_empty_file_an_empty_section_and_a_model_without_keys_are_fine),
        cmocka_unit_test(a_scalar_is_a_list_of_one),
        cmocka_unit_test(the_home_folder_is_put_in_for_a_tilde),
        cmocka_unit_test(a_later_file_overrides_an_earlier_one),
        cmocka_unit_test(all_errors_of_a_file_are_reported_with_their_lines_and_the_first_is_returned),
        cmocka_unit_test(a_file_with_an_error_changes_nothing),
        cmocka_unit_test(the_nearest_known_key_is_named),
        cmocka_unit_test(what_is_no_yaml_is_reported_with_its_line),
        cmocka_unit_test(what_hearth_does_not_read_of_yaml_is_refused),
        cmocka_unit_test(what_is_nested_too_deeply_or_too_large_is_refused),
        cmocka_unit_test(there_can_be_256_models_and_no_more),
        cmocka_unit_test(a_file_is_read_from_disk_and_named_in_its_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
