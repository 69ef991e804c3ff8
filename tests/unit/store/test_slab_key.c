/* Keys: vectors computed elsewhere, and that everything a state depends on changes the key. */
#include "base/memory.h"
#include "fakes/cmocka_all.h"
#include "store/slabs/slab_key.h"

#include <stdlib.h>
#include <string.h>

static struct identity identity_with(uint8_t quant)
{
    struct identity identity = {.quant = quant};
    memset(identity.model, 0xAA, sizeof identity.model);
    memset(identity.context, 0xBB, sizeof identity.context);
    return identity;
}

static void expect_hex(const uint8_t digest[SHA256_BYTES], const char *hex)
{
    char text[2 * SHA256_BYTES + 1];
    sha256_to_hex(digest, text);
    assert_string_equal(text, hex);
}

static bool same(struct slab_key a, struct slab_key b)
{
    return slab_key_equal(&a, &b);
}

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (uint32_t)(((uint64_t)(*state >> 8) * n) >> 24);
}

/* ---- Vectors ---- */

static void keys_are_those_of_the_golden_vectors(void **state)
{
    (void)state;
    int32_t tokens[2048];
    for (int32_t i = 0; i < 2048; i++) tokens[i] = i;
    struct identity f16 = identity_with(1), q4_k_m = identity_with(7);
    expect_hex(slab_key_of(&f16, NULL, 0).v, "85fc8051287bece2c6c5a9ce4ef6373093360ac0d1a81ffbb28b23b05b049ace");
    expect_hex(slab_key_of(&f16, tokens + 1, 3).v, "8cc177adeda2e7c42843eb357ed501d2f979b9a8b4eacf7734740b128e9902c6");
    expect_hex(slab_key_of(&q4_k_m, tokens, 2048).v,
               "6f282c1b13bbeae9f59b515239ebb886d948c7eacb3b2f3c15018fa47220bbc1");
}

static struct adapter adapter_of(int byte, double scale)
{
    struct adapter adapter = {.scale = scale};
    memset(adapter.digest, byte, sizeof adapter.digest);
    return adapter;
}

static void fingerprints_with_adapters_are_those_of_the_golden_vectors(void **state)
{
    (void)state;
    struct identity identity = identity_with(1);
    struct adapter one[] = {adapter_of(0x11, 1.0)}, two[] = {adapter_of(0x22, 0.5), adapter_of(0x11, 1.0)};
    uint8_t out[SHA256_BYTES];
    fingerprint_with_adapters(identity.model, NULL, 0, out);
    assert_memory_equal(out, identity.model, sizeof out);
    fingerprint_with_adapters(identity.model, one, 1, out);
    expect_hex(out, "f5b8f3d6e1f5c1265359f6f8f47c976ba9e1ed1d3fdcb93f6b3278dc73924aea");
    fingerprint_with_adapters(identity.model, two, 2, out);
    expect_hex(out, "42ad5efc6c98389689c33a818ab50e832a39499c838990a1d8a806398d1f653e");
}

static void the_order_in_which_adapters_are_named_does_not_matter(void **state)
{
    (void)state;
    struct identity identity = identity_with(1);
    struct adapter there[] = {adapter_of(1, 0.25), adapter_of(2, -1.5), adapter_of(2, 0.75), adapter_of(3, 1)};
    struct adapter back[] = {there[3], there[2], there[1], there[0]};
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];
    fingerprint_with_adapters(identity.model, there, 4, a);
    fingerprint_with_adapters(identity.model, back, 4, b);
    assert_memory_equal(a, b, sizeof a);
    back[1].scale = 0.5;
    fingerprint_with_adapters(identity.model, back, 4, b);
    assert_memory_not_equal(a, b, sizeof a);
}

/* ---- Bytes ---- */

