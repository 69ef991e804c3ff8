/* Programs run on uploads: what they see, and that none takes more than it may; and the text of a PDF file. */
#include "fakes/cmocka_all.h"

#include "base/clock.h"
#include "base/memory.h"
#include "media/child.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct media_bytes hello = {(const uint8_t *)"hello", 5};

static void append(void *ud, const char *bytes, size_t n)
{
    buf_append(ud, bytes, n);
}

static int run(const char *script, struct buf *output, hearth_error *error)
{
    const char *const args[] = {"-c", script, NULL};
    const struct media_program program = {
        .name = "sh", .package = "dash", .args = args, .seconds = 2, .most_memory = 256 << 20, .most_output = 1 << 20};
    buf_clear(output);
    return media_child_run(&program, &hello, &(struct media_sink){append, output}, error);
}

static void a_program_sees_the_upload_and_nothing_else(void **state)
{
    (void)state;
    struct buf output = {0};
    hearth_error error;
    assert_int_equal(run("cat " MEDIA_CHILD_INPUT "; cat", &output, &error), HEARTH_OK);
    assert_string_equal(buf_text(&output), "hellohello");
    setenv("HEARTH_SECRET", "key", 1);
    assert_int_equal(run("env; ls /proc/self/fd | wc -l", &output, &error), HEARTH_OK);
    assert_null(strstr(output.v, "SECRET"));
    assert_non_null(strstr(output.v, "\n4\n")); /* of ls: 0, 1, 2 and the folder */
    buf_release(&output);
}

static void it_cannot_write_a_file(void **state)
{
    (void)state;
    struct buf output = {0};
    hearth_error error;
    char *path = mem_format("/tmp/hearth-child-%d", (int)getpid()), *script = mem_format("echo words > %s", path);
    assert_int_equal(run(script, &output, &error), HEARTH_INVALID);
    assert_int_equal(access(path, F_OK) == 0 ? unlink(path) : 0, 0);
    buf_release(&output);
    free(script);
    free(path);
}

static void whoever_takes_too_much_is_ended(void **state)
{
    (void)state;
    static const struct {
        const char *script, *says;
        int code;
    } rows[] = {{"sleep 30", "takes sh more than 2 seconds", HEARTH_TOO_LONG},
                {"exec cat /dev/zero", "is more than 1024 KiB when sh has read it", HEARTH_TOO_LONG},
                {"while :; do :; done", "takes sh more than 2 seconds", HEARTH_TOO_LONG},
                {"exec >/dev/null; sleep 30", "takes sh more than 2 seconds", HEARTH_TOO_LONG},
                {"exit 3", "cannot be read by sh", HEARTH_INVALID},
                {"kill -SEGV $$", "cannot be read by sh", HEARTH_INVALID},
                {"exec head -c 600m /dev/zero | exec tail -c 500m | exec wc -c | grep -q 52", "cannot be read",
                 HEARTH_INVALID}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf output = {0};
        hearth_error error;
        int64_t began_at = clock_now(clock_monotonic());
        assert_int_equal(run(rows[i].script, &output, &error), rows[i].code);
        if (strstr(error.message, rows[i].says) == NULL) fail_msg("%s: %s", rows[i].script, error.message);
        assert_true(clock_to_ms(clock_now(clock_monotonic()) - began_at) < 20000);
        buf_release(&output);
    }
}

static bool at_fourth_look(void *ud)
{
    int *looks = ud;
    return ++*looks >= 4;
}

static void a_program_ends_with_the_request(void **state)
{
    (void)state;
    static const char *const args[] = {"-c", "sleep 30", NULL};
    int looks = 0;
    const struct media_stop stop = {at_fourth_look, &looks};
    const struct media_program program = {.name = "sh",
                                          .package = "dash",
                                          .args = args,
                                          .seconds = 20,
                                          .most_memory = 256 << 20,
                                          .most_output = 1,
                                          .stop = &stop};
    struct buf output = {0};
    hearth_error error;
    int64_t began_at = clock_now(clock_monotonic());
    for (int i = 0; i < 2; i++) /* the second before it begins */
        assert_int_equal(media_child_run(&program, &hello, &(struct media_sink){append, &output}, &error),
                         HEARTH_CANCELLED);
    assert_true(clock_to_ms(clock_now(clock_monotonic()) - began_at) < 5000);
}

static void what_is_not_installed_is_named_with_its_package(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    const struct media_program program = {
        .name = "hearth-no-such-program", .package = "nothing-brings-it", .args = none};
    struct buf output = {0};
    hearth_error error;
    assert_int_equal(media_child_run(&program, &hello, &(struct media_sink){append, &output}, &error),
                     HEARTH_UNSUPPORTED);
    assert_non_null(strstr(error.message, "hearth-no-such-program"));
    assert_non_null(strstr(error.message, "nothing-brings-it"));
}

/* ---- PDF ---- */

static void a_pdf_document_has_text(void **state)
{
    (void)state;
    static const char file[] =
        "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R"
        "/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n"
        "4 0 obj<</Length 43>>stream\nBT /F1 12 Tf 20 50 Td (The code is 42.) Tj ET\nendstream endobj\n"
        "trailer<</Root 1 0 R>>\n";
    const struct media_bytes pdf = {(const uint8_t *)file, sizeof file - 1};
    struct buf text = {0};
    hearth_error error;
    assert_int_equal(media_format_of(&pdf), MEDIA_PDF);
    if (media_document_text(&pdf, 1 << 20, NULL, &text, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_non_null(strstr(buf_text(&text), "The code is 42."));
    buf_release(&text);
    assert_int_equal(media_document_text(&pdf, 10, NULL, &text, &error), HEARTH_TOO_LONG);
    buf_release(&text);
    const struct media_bytes broken = {(const uint8_t *)"%PDF-1.4\njunk", 13};
    assert_int_equal(media_document_text(&broken, 1 << 20, NULL, &text, &error), HEARTH_INVALID);
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_sees_the_upload_and_nothing_else),
        cmocka_unit_test(it_cannot_write_a_file),
        cmocka_unit_test(whoever_takes_too_much_is_ended),
        cmocka_unit_test(a_program_ends_with_the_request),
        cmocka_unit_test(what_is_not_installed_is_named_with_its_package),
        cmocka_unit_test(a_pdf_document_has_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
