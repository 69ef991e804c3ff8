/* The text of a reply, token by token, against a naive reading of the whole. */
#include "fakes/cmocka_all.h"

#include "base/utf8.h"
#include "engine/reply.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *feed(const char *const *stop, size_t n_stop, const char *const *pieces, struct buf *out)
{
    struct reply reply;
    reply_init(&reply, stop, n_stop);
    const char *hit = NULL;
    for (; *pieces != NULL && hit == NULL; pieces++) {
        hit = reply_add(&reply, *pieces, strlen(*pieces));
        buf_append(out, reply.ready.v, reply.ready.len);
    }
    if (hit == NULL) {
        reply_finish(&reply);
        buf_append(out, reply.ready.v, reply.ready.len);
    }
    reply_release(&reply);
    return hit;
}

#define STOPS(...)                                                                                                     \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define PIECES(...)                                                                                                    \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

static void a_stop_string_across_token_borders_is_found(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_string_equal(feed(STOPS("END"), 1, PIECES("one ", "E", "N", "D two"), &out), "END");
    assert_string_equal(out.v, "one ");
    buf_release(&out);
}

static void text_that_only_looked_like_a_stop_string_is_given_out(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_null(feed(STOPS("END"), 1, PIECES("one ", "E", "N", "ergy", " EN"), &out));
    assert_string_equal(out.v, "one ENergy EN");
    buf_release(&out);
}

static void a_stop_string_that_begins_inside_a_failed_one_is_found(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_string_equal(feed(STOPS("aab"), 1, PIECES("xa", "a", "a", "b"), &out), "aab");
    assert_string_equal(out.v, "xa");
    buf_release(&out);
}

static void the_earliest_of_several_stop_strings_ends_the_reply(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_string_equal(feed(STOPS("xyz", "b"), 2, PIECES("abxyz"), &out), "b");
    assert_string_equal(out.v, "a");
    buf_release(&out);
}

static void a_character_in_pieces_comes_out_whole(void **state)
{
    (void)state;
    struct reply reply;
    reply_init(&reply, NULL, 0);
    reply_add(&reply, "\xE2", 1);
    assert_int_equal(reply.ready.len, 0);
    reply_add(&reply, "\x82", 1);
    assert_int_equal(reply.ready.len, 0);
    reply_add(&reply, "\xAC!", 2);
    assert_string_equal(reply.ready.v, "\xE2\x82\xAC!");
    reply_release(&reply);
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
    (void)state;
    struct buf out = {0};
    feed(NULL, 0, PIECES("a\xFF", "b\xE2", "c\xC3"), &out);
    assert_string_equal(out.v, "a\xEF\xBF\xBD"
                               "b\xEF\xBF\xBD"
                               "c\xEF\xBF\xBD");
    buf_release(&out);
}

/* Where the reply ends once `len` bytes have come: before the stop string that occurs first in them. */
static size_t naive_end(const char *text, size_t len, const char *const *stop, size_t n_stop)
{
    size_t end = SIZE_MAX;
    for (size_t s = 0; s < n_stop; s++) {
        const char *hit = memmem(text, len, stop[s], strlen(stop[s]));
        if (hit != NULL && (size_t)(hit - text) < end) end = (size_t)(hit - text);
    }
    return end;
}

static void put_random_text(struct buf *out, int most)
{
    static const char *const letters[] = {"a", "b", "ab", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xFF"};
    for (int i = rand() % most; i >= 0; i--) buf_puts(out, letters[rand() % 7]);
}

/* Random bytes in random pieces with random stop strings: the output is what a naive reader of the whole would have
 * given, and every piece is valid UTF-8 by itself. */
static void pieces_give_what_the_whole_gives(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        struct buf whole = {0}, expected = {0}, got = {0}, stops[2] = {{0}, {0}};
        put_random_text(&whole, 12);
        put_random_text(&stops[0], 3);
        put_random_text(&stops[1], 3);
        const char *list[] = {stops[0].v, stops[1].v};
        struct reply reply;
        reply_init(&reply, list, 2);
        size_t end = SIZE_MAX;
        for (size_t at = 0; at < whole.len && end == SIZE_MAX;) {
            size_t len = 1 + (size_t)rand() % 3;
            if (len > whole.len - at) len = whole.len - at;
            const char *hit = reply_add(&reply, whole.v + at, len);
            at += len;
            end = naive_end(whole.v, at, list, 2);
            assert_int_equal(hit != NULL, end != SIZE_MAX);
            struct buf clean = {0};
            utf8_put_clean(&clean, reply.ready.v, reply.ready.len);
            assert_int_equal(clean.len, reply.ready.len);
            buf_release(&clean);
            buf_append(&got, reply.ready.v, reply.ready.len);
        }
        if (end == SIZE_MAX) {
            end = whole.len;
            reply_finish(&reply);
            buf_append(&got, reply.ready.v, reply.ready.len);
        }
        utf8_put_clean(&expected, whole.v, end);
        assert_int_equal(got.len, expected.len);
        if (got.len > 0) assert_memory_equal(got.v, expected.v, got.len);
        reply_release(&reply);
        buf_release(&whole);
        buf_release(&expected);
        buf_release(&got);
        buf_release(&stops[0]);
        buf_release(&stops[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_across_token_borders_is_found),
        cmocka_unit_test(text_that_only_looked_like_a_stop_string_is_given_out),
        cmocka_unit_test(a_stop_string_that_begins_inside_a_failed_one_is_found),
        cmocka_unit_test(the_earliest_of_several_stop_strings_ends_the_reply),
        cmocka_unit_test(a_character_in_pieces_comes_out_whole),
        cmocka_unit_test(bytes_that_are_no_text_are_replaced),
        cmocka_unit_test(pieces_give_what_the_whole_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
