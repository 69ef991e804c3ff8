/* Bodies that are made while they are sent: whatever is taken at a time, the bytes are the same, and few at a time. */
#include "serve/core/pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void put_number(const void *items, size_t i, struct buf *out)
{
    const int *numbers = items;
    buf_printf(out, "%d", numbers[i]);
}

/* Texts and lists in turn, empty ones among them. */
static void make(struct pieces *pieces, unsigned seed, const int *numbers)
{
    for (int i = 0; i < 6; i++) {
        for (unsigned n = (seed >> i) % 4; n > 0; n--) buf_puts(&pieces->text, "text ");
        if ((seed >> i & 1) != 0) continue;
        buf_puts(&pieces->text, seed % 3 == 0 ? "" : "[");
        pieces_put_list(pieces, (struct pieces_list){.items = numbers, .n = (seed >> i) % 5, .put = put_number});
        buf_puts(&pieces->text, seed % 3 == 0 ? "" : "]");
    }
}

static void bytes_are_the_same_however_few_are_taken_at_a_time(void **state)
{
    (void)state;
    static const int numbers[] = {1, 22, 333, 4444};
    for (unsigned seed = 0; seed < 256; seed++) {
        struct pieces all = {0};
        struct buf whole = {0};
        make(&all, seed, numbers);
        pieces_put_all(&all, &whole);
        for (size_t enough = 1; enough < 24; enough++) {
            struct pieces pieces = {0};
            struct buf got = {0}, piece = {0};
            bool more = true;
            make(&pieces, seed, numbers);
            while (more) {
                more = pieces_take(&pieces, enough, &piece);
                assert_true(piece.len < enough + 5); /* an element and its comma */
                if (more) assert_true(piece.len >= enough);
                buf_append(&got, piece.v, piece.len);
                buf_clear(&piece);
            }
            assert_int_equal(got.len, whole.len);
            assert_memory_equal(buf_text(&got), buf_text(&whole), whole.len);
            pieces_release(&pieces);
            buf_release(&got);
            buf_release(&piece);
        }
        buf_release(&whole);
    }
}

static void commas_are_between_elements(void **state)
{
    (void)state;
    static const int numbers[] = {1, 2, 3};
    struct pieces pieces = {0};
    struct buf out = {0};
    buf_puts(&pieces.text, "{\"a\":[");
    pieces_put_list(&pieces, (struct pieces_list){.items = numbers, .n = 3, .put = put_number});
    buf_puts(&pieces.text, "],\"b\":[");
    pieces_put_list(&pieces, (struct pieces_list){.items = numbers, .n = 0, .put = put_number});
    buf_puts(&pieces.text, "]}");
    pieces_put_all(&pieces, &out);
    assert_string_equal(out.v, "{\"a\":[1,2,3],\"b\":[]}");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_the_same_however_few_are_taken_at_a_time),
        cmocka_unit_test(commas_are_between_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
