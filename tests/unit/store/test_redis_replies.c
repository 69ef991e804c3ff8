/* Replies in pieces of any size: each is what the server sent, long ones in the room of their command, and what is no
 * answer ends it. */
#include "fakes/cmocka_all.h"
#include "store/remote/redis_replies.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { COMMANDS = 12, MOST_BYTES = 3 * REDIS_LARGE_BYTES };

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(*seed >> 8) * n >> 24);
}

/* A reply as it is wanted, and how the server sends it. */
struct wanted {
    enum redis_kind kind;
    int64_t integer;
    char *bytes;
    size_t size;
    char *room; /* NULL: none */
};

static void add_bytes(struct wanted *wanted, uint32_t *seed, struct buf *sent)
{
    static const size_t sizes[] = {0, 1, 100, REDIS_LARGE_BYTES - 1, REDIS_LARGE_BYTES, MOST_BYTES};
    wanted->size = sizes[random_below(seed, sizeof sizes / sizeof *sizes)];
    wanted->bytes = mem_alloc(wanted->size + 1);
    for (size_t i = 0; i < wanted->size; i++) wanted->bytes[i] = "\r\n$:ab"[random_below(seed, 6)];
    if (random_below(seed, 2)) wanted->room = mem_alloc(wanted->size + 1);
    buf_printf(sent, "$%zu\r\n", wanted->size);
    if (wanted->size > 0) buf_append(sent, wanted->bytes, wanted->size);
    buf_puts(sent, "\r\n");
}

static void add_one(struct wanted *wanted, uint32_t *seed, struct buf *sent)
{
    *wanted = (struct wanted){.kind = (enum redis_kind)random_below(seed, 4)};
    if (wanted->kind == REDIS_NIL) {
        buf_puts(sent, "$-1\r\n");
    } else if (wanted->kind == REDIS_INTEGER) {
        wanted->integer = (int64_t)random_below(seed, 1000000) - 5;
        buf_printf(sent, ":%lld\r\n", (long long)wanted->integer);
    } else if (wanted->kind == REDIS_REFUSED) {
        wanted->bytes = mem_strdup("ERR no, and that at some length");
        wanted->size = strlen(wanted->bytes);
        buf_printf(sent, "-%s\r\n", wanted->bytes);
    } else {
        add_bytes(wanted, seed, sent);
    }
}

/* Gives the bytes in pieces: of `piece` at most, or, if that is 0, of random sizes. */
static int give(struct redis_replies *replies, const struct buf *sent, uint32_t piece, uint32_t *seed,
                hearth_error *error)
{
    int result = 0;
    for (size_t at = 0; at < sent->len && result == 0;) {
        size_t room_size, n = piece > 0 ? piece : 1 + random_below(seed, random_below(seed, 2) ? 40 : 100000);
        char *room = redis_replies_room(replies, &room_size);
        assert_true(room_size > 0);
        if (n > room_size) n = room_size;
        if (n > sent->len - at) n = sent->len - at;
        memcpy(room, sent->v + at, n);
        at += n;
        result = redis_replies_take(replies, n, error);
    }
    return result;
}

static void assert_is(const struct redis_reply *reply, const struct wanted *wanted)
{
    assert_int_equal(reply->kind, wanted->kind);
    assert_int_equal(reply->integer, wanted->integer);
    assert_int_equal(reply->size, wanted->size);
    if (wanted->bytes == NULL) return;
    bool in_room = wanted->room != NULL;
    assert_int_equal(reply->bytes == NULL, in_room);
    if (!in_room) assert_int_equal(reply->bytes[reply->size], '\0');
    assert_memory_equal(in_room ? wanted->room : reply->bytes, wanted->bytes, wanted->size);
}

static void add_command(struct redis_batch *batch, char *room, size_t size)
{
    redis_add(batch, (const struct redis_argument[]){{"GET", 3}, {"a", 1}}, 2);
    redis_receive_into(batch, room, size);
}

