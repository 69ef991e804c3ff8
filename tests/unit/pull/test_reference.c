/* References: what is read of each form, what is refused with which advice, and the file of short names. */
#include "fakes/cmocka_all.h"

#include "base/memory.h"
#include "pull/pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char names[] = "/tmp/hearth-names-XXXXXX";

static void each_form_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum pull_kind kind;
        const char *owner, *repo, *quant, *place, *canonical;
    } rows[] = {
        {"hf:Qwen/Qwen3-8B-GGUF", PULL_REPOSITORY, "Qwen", "Qwen3-8B-GGUF", NULL, NULL, "hf:Qwen/Qwen3-8B-GGUF"},
        {"hf:a/b:Q4_K_M", PULL_REPOSITORY, "a", "b", "Q4_K_M", NULL, "hf:a/b:Q4_K_M"},
        {"hf:a/b:sub/file-Q8_0.gguf", PULL_REPOSITORY, "a", "b", "sub/file-Q8_0.gguf", NULL,
         "hf:a/b:sub/file-Q8_0.gguf"},
        {"https://h/a/m.gguf?sig=secret#x", PULL_URL, NULL, NULL, NULL, "https://h/a/m.gguf?sig=secret#x",
         "https://h/a/m.gguf"},
        {"http://127.0.0.1:1/m%20x.gguf", PULL_URL, NULL, NULL, NULL, "http://127.0.0.1:1/m%20x.gguf",
         "http://127.0.0.1:1/m%20x.gguf"},
        {"/none/m.gguf", PULL_FILE, NULL, NULL, NULL, "/none/m.gguf", "/none/m.gguf"},
        {"file:///none/m.gguf", PULL_FILE, NULL, NULL, NULL, "/none/m.gguf", "/none/m.gguf"},
        {"/none/caf\xe9/m.gguf", PULL_FILE, NULL, NULL, NULL, "/none/caf\xe9/m.gguf", "/none/caf\uFFFD/m.gguf"},
        {"/tmp/../tmp/m.gguf", PULL_FILE, NULL, NULL, NULL, "/tmp/m.gguf", "/tmp/m.gguf"},
        {"/m.gguf", PULL_FILE, NULL, NULL, NULL, "/m.gguf", "/m.gguf"},
        {"hf.co/a/b:Q8_0", PULL_REPOSITORY, "a", "b", "Q8_0", NULL, "hf:a/b:Q8_0"},
        {"huggingface.co/a/b", PULL_REPOSITORY, "a", "b", NULL, NULL, "hf:a/b"},
        {"tiny", PULL_REPOSITORY, "some", "tiny-GGUF", NULL, NULL, "hf:some/tiny-GGUF"},
        {"tiny:latest", PULL_REPOSITORY, "some", "tiny-GGUF", NULL, NULL, "hf:some/tiny-GGUF"},
        {"tiny:8b", PULL_REPOSITORY, "some", "tiny-GGUF", "Q8_0", NULL, "hf:some/tiny-GGUF:Q8_0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_reference r;
        hearth_error error;
        if (pull_reference_read(rows[i].text, names, &r, &error) != HEARTH_OK)
            fail_msg("%s: %s", rows[i].text, error.message);
        assert_int_equal(r.kind, rows[i].kind);
        assert_string_equal(r.text, rows[i].canonical);
        const char *const got[] = {r.owner, r.repo, r.quant, r.place};
        const char *const wanted[] = {rows[i].owner, rows[i].repo, rows[i].quant, rows[i].place};
        for (size_t k = 0; k < 4; k++) {
            assert_int_equal(got[k] == NULL, wanted[k] == NULL);
            if (got[k] != NULL) assert_string_equal(got[k], wanted[k]);
        }
        pull_reference_release(&r);
    }
}

static void what_is_none_is_refused_with_advice(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        int code;
    } rows[] = {
        {"", "1 to 4096 bytes", HEARTH_INVALID},
        {"hf:", "hf:OWNER/REPO", HEARTH_INVALID},
        {"hf:owner", "hf:OWNER/REPO", HEARTH_INVALID},
        {"hf:/repo", "hf:OWNER/REPO", HEARTH_INVALID},
        {"hf:owner/", "hf:OWNER/REPO", HEARTH_INVALID},
        {"hf:../repo", "hf:OWNER/REPO", HEARTH_INVALID},
        {"hf:owner/..", "hf:OWNER/REPO", HEARTH_INVALID},
        {"hf:owner/re?po", "hf:OWNER/REPO", HEARTH_INVALID},
        {"hf:owner/repo/more", "hf:OWNER/REPO", HEARTH_INVALID},
        {"hf:owner/repo:", "is no quantisation", HEARTH_INVALID},
        {"hf:owner/repo:Q4\n", "is no quantisation", HEARTH_INVALID},
        {"https://h/model.bin", "has to end in .gguf", HEARTH_INVALID},
        {"https://h/", "has to end in .gguf", HEARTH_INVALID},
        {"https://user:pass@h/m.gguf", "has a user's name in it", HEARTH_INVALID},
        {"http://", "is no http or https URL", HEARTH_INVALID},
        {"owner/repo", "hf:OWNER/REPO", HEARTH_INVALID},
        {"unknown", "is not known: a line 'unknown REFERENCE'", HEARTH_NOT_FOUND},
        {"un\033[2Jknown", "un\\u001b[2Jknown is not known", HEARTH_NOT_FOUND},
        {"loop", "a short name cannot stand for another one", HEARTH_INVALID},
        {"bad", "bad in ", HEARTH_INVALID},
        {"commented", "is not known", HEARTH_NOT_FOUND},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_reference r;
        hearth_error error = {0};
        int rc = pull_reference_read(rows[i].text, names, &r, &error);
        if (rc != rows[i].code || strstr(error.message, rows[i].says) == NULL)
            fail_msg("'%s': %d %s", rows[i].text, rc, error.message);
        pull_reference_release(&r);
    }
}

