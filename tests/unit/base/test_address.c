/* Addresses that are public, and those that are not. */
#include "fakes/cmocka_all.h"

#include "base/host.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) return address_is_public((struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return address_is_public((struct sockaddr *)&v6);
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
    assert_false(address_is_public(&(struct sockaddr){.sa_family = AF_UNIX}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses_that_are_not_public_are_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
