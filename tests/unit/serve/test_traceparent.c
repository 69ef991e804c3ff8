/* The header `traceparent`: what is one, what is none, and what is written. */
#include "fakes/cmocka_all.h"
#include "serve/tracing/trace.h"

#include <string.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static void a_header_names_trace_span_and_whether_it_is_recorded(void **state)
{
    (void)state;
    struct traceparent parent;
    char text[TRACEPARENT_SIZE];
    assert_true(traceparent_parse("00-" TRACE "-" SPAN "-01", &parent));
    assert_int_equal(parent.trace[0], 0x4b);
    assert_int_equal(parent.trace[15], 0x36);
    assert_int_equal(parent.span[1], 0xf0);
    assert_int_equal(parent.span[7], 0xb7);
    assert_true(parent.sampled);
    traceparent_format(&parent, text);
    assert_string_equal(text, "00-" TRACE "-" SPAN "-01");
    assert_true(traceparent_parse("00-" TRACE "-" SPAN "-00", &parent));
    assert_false(parent.sampled);
    traceparent_format(&parent, text);
    assert_string_equal(text, "00-" TRACE "-" SPAN "-00");
}

/* Only one flag means anything so far. */
static void unknown_flags_are_ignored(void **state)
{
    (void)state;
    struct traceparent parent;
    assert_true(traceparent_parse("00-" TRACE "-" SPAN "-ff", &parent));
    assert_true(parent.sampled);
    assert_true(traceparent_parse("00-" TRACE "-" SPAN "-fe", &parent));
    assert_false(parent.sampled);
}

static void a_later_version_is_read_as_far_as_it_is_known(void **state)
{
    (void)state;
    struct traceparent parent;
    assert_true(traceparent_parse("01-" TRACE "-" SPAN "-01", &parent));
    assert_true(traceparent_parse("cc-" TRACE "-" SPAN "-01-what-comes-later", &parent));
    assert_int_equal(parent.trace[0], 0x4b);
    assert_true(parent.sampled);
    assert_false(traceparent_parse("cc-" TRACE "-" SPAN "-01.what", &parent));
    assert_false(traceparent_parse("00-" TRACE "-" SPAN "-01-what", &parent));
}

static void anything_else_is_none(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "00",
        "ff-" TRACE "-" SPAN "-01", /* a version that never is */
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-1",
        "00-" TRACE "-" SPAN "-01 ",
        "00-" TRACE "-" SPAN "-0g",
        "0g-" TRACE "-" SPAN "-01",
        "FF-" TRACE "-" SPAN "-01",
        "00_" TRACE "-" SPAN "-01",
        "00-" TRACE "_" SPAN "-01",
        "00-" TRACE "-" SPAN "_01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", /* capitals */
        "00-" TRACE "-00F067AA0BA902B7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "-011",
        "00-" TRACE "-00f067aa0ba902bx-01",
        " 00-" TRACE "-" SPAN "-01",
    };
    struct traceparent parent;
    assert_false(traceparent_parse(NULL, &parent));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (traceparent_parse(wrong[i], &parent)) fail_msg("%s is no traceparent", wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_names_trace_span_and_whether_it_is_recorded),
        cmocka_unit_test(unknown_flags_are_ignored),
        cmocka_unit_test(a_later_version_is_read_as_far_as_it_is_known),
        cmocka_unit_test(anything_else_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
