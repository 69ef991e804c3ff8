/* What the log says of conversations, in the words of the source documents: text and fields, and that they agree with
 * what was done. */
#include "chats.h"

#include "engine/core.h"

static struct chat system_and_user(int32_t system, int32_t n_system, int32_t user)
{
    struct chat chat = {0};
    say(&chat, SYSTEM, system, n_system);
    say(&chat, USER, user, 30);
    return chat;
}

static void assert_said_of(const char *format, ...)
{
    char line[300];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_said(line);
}

/* ---- A conversation that grows ---- */

static void a_conversation_is_built_then_extended_then_hit(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    struct chat chat = system_and_user(1, 120, 2);
    open_engine(rig, (struct shape){.slots = 2, .seqs = 8, .window = 2000, .cache_min_tokens = 100});

    turn(rig, &chat, 6);
    assert_said(" imc: scanning slots total-msgs=2 msgs-to-cache=1 total-slots=2\n");
    assert_said(" imc: slot[0] empty\n");
    assert_said(" imc: slot[1] empty\n");
    assert_said(" imc: cache build prepared msgs=1 tokens=122\n");
    assert_said(" start-slot: imc-build tokens=122\n");
    assert_said(" start-slot: imc-built total_cached=122\n");
    assert_int_equal(times_said("no slot matched"), 0); /* nothing is there to compare with */

    say(&chat, USER, 3, 20);
    asker_init(&asker, &chat, 1);
    int32_t stable = asker.client.job.conversation.stable_end, there = 122 + 32 + 1 + 6 - 1;
    unsigned first = (unsigned)(asker.hashes[1] >> 32);
    unsigned long long third = asker.hashes[3];
    asker_release(&asker);
    forget_log();
    hearth_result result = turn(rig, &chat, 6);
    assert_int_equal(result.cache_n, there);
    assert_said(" imc: scanning slots total-msgs=4 msgs-to-cache=3 total-slots=2\n");
    assert_said_of(" imc: slot[0] MATCH (cached-msgs[1] tokens[122] hash[%08x..])\n", first);
    assert_said(" imc: slot[1] empty\n");
    assert_said(" imc: extending cache (deferred) slot=0 seq=0 cached-msgs=1 current-total-tokens-cached=122 "
                "msgs-to-cache=3 hash=");
    assert_said_of(" start-slot: imc-extend cached_tokens=%d\n", there);
    assert_said_of(" start-slot: imc-extended total_cached=%d\n", stable);

    /* Another answer to the same messages is wanted: all that was said is cached. */
    struct chat again = chat_copy(&chat, 4);
    forget_log();
    result = turn(rig, &again, 6);
    assert_int_equal(result.prompt_n, 1);
    assert_said_of(" imc: cache hit slot=0 seq=0 cached-msgs=3 current-total-tokens-cached=%d msgs-to-cache=3 "
                   "hash=%016llx\n",
                   stable, third);
    assert_said(" start-slot: imc-reuse cached_tokens=");
    assert_int_equal(times_said("imc-extended"), 0);
    assert_int_equal(times_said("imc-built"), 0);
    chat_release(&chat);
    chat_release(&again);
}

static void of_several_the_one_with_most_messages_is_continued(void **state)
{
    struct rig *rig = *state;
    struct chat chat = system_and_user(1, 120, 2), other = {0};
    open_engine(rig, (struct shape){.slots = 2, .window = 2000});
    turn(rig, &chat, 6);
    other = chat_copy(&chat, 2); /* the beginning of the same, in the other slot */
    other.m[1].words.v[0] = 189;
    struct asker held, short_one;
    fake_llm.held = true;
    asker_init(&short_one, &other, 4);
    asker_init(&held, &chat, 4);
    engine_submit(rig->engine, &held.client.job);
    engine_submit(rig->engine, &short_one.client.job);
    fake_llm_step(1000000);
    client_await_end(&held.client);
    client_await_end(&short_one.client);
    assert_int_not_equal(held.client.result.slot, short_one.client.result.slot);
    fake_llm.held = false;
    say_reply(&chat, &held.client.got);
    say(&chat, USER, 3, 20);
    turn(rig, &chat, 4);
    say(&chat, USER, 4, 20);
    forget_log();
    hearth_result result = turn(rig, &chat, 4);
    assert_int_equal(times_said(" MATCH (cached-msgs["), 2); /* both hold its first message */
    assert_int_equal(result.slot, held.client.result.slot);
    assert_said_of(" imc: extending cache (deferred) slot=%d ", result.slot);
    asker_release(&held);
    asker_release(&short_one);
    chat_release(&chat);
    chat_release(&other);
}

