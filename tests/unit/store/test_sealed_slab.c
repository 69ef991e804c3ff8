/* Sealed slabs: parts cover a slab without gaps; whatever is changed, in bytes, head, name or secret, is noticed; what
 * was encrypted shows nothing of the slab. */
#include "fakes/cmocka_all.h"
#include "store/slabs/sealed_slab.h"

#include "slabs.h"

#define MIB (1u << 20)

static const char secret[] = "a secret of the tests, long enough";

static struct sealed_keys keys_of(const char *text, bool encrypts)
{
    struct sealed_keys keys;
    sealed_keys_init(&keys, text, strlen(text), encrypts);
    return keys;
}

static void fill(uint8_t *bytes, size_t size, uint32_t seed)
{
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)((i + seed) * 2654435761u >> 24);
}

static const struct slab_name name = {{{1, 2, 3}}, SLAB_ROWS};

/* ---- Parts ---- */

static void parts_cover_a_slab_without_gaps(void **state)
{
    const uint64_t first = SEALED_PART_BYTES - SEALED_HEAD_BYTES;
    const struct {
        uint64_t size;
        uint32_t parts;
    } cases[] = {{1, 1},         {first - 1, 1},           {first, 1},
                 {first + 1, 2}, {first + 4 * MIB, 2},     {first + 4 * MIB + 1, 3},
                 {28 * MIB, 8},  {SEALED_MOST_BYTES, 1025}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t at = 0;
        assert_int_equal(sealed_parts(cases[i].size), cases[i].parts);
        for (uint32_t part = 0; part < cases[i].parts; part++) {
            uint64_t size = sealed_part_size(cases[i].size, part);
            assert_int_equal(sealed_part_offset(part), at);
            assert_true(size > 0 && size + (part == 0 ? SEALED_HEAD_BYTES : 0) <= SEALED_PART_BYTES);
            at += size;
        }
        assert_int_equal(at, cases[i].size);
    }
}

/* ---- Sealing ---- */

static void what_was_sealed_is_opened(void **state)
{
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct sealed_keys keys = keys_of(secret, encrypts);
        struct sealed_name sealed = sealed_name_of(&keys, &name, 256);
        uint8_t slab[1000], want[1000], bytes[SEALED_HEAD_BYTES];
        struct sealed_head head, read;
        fill(want, sizeof want, 1);
        memcpy(slab, want, sizeof slab);
        assert_true(sealed_seal(&keys, &sealed, slab, sizeof slab, &head));
        assert_int_equal(memcmp(slab, want, sizeof slab) != 0, encrypts);
        sealed_head_encode(&head, bytes);
        assert_true(sealed_head_decode(bytes, &read));
        assert_true(sealed_open(&keys, &sealed, &read, slab));
        assert_memory_equal(slab, want, sizeof slab);
    }
}

static void two_seals_of_one_slab_differ(void **state)
{
    struct sealed_keys keys = keys_of(secret, true);
    struct sealed_name sealed = sealed_name_of(&keys, &name, 256);
    uint8_t a[64] = {0}, b[64] = {0};
    struct sealed_head one, other;
    (void)state;
    assert_true(sealed_seal(&keys, &sealed, a, sizeof a, &one));
    assert_true(sealed_seal(&keys, &sealed, b, sizeof b, &other));
    assert_memory_not_equal(one.nonce, other.nonce, sizeof one.nonce);
    assert_memory_not_equal(a, b, sizeof a);
}

/* Every bit of the head and of the slab, one by one. */
static void every_changed_bit_is_noticed(void **state)
{
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct sealed_keys keys = keys_of(secret, encrypts);
        struct sealed_name sealed = sealed_name_of(&keys, &name, 256);
        uint8_t all[SEALED_HEAD_BYTES + 50], changed[sizeof all];
        struct sealed_head head;
        fill(all + SEALED_HEAD_BYTES, 50, 9);
        assert_true(sealed_seal(&keys, &sealed, all + SEALED_HEAD_BYTES, 50, &head));
        sealed_head_encode(&head, all);
        for (size_t bit = 0; bit < 8 * sizeof all; bit++) {
            memcpy(changed, all, sizeof all);
            changed[bit / 8] ^= (uint8_t)(1u << bit % 8);
            bool good = sealed_head_decode(changed, &head) && head.size == 50 &&
                        sealed_open(&keys, &sealed, &head, changed + SEALED_HEAD_BYTES);
            if (good) fail_msg("bit %zu", bit);
        }
    }
}

