/* Replies from reused cells are those of a cold run: every architecture with a decoder, both layouts, every way in
 * which a prompt can share something with what is resident. The same requests are asked for with the cache off.
 *
 * What is reused is counted too. Cells that can be cut anywhere give all that agrees. Recurrent states and sliding
 * windows give whole sequences and, for chats in one pool of cells, the bounds of messages. */
#include "support.h"

static char *folder;
static struct oracle oracles[N_ARCHS];

/* One way of sharing in one instance that nobody has used before. */
struct scene {
    const char *name;
    struct oracle *oracle;
    enum layout layout;
    hearth *instance;
};

/* ---- Asking ---- */

static void expect_reply(const struct scene *scene, const struct turn *turn, const struct caller *caller,
                         const char *what)
{
    size_t same = tokens_common_prefix(&caller->reply, &turn->reply);
    if (same < REPLY || caller->reply.len != REPLY)
        fail_msg("%s, %s, %s, %s: token %zu of %zu is wrong (%d of %zu prompt tokens reused)",
                 scene->oracle->arch->name, scene->layout == UNIFIED ? "unified" : "split", scene->name, what, same,
                 caller->reply.len, caller->result.cache_n, turn->prompt.len);
    assert_int_equal(caller->result.cache_n + caller->result.prompt_n, turn->prompt.len);
}

/* Returns the prompt tokens that were reused. */
static int32_t finish(const struct scene *scene, const struct turn *turn, struct caller *caller, const char *what)
{
    caller_await(caller);
    expect_reply(scene, turn, caller, what);
    int32_t reused = caller->result.cache_n;
    caller_release(caller);
    return reused;
}

static int32_t ask(const struct scene *scene, const struct turn *turn, const char *what)
{
    struct caller caller;
    caller_submit(&caller, scene->instance, turn, true);
    return finish(scene, turn, &caller, what);
}

static void expect_reused(const struct scene *scene, const char *what, int32_t reused, int32_t least, int32_t most)
{
    if (reused < least || reused > most)
        fail_msg("%s, %s, %s, %s: %d prompt tokens were reused, not %d to %d", scene->oracle->arch->name,
                 scene->layout == UNIFIED ? "unified" : "split", scene->name, what, reused, least, most);
}

/* What can be cut anywhere reuses exactly so many. */
static void ask_cutting(const struct scene *scene, const struct turn *turn, const char *what, int32_t agree)
{
    int32_t reused = ask(scene, turn, what);
    expect_reused(scene, what, reused, scene->oracle->arch->cuts_anywhere ? agree : 0, agree);
}

/* Goes on from a whole sequence: everything can. The last token of a reply never was in the cells. */
static int32_t whole(const struct turn *turn)
{
    return (int32_t)turn->prompt.len + REPLY - 1;
}

static struct turn next_turn(const struct scene *scene, const struct turn *turn, uint32_t seed)
{
    return turn_after(scene->oracle, turn, (int32_t)turn->prompt.len + REPLY, 20, seed);
}

/* The same request with the cache off. */
static void ask_cold(const struct scene *scene, const struct turn *turn)
{
    struct caller caller;
    caller_submit(&caller, scene->instance, turn, false);
    expect_reused(scene, "cache off", finish(scene, turn, &caller, "cache off"), 0, 0);
}

/* A test of scenes is played with every architecture in both layouts. */
struct scene_test {
    const char *name;
    void (*play)(const struct scene *scene);
};

static void each_scene(void **state)
{
    const struct scene_test *test = *state;
    for (size_t i = 0; i < N_ARCHS; i++) {
        for (enum layout layout = UNIFIED; layout <= SPLIT; layout++) {
            struct scene scene = {test->name, &oracles[i], layout, start_layout(&oracles[i], layout)};
            test->play(&scene);
            hearth_close(scene.instance);
        }
    }
}

static struct CMUnitTest in_every_scene(struct scene_test *test)
{
    return (struct CMUnitTest){.name = test->name, .test_func = each_scene, .initial_state = test};
}

#define SCENE_TEST(play) in_every_scene(&(struct scene_test){#play, play})

/* ---- Prompts of tokens ---- */

static void the_same_prompt_again(const struct scene *scene)
{
    struct turn a = turn_after(scene->oracle, NULL, 0, 190, 100);
    ask_cold(scene, &a);
    expect_reused(scene, "first", ask(scene, &a, "first"), 0, 0);
    for (int i = 0; i < 3; i++) ask_cutting(scene, &a, "again", (int32_t)a.prompt.len - 1);
    ask_cold(scene, &a);
    turn_release(&a);
}