/* ---- Comparing tokens ---- */

/* Prompts written token by token, of conversations of which only the tokens are known. */
static void tokens_init(struct asker *asker, const int32_t *tokens, size_t n, uint64_t hash)
{
    client_init(&asker->client, 0, 0, 1);
    tokens_append(&asker->client.job.prompt, tokens, n);
    for (uint64_t i = 0; i < 3; i++) asker->hashes[i] = hash + i;
    asker->client.job.conversation =
        (struct conversation){.n_messages = 2, .hashes = asker->hashes, .stable_end = (int32_t)n - 1};
}

/* The example of the document: T1 to T8 are cached, T1 to T5 and T9 to T12 come in. */
static void the_example_of_the_document_comes_out(void **state)
{
    static const int32_t cached[] = {1, 2, 3, 4, 5, 6, 7, 8}, incoming[] = {1, 2, 3, 4, 5, 9, 10, 11, 12};
    struct rig *rig = *state;
    struct asker a, b, again;
    open_engine(rig, (struct shape){.slots = 1, .window = 100, .cache_min_tokens = 5});
    tokens_init(&a, cached, 8, 1000);
    tokens_init(&b, incoming, 9, 2000);
    tokens_init(&again, incoming, 9, 2000);
    run_alone(rig, &a.client);
    forget_log();
    run_alone(rig, &b.client);
    assert_int_equal(b.client.result.cache_n, 5);
    assert_int_equal(b.client.result.prompt_n, 4);
    assert_true(client_got_right_reply(&b.client));
    assert_said(" imc: no slot matched, trying token prefix match total-msgs=2\n");
    assert_said(" imc: slot[0] mismatch (hash[");
    assert_said(" imc: slot[0] common-prefix 5/8 tokens (62% salvageable)\n");
    assert_said(" imc: token prefix match found slot=0 common-prefix=5 discarded-cached=3 new-tokens-to-decode=4 "
                "total-incoming=9\n");
    assert_said(" start-slot: imc-trim-prefix cached_tokens=8 trim_pos=5 new_cache_tokens=8\n");
    assert_said(" start-slot: imc-partial-rebuilt total_cached=8 salvaged_prefix=5 salvaged_pct=62\n");

    /* From then on the slot shows the new conversation. */
    forget_log();
    run_alone(rig, &again.client);
    assert_said(" imc: slot[0] MATCH (cached-msgs[1] tokens[8] hash[");
    assert_said(" imc: cache hit slot=0 ");
    asker_release(&a);
    asker_release(&b);
    asker_release(&again);
}

static void a_prefix_that_is_too_short_is_said_to_be(void **state)
{
    static const int32_t cached[] = {1, 2, 3, 4, 5, 6, 7, 8}, incoming[] = {1, 2, 3, 4, 5, 9, 10, 11, 12};
    struct rig *rig = *state;
    struct asker a, b;
    open_engine(rig, (struct shape){.slots = 1, .window = 100, .cache_min_tokens = 6});
    tokens_init(&a, cached, 8, 1000);
    tokens_init(&b, incoming, 9, 2000);
    run_alone(rig, &a.client);
    forget_log();
    run_alone(rig, &b.client);
    assert_int_equal(b.client.result.cache_n, 0);
    assert_said(" imc: no slot matched, trying token prefix match total-msgs=2\n");
    assert_said(" imc: slot[0] common-prefix 5/8 tokens (62% salvageable)\n");
    assert_said(" imc: no usable token prefix match best-prefix=5 min-required=6\n");
    assert_said(" imc: evicting LRU slot slot=0 seq=0 evicted-msgs=1 evicted-tokens=8\n");
    assert_said(" imc: cache build prepared msgs=1 tokens=8\n");
    asker_release(&a);
    asker_release(&b);
}