/* Written out by hand, lowest byte first: what any machine must hash. */
static void tokens_are_hashed_as_little_endian_on_every_machine(void **state)
{
    (void)state;
    struct identity identity = identity_with(29);
    int32_t tokens[] = {0x04030201, -2, INT32_MIN};
    static const uint8_t encoded[] = {1, 2, 3, 4, 0xFE, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0x80};
    uint8_t bytes[SHA256_BYTES + 1 + SHA256_BYTES + sizeof encoded];
    memcpy(bytes, identity.model, SHA256_BYTES);
    bytes[SHA256_BYTES] = 29;
    memcpy(bytes + SHA256_BYTES + 1, identity.context, SHA256_BYTES);
    memcpy(bytes + SHA256_BYTES + 1 + SHA256_BYTES, encoded, sizeof encoded);
    struct slab_key expected;
    sha256_of(bytes, sizeof bytes, expected.v);
    assert_true(same(slab_key_of(&identity, tokens, 3), expected));
}

static void keys_at_strides_are_the_keys_of_those_prefixes(void **state)
{
    (void)state;
    enum { N = 5000 };
    int32_t *tokens = mem_alloc(N * sizeof *tokens);
    for (int32_t i = 0; i < N; i++) tokens[i] = i * 7919;
    struct identity identity = identity_with(6);
    static const size_t strides[] = {1, 7, 256, 1024, 1025, 4999, 5000, 5001};
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
        size_t stride = strides[s], n = N / stride, step = n / 40 + 1;
        struct slab_key *keys = mem_alloc((n + 1) * sizeof *keys);
        slab_keys_at_strides(&identity, tokens, N, stride, keys);
        for (size_t i = 0; i < n; i += step)
            assert_true(same(keys[i], slab_key_of(&identity, tokens, (i + 1) * stride)));
        free(keys);
    }
    free(tokens);
}

/* ---- What changes a key ---- */

