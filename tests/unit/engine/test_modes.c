/* What each caching mode computes and keeps: nothing (none), snapshots of system prompts (SPC), whole conversations
 * (IMC); and what GET /slots shows of it. Token counts are exact. */
#include "chats.h"

#include "engine/core.h"

#define SPC(...)  ((struct shape){.caching = ENGINE_CACHES_SYSTEM, __VA_ARGS__})
#define NONE(...) ((struct shape){.no_caching = true, __VA_ARGS__})
#define IMC(...)  ((struct shape){__VA_ARGS__})

static int64_t computed(struct rig *rig)
{
    return metric_get(&engine_stats(rig->engine)->prompt_tokens);
}

/* Cells that stay resident when the engine is idle. */
static int32_t resident(const struct engine *engine)
{
    int32_t n = 0;
    for (size_t i = 0; i < engine->n_seqs; i++) n += engine->seqs[i].n_cells;
    return n;
}

static int32_t length_of(const struct chat *chat)
{
    int32_t n = 1; /* the generation prompt */
    for (size_t i = 0; i < chat->n; i++) n += (int32_t)chat->m[i].words.len + 2;
    return n;
}

static struct chat system_and_user(int32_t system, int32_t n_system, int32_t user)
{
    struct chat chat = {0};
    say(&chat, SYSTEM, system, n_system);
    say(&chat, USER, user, 30);
    return chat;
}

static hearth_result ask_once(struct rig *rig, int32_t system, int32_t n_system, int32_t user)
{
    struct chat chat = system_and_user(system, n_system, user);
    hearth_result result = turn(rig, &chat, 4);
    chat_release(&chat);
    return result;
}

/* ---- The three modes ---- */

/* Three turns of one conversation: tokens that need not be computed again. */
static void assert_reused(struct rig *rig, struct shape shape, const bool *whole, int32_t system)
{
    open_engine(rig, shape);
    struct chat chat = system_and_user(1, 120, 2);
    int32_t before = 0;
    for (int32_t i = 0; i < 3; i++) {
        int32_t prompt = length_of(&chat);
        int64_t so_far = computed(rig);
        hearth_result result = turn(rig, &chat, 8);
        /* All that was there but the last token of the reply, which was sampled and never computed. */
        int32_t expected = i == 0 ? 0 : *whole ? before + 8 - 1 : system;
        assert_int_equal(result.cache_n, expected);
        assert_int_equal(result.prompt_n, prompt - expected);
        assert_int_equal(computed(rig) - so_far, prompt - expected);
        before = prompt;
        say(&chat, USER, 10 + i, 25);
    }
    chat_release(&chat);
    engine_close(rig->engine);
}

static void what_is_computed_of_a_growing_conversation_depends_on_the_mode(void **state)
{
    struct rig *rig = *state;
    bool whole = true, part = false;
    for (int32_t seqs = 0; seqs <= 8; seqs += 8) {
        struct shape shape = {.slots = 2, .seqs = seqs, .window = 1000, .cache_min_tokens = 100};
        assert_reused(rig, shape, &whole, 0);
        shape.caching = ENGINE_CACHES_SYSTEM;
        assert_reused(rig, shape, &part, 122);
        shape.caching = ENGINE_CACHES_NOTHING;
        shape.no_caching = true;
        assert_reused(rig, shape, &part, 0);
    }
    rig->engine = NULL;
}

/* Of a prompt of n tokens, 122 of which are a system prompt, as the first of two such requests says it. */
static void assert_kept(struct rig *rig, struct shape shape, bool cached, int32_t kept)
{
    open_engine(rig, shape);
    struct chat chat = system_and_user(1, 120, 2);
    for (int i = 0; i < 2; i++) {
        struct asker asker;
        asker_init(&asker, &chat, 2);
        struct client *client = &asker.client;
        client->job.cache_prompt = cached;
        run_alone(rig, client);
        assert_int_equal(client->start.kept_n, kept);
        assert_int_equal(client->result.kept_n, kept);
        assert_int_equal(client->result.cache_n, i == 0 ? 0 : kept);
        client_release(client);
    }
    chat_release(&chat);
    engine_close(rig->engine);
}

