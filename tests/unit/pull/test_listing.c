/* Listings: which files of a repository are chosen, and which names are refused. */
#include "fakes/cmocka_all.h"

#include "base/buf.h"
#include "base/memory.h"
#include "pull/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* A listing of these paths, separated by blanks. */
static void list(struct pull_listing *listing, const char *paths)
{
    struct buf json = {0};
    char *copy = mem_strdup(paths), *rest = NULL;
    hearth_error error;
    buf_puts(&json, "[{\"type\":\"directory\",\"path\":\"folder.gguf\"},{\"type\":\"file\",\"path\":\"README.md\"}");
    for (char *path = strtok_r(copy, " ", &rest); path != NULL; path = strtok_r(NULL, " ", &rest))
        buf_printf(&json, ",{\"type\":\"file\",\"path\":\"%s\",\"size\":5,\"lfs\":{\"oid\":\"" SHA "\",\"size\":7}}",
                   path);
    buf_puts(&json, "]");
    *listing = (struct pull_listing){0};
    if (pull_listing_add(listing, json.v, json.len, &error) != HEARTH_OK) fail_msg("%s", error.message);
    buf_release(&json);
    free(copy);
}

static void the_right_files_are_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *paths, *quant, *chosen;
    } rows[] = {
        {"m.gguf", NULL, "m.gguf"},
        {"m-Q8_0.gguf m-Q4_K_M.gguf m-F16.gguf", NULL, "m-Q4_K_M.gguf"},
        {"m-Q8_0.gguf m-Q3_K_S.gguf", NULL, "m-Q8_0.gguf"},
        {"m-Q8_0.gguf m-Q4_K_M.gguf", "q8_0", "m-Q8_0.gguf"},
        {"m-Q4_K_M.gguf m-Q4_K_S.gguf m-IQ4_K.gguf m-Q4_K.gguf", "Q4_K", "m-Q4_K.gguf"},
        {"m-UD-Q4_K_XL.gguf m-Q4_K_M.gguf", "Q4_K_XL", "m-UD-Q4_K_XL.gguf"},
        {"m-Q4_0.gguf m-Q4_0_4_4.gguf", "Q4_0", "m-Q4_0.gguf"},
        {"Q4_K_M/m.gguf Q8_0/m.gguf", "Q8_0", "Q8_0/m.gguf"},
        {"a-Q4_K_M.gguf b-Q4_K_M.gguf", "b-Q4_K_M.gguf", "b-Q4_K_M.gguf"},
        {"x/a.gguf y/a.gguf", "y/a.gguf", "y/a.gguf"},
        {"m-imatrix.gguf m.gguf", NULL, "m.gguf"},
        {"m-Q8_0-00002-of-00003.gguf m-Q8_0-00001-of-00003.gguf m-Q8_0-00003-of-00003.gguf m-Q4_0.gguf", "Q8_0",
         "m-Q8_0-00001-of-00003.gguf m-Q8_0-00002-of-00003.gguf m-Q8_0-00003-of-00003.gguf"},
        {"m.gguf mmproj-m-f16.gguf", NULL, "m.gguf +mmproj-m-f16.gguf"},
        {"m.gguf mmproj-m-Q8_0.gguf mmproj-m-F16.gguf mmproj-m-F32.gguf mmproj-m-BF16.gguf", NULL,
         "m.gguf +mmproj-m-F16.gguf"},
        {"a/m-Q8_0.gguf b/mmproj-F16.gguf a/mmproj-F32.gguf mmproj-F16.gguf", "Q8_0",
         "a/m-Q8_0.gguf +a/mmproj-F32.gguf"},
        {"a/m-Q8_0.gguf b/mmproj-F16.gguf mmproj-F32.gguf", "Q8_0", "a/m-Q8_0.gguf +mmproj-F32.gguf"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_listing listing;
        struct pull_choice choice;
        hearth_error error;
        struct buf chosen = {0};
        list(&listing, rows[i].paths);
        if (pull_choose(&listing, rows[i].quant, &choice, &error) != HEARTH_OK)
            fail_msg("%s: %s", rows[i].paths, error.message);
        for (size_t k = 0; k < choice.n; k++)
            buf_printf(&chosen, "%s%s%s", k == 0 ? "" : " ", choice.has_projector && k + 1 == choice.n ? "+" : "",
                       choice.v[k].path);
        assert_string_equal(buf_text(&chosen), rows[i].chosen);
        assert_int_equal(choice.v[0].size, 7);
        assert_true(choice.v[0].has_sha);
        buf_release(&chosen);
        pull_choice_release(&choice);
        pull_listing_release(&listing);
    }
}