static void a_flipped_bit_anywhere_in_the_identity_changes_the_key(void **state)
{
    (void)state;
    int32_t tokens[] = {5, 6, 7};
    struct identity identity = identity_with(7);
    struct slab_key key = slab_key_of(&identity, tokens, 3);
    for (size_t bit = 0; bit < 8 * SHA256_BYTES; bit++) {
        struct identity other = identity;
        other.model[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(same(slab_key_of(&other, tokens, 3), key));
        assert_false(identity_equal(&other, &identity));
        other = identity;
        other.context[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(same(slab_key_of(&other, tokens, 3), key));
        assert_false(identity_equal(&other, &identity));
    }
    for (unsigned quant = 0; quant < 256; quant++) {
        struct identity other = identity_with((uint8_t)quant);
        assert_int_equal(same(slab_key_of(&other, tokens, 3), key), quant == 7);
        assert_int_equal(identity_equal(&other, &identity), quant == 7);
    }
}

enum { MOST = 40 };

/* One edit of a list: a token, the order of two, a token more or less. */
static size_t edit(uint32_t *random, int32_t *v, size_t n)
{
    size_t at = random_below(random, (uint32_t)n), other = random_below(random, (uint32_t)n);
    int32_t token = v[at];
    switch (random_below(random, 4)) {
    case 0:
        v[at] = (int32_t)((uint32_t)token ^ 1u << random_below(random, 32));
        return n;
    case 1:
        v[at] = v[other];
        v[other] = token;
        return n;
    case 2:
        memmove(v + at, v + at + 1, (n - at - 1) * sizeof *v);
        return n - 1;
    default:
        v[n] = token;
        return n + 1;
    }
}

static void any_edit_of_the_tokens_changes_the_key(void **state)
{
    (void)state;
    uint32_t random = 4;
    struct identity identity = identity_with(1);
    for (int round = 0; round < 20000; round++) {
        int32_t list[MOST + 1], edited[MOST + 1];
        size_t n = 1 + random_below(&random, MOST);
        for (size_t i = 0; i < n; i++) list[i] = edited[i] = (int32_t)random_below(&random, 100);
        size_t m = edit(&random, edited, n);
        bool equal = m == n && memcmp(list, edited, n * sizeof *list) == 0; /* two equal tokens have changed places */
        assert_int_equal(same(slab_key_of(&identity, list, n), slab_key_of(&identity, edited, m)), equal);
    }
}

/* "ab" as one token or as two: the states differ. */
static void the_same_text_in_other_tokens_has_another_key(void **state)
{
    (void)state;
    struct identity identity = identity_with(1);
    int32_t one[] = {300}, two[] = {97, 98};
    assert_false(same(slab_key_of(&identity, one, 1), slab_key_of(&identity, two, 2)));
}

static void salts_keep_identities_apart(void **state)
{
    (void)state;
    struct identity identity = identity_with(1);
    static const char *const salts[] = {"a", "b", "ab", "alice", "Alice", "alice "};
    enum { N = sizeof salts / sizeof *salts };
    struct identity none = identity_salted(&identity, NULL), empty = identity_salted(&identity, "");
    assert_true(identity_equal(&none, &identity));
    assert_true(identity_equal(&empty, &identity));
    struct identity salted[N];
    for (size_t i = 0; i < N; i++) {
        salted[i] = identity_salted(&identity, salts[i]);
        struct identity again = identity_salted(&identity, salts[i]);
        assert_true(identity_equal(&salted[i], &again));
        assert_false(identity_equal(&salted[i], &identity));
        for (size_t k = 0; k < i; k++) assert_false(identity_equal(&salted[i], &salted[k]));
    }
}

static void a_salt_is_hashed_into_the_contexts_digest(void **state)
{
    (void)state;
    struct identity identity = identity_with(1), salted = identity_salted(&identity, "alice");
    uint8_t both[2 * SHA256_BYTES], expected[SHA256_BYTES];
    memcpy(both, identity.context, SHA256_BYTES);
    sha256_of("alice", 5, both + SHA256_BYTES);
    sha256_of(both, sizeof both, expected);
    assert_memory_equal(salted.context, expected, sizeof expected);
    assert_memory_equal(salted.model, identity.model, sizeof identity.model);
    assert_int_equal(salted.quant, identity.quant);
}

/* ---- Types of weights ---- */

static void codes_of_weights_never_change(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint8_t code;
    } rows[] = {{"f32", 0},      {"f16", 1},    {"q4_0", 2},    {"q4_1", 3},     {"q5_0", 4},    {"q5_1", 5},
                {"q8_0", 6},     {"q4_k_m", 7}, {"q4_k_s", 8},  {"q5_k_m", 9},   {"q5_k_s", 10}, {"q6_k", 11},
                {"q8_k", 12},    {"q2_k", 13},  {"q3_k_s", 14}, {"q3_k_m", 15},  {"q3_k_l", 16}, {"iq2_xxs", 17},
                {"iq2_xs", 18},  {"iq2_s", 19}, {"iq2_m", 20},  {"iq3_xxs", 21}, {"iq3_xs", 22}, {"iq3_s", 23},
                {"iq3_m", 24},   {"iq1_s", 25}, {"iq1_m", 26},  {"iq4_nl", 27},  {"iq4_xs", 28}, {"bf16", 29},
                {"unknown", 255}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(quant_code(rows[i].name), rows[i].code);
        assert_string_equal(quant_name(rows[i].code), rows[i].name);
    }
}

static void every_byte_is_either_a_type_both_ways_or_none(void **state)
{
    (void)state;
    size_t n = 0;
    for (unsigned code = 0; code < 256; code++) {
        const char *name = quant_name((uint8_t)code);
        if (name == NULL) continue;
        assert_int_equal(quant_code(name), code);
        n++;
    }
    assert_int_equal(n, 31);
    assert_int_equal(quant_code("q9_9"), 255);
    assert_int_equal(quant_code(""), 255);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_those_of_the_golden_vectors),
        cmocka_unit_test(fingerprints_with_adapters_are_those_of_the_golden_vectors),
        cmocka_unit_test(the_order_in_which_adapters_are_named_does_not_matter),
        cmocka_unit_test(tokens_are_hashed_as_little_endian_on_every_machine),
        cmocka_unit_test(keys_at_strides_are_the_keys_of_those_prefixes),
        cmocka_unit_test(a_flipped_bit_anywhere_in_the_identity_changes_the_key),
        cmocka_unit_test(any_edit_of_the_tokens_changes_the_key),
        cmocka_unit_test(the_same_text_in_other_tokens_has_another_key),
        cmocka_unit_test(salts_keep_identities_apart),
        cmocka_unit_test(a_salt_is_hashed_into_the_contexts_digest),
        cmocka_unit_test(codes_of_weights_never_change),
        cmocka_unit_test(every_byte_is_either_a_type_both_ways_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
