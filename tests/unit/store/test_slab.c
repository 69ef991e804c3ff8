/* The bytes of a slab: against a list of bytes, encoded and decoded, and with every kind of damage. */
#include "base/crc32c.h"
#include "fakes/cmocka_all.h"

#include "slabs.h"

/* ---- Reading bytes ---- */

/* Decodes as a reader does: front, then payload and trailer. After 0 the caller owns the head. */
static int read_bytes(const void *bytes, size_t size, struct slab_head *head, hearth_error *error)
{
    const uint8_t *at = bytes;
    size_t front = size < SLAB_HEADER_BYTES ? 0 : slab_front_size(at);
    if (front == 0 || front > size) return HEARTH_INVALID;
    uint8_t *exact = mem_alloc(front); /* so that a sanitizer notices reads beyond it */
    memcpy(exact, at, front);
    int result = slab_decode(exact, front, size, head, error);
    if (result == 0) {
        result = slab_check(head, exact, front, at + front, at + size - SLAB_TRAILER_BYTES, error);
        if (result < 0) slab_head_release(head);
    }
    free(exact);
    return result;
}

static void expect_refused(const void *bytes, size_t size, const char *what)
{
    struct slab_head head;
    if (read_bytes(bytes, size, &head, NULL) == 0) fail_msg("read in spite of %s", what);
}

static void store32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static void store64(uint8_t *at, uint64_t value)
{
    store32(at, (uint32_t)value);
    store32(at + 4, (uint32_t)(value >> 32));
}

/* Sets right CRCs of front and trailer. */
static void seal(struct buf *bytes, size_t front)
{
    uint8_t *at = (uint8_t *)bytes->v, *trailer = at + bytes->len - SLAB_TRAILER_BYTES;
    store32(at + front - 4, crc32c(crc32c(0, at, 20), at + 32, front - 36));
    store32(trailer + 12, crc32c(crc32c(0, at + front - 4, 4), trailer, 12));
}

/* ---- The bytes ---- */

static const uint8_t golden[] = {
    /* header */
    'H', 'K', 'V', 'S', 1, 1, 2, 6,                 /* magic, version, rows, continued, q8_0 */
    3, 0, 0, 0, 5, 0, 0, 0,                         /* start, end */
    2, 0, 0, 0, 9, 0, 0, 0,                         /* regions, hits */
    0x15, 0x81, 0xe9, 0x7d, 0xf4, 0x10, 0x22, 0x11, /* last used */
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* created */
    7, 0, 0, 0, 0, 0, 0, 0,                         /* payload */
    /* model, context, key, parent */
    0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, /**/
    0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, /**/
    0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, /**/
    0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, /**/
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, /**/
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, /**/
    0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, /**/
    0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, /**/
    /* tokens */
    0x11, 0, 0, 0, 0x78, 0x56, 0x34, 0x12,
    /* regions: what, layer, type, rows, CRC32C, row, offset, size */
    'K', 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 0xf4, 0x8c, 0x30, 0x29, 2, 0, 0, 0, 0, 0, 0, 0,       /**/
    0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,                                             /**/
    'V', 0, 0x02, 0x01, 1, 0, 0, 0, 2, 0, 0, 0, 0x91, 0x69, 0xe8, 0x8a, 1, 0, 0, 0, 0, 0, 0, 0, /**/
    5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,                                             /**/
    0xc6, 0x1a, 0x5e, 0x3f, /* CRC32C of the front */
    /* payload */
    1, 2, 3, 4, 0xff, 5, 6,
    /* trailer: CRC32C of the payload, size of the whole, CRC32C */
    0x8a, 0x52, 0x2c, 0xd1, 0x23, 0x01, 0, 0, 0, 0, 0, 0, 0x08, 0xa7, 0xe7, 0x5b};