static void a_repeated_prompt_reuses_what_the_first_one_said_is_kept(void **state)
{
    struct rig *rig = *state;
    int32_t all = 122 + 32 + 1 - 1;
    for (int32_t seqs = 0; seqs <= 8; seqs += 8) {
        assert_kept(rig, IMC(.slots = 2, .seqs = seqs, .window = 1000), true, all);
        assert_kept(rig, IMC(.slots = 2, .seqs = seqs, .window = 1000), false, 0);
        assert_kept(rig, IMC(.slots = 2, .seqs = seqs, .window = 1000, .cache_min_tokens = all + 1), true, 0);
        assert_kept(rig, IMC(.slots = 2, .seqs = seqs, .window = 1000, .deterministic = true), true, 128);
        assert_kept(rig, SPC(.slots = 2, .seqs = seqs, .window = 1000), true, 122);
        assert_kept(rig, NONE(.slots = 2, .seqs = seqs, .window = 1000), true, 0);
    }
    rig->engine = NULL;
}

static void only_conversations_stay_in_the_cells(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[] = {IMC(.slots = 2, .seqs = 8, .window = 1000),
                                   SPC(.slots = 2, .seqs = 8, .window = 1000), SPC(.slots = 2, .window = 1000),
                                   NONE(.slots = 2, .seqs = 8, .window = 1000), NONE(.slots = 2, .window = 1000)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        open_engine(rig, shapes[i]);
        forget_log();
        ask_once(rig, 1, 120, 2);
        assert_int_equal(resident(rig->engine), i == 0 ? 122 + 32 + 1 + 3 : 0);
        assert_int_equal(times_said(" finish-slot: seq-cleared slot="), i > 0);
        assert_true(fake_llm_cells_add_up(rig->engine->context));
        engine_close(rig->engine);
    }
    rig->engine = NULL;
}

/* ---- Slots and sequences ---- */

enum { SLOTS = 4, REPLY = 40 };

struct watch {
    const struct rig *rig;
    const struct client *clients;
    hearth_slot slots[SLOTS]; /* as they were when all of them generated */
    int seen, wrong;          /* how often they did; slots that showed another sequence than their batch tokens had */
};

/* The batch token of the last decode call that this client was given last. */
static bool is_row_of(const struct llm_batch_token *row, const struct client *client)
{
    size_t said = (size_t)row->pos - client->job.prompt.len;
    return said < client->got.len && client->got.v[said] == row->token;
}

