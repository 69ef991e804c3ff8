/* What is fetched: files below a folder and beside it. Fetching over HTTP is tested end to end. */
#include "fakes/cmocka_all.h"

#include "base/clock.h"
#include "base/memory.h"
#include "media/media_fetch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files ---- */

static char folder[] = "/tmp/hearth-fetch-XXXXXX";

static int fetch(const char *url, size_t most, struct buf *bytes, hearth_error *error)
{
    char *below = mem_format("%s/below", folder);
    const struct media_sources sources = {
        .folder = below, .most_bytes = most, .deadline = clock_now(clock_monotonic()) + clock_from_ms(5000)};
    buf_clear(bytes);
    int rc = media_fetch(url, &sources, bytes, error);
    free(below);
    return rc;
}

static void files_below_the_folder_are_read(void **state)
{
    (void)state;
    static const char *const good[] = {"file://a.txt",   "file:///a.txt",        "FILE://deep/b%20c.txt",
                                       "file://./a.txt", "file://deep/../a.txt", "file://inside.txt"};
    static const char *const bad[] = {"file://../beside.txt",
                                      "file:///../beside.txt",
                                      "file://%2e%2e/beside.txt",
                                      "file://deep/../../beside.txt",
                                      "file://link.txt",
                                      "file://linked/beside.txt",
                                      "file:///etc/passwd",
                                      "file://none.txt",
                                      "file://deep",
                                      "file://",
                                      "file://fifo",
                                      "file://a.txt%00.png/"};
    struct buf bytes = {0};
    hearth_error error;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (fetch(good[i], 100, &bytes, &error) != HEARTH_OK) fail_msg("%s %s", good[i], error.message);
        assert_string_equal(bytes.v, "below");
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (fetch(bad[i], 100, &bytes, &error) == HEARTH_OK) fail_msg("%s is read: %s", bad[i], bytes.v);
        assert_int_equal(error.code, HEARTH_INVALID);
        assert_non_null(strstr(error.message, "is no file below models.*.media_path"));
        assert_null(strstr(error.message, folder));
    }
    assert_int_equal(fetch("file://a.txt", 4, &bytes, &error), HEARTH_TOO_LONG);
    assert_int_equal(fetch("file://a.txt", 5, &bytes, &error), HEARTH_OK);
    buf_release(&bytes);
}

static void what_the_configuration_does_not_allow_is_refused_with_its_key(void **state)
{
    (void)state;
    static const struct {
        const char *url, *says;
    } rows[] = {{"https://example.com/a.png", "models.*.media_urls"},
                {"HTTP://127.0.0.1/", "models.*.media_urls"},
                {"file://a.txt", "models.*.media_path"},
                {"ftp://example.com/a.png", "a kind that is not fetched"},
                {"gopher://example.com/", "a kind that is not fetched"}};
    const struct media_sources nothing = {.most_bytes = 100};
    struct buf bytes = {0};
    hearth_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(media_fetch(rows[i].url, &nothing, &bytes, &error), HEARTH_UNSUPPORTED);
        if (strstr(error.message, rows[i].says) == NULL) fail_msg("%s: %s", rows[i].url, error.message);
    }
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    char *command = mem_format("cd '%s' && mkdir -p below/deep && printf below | tee below/a.txt 'below/deep/b c.txt' "
                               ">/dev/null && printf beside >beside.txt && ln -s ../beside.txt below/link.txt && "
                               "ln -s .. below/linked && ln -s a.txt below/inside.txt && mkfifo below/fifo",
                               folder);
    int rc = system(command);
    free(command);
    return rc;
}

static int remove_folder(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s'", folder);
    int rc = system(command);
    free(command);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_below_the_folder_are_read),
        cmocka_unit_test(what_the_configuration_does_not_allow_is_refused_with_its_key),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