static void the_next_turns_go_on_from_the_reply(const struct scene *scene)
{
    struct turn turn = turn_after(scene->oracle, NULL, 0, 100, 200);
    ask(scene, &turn, "first turn");
    for (uint32_t i = 0; i < 3; i++) {
        struct turn next = next_turn(scene, &turn, 210 + 10 * i);
        int32_t reused = ask(scene, &next, "next turn");
        expect_reused(scene, "next turn", reused, whole(&turn), whole(&turn));
        turn_release(&turn);
        turn = next;
    }
    ask_cold(scene, &turn);
    turn_release(&turn);
}

static void a_prompt_that_parts_in_the_middle(const struct scene *scene)
{
    struct turn a = turn_after(scene->oracle, NULL, 0, 190, 300);
    ask(scene, &a, "first");
    static const int32_t parts[] = {100, 63, 150, 189};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct turn b = turn_after(scene->oracle, &a, parts[i], 40, 310 + 10 * (uint32_t)i);
        int32_t reused = ask(scene, &b, "parts in the middle");
        bool sure = scene->oracle->arch->cuts_anywhere && (scene->layout == UNIFIED || i == 0);
        expect_reused(scene, "parts in the middle", reused, sure ? parts[i] : 0, parts[i]);
        ask_cold(scene, &b);
        turn_release(&b);
    }
    turn_release(&a);
}

static void an_edited_prompt_and_back_again(const struct scene *scene)
{
    struct turn a = turn_after(scene->oracle, NULL, 0, 190, 400);
    struct turn b = turn_after(scene->oracle, &a, 100, 90, 410);
    ask(scene, &a, "first");
    ask_cutting(scene, &b, "edited", 100);
    ask_cutting(scene, &a, "back", (int32_t)a.prompt.len - 1);
    ask_cutting(scene, &b, "and again", (int32_t)b.prompt.len - 1);
    ask_cold(scene, &a);
    ask_cold(scene, &b);
    turn_release(&a);
    turn_release(&b);
}

static void conversations_that_share_a_system_prompt(const struct scene *scene)
{
    struct turn a = turn_after(scene->oracle, NULL, 0, 190, 500);
    struct turn b = turn_after(scene->oracle, &a, 128, 60, 510);
    ask(scene, &a, "first conversation");
    ask_cutting(scene, &b, "second conversation", 128);
    struct turn a2 = next_turn(scene, &a, 520), b2 = next_turn(scene, &b, 530);
    expect_reused(scene, "first goes on", ask(scene, &a2, "first goes on"), whole(&a), whole(&a));
    expect_reused(scene, "second goes on", ask(scene, &b2, "second goes on"), whole(&b), whole(&b));
    ask_cold(scene, &b2);
    turn_release(&a);
    turn_release(&b);
    turn_release(&a2);
    turn_release(&b2);
}

static void ask_both(const struct scene *scene, const struct turn *a, const struct turn *b, int32_t reused[2])
{
    struct caller callers[2];
    caller_submit(&callers[0], scene->instance, a, true);
    caller_submit(&callers[1], scene->instance, b, true);
    reused[0] = finish(scene, a, &callers[0], "one of two");
    reused[1] = finish(scene, b, &callers[1], "the other of two");
}

static void two_at_once(const struct scene *scene)
{
    int32_t reused[2];
    struct turn a = turn_after(scene->oracle, NULL, 0, 190, 600);
    struct turn b = turn_after(scene->oracle, &a, 128, 60, 610);
    ask_both(scene, &a, &b, reused);
    if (scene->oracle->arch->cuts_anywhere)
        expect_reused(scene, "at once", reused[0] + reused[1], 128, 128); /* whoever comes second */
    struct turn a2 = next_turn(scene, &a, 620), b2 = next_turn(scene, &b, 630);
    ask_both(scene, &a2, &b2, reused);
    expect_reused(scene, "first goes on", reused[0], whole(&a), whole(&a));
    expect_reused(scene, "second goes on", reused[1], whole(&b), whole(&b));
    turn_release(&a);
    turn_release(&b);
    turn_release(&a2);
    turn_release(&b2);
}

