/* hearth kv: the output and the exit status of each command. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/args.h"

#include "../instance/stored.h"
#include "store/store.h"

/* ---- Running a command ---- */

static char out[8192], err[2048];

static FILE *redirect(int fd, int *before)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    *before = dup(fd);
    assert_true(dup2(fileno(file), fd) >= 0);
    return file;
}

static void restore(FILE *file, int fd, int before, char *text, size_t size)
{
    assert_true(dup2(before, fd) >= 0);
    close(before);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

/* hearth kv with these words, and with the folders of the test; what it prints is left in `out` and `err`. */
static int run(const struct stored *stored, const char *command, const char *operand)
{
    char disk[192], ram_file[192], set[] = "--set", on[] = "cache.tiers.ram_file.quota_mb=1";
    snprintf(disk, sizeof disk, "cache.tiers.disk.path=%s", stored->disk);
    snprintf(ram_file, sizeof ram_file, "cache.tiers.ram_file.path=%s", stored->ram_file);
    char *argv[] = {(char *)command, set, disk, set, ram_file, set, on, (char *)operand};
    int before_out, before_err;
    fflush(stdout);
    FILE *to_out = redirect(STDOUT_FILENO, &before_out), *to_err = redirect(STDERR_FILENO, &before_err);
    int status = command_kv(operand != NULL ? 8 : 7, argv);
    fflush(stdout);
    restore(to_err, STDERR_FILENO, before_err, err, sizeof err);
    restore(to_out, STDOUT_FILENO, before_out, out, sizeof out);
    return status;
}

static void assert_says(const char *text, const char *expected)
{
    if (strstr(text, expected) == NULL) fail_msg("'%s' does not say '%s'", text, expected);
}

/* The first digits of a key, as ls prints them. */
static char *digits_of(const struct slab_key *key)
{
    static char hex[65];
    sha256_to_hex(key->v, hex);
    hex[16] = '\0';
    return hex;
}

static const struct plan plans[] = {
    {.end = 300, .used_ms = 2000},
    {.start = 300, .end = 1200, .used_ms = 1000},
};

/* ---- ls ---- */

/* The two entries as ls prints them. */
static void expect_listed(const struct stored *stored, const struct slab_key keys[2], const char *model)
{
    char *paths[] = {file_of(stored->disk, &keys[0], SLAB_ROWS), file_of(stored->disk, &keys[1], SLAB_ROWS)};
    assert_int_equal(run(stored, "ls", NULL), EXIT_FINE);
    struct buf expected = {0};
    buf_puts(&expected, "tier      key               kind   reason         from        to         bytes    hits  used"
                        "                 quant  model\n");
    for (int i = 1; i >= 0; i--)
        buf_printf(
            &expected, "disk      %s  rows   finish     %8d  %8d  %12llu       5  1970-01-01 00:00:0%d  q8_0   %s\n",
            digits_of(&keys[i]), plans[i].start, plans[i].end, (unsigned long long)size_of(paths[i]), 2 - i, model);
    buf_printf(&expected, "2 entries, %llu bytes\n", (unsigned long long)(size_of(paths[0]) + size_of(paths[1])));
    assert_string_equal(out, expected.v);
    assert_string_equal(err, "");
    buf_release(&expected);
    free(paths[0]);
    free(paths[1]);
}

static void ls_prints_a_line_an_entry_in_columns(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[2];
    setenv("TZ", "UTC", 1);
    publish_all(stored->disk, plans, 1, &keys[0]);
    publish_all(stored->disk, &plans[1], 1, &keys[1]);
    expect_listed(stored, keys, "aaaaaaaa");
}

static void ls_calls_a_model_as_its_server_did_until_nothing_of_it_is_left(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[2];
    char name[STORE_MODEL_NAME];
    const struct identity identity = plan_identity();
    setenv("TZ", "UTC", 1);
    publish_all(stored->disk, plans, 2, keys);
    struct folder *folder = take_folder(stored->disk);
    folder_name_model(folder, identity.model, "older");
    folder_name_model(folder, identity.model, "little");
    folder_close(folder);
    expect_listed(stored, keys, "little");
    assert_int_equal(run(stored, "show", digits_of(&keys[0])), EXIT_FINE);
    assert_says(out, "aaaaaaaa little\n");
    static const char *const commands[] = {"gc", "clear"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(run(stored, commands[i], NULL), EXIT_FINE);
        folder = take_folder(stored->disk);
        assert_int_equal(folder_model_name(folder, identity.model, name, sizeof name), i == 0);
        folder_close(folder);
    }
}

static void an_empty_cache_is_no_failure(void **state)
{
    const struct stored *stored = *state;
    assert_int_equal(run(stored, "ls", NULL), EXIT_FINE);
    assert_string_equal(out, "0 entries, 0 bytes\n");
    assert_int_equal(run(stored, "verify", NULL), EXIT_FINE);
    assert_string_equal(out, "0 entries, 0 bytes\n");
    assert_int_equal(run(stored, "gc", NULL), EXIT_FINE);
    assert_string_equal(out, "removed 0 files, 0 bytes\n");
    assert_false(exists(stored->disk));
}

/* ---- show ---- */

static void show_takes_the_digits_that_ls_prints(void **state)
{
    const struct stored *stored = *state;
    struct slab_key key;
    char hex[65];
    publish_all(stored->disk, plans, 1, &key);
    sha256_to_hex(key.v, hex);
    assert_int_equal(run(stored, "show", digits_of(&key)), EXIT_FINE);
    assert_says(out, hex);
    assert_says(out, "tokens     0 to 300, 300 here\n");
}

static void show_of_a_key_that_is_not_there_fails(void **state)
{
    const struct stored *stored = *state;
    assert_int_equal(run(stored, "show", "0123"), EXIT_FAILED);
    assert_string_equal(err, "hearth kv show: nothing is stored under 0123: hearth kv ls lists what is\n");
    assert_int_equal(run(stored, "show", "xyz"), EXIT_USAGE);
    assert_int_equal(run(stored, "show", NULL), EXIT_USAGE);
    assert_says(err, "KEY is missing");
    assert_string_equal(out, "");
}

/* ---- verify ---- */

static void verify_names_what_is_damaged_and_ends_with_1(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[2];
    publish_all(stored->disk, plans, 2, keys);
    assert_int_equal(run(stored, "verify", NULL), EXIT_FINE);
    assert_memory_equal(out, "2 entries, ", 11);
    char *path = file_of(stored->disk, &keys[1], SLAB_ROWS);
    flip(path, -SLAB_TRAILER_BYTES - 1);
    assert_int_equal(run(stored, "verify", NULL), EXIT_FAILED);
    char *expected =
        mem_format("disk      %s  rows   %s: damaged: keys of layer 1\n2 entries, ", digits_of(&keys[1]), path);
    assert_memory_equal(out, expected, strlen(expected));
    assert_memory_equal(err, "hearth kv verify: 1 damaged", 27);
    assert_string_equal(strchr(err, '\n'), "\n");
    free(expected);
    free(path);
}

/* ---- gc, clear ---- */

static void gc_and_clear_say_what_they_removed(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[2];
    publish_all(stored->disk, plans, 2, keys);
    char *orphan = file_of(stored->disk, &keys[1], SLAB_ROWS), *parent = file_of(stored->disk, &keys[0], SLAB_ROWS);
    char *expected = mem_format("removed 1 file, %llu bytes\n", (unsigned long long)size_of(orphan));
    assert_int_equal(unlink(parent), 0);
    assert_int_equal(run(stored, "gc", NULL), EXIT_FINE);
    assert_string_equal(out, expected);
    publish_all(stored->disk, plans, 2, keys);
    free(expected);
    expected = mem_format("removed 2 files, %llu bytes\n", (unsigned long long)(size_of(orphan) + size_of(parent)));
    assert_int_equal(run(stored, "clear", NULL), EXIT_FINE);
    assert_string_equal(out, expected);
    assert_false(exists(orphan) || exists(parent));
    free(expected);
    free(orphan);
    free(parent);
}

static void gc_and_clear_fail_beside_a_server(void **state)
{
    const struct stored *stored = *state;
    static const char *const commands[] = {"gc", "clear"};
    publish_all(stored->disk, plans, 2, NULL);
    struct folder *server = take_folder(stored->disk);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(run(stored, commands[i], NULL), EXIT_FAILED);
        assert_string_equal(out, "");
        assert_says(err, stored->disk);
        assert_says(err, "stop it first");
        assert_string_equal(strchr(err, '\n'), "\n");
    }
    assert_int_equal(run(stored, "ls", NULL), EXIT_FINE);
    assert_says(out, "2 entries");
    folder_close(server);
}