static void the_bytes_are_those_of_the_format_document(void **state)
{
    (void)state;
    struct slab_region regions[2] = {
        {.what = 'K', .layer = 0, .type = 8, .rows = 2, .row_bytes = 2, .offset = 0, .size = 4},
        {.what = 'V', .layer = 0x0102, .type = 1, .rows = 2, .row_bytes = 1, .offset = 5, .size = 2}};
    int32_t tokens[2] = {0x11, 0x12345678};
    struct made made = {.head = {.kind = SLAB_ROWS,
                                 .reason = SLAB_CONTINUED,
                                 .identity.quant = 6,
                                 .start = 3,
                                 .end = 5,
                                 .tokens = {.v = tokens, .len = 2, .cap = 2},
                                 .regions = regions,
                                 .n_regions = 2,
                                 .payload_size = 7,
                                 .created_ms = 0x0102030405060708,
                                 .used_ms = 0x112210f47de98115,
                                 .hits = 9},
                        .payload = (uint8_t[]){1, 2, 3, 4, 0xff, 5, 6}};
    memset(made.head.identity.model, 0xaa, 32);
    memset(made.head.identity.context, 0xbb, 32);
    memset(made.head.key.v, 0xcc, 32);
    memset(made.head.parent.v, 0xdd, 32);
    struct buf bytes = made_bytes(&made);
    assert_int_equal(bytes.len, sizeof golden);
    assert_memory_equal(bytes.v, golden, sizeof golden);
    assert_int_equal(slab_size(&made.head), sizeof golden);
    struct slab_head head;
    assert_int_equal(read_bytes(golden, sizeof golden, &head, NULL), 0);
    assert_true(same_head(&head, &made.head));
    slab_head_release(&head);
    buf_release(&bytes);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    for (uint8_t number = 0; number < 40; number++) {
        enum slab_kind kind = number % 2 == 0 ? SLAB_ROWS : SLAB_STATE;
        struct made made = make_slab(number, kind, number % 4 < 2 ? 0 : 1 << number % 20, 1 + number * 7);
        struct buf bytes = made_bytes(&made);
        struct slab_head head;
        assert_int_equal(read_bytes(bytes.v, bytes.len, &head, NULL), 0);
        assert_true(same_head(&head, &made.head));
        assert_int_equal(head.hits, made.head.hits);
        assert_int_equal(head.used_ms, made.head.used_ms);
        assert_int_equal(bytes.len, slab_size(&head));
        slab_head_release(&head);
        buf_release(&bytes);
        made_release(&made);
    }
}

static void a_state_whose_rows_are_stored_has_no_tokens_of_its_own(void **state)
{
    (void)state;
    struct made made = make_slab(3, SLAB_STATE, 100, 0);
    struct buf bytes = made_bytes(&made);
    struct slab_head head;
    assert_int_equal(read_bytes(bytes.v, bytes.len, &head, NULL), 0);
    assert_int_equal(head.tokens.len, 0);
    assert_int_equal(head.end, 100);
    slab_head_release(&head);
    buf_release(&bytes);
    made_release(&made);
}

static void reasons_have_names(void **state)
{
    (void)state;
    assert_string_equal(slab_reason_name(SLAB_COLD), "cold");
    assert_string_equal(slab_reason_name(SLAB_CONTINUED), "continued");
    assert_string_equal(slab_reason_name(SLAB_EVICT), "evict");
    assert_string_equal(slab_reason_name(SLAB_SHUTDOWN), "shutdown");
    assert_string_equal(slab_reason_name(SLAB_FINISH), "finish");
}

/* ---- Damage ---- */

static void no_slab_cut_short_or_extended_is_read(void **state)
{
    (void)state;
    struct made made = make_slab(4, SLAB_ROWS, 8, 3);
    struct buf bytes = made_bytes(&made);
    for (size_t size = 0; size < bytes.len; size++) {
        uint8_t *exact = mem_alloc(size + 1);
        memcpy(exact, bytes.v, size);
        expect_refused(exact, size, "missing bytes");
        free(exact);
    }
    buf_append(&bytes, "", 1);
    expect_refused(bytes.v, bytes.len, "a byte too many");
    buf_release(&bytes);
    made_release(&made);
}