/* On the engine's thread, before each call: the status shows how things were after the call before. */
static void compare_slots_and_rows(void *ud)
{
    struct watch *w = ud;
    hearth_slot slots[SLOTS];
    int right = 0;
    engine_slots(w->rig->engine, slots, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        if (fake_llm.last_n != SLOTS || slots[i].state != HEARTH_SLOT_GENERATE) return;
    for (int i = 0; i < SLOTS; i++)
        for (int k = 0; k < SLOTS; k++)
            for (int c = 0; c < SLOTS; c++)
                right += strcmp(slots[i].request_id, w->clients[c].job.id) == 0 &&
                         fake_llm.last_batch[k].seq == slots[i].seq_id &&
                         is_row_of(&fake_llm.last_batch[k], &w->clients[c]);
    w->wrong += SLOTS - right;
    w->seen++;
    memcpy(w->slots, slots, sizeof slots);
}

/* As many requests at once as there are slots. */
static void fill_slots(struct rig *rig, int32_t first, struct watch *w)
{
    struct client clients[SLOTS];
    hearth_slot slots[SLOTS];
    *w = (struct watch){.rig = rig, .clients = clients};
    for (int i = 0; i < SLOTS; i++) client_init(&clients[i], first + 20 * i, 30, REPLY);
    fake_llm.on_call = compare_slots_and_rows;
    fake_llm.ud = w;
    fake_llm.held = true;
    for (int i = 0; i < SLOTS; i++) engine_submit(rig->engine, &clients[i].job);
    fake_llm_step(1000000);
    for (int i = 0; i < SLOTS; i++) client_await_end(&clients[i]);
    await_idle(rig, slots, SLOTS);
    fake_llm_step(-1000000); /* the next ones wait for each other, too */
    fake_llm.on_call = NULL;
    for (int i = 0; i < SLOTS; i++) assert_true(client_got_right_reply(&clients[i]));
    for (int i = 0; i < SLOTS; i++) client_release(&clients[i]);
    assert_true(w->seen > REPLY / 2);
    assert_int_equal(w->wrong, 0);
}

/* The layout is the same in every mode: one context, slot 0 on sequence 0 and so on, none reserved. Where conversations
 * stay in one pool of cells, further ones begin on other sequences. */
static void a_slot_stands_on_the_sequence_that_it_shows(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[] = {
        IMC(.slots = SLOTS, .seqs = 16, .window = 500),  IMC(.slots = SLOTS, .window = 500),
        SPC(.slots = SLOTS, .seqs = 16, .window = 500),  SPC(.slots = SLOTS, .window = 500),
        NONE(.slots = SLOTS, .seqs = 16, .window = 500), NONE(.slots = SLOTS, .window = 500)};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        struct watch w;
        hearth_slot slots[SLOTS];
        fake_llm_reset(&rig->clock);
        open_engine(rig, shapes[k]);
        assert_int_equal(fake_llm.contexts, 1);
        engine_slots(rig->engine, slots, SLOTS);
        for (int i = 0; i < SLOTS; i++) assert_int_equal(slots[i].seq_id, -1);
        fill_slots(rig, 0, &w);
        for (int i = 0; i < SLOTS; i++) assert_int_equal(w.slots[i].seq_id, i);
        fill_slots(rig, 90, &w);
        for (int i = 0; i < SLOTS; i++) assert_in_range(w.slots[i].seq_id, k == 0 ? SLOTS : 0, k == 0 ? 15 : SLOTS - 1);
        engine_close(rig->engine);
    }
    rig->engine = NULL;
}

/* ---- System prompts ---- */

static void alternating_system_prompts_are_computed_once_each(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, SPC(.slots = 2, .seqs = 8, .window = 1000, .cache_min_tokens = 100));
    for (int32_t i = 0; i < 12; i++) {
        hearth_result result = ask_once(rig, i % 3, 150, 20 + i);
        assert_int_equal(result.cache_n, i < 3 ? 0 : 152);
    }
    assert_int_equal(computed(rig), 3 * 152 + 12 * 33);
    assert_int_equal(fake_llm.saves, 3);
    assert_int_equal(fake_llm.loads, 9);
}

static void the_least_recently_used_is_evicted_for_another_system_prompt(void **state)
{
    struct rig *rig = *state;
    uint64_t two = 2 * (152 * sizeof(int32_t) + 16) + 100;
    static const struct {
        int32_t system;
        bool kept;
    } asked[] = {{0, false}, {1, false}, {0, true}, {2, false}, {0, true}, {2, true}, {1, false}, {0, false}};
    open_engine(rig, SPC(.slots = 1, .seqs = 4, .window = 1000, .cache_min_tokens = 100, .snapshot_budget = two));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        assert_int_equal(ask_once(rig, asked[i].system, 150, 20 + (int32_t)i).cache_n, asked[i].kept ? 152 : 0);
}

