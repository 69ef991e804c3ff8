/* A sidecar beside a model's file: FILE.sha256, as sha256sum writes it. */
#include "support.h"

#include <unistd.h>

static char *folder, *path, *sidecar;

static void run_command(char *command)
{
    if (system(command) != 0) fail_msg("failed: %s", command);
    free(command);
}

static void write_sidecar(const char *text)
{
    FILE *file = fopen(sidecar, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Flips the last byte of the weights, which changes no shape and no length. */
static void flip_a_byte(void)
{
    FILE *file = fopen(path, "r+be");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

/* NULL: it loads. The caller frees the message. */
static char *fault_of_loading(const char *key, const char *value)
{
    hearth_error error = {0};
    hearth_config *config = DEMO("path", path, key, value);
    hearth *instance = hearth_open(config, &error);
    assert_non_null(instance);
    int rc = hearth_load(instance, NULL, NULL, &error);
    hearth_close(instance);
    hearth_config_free(config);
    if (rc == HEARTH_OK) return NULL;
    assert_int_equal(rc, HEARTH_INVALID);
    assert_null(strchr(error.message, '\n'));
    return mem_strdup(error.message);
}

static void assert_loads(const char *key, const char *value)
{
    char *fault = fault_of_loading(key, value);
    if (fault != NULL) fail_msg("%s", fault);
}

static void assert_refused(const char *expected)
{
    char *fault = fault_of_loading("threads", "1");
    assert_says(fault, expected);
    free(fault);
}

static void a_flipped_byte_is_found_where_a_sidecar_tells_the_digest(void **state)
{
    (void)state;
    assert_loads("threads", "1");
    run_command(mem_format("cd '%s' && sha256sum m.gguf >m.gguf.sha256", folder));
    assert_loads("threads", "1");
    flip_a_byte();
    assert_refused("is damaged or another file: its SHA-256 begins with ");
    assert_refused("m.gguf.sha256 with ");
    assert_refused("set ignore_integrity_check");
    assert_loads("ignore_integrity_check", "true");
    assert_int_equal(unlink(sidecar), 0);
    assert_loads("threads", "1");
    flip_a_byte();
}

static void sidecars_may_name_more_files_or_none(void **state)
{
    (void)state;
    run_command(mem_format("cd '%s' && echo other >o && sha256sum o m.gguf >m.gguf.sha256", folder));
    assert_loads("threads", "1");
    run_command(mem_format("cd '%s' && sha256sum -b '%s' >m.gguf.sha256", folder, path));
    assert_loads("threads", "1");
    run_command(mem_format("cd '%s' && sha256sum <m.gguf | cut -c -64 | tr a-f A-F >m.gguf.sha256", folder));
    assert_loads("threads", "1");
    assert_int_equal(unlink(sidecar), 0);
}

static void a_sidecar_that_says_nothing_of_the_file_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "no digest\n", "0123\n", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef  other.gguf\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_sidecar(texts[i]);
        assert_refused("has no SHA-256 digest of m.gguf");
    }
    assert_int_equal(unlink(sidecar), 0);
}

static int set_up(void **state)
{
    (void)state;
    char *demo = source_path("models/demo.gguf");
    hearth_log_open(NULL, "error", "text", NULL);
    folder = mem_format("%s/unit-lib-XXXXXX", getenv("HEARTH_BUILD"));
    assert_non_null(mkdtemp(folder));
    path = mem_format("%s/m.gguf", folder);
    sidecar = mem_format("%s.sha256", path);
    run_command(mem_format("cp '%s' '%s'", demo, path));
    free(demo);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    run_command(mem_format("rm -r '%s'", folder));
    free(folder);
    free(path);
    free(sidecar);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_byte_is_found_where_a_sidecar_tells_the_digest),
        cmocka_unit_test(sidecars_may_name_more_files_or_none),
        cmocka_unit_test(a_sidecar_that_says_nothing_of_the_file_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