static bool is_of_use(size_t i)
{
    return i >= SLAB_USE_OFFSET && i < SLAB_USE_OFFSET + SLAB_USE_BYTES;
}

static void expect_flips_are_refused(struct made *made)
{
    struct buf bytes = made_bytes(made);
    for (size_t i = 0; i < bytes.len; i++)
        for (int bit = 1; bit < 256; bit = bit == 128 ? 255 : bit == 255 ? 256 : 2 * bit) {
            struct slab_head head;
            bytes.v[i] = (char)(bytes.v[i] ^ bit);
            if (!is_of_use(i)) {
                expect_refused(bytes.v, bytes.len, "a flipped bit");
            } else {
                assert_int_equal(read_bytes(bytes.v, bytes.len, &head, NULL), 0);
                assert_true(same_head(&head, &made->head));
                assert_true(head.hits != made->head.hits || head.used_ms != made->head.used_ms);
                slab_head_release(&head);
            }
            bytes.v[i] = (char)(bytes.v[i] ^ bit);
        }
    buf_release(&bytes);
}

static void a_flipped_byte_is_refused_or_changes_the_use_alone(void **state)
{
    (void)state;
    struct made rows = make_slab(5, SLAB_ROWS, 8, 3), moving = make_slab(6, SLAB_STATE, 0, 2);
    expect_flips_are_refused(&rows);
    expect_flips_are_refused(&moving);
    made_release(&rows);
    made_release(&moving);
}

static void the_payload_of_another_slab_of_the_same_shape_is_refused(void **state)
{
    (void)state;
    struct made one = make_slab(7, SLAB_ROWS, 0, 3), two = make_slab(8, SLAB_ROWS, 0, 3);
    struct buf a = made_bytes(&one), b = made_bytes(&two);
    size_t front = slab_front_size(a.v);
    assert_int_equal(a.len, b.len);
    memcpy(a.v + front, b.v + front, b.len - front);
    expect_refused(a.v, a.len, "a payload and trailer of another slab");
    buf_release(&a);
    buf_release(&b);
    made_release(&one);
    made_release(&two);
}

static void the_use_is_rewritten_in_place(void **state)
{
    (void)state;
    struct made made = make_slab(9, SLAB_ROWS, 0, 3);
    struct buf bytes = made_bytes(&made);
    struct slab_head head;
    slab_encode_use(UINT32_MAX, INT64_MAX, (uint8_t *)bytes.v + SLAB_USE_OFFSET);
    assert_int_equal(read_bytes(bytes.v, bytes.len, &head, NULL), 0);
    assert_true(same_head(&head, &made.head));
    assert_int_equal(head.hits, UINT32_MAX);
    assert_int_equal(head.used_ms, INT64_MAX);
    slab_head_release(&head);
    buf_release(&bytes);
    made_release(&made);
}

/* ---- Nonsense whose CRCs are right ---- */

/* Puts nonsense of `width` bytes into a slab with one token after the 8th, and seals it. */
static const struct nonsense {
    const char *what;
    size_t at, width;
    uint64_t value;
} nonsense[] = {
    {"another magic", 0, 1, 'h'},
    {"version 0", 4, 1, 0},
    {"a newer version", 4, 1, 2},
    {"kind 0", 5, 1, 0},
    {"an unknown kind", 5, 1, 3},
    {"reason 0", 6, 1, 0},
    {"an unknown reason", 6, 1, 6},
    {"a start after the end", 8, 4, 10},
    {"no start and a parent", 8, 8, 0x100000000u},
    {"an end beyond 2^31", 8, 8, 0x8000000180000000u},
    {"no rows", 8, 4, 9},
    {"too many regions", 16, 4, 65537},
    {"all regions there can be", 16, 4, UINT32_MAX},
    {"a payload that is longer", 40, 8, 1000},
    {"a payload that wraps around", 40, 8, UINT64_MAX - 300},
    {"no parent", 144, 32, 0},
    /* the first region, 'K': 4 bytes at 5 */
    {"a region of an unknown sort", 180, 1, 'X'},
    {"a region of no sort", 180, 1, 0},
    {"something where nothing may be", 181, 1, 1},
    {"something else where nothing may be", 186, 2, 1},
    {"two rows for one token", 188, 4, 2},
    {"rows of another size", 196, 8, 5},
    {"rows whose size wraps around", 196, 8, UINT64_MAX},
    {"a region that overlaps the next", 204, 8, 6},
    {"a region that begins beyond the payload", 204, 8, 1000},
    {"a region whose end wraps around", 204, 8, UINT64_MAX - 2},
    {"a region of another size than its rows", 212, 8, 3},
    {"a region that goes on beyond the payload", 212, 8, UINT64_MAX},
};