static void a_changed_system_prompt_is_computed_anew(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, SPC(.slots = 1, .seqs = 4, .window = 1000, .cache_min_tokens = 100));
    struct chat first = system_and_user(1, 150, 2), changed = chat_copy(&first, 2), role = chat_copy(&first, 2);
    changed.m[0].words.v[50] = 189;
    role.m[0].role = ASSISTANT + 2; /* "developer" */
    struct asker asker;
    turn(rig, &first, 4);
    assert_int_equal(turn(rig, &changed, 4).cache_n, 0);
    asker_init(&asker, &role, 4);
    asker.client.job.conversation.system_end = 152;
    run_alone(rig, &asker.client);
    assert_int_equal(asker.client.result.cache_n, 0);
    assert_true(client_got_right_reply(&asker.client));
    assert_int_equal(fake_llm.loads, 0);
    assert_int_equal(fake_llm.saves, 3);
    asker_release(&asker);
    chat_release(&first);
    chat_release(&changed);
    chat_release(&role);
}

/* Two that run at once: neither has a slot of its own for the system prompt. */
static void a_system_prompt_is_restored_into_any_slot(void **state)
{
    struct rig *rig = *state;
    struct asker asker[2];
    struct chat chat[2] = {system_and_user(1, 300, 2), system_and_user(1, 300, 3)};
    open_engine(rig, SPC(.slots = 2, .window = 1000));
    ask_once(rig, 1, 300, 9);
    fake_llm.held = true;
    for (int i = 0; i < 2; i++) {
        asker_init(&asker[i], &chat[i], 4);
        engine_submit(rig->engine, &asker[i].client.job);
    }
    fake_llm_step(1000000);
    for (int i = 0; i < 2; i++) {
        client_await_end(&asker[i].client);
        assert_int_equal(asker[i].client.result.cache_n, 302);
        assert_true(client_got_right_reply(&asker[i].client));
    }
    assert_int_not_equal(asker[0].client.result.slot, asker[1].client.result.slot);
    assert_int_equal(fake_llm.loads, 2);
    assert_said(" spc: cache hit tokens=302");
    assert_said(" start-slot: spc-restore dst_seq=0 cached_tokens=302");
    assert_said(" start-slot: spc-restore dst_seq=1 cached_tokens=302");
    for (int i = 0; i < 2; i++) {
        asker_release(&asker[i]);
        chat_release(&chat[i]);
    }
}

static void a_system_prompt_is_shared_with_a_busy_neighbour(void **state)
{
    struct rig *rig = *state;
    struct asker busy, other;
    struct chat a = system_and_user(1, 300, 2), b = chat_copy(&a, 1);
    say(&b, USER, 2, 40); /* begins as the other does: but only system prompts are shared */
    fake_llm.held = true;
    open_engine(rig, SPC(.slots = 2, .seqs = 8, .window = 1000));
    asker_init(&busy, &a, 200);
    asker_init(&other, &b, 4);
    engine_submit(rig->engine, &busy.client.job);
    fake_llm_step(8);
    client_await_tokens(&busy.client, 2);
    engine_submit(rig->engine, &other.client.job);
    fake_llm_step(1000000);
    client_await_end(&other.client);
    client_await_end(&busy.client);
    assert_int_equal(other.client.result.cache_n, 302);
    assert_int_equal(fake_llm.shares, 1);
    assert_int_equal(fake_llm.loads, 0);
    assert_true(client_got_right_reply(&busy.client));
    assert_true(client_got_right_reply(&other.client));
    assert_all_idle(rig);
    assert_int_equal(resident(rig->engine), 0);
    asker_release(&busy);
    asker_release(&other);
    chat_release(&a);
    chat_release(&b);
}

/* A snapshot that cannot be loaded is computed; the client does not notice, and the next request finds a good copy. */
static void a_snapshot_that_cannot_be_restored_is_computed_again(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, SPC(.slots = 1, .seqs = 4, .window = 1000));
    ask_once(rig, 1, 150, 2);
    fake_llm.load_fails = true;
    hearth_result result = ask_once(rig, 1, 150, 3);
    assert_int_equal(result.cache_n, 0);
    assert_int_equal(result.prompt_n, 152 + 33);
    assert_said(" warn  start-slot: restore-spc: StateSeqSetData failed dst_seq=0 ");
    assert_int_equal(fake_llm.saves, 2);
    fake_llm.load_fails = false;
    assert_int_equal(ask_once(rig, 1, 150, 4).cache_n, 152);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->requests_failed), 0);
}

