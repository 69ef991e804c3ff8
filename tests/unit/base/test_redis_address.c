/* Addresses of Redis servers: what is one, what is none and why, and which are on this machine. */
#include "fakes/cmocka_all.h"

#include "base/host.h"

#include <string.h>

static void addresses_are_parsed(void **state)
{
    static const struct {
        const char *text, *name, *path;
        uint16_t port;
        int32_t database;
        bool local, tls;
    } cases[] = {{"redis://localhost", "localhost", "", 6379, 0, true, false},
                 {"redis://127.0.0.1:7000/15", "127.0.0.1", "", 7000, 15, true, false},
                 {"redis://[::1]:7000", "::1", "", 7000, 0, true, false},
                 {"redis://[2001:db8::1]/2", "2001:db8::1", "", 6379, 2, false, false},
                 {"redis://Cache.example:1/", "Cache.example", "", 1, 0, false, false},
                 {"rediss://cache.example:6380/1", "cache.example", "", 6380, 1, false, true},
                 {"rediss://127.0.0.1", "127.0.0.1", "", 6379, 0, true, true},
                 {"redis://10.0.0.7:65535", "10.0.0.7", "", 65535, 0, false, false},
                 {"redis://0.0.0.0", "0.0.0.0", "", 6379, 0, false, false},
                 {"unix:/run/redis/redis.sock", "", "/run/redis/redis.sock", 0, 0, true, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct redis_address address;
        const char *fault = redis_address_parse(cases[i].text, &address);
        if (fault != NULL) fail_msg("%s %s", cases[i].text, fault);
        assert_string_equal(address.name, cases[i].name);
        assert_string_equal(address.path, cases[i].path);
        assert_int_equal(address.port, cases[i].port);
        assert_int_equal(address.database, cases[i].database);
        assert_int_equal(redis_address_is_local(&address), cases[i].local);
        assert_int_equal(address.tls, cases[i].tls);
    }
}

static void what_is_none_is_told_why(void **state)
{
    static const struct {
        const char *text, *fault;
    } cases[] = {{"", "none of redis://"},
                 {"localhost:6379", "none of redis://"},
                 {"http://localhost", "none of redis://"},
                 {"redis://", "names no host"},
                 {"redis:///3", "names no host"},
                 {"redis://a b", "names no host"},
                 {"redis://[::1", "names no host"},
                 {"redis://me:secret@cache.example", "password_file"},
                 {"redis://localhost:0", "port"},
                 {"redis://localhost:65536", "port"},
                 {"redis://localhost:", "port"},
                 {"redis://localhost/x", "database"},
                 {"redis://localhost/-1", "database"},
                 {"redis://localhost/1/2", "database"},
                 {"redis://localhost/70000", "database"},
                 {"unix:", "no path"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct redis_address address;
        const char *fault = redis_address_parse(cases[i].text, &address);
        if (fault == NULL || strstr(fault, cases[i].fault) == NULL) fail_msg("%s: %s", cases[i].text, fault);
    }
    char longest[300] = "unix:/";
    memset(longest + 6, 'x', 110);
    struct redis_address address;
    assert_non_null(redis_address_parse(longest, &address));
    memcpy(longest, "redis://", 8);
    memset(longest + 8, 'x', 280);
    assert_non_null(redis_address_parse(longest, &address));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_parsed),
        cmocka_unit_test(what_is_none_is_told_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
