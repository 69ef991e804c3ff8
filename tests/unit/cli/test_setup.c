/* Building a configuration from options: models, addresses, single keys, and the exit status of mistakes. */
#include "support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], model[128], config_file[128];

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hearth-setup-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    setenv("HEARTH_CONFIG", "", 1); /* no file of this machine counts */
    snprintf(model, sizeof model, "%s/Tiny-0.5B.Q8_0.gguf", folder);
    snprintf(config_file, sizeof config_file, "%s/hearth.yaml", folder);
    write_file(model, "GGUF");
    char text[512];
    snprintf(text, sizeof text, "server:\n  listen: 127.0.0.1:9000\nmodels:\n  first:\n    path: %s\n", model);
    write_file(config_file, text);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return unlink(model) || unlink(config_file) || rmdir(folder);
}

static void a_model_given_by_path_is_named_after_its_file(void **state)
{
    (void)state;
    const char *models[] = {model};
    hearth_config *config = open_setup(&(struct setup){.models = {models, 1}});
    assert_string_equal(hearth_config_model(config, 0), "Tiny-0.5B.Q8_0");
    assert_null(hearth_config_model(config, 1));
    expect_key(config, "models.Tiny-0.5B.Q8_0.path", model);
    hearth_config_free(config);
}

static void a_path_with_letters_that_yaml_minds_is_taken_as_it_is(void **state)
{
    (void)state;
    char odd[256];
    snprintf(odd, sizeof odd, "%s/odd#[\"1.gguf", folder);
    write_file(odd, "GGUF");
    const char *models[] = {odd};
    hearth_config *config = open_setup(&(struct setup){.models = {models, 1}});
    expect_key(config, "models.odd#[\"1.path", odd);
    hearth_config_free(config);
    unlink(odd);
}

static void a_model_is_found_by_its_name_in_the_configuration(void **state)
{
    (void)state;
    const char *models[] = {"first"};
    hearth_config *config = open_setup(&(struct setup){.config = config_file, .models = {models, 1}});
    assert_string_equal(hearth_config_model(config, 0), "first");
    hearth_config_free(config);
}

static void only_the_models_named_are_kept(void **state)
{
    (void)state;
    const char *sets[] = {"models.second.n_seq_max=2"}, *models[] = {model, "first"};
    hearth_config *config = open_setup(&(struct setup){.config = config_file, .models = {models, 2}});
    assert_string_equal(hearth_config_model(config, 0), "first");
    assert_string_equal(hearth_config_model(config, 1), "Tiny-0.5B.Q8_0");
    hearth_config_free(config);
    config = open_setup(&(struct setup){.config = config_file, .models = {models, 1}});
    assert_string_equal(hearth_config_model(config, 0), "Tiny-0.5B.Q8_0");
    assert_null(hearth_config_model(config, 1));
    hearth_config_free(config);
    expect_status(&(struct setup){.config = config_file, .models = {models, 1}, .sets = {sets, 1}}, EXIT_USAGE);
}

static void a_model_that_is_not_there_ends_with_1(void **state)
{
    (void)state;
    const char *missing[] = {"missing.gguf"}, *folders[] = {folder};
    expect_status(&(struct setup){.models = {missing, 1}}, EXIT_FAILED);
    expect_status(&(struct setup){.models = {folders, 1}}, EXIT_FAILED);
}

static void a_name_that_the_configuration_does_not_know_ends_with_2(void **state)
{
    (void)state;
    const char *models[] = {"second"};
    expect_status(&(struct setup){.config = config_file, .models = {models, 1}}, EXIT_USAGE);
}

static void two_files_of_one_name_end_with_2(void **state)
{
    (void)state;
    const char *models[] = {model, model};
    expect_status(&(struct setup){.models = {models, 2}}, EXIT_USAGE);
}

static void a_configuration_that_is_not_there_ends_with_2(void **state)
{
    (void)state;
    expect_status(&(struct setup){.config = "missing.yaml"}, EXIT_USAGE);
}