static void the_time_of_a_restore_is_reported(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, SPC(.slots = 1, .seqs = 4, .window = 1000));
    assert_true(ask_once(rig, 1, 150, 2).restore_ms == 0);
    fake_llm.load_ns = 7000000;
    hearth_result result = ask_once(rig, 1, 150, 3);
    assert_int_equal(result.cache_n, 152);
    assert_true(result.restore_ms == 7.0);
    assert_said(" cached_tokens=152 took_ms=7.000\n");
}

static void without_room_for_snapshots_every_prompt_is_computed(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, SPC(.slots = 1, .seqs = 4, .window = 1000, .snapshot_budget = 1));
    for (int32_t i = 0; i < 3; i++) assert_int_equal(ask_once(rig, 1, 150, i + 2).cache_n, 0);
    assert_said(" warn  spc: failed to extract KV state seq=0 tokens=152");
}

/* There is room for the snapshot, and it cannot be had: nothing is kept that later requests would try to load. */
static void a_system_prompt_that_cannot_be_copied_out_is_computed_each_time(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, SPC(.slots = 1, .seqs = 4, .window = 1000));
    fake_llm.save_fails = true;
    for (int32_t i = 0; i < 3; i++) assert_int_equal(ask_once(rig, 1, 150, i + 2).cache_n, 0);
    assert_int_equal(times_said(" warn  spc: failed to extract KV state seq=0 tokens=152\n"), 3);
    assert_int_equal(times_said(" spc: tokens saved"), 0);
    assert_int_equal(times_said(" start-slot: spc-restore"), 0);
    assert_int_equal(snapshots_usage(rig->engine->snapshots).n, 0);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->snapshots_saved), 0);
    fake_llm.save_fails = false;
    ask_once(rig, 1, 150, 7);
    assert_int_equal(ask_once(rig, 1, 150, 8).cache_n, 152);
}

static void of_a_short_system_prompt_nothing_is_kept(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, SPC(.slots = 1, .seqs = 4, .window = 1000, .cache_min_tokens = 100));
    ask_once(rig, 1, 97, 2); /* 99 tokens with those of its role and its end */
    assert_int_equal(ask_once(rig, 1, 97, 3).cache_n, 0);
    assert_said(" spc: cache skip (too short) tokens=99 min=100");
    assert_int_equal(fake_llm.saves, 0);
    ask_once(rig, 2, 98, 2);
    assert_int_equal(ask_once(rig, 2, 98, 3).cache_n, 100);
}

static void the_log_says_what_became_of_a_system_prompt(void **state)
{
    struct rig *rig = *state;
    struct tokens system = {0};
    struct chat chat = system_and_user(1, 150, 2);
    struct asker asker;
    char line[160];
    open_engine(rig, SPC(.slots = 1, .seqs = 4, .window = 1000));
    asker_init(&asker, &chat, 1);
    tokens_append(&system, asker.client.job.prompt.v, 152);
    int32_t bytes = 152 * (int32_t)sizeof(int32_t) + 16; /* the tokens, and the fake's header */
    snprintf(line, sizeof line, " spc: tokens saved (externalized) tokens=152 hash=%016llx kv_bytes=%d\n",
             (unsigned long long)tokens_short_hash(&system), bytes);
    asker_release(&asker);
    turn(rig, &chat, 4);
    assert_said(line);
    assert_int_equal(snapshots_usage(rig->engine->snapshots).bytes,
                     bytes); /* outside of the cells, where nothing stays */
    assert_int_equal(resident(rig->engine), 0);
    assert_int_equal(times_said(" spc: cache hit"), 0);
    ask_once(rig, 1, 150, 3);
    assert_int_equal(times_said(" spc: cache hit tokens=152"), 1);
    assert_int_equal(times_said(" spc: tokens saved"), 1);
    assert_int_equal(times_said(" imc"), 0);
    tokens_release(&system);
    chat_release(&chat);
}

