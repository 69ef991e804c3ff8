/* Cache events in msgpack, byte for byte. */
#include "fakes/cmocka_all.h"
#include "serve/events/wire.h"

#include <string.h>

/* The batch of the events, but for its head: an array of three, the time, the number of events. */
static void expect(const hearth_block_event *events, size_t n, const char *bytes, size_t len)
{
    static const char head[] = "\x93\xcb\x3f\xf8\0\0\0\0\0\0\xdd\0\0\0"; /* 1.5 */
    struct wire wire = {.n_events = 0};
    for (int round = 0; round < 2; round++) { /* the memory is used again */
        for (size_t i = 0; i < n; i++) wire_add(&wire, &events[i]);
        wire_end(&wire, 1.5);
        assert_int_equal(wire.out.len, 15 + len + 1);
        assert_memory_equal(wire.out.v, head, 14);
        assert_int_equal(wire.out.v[14], n);
        assert_memory_equal(wire.out.v + 15, bytes, len);
        assert_int_equal((unsigned char)wire.out.v[15 + len], 0xc0);
        wire_clear(&wire);
    }
    wire_release(&wire);
}

#define BYTES(text) (text), sizeof(text) - 1

/* Numbers have the width that they need; the tokens of media have no sign. */
static void blocks_that_are_stored(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {0x0102030405060708, 5};
    int32_t tokens[32] = {1, 127, 128, 255, 256, 65535, 65536, INT32_MAX, -1, INT32_MIN};
    hearth_block_event event = {.type = HEARTH_BLOCKS_STORED,
                                .model = "m",
                                .medium = "DISK",
                                .blocks = blocks,
                                .n_blocks = 2,
                                .tokens = tokens};
    expect(&event, 1,
           BYTES("\x99\xab"
                 "BlockStored\x92\xcf\1\2\3\4\5\6\7\10\5\xc0\xdd\0\0\0\x20"
                 "\1\x7f\xcc\x80\xcc\xff\xcd\1\0\xcd\xff\xff\xce\0\1\0\0\xce\x7f\xff\xff\xff\xce\xff\xff\xff\xff"
                 "\xce\x80\0\0\0"
                 "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                 "\x10\xc0\xa4"
                 "DISK\xc0\xc0"));
}

/* Of salts the client's own part: what is before it is the owner of a key. */
static void adapters_and_salts(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {7, 8};
    static const int32_t tokens[32] = {0};
#define HEAD                                                                                                           \
    "\x99\xab"                                                                                                         \
    "BlockStored"
#define TOKENS                                                                                                         \
    "\xdd\0\0\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\xc0\xa3"                       \
    "CPU"
    hearth_block_event event = {.type = HEARTH_BLOCKS_STORED,
                                .medium = "CPU",
                                .blocks = blocks,
                                .n_blocks = 2,
                                .tokens = tokens,
                                .adapters = "a:0.5+b",
                                .salt = "s"};
    expect(&event, 1,
           BYTES(HEAD "\x92\7\10\xc0" TOKENS "\xa7"
                      "a:0.5+b\x92\x91\xa1s\xc0"));
    event.salt = "owner\ns";
    expect(&event, 1,
           BYTES(HEAD "\x92\7\10\xc0" TOKENS "\xa7"
                      "a:0.5+b\x92\x91\xa1s\xc0"));
    event.salt = "owner\n";
    expect(&event, 1,
           BYTES(HEAD "\x92\7\10\xc0" TOKENS "\xa7"
                      "a:0.5+b\xc0"));
    event.salt = "s";
    event.parent = 9; /* the salt is the first block's */
    expect(&event, 1,
           BYTES(HEAD "\x92\7\10\x09" TOKENS "\xa7"
                      "a:0.5+b\xc0"));
}

static void what_is_removed_and_cleared(void **state)
{
    (void)state;
    uint64_t blocks[20];
    for (int i = 0; i < 20; i++) blocks[i] = (uint64_t)i + 1;
    const hearth_block_event events[] = {
        {.type = HEARTH_BLOCKS_CLEARED, .model = "m"},
        {.type = HEARTH_BLOCKS_REMOVED, .model = "m", .medium = "CPU", .blocks = blocks, .n_blocks = 20}};
    expect(events, 2,
           BYTES("\x91\xb0"
                 "AllBlocksCleared\x93\xac"
                 "BlockRemoved\xdd\0\0\0\x14"
                 "\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\xa3"
                 "CPU"));
}

/* Beyond 31 bytes a text has another head. */
static void long_texts(void **state)
{
    (void)state;
    static const char name[] = "0123456789012345678901234567890123456789";
    static const uint64_t block = 1;
    static const int32_t tokens[HEARTH_BLOCK] = {0};
    hearth_block_event event = {.type = HEARTH_BLOCKS_STORED,
                                .medium = "CPU",
                                .blocks = &block,
                                .n_blocks = 1,
                                .tokens = tokens,
                                .adapters = name};
    struct wire wire = {.n_events = 0};
    wire_add(&wire, &event);
    wire_end(&wire, 0);
    const char *at = memmem(wire.out.v, wire.out.len, name, sizeof name - 1);
    assert_non_null(at);
    assert_memory_equal(at - 5, "\xdb\0\0\0\x28", 5);
    wire_release(&wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_that_are_stored),
        cmocka_unit_test(adapters_and_salts),
        cmocka_unit_test(what_is_removed_and_cleared),
        cmocka_unit_test(long_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
