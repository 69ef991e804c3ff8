/* Turns of the sets of adapters: by themselves, against machines of all speeds; then in an engine over the fake model,
 * with a clock that decode calls and switches move: how often it switches, and how long streams wait. */
#include "rig.h"

#include "engine/adapter_turns.h"

#define MS        1000000LL
#define MAX_SETS  4
#define GAP       (225 * MS) /* what an engine aims for with a limit of 250 ms */
#define WARM_UP   40         /* ticks until the costs are known */
#define MAX_TICKS 600

/* ---- A machine without an engine ---- */

struct machine {
    int64_t tick_ns[MAX_SETS], switch_ns; /* of replies alone; of a switch */
    size_t n_sets;

    struct adapter_turns turns;
    int64_t now, gap[MAX_SETS], last[MAX_SETS], spent[MAX_SETS]; /* largest wait; last tick; time of ticks */
    int64_t switching;
    size_t loaded;
    int ticks, in_a_row, least_in_a_row; /* of one set; the least of all turns that have ended */
};

static void open_machine(struct machine *m)
{
    adapter_turns_init(&m->turns, MAX_SETS, 1, GAP);
    for (size_t i = 0; i < m->n_sets; i++)
        assert_int_equal(adapter_turns_join(&m->turns, i == 0 ? NULL : &(double){(double)i}), i);
    m->least_in_a_row = MAX_TICKS;
    m->now = 1;
}

/* One slot a set. */
static struct adapter_turn next_turn(struct machine *m, const struct plan_need *needs)
{
    return adapter_turns_next(&m->turns, needs, m->n_sets, m->now);
}

static void note_wait(struct machine *m, size_t set)
{
    if (m->ticks > WARM_UP && m->now - m->last[set] > m->gap[set]) m->gap[set] = m->now - m->last[set];
    m->last[set] = m->now;
}

static void note_order(struct machine *m, size_t set)
{
    if (set != m->loaded && m->ticks > WARM_UP && m->in_a_row < m->least_in_a_row) m->least_in_a_row = m->in_a_row;
    m->in_a_row = set == m->loaded ? m->in_a_row + 1 : 1;
}

/* A tick that takes `ns` beside a switch. */
static void run_tick(struct machine *m, size_t set, int32_t replies, int32_t prompt_tokens, int64_t ns)
{
    int64_t switching = set == m->loaded ? 0 : m->switch_ns;
    note_order(m, set);
    m->loaded = set;
    m->ticks++;
    m->now += ns + switching;
    if (m->ticks > WARM_UP) m->switching += switching;
    if (m->ticks > WARM_UP) m->spent[set] += ns;
    if (replies > 0) note_wait(m, set);
    adapter_turns_observe(
        &m->turns, &(struct adapter_tick){
                       .reply_tokens = replies, .prompt_tokens = prompt_tokens, .ns = ns + switching, .now = m->now});
}

static int64_t largest_gap(const struct machine *m)
{
    int64_t largest = 0;
    for (size_t i = 0; i < m->n_sets; i++)
        if (m->gap[i] > largest) largest = m->gap[i];
    return largest;
}

static const struct plan_need stream = {.from = 9, .to = 10, .generating = true}, prompt = {.to = 5000}, nothing = {0};

static struct plan_need of_set(struct plan_need need, size_t set)
{
    need.set = set;
    return need;
}