/* ---- Conversations ---- */

static void prefixes_shorter_than_the_minimum_are_not_reused(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[] = {IMC(.slots = 1, .seqs = 4, .window = 1000, .cache_min_tokens = 100),
                                   IMC(.slots = 1, .window = 1000, .cache_min_tokens = 100)};
    for (int i = 0; i < 2; i++) {
        open_engine(rig, shapes[i]);
        assert_int_equal(ask_once(rig, 1, 96, 2).too_short_n, 0);
        hearth_result result = ask_once(rig, 1, 96, 3);
        assert_int_equal(result.cache_n, 0); /* 98, and the token that begins a user's message */
        assert_int_equal(result.too_short_n, 99);
        ask_once(rig, 2, 97, 2);
        result = ask_once(rig, 2, 97, 3);
        assert_int_equal(result.cache_n, 100);
        assert_int_equal(result.too_short_n, 0);
        engine_close(rig->engine);
    }
    rig->engine = NULL;
}

/* 2, 4 and 6 messages: 1, 3 and 5 of them are what the slot shows. */
static void a_slot_shows_the_messages_that_it_holds(void **state)
{
    struct rig *rig = *state;
    hearth_slot slots[2];
    struct chat chat = system_and_user(1, 120, 2);
    open_engine(rig, IMC(.slots = 2, .seqs = 8, .window = 2000));
    for (int32_t messages = 2; messages <= 6; messages += 2) {
        char hash[17];
        struct asker asker;
        asker_init(&asker, &chat, 1);
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)asker.hashes[messages - 1]);
        int32_t stable = asker.client.job.conversation.stable_end;
        asker_release(&asker);
        hearth_result result = turn(rig, &chat, 6);
        if (messages > 2) assert_true(result.cache_n >= stable - 1 - 6);
        await_idle(rig, slots, 2);
        const hearth_slot *slot = &slots[result.slot];
        assert_int_equal(slot->cached_messages, messages - 1);
        assert_string_equal(slot->hash, hash);
        assert_int_equal(slot->cached_tokens, result.cache_n + result.prompt_n + 6 - 1);
        assert_int_equal(slots[1 - result.slot].cached_messages, 0);
        assert_string_equal(slots[1 - result.slot].hash, "");
        say(&chat, USER, 40 + messages, 20);
    }
    chat_release(&chat);
}

/* Three agents at once, three slots: each continues its own conversation, and they overlap. */
static void agents_keep_their_own_conversations(void **state)
{
    struct rig *rig = *state;
    enum { AGENTS = 3 };
    const struct shape shapes[] = {IMC(.slots = AGENTS, .seqs = 12, .window = 2000),
                                   IMC(.slots = AGENTS, .window = 2000)};
    for (int k = 0; k < 2; k++) {
        struct chat chats[AGENTS];
        struct asker askers[AGENTS];
        int32_t slot_of[AGENTS], length[AGENTS];
        fake_llm_reset(&rig->clock);
        fake_llm.held = true;
        open_engine(rig, shapes[k]);
        for (int32_t i = 0; i < AGENTS; i++) chats[i] = system_and_user(50 + 3 * i, 150, 2);
        for (int32_t round = 0; round < 3; round++) {
            for (int i = 0; i < AGENTS; i++) {
                length[i] = round == 0 ? 0 : (int32_t)askers[i].client.job.prompt.len;
                if (round > 0) asker_release(&askers[i]);
                asker_init(&askers[i], &chats[i], 10);
                engine_submit(rig->engine, &askers[i].client.job);
            }
            fake_llm_step(1000);
            for (int i = 0; i < AGENTS; i++) {
                struct client *c = &askers[i].client;
                client_await_end(c);
                assert_true(client_got_right_reply(c));
                if (round > 0) assert_int_equal(c->result.cache_n, length[i] + 10 - 1);
                if (round > 0) assert_int_equal(c->result.slot, slot_of[i]);
                slot_of[i] = c->result.slot;
                say_reply(&chats[i], &c->got);
                say(&chats[i], USER, 7 * i + round, 20);
            }
        }
        assert_int_equal(fake_llm.max_seqs, AGENTS);
        for (int i = 0; i < AGENTS; i++) {
            asker_release(&askers[i]);
            chat_release(&chats[i]);
        }
        engine_close(rig->engine);
    }
    rig->engine = NULL;
}

