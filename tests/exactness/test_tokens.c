/* Prompts of tokens, which share with each other what no two chats would: every architecture, in one pool of cells and
 * with a stream of cells each, in every way in which a prompt can agree with what is resident; and how much must be
 * common before it is reused.
 *
 * Cells that cannot be cut are taken back to a checkpoint, or continued whole. Where that is cheapest, and each has a
 * stream, one conversation continues on the cells of another, which then has lost its end. */
#include "caller.h"

static char *folder;
static struct oracle oracle;

/* ---- Tables ---- */

typedef void play_fn(struct stage *stage);

static play_fn the_same_prompt_again, the_next_turns_go_on_from_the_reply, a_prompt_that_parts_in_the_middle,
    an_edited_prompt_and_back_again, conversations_that_share_a_beginning, two_at_once, more_conversations_than_slots,
    short_prefixes_are_computed, short_system_prompts_are_computed;

static const struct play {
    const char *name;
    play_fn *play;
    const char *min_tokens; /* cache_min_tokens */
} plays[] = {
    {"the same prompt again", the_same_prompt_again, "1"},
    {"the next turns go on from the reply", the_next_turns_go_on_from_the_reply, "1"},
    {"a prompt that parts in the middle", a_prompt_that_parts_in_the_middle, "1"},
    {"an edited prompt and back again", an_edited_prompt_and_back_again, "1"},
    {"conversations that share a beginning", conversations_that_share_a_beginning, "1"},
    {"two at once", two_at_once, "1"},
    {"more conversations than slots", more_conversations_than_slots, "1"},
    {"short prefixes are computed", short_prefixes_are_computed, "100"},
    {"short system prompts are computed", short_system_prompts_are_computed, "100"},
};

enum { N_PLAYS = sizeof plays / sizeof *plays };

/* ---- Asking ---- */

/* All of it: the last token of a reply never was in the cells. */
static int32_t whole(const struct turn *turn)
{
    return (int32_t)turn->prompt.len + REPLY - 1;
}

static void ask(struct stage *stage, const struct turn *turn, const char *what, int32_t least, int32_t most)
{
    struct caller caller;
    caller_submit(&caller, stage->instance, turn, what, USUAL);
    judge(stage, &caller, 1);
    expect_reused(&caller, least, most);
}

/* What can be cut anywhere reuses exactly so many; the rest perhaps. */
static void ask_cutting(struct stage *stage, const struct turn *turn, const char *what, int32_t agree)
{
    ask(stage, turn, what, cuts_anywhere(oracle.arch) ? agree : 0, agree);
}

/* Continues the whole of another request, whose cells nobody else uses. */
static void ask_grown(struct stage *stage, const struct turn *turn, const char *what, const struct turn *from)
{
    bool sure = cuts_anywhere(oracle.arch) || oracle.layout == UNIFIED;
    ask(stage, turn, what, sure ? whole(from) : 0, whole(from));
}

/* The same request with the cache off. */
static void ask_cold(struct stage *stage, const struct turn *turn)
{
    struct caller caller;
    caller_submit(&caller, stage->instance, turn, "cache off", UNCACHED);
    judge(stage, &caller, 1);
    expect_reused(&caller, 0, 0);
}

static void ask_both(struct stage *stage, const struct turn *a, const struct turn *b, int32_t reused[2])
{
    struct caller callers[2];
    caller_submit(&callers[0], stage->instance, a, "one of two", AT_ONCE);
    caller_await_start(&callers[0]);
    caller_submit(&callers[1], stage->instance, b, "the other of two", USUAL);
    judge(stage, callers, 2);
    for (size_t i = 0; i < 2; i++) reused[i] = callers[i].result.cache_n;
}

/* ---- Plays ---- */

static void the_same_prompt_again(struct stage *stage)
{
    struct turn a = turn_after(&oracle, NULL, 0, 190, 100);
    ask_cold(stage, &a);
    ask(stage, &a, "first", 0, 0);
    for (int i = 0; i < 3; i++) ask_cutting(stage, &a, "again", (int32_t)a.prompt.len - 1);
    ask_cold(stage, &a);
    turn_release(&a);
}

static void the_next_turns_go_on_from_the_reply(struct stage *stage)
{
    struct turn turns[4] = {turn_after(&oracle, NULL, 0, 100, 200)};
    ask(stage, &turns[0], "first turn", 0, 0);
    for (uint32_t i = 1; i < 4; i++) {
        turns[i] = turn_grown(&oracle, &turns[i - 1], 200 + 10 * i);
        ask(stage, &turns[i], "next turn", whole(&turns[i - 1]), whole(&turns[i - 1]));
    }
    ask_cold(stage, &turns[3]);
    for (size_t i = 0; i < 4; i++) turn_release(&turns[i]);
}