static void of_cells_of_another_scope_no_prefix_is_reported(void **state)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct rig *rig = *state;
    struct asker a, b;
    open_engine(rig, (struct shape){.slots = 1, .window = 100});
    tokens_init(&a, tokens, 12, 1000);
    tokens_init(&b, tokens, 12, 2000);
    b.client.job.scope = 1;
    run_alone(rig, &a.client);
    forget_log();
    run_alone(rig, &b.client);
    assert_int_equal(b.client.result.cache_n, 0);
    assert_int_equal(times_said("common-prefix"), 0);
    assert_int_equal(times_said("prefix match found"), 0);
    assert_int_equal(times_said("best-prefix"), 0);
    assert_int_equal(times_said("trim_pos"), 0);
    assert_said(" imc: cache build prepared");
    asker_release(&a);
    asker_release(&b);
}

/* All that comes in is cached: nothing is computed but the last token. */
static void a_part_of_a_conversation_is_trimmed_only(void **state)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct rig *rig = *state;
    struct asker a, b;
    open_engine(rig, (struct shape){.slots = 1, .window = 100});
    tokens_init(&a, tokens, 12, 1000);
    tokens_init(&b, tokens, 6, 2000);
    run_alone(rig, &a.client);
    run_alone(rig, &b.client);
    assert_int_equal(b.client.result.cache_n, 5);
    assert_said(" start-slot: imc-trim-only cached_tokens=12 trim_pos=5 new_cache_tokens=5\n");
    asker_release(&a);
    asker_release(&b);
}

/* A slot that holds as many messages as the request has is skipped in the log only: its cells are used. */
static void a_slot_with_as_many_messages_is_used_all_the_same(void **state)
{
    struct rig *rig = *state;
    struct chat chat = system_and_user(1, 120, 2);
    open_engine(rig, (struct shape){.slots = 1, .window = 2000, .cache_min_tokens = 100});
    say(&chat, USER, 3, 20);
    turn(rig, &chat, 6); /* holds two messages */
    struct chat fewer = chat_copy(&chat, 2);
    forget_log();
    hearth_result result = turn(rig, &fewer, 6);
    assert_said(" imc: slot[0] skip (cached-msgs[2] >= total-msgs[2])\n");
    assert_int_equal(result.prompt_n, 1); /* the generation prompt */
    chat_release(&chat);
    chat_release(&fewer);
}

static void a_conversation_too_short_to_keep_is_said_to_be(void **state)
{
    struct rig *rig = *state;
    struct chat chat = system_and_user(1, 20, 2);
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000, .cache_min_tokens = 100});
    turn(rig, &chat, 4);
    assert_said(" imc: skip (too short) last-msg-index-to-cache=0 tokens=22 cache-min-tokens=100\n");
    assert_int_equal(times_said(" imc: cache build prepared"), 0);
    chat_release(&chat);
}

/* One message is all but the last of nothing. */
static void of_a_single_message_nothing_is_said(void **state)
{
    struct rig *rig = *state;
    struct chat chat = {0};
    hearth_slot slot;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    say(&chat, USER, 1, 200);
    turn(rig, &chat, 4);
    await_idle(rig, &slot, 1);
    assert_int_equal(slot.cached_messages, 0);
    assert_int_equal(times_said(" imc"), 0);
    chat_release(&chat);
}

/* ---- Several at once ---- */

/* The second waits for what the first computes; the third, another conversation, finds a slot of its own. */
static void slots_that_wait_are_pending_and_never_stay_so(void **state)
{
    struct rig *rig = *state;
    struct asker asker[3];
    struct chat chat[3] = {system_and_user(1, 1700, 2), system_and_user(1, 1700, 3), system_and_user(40, 200, 4)};
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 3, .seqs = 8, .window = 3000, .cache_min_tokens = 100});
    for (int i = 0; i < 3; i++) {
        asker_init(&asker[i], &chat[i], 4);
        snprintf(asker[i].client.job.id, sizeof asker[i].client.job.id, "asker-%d", i);
    }
    engine_submit(rig->engine, &asker[0].client.job);
    fake_llm_step(1);
    client_await_start(&asker[0].client);
    engine_submit(rig->engine, &asker[1].client.job);
    engine_submit(rig->engine, &asker[2].client.job);
    fake_llm_step(1000000);
    for (int i = 0; i < 3; i++) {
        client_await_end(&asker[i].client);
        assert_true(client_got_right_reply(&asker[i].client));
        for (int k = 0; k < i; k++) assert_int_not_equal(asker[i].client.result.slot, asker[k].client.result.slot);
    }
    assert_said(" batch-engine: slot-pending slot=1 id=asker-1 for_slot=0 for_tokens=1703\n");
    assert_said(" imc: slot[1] pending (build in-flight)\n");
    assert_int_equal(metric_get(&engine_stats(rig->engine)->prompt_tokens), 1702 + 2 * 33 - 1 + 202 + 33);
    assert_all_idle(rig);
    for (int i = 0; i < 3; i++) {
        asker_release(&asker[i]);
        chat_release(&chat[i]);
    }
}

