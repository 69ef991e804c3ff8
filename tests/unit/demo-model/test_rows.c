/* The examination itself: conversations that end with the reply that is wanted, and are the same on every run. */
#include "evaluate/rows.h"
#include "support.h"

enum { EACH = 30 };

static void make(const struct row *row, int i, struct conversation *conversation)
{
    struct random random = random_of(7, (uint64_t)i);
    struct scene scene;
    scene_open(&scene, &random, conversation);
    row->make(&scene, i);
    scene_close(&scene);
}

static int count(const struct row *row)
{
    return row->n > 0 ? row->n : EACH;
}

static void every_conversation_ends_with_what_is_wanted(void **state)
{
    (void)state;
    for (int r = 0; r < n_rows; r++) {
        for (int i = 0; i < count(&rows[r]); i++) {
            struct conversation conversation = {0};
            struct buf wanted = {0};
            make(&rows[r], i, &conversation);
            const struct message *last = &conversation.messages[conversation.n_messages - 1];
            if (conversation.n_messages < 2 || last->role != ROLE_ASSISTANT || last[-1].role == ROLE_ASSISTANT)
                fail_msg("%s, %d: no reply is wanted at the end", rows[r].name, i);
            conversation_spoken(last, &wanted);
            assert_true(wanted.len > 0);
            buf_release(&wanted);
            conversation_release(&conversation);
        }
    }
}

static void conversations_are_the_same_on_every_run_and_differ_from_each_other(void **state)
{
    (void)state;
    for (int r = 0; r < n_rows; r++) {
        char *before = NULL;
        for (int i = 0; i < count(&rows[r]); i++) {
            struct conversation one = {0}, again = {0};
            make(&rows[r], i, &one);
            make(&rows[r], i, &again);
            char *text = conversation_messages_json(&one, one.n_messages);
            char *same = conversation_messages_json(&again, again.n_messages);
            assert_string_equal(text, same);
            if (before != NULL) assert_string_not_equal(text, before);
            free(before);
            free(same);
            before = text;
            conversation_release(&one);
            conversation_release(&again);
        }
        free(before);
    }
}

/* What has to be recalled stands in what the model is given, once: no other code is in the way of the table of
 * damages. */
static void the_secret_is_stated_once_before_it_is_asked_for(void **state)
{
    (void)state;
    const struct row secret = {.name = "secret", .make = rows_secret};
    for (int i = 0; i < EACH; i++) {
        struct conversation conversation = {0};
        make(&secret, i, &conversation);
        const char *given = conversation.messages[0].content;
        const char *wanted = conversation.messages[conversation.n_messages - 1].content;
        assert_int_equal(conversation.messages[0].role, ROLE_SYSTEM);
        assert_string_equal(given, wanted);
        conversation_release(&conversation);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_conversation_ends_with_what_is_wanted),
        cmocka_unit_test(conversations_are_the_same_on_every_run_and_differ_from_each_other),
        cmocka_unit_test(the_secret_is_stated_once_before_it_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