static void nonsense_is_refused_even_under_a_right_crc(void **state)
{
    (void)state;
    struct made made = make_slab(10, SLAB_ROWS, 8, 1);
    struct slab_head head;
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        struct buf bytes = made_bytes(&made);
        size_t front = slab_front_size(bytes.v);
        for (size_t k = 0; k < nonsense[i].width; k++)
            bytes.v[nonsense[i].at + k] = (char)(k < 8 ? nonsense[i].value >> (8 * k) : 0);
        seal(&bytes, front);
        expect_refused(bytes.v, bytes.len, nonsense[i].what);
        buf_release(&bytes);
    }
    struct buf bytes = made_bytes(&made); /* and seal() itself is right */
    seal(&bytes, slab_front_size(bytes.v));
    assert_int_equal(read_bytes(bytes.v, bytes.len, &head, NULL), 0);
    slab_head_release(&head);
    buf_release(&bytes);
    made_release(&made);
}

/* A file that ends within the trailer, and a payload of less than no bytes: modulo 2^64 they agree. */
static void a_payload_whose_end_wraps_around_is_refused(void **state)
{
    (void)state;
    struct made made = make_slab(10, SLAB_ROWS, 8, 1);
    struct buf bytes = made_bytes(&made);
    struct slab_head head;
    size_t front = slab_front_size(bytes.v);
    store64((uint8_t *)bytes.v + 40, UINT64_MAX - 12);
    seal(&bytes, front);
    assert_int_equal(slab_decode(bytes.v, front, front + 3, &head, NULL), HEARTH_INVALID);
    buf_release(&bytes);
    made_release(&made);
}

static void a_trailer_with_another_size_is_refused(void **state)
{
    (void)state;
    struct made made = make_slab(10, SLAB_ROWS, 8, 1);
    struct buf bytes = made_bytes(&made);
    store64((uint8_t *)bytes.v + bytes.len - 12, bytes.len + 1);
    seal(&bytes, slab_front_size(bytes.v));
    expect_refused(bytes.v, bytes.len, "another size in the trailer");
    buf_release(&bytes);
    made_release(&made);
}

static void a_slab_without_payload_or_end_is_refused(void **state)
{
    (void)state;
    struct made made = make_slab(11, SLAB_STATE, 0, 1);
    made.head.n_regions = 0;
    made.head.payload_size = 0;
    struct buf bytes = made_bytes(&made);
    expect_refused(bytes.v, bytes.len, "no payload");
    buf_release(&bytes);
    made_release(&made);
    made = make_slab(11, SLAB_STATE, 0, 0);
    bytes = made_bytes(&made);
    expect_refused(bytes.v, bytes.len, "no end");
    buf_release(&bytes);
    made_release(&made);
}

static void a_newer_version_is_distinguished_from_what_is_no_slab(void **state)
{
    (void)state;
    struct made made = make_slab(12, SLAB_ROWS, 0, 1);
    struct buf bytes = made_bytes(&made);
    assert_false(slab_is_newer(bytes.v));
    bytes.v[4] = 2;
    assert_true(slab_is_newer(bytes.v));
    assert_int_equal(slab_front_size(bytes.v), 0);
    bytes.v[4] = 0;
    assert_false(slab_is_newer(bytes.v));
    bytes.v[4] = 2;
    bytes.v[0] = 'x';
    assert_false(slab_is_newer(bytes.v));
    buf_release(&bytes);
    made_release(&made);
}