/* ---- Configuration and help ---- */

static void the_folders_are_those_of_a_configuration_whatever_its_models_are(void **state)
{
    const struct stored *stored = *state;
    char *file = mem_format("%s/hearth.yaml", stored->root), option[] = "--config", ls[] = "ls";
    char *text =
        mem_format("cache: {tiers: {disk: {path: %s}, ram_file: {path: %s}}}\nmodels: {m: {path: /nowhere.gguf}}\n",
                   stored->disk, stored->ram_file);
    publish_all(stored->disk, plans, 2, NULL);
    write_text(file, text);
    char *argv[] = {ls, option, file};
    int before_out;
    fflush(stdout);
    FILE *to_out = redirect(STDOUT_FILENO, &before_out);
    int status = command_kv(3, argv);
    fflush(stdout);
    restore(to_out, STDOUT_FILENO, before_out, out, sizeof out);
    assert_int_equal(status, EXIT_FINE);
    assert_says(out, "2 entries");
    free(text);
    free(file);
}

static void every_command_has_help_with_examples(void **state)
{
    static const char *const commands[] = {"ls", "show", "verify", "gc", "clear"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char *example = mem_format("\nExamples:\n  hearth kv %s", commands[i]);
        assert_int_equal(run(*state, commands[i], "--help"), EXIT_FINE);
        assert_says(out, "  --config FILE");
        assert_says(out, example);
        free(example);
    }
    assert_int_equal(run(*state, "list", NULL), EXIT_USAGE);
    assert_says(err, "hearth kv: unknown command 'list'");
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, stored_setup, stored_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(ls_prints_a_line_an_entry_in_columns),
        ROW(ls_calls_a_model_as_its_server_did_until_nothing_of_it_is_left),
        ROW(an_empty_cache_is_no_failure),
        ROW(show_takes_the_digits_that_ls_prints),
        ROW(show_of_a_key_that_is_not_there_fails),
        ROW(verify_names_what_is_damaged_and_ends_with_1),
        ROW(gc_and_clear_say_what_they_removed),
        ROW(gc_and_clear_fail_beside_a_server),
        ROW(the_folders_are_those_of_a_configuration_whatever_its_models_are),
        ROW(every_command_has_help_with_examples),
    };
    hearth_log_open(NULL, "error", "text", NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
