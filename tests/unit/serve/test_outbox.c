/* The event queue from the library's threads to the HTTP thread: order, bounds, wake-ups. */
#include "serve/core/outbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool put_text(struct outbox *outbox, size_t choice, const char *text)
{
    hearth_event event = {.type = HEARTH_EVENT_TEXT, .text = text, .text_len = strlen(text)};
    return outbox_put(outbox, choice, &event);
}

static void assert_next(struct outbox *outbox, size_t choice, hearth_event_type type, const char *text)
{
    struct outbox_event *event = outbox_take(outbox);
    assert_non_null(event);
    assert_int_equal(event->choice, choice);
    assert_int_equal(event->type, type);
    assert_string_equal(event->text, text);
    outbox_free_event(event);
}

static void events_come_out_in_order_with_copies_of_all_they_had(void **state)
{
    (void)state;
    struct outbox outbox;
    outbox_init(&outbox, 1 << 20, 1, false);
    char text[] = "abc", stop[] = "END";
    hearth_result result = {.predicted_n = 5, .stop_string = stop};
    hearth_event done = {.type = HEARTH_EVENT_DONE, .result = &result};
    hearth_error error = {.code = HEARTH_BUSY, .message = "busy"};
    hearth_event failed = {.type = HEARTH_EVENT_FAILED, .error = &error};
    put_text(&outbox, 1, text);
    outbox_put(&outbox, 0, &done);
    outbox_put(&outbox, 2, &failed);
    memset(text, 'x', 3);
    memset(stop, 'x', 3);
    result.predicted_n = 0;
    error.code = HEARTH_OK;

    assert_next(&outbox, 1, HEARTH_EVENT_TEXT, "abc");
    struct outbox_event *event = outbox_take(&outbox);
    assert_int_equal(event->result.predicted_n, 5);
    assert_null(event->result.stop_string);
    assert_string_equal(event->text, "END");
    outbox_free_event(event);
    event = outbox_take(&outbox);
    assert_int_equal(event->error->code, HEARTH_BUSY);
    outbox_free_event(event);
    assert_null(outbox_take(&outbox));
    outbox_release(&outbox);
}

static void the_reader_is_woken_once_until_it_sleeps(void **state)
{
    (void)state;
    struct outbox outbox;
    outbox_init(&outbox, 1 << 20, 1, false);
    assert_true(put_text(&outbox, 0, "a"));
    assert_false(put_text(&outbox, 0, "b"));
    assert_false(outbox_wake(&outbox));
    assert_false(outbox_sleep(&outbox)); /* there are events */
    for (int i = 0; i < 2; i++) outbox_free_event(outbox_take(&outbox));
    assert_true(outbox_sleep(&outbox));
    assert_true(put_text(&outbox, 0, "c"));
    outbox_free_event(outbox_take(&outbox));
    assert_true(outbox_sleep(&outbox));
    assert_true(outbox_wake(&outbox));
    assert_false(put_text(&outbox, 0, "d"));
    outbox_release(&outbox);
}

static void pieces_come_whole_until_something_else_does(void **state)
{
    (void)state;
    struct outbox outbox;
    outbox_init(&outbox, 1 << 20, 3, false);
    assert_false(put_text(&outbox, 0, "a"));
    assert_false(put_text(&outbox, 0, "b"));
    assert_null(outbox_take(&outbox));
    assert_true(outbox_sleep(&outbox));
    assert_true(put_text(&outbox, 0, "c"));
    assert_false(put_text(&outbox, 0, "d"));
    for (const char *text = "abc"; *text != '\0'; text++) {
        const char one[] = {*text, '\0'};
        assert_next(&outbox, 0, HEARTH_EVENT_TEXT, one);
    }
    assert_null(outbox_take(&outbox));
    assert_true(outbox_sleep(&outbox));
    hearth_result result = {.predicted_n = 4};
    hearth_event done = {.type = HEARTH_EVENT_DONE, .result = &result};
    assert_true(outbox_put(&outbox, 0, &done));
    assert_next(&outbox, 0, HEARTH_EVENT_TEXT, "d");
    outbox_free_event(outbox_take(&outbox));
    assert_false(put_text(&outbox, 0, "left"));
    outbox_release(&outbox);
}

/* Whatever waits or was dropped: a request that fails is told so, behind all that is left. */
static void assert_failure_comes_last(struct outbox *outbox)
{
    hearth_error error = {.code = HEARTH_CANCELLED};
    hearth_event failed = {.type = HEARTH_EVENT_FAILED, .error = &error};
    outbox_put(outbox, 0, &failed);
    struct outbox_event *event;
    hearth_event_type last = HEARTH_EVENT_STARTED;
    while ((event = outbox_take(outbox)) != NULL) {
        last = event->type;
        outbox_free_event(event);
    }
    assert_int_equal(last, HEARTH_EVENT_FAILED);
}

static void a_reader_that_is_too_slow_is_woken_also_while_a_piece_waits(void **state)
{
    (void)state;
    struct outbox outbox;
    outbox_init(&outbox, 4096, 1000, false);
    bool woken = false;
    for (int i = 0; i < 1000 && !woken; i++) woken = put_text(&outbox, 0, "0123456789");
    assert_true(woken && outbox_is_overflown(&outbox));
    assert_null(outbox_take(&outbox));
    assert_failure_comes_last(&outbox);
    outbox_release(&outbox);
}

static void empty_text_is_no_event(void **state)
{
    (void)state;
    struct outbox outbox;
    outbox_init(&outbox, 1 << 20, 1, false);
    assert_false(put_text(&outbox, 0, ""));
    assert_null(outbox_take(&outbox));
    outbox_release(&outbox);
}

static void text_beyond_the_limit_is_dropped_and_the_last_event_still_comes(void **state)
{
    (void)state;
    struct outbox outbox;
    size_t limit = 4096;
    outbox_init(&outbox, limit, 1, false);
    for (int i = 0; i < 1000; i++) {
        put_text(&outbox, 0, "0123456789");
        assert_true(outbox.bytes <= limit);
    }
    assert_true(outbox_is_overflown(&outbox));
    assert_failure_comes_last(&outbox);
    assert_int_equal(outbox.bytes, 0);
    outbox_release(&outbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_out_in_order_with_copies_of_all_they_had),
        cmocka_unit_test(the_reader_is_woken_once_until_it_sleeps),
        cmocka_unit_test(pieces_come_whole_until_something_else_does),
        cmocka_unit_test(a_reader_that_is_too_slow_is_woken_also_while_a_piece_waits),
        cmocka_unit_test(empty_text_is_no_event),
        cmocka_unit_test(text_beyond_the_limit_is_dropped_and_the_last_event_still_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