static void turns_are_as_long_as_pays_and_as_the_gap_allows(void **state)
{
    (void)state;
    static const struct {
        size_t n_sets;
        int64_t switch_ns, tick_ns[3];
        int64_t most; /* nanoseconds that a stream waits at most */
        double part;  /* of the time that goes into switching, at most */
        int ticks;    /* in a row, at least */
    } rows[] = {
        {2, 15 * MS, {20 * MS, 20 * MS}, GAP, 0.09, 7},
        {2, 15 * MS, {10 * MS, 40 * MS}, GAP, 0.11, 3},
        {3, 15 * MS, {20 * MS, 20 * MS, 20 * MS}, GAP, 0.18, 2},
        {2, 3 * MS, {17 * MS, 17 * MS}, 145 * MS, 0.03, 6},  /* more would pay no more */
        {2, MS / 10, {20 * MS, 20 * MS}, 45 * MS, 0.01, 1},  /* switching costs nothing to speak of */
        {2, 150 * MS, {20 * MS, 20 * MS}, 340 * MS, 0.9, 1}, /* the gap cannot be kept: in turn */
        {3, 15 * MS, {200 * MS, 20 * MS, 20 * MS}, 285 * MS, 0.2, 1},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct machine m = {.n_sets = rows[row].n_sets, .switch_ns = rows[row].switch_ns};
        struct plan_need needs[MAX_SETS];
        memcpy(m.tick_ns, rows[row].tick_ns, sizeof rows[row].tick_ns);
        open_machine(&m);
        for (size_t i = 0; i < m.n_sets; i++) needs[i] = of_set(stream, i);
        while (m.ticks < MAX_TICKS) {
            size_t set = next_turn(&m, needs).set;
            run_tick(&m, set, 1, 0, m.tick_ns[set]);
        }
        double part = (double)m.switching / (double)(m.switching + m.spent[0] + m.spent[1] + m.spent[2]);
        if (largest_gap(&m) > rows[row].most || part > rows[row].part || m.least_in_a_row < rows[row].ticks)
            fail_msg("row %zu: gap %.1f ms, %.3f of the time for switching, %d ticks in a row", row,
                     (double)largest_gap(&m) / 1e6, part, m.least_in_a_row);
        adapter_turns_release(&m.turns);
    }
}

static void the_loaded_set_begins_and_one_without_others_has_no_limit(void **state)
{
    (void)state;
    struct machine m = {.n_sets = 2};
    open_machine(&m);
    struct plan_need second[] = {nothing, of_set(stream, 1)}, both[] = {of_set(stream, 0), of_set(stream, 1)};
    for (int i = 0; i < 100; i++) {
        struct adapter_turn turn = next_turn(&m, second);
        assert_int_equal(turn.set, 1);
        assert_true(turn.ns == GAP && !turn.replies_only);
        run_tick(&m, 1, 1, 0, 20 * MS);
    }
    assert_int_equal(next_turn(&m, both).set, 1);
    adapter_turns_release(&m.turns);
}

/* Two sets have prompts, and either has a stream or not. */
static void prompts_of_two_sets_get_the_same_time_and_streams_are_not_kept_waiting(void **state)
{
    (void)state;
    for (int streams = 0; streams < 4; streams++) {
        struct machine m = {.n_sets = 2, .switch_ns = 15 * MS};
        open_machine(&m);
        while (m.ticks < MAX_TICKS) {
            struct plan_need needs[4];
            for (size_t i = 0; i < 4; i++)
                needs[i] = of_set(i < 2 ? prompt : (streams >> (i - 2) & 1) ? stream : nothing, i % 2);
            struct adapter_turn turn = adapter_turns_next(&m.turns, needs, 4, m.now);
            int32_t replies = streams >> turn.set & 1;
            double ns = turn.replies_only ? 20 * MS : turn.ns;
            run_tick(&m, turn.set, replies, turn.replies_only ? 0 : 64, ns > 20 * MS ? (int64_t)ns : 20 * MS);
        }
        if (largest_gap(&m) > 250 * MS) fail_msg("streams %d: gap %.1f ms", streams, (double)largest_gap(&m) / 1e6);
        double ratio = (double)m.spent[0] / (double)m.spent[1];
        if (ratio < 0.85 || ratio > 1.2) fail_msg("streams %d: %.2f times the time", streams, ratio);
        adapter_turns_release(&m.turns);
    }
}

/* As without adapters: what the gap leaves is the prompt's. */
static void a_stream_beside_the_prompt_of_another_set_gets_a_token_a_turn(void **state)
{
    (void)state;
    struct machine m = {.n_sets = 2, .switch_ns = 15 * MS};
    struct plan_need needs[] = {of_set(stream, 0), of_set(prompt, 1)};
    open_machine(&m);
    while (m.ticks < MAX_TICKS) {
        struct adapter_turn turn = next_turn(&m, needs);
        assert_false(turn.replies_only);
        run_tick(&m, turn.set, turn.set == 0, turn.set == 0 ? 0 : 64, turn.set == 0 ? 20 * MS : (int64_t)turn.ns);
    }
    assert_in_range(largest_gap(&m), 200 * MS, GAP);
    assert_true((double)m.spent[1] > 0.7 * (double)(m.spent[0] + m.spent[1] + m.switching));
    adapter_turns_release(&m.turns);
}