static void what_is_missing_or_ambiguous_is_refused_with_what_there_is(void **state)
{
    (void)state;
    static const struct {
        const char *paths, *quant, *says;
        int code;
    } rows[] = {
        {"", NULL, "has no GGUF file of weights", HEARTH_NOT_FOUND},
        {"mmproj-f16.gguf", NULL, "has no GGUF file of weights", HEARTH_NOT_FOUND},
        {"m-Q8_0.gguf", "Q4_0", "no file of the repository has Q4_0 in its name; there is: m-Q8_0.gguf",
         HEARTH_NOT_FOUND},
        {"a-Q8_0.gguf b-Q8_0.gguf c-F16.gguf", "Q8_0", "there is: a-Q8_0.gguf, b-Q8_0.gguf", HEARTH_INVALID},
        {"a.gguf b.gguf", NULL, "has several models: name a file", HEARTH_INVALID},
        {"m-00001-of-00002.gguf", NULL, "lacks part 2 of 2", HEARTH_NOT_FOUND},
        {"m-00001-of-00003.gguf m-00002-of-00002.gguf m-00003-of-00003.gguf", NULL, "lacks part 2 of 3",
         HEARTH_NOT_FOUND},
        {"x.gguf m\\u001b[2J.gguf", NULL, "m\\u001b[2J.gguf", HEARTH_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_listing listing;
        struct pull_choice choice;
        hearth_error error = {0};
        list(&listing, rows[i].paths);
        int rc = pull_choose(&listing, rows[i].quant, &choice, &error);
        if (rc != rows[i].code || strstr(error.message, rows[i].says) == NULL)
            fail_msg("%s: %d %s", rows[i].paths, rc, error.message);
        pull_choice_release(&choice);
        pull_listing_release(&listing);
    }
}

static void a_list_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{}", "\"a\"", "[", "<html>"};
    static const char odd[] = "[1, null, {}, {\"path\": 3}, {\"path\": \"a.gguf\", \"size\": \"x\", \"lfs\": []},"
                              "{\"path\": \"b.gguf\", \"size\": 3, \"lfs\": {\"oid\": \"123\"}}]";
    struct pull_listing listing = {0};
    hearth_error error;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(pull_listing_add(&listing, texts[i], strlen(texts[i]), &error), HEARTH_IO);
    assert_int_equal(listing.n, 0);
    assert_int_equal(pull_listing_add(&listing, odd, strlen(odd), &error), HEARTH_OK);
    assert_int_equal(listing.n, 2);
    assert_int_equal(listing.v[0].size, -1);
    assert_int_equal(listing.v[1].size, 3);
    assert_false(listing.v[1].has_sha);
    pull_listing_release(&listing);
}

static void names_of_strangers_cannot_leave_the_folder(void **state)
{
    (void)state;
    char longest[202 + 1], too_long[203 + 1];
    static const char *const bad[] = {"",        ".gguf",         "..",        "../a.gguf", "a/b.gguf",
                                      ".a.gguf", "a\033[2J.gguf", "a\n.gguf",  "a.bin",     "a.gguf.part",
                                      "lock",    "manifest.json", "a\xff.gguf"};
    static const char *const good[] = {"a.gguf", "A b-Q4_K_M.GGUF", "m-00001-of-00003.gguf", "\xc3\xa9.gguf"};
    hearth_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (pull_check_file_name(bad[i], &error) != HEARTH_INVALID) fail_msg("'%s' is taken", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (pull_check_file_name(good[i], &error) != HEARTH_OK) fail_msg("%s", error.message);
    snprintf(longest, sizeof longest, "%0195d.gguf", 1);
    snprintf(too_long, sizeof too_long, "%0196d.gguf", 1);
    assert_int_equal(pull_check_file_name(longest, &error), HEARTH_OK);
    assert_int_equal(pull_check_file_name(too_long, &error), HEARTH_INVALID);
    pull_check_file_name("a\033[2J.gguf", &error);
    assert_null(strchr(error.message, '\033'));
}

static void names_of_models_are_names_of_configurations(void **state)
{
    (void)state;
    static const char *const bad[] = {"", ".", "..", ".a", "-a", "a/b", "a b", "a\tb", "*"};
    char too_long[130];
    hearth_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (pull_check_model_name(bad[i], &error) != HEARTH_INVALID) fail_msg("'%s' is taken", bad[i]);
    snprintf(too_long, sizeof too_long, "%0129d", 1);
    assert_int_equal(pull_check_model_name(too_long, &error), HEARTH_INVALID);
    assert_int_equal(pull_check_model_name(too_long + 1, &error), HEARTH_OK);
    assert_int_equal(pull_check_model_name("Qwen2.5-VL_7B", &error), HEARTH_OK);
}

static void a_model_is_named_after_its_first_file(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"a/b/m-Q8_0.gguf", "m-Q8_0"},
                                          {"m-Q8_0-00001-of-00003.gguf", "m-Q8_0"},
                                          {"m-00004-of-00003.gguf", "m-00004-of-00003"},
                                          {"m-0001-of-00003.gguf", "m-0001-of-00003"},
                                          {"m.GGUF", "m"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *name = pull_model_name(rows[i][0]);
        assert_string_equal(name, rows[i][1]);
        free(name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_files_are_chosen),
        cmocka_unit_test(what_is_missing_or_ambiguous_is_refused_with_what_there_is),
        cmocka_unit_test(a_list_that_is_none_is_refused),
        cmocka_unit_test(names_of_strangers_cannot_leave_the_folder),
        cmocka_unit_test(names_of_models_are_names_of_configurations),
        cmocka_unit_test(a_model_is_named_after_its_first_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
