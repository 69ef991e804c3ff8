/* SHA-256 and CRC32C against published values, and in pieces against at once. */
#include "base/crc32c.h"
#include "base/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static void crc32c_gives_the_published_values(void **state)
{
    (void)state;
    uint8_t zeros[32] = {0}, ones[32];
    memset(ones, 0xff, sizeof ones);
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, zeros, sizeof zeros), 0x8a9136aa);
    assert_int_equal(crc32c(0, ones, sizeof ones), 0x62a8ab43);
    assert_int_equal(crc32c(0, "", 0), 0);
}

static void crc32c_continues_from_any_offset(void **state)
{
    (void)state;
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 37 + i / 7);
    uint32_t whole = crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++)
        assert_int_equal(crc32c(crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut), whole);
}

static void expect_digest(const uint8_t digest[SHA256_BYTES], const char *hex)
{
    char text[2 * SHA256_BYTES + 1];
    sha256_to_hex(digest, text);
    assert_string_equal(text, hex);
}

static void sha256_gives_the_published_values(void **state)
{
    (void)state;
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    uint8_t digest[SHA256_BYTES];
    sha256_of("", 0, digest);
    expect_digest(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_of("abc", 3, digest);
    expect_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_of(two_blocks, strlen(two_blocks), digest);
    expect_digest(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void a_running_sha256_gives_the_digest_so_far_and_continues(void **state)
{
    (void)state;
    uint8_t bytes[200], running[SHA256_BYTES], whole[SHA256_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 11);
    struct sha256 *hash = sha256_open();
    for (size_t i = 0; i <= sizeof bytes; i++) {
        sha256_so_far(hash, running);
        sha256_of(bytes, i, whole);
        assert_memory_equal(running, whole, SHA256_BYTES);
        if (i < sizeof bytes) sha256_feed(hash, &bytes[i], 1);
    }
    sha256_close(hash);
    sha256_close(NULL);
}

static void only_64_lower_case_digits_are_a_digest(void **state)
{
    (void)state;
    uint8_t digest[SHA256_BYTES], back[SHA256_BYTES];
    char text[2 * SHA256_BYTES + 2];
    sha256_of("abc", 3, digest);
    sha256_to_hex(digest, text);
    assert_true(sha256_from_hex(text, back));
    assert_memory_equal(digest, back, SHA256_BYTES);
    static const char wrong[] = "gG /A`:";
    for (const char *c = wrong; *c != '\0'; c++) {
        sha256_to_hex(digest, text);
        text[17] = *c;
        assert_false(sha256_from_hex(text, back));
    }
    sha256_to_hex(digest, text);
    strcat(text, "0");
    assert_false(sha256_from_hex(text, back));
    text[63] = '\0';
    assert_false(sha256_from_hex(text, back));
    assert_false(sha256_from_hex("", back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_gives_the_published_values),
        cmocka_unit_test(crc32c_continues_from_any_offset),
        cmocka_unit_test(sha256_gives_the_published_values),
        cmocka_unit_test(a_running_sha256_gives_the_digest_so_far_and_continues),
        cmocka_unit_test(only_64_lower_case_digits_are_a_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
