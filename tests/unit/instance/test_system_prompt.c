/* The assumed system prompt for chats without a system message: when it is assumed, and when never. */
#include "support.h"

#include "instance/requests/prepare.h"

#include <unistd.h>

#define CODE     SYSTEM("The secret code is QX7B2.")
#define QUESTION USER("What is the secret code?")
#define WITH_IMAGE                                                                                                     \
    "{\"role\":\"system\",\"content\":[{\"type\":\"image_url\",\"media\":0},{\"type\":\"text\",\"text\":\"a\"}]}"

static void assert_assumed(struct system_prompt *prompt, const char *messages, const char *expected)
{
    json_t *assumed = system_prompt_assume(prompt, tree_of(messages));
    if (expected == NULL && assumed != NULL) fail_msg("assumed: %s", text_of_json(json_text_public(assumed)));
    if (expected != NULL) {
        assert_non_null(assumed);
        assert_string_equal(text_of_json(json_text_public(assumed)), expected);
    }
    json_decref(assumed);
}

static void learn(struct system_prompt *prompt, const char *messages)
{
    system_prompt_learn(prompt, tree_of(messages));
}

/* ---- Alone ---- */

static void nothing_is_assumed_before_a_system_message_was_seen(void **state)
{
    (void)state;
    struct system_prompt *prompt = system_prompt_open();
    assert_assumed(prompt, "[" QUESTION "]", NULL);
    learn(prompt, "[" QUESTION "]");
    learn(prompt, "[" QUESTION "," CODE "]"); /* not the first message */
    learn(prompt, "[]");
    assert_assumed(prompt, "[" QUESTION "]", NULL);
    system_prompt_close(prompt);
    system_prompt_close(NULL);
}

static void the_only_system_message_is_put_before_messages_without_one(void **state)
{
    (void)state;
    struct system_prompt *prompt = system_prompt_open();
    learn(prompt, "[" SYSTEM("a") "," QUESTION "]");
    /* The same, written otherwise and followed by something else. */
    learn(prompt, "[ {\"content\": \"a\", \"role\": \"system\"} ]");
    const char *expected = "[" SYSTEM("a") "," USER("b") "," ASSISTANT("c") "]";
    assert_assumed(prompt, "[" USER("b") ",\n" ASSISTANT("c") "]", expected);
    assert_assumed(prompt, "[" USER("b") ",\n" ASSISTANT("c") "]", expected);
    system_prompt_close(prompt);
}

static void messages_with_a_system_message_anywhere_are_left_alone(void **state)
{
    (void)state;
    struct system_prompt *prompt = system_prompt_open();
    learn(prompt, "[" SYSTEM("a") "]");
    assert_assumed(prompt, "[" SYSTEM("a") "," USER("b") "]", NULL);
    assert_assumed(prompt, "[" USER("b") "," SYSTEM("c") "]", NULL);
    assert_assumed(prompt, "[{\"role\":\"developer\",\"content\":\"c\"}]", NULL);
    assert_assumed(prompt, "[]", NULL);
    assert_assumed(prompt, "{}", NULL);
    system_prompt_close(prompt);
}

/* Its image is one of its own request: another one has another image in that place, or none. */
static void one_with_an_image_is_never_assumed(void **state)
{
    (void)state;
    struct system_prompt *prompt = system_prompt_open();
    for (int i = 0; i < 2; i++) {
        learn(prompt, "[" WITH_IMAGE "," QUESTION "]");
        assert_assumed(prompt, "[" QUESTION "]", NULL);
    }
    learn(prompt, "[" SYSTEM("a") "]");
    assert_assumed(prompt, "[" QUESTION "]", NULL);
    system_prompt_close(prompt);
}