static void host_and_port_replace_their_half_of_the_address(void **state)
{
    (void)state;
    const struct {
        const char *host, *port, *listen;
    } cases[] = {
        {NULL, NULL, "127.0.0.1:9000"}, {NULL, "1", "127.0.0.1:1"}, {"0.0.0.0", NULL, "0.0.0.0:9000"},
        {"::1", "1", "[::1]:1"},        {"[::1]", "1", "[::1]:1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_config *config =
            open_setup(&(struct setup){.config = config_file, .host = cases[i].host, .port = cases[i].port});
        expect_key(config, "server.listen", cases[i].listen);
        hearth_config_free(config);
    }
}

static void a_port_that_is_none_ends_with_2(void **state)
{
    (void)state;
    expect_status(&(struct setup){.config = config_file, .port = "http"}, EXIT_USAGE);
    expect_status(&(struct setup){.config = config_file, .port = "70000"}, EXIT_USAGE);
}

static void single_keys_are_set_last(void **state)
{
    (void)state;
    const char *sets[] = {"server.listen=127.0.0.1:5", "models.first.n_seq_max=3"};
    hearth_config *config = open_setup(&(struct setup){.config = config_file, .port = "4", .sets = {sets, 2}});
    expect_key(config, "server.listen", "127.0.0.1:5");
    expect_key(config, "models.first.n_seq_max", "3");
    hearth_config_free(config);
}

static void a_key_without_a_section_is_that_of_the_only_model(void **state)
{
    (void)state;
    const char *sets[] = {"n_seq_max=3", "sampling.top_k=7"}, *models[] = {model, "first"};
    hearth_config *config = open_setup(&(struct setup){.config = config_file, .sets = {sets, 2}});
    expect_key(config, "models.first.n_seq_max", "3");
    expect_key(config, "models.first.sampling.top_k", "7");
    hearth_config_free(config);
    expect_status(&(struct setup){.config = config_file, .models = {models, 2}, .sets = {sets, 1}}, EXIT_USAGE);
}

static void a_set_without_key_or_value_ends_with_2(void **state)
{
    (void)state;
    const char *wrong[] = {"n_seq_max", "=3", "models.first.n_seqmax=3", "models.first.n_seq_max=many"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_status(&(struct setup){.config = config_file, .sets = {&wrong[i], 1}}, EXIT_USAGE);
}

static void log_options_set_their_keys(void **state)
{
    (void)state;
    hearth_config *config =
        open_setup(&(struct setup){.config = config_file, .log_level = "debug", .log_format = "json"});
    expect_key(config, "server.log_level", "debug");
    expect_key(config, "server.log_format", "json");
    hearth_config_free(config);
}

static void without_config_and_model_it_is_the_demo_model(void **state)
{
    (void)state;
    hearth_config *config = open_setup(&(struct setup){0});
    assert_string_equal(hearth_config_model(config, 0), "demo");
    assert_null(hearth_config_model(config, 1));
    hearth_config_free(config);
}

static void a_failure_that_names_a_key_is_bad_usage(void **state)
{
    (void)state;
    static const struct {
        hearth_code code;
        const char *param;
        int status;
    } rows[] = {{HEARTH_INVALID, "context_window", EXIT_USAGE},
                {HEARTH_INVALID, "server.listen", EXIT_USAGE},
                {HEARTH_INVALID, "", EXIT_FAILED},
                {HEARTH_INVALID, "/a/model.gguf", EXIT_FAILED},
                {HEARTH_IO, "server.listen", EXIT_FAILED},
                {HEARTH_NO_MEMORY, "context_window", EXIT_FAILED}};
    hearth_config *config = hearth_config_new();
    assert_int_equal(hearth_config_set(config, "models.little.path", model, NULL), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error = {.code = rows[i].code};
        snprintf(error.param, sizeof error.param, "%s", rows[i].param);
        assert_int_equal(setup_failure_status(config, &error), rows[i].status);
    }
    hearth_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_that_names_a_key_is_bad_usage),
        cmocka_unit_test(a_model_given_by_path_is_named_after_its_file),
        cmocka_unit_test(a_path_with_letters_that_yaml_minds_is_taken_as_it_is),
        cmocka_unit_test(a_model_is_found_by_its_name_in_the_configuration),
        cmocka_unit_test(only_the_models_named_are_kept),
        cmocka_unit_test(a_model_that_is_not_there_ends_with_1),
        cmocka_unit_test(a_name_that_the_configuration_does_not_know_ends_with_2),
        cmocka_unit_test(two_files_of_one_name_end_with_2),
        cmocka_unit_test(a_configuration_that_is_not_there_ends_with_2),
        cmocka_unit_test(host_and_port_replace_their_half_of_the_address),
        cmocka_unit_test(a_port_that_is_none_ends_with_2),
        cmocka_unit_test(single_keys_are_set_last),
        cmocka_unit_test(a_key_without_a_section_is_that_of_the_only_model),
        cmocka_unit_test(a_set_without_key_or_value_ends_with_2),
        cmocka_unit_test(log_options_set_their_keys),
        cmocka_unit_test(without_config_and_model_it_is_the_demo_model),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