/* Half as many slots as agents: with one pool of cells nothing is computed again. */
static void fewer_slots_than_agents_do_not_thrash(void **state)
{
    struct rig *rig = *state;
    enum { AGENTS = 4 };
    struct chat chats[AGENTS];
    open_engine(rig, IMC(.slots = 2, .seqs = 16, .window = 2000, .cache_min_tokens = 100));
    for (int32_t i = 0; i < AGENTS; i++) chats[i] = system_and_user(50 + 3 * i, 150, 2);
    for (int32_t round = 0; round < 4; round++) {
        for (int32_t i = 0; i < AGENTS; i++) {
            hearth_result result = turn(rig, &chats[i], 10);
            assert_int_equal(result.prompt_n, round == 0 ? 152 + 32 + 1 : 1 + 1 + 22 + 1);
            say(&chats[i], USER, 7 * i + round, 20);
        }
    }
    for (int i = 0; i < AGENTS; i++) chat_release(&chats[i]);
}

/* The contrast: one slot with a stream of cells, so that there is room for one conversation only. */
static void with_one_sequence_only_every_agent_evicts_the_other(void **state)
{
    struct rig *rig = *state;
    struct chat chats[2] = {system_and_user(50, 150, 2), system_and_user(60, 150, 2)};
    open_engine(rig, IMC(.slots = 1, .window = 2000, .cache_min_tokens = 100));
    for (int32_t round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            assert_int_equal(turn(rig, &chats[i], 10).cache_n, 0);
            say(&chats[i], USER, 7 * i + round, 20);
        }
    }
    for (int i = 0; i < 2; i++) chat_release(&chats[i]);
}

static void an_edited_message_costs_what_follows_it(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[] = {IMC(.slots = 1, .seqs = 8, .window = 2000, .cache_min_tokens = 100),
                                   IMC(.slots = 1, .window = 2000, .cache_min_tokens = 100)};
    for (int i = 0; i < 2; i++) {
        struct chat chat = system_and_user(1, 120, 2);
        open_engine(rig, shapes[i]);
        turn(rig, &chat, 6);
        say(&chat, USER, 3, 30);
        turn(rig, &chat, 6);
        say(&chat, USER, 4, 30);
        chat.m[1].words.v[10] = 189; /* eleven tokens behind the system prompt, with the user's */
        assert_int_equal(turn(rig, &chat, 6).cache_n, 122 + 1 + 10);
        chat_release(&chat);
        engine_close(rig->engine);
    }
    rig->engine = NULL;
}

/* A new chat of two messages, beside a conversation of eleven. */
static void a_new_conversation_reuses_the_system_prompt(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[] = {IMC(.slots = 1, .seqs = 8, .window = 2000, .cache_min_tokens = 100),
                                   IMC(.slots = 1, .window = 2000, .cache_min_tokens = 100)};
    for (int i = 0; i < 2; i++) {
        struct chat chat = system_and_user(1, 120, 2);
        open_engine(rig, shapes[i]);
        for (int32_t k = 0; k < 5; k++) {
            turn(rig, &chat, 6);
            if (k < 4) say(&chat, USER, 3 + k, 30);
        }
        assert_int_equal(chat.n, 11);
        forget_log();
        hearth_result result = ask_once(rig, 1, 120, 77);
        assert_int_equal(result.cache_n, 122 + 1); /* and the token that begins a user's message */
        assert_said(" imc: slot[0] skip (cached-msgs[9] >= total-msgs[2])");
        assert_said(" imc: token prefix match found slot=0 common-prefix=123 ");
        assert_said(" start-slot: imc-partial-rebuilt total_cached=122 salvaged_prefix=123 ");
        chat_release(&chat);
        engine_close(rig->engine);
    }
    rig->engine = NULL;
}