/* Work comes and goes at random. */
static void no_set_waits_longer_than_for_a_turn_of_each_other_one(void **state)
{
    (void)state;
    srand(5);
    struct machine m = {.n_sets = MAX_SETS, .switch_ns = 15 * MS};
    struct plan_need needs[MAX_SETS] = {{0}};
    int64_t waits[MAX_SETS] = {0};
    open_machine(&m);
    for (int i = 0; i < 50000; i++) {
        for (size_t set = 0; set < MAX_SETS; set++) {
            if (rand() % 8 > 0) continue;
            int kind = rand() % 3;
            needs[set] = of_set(kind == 0 ? nothing : kind == 1 ? prompt : stream, set);
        }
        for (size_t set = 0; set < MAX_SETS; set++)
            if (needs[set].to == 0 || waits[set] == 0) waits[set] = needs[set].to == 0 ? 0 : m.now;
        struct adapter_turn turn = next_turn(&m, needs);
        const struct plan_need *need = &needs[turn.set];
        bool any = needs[0].to + needs[1].to + needs[2].to + needs[3].to > 0;
        if (!any) {
            m.now += MS;
            continue;
        }
        assert_true(need->to > 0);
        assert_true(m.now - waits[turn.set] <= (MAX_SETS - 1) * (GAP + 250 * MS + m.switch_ns));
        run_tick(&m, turn.set, need->generating, need->generating ? 0 : 64, rand() % 250 * MS);
        waits[turn.set] = m.now;
    }
    adapter_turns_release(&m.turns);
}

static void one_slow_switch_does_not_change_the_turns(void **state)
{
    (void)state;
    struct machine m = {.n_sets = 2, .switch_ns = 3 * MS};
    struct plan_need needs[] = {of_set(stream, 0), of_set(stream, 1)};
    open_machine(&m);
    for (bool was_slow = false; m.ticks < MAX_TICKS;) {
        size_t set = next_turn(&m, needs).set;
        bool slow = !was_slow && m.ticks > MAX_TICKS / 2 && set != m.loaded;
        was_slow = was_slow || slow;
        m.switch_ns = slow ? 100 * MS : 3 * MS;
        run_tick(&m, set, 1, 0, 20 * MS);
        assert_true(m.ticks < WARM_UP || m.turns.switch_ns < 4 * (double)MS);
    }
    adapter_turns_release(&m.turns);
}

static void sets_are_known_by_their_scales_as_long_as_slots_have_them(void **state)
{
    (void)state;
    struct adapter_turns turns;
    const double a[] = {1, 0}, also_a[] = {1, 0}, b[] = {0, 1}, c[] = {0, 2};
    adapter_turns_init(&turns, 2, 2, GAP);
    size_t none = adapter_turns_join(&turns, NULL), first = adapter_turns_join(&turns, a);
    assert_int_equal(adapter_turns_join(&turns, also_a), first);
    assert_int_not_equal(none, first);
    adapter_turns_leave(&turns, first);
    assert_int_equal(adapter_turns_join(&turns, a), first);
    adapter_turns_leave(&turns, none);
    for (int i = 0; i < 20; i++) { /* more sets than there is room for, one after the other */
        size_t set = adapter_turns_join(&turns, &(double[]){2.0 + i, 0}[0]);
        assert_int_not_equal(set, first);
        adapter_turns_leave(&turns, set);
    }
    struct plan_need need = {.from = 9, .to = 10, .generating = true, .set = first};
    assert_int_equal(adapter_turns_next(&turns, &need, 1, 1).set, first);
    adapter_turns_leave(&turns, first);
    adapter_turns_leave(&turns, first);
    for (int i = 0; i < 2; i++) /* no slot has it, but it is loaded */
        assert_int_not_equal(adapter_turns_join(&turns, i == 0 ? b : c), first);
    assert_int_equal(adapter_turns_join(&turns, a), first);
    adapter_turns_release(&turns);
}

/* ---- In an engine ---- */

static const double sets[3][CLIENT_ADAPTERS] = {{1, 0}, {0, 1}, {0.5, 1}};

struct talker {
    struct client client; /* first */
    struct rig *rig;
    int64_t last, gap; /* when its last token came; the longest wait between two */
    double tick_ns;    /* the largest estimate of what a tick of replies takes, once all talk */
};

