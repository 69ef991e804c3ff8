/* Hashes of leading messages: which changes change them, and which do not. */
#include "instance/parameters/parameters.h"
#include "json_trees.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOL(name, what) "[{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"" what "\"}}]"
#define CALL(id, code)                                                                                                 \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id "\",\"type\":\"function\","               \
    "\"function\":{\"name\":\"run\",\"arguments\":\"" code "\"}}]}"
#define RESULT(id, text)     "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"name\":\"run\",\"content\":\"" text "\"}"
#define SAYS(role, text)     "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define PARTS(first, second) "{\"role\":\"user\",\"content\":[" first "," second "]}"
#define TEXT(text)           "{\"type\":\"text\",\"text\":\"" text "\"}"
#define IMAGE(url)           "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"

#define MESSAGES             "[" SAYS("system", "Be brief.") "," SAYS("user", "Hi") "]"

static struct chat_seen plain; /* main() fills it in */

static struct chat_identity identified(const struct chat_seen *seen)
{
    struct chat_identity identity;
    chat_identify(seen, &identity);
    return identity;
}

static struct chat_identity of_messages(const char *messages)
{
    struct chat_seen seen = plain;
    seen.messages = tree_of(messages);
    return identified(&seen);
}

/* Whether all hashes are the same. */
static bool same(const struct chat_seen *a, const struct chat_seen *b)
{
    struct chat_identity one = identified(a), other = identified(b);
    bool result = one.n_messages == other.n_messages &&
                  memcmp(one.hashes, other.hashes, (one.n_messages + 1) * sizeof *one.hashes) == 0;
    chat_identity_release(&one);
    chat_identity_release(&other);
    return result;
}

static void every_number_of_messages_has_a_hash_of_its_own(void **state)
{
    (void)state;
    const char *one = "[" SAYS("user", "a") "," SAYS("user", "a") "," SAYS("user", "a") "]";
    struct chat_identity identity = of_messages(one);
    assert_int_equal(identity.n_messages, 3);
    for (size_t i = 0; i <= 3; i++)
        for (size_t k = 0; k < i; k++) assert_true(identity.hashes[i] != identity.hashes[k]);
    chat_identity_release(&identity);
    assert_null(identity.hashes);
}

static void a_longer_conversation_begins_with_the_hashes_of_the_shorter(void **state)
{
    (void)state;
    struct chat_identity two = of_messages(MESSAGES);
    struct chat_identity four = of_messages("[" SAYS("system", "Be brief.") "," SAYS("user", "Hi") "," SAYS(
        "assistant", "Hello.") "," SAYS("user", "More") "]");
    assert_int_equal(two.n_messages, 2);
    assert_int_equal(four.n_messages, 4);
    for (size_t i = 0; i <= 2; i++) assert_true(two.hashes[i] == four.hashes[i]);
    chat_identity_release(&two);
    chat_identity_release(&four);
}

static void an_edited_message_changes_the_hashes_from_there_on(void **state)
{
    (void)state;
    struct chat_identity one = of_messages("[" SAYS("user", "a") "," SAYS("assistant", "b") "," SAYS("user", "c") "]");
    struct chat_identity edited =
        of_messages("[" SAYS("user", "a") "," SAYS("assistant", "B") "," SAYS("user", "c") "]");
    for (size_t i = 0; i <= 3; i++) assert_int_equal(one.hashes[i] == edited.hashes[i], i < 2);
    chat_identity_release(&one);
    chat_identity_release(&edited);
}

static void order_of_keys_and_white_space_do_not_count(void **state)
{
    (void)state;
    struct chat_seen one = plain, other = plain;
    one.kwargs = tree_of("{\"a\":1,\"b\":{\"x\":[1,2],\"y\":null}}");
    other.kwargs = tree_of(" { \"b\" : {\"y\":null, \"x\" :[1 ,2]}\n,\t\"a\": 1}");
    one.tools = tree_of("[{\"type\":\"function\",\"function\":{\"name\":\"run\",\"parameters\":{}}}]");
    other.tools = tree_of("[ {\"function\": {\"parameters\": { }, \"name\": \"run\"}, \"type\": \"function\"} ]");
    one.messages = tree_of("[{\"role\":\"user\",\"content\":\"\\u00e9\\/ \\u0000\"}]");
    other.messages = tree_of("\n[{ \"content\": \"\xc3\xa9/ \\u0000\", \"role\": \"user\" }] ");
    assert_true(same(&one, &other));
}

static void whatever_the_template_sees_counts(void **state)
{
    (void)state;
    struct chat_seen other = plain;
    assert_true(same(&plain, &other));
    other.template_source = "{{ messages }}\n";
    assert_false(same(&plain, &other));
    other = plain;
    other.kwargs = tree_of("{\"a\":2}");
    assert_false(same(&plain, &other));
    other.kwargs = NULL;
    assert_false(same(&plain, &other));

    struct chat_seen tool = plain, another = plain, in_kwargs = plain;
    tool.tools = tree_of(TOOL("run", "Runs code."));
    another.tools = tree_of(TOOL("run", "Runs it."));
    assert_false(same(&plain, &tool));
    assert_false(same(&tool, &another));
    /* Nothing can pass for something that stands elsewhere. */
    tool.kwargs = NULL;
    in_kwargs.kwargs = tool.tools;
    assert_false(same(&tool, &in_kwargs));
}