static void another_name_secret_or_kind_is_noticed(void **state)
{
    struct sealed_keys keys = keys_of(secret, false), others = keys_of("another secret of the tests", false),
                       encrypting = keys_of(secret, true);
    struct slab_name state_name = {name.key, SLAB_STATE}, next = name;
    next.key.v[31] ^= 1;
    const struct sealed_name sealed = sealed_name_of(&keys, &name, 256),
                             wrong[] = {sealed_name_of(&keys, &name, 128), sealed_name_of(&keys, &state_name, 256),
                                        sealed_name_of(&keys, &next, 256), sealed_name_of(&others, &name, 256),
                                        sealed_name_of(&encrypting, &name, 256)};
    uint8_t slab[32] = {0};
    struct sealed_head head;
    (void)state;
    assert_true(sealed_seal(&keys, &sealed, slab, sizeof slab, &head));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_memory_not_equal(&wrong[i], &sealed, sizeof sealed);
        assert_false(sealed_open(&keys, &wrong[i], &head, slab));
    }
    assert_false(sealed_open(&others, &sealed, &head, slab));
    assert_false(sealed_open(&encrypting, &sealed, &head, slab)); /* which takes nothing in clear */
    assert_true(sealed_open(&keys, &sealed, &head, slab));
}

/* ---- Heads ---- */

static void heads_that_are_none_are_refused(void **state)
{
    struct sealed_head good = {.size = 5000, .n_parts = 1}, read;
    const struct sealed_head bad[] = {{.size = 0, .n_parts = 1},
                                      {.size = 5000, .n_parts = 2},
                                      {.size = 5 * MIB, .n_parts = 1},
                                      {.size = SEALED_MOST_BYTES + 1, .n_parts = sealed_parts(SEALED_MOST_BYTES + 1)},
                                      {.size = UINT64_MAX, .n_parts = UINT32_MAX}};
    uint8_t bytes[SEALED_HEAD_BYTES];
    (void)state;
    sealed_head_encode(&good, bytes);
    assert_true(sealed_head_decode(bytes, &read));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sealed_head_encode(&bad[i], bytes);
        assert_false(sealed_head_decode(bytes, &read));
    }
}

static void a_slab_too_large_is_not_sealed(void **state)
{
    struct sealed_keys keys = keys_of(secret, false);
    struct sealed_name sealed = sealed_name_of(&keys, &name, 256);
    struct sealed_head head;
    uint8_t byte = 0;
    (void)state;
    assert_false(sealed_seal(&keys, &sealed, &byte, SEALED_MOST_BYTES + 1, &head));
    assert_false(sealed_seal(&keys, &sealed, &byte, 0, &head));
}

/* From the definition, computed with Python's hmac module. */
static void names_are_what_the_format_says(void **state)
{
    static const char want[] = "8005575faea81896ed0c84bc319e4d01f243e282e6f5fe861e4274e02f2341df";
    struct sealed_keys keys = keys_of("0123456789abcdef", false);
    char digits[2 * SHA256_BYTES + 1];
    (void)state;
    sha256_to_hex(sealed_name_of(&keys, &name, 256).v, digits);
    assert_string_equal(digits, want);
}

/* From the definition, computed with Node's crypto module: bytes 0 to 31 under the nonce 0 to 15. */
static void seals_are_what_the_format_says(void **state)
{
    static const struct {
        bool encrypts;
        const char *slab;
        uint8_t mac[SEAL_TAG_BYTES];
    } cases[] = {
        {.slab = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
         .mac = {0x48, 0xbb, 0x14, 0x98, 0x43, 0x81, 0x56, 0x9d, 0xb8, 0x4d, 0x98, 0xe1, 0xbe, 0x09, 0x18, 0xd7}},
        {.encrypts = true,
         .slab = "33a9730eaa344fc4ed738cca120eeb8df26bb05fe1bed46d2104014eeee4bf66",
         .mac = {0x41, 0x00, 0x55, 0xd2, 0x73, 0xc1, 0xad, 0xcd, 0x15, 0x99, 0x8c, 0x51, 0x37, 0xdd, 0x74, 0x17}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sealed_keys keys = keys_of("0123456789abcdef", cases[i].encrypts);
        struct sealed_name sealed = sealed_name_of(&keys, &name, 256);
        struct sealed_head head = {.size = 32, .n_parts = 1, .encrypted = cases[i].encrypts};
        uint8_t slab[32];
        assert_true(sha256_from_hex(cases[i].slab, slab));
        for (uint8_t n = 0; n < sizeof head.nonce; n++) head.nonce[n] = n;
        memcpy(head.mac, cases[i].mac, sizeof head.mac);
        assert_true(sealed_open(&keys, &sealed, &head, slab));
        for (uint8_t n = 0; n < sizeof slab; n++) assert_int_equal(slab[n], n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_a_slab_without_gaps),        cmocka_unit_test(what_was_sealed_is_opened),
        cmocka_unit_test(two_seals_of_one_slab_differ),           cmocka_unit_test(every_changed_bit_is_noticed),
        cmocka_unit_test(another_name_secret_or_kind_is_noticed), cmocka_unit_test(heads_that_are_none_are_refused),
        cmocka_unit_test(a_slab_too_large_is_not_sealed),         cmocka_unit_test(names_are_what_the_format_says),
        cmocka_unit_test(seals_are_what_the_format_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