static void note_token(struct client *client)
{
    struct talker *t = (struct talker *)client;
    int64_t now = clock_now(&t->rig->clock.clock);
    if (t->last > 0 && now - t->last > t->gap) t->gap = now - t->last;
    t->last = now;
    double tick_ns = t->rig->engine->tick_budget.call_ns;
    if (client->got.len > 50 && tick_ns > t->tick_ns) t->tick_ns = tick_ns;
}

static void prepare(struct rig *rig, struct talker *t, int set, size_t n_prompt, int32_t max_tokens)
{
    static int32_t first;
    client_init(&t->client, first += 7, n_prompt, max_tokens);
    t->rig = rig;
    t->last = t->gap = 0;
    t->tick_ns = 0;
    t->client.on_text = note_token;
    t->client.job.scales = sets[set];
    t->client.job.scope = (uint64_t)set + 1;
}

static void talk(struct rig *rig, struct talker *t, int set, size_t n_prompt, int32_t max_tokens)
{
    prepare(rig, t, set, n_prompt, max_tokens);
    engine_submit(rig->engine, &t->client.job);
}

/* The largest gap of all. */
static int64_t end_talks(struct talker *talkers, size_t n)
{
    int64_t gap = 0;
    for (size_t i = 0; i < n; i++) {
        client_await_end(&talkers[i].client);
        assert_false(talkers[i].client.failed);
        assert_int_equal(talkers[i].client.got.len, talkers[i].client.job.max_tokens);
        assert_true(client_got_right_reply(&talkers[i].client));
        if (talkers[i].gap > gap) gap = talkers[i].gap;
        client_release(&talkers[i].client);
    }
    return gap;
}

struct expected {
    int n_sets;
    bool deterministic;
    int64_t gap;     /* the largest, in nanoseconds */
    double switches; /* a tick */
};

static void talk_under_several_sets(struct rig *rig, struct expected most)
{
    struct talker talkers[6];
    size_t n = 2 * (size_t)most.n_sets;
    fake_llm.call_ns = 18 * MS;
    fake_llm.token_ns = MS;
    fake_llm.switch_ns = 15 * MS;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 6, .seqs = 16, .window = 1000, .deterministic = most.deterministic});
    for (size_t i = 0; i < n; i++) talk(rig, &talkers[i], (int)i % most.n_sets, 40, 200);
    fake_llm_step(1000000);
    int64_t gap = end_talks(talkers, n);
    assert_all_idle(rig);
    int64_t tick_ns = (most.deterministic ? 2 : 1) * fake_llm.call_ns + 2 * fake_llm.token_ns; /* without the switch */
    assert_in_range(talkers[0].tick_ns, tick_ns - MS, tick_ns + MS);
    double a_tick = (double)fake_llm.switches / (double)metric_get(&engine_stats(rig->engine)->ticks);
    if (gap > most.gap || a_tick > most.switches)
        fail_msg("%d sets: gap %.1f ms, %.2f switches a tick", most.n_sets, (double)gap / 1e6, a_tick);
}

static void two_sets_switch_once_in_several_ticks(void **state)
{
    talk_under_several_sets(*state, (struct expected){.n_sets = 2, .gap = 250 * MS, .switches = 0.15});
}

static void three_sets_switch_once_in_several_ticks(void **state)
{
    talk_under_several_sets(*state, (struct expected){.n_sets = 3, .gap = 250 * MS, .switches = 0.3});
}

/* There a chunk of a prompt takes what it takes. */
static void sets_take_turns_in_deterministic_mode_too(void **state)
{
    talk_under_several_sets(*state,
                            (struct expected){.n_sets = 2, .deterministic = true, .gap = 300 * MS, .switches = 0.3});
}

/* Another request comes when one of set 0 has its tenth token. */
struct latecomer {
    struct talker talker; /* first */
    int64_t asked;
    int set;
    size_t n_prompt;
    int32_t max_tokens;
};
static struct latecomer late;

static void note_token_and_ask(struct client *client)
{
    struct talker *t = (struct talker *)client;
    note_token(client);
    if (client->got.len != 10) return;
    late.asked = t->last;
    talk(t->rig, &late.talker, late.set, late.n_prompt, late.max_tokens);
}