/* The one that computes fails, or is cancelled; or the one that waits is cancelled. */
static void assert_no_slot_stays_pending(struct rig *rig, bool fails, int cancelled)
{
    struct asker asker[2];
    struct chat chat[2] = {system_and_user(1, 1700, 2), system_and_user(1, 1700, 3)};
    fake_llm_reset(&rig->clock);
    fake_llm.held = true;
    if (fails) {
        fake_llm.poison = 198;
        chat[0].m[1].words.v[20] = 198;
    }
    open_engine(rig, (struct shape){.slots = 2, .seqs = 8, .window = 3000});
    for (int i = 0; i < 2; i++) asker_init(&asker[i], &chat[i], 4);
    engine_submit(rig->engine, &asker[0].client.job);
    fake_llm_step(1);
    client_await_start(&asker[0].client);
    engine_submit(rig->engine, &asker[1].client.job);
    fake_llm_step(1);
    client_await_start(&asker[1].client);
    if (cancelled >= 0) {
        atomic_store(&asker[cancelled].client.job.cancelled, true);
        engine_poke(rig->engine);
    }
    fake_llm_step(1000000);
    for (int i = 0; i < 2; i++) {
        client_await_end(&asker[i].client);
        assert_int_equal(asker[i].client.failed, (fails && i == 0) || cancelled == i);
        assert_true(client_got_right_reply(&asker[i].client));
    }
    assert_all_idle(rig);
    for (int i = 0; i < 2; i++) {
        asker_release(&asker[i]);
        chat_release(&chat[i]);
    }
    engine_close(rig->engine);
    rig->engine = NULL;
}

static void no_slot_stays_pending_whatever_becomes_of_the_others(void **state)
{
    struct rig *rig = *state;
    assert_no_slot_stays_pending(rig, true, -1);
    assert_no_slot_stays_pending(rig, false, 0);
    assert_no_slot_stays_pending(rig, false, 1);
    assert_int_equal(times_said(" batch-engine: slot-pending "), 3);
}

/* ---- Cells that cannot be cut ---- */

/* With a stream of cells each: a checkpoint is saved at every checkpoint position, and restored. */
static void a_hybrid_goes_back_to_the_nearest_of_its_snapshots(void **state)
{
    struct rig *rig = *state;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .window = 2000, .cache_min_tokens = 100});
    struct chat chat = system_and_user(1, 120, 2);
    turn(rig, &chat, 6);
    int32_t size = 0;
    assert_said(" batch-engine: imc-hybrid-snapshot slot=0 seq=0 cached_tokens=122 snapshot_bytes=");
    assert_said(" batch-engine: imc-hybrid-snapshot slot=0 seq=0 cached_tokens=154 snapshot_bytes=");
    assert_said(" kv_alloc=");
    size = (int32_t)(sizeof(int64_t) * 2);
    say(&chat, USER, 3, 30);
    struct chat reworded = chat_copy(&chat, 4);
    assert_int_equal(turn(rig, &chat, 6).cache_n, 154 + 1 + 6 - 1); /* continues at its end: nothing to restore */
    assert_int_equal(times_said("imc-hybrid-restore "), 0);

    /* The last message is another one: back to the end of those before it. */
    int32_t stable = 154 + 8;
    reworded.m[3].words.v[0] = 188;
    assert_int_equal(turn(rig, &reworded, 6).cache_n, stable);
    assert_said_of(" batch-engine: imc-hybrid-restore trim_pos=%d snapshot_bytes=%d restored_bytes=%d\n", stable, size,
                   size);

    /* The first one is: back to the system prompt. */
    reworded.m[1].words.v[0] = 188;
    forget_log();
    assert_int_equal(turn(rig, &reworded, 6).cache_n, 122);
    assert_said(" batch-engine: imc-hybrid-restore trim_pos=122 ");
    assert_int_equal(fake_llm.rewinds, 2);
    chat_release(&chat);
    chat_release(&reworded);
}

