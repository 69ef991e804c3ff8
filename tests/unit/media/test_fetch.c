/* What is fetched: addresses that are public and those that are not, and files below a folder and beside it. Fetching
 * over HTTP is tested end to end. */
#include "fakes/cmocka_all.h"

#include "base/clock.h"
#include "base/memory.h"
#include "media/fetch.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Addresses ---- */

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) return media_address_is_public((struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return media_address_is_public((struct sockaddr *)&v6);
}

static void addresses_that_are_not_public_are_known(void **state)
{
    (void)state;
    static const char *const private[] = {
        "0.0.0.0",      "0.1.2.3",          "10.0.0.1",        "10.255.255.255", "100.64.0.1",      "100.127.255.255",
        "127.0.0.1",    "127.255.0.1",      "169.254.169.254", "172.16.0.1",     "172.31.255.255",  "192.0.0.1",
        "192.0.2.1",    "192.88.99.1",      "192.168.1.1",     "198.18.0.1",     "198.19.255.255",  "198.51.100.7",
        "203.0.113.9",  "224.0.0.1",        "239.1.1.1",       "240.0.0.1",      "255.255.255.255", "::",
        "::1",          "::ffff:127.0.0.1", "::ffff:10.1.1.1", "::127.0.0.1",    "64:ff9b::7f00:1", "64:ff9b:1::1",
        "100::1",       "2001::1",          "2001:db8::1",     "2002:7f00:1::",  "3fff::1",         "fc00::1",
        "fd12:3456::1", "fe80::1",          "fec0::1",         "ff02::1",        "4000::1",         "5f00::1"};
    static const char *const public[] = {"1.1.1.1",      "9.255.255.255",   "11.0.0.0",        "100.63.255.255",
                                         "100.128.0.0",  "126.255.255.255", "128.0.0.1",       "169.253.1.1",
                                         "172.15.0.1",   "172.32.0.1",      "192.0.1.1",       "192.169.0.1",
                                         "198.17.0.1",   "198.20.0.1",      "223.255.255.255", "::ffff:8.8.8.8",
                                         "2606:4700::1", "2a00:1450::1",    "2001:4860::8888", "2003::1"};
    for (size_t i = 0; i < sizeof private / sizeof *private; i++)
        if (is_public(private[i])) fail_msg("%s is taken for a public address", private[i]);
    for (size_t i = 0; i < sizeof public / sizeof *public; i++)
        if (!is_public(public[i])) fail_msg("%s is not taken for a public address", public[i]);
    assert_false(media_address_is_public(&(struct sockaddr){.sa_family = AF_UNIX}));
}

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
        cmocka_unit_test(addresses_that_are_not_public_are_known),
        cmocka_unit_test(files_below_the_folder_are_read),
        cmocka_unit_test(what_the_configuration_does_not_allow_is_refused_with_its_key),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