/* When cells are evicted, a conversation that lost its end is no longer shown. */
static void a_slot_claims_no_messages_whose_cells_were_evicted(void **state)
{
    struct rig *rig = *state;
    hearth_slot slots[2];
    struct chat chat = system_and_user(1, 300, 2), other = system_and_user(40, 300, 3);
    fake_llm.n_cells = 600;
    fake_llm.call_ns = 1000;
    open_engine(rig, IMC(.slots = 2, .seqs = 8, .window = 600, .cache_min_tokens = 100));
    hearth_result first = turn(rig, &chat, 4);
    await_idle(rig, slots, 2);
    assert_int_equal(slots[first.slot].cached_messages, 1);
    hearth_result second = turn(rig, &other, 4);
    await_idle(rig, slots, 2);
    assert_int_not_equal(first.slot, second.slot);
    assert_int_equal(slots[first.slot].cached_messages, 0);
    assert_in_range(slots[first.slot].cached_tokens, 1, 301);
    assert_int_equal(slots[second.slot].cached_messages, 1);
    chat_release(&chat);
    chat_release(&other);
}

/* Of two users neither can learn, by what is cached, what the other one said. */
static void users_of_different_scopes_share_nothing(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[] = {IMC(.slots = 2, .seqs = 8, .window = 1000),
                                   SPC(.slots = 2, .seqs = 8, .window = 1000)};
    for (int i = 0; i < 2; i++) {
        open_engine(rig, shapes[i]);
        struct chat chat = system_and_user(1, 200, 2);
        for (uint64_t scope = 0; scope < 3; scope++) {
            for (int again = 0; again < 2; again++) {
                struct asker asker;
                asker_init(&asker, &chat, 3);
                asker.client.job.scope = scope;
                run_alone(rig, &asker.client);
                assert_int_equal(asker.client.result.cache_n > 0, again);
                assert_true(client_got_right_reply(&asker.client));
                asker_release(&asker);
            }
        }
        chat_release(&chat);
        engine_close(rig->engine);
    }
    rig->engine = NULL;
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        engine_test(what_is_computed_of_a_growing_conversation_depends_on_the_mode),
        engine_test(a_repeated_prompt_reuses_what_the_first_one_said_is_kept),
        logged_test(only_conversations_stay_in_the_cells),
        engine_test(a_slot_stands_on_the_sequence_that_it_shows),
        engine_test(alternating_system_prompts_are_computed_once_each),
        engine_test(the_least_recently_used_is_evicted_for_another_system_prompt),
        engine_test(a_changed_system_prompt_is_computed_anew),
        logged_test(a_system_prompt_is_restored_into_any_slot),
        engine_test(a_system_prompt_is_shared_with_a_busy_neighbour),
        logged_test(a_snapshot_that_cannot_be_restored_is_computed_again),
        logged_test(the_time_of_a_restore_is_reported),
        logged_test(without_room_for_snapshots_every_prompt_is_computed),
        logged_test(a_system_prompt_that_cannot_be_copied_out_is_computed_each_time),
        logged_test(of_a_short_system_prompt_nothing_is_kept),
        logged_test(the_log_says_what_became_of_a_system_prompt),
        engine_test(prefixes_shorter_than_the_minimum_are_not_reused),
        engine_test(a_slot_shows_the_messages_that_it_holds),
        engine_test(agents_keep_their_own_conversations),
        engine_test(fewer_slots_than_agents_do_not_thrash),
        engine_test(with_one_sequence_only_every_agent_evicts_the_other),
        engine_test(an_edited_message_costs_what_follows_it),
        logged_test(a_new_conversation_reuses_the_system_prompt),
        engine_test(a_slot_claims_no_messages_whose_cells_were_evicted),
        engine_test(users_of_different_scopes_share_nothing),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