static void more_conversations_than_slots(const struct scene *scene)
{
    enum { MANY = 5 };
    struct turn first[MANY], second[MANY];
    struct caller callers[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        first[i] =
            turn_after(scene->oracle, i == 0 ? NULL : &first[0], i == 0 ? 0 : 64, i == 0 ? 164 : 100, 700 + 10 * i);
    for (size_t i = 0; i < MANY; i++) caller_submit(&callers[i], scene->instance, &first[i], true);
    for (size_t i = 0; i < MANY; i++) finish(scene, &first[i], &callers[i], "one of five");
    for (uint32_t i = 0; i < MANY; i++) {
        second[i] = next_turn(scene, &first[i], 760 + 10 * i);
        int32_t reused = ask(scene, &second[i], "next turn");
        expect_reused(scene, "next turn", reused, scene->layout == UNIFIED ? whole(&first[i]) : 0, whole(&first[i]));
    }
    for (size_t i = 0; i < MANY; i++) {
        turn_release(&first[i]);
        turn_release(&second[i]);
    }
}

/* ---- Chats ---- */

static void put_message(struct turn *turn, const char *role, const struct buf *content)
{
    buf_puts(&turn->messages, turn->messages.len == 0 ? "[" : ",");
    buf_printf(&turn->messages, "{\"role\":\"%s\",\"content\":", role);
    utf8_put_json_string(&turn->messages, content->v, content->len);
    buf_puts(&turn->messages, "}");
    buf_printf(&turn->text, "<|im_start|>%s\n", role);
    utf8_put_clean(&turn->text, content->v, content->len);
    buf_puts(&turn->text, "<|im_end|>\n");
}

static void put_words(struct buf *out, uint32_t seed, int n)
{
    static const char *const words[] = {"the",  "a",    "house", "stands", "near", "river", "who",  "calls",
                                        "over", "hill", "seven", "boats",  "came", "back",  "late", "today"};
    for (int i = 0; i < n; i++) buf_printf(out, "%s%s", i == 0 ? "" : " ", words[next_random(&seed) % 16]);
}

static void tokens_of_text(const struct oracle *oracle, const char *text, size_t len, struct tokens *out)
{
    tokens_truncate(out, 0);
    llm_tokenize(oracle->model, text, len, true, true, out);
}

/* A message of n words after those of `before`, or after its reply too, chosen so that the cold run is clear. */
static struct turn chat_after(struct oracle *oracle, const struct turn *before, bool with_reply, const char *role,
                              int n, uint32_t seed)
{
    struct turn turn;
    bool clear;
    do {
        turn = (struct turn){0};
        struct buf content = {0};
        buf_append(&turn.messages, before->messages.v, before->messages.len);
        buf_append(&turn.text, before->text.v, before->text.len);
        for (size_t i = 0; with_reply && i < before->reply.len; i++)
            llm_token_bytes(oracle->model, before->reply.v[i], false, &content);
        if (with_reply) put_message(&turn, "assistant", &content);
        buf_clear(&content);
        put_words(&content, seed++ * 7919, n);
        put_message(&turn, role, &content);
        buf_release(&content);
        char *text = mem_format("%s<|im_start|>assistant\n", turn.text.v);
        tokens_of_text(oracle, text, strlen(text), &turn.prompt);
        free(text);
        clear = cold_reply(oracle, &turn.prompt, &turn.reply);
        if (!clear) turn_release(&turn);
    } while (!clear);
    return turn;
}

/* Tokens of the prompt up to the end of the messages of `part`. */
static int32_t bound(const struct oracle *oracle, const struct turn *part, const struct turn *turn)
{
    struct tokens tokens = {0};
    tokens_of_text(oracle, part->text.v, part->text.len, &tokens);
    int32_t n = (int32_t)tokens_common_prefix(&tokens, &turn->prompt);
    tokens_release(&tokens);
    return n;
}

/* Goes on at least from the end of the messages of `part`, where a sequence can be spared for that. */
static void ask_chat(const struct scene *scene, const struct turn *turn, const struct turn *part, const char *what)
{
    int32_t least = scene->layout == UNIFIED ? bound(scene->oracle, part, turn) : 0;
    expect_reused(scene, what, ask(scene, turn, what), least, (int32_t)turn->prompt.len - 1);
}

/* system, then: a first question; the next turn; that turn edited; the next after the edit; another conversation. */
static void a_chat_never_begins_from_zero(const struct scene *scene)
{
    struct oracle *oracle = scene->oracle;
    struct turn nothing = {0};
    struct turn system = chat_after(oracle, &nothing, false, "system", 60, 800);
    struct turn first = chat_after(oracle, &system, false, "user", 20, 810);
    struct turn next = chat_after(oracle, &first, true, "user", 20, 820);
    struct turn edited = chat_after(oracle, &first, true, "user", 20, 830);
    struct turn further = chat_after(oracle, &edited, true, "user", 20, 840);
    struct turn other = chat_after(oracle, &system, false, "user", 20, 850);
    ask(scene, &first, "first question");
    ask_chat(scene, &next, &first, "next turn");
    ask_chat(scene, &edited, &first, "last message edited");
    ask_chat(scene, &further, &edited, "next turn after the edit");
    ask_chat(scene, &other, &system, "new conversation");
    ask_cold(scene, &further);
    ask_cold(scene, &other);
    struct turn *turns[] = {&system, &first, &next, &edited, &further, &other};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) turn_release(turns[i]);
}