static void in_one_pool_a_hybrid_keeps_every_branch(void **state)
{
    struct rig *rig = *state;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 12, .window = 2000, .cache_min_tokens = 100});
    struct chat chat = system_and_user(1, 120, 2);
    turn(rig, &chat, 6);
    assert_said(" batch-engine: imc-hybrid-snapshot slot=0 seq=0 cached_tokens=122 snapshot_bytes=16 kv_alloc=16\n");
    say(&chat, USER, 3, 30);
    struct chat reworded = chat_copy(&chat, 4);
    turn(rig, &chat, 6);
    reworded.m[3].words.v[0] = 188;
    assert_int_equal(turn(rig, &reworded, 6).cache_n, 154 + 8);
    reworded.m[1].words.v[0] = 188;
    assert_int_equal(turn(rig, &reworded, 6).cache_n, 122);
    say(&chat, USER, 4, 30); /* the first branch is there as before */
    assert_int_equal(turn(rig, &chat, 6).prompt_n, 1 + 1 + 32 + 1);
    assert_true(fake_llm_cells_add_up(rig->engine->context));
    chat_release(&chat);
    chat_release(&reworded);
}

/* A system prompt that all requests begin with is not the least recently used, though it was computed first. */
static void a_shared_system_prompt_is_not_the_next_to_be_evicted(void **state)
{
    struct rig *rig = *state;
    fake_llm.cuts = false;
    fake_llm.call_ns = 1000;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 2000, .cache_min_tokens = 100});
    for (int32_t i = 0; i < 6; i++) {
        struct chat chat = system_and_user(1, 120, 50 + i);
        /* From the third on it is known that all begin the user's message alike. */
        assert_int_equal(turn(rig, &chat, 6).cache_n, i == 0 ? 0 : i == 1 ? 122 : 123);
        chat_release(&chat);
    }
}

static void a_snapshot_that_cannot_be_kept_costs_time_only(void **state)
{
    struct rig *rig = *state;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .window = 2000, .cache_min_tokens = 100, .snapshot_budget = 1});
    struct chat chat = system_and_user(1, 120, 2);
    turn(rig, &chat, 6);
    assert_said(" warn  batch-engine: imc-hybrid-snapshot-failed slot=0 seq=0 cached_tokens=122 snapshot_bytes=0 ");

    /* What the user said first is another word now: 152 tokens are the same. */
    say(&chat, USER, 3, 30);
    chat.m[1].words.v[29] = 189;
    forget_log();
    assert_int_equal(turn(rig, &chat, 6).cache_n, 0);
    assert_said(" imc: slot[0] common-prefix 152/160 tokens (95% salvageable)\n");
    assert_said(" start-slot: imc-hybrid-rebuild cached_tokens=160 trim_pos=152 redecode_tokens=195\n");
    assert_int_equal(times_said("no usable token prefix match"), 0);

    struct chat part = chat_copy(&chat, 2);
    forget_log();
    assert_int_equal(turn(rig, &part, 6).cache_n, 0);
    assert_said(" start-slot: imc-hybrid-trim-rebuild cached_tokens=200 trim_pos=155 redecode_tokens=155\n");
    chat_release(&chat);
    chat_release(&part);
}

/* There is room for it: what fails is copying it out. */
static void a_snapshot_that_fails_is_said_to_and_never_restored(void **state)
{
    struct rig *rig = *state;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .window = 2000, .cache_min_tokens = 100});
    struct chat chat = system_and_user(1, 120, 2), other = system_and_user(1, 120, 9),
                third = system_and_user(1, 120, 8);
    fake_llm.save_fails = true;
    turn(rig, &chat, 6);
    assert_said(" warn  batch-engine: imc-hybrid-snapshot-failed slot=0 seq=0 cached_tokens=122 snapshot_bytes=0 "
                "kv_alloc=0\n");
    assert_int_equal(times_said(" imc-hybrid-snapshot "), 0);
    assert_int_equal(snapshots_usage(rig->engine->snapshots).n, 0);
    assert_int_equal(turn(rig, &other, 6).cache_n, 0);
    assert_int_equal(times_said(" imc-hybrid-restore"), 0);
    fake_llm.save_fails = false;
    assert_int_equal(turn(rig, &third, 6).cache_n, 0);
    assert_int_equal(turn(rig, &third, 6).cache_n, 155 + 6 - 1);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->requests_failed), 0);
    chat_release(&chat);
    chat_release(&other);
    chat_release(&third);
}