/* With two streams only the last two prompts are there. */
static void a_prompt_that_parts_in_the_middle(struct stage *stage)
{
    static const int32_t parts[] = {100, 63, 150, 189};
    struct turn a = turn_after(&oracle, NULL, 0, 190, 300), b[4];
    ask(stage, &a, "first", 0, 0);
    for (size_t i = 0; i < 4; i++) {
        b[i] = turn_after(&oracle, &a, parts[i], 40, 310 + 10 * (uint32_t)i);
        bool sure = cuts_anywhere(oracle.arch) && (oracle.layout == UNIFIED || i == 0);
        ask(stage, &b[i], "parts in the middle", sure ? parts[i] : 0, parts[i]);
    }
    for (size_t i = 0; i < 4; i++) turn_release(&b[i]);
    turn_release(&a);
}

static void an_edited_prompt_and_back_again(struct stage *stage)
{
    struct turn a = turn_after(&oracle, NULL, 0, 190, 400);
    struct turn b = turn_after(&oracle, &a, 100, 90, 410);
    ask(stage, &a, "first", 0, 0);
    ask_cutting(stage, &b, "edited", 100);
    ask_cutting(stage, &a, "back", (int32_t)a.prompt.len - 1);
    ask_cutting(stage, &b, "and again", (int32_t)b.prompt.len - 1);
    ask_cold(stage, &a);
    turn_release(&a);
    turn_release(&b);
}

static void conversations_that_share_a_beginning(struct stage *stage)
{
    struct turn a = turn_after(&oracle, NULL, 0, 190, 500);
    struct turn b = turn_after(&oracle, &a, 128, 60, 510);
    ask(stage, &a, "first conversation", 0, 0);
    ask_cutting(stage, &b, "second conversation", 128);
    struct turn a2 = turn_grown(&oracle, &a, 520), b2 = turn_grown(&oracle, &b, 530);
    ask_grown(stage, &a2, "first goes on", &a);
    ask_grown(stage, &b2, "second goes on", &b);
    ask_cold(stage, &b2);
    struct turn *turns[] = {&a, &b, &a2, &b2};
    for (size_t i = 0; i < 4; i++) turn_release(turns[i]);
}

static void two_at_once(struct stage *stage)
{
    int32_t reused[2];
    struct turn a = turn_after(&oracle, NULL, 0, 190, 600);
    struct turn b = turn_after(&oracle, &a, 128, 60, 610);
    ask_both(stage, &a, &b, reused);
    if (cuts_anywhere(oracle.arch)) assert_int_equal(reused[0] + reused[1], 128); /* the request that comes second */
    struct turn a2 = turn_grown(&oracle, &a, 620), b2 = turn_grown(&oracle, &b, 630);
    ask_both(stage, &a2, &b2, reused);
    assert_int_equal(reused[0], whole(&a));
    assert_int_equal(reused[1], whole(&b));
    struct turn *turns[] = {&a, &b, &a2, &b2};
    for (size_t i = 0; i < 4; i++) turn_release(turns[i]);
}

static void more_conversations_than_slots(struct stage *stage)
{
    enum { MANY = 5 };
    struct turn first[MANY], second[MANY];
    struct caller callers[MANY];
    first[0] = turn_after(&oracle, NULL, 0, 164, 700);
    for (uint32_t i = 1; i < MANY; i++) first[i] = turn_after(&oracle, &first[0], 64, 100, 700 + 10 * i);
    for (size_t i = 0; i < MANY; i++) caller_submit(&callers[i], stage->instance, &first[i], "one of five", USUAL);
    judge(stage, callers, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        second[i] = turn_grown(&oracle, &first[i], 760 + 10 * i);
        if (oracle.layout == UNIFIED)
            ask_grown(stage, &second[i], "next turn", &first[i]);
        else
            ask(stage, &second[i], "next turn", 0, whole(&first[i]));
    }
    for (size_t i = 0; i < MANY; i++) {
        turn_release(&first[i]);
        turn_release(&second[i]);
    }
}

