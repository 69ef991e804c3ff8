/* Files of presets in the models folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/memory.h"
#include "pull/models_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A models folder that is not there yet. */
static char root[32], *folder;

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/hearth-presets-XXXXXX");
    if (mkdtemp(root) == NULL) return 1;
    folder = mem_format("%s/a/models", root);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char *command = mem_format("rm -r %s", root);
    int rc = system(command);
    free(command);
    free(folder);
    return rc;
}

static void note(void *ud, const char *name, const char *text)
{
    buf_printf(ud, "%s=%s;", name, text);
}

static void note_fault(void *ud, const char *name, const char *why)
{
    (void)why;
    buf_printf(ud, "%s is bad;", name);
}

static void assert_listed(const char *expected)
{
    struct buf seen = {0};
    hearth_error error;
    const struct pull_preset_visitor visitor = {note, note_fault, &seen};
    if (pull_presets_list(folder, &visitor, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_string_equal(buf_text(&seen), expected);
    buf_release(&seen);
}

static void write_file(const char *name, const char *text)
{
    char *path = mem_format("%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

static void presets_are_written_replaced_listed_and_removed(void **state)
{
    (void)state;
    hearth_error error;
    assert_listed("");
    assert_int_equal(pull_preset_remove(folder, "a", &error), HEARTH_NOT_FOUND);
    assert_null(pull_preset_read(folder, "a", &error));
    assert_int_equal(error.code, HEARTH_NOT_FOUND);
    assert_int_equal(pull_preset_write(folder, "b:7b", "{}", &error), HEARTH_OK);
    assert_int_equal(pull_preset_write(folder, "a", "{\"from\":\"m\"}", &error), HEARTH_OK);
    assert_int_equal(pull_preset_write(folder, "a", "[]", &error), HEARTH_OK);
    assert_listed("a=[];b:7b={};");
    char *text = pull_preset_read(folder, "a", &error);
    assert_string_equal(text, "[]");
    free(text);
    assert_int_equal(pull_preset_remove(folder, "a", &error), HEARTH_OK);
    assert_listed("b:7b={};");
}

static void other_files_are_none_and_what_cannot_be_read_is_named(void **state)
{
    (void)state;
    hearth_error error;
    assert_int_equal(pull_preset_write(folder, "a", "{}", &error), HEARTH_OK);
    write_file("b.preset.json.part", "half");
    write_file("manifest.json", "{}");
    write_file(".hidden.preset.json", "{}");
    write_file("with blank.preset.json", "{}");
    char *path = mem_format("%s/link.preset.json", folder), *own = mem_format("%s/dir.preset.json", folder);
    assert_int_equal(symlink("/etc/hostname", path), 0);
    assert_int_equal(mkdir(own, 0755), 0);
    assert_listed("a={};dir is bad;link is bad;with blank is bad;");
    free(path);
    free(own);
}

static void names_that_leave_the_folder_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"", "../a", "a/b", ".a", "a b", "a\n"};
    hearth_error error;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(pull_preset_write(folder, names[i], "{}", &error), HEARTH_INVALID);
        assert_int_equal(pull_preset_remove(folder, names[i], &error), HEARTH_INVALID);
        assert_null(pull_preset_read(folder, names[i], &error));
    }
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(presets_are_written_replaced_listed_and_removed),
        ROW(other_files_are_none_and_what_cannot_be_read_is_named),
        ROW(names_that_leave_the_folder_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