static void a_snapshot_that_cannot_be_restored_is_dropped(void **state)
{
    struct rig *rig = *state;
    hearth_slot slot;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .window = 2000, .cache_min_tokens = 100});
    struct chat chat = system_and_user(1, 120, 2), other = system_and_user(1, 120, 9),
                third = system_and_user(1, 120, 8);
    turn(rig, &chat, 6);
    fake_llm.load_fails = true;
    hearth_result result = turn(rig, &other, 6);
    assert_int_equal(result.cache_n, 0);
    assert_int_equal(result.prompt_n, 155);
    assert_said(" warn  batch-engine: imc-hybrid-restore-failed trim_pos=122 snapshot_bytes=16 restored_bytes=0\n");
    fake_llm.load_fails = false;
    await_idle(rig, &slot, 1);
    assert_int_equal(slot.cached_messages, 1); /* those of the second */
    assert_int_equal(slot.cached_tokens, 160);
    assert_int_equal(turn(rig, &third, 6).cache_n, 123); /* where the second was seen to diverge from the first */
    assert_int_equal(metric_get(&engine_stats(rig->engine)->requests_failed), 0);
    chat_release(&chat);
    chat_release(&other);
    chat_release(&third);
}

/* Evicted cells that cannot be cut go back to a checkpoint; where there is none, all of them are evicted. */
static void evicted_cells_go_back_to_a_checkpoint_or_are_evicted_whole(void **state)
{
    struct rig *rig = *state;
    fake_llm.cuts = false;
    for (int kept = 0; kept < 2; kept++) {
        fake_llm.n_cells = 1000;
        open_engine(rig, (struct shape){.slots = 1, .seqs = 2, .window = 1000, .snapshot_budget = kept ? 1000 : 1});
        struct client a, b;
        client_init(&a, 5, 700, 4);
        client_init(&b, 90, 500, 4);
        forget_log();
        run_alone(rig, &a);
        run_alone(rig, &b);
        assert_true(client_got_right_reply(&b));
        if (!kept) assert_said(" batch-engine: resident-cells-dropped seq=0 tokens=703 kept=0\n");
        if (kept) assert_said(" batch-engine: resident-cells-dropped seq=0 tokens=353 kept=350\n");
        client_release(&a);
        client_release(&b);
        if (kept) break; /* the last one is closed by the fixture */
        engine_close(rig->engine);
    }
}

/* A call failed after some of its tokens had reached their cells, and there is no checkpoint to go back to. */
static void without_a_snapshot_there_all_cells_are_computed_again(void **state)
{
    struct rig *rig = *state;
    struct client bad, good;
    fake_llm.cuts = false;
    fake_llm.poison = 198;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&bad, 5, 700, 4);
    bad.job.cache_prompt = false; /* it saves no checkpoints */
    bad.job.prompt.v[600] = 198;
    client_init(&good, 5, 700, 4);
    run_alone(rig, &bad);
    assert_true(bad.failed);
    assert_said(" batch-engine: imc-hybrid-no-snapshot seq=0 trim_pos=");
    run_alone(rig, &good);
    assert_true(client_got_right_reply(&good));
    client_release(&bad);
    client_release(&good);
}

/* There are several checkpoints, and the least recently used ones are evicted. */
static void snapshots_keep_within_their_budget(void **state)
{
    struct rig *rig = *state;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 2, .window = 2000, .cache_min_tokens = 100, .snapshot_budget = 50});
    struct chat chat = system_and_user(1, 120, 2);
    for (int32_t i = 0; i < 4; i++) {
        turn(rig, &chat, 6);
        say(&chat, USER, 3 + i, 30);
        struct snapshots_usage usage = snapshots_usage(rig->engine->snapshots);
        assert_true(usage.bytes <= 50);
        assert_true(usage.n <= 3);
        assert_int_equal(metric_get(&engine_stats(rig->engine)->snapshot_bytes), usage.bytes);
    }
    assert_true(snapshots_usage(rig->engine->snapshots).evictions > 0);
    chat_release(&chat);
}

/* ---- Media ---- */

/* The first example of the document's chapter 5.8: an image, then text about it, about something else, about it again.
 */
