/* Keys in the environment: which variable a key has, what is set over what, and variables that no key has. */
#include "cli/setup.h"

#include "base/memory.h"
#include "support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], model[128], user_folder[128], user_file[160], other_file[128];

static void write_file(const char *path, const char *format, const char *value)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, format, value);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hearth-environment-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(model, sizeof model, "%s/tiny.gguf", folder);
    snprintf(user_folder, sizeof user_folder, "%s/hearth", folder);
    snprintf(user_file, sizeof user_file, "%s/hearth.yaml", user_folder);
    snprintf(other_file, sizeof other_file, "%s/other.yaml", folder);
    write_file(model, "%s", "GGUF");
    setenv("XDG_CONFIG_HOME", folder, 1);
    return mkdir(user_folder, 0700);
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(user_file);
    unlink(other_file);
    return unlink(model) || rmdir(user_folder) || rmdir(folder);
}

/* No variable and no file is left over from the test before. */
static int clear(void **state)
{
    (void)state;
    static const char *const names[] = {"HEARTH_CONFIG",         "HEARTH_MODEL",          "HEARTH_N_SEQ_MAX",
                                        "HEARTH_SERVER_LISTEN",  "HEARTH_CONTEXT_WINDOW", "HEARTH_SERVER_LOG_LEVEL",
                                        "HEARTH_SERVER_LISTENN", "HEARTH_PATH",           "HEARTH_API_KEY",
                                        "HEARTH_SAMPLING_TOP_K"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    unlink(user_file);
    return 0;
}

static void every_key_has_a_variable_of_its_own(void **state)
{
    (void)state;
    const char *key;
    size_t n = 0;
    while (hearth_config_key(n) != NULL) n++;
    char **names = mem_alloc(n * sizeof *names);
    for (size_t i = 0; (key = hearth_config_key(i)) != NULL; i++) {
        names[i] = environment_variable(key);
        if (names[i] == NULL) assert_string_equal(key, "models.*.path");
        for (size_t k = 0; k < i && names[i] != NULL; k++)
            if (names[k] != NULL) assert_string_not_equal(names[i], names[k]);
    }
    for (size_t i = 0; i < n; i++) free(names[i]);
    free(names);
    char *listen = environment_variable("server.listen"), *path = environment_variable("cache.tiers.disk.path"),
         *slots = environment_variable("models.*.n_seq_max"), *top_k = environment_variable("models.*.sampling.top_k");
    assert_string_equal(listen, "HEARTH_SERVER_LISTEN");
    assert_string_equal(path, "HEARTH_CACHE_TIERS_DISK_PATH");
    assert_string_equal(slots, "HEARTH_N_SEQ_MAX");
    assert_string_equal(top_k, "HEARTH_SAMPLING_TOP_K");
    free(listen);
    free(path);
    free(slots);
    free(top_k);
}

static void the_command_line_comes_over_the_environment_and_that_over_files(void **state)
{
    (void)state;
    const char *sets[] = {"n_seq_max=7"};
    write_file(user_file, "server: {listen: '127.0.0.1:1', log_level: debug}\nmodels:\n  m: {path: %s, n_seq_max: 2}\n",
               model);
    hearth_config *config = open_setup(&(struct setup){0});
    expect_key(config, "server.listen", "127.0.0.1:1");
    expect_key(config, "models.m.n_seq_max", "2");
    hearth_config_free(config);

    setenv("HEARTH_SERVER_LISTEN", "127.0.0.1:2", 1);
    setenv("HEARTH_N_SEQ_MAX", "3", 1);
    setenv("HEARTH_SERVER_LOG_LEVEL", "", 1); /* empty: not set */
    config = open_setup(&(struct setup){0});
    expect_key(config, "server.listen", "127.0.0.1:2");
    expect_key(config, "models.m.n_seq_max", "3");
    expect_key(config, "server.log_level", "debug");
    hearth_config_free(config);

    config = open_setup(&(struct setup){.port = "4", .log_level = "warn", .sets = {sets, 1}});
    expect_key(config, "server.listen", "127.0.0.1:4");
    expect_key(config, "models.m.n_seq_max", "7");
    expect_key(config, "server.log_level", "warn");
    hearth_config_free(config);
}

static void a_named_file_takes_the_place_of_the_default_ones(void **state)
{
    (void)state;
    write_file(user_file, "server: {listen: '127.0.0.1:1'}\n%s", "");
    write_file(other_file, "models: {other: {path: %s}}\n", model);
    hearth_config *config = open_setup(&(struct setup){0});
    expect_key(config, "server.listen", "127.0.0.1:1");
    assert_string_equal(hearth_config_model(config, 0), "demo"); /* the default file names none */
    hearth_config_free(config);
    setenv("HEARTH_CONFIG", other_file, 1);
    config = open_setup(&(struct setup){0});
    expect_key(config, "server.listen", "127.0.0.1:8080");
    assert_string_equal(hearth_config_model(config, 0), "other");
    hearth_config_free(config);
    setenv("HEARTH_CONFIG", "/nowhere.yaml", 1);
    expect_status(&(struct setup){0}, EXIT_USAGE);
    config = open_setup(&(struct setup){.config = other_file}); /* the command line says which */
    assert_string_equal(hearth_config_model(config, 0), "other");
    hearth_config_free(config);
    setenv("HEARTH_CONFIG", "", 1);
    config = open_setup(&(struct setup){0});
    expect_key(config, "server.listen", "127.0.0.1:8080");
    hearth_config_free(config);
}

static void a_default_file_with_a_fault_is_refused(void **state)
{
    (void)state;
    write_file(user_file, "server: {listn: '127.0.0.1:1'}\n%s", "");
    expect_status(&(struct setup){0}, EXIT_USAGE);
}

static void the_environment_may_name_the_model(void **state)
{
    (void)state;
    const char *of_line[] = {"m"};
    setenv("HEARTH_MODEL", model, 1);
    setenv("HEARTH_CONTEXT_WINDOW", "512", 1);
    hearth_config *config = open_setup(&(struct setup){0});
    expect_key(config, "models.tiny.path", model);
    expect_key(config, "models.tiny.context_window", "512");
    hearth_config_free(config);
    write_file(user_file, "models: {m: {path: %s}}\n", model);
    config = open_setup(&(struct setup){.models = {of_line, 1}}); /* the command line's comes first */
    assert_string_equal(hearth_config_model(config, 0), "m");
    hearth_config_free(config);
}

/* A model of the configuration that is named by its file is that one, with its keys. */
static void a_declared_model_may_be_named_by_its_file(void **state)
{
    (void)state;
    const char *models[] = {model};
    write_file(user_file, "models: {tiny: {path: %s, n_seq_max: 5}}\n", model);
    hearth_config *config = open_setup(&(struct setup){.models = {models, 1}});
    expect_key(config, "models.tiny.n_seq_max", "5");
    hearth_config_free(config);
}

static void a_models_variable_is_for_the_only_one(void **state)
{
    (void)state;
    setenv("HEARTH_N_SEQ_MAX", "3", 1);
    write_file(user_file, "models: {a: {path: %s}, b: {path: /dev/null}}\n", model);
    expect_status(&(struct setup){0}, EXIT_USAGE);
    hearth_config *config = hearth_config_new();
    hearth_error error;
    assert_int_equal(environment_apply_model(config, &error), HEARTH_OK); /* there is none */
    assert_int_equal(hearth_config_set(config, "models.a.path", "a", &error), HEARTH_OK);
    assert_int_equal(hearth_config_set(config, "models.b.path", "b", &error), HEARTH_OK);
    assert_int_equal(environment_apply_model(config, &error), HEARTH_INVALID);
    assert_non_null(strstr(error.message, "HEARTH_N_SEQ_MAX: for one model"));
    hearth_config_free(config);
}

static void a_wrong_value_names_the_variable_and_the_key(void **state)
{
    (void)state;
    setenv("HEARTH_SERVER_LOG_LEVEL", "loud", 1);
    hearth_config *config = hearth_config_new();
    hearth_error error;
    assert_int_equal(environment_apply_server(config, "hearth try", &error), HEARTH_INVALID);
    assert_non_null(strstr(error.message, "HEARTH_SERVER_LOG_LEVEL: "));
    assert_non_null(strstr(error.message, "one of error, warn, info, debug; got \"loud\""));
    hearth_config_free(config);
}

/* What the program says on stderr while it reads the environment. */
static char *said(void)
{
    char text[4096] = "";
    FILE *caught = tmpfile();
    assert_non_null(caught);
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    dup2(fileno(caught), STDERR_FILENO);
    hearth_config *config = hearth_config_new();
    hearth_error error;
    int rc = environment_apply_server(config, "hearth try", &error);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    hearth_config_free(config);
    assert_int_equal(rc, HEARTH_OK);
    rewind(caught);
    size_t n = fread(text, 1, sizeof text - 1, caught);
    fclose(caught);
    return mem_strndup(text, n);
}

static void an_unknown_variable_gets_a_line_that_names_the_nearest(void **state)
{
    (void)state;
    setenv("HEARTH_API_KEY", "secret", 1); /* of clients */
    char *nothing = said();
    assert_null(strstr(nothing, "HEARTH_API_KEY"));
    assert_null(strstr(nothing, "HEARTH_SERVER_LISTENN"));
    free(nothing);
    setenv("HEARTH_SERVER_LISTENN", "127.0.0.1:1", 1);
    setenv("HEARTH_PATH", model, 1);
    char *text = said();
    assert_non_null(strstr(text,
                           "hearth try: the environment's HEARTH_SERVER_LISTENN is no key of the configuration; the "
                           "nearest is HEARTH_SERVER_LISTEN: it is ignored\n"));
    assert_non_null(strstr(text, "HEARTH_PATH is no key"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_key_has_a_variable_of_its_own, clear),
        cmocka_unit_test_setup(the_command_line_comes_over_the_environment_and_that_over_files, clear),
        cmocka_unit_test_setup(a_named_file_takes_the_place_of_the_default_ones, clear),
        cmocka_unit_test_setup(a_default_file_with_a_fault_is_refused, clear),
        cmocka_unit_test_setup(the_environment_may_name_the_model, clear),
        cmocka_unit_test_setup(a_declared_model_may_be_named_by_its_file, clear),
        cmocka_unit_test_setup(a_models_variable_is_for_the_only_one, clear),
        cmocka_unit_test_setup(a_wrong_value_names_the_variable_and_the_key, clear),
        cmocka_unit_test_setup(an_unknown_variable_gets_a_line_that_names_the_nearest, clear),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