static void after_a_second_system_message_nothing_is_assumed_ever_again(void **state)
{
    (void)state;
    static const char *const others[] = {
        "[" SYSTEM("b") "]",
        "[{\"role\":\"developer\",\"content\":\"a\"}]",
        "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]",
        "[{\"role\":\"system\",\"content\":\"a\",\"name\":\"x\"}]",
        "[" WITH_IMAGE "]",
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct system_prompt *prompt = system_prompt_open();
        learn(prompt, "[" SYSTEM("a") "]");
        learn(prompt, others[i]);
        assert_assumed(prompt, "[" QUESTION "]", NULL);
        for (int k = 0; k < 3; k++) learn(prompt, "[" SYSTEM("a") "]");
        assert_assumed(prompt, "[" QUESTION "]", NULL);
        system_prompt_close(prompt);
    }
}

struct learner {
    struct system_prompt *prompt;
    const json_t *messages, *question;
};

static void *learn_and_assume(void *ud)
{
    struct learner *learner = ud;
    for (int i = 0; i < 2000; i++) {
        system_prompt_learn(learner->prompt, learner->messages);
        json_decref(system_prompt_assume(learner->prompt, learner->question));
    }
    return NULL;
}

static void two_threads_agree(void **state)
{
    (void)state;
    static const char *const seconds[] = {"[" SYSTEM("a") "]", "[" SYSTEM("b") "]"};
    for (int i = 0; i < 2; i++) {
        struct system_prompt *prompt = system_prompt_open();
        const json_t *question = tree_of("[" QUESTION "]");
        struct learner learners[2] = {{prompt, tree_of("[" SYSTEM("a") "]"), question},
                                      {prompt, tree_of(seconds[i]), question}};
        pthread_t threads[2];
        for (int k = 0; k < 2; k++) pthread_create(&threads[k], NULL, learn_and_assume, &learners[k]);
        for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
        json_t *assumed = system_prompt_assume(prompt, question);
        assert_int_equal(assumed != NULL, i == 0);
        json_decref(assumed);
        system_prompt_close(prompt);
    }
}

/* ---- In an instance ---- */

/* Lines of the log that say that a system prompt was assumed. */
static int times_assumed(const char *path)
{
    char line[4096];
    int n = 0;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        n += strstr(line, " spc: cache hit (system prompt excluded on this request) id=") != NULL;
    fclose(file);
    return n;
}

struct asked {
    const char *messages;
    bool cache_prompt;
    bool knows; /* the prompt is as long as with the system message */
    const char *salt;
};

/* Submits one request after the other and compares the lengths of the prompts. */
static void assert_asked(hearth_config *config, const struct asked *asked, size_t n, int assumed)
{
    hearth_error error;
    struct caller callers[8];
    int32_t length[8];
    char *log = mem_format("%s/unit-lib-spc-%d", getenv("HEARTH_BUILD"), (int)getpid());
    assert_int_equal(hearth_log_open(log, "info", "text", &error), HEARTH_OK);
    hearth *instance = start(config);
    for (size_t i = 0; i < n; i++) {
        hearth_params params = chat_params(asked[i].messages);
        params.cache_prompt = asked[i].cache_prompt;
        params.cache_salt = asked[i].salt;
        run(&callers[i], instance, &params);
        assert_false(callers[i].failed);
        length[i] = callers[i].result.cache_n + callers[i].result.prompt_n;
        assert_int_equal(strstr(callers[i].text.v, "QX7B2") != NULL, asked[i].knows);
        if (asked[i].knows) assert_int_equal(length[i], length[0]); /* the first says all of it */
    }
    end(instance, callers, n);
    assert_int_equal(hearth_log_open(NULL, "error", "text", &error), HEARTH_OK);
    assert_int_equal(times_assumed(log), assumed);
    assert_int_equal(unlink(log), 0);
    free(log);
}

#define WITH    "[" CODE "," QUESTION "]"
#define WITHOUT "[" QUESTION "]"