static void short_prefixes_are_computed(struct stage *stage)
{
    struct turn a = turn_after(&oracle, NULL, 0, 110, 800);
    struct turn below = turn_after(&oracle, &a, 99, 40, 810), at = turn_after(&oracle, &a, 100, 40, 820);
    struct turn grown = turn_grown(&oracle, &at, 830);
    ask(stage, &a, "first", 0, 0);
    ask(stage, &below, "99 in common", 0, 0);
    ask_cutting(stage, &at, "100 in common", 100);
    ask(stage, &grown, "all in common", whole(&at), whole(&at));
    struct turn *turns[] = {&a, &below, &at, &grown};
    for (size_t i = 0; i < 4; i++) turn_release(turns[i]);
}

/* A system prompt of just the least length is kept, and a shorter one is not. */
static void short_system_prompts_are_computed(struct stage *stage)
{
    struct turn nothing = {0};
    struct turn system = chat_after(&oracle, &nothing, false, (struct saying){"system", 20, 0, 1, 0});
    struct turn chat = chat_after(&oracle, &system, false, (struct saying){"user", 0, 20, 0, 840});
    int32_t length = bound_of(&oracle, &chat, 1);
    for (int32_t least = length; least <= length + 1; least++) {
        char *min_tokens = mem_format("%d", least);
        const char *keys[] = {
            "system_prompt_cache", "true", "incremental_cache", "false", "cache_min_tokens", min_tokens, NULL};
        hearth_close(stage->instance);
        stage->instance = start(&oracle, keys);
        ask(stage, &chat, "first", 0, 0);
        ask(stage, &chat, "again", least == length ? length : 0, least == length ? length : 0);
        free(min_tokens);
    }
    turn_release(&system);
    turn_release(&chat);
}

/* ---- What the comparison sees ---- */

/* One other token shows in the logits, and in the cells from its position on and nowhere before. */
static void one_wrong_token_is_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) {
        oracle_open(&oracle, &archs[i], UNIFIED, folder);
        struct turn right = turn_after(&oracle, NULL, 0, 100, 900), wrong = {0};
        tokens_append(&wrong.prompt, right.prompt.v, right.prompt.len);
        wrong.prompt.v[90] = (wrong.prompt.v[90] + 1) % oracle.n_vocab;
        cold_run(&oracle, &wrong);
        float most = 0;
        for (int32_t k = 0; k < oracle.n_vocab; k++) most = fmaxf(most, fabsf(right.logits[k] - wrong.logits[k]));
        if (!(most > 10 * oracle.arch->bound)) fail_msg("%s: logits differ by %g only", archs[i].name, (double)most);
        int32_t place = image_differs(&right.before, &wrong.before, 0, WINDOW);
        int32_t expected = strcmp(oracle.arch->sections, "R") == 0 ? 99 : 90;
        if (place != expected) fail_msg("%s: cells differ at %d", archs[i].name, place);
        turn_release(&right);
        turn_release(&wrong);
        oracle_close(&oracle);
    }
}

/* ---- All plays ---- */

struct cell {
    char *name;
    const struct arch *arch;
    enum layout layout;
    const struct play *play;
};

static void play_cell(void **state)
{
    static struct stage stage;
    const struct cell *cell = *state;
    if (oracle.arch != cell->arch || oracle.layout != cell->layout) {
        if (oracle.arch != NULL) oracle_close(&oracle);
        oracle_open(&oracle, cell->arch, cell->layout, folder);
    }
    const char *keys[] = {"n_seq_max", "2", "cache_min_tokens", cell->play->min_tokens, NULL};
    stage = (struct stage){.oracle = &oracle, .instance = start(&oracle, keys)};
    cell->play->play(&stage);
    hearth_close(stage.instance);
}

static int set_up(void **state)
{
    (void)state;
    folder = folder_open();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (oracle.arch != NULL) oracle_close(&oracle);
    folder_remove(folder);
    return 0;
}

int main(void)
{
    enum { N = N_ARCHS * 2 * N_PLAYS };
    static struct cell cells[N];
    static struct CMUnitTest tests[N + 1] = {cmocka_unit_test(one_wrong_token_is_seen)};
    for (size_t i = 0; i < N; i++) {
        struct cell *cell = &cells[i];
        *cell = (struct cell){NULL, &archs[i / (2 * N_PLAYS)], (enum layout)(i / N_PLAYS % 2), &plays[i % N_PLAYS]};
        cell->name = mem_format("%s, %s, %s", cell->arch->name, layout_names[cell->layout], cell->play->name);
        tests[i + 1] = (struct CMUnitTest){.name = cell->name, .test_func = play_cell, .initial_state = cell};
    }
    int failed = cmocka_run_group_tests_name("tokens", tests, set_up, tear_down);
    for (size_t i = 0; i < N; i++) free(cells[i].name);
    return failed;
}
