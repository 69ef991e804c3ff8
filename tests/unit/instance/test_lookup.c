/* Cache lookups through hearth.h, and hearth_wait(). */
#include "support.h"

#include <unistd.h>

static hearth_result wait_for(struct caller *caller, hearth *instance, const hearth_params *params)
{
    hearth_error error;
    caller_init(caller);
    caller->n_started = params->only_lookup; /* a lookup emits no STARTED event */
    caller_submit(caller, instance, params);
    if (hearth_wait(caller->request, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_int_equal(caller->n_last, 1);
    return caller->result;
}

static void a_lookup_tells_the_words_where_prompts_diverge(void **state)
{
    (void)state;
    struct caller callers[4];
    hearth *instance = start(demo_config(NULL));
    hearth_params params = text_params("Today is Monday, and the sun shines.", 1);
    wait_for(&callers[0], instance, &params);
    assert_null(hearth_request_divergence(callers[0].request).where); /* no lookup */
    params = text_params("Today is Sunday, and the sun shines.", 1);
    params.only_lookup = true;
    hearth_result result = wait_for(&callers[1], instance, &params);
    hearth_divergence d = hearth_request_divergence(callers[1].request);
    assert_string_equal(d.where, "resident");
    assert_int_equal(d.position, result.lookup.resident);
    assert_int_equal(d.position, result.lookup.reusable);
    assert_non_null(strstr(d.common, "Today is"));
    assert_non_null(strstr(d.prompt, "Sunday, and"));
    assert_non_null(strstr(d.nearest, "Monday, and"));
    assert_null(d.limit);

    params = text_params("Today is Monday, and the sun shines.", 1);
    params.only_lookup = true;
    result = wait_for(&callers[2], instance, &params);
    d = hearth_request_divergence(callers[2].request);
    assert_int_equal(d.position, result.lookup.prompt);
    assert_int_equal(result.lookup.reusable, result.lookup.prompt - 1);
    assert_string_equal(d.prompt, "");
    params.cache_salt = "another";
    wait_for(&callers[3], instance, &params);
    assert_null(hearth_request_divergence(callers[3].request).where);
    end(instance, callers, 4);
}

/* Half a character is no character. */
static void words_are_whole_characters(void **state)
{
    (void)state;
    static const int32_t tokens[] = {97, 98, 0xc3, 0xa4, 99}, others[] = {97, 98, 0xc3, 0xb6, 99};
    struct caller callers[2];
    hearth *instance = start(demo_config(NULL));
    hearth_params params = hearth_params_default();
    params.tokens = tokens;
    params.n_tokens = 5;
    params.max_tokens = 1;
    wait_for(&callers[0], instance, &params);
    params.tokens = others;
    params.only_lookup = true;
    wait_for(&callers[1], instance, &params);
    hearth_divergence d = hearth_request_divergence(callers[1].request);
    assert_int_equal(d.position, 3);
    assert_string_equal(d.common, "ab\xef\xbf\xbd");
    assert_string_equal(d.prompt, "\xef\xbf\xbd"
                                  "c");
    end(instance, callers, 2);
}

/* ---- The message at the divergence ---- */

enum { MESSAGES = 6 };
static const char *const roles[MESSAGES] = {"system", "user", "assistant", "user", "assistant", "user"};

/* A conversation whose message `changed` says something else than it did. */
static char *conversation(int changed)
{
    struct buf out = {0};
    for (int i = 0; i < MESSAGES; i++)
        buf_printf(&out, "%s{\"role\":\"%s\",\"content\":\"%s message number %d is about %s.\"}", i == 0 ? "[" : ",",
                   roles[i], i == changed ? "Another" : "This", i, i % 2 == 0 ? "apples" : "pears");
    buf_puts(&out, "]");
    return buf_take(&out);
}

static hearth_divergence after_change(hearth *instance, int changed, const char *tools, struct caller *caller)
{
    char *messages = conversation(changed);
    hearth_params params = chat_params(messages);
    params.tools = json_of(tools);
    params.max_tokens = 1;
    params.only_lookup = changed >= 0;
    wait_for(caller, instance, &params);
    free(messages);
    return hearth_request_divergence(caller->request);
}

/* `surely`: also where a part of the conversation is rendered otherwise than the whole. */
static void expect_messages(hearth *instance, const char *tools, int first_known, bool surely)
{
    struct caller callers[1 + MESSAGES];
    after_change(instance, -1, tools, &callers[MESSAGES]);
    for (int i = 0; i < MESSAGES; i++) {
        hearth_divergence d = after_change(instance, i, tools, &callers[i]);
        assert_non_null(strstr(d.prompt, "Another"));
        if (d.message != i && (surely || d.message >= 0) && i >= first_known)
            fail_msg("message %d is taken for %d", i, d.message);
        if (i < first_known) assert_int_equal(d.message, -1);
        if (d.message >= 0) assert_string_equal(d.role, roles[i]);
    }
    end(instance, callers, 1 + MESSAGES);
}

static void the_message_that_diverges_is_named(void **state)
{
    (void)state;
    expect_messages(start(demo_config(NULL)), NULL, 0, true);
}

/* Tools may precede the first message: a divergence there is not attributed to it. */
static void with_tools_the_first_message_is_not_named(void **state)
{
    (void)state;
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]";
    expect_messages(start(demo_config(NULL)), tools, 1, true);
}

/* The template renders the last assistant message in full and earlier ones shortened, as templates do with reasoning.
 */
static void no_message_is_named_that_may_be_the_wrong_one(void **state)
{
    (void)state;
    static const char source[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n"
                                 "{% if m.role == 'assistant' and loop.last %}It thought about it. {% endif %}"
                                 "{{ m.content }}<|im_end|>\n{% endfor %}";
    char *path = mem_format("%s/lookup-%d.jinja", getenv("HEARTH_BUILD"), (int)getpid());
    FILE *file = fopen(path, "we");
    assert_true(fputs(source, file) >= 0);
    assert_int_equal(fclose(file), 0);
    expect_messages(start(DEMO("jinja_file", path)), NULL, 0, false);
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void waiting_tells_how_a_request_ended(void **state)
{
    (void)state;
    struct caller caller;
    hearth_error error;
    hearth *instance = start(demo_config(NULL));
    hearth_params params = text_params("Once upon a time", 1000);
    params.sampling.ignore_eos = true;
    caller_init(&caller);
    caller_submit(&caller, instance, &params);
    hearth_cancel(caller.request);
    assert_int_equal(hearth_wait(caller.request, &error), HEARTH_CANCELLED);
    assert_int_equal(error.code, HEARTH_CANCELLED);
    assert_true(caller.failed);
    assert_int_equal(hearth_wait(caller.request, NULL), HEARTH_CANCELLED); /* and again, when it is over */
    end(instance, &caller, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lookup_tells_the_words_where_prompts_diverge),
        cmocka_unit_test(words_are_whole_characters),
        cmocka_unit_test(the_message_that_diverges_is_named),
        cmocka_unit_test(with_tools_the_first_message_is_not_named),
        cmocka_unit_test(no_message_is_named_that_may_be_the_wrong_one),
        cmocka_unit_test(waiting_tells_how_a_request_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