static void whatever_a_message_says_counts(void **state)
{
    (void)state;
    static const char *const different[] = {
        SAYS("user", "Hi"),
        SAYS("user", "Hi "),
        SAYS("system", "Hi"),
        SAYS("developer", "Hi"),
        SAYS("assistant", "Hi"),
        "{\"role\":\"user\",\"content\":\"Hi\",\"name\":\"Ann\"}",
        "{\"role\":\"user\",\"content\":[\"Hi\"]}",
        PARTS(TEXT("Hi"), TEXT("there")),
        PARTS(TEXT("there"), TEXT("Hi")),
        PARTS(TEXT("Hi"), IMAGE("data:,a")),
        PARTS(TEXT("Hi"), IMAGE("data:,b")),
        CALL("c1", "x"),
        CALL("c2", "x"),
        CALL("c1", "y"),
        RESULT("c1", "ok"),
        RESULT("c2", "ok"),
        RESULT("c1", "no"),
        "{\"role\":\"assistant\",\"content\":\"Hi\",\"reasoning_content\":\"Hm\"}",
    };
    enum { N = sizeof different / sizeof *different };
    uint64_t hashes[N];
    for (size_t i = 0; i < N; i++) {
        char messages[1024];
        snprintf(messages, sizeof messages, "[%s]", different[i]);
        struct chat_identity identity = of_messages(messages);
        hashes[i] = identity.hashes[1];
        chat_identity_release(&identity);
        for (size_t k = 0; k < i; k++)
            if (hashes[i] == hashes[k]) fail_msg("%s\n%s", different[i], different[k]);
    }
}

static void one_message_is_not_two(void **state)
{
    (void)state;
    struct chat_identity one = of_messages("[" SAYS("user", "a\\\"},{\\\"role\\\":\\\"user") "]");
    struct chat_identity two = of_messages("[" SAYS("user", "a") ",{\"role\":\"user\"}]");
    assert_true(one.hashes[1] != two.hashes[1] && one.hashes[1] != two.hashes[2]);
    chat_identity_release(&one);
    chat_identity_release(&two);
}

/* The bytes that go in, written out once by hand. */
static void a_hash_is_the_beginning_of_a_sha_256(void **state)
{
    (void)state;
    static const char *const parts[] = {"T", "{\"a\":1}", "null", "{\"content\":\"Hi\",\"role\":\"user\"}"};
    char bytes[256];
    unsigned char digest[EVP_MAX_MD_SIZE];
    size_t n = 0;
    for (size_t i = 0; i < 4; i++) {
        size_t len = strlen(parts[i]);
        memcpy(bytes + n, &len, sizeof len);
        memcpy(bytes + n + sizeof len, parts[i], len);
        n += sizeof len + len;
    }
    assert_int_equal(EVP_Digest(bytes, n, digest, NULL, EVP_sha256(), NULL), 1);
    struct chat_seen seen = {
        .template_source = "T", .kwargs = tree_of("{\"a\":1}"), .messages = tree_of("[" SAYS("user", "Hi") "]")};
    struct chat_identity identity = identified(&seen);
    uint64_t expected = 0;
    for (size_t i = 0; i < 8; i++) expected = expected << 8 | digest[i];
    assert_true(identity.hashes[1] == expected);
    chat_identity_release(&identity);
}

static void a_system_or_developer_message_at_the_beginning_is_noticed(void **state)
{
    (void)state;
    static const struct {
        const char *messages;
        bool expected;
    } cases[] = {
        {"[" SAYS("system", "a") "," SAYS("user", "b") "]", true},
        {"[" SAYS("developer", "a") "]", true},
        {"[" SAYS("user", "a") "," SAYS("system", "b") "]", false},
        {"[{\"content\":\"a\"}]", false},
        {"[{\"role\":5}]", false},
        {"[\"system\"]", false},
        {"[]", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_identity identity = of_messages(cases[i].messages);
        assert_int_equal(identity.starts_with_system, cases[i].expected);
        chat_identity_release(&identity);
    }
}

static void numbers_that_differ_in_one_digit_are_different_messages(void **state)
{
    (void)state;
    static const char *const digits[] = {"18446744073709551614", "18446744073709551615", "1e999", "1e998"};
    uint64_t hashes[4];
    for (size_t i = 0; i < 4; i++) {
        char *messages = mem_format("[{\"role\":\"user\",\"content\":%s}]", digits[i]);
        struct chat_identity identity = of_messages(messages);
        hashes[i] = identity.hashes[1];
        for (size_t k = 0; k < i; k++) assert_true(hashes[k] != hashes[i]);
        chat_identity_release(&identity);
        free(messages);
    }
}

int main(void)
{
    plain = (struct chat_seen){
        .template_source = "{{ messages }}", .kwargs = tree_of("{\"a\":1}"), .messages = tree_of(MESSAGES)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_messages_has_a_hash_of_its_own),
        cmocka_unit_test(a_longer_conversation_begins_with_the_hashes_of_the_shorter),
        cmocka_unit_test(an_edited_message_changes_the_hashes_from_there_on),
        cmocka_unit_test(order_of_keys_and_white_space_do_not_count),
        cmocka_unit_test(whatever_the_template_sees_counts),
        cmocka_unit_test(whatever_a_message_says_counts),
        cmocka_unit_test(one_message_is_not_two),
        cmocka_unit_test(a_hash_is_the_beginning_of_a_sha_256),
        cmocka_unit_test(a_system_or_developer_message_at_the_beginning_is_noticed),
        cmocka_unit_test(numbers_that_differ_in_one_digit_are_different_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