static void what_is_wrong_is_said_in_one_line(void **state)
{
    (void)state;
    struct made made = make_slab(13, SLAB_ROWS, 0, 1);
    struct buf bytes = made_bytes(&made);
    struct slab_head head;
    hearth_error error;
    bytes.v[slab_front_size(bytes.v)] ^= 1;
    assert_int_equal(read_bytes(bytes.v, bytes.len, &head, &error), HEARTH_INVALID);
    assert_non_null(strstr(error.message, "damaged payload"));
    bytes.v[100] ^= 1;
    assert_int_equal(read_bytes(bytes.v, bytes.len, &head, &error), HEARTH_INVALID);
    assert_non_null(strstr(error.message, "damaged front"));
    buf_release(&bytes);
    made_release(&made);
}

/* ---- Regions ---- */

static void regions_add_up(void **state)
{
    (void)state;
    struct made made = make_slab(14, SLAB_ROWS, 32, 5);
    struct buf bytes = made_bytes(&made);
    struct slab_head head;
    uint64_t end = 0, sum = 0, gaps = 0;
    assert_int_equal(read_bytes(bytes.v, bytes.len, &head, NULL), 0);
    for (size_t i = 0; i < head.n_regions; i++) {
        const struct slab_region *region = &head.regions[i];
        assert_int_equal(region->size, region->rows * region->row_bytes);
        assert_int_equal(region->rows, head.tokens.len);
        assert_true(region->offset >= end);
        gaps += region->offset - end;
        sum += region->size;
        end = region->offset + region->size;
        assert_int_equal(region->crc, crc32c(0, made.payload + region->offset, region->size));
    }
    assert_int_equal(sum + gaps, head.payload_size);
    assert_int_equal(sum, 5 * 2 * (4 + 2));
    slab_head_release(&head);
    buf_release(&bytes);
    made_release(&made);
}

static void a_damaged_region_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"keys of layer 0", "values of layer 0", "keys of layer 1", "values of layer 1"};
    struct made made = make_slab(15, SLAB_ROWS, 32, 5);
    struct buf bytes = made_bytes(&made);
    char text[64];
    assert_null(slab_damaged_region(&made.head, made.payload, text));
    for (size_t i = 0; i < made.head.n_regions; i++) {
        uint8_t *last = made.payload + made.head.regions[i].offset + made.head.regions[i].size - 1;
        *last ^= 1;
        assert_string_equal(slab_damaged_region(&made.head, made.payload, text), names[i]);
        *last ^= 1;
    }
    made.payload[0] ^= 1; /* in a gap */
    assert_null(slab_damaged_region(&made.head, made.payload, text));
    buf_release(&bytes);
    made_release(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_those_of_the_format_document),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(a_state_whose_rows_are_stored_has_no_tokens_of_its_own),
        cmocka_unit_test(reasons_have_names),
        cmocka_unit_test(no_slab_cut_short_or_extended_is_read),
        cmocka_unit_test(a_flipped_byte_is_refused_or_changes_the_use_alone),
        cmocka_unit_test(the_payload_of_another_slab_of_the_same_shape_is_refused),
        cmocka_unit_test(the_use_is_rewritten_in_place),
        cmocka_unit_test(nonsense_is_refused_even_under_a_right_crc),
        cmocka_unit_test(a_payload_whose_end_wraps_around_is_refused),
        cmocka_unit_test(a_trailer_with_another_size_is_refused),
        cmocka_unit_test(a_slab_without_payload_or_end_is_refused),
        cmocka_unit_test(a_newer_version_is_distinguished_from_what_is_no_slab),
        cmocka_unit_test(what_is_wrong_is_said_in_one_line),
        cmocka_unit_test(regions_add_up),
        cmocka_unit_test(a_damaged_region_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
