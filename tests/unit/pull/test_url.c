/* URLs: where bytes may come from, which redirects are followed, and what is shown. */
#include "fakes/cmocka_all.h"

#include "pull/web.h"

#include <stdlib.h>
#include <string.h>

static struct pull_url url_of(const char *text)
{
    struct pull_url url = {0};
    hearth_error error;
    if (pull_url_read(text, &url, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return url;
}

static void origins_are_scheme_host_and_port(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"https://Example.ORG/a?b", "https://example.org:443"},
                                          {"HTTP://127.0.0.1:81", "http://127.0.0.1:81"},
                                          {"https://[::1]/", "https://[::1]:443"}};
    static const char *const bad[] = {"", "example.org/a", "ftp://h/a", "file:///a", "https://a@h/", "http://"};
    struct pull_url url = {0};
    hearth_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(pull_url_read(rows[i][0], &url, &error), HEARTH_OK);
        assert_string_equal(url.origin, rows[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (pull_url_read(bad[i], &url, &error) != HEARTH_INVALID) fail_msg("'%s' is taken", bad[i]);
    pull_url_release(&url);
}

static void plain_http_is_for_this_machine_unless_it_is_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        bool plain, asked;
    } rows[] = {{"https://a.example/", true, true},   {"http://a.example/", false, true},
                {"http://127.0.0.1:80/", true, true}, {"http://127.9.9.9/", true, true},
                {"http://[::1]/", true, true},        {"http://localhost/", true, true},
                {"http://10.0.0.1/", false, true},    {"http://localhost.example/", false, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_url url = url_of(rows[i].url);
        hearth_error error;
        assert_int_equal(pull_url_allow(&url, false, &error) == HEARTH_OK, rows[i].plain);
        assert_int_equal(pull_url_allow(&url, true, &error) == HEARTH_OK, rows[i].asked);
        pull_url_release(&url);
    }
}

static void redirects_neither_lose_encryption_nor_lead_to_this_machine(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        bool asks, allowed;
    } rows[] = {
        {"https://a/", "https://b/", false, true},
        {"https://a/", "http://a/", false, false},
        {"https://a/", "http://a/", true, false},
        {"https://a/", "http://127.0.0.1/", true, false},
        {"https://a/", "https://127.0.0.1/", false, false},
        {"http://a/", "http://localhost/", true, false},
        {"http://a/", "http://b/", true, true},
        {"http://127.0.0.1/", "http://127.0.0.2:1/", false, true},
        {"http://127.0.0.1/", "http://b/", false, false},
        {"http://127.0.0.1/", "https://b/", false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_url from = url_of(rows[i].from), to = url_of(rows[i].to);
        hearth_error error = {0};
        if ((pull_url_allow_redirect(&from, &to, rows[i].asks, &error) == HEARTH_OK) != rows[i].allowed)
            fail_msg("%s to %s: %s", rows[i].from, rows[i].to, error.message);
        pull_url_release(&from);
        pull_url_release(&to);
    }
}

static void what_is_shown_has_no_query(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"https://h/a.gguf?sig=secret", "https://h/a.gguf"},
                                          {"https://h/a.gguf#secret", "https://h/a.gguf"},
                                          {"https://h/\033[2J", "https://h/\\u001b[2J"}};
    struct buf shown = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        buf_clear(&shown);
        pull_url_put(&shown, rows[i][0]);
        assert_string_equal(shown.v, rows[i][1]);
    }
    buf_release(&shown);
}

static void the_files_of_urls_are_decoded_and_replaced(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"https://h/x/a%20b.gguf?q=/c", "a b.gguf"},
                                          {"https://h/%2e%2e%2fa", "../a"}};
    static const char *const bad[] = {"https://h/", "https://h/a%00.gguf", "https://h/x/?a.gguf"};
    struct buf file = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        buf_clear(&file);
        assert_true(pull_url_put_file(&file, rows[i][0]));
        assert_string_equal(file.v, rows[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(pull_url_put_file(&file, bad[i]));
    buf_release(&file);
    char *other = pull_url_with_file("https://h/x/a-00001-of-00002.gguf?sig=1", "a b-00002-of-00002.gguf");
    assert_string_equal(other, "https://h/x/a%20b-00002-of-00002.gguf?sig=1");
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(origins_are_scheme_host_and_port),
        cmocka_unit_test(plain_http_is_for_this_machine_unless_it_is_asked_for),
        cmocka_unit_test(redirects_neither_lose_encryption_nor_lead_to_this_machine),
        cmocka_unit_test(what_is_shown_has_no_query),
        cmocka_unit_test(the_files_of_urls_are_decoded_and_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