static void a_set_that_always_has_work_does_not_starve_another(void **state)
{
    struct rig *rig = *state;
    struct talker crowd[4];
    fake_llm.call_ns = 20 * MS;
    fake_llm.switch_ns = 15 * MS;
    fake_llm.held = true;
    late = (struct latecomer){.set = 1, .n_prompt = 300, .max_tokens = 20};
    open_engine(rig, (struct shape){.slots = 6, .seqs = 16, .window = 4000});
    for (int i = 0; i < 4; i++) talk(rig, &crowd[i], 0, 300, 600);
    crowd[0].client.on_text = note_token_and_ask;
    fake_llm_step(1000000);
    assert_in_range(end_talks(crowd, 4), 20 * MS, 250 * MS);
    int64_t took = late.talker.last - late.asked;
    assert_true(end_talks(&late.talker, 1) <= 250 * MS);
    assert_true(took < 1500 * MS); /* 20 ticks are 400 ms, and the other set has more than half of the time */
}

static void a_prompt_does_not_wait_for_the_end_of_another_sets_prompt(void **state)
{
    struct rig *rig = *state;
    struct talker streams, prompts[2];
    fake_llm.call_ns = 5 * MS;
    fake_llm.token_ns = MS;
    fake_llm.switch_ns = 15 * MS;
    fake_llm.held = true;
    late = (struct latecomer){.set = 1, .n_prompt = 150, .max_tokens = 1};
    open_engine(rig, (struct shape){.slots = 4, .seqs = 16, .window = 8000});
    talk(rig, &streams, 0, 10, 60);
    streams.client.on_text = note_token_and_ask;
    talk(rig, &prompts[0], 2, 4000, 1);
    talk(rig, &prompts[1], 1, 4000, 1);
    fake_llm_step(1000000);
    assert_in_range(end_talks(&streams, 1), 100 * MS, 250 * MS);
    client_await_end(&late.talker.client);
    assert_true(late.talker.last - late.asked < 1500 * MS);
    end_talks(&late.talker, 1);
    for (int i = 0; i < 2; i++) client_await_end(&prompts[i].client);
    int64_t apart = prompts[0].last - prompts[1].last;
    assert_true(apart > -700 * MS && apart < 700 * MS);
    end_talks(prompts, 2);
}

static void a_failed_call_of_one_set_is_no_concern_of_another(void **state)
{
    struct rig *rig = *state;
    struct talker good[4], bad;
    fake_llm.cuts = false; /* so that the failed call costs its slots their cells */
    fake_llm.torn_tokens = 1;
    fake_llm.poison = 195;
    fake_llm.call_ns = 20 * MS;
    fake_llm.switch_ns = 15 * MS;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 6, .seqs = 16, .window = 1000});
    for (int i = 0; i < 4; i++) talk(rig, &good[i], i % 2, 40, 60);
    prepare(rig, &bad, 1, 40, 60);
    tokens_push(&bad.client.job.prompt, fake_llm.poison);
    engine_submit(rig->engine, &bad.client.job);
    fake_llm_step(1000000);
    client_await_end(&bad.client);
    assert_true(bad.client.failed);
    client_release(&bad.client);
    end_talks(good, 4);
    assert_all_idle(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_are_as_long_as_pays_and_as_the_gap_allows),
        cmocka_unit_test(the_loaded_set_begins_and_one_without_others_has_no_limit),
        cmocka_unit_test(prompts_of_two_sets_get_the_same_time_and_streams_are_not_kept_waiting),
        cmocka_unit_test(a_stream_beside_the_prompt_of_another_set_gets_a_token_a_turn),
        cmocka_unit_test(no_set_waits_longer_than_for_a_turn_of_each_other_one),
        cmocka_unit_test(one_slow_switch_does_not_change_the_turns),
        cmocka_unit_test(sets_are_known_by_their_scales_as_long_as_slots_have_them),
        engine_test(two_sets_switch_once_in_several_ticks),
        engine_test(three_sets_switch_once_in_several_ticks),
        engine_test(sets_take_turns_in_deterministic_mode_too),
        engine_test(a_set_that_always_has_work_does_not_starve_another),
        engine_test(a_prompt_does_not_wait_for_the_end_of_another_sets_prompt),
        engine_test(a_failed_call_of_one_set_is_no_concern_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