static void what_can_only_be_a_file_is_known_by_its_text(void **state)
{
    (void)state;
    static const char *const paths[] = {"/m.gguf", "m.gguf",         "M.GGUF",        "./m",
                                        "a/b",     "file:///m.gguf", "ftp://h/m.gguf"};
    static const char *const others[] = {"hf:a/b",           "hf:a/b:m.gguf", "hf.co/a/b", "http://h/m.gguf",
                                         "HTTPS://h/m.gguf", "tiny",          "tiny:8b",   ""};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!pull_reference_is_path(paths[i])) fail_msg("%s is not taken for a path", paths[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (pull_reference_is_path(others[i])) fail_msg("%s is taken for a path", others[i]);
}

static void a_short_name_is_kept_without_its_tag(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"tiny", "tiny"}, {"tiny:latest", "tiny"}, {"tiny:8b", "tiny:8b"}, {"hf:some/tiny-GGUF", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_reference r;
        hearth_error error;
        assert_int_equal(pull_reference_read(rows[i][0], names, &r, &error), HEARTH_OK);
        assert_int_equal(r.short_name == NULL, rows[i][1] == NULL);
        if (rows[i][1] != NULL) assert_string_equal(r.short_name, rows[i][1]);
        pull_reference_release(&r);
    }
}

static void without_a_file_of_names_none_is_known(void **state)
{
    (void)state;
    struct pull_reference r;
    hearth_error error;
    assert_int_equal(pull_reference_read("tiny", "/none/names", &r, &error), HEARTH_NOT_FOUND);
    assert_non_null(strstr(error.message, "in /none/names would say"));
    pull_reference_release(&r);
    assert_int_equal(pull_reference_read("tiny", NULL, &r, &error), HEARTH_NOT_FOUND);
    pull_reference_release(&r);
}

static void a_secret_of_a_url_is_not_in_a_message(void **state)
{
    (void)state;
    struct pull_reference r;
    hearth_error error;
    assert_int_equal(pull_reference_read("https://user@h/m.gguf?secret", names, &r, &error), HEARTH_INVALID);
    assert_null(strstr(error.message, "secret"));
    pull_reference_release(&r);
}

static void the_file_of_names_is_found_by_the_environment(void **state)
{
    (void)state;
    static const char *const variables[] = {"HEARTH_NAMES", "XDG_CONFIG_HOME", "HOME"};
    static const struct {
        const char *values[3], *path;
    } rows[] = {{{"/n", "/c", "/h"}, "/n"},
                {{"", "/c", "/h"}, "/c/hearth/names"},
                {{"", "relative", "/h"}, "/h/.config/hearth/names"},
                {{"", "", ""}, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < 3; k++) setenv(variables[k], rows[i].values[k], 1);
        char *path = pull_names_path();
        assert_int_equal(path == NULL, rows[i].path == NULL);
        if (path != NULL) assert_string_equal(path, rows[i].path);
        free(path);
    }
}

static int write_names(void **state)
{
    (void)state;
    int fd = mkstemp(names);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) return -1;
    fputs("# short names\n\n  tiny\t hf:some/tiny-GGUF  # a comment\ntiny:8b hf:some/tiny-GGUF:Q8_0\nloop tiny\n"
          "bad hf:nothing\ncommented # hf:a/b\n",
          file);
    return fclose(file);
}

static int remove_names(void **state)
{
    (void)state;
    return unlink(names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form_is_read),
        cmocka_unit_test(what_is_none_is_refused_with_advice),
        cmocka_unit_test(what_can_only_be_a_file_is_known_by_its_text),
        cmocka_unit_test(a_short_name_is_kept_without_its_tag),
        cmocka_unit_test(without_a_file_of_names_none_is_known),
        cmocka_unit_test(a_secret_of_a_url_is_not_in_a_message),
        cmocka_unit_test(the_file_of_names_is_found_by_the_environment),
    };
    return cmocka_run_group_tests(tests, write_names, remove_names);
}