static void an_image_is_built_once_and_text_extends_it(void **state)
{
    struct rig *rig = *state;
    struct chat chat = {0};
    open_engine(rig, (struct shape){.slots = 2, .seqs = 8, .window = 2000});
    say(&chat, SYSTEM, 1, 50);
    say_with_image(&chat, USER, 2, 20, 1);
    say(&chat, USER, 3, 20);
    turn(rig, &chat, 6);
    assert_said(" imc: media cache build prepared id=client-0 media=1 media-cached=0 new-tokens=");
    assert_said(" start-slot: imc-media-build media=1\n");
    assert_said(" start-slot: imc-media-built total_cached=134 skipped_text_tokens=0\n");
    assert_int_equal(times_said(" imc-media-cache: decoded-media "), 1);
    for (int32_t i = 0; i < 3; i++) {
        forget_log();
        say(&chat, USER, 4 + i, 20);
        int32_t there = i == 0 ? 134 : 0;
        hearth_result result = turn(rig, &chat, 6);
        assert_true(result.cache_n > there);
        assert_said(" imc: media text extend prepared id=client-0 media=1 media-cached=1 new-tokens=");
        assert_said(" start-slot: imc-extended total_cached=");
        assert_int_equal(times_said("imc-media-cache"), 0);
        assert_int_equal(times_said("imc-media-build"), 0);
    }
    assert_int_equal(fake_llm.rows_computed, 60);
    chat_release(&chat);
}

/* The second: text, text, then an image, then text; and a second image, for which the documents build everything anew.
 */
static void an_image_in_the_middle_keeps_the_text_before_it(void **state)
{
    struct rig *rig = *state;
    struct chat chat = {0};
    open_engine(rig, (struct shape){.slots = 2, .seqs = 8, .window = 2000});
    say(&chat, SYSTEM, 1, 100);
    say(&chat, USER, 2, 20);
    turn(rig, &chat, 6);
    assert_int_equal(times_said("media"), 0);
    for (uint8_t image = 1; image <= 2; image++) {
        forget_log();
        say_with_image(&chat, USER, 3 + image, 20, image);
        say(&chat, USER, 6, 20);
        hearth_result result = turn(rig, &chat, 6);
        assert_true(result.cache_n > 120);
        assert_said_of(" imc: media extend prepared id=client-0 media=%d media-cached=%d new-tokens=", image,
                       image - 1);
        assert_said_of(" start-slot: imc-media-extend skip_text_tokens=%d media=1\n", result.cache_n);
        assert_said(" start-slot: imc-media-extended total_cached=");
        assert_int_equal(times_said("media cache build prepared"), 0);
        assert_int_equal(fake_llm.rows_computed, 60 * image);
    }
    forget_log();
    say(&chat, USER, 7, 20);
    turn(rig, &chat, 6);
    assert_said(" imc: media text extend prepared id=client-0 media=2 media-cached=2 new-tokens=");
    assert_int_equal(fake_llm.rows_computed, 120);
    chat_release(&chat);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        logged_test(an_image_is_built_once_and_text_extends_it),
        logged_test(an_image_in_the_middle_keeps_the_text_before_it),
        logged_test(a_conversation_is_built_then_extended_then_hit),
        logged_test(of_several_the_one_with_most_messages_is_continued),
        logged_test(the_example_of_the_document_comes_out),
        logged_test(a_prefix_that_is_too_short_is_said_to_be),
        logged_test(of_cells_of_another_scope_no_prefix_is_reported),
        logged_test(a_part_of_a_conversation_is_trimmed_only),
        logged_test(a_slot_with_as_many_messages_is_used_all_the_same),
        logged_test(a_conversation_too_short_to_keep_is_said_to_be),
        logged_test(of_a_single_message_nothing_is_said),
        logged_test(slots_that_wait_are_pending_and_never_stay_so),
        logged_test(no_slot_stays_pending_whatever_becomes_of_the_others),
        logged_test(a_hybrid_goes_back_to_the_nearest_of_its_snapshots),
        logged_test(in_one_pool_a_hybrid_keeps_every_branch),
        logged_test(a_shared_system_prompt_is_not_the_next_to_be_evicted),
        logged_test(a_snapshot_that_cannot_be_kept_costs_time_only),
        logged_test(a_snapshot_that_fails_is_said_to_and_never_restored),
        logged_test(a_snapshot_that_cannot_be_restored_is_dropped),
        logged_test(evicted_cells_go_back_to_a_checkpoint_or_are_evicted_whole),
        logged_test(without_a_snapshot_there_all_cells_are_computed_again),
        logged_test(snapshots_keep_within_their_budget),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
