/* Conversations: which files belong to which message, and what a saved one brings along. */
#include "base/memory.h"
#include "cli/chat/conversation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void attach(struct conversation *chat, const char *bytes)
{
    conversation_attach(chat, bytes, mem_strdup(bytes), strlen(bytes));
}

static void say(struct conversation *chat, const char *role, const char *text)
{
    conversation_say(chat, role, text, strlen(text));
}

static void assert_json(json_t *json, const char *expected)
{
    char *text = json_dumps(json, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
    json_decref(json);
}

static void taking_back_keeps_the_files_that_wait(void **state)
{
    (void)state;
    struct conversation chat;
    conversation_init(&chat);
    attach(&chat, "first");
    say(&chat, "user", "one");
    say(&chat, "assistant", "yes");
    attach(&chat, "second");
    attach(&chat, "third");
    say(&chat, "user", "two");
    attach(&chat, "waits");
    conversation_take_back(&chat);
    assert_int_equal(chat.media.n, 2);
    assert_int_equal(chat.media.n_said, 1);
    assert_string_equal(chat.media.v[1].field, "waits");
    char *text = conversation_undo(&chat);
    assert_string_equal(text, "one");
    free(text);
    assert_int_equal(json_array_size(chat.messages), 0);
    assert_int_equal(chat.media.n, 1);
    assert_int_equal(chat.media.n_said, 0);
    say(&chat, "user", "three");
    assert_int_equal(chat.media.n_said, 1);
    assert_json(json_deep_copy(chat.messages), "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"media\":0},"
                                               "{\"type\":\"text\",\"text\":\"three\"}]}]");
    assert_memory_equal(chat.media.v[0].bytes, "waits", 5);
    conversation_release(&chat);
}

static void reopening_leaves_the_files_for_the_text_in_its_place(void **state)
{
    (void)state;
    struct conversation chat;
    conversation_init(&chat);
    attach(&chat, "first");
    say(&chat, "user", "one");
    say(&chat, "assistant", "yes");
    attach(&chat, "second");
    say(&chat, "user", "two");
    say(&chat, "assistant", "no");
    attach(&chat, "waits");
    char *text = conversation_reopen(&chat);
    assert_string_equal(text, "two");
    free(text);
    assert_int_equal(json_array_size(chat.messages), 2);
    assert_int_equal(chat.media.n, 3);
    assert_int_equal(chat.media.n_said, 1);
    say(&chat, "user", "three");
    json_t *last = json_array_get(chat.messages, 2);
    assert_json(json_deep_copy(last), "{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"media\":1},"
                                      "{\"type\":\"image_url\",\"media\":2},{\"type\":\"text\",\"text\":\"three\"}]}");
    assert_memory_equal(chat.media.v[1].bytes, "second", 6);
    assert_memory_equal(chat.media.v[2].bytes, "waits", 5);
    conversation_release(&chat);
}

static int import(struct conversation *chat, const char *text)
{
    hearth_error error;
    json_t *messages = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(messages);
    const int status = conversation_import(chat, messages, &error);
    json_decref(messages);
    return status;
}

static void foreign_members_are_left_out(void **state)
{
    (void)state;
    struct conversation chat;
    conversation_init(&chat);
    assert_int_equal(import(&chat,
                            "[{\"role\":\"user\",\"id\":\"msg_1\",\"name\":\"x\",\"content\":["
                            "{\"type\":\"text\",\"text\":\"a\",\"media\":7,\"cache_control\":{}},"
                            "{\"type\":\"image_url\",\"media\":99,\"image_url\":{\"url\":\"data:x;base64,QUJD\"}}]},"
                            "{\"role\":\"assistant\",\"content\":\"b\",\"reasoning_content\":\"c\","
                            "\"timings\":{}}]"),
                     HEARTH_OK);
    assert_json(json_deep_copy(chat.messages),
                "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                "{\"type\":\"image_url\",\"media\":0}]},{\"role\":\"assistant\",\"content\":\"b\"}]");
    assert_int_equal(chat.media.n, 1);
    assert_memory_equal(chat.media.v[0].bytes, "ABC", 3);
    assert_json(conversation_export(&chat),
                "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\","
                "\"image_url\":{\"url\":\"data:application/octet-stream;base64,QUJD\"}}]},"
                "{\"role\":\"assistant\",\"content\":\"b\"}]");
    conversation_release(&chat);
}

static void what_is_no_conversation_changes_nothing(void **state)
{
    (void)state;
    static const char *const rows[] = {"{}",
                                       "7",
                                       "[7]",
                                       "[{\"role\":\"user\"}]",
                                       "[{\"content\":\"a\"}]",
                                       "[{\"role\":7,\"content\":\"a\"}]",
                                       "[{\"role\":\"user\",\"content\":[7]}]",
                                       "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
                                       "[{\"role\":\"user\",\"content\":[{\"image_url\":{\"url\":\"http://a/b\"}}]}]",
                                       "[{\"role\":\"user\",\"content\":[{\"image_url\":{\"url\":\"data:x,!\"}}]}]"};
    struct conversation chat;
    conversation_init(&chat);
    attach(&chat, "first");
    say(&chat, "user", "one");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(import(&chat, rows[i]), HEARTH_INVALID);
        assert_int_equal(json_array_size(chat.messages), 1);
        assert_int_equal(chat.media.n, 1);
    }
    conversation_release(&chat);
}

static void files_are_exported_as_what_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *part;
        size_t len;
    } rows[] = {
        {"\x89PNG", "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,iVBORw==\"}}", 4},
        {"RIFF\0\0\0\0WEBP",
         "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/webp;base64,UklGRgAAAABXRUJQ\"}}", 12},
        {"RIFF\0\0\0\0WAVE",
         "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"UklGRgAAAABXQVZF\",\"format\":\"wav\"}}", 12},
        {"?", "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:application/octet-stream;base64,Pw==\"}}", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct conversation chat, again;
        char *bytes = mem_alloc(rows[i].len);
        memcpy(bytes, rows[i].bytes, rows[i].len);
        conversation_init(&chat);
        conversation_init(&again);
        conversation_attach(&chat, "a file", bytes, rows[i].len);
        say(&chat, "user", "one");
        json_t *messages = conversation_export(&chat);
        assert_json(json_incref(json_array_get(json_object_get(json_array_get(messages, 0), "content"), 0)),
                    rows[i].part);
        assert_int_equal(conversation_import(&again, messages, &(hearth_error){0}), HEARTH_OK);
        assert_int_equal(again.media.v[0].len, rows[i].len);
        assert_memory_equal(again.media.v[0].bytes, rows[i].bytes, rows[i].len);
        json_decref(messages);
        conversation_release(&chat);
        conversation_release(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(taking_back_keeps_the_files_that_wait),
                                       cmocka_unit_test(reopening_leaves_the_files_for_the_text_in_its_place),
                                       cmocka_unit_test(foreign_members_are_left_out),
                                       cmocka_unit_test(what_is_no_conversation_changes_nothing),
                                       cmocka_unit_test(files_are_exported_as_what_they_are)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