static void a_chat_without_a_system_message_gets_the_one_that_is_known(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {WITH, true, true, NULL}, {WITHOUT, true, true, NULL}, {WITHOUT, true, true, ""}};
    assert_asked(DEMO("system_prompt_cache", "true", "system_prompt_assumed", "true"), asked, 3, 2);
}

static void without_the_key_no_system_message_is_assumed(void **state)
{
    (void)state;
    static const struct asked asked[] = {{WITH, true, true, NULL}, {WITHOUT, true, false, NULL}};
    assert_asked(DEMO("system_prompt_cache", "true"), asked, 2, 0);
    assert_asked(DEMO(NULL), asked, 2, 0);
}

static void a_second_system_message_ends_it_for_all(void **state)
{
    (void)state;
    static const struct asked asked[] = {{WITH, true, true, NULL},
                                         {WITHOUT, true, true, NULL},
                                         {"[" SYSTEM("You are kind.") "," QUESTION "]", true, false, NULL},
                                         {WITHOUT, true, false, NULL},
                                         {WITH, true, true, NULL},
                                         {WITHOUT, true, false, NULL}};
    assert_asked(DEMO("system_prompt_cache", "true", "system_prompt_assumed", "true"), asked, 6, 1);
}

static void requests_that_cache_nothing_neither_give_nor_get_it(void **state)
{
    (void)state;
    static const struct asked asked[] = {{WITH, false, true, NULL},
                                         {WITHOUT, true, false, NULL},
                                         {WITH, true, true, NULL},
                                         {WITHOUT, false, false, NULL},
                                         {WITHOUT, true, true, NULL}};
    assert_asked(DEMO("system_prompt_cache", "true", "system_prompt_assumed", "true"), asked, 5, 1);
}

/* Not even to requests with the same salt; and their system messages do not count as a second one for others. */
static void requests_with_a_salt_neither_give_nor_get_it(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {WITH, true, true, "red"},     {WITHOUT, true, false, NULL},
        {WITHOUT, true, false, "red"}, {WITH, true, true, NULL},
        {WITHOUT, true, false, "red"}, {"[" SYSTEM("You are kind.") "," QUESTION "]", true, false, "red"},
        {WITHOUT, true, true, NULL}};
    assert_asked(DEMO("system_prompt_cache", "true", "system_prompt_assumed", "true"), asked, 7, 1);
}

/* The error uses the client's own indices: its second message is messages[1], though one was put before. */
static void what_is_wrong_with_a_request_is_told_in_its_own_words(void **state)
{
    (void)state;
    hearth *instance = start(DEMO("system_prompt_cache", "true", "system_prompt_assumed", "true"));
    struct caller callers[2];
    hearth_params params = chat_params(WITH);
    run(&callers[0], instance, &params);
    params = chat_params("[" USER("a") ",{\"role\":\"user\",\"content\":5}]");
    run(&callers[1], instance, &params);
    assert_true(callers[1].failed);
    assert_string_equal(callers[1].error.param, "messages[1].content");
    end(instance, callers, 2);
}

/* ---- */

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_assumed_before_a_system_message_was_seen),
        cmocka_unit_test(the_only_system_message_is_put_before_messages_without_one),
        cmocka_unit_test(messages_with_a_system_message_anywhere_are_left_alone),
        cmocka_unit_test(one_with_an_image_is_never_assumed),
        cmocka_unit_test(after_a_second_system_message_nothing_is_assumed_ever_again),
        cmocka_unit_test(two_threads_agree),
        cmocka_unit_test(a_chat_without_a_system_message_gets_the_one_that_is_known),
        cmocka_unit_test(without_the_key_no_system_message_is_assumed),
        cmocka_unit_test(a_second_system_message_ends_it_for_all),
        cmocka_unit_test(requests_that_cache_nothing_neither_give_nor_get_it),
        cmocka_unit_test(requests_with_a_salt_neither_give_nor_get_it),
        cmocka_unit_test(what_is_wrong_with_a_request_is_told_in_its_own_words),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
