#include "corpus/facts.h"
#include "corpus/lists.h"
#include "corpus/talk.h"
#include "corpus/tools.h"
#include "support.h"

#include "base/utf8.h"

static const uint64_t SEED = 11;
enum { CONVERSATIONS = 2000 };

/* A piece_fn. */
static void append(void *ud, enum piece piece, const char *text, size_t len)
{
    (void)piece;
    buf_append(ud, text, len);
}

static void put_text(struct buf *out, uint64_t seed, uint64_t number, size_t length)
{
    struct conversation conversation = {0};
    corpus_make(&conversation, seed, number, length);
    conversation_pieces(&conversation, conversation.n_messages, append, out);
    conversation_release(&conversation);
}

static size_t length_of(uint64_t number)
{
    return number % 10 == 0 ? 5000 : 100 + number % 700;
}

static void the_same_seed_and_number_make_the_same_conversation(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 50; i++) {
        struct buf one = {0}, again = {0}, other = {0};
        put_text(&one, SEED, i, length_of(i));
        put_text(&again, SEED, i, length_of(i));
        put_text(&other, SEED + 1, i, length_of(i));
        assert_string_equal(buf_text(&one), buf_text(&again));
        assert_string_not_equal(buf_text(&one), buf_text(&other));
        buf_release(&one);
        buf_release(&again);
        buf_release(&other);
    }
}

static void every_text_is_valid_utf8_and_many_have_more_than_ascii(void **state)
{
    (void)state;
    int beyond = 0;
    for (uint64_t i = 0; i < CONVERSATIONS; i++) {
        struct buf text = {0}, clean = {0};
        put_text(&text, SEED, i, length_of(i));
        utf8_put_clean(&clean, text.v, text.len);
        assert_string_equal(text.v, clean.v);
        assert_int_equal(text.len, strlen(text.v));
        for (size_t k = 0; k < text.len; k++) {
            if ((unsigned char)text.v[k] < 0x80) continue;
            beyond++;
            break;
        }
        buf_release(&text);
        buf_release(&clean);
    }
    assert_in_range(beyond, CONVERSATIONS / 10, CONVERSATIONS);
}

/* The user speaks, then the model; results follow calls; the model speaks last. */
static void check_speakers(const struct conversation *conversation)
{
    const struct message *m = conversation->messages;
    size_t n = conversation->n_messages;
    assert_int_equal(m[n - 1].role, ROLE_ASSISTANT);
    for (size_t k = 0; k < n; k++) {
        enum role before = k == 0 ? ROLE_ASSISTANT : m[k - 1].role;
        if (m[k].role == ROLE_SYSTEM) assert_int_equal(k, 0);
        if (m[k].role == ROLE_USER) assert_true(before == ROLE_SYSTEM || before == ROLE_ASSISTANT);
        if (m[k].role == ROLE_ASSISTANT) assert_true(before == ROLE_USER || before == ROLE_TOOL);
        if (m[k].role == ROLE_TOOL) assert_true(before == ROLE_TOOL || m[k - 1].n_calls > 0);
        if (m[k].role == ROLE_ASSISTANT && m[k].n_calls == 0) assert_true(m[k].content[0] != '\0');
        if (m[k].role == ROLE_ASSISTANT) assert_null(strchr(" \n", m[k].content[0] != '\0' ? m[k].content[0] : 'x'));
    }
}

static void speakers_take_turns(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < CONVERSATIONS; i++) {
        struct conversation whole = {0}, drill = {0};
        corpus_make(&whole, SEED, i, length_of(i));
        check_speakers(&whole);
        corpus_drill(&drill, SEED, i);
        check_speakers(&drill);
        conversation_release(&whole);
        conversation_release(&drill);
    }
}