/* ---- Deterministic ---- */

/* Every prompt counts here, however close its tokens are: equal bits give equal replies. `least` and `most` limit what
 * is reused, where cells can be cut anywhere. Returns the reply. */
static struct tokens expect_same(const struct scene *scene, const struct tokens *prompt, int32_t least, int32_t most)
{
    struct turn turn = {.prompt = *prompt};
    struct caller cold, warm[2];
    caller_submit(&cold, scene->instance, &turn, false);
    caller_await(&cold);
    turn.reply = cold.reply;
    cold.reply = (struct tokens){0};
    caller_release(&cold);
    if (!scene->oracle->arch->cuts_anywhere) least = 0;
    expect_reused(scene, "warm", ask(scene, &turn, "warm"), least, most);
    caller_submit(&warm[0], scene->instance, &turn, true);
    caller_submit(&warm[1], scene->instance, &turn, true);
    finish(scene, &turn, &warm[0], "one of two");
    finish(scene, &turn, &warm[1], "the other of two");
    int32_t reused = ask(scene, &turn, "again");
    int32_t pieces = ((int32_t)prompt->len - 1) / 64 * 64;
    expect_reused(scene, "again", reused, scene->oracle->arch->cuts_anywhere ? pieces : 0, pieces);
    return turn.reply;
}

/* The reply of the first turn ends a piece that its prompt began: only the two pieces before that are exact. */
static void expect_same_turns(const struct scene *scene, uint32_t seed)
{
    uint32_t shared = 900, own = seed;
    struct tokens prompt = {0};
    for (int i = 0; i < 170; i++)
        tokens_push(&prompt, (int32_t)(next_random(i < 100 ? &shared : &own) % (uint32_t)scene->oracle->n_vocab));
    struct tokens reply = expect_same(scene, &prompt, 0, 64);
    tokens_append(&prompt, reply.v, reply.len);
    tokens_release(&reply);
    for (int i = 0; i < 20; i++) tokens_push(&prompt, (int32_t)(next_random(&own) % (uint32_t)scene->oracle->n_vocab));
    reply = expect_same(scene, &prompt, 128, 128);
    tokens_release(&reply);
    tokens_release(&prompt);
}

static void deterministic_replies_are_the_same_bit_for_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) {
        struct scene scene = {"deterministic", &oracles[i], SPLIT,
                              start(&oracles[i], (const char *const[]){"deterministic", "true", NULL})};
        for (uint32_t seed = 901; seed < 907; seed++) expect_same_turns(&scene, seed);
        hearth_close(scene.instance);
    }
}

/* ---- */

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    if (hearth_log_open(NULL, "error", "text", &error) != HEARTH_OK) return -1;
    llm_init();
    folder = mem_format("%s/exactness-XXXXXX", env("HEARTH_BUILD"));
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < N_ARCHS; i++) oracle_open(&oracles[i], &archs[i], folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) oracle_close(&oracles[i]);
    run_command(mem_format("rm -r '%s'", folder));
    free(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(the_same_prompt_again),
        SCENE_TEST(the_next_turns_go_on_from_the_reply),
        SCENE_TEST(a_prompt_that_parts_in_the_middle),
        SCENE_TEST(an_edited_prompt_and_back_again),
        SCENE_TEST(conversations_that_share_a_system_prompt),
        SCENE_TEST(two_at_once),
        SCENE_TEST(more_conversations_than_slots),
        SCENE_TEST(a_chat_never_begins_from_zero),
        cmocka_unit_test(deterministic_replies_are_the_same_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