static void check_round(redisReader *reader, uint32_t piece, uint32_t *seed)
{
    struct wanted wanted[COMMANDS];
    struct redis_batch batch = {0};
    struct redis_replies replies;
    struct buf sent = {0};
    for (size_t i = 0; i < COMMANDS; i++) {
        add_one(&wanted[i], seed, &sent);
        add_command(&batch, wanted[i].room, wanted[i].size);
    }
    assert_int_equal(redis_replies_begin(&replies, reader, &batch, NULL), 0);
    assert_int_equal(give(&replies, &sent, piece, seed, NULL), 0);
    assert_int_equal(batch.n_replies, COMMANDS);
    for (size_t i = 0; i < COMMANDS; i++) assert_is(&batch.replies[i], &wanted[i]);
    redis_replies_end(&replies);
    redis_batch_release(&batch);
    buf_release(&sent);
    for (size_t i = 0; i < COMMANDS; i++) {
        free(wanted[i].bytes);
        free(wanted[i].room);
    }
}

static void replies_are_what_was_sent_in_pieces_of_any_size(void **state)
{
    static const uint32_t pieces[] = {1, 2, 3, 17, 4096, REDIS_LARGE_BYTES, 1 << 20};
    redisReader *reader = redis_reader_open();
    uint32_t seed = 11;
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) check_round(reader, pieces[i], &seed);
    for (int i = 0; i < 300; i++) check_round(reader, 0, &seed);
    redisReaderFree(reader);
}

static void another_size_does_not_go_to_the_room(void **state)
{
    char room[REDIS_LARGE_BYTES];
    redisReader *reader = redis_reader_open();
    struct redis_batch batch = {0};
    struct redis_replies replies;
    struct buf sent = {0};
    uint32_t seed = 3;
    (void)state;
    memset(room, 'r', sizeof room);
    buf_printf(&sent, "$%zu\r\n%*s\r\n", sizeof room + 1, (int)sizeof room + 1, "");
    add_command(&batch, room, sizeof room);
    assert_int_equal(redis_replies_begin(&replies, reader, &batch, NULL), 0);
    assert_int_equal(give(&replies, &sent, 1000, &seed, NULL), 0);
    assert_non_null(batch.replies[0].bytes);
    assert_int_equal(batch.replies[0].size, sizeof room + 1);
    for (size_t i = 0; i < sizeof room; i++) assert_int_equal(room[i], 'r');
    redis_replies_end(&replies);
    redis_batch_release(&batch);
    redisReaderFree(reader);
    buf_release(&sent);
}

/* One command; `answer`, and behind it `size` letters, and `end`. */
static void what_is_no_answer_ends_it(void **state)
{
    static const struct {
        const char *answer, *end, *says;
        size_t size, most;
    } cases[] = {{"$20000\r\n", "x\n", "Protocol error", 20000, 0},
                 {"$20000\r\n", "\rx", "Protocol error", 20000, 0},
                 {"$20000\r\n", "\r\n:1\r\n", "not asked", 20000, 0},
                 {":1\r\n$20000\r\n", "", "not asked", 0, 0},
                 {"$8388609\r\n", "", "too long", 0, 0},
                 {"$20000\r\n", "", "too long", 0, 72},
                 {"$4294967296000\r\n", "", "too long", 0, 0},
                 {"$18446744073709551617\r\n", "", "bulk string length", 0, 0},
                 {"*1\r\n", "", "memory", 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        redisReader *reader = redis_reader_open();
        struct redis_batch batch = {.most_reply = cases[i].most};
        struct redis_replies replies;
        struct buf sent = {0};
        hearth_error error = {0};
        uint32_t seed = 5;
        buf_puts(&sent, cases[i].answer);
        for (size_t k = 0; k < cases[i].size; k++) buf_puts(&sent, "x");
        buf_puts(&sent, cases[i].end);
        add_command(&batch, NULL, 0);
        assert_int_equal(redis_replies_begin(&replies, reader, &batch, NULL), 0);
        if (give(&replies, &sent, 1 << 20, &seed, &error) == 0 || strstr(error.message, cases[i].says) == NULL)
            fail_msg("%zu: %s", i, error.message);
        redis_replies_end(&replies);
        redis_batch_release(&batch);
        redisReaderFree(reader);
        buf_release(&sent);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_are_what_was_sent_in_pieces_of_any_size),
        cmocka_unit_test(another_size_does_not_go_to_the_room),
        cmocka_unit_test(what_is_no_answer_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