/* The number before a colon is the item's place in the list, up to the one that was asked for. */
static void an_item_is_found_by_counting(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 50; i++) {
        struct conversation conversation = {0};
        struct random random = random_of(2, i);
        struct scene scene;
        struct buf question = {0}, answer = {0}, expected = {0};
        scene_open(&scene, &random, &conversation);
        lists_state(&scene, 4, &question);
        lists_ask(&scene, LIST_NTH, &question, &answer);
        static const char *const ordinals[] = {"first", "second", "third", "fourth"};
        int asked = 0;
        while (strstr(buf_text(&question), ordinals[asked]) == NULL) asked++;
        for (int k = 0; k <= asked; k++) buf_printf(&expected, "%s%d: %s", k > 0 ? ", " : "", k + 1, scene.items[k]);
        buf_printf(&expected, ". The %s item is %s.", ordinals[asked], scene.items[asked]);
        assert_string_equal(buf_text(&answer), buf_text(&expected));
        buf_release(&question);
        buf_release(&answer);
        buf_release(&expected);
        scene_close(&scene);
        conversation_release(&conversation);
    }
}

/* What a reply says of a fact was said before; what is not known was not. */
static void replies_recall_what_was_said(void **state)
{
    (void)state;
    int recalled = 0, unknown = 0;
    for (uint64_t i = 0; i < CONVERSATIONS; i++) {
        struct conversation conversation = {0};
        struct buf before = {0};
        corpus_make(&conversation, SEED, i, length_of(i));
        for (size_t k = 0; k < conversation.n_messages; k++) {
            const char *text = conversation.messages[k].content;
            static const char code_is[] = "The secret code is ";
            if (conversation.messages[k].role == ROLE_ASSISTANT && strncmp(text, code_is, strlen(code_is)) == 0) {
                char *code = mem_strndup(text + strlen(code_is), strcspn(text + strlen(code_is), "."));
                if (strstr(buf_text(&before), code) == NULL) fail_msg("nobody said %s in %s", code, buf_text(&before));
                recalled++;
                free(code);
            }
            if (strcmp(text, facts_unknown_name) == 0) {
                assert_null(strstr(buf_text(&before), "My name is "));
                unknown++;
            }
            buf_puts(&before, text);
        }
        buf_release(&before);
        conversation_release(&conversation);
    }
    assert_in_range(recalled, 50, 100000);
    assert_in_range(unknown, 5, recalled);
}

static void most_questions_have_several_phrasings(void **state)
{
    (void)state;
    assert_in_range(talk_n_hearth, 40, 1000);
    for (int i = 0; i < talk_n_hearth; i++) {
        assert_non_null(talk_hearth[i].asks[1]);
        assert_non_null(talk_hearth[i].answer);
    }
}

/* A call as the model would write it is what the template makes of it. */
static void a_call_has_its_arguments_in_the_order_of_the_request(void **state)
{
    (void)state;
    struct conversation conversation = {0};
    struct random random = random_of(1, 1);
    struct scene scene;
    struct buf spoken = {0};
    scene_open(&scene, &random, &conversation);
    tools_offer_made_up(&scene, 2);
    tools_call(&scene, 0, true, 4);
    scene_close(&scene);
    assert_int_equal(conversation.n_messages, 4);
    conversation_spoken(&conversation.messages[1], &spoken);
    const struct tool_call *call = &conversation.messages[1].calls[0];
    char *expected =
        mem_format("<tool_call>\n{\"name\": \"%s\", \"arguments\": %s}\n</tool_call>", call->name, call->arguments);
    assert_string_equal(buf_text(&spoken), expected);
    assert_non_null(strstr(conversation.tools[0], call->name));
    free(expected);
    buf_release(&spoken);
    conversation_release(&conversation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_and_number_make_the_same_conversation),
        cmocka_unit_test(every_text_is_valid_utf8_and_many_have_more_than_ascii),
        cmocka_unit_test(speakers_take_turns),
        cmocka_unit_test(an_item_is_found_by_counting),
        cmocka_unit_test(replies_recall_what_was_said),
        cmocka_unit_test(most_questions_have_several_phrasings),
        cmocka_unit_test(a_call_has_its_arguments_in_the_order_of_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
