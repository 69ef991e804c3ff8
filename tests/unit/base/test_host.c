/* Hosts as headers and people write them. */
#include "base/host.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { NONE, NAME, ADDRESS };

static int kind_of(const char *text, size_t len, struct host *host)
{
    if (!host_parse(text, len, host)) return NONE;
    return host->name[0] != '\0' ? NAME : ADDRESS;
}

static void a_host_is_a_name_or_an_address_and_maybe_a_port(void **state)
{
    static const struct {
        const char *text;
        int kind;
        const char *name;
    } rows[] = {
        {"localhost", NAME, "localhost"},
        {"LocalHost:8080", NAME, "localhost"},
        {"box.example.org.:1", NAME, "box.example.org"},
        {"my_box-1", NAME, "my_box-1"},
        {"box:", NAME, "box"},
        {"127.0.0.1.evil.example", NAME, "127.0.0.1.evil.example"},
        {"2130706433", NAME, "2130706433"}, /* some parsers read an address, but no browser sends this */
        {"127.1", NAME, "127.1"},
        {"127.0.0.1", ADDRESS, ""},
        {"127.0.0.1:65535", ADDRESS, ""},
        {"[::1]", ADDRESS, ""},
        {"[0:0:0:0:0:0:0:1]:8080", ADDRESS, ""},
        {"[::ffff:127.0.0.1]", ADDRESS, ""},
        {"", NONE, ""},
        {".", NONE, ""},
        {":80", NONE, ""},
        {"::1", NONE, ""},
        {"[::1", NONE, ""},
        {"[::1]x", NONE, ""},
        {"[::1]:x", NONE, ""},
        {"[localhost]", NONE, ""},
        {"[127.0.0.1]", NONE, ""},
        {"[fe80::1%25eth0]", NONE, ""},
        {"[1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa]", NONE, ""},
        {"localhost:80:80", NONE, ""},
        {"localhost:8080@evil.example", NONE, ""},
        {"localhost@evil.example", NONE, ""},
        {"localhost/", NONE, ""},
        {"localhost, evil.example", NONE, ""},
        {"localhost ", NONE, ""},
        {"b\xc3\xbcro", NONE, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct host host;
        if (kind_of(rows[i].text, strlen(rows[i].text), &host) != rows[i].kind) fail_msg("%s", rows[i].text);
        if (rows[i].kind == NAME) assert_string_equal(host.name, rows[i].name);
    }
}

static void a_name_has_its_bound_and_no_zero_in_it(void **state)
{
    (void)state;
    struct host host;
    char text[300];
    memset(text, 'a', sizeof text);
    assert_int_equal(kind_of(text, HOST_NAME_MAX_BYTES, &host), NAME);
    assert_int_equal(strlen(host.name), HOST_NAME_MAX_BYTES);
    assert_int_equal(kind_of(text, HOST_NAME_MAX_BYTES + 1, &host), NONE);
    assert_int_equal(kind_of("localhost\0.evil", 15, &host), NONE);
}

static void loopback_is_what_reaches_this_machine_alone(void **state)
{
    static const struct {
        const char *text;
        bool loopback;
    } rows[] = {
        {"localhost", true},
        {"LOCALHOST.", true},
        {"app.localhost:3000", true},
        {"127.0.0.1", true},
        {"127.255.255.254", true},
        {"[::1]", true},
        {"[::ffff:127.0.0.1]", true},
        {"0.0.0.0", true},
        {"[::]", true},
        {"localhost.evil.example", false},
        {"evillocalhost", false},
        {".localhost", false},
        {"127.0.0.1.evil.example", false},
        {"128.0.0.1", false},
        {"10.0.0.1", false},
        {"192.168.1.2", false},
        {"[::2]", false},
        {"[fe80::1]", false},
        {"[::ffff:10.0.0.1]", false},
        {"[::127.0.0.1]", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct host host;
        assert_true(host_parse(rows[i].text, strlen(rows[i].text), &host));
        if (host_is_loopback(&host) != rows[i].loopback) fail_msg("%s", rows[i].text);
    }
}

static void hosts_are_equal_however_they_are_written(void **state)
{
    static const struct {
        const char *a, *b;
        bool equal;
    } rows[] = {
        {"box", "BOX.", true},          {"box", "box.local", false},          {"[fd00::5]", "fd00::5", true},
        {"fd00:0::5", "fd00::5", true}, {"10.0.0.1", "[::ffff:a00:1]", true}, {"10.0.0.1", "10.0.0.2", false},
        {"10.0.0.1", "box", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct host a, b;
        assert_true(host_parse_listed(rows[i].a, &a));
        assert_true(host_parse_listed(rows[i].b, &b));
        if (host_equal(&a, &b) != rows[i].equal) fail_msg("%s and %s", rows[i].a, rows[i].b);
    }
}

static void a_socket_has_an_address_unless_it_is_a_file(void **state)
{
    (void)state;
    struct host host, wanted;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    assert_true(host_of_socket((struct sockaddr *)&v4, &host));
    assert_true(host_is_unspecified(&host));
    assert_true(host_of_socket((struct sockaddr *)&v6, &host));
    assert_true(host_is_unspecified(&host));
    v4.sin_addr.s_addr = htonl(0x0a000001);
    assert_true(host_of_socket((struct sockaddr *)&v4, &host));
    assert_true(host_parse("10.0.0.1", 8, &wanted));
    assert_true(host_equal(&host, &wanted));
    assert_false(host_is_unspecified(&host));
    struct sockaddr file = {.sa_family = AF_UNIX};
    assert_false(host_of_socket(&file, &host));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_a_name_or_an_address_and_maybe_a_port),
        cmocka_unit_test(a_name_has_its_bound_and_no_zero_in_it),
        cmocka_unit_test(loopback_is_what_reaches_this_machine_alone),
        cmocka_unit_test(hosts_are_equal_however_they_are_written),
        cmocka_unit_test(a_socket_has_an_address_unless_it_is_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
