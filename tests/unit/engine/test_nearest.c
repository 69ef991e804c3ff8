/* Where a prompt diverges from the most similar token list: compared with a naive search of all lists; and what the log
 * says of a large miss. */
#include "chats.h"
#include "stored.h"

enum { LISTS = 40, LOOKUPS = 10, SCOPES = 2, ALPHABET = 3, SEQS = 4 };

static const struct shape few_sequences = {.slots = 2, .seqs = SEQS, .window = 9000};

/* ---- Random prompts ---- */

struct list {
    uint64_t scope;
    struct tokens tokens; /* prompt and reply, as far as they were computed */
};

struct world {
    struct stored stored;
    struct rig *rig;
    uint32_t random;
    struct list lists[LISTS];
    size_t n;
    size_t n_resident, n_stored, n_ended; /* lookups, by what they found */
};

static struct world world;

static int32_t below(struct world *w, int32_t n)
{
    w->random = w->random * 1664525 + 1013904223;
    return (int32_t)((w->random >> 8) % (uint32_t)n);
}

/* Half of the prompts begin like a list that was there, then randomly; few tokens, so that much is in common by
 * chance. */
static void draw_prompt(struct world *w, struct client *client)
{
    struct tokens *prompt = &client->job.prompt;
    client_init(client, 0, 0, 1 + below(w, 20));
    client->job.scope = (uint64_t)below(w, SCOPES);
    if (w->n > 0 && below(w, 4) > 0) {
        const struct tokens *like = &w->lists[below(w, (int32_t)w->n)].tokens;
        bool whole = below(w, 3) == 0;
        tokens_append(prompt, like->v, whole ? like->len : (size_t)below(w, (int32_t)like->len));
    }
    int32_t more = below(w, 100) + (prompt->len == 0);
    for (int32_t i = 0; i < more; i++) tokens_push(prompt, below(w, ALPHABET));
}

/* ---- The oracle ---- */

static int32_t in_common(const struct tokens *a, const struct tokens *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->v[n] == b->v[n]) n++;
    return (int32_t)n;
}

/* Whether the other list has that much in common with the prompt and continues as noted. */
static bool fits(const struct tokens *prompt, const struct tokens *other, const struct divergence *d)
{
    size_t rest = other->len - (size_t)in_common(prompt, other);
    if (in_common(prompt, other) != d->common || (size_t)d->n_next != (rest < 16 ? rest : 16)) return false;
    return d->n_next == 0 || memcmp(other->v + d->common, d->next, (size_t)d->n_next * sizeof *d->next) == 0;
}

/* On the engine's thread, which has just found it. */
static void compare(struct client *client)
{
    struct world *w = &world;
    const struct nearest *nearest = &client->job.nearest;
    const struct tokens *prompt = &client->job.prompt;
    int32_t resident = 0, stored = 0;
    bool fits_resident = false, fits_stored = false;
    for (size_t i = 0; i < SEQS; i++) {
        const struct seq *seq = &w->rig->engine->seqs[i];
        if (seq->scope != client->job.scope) continue;
        if (in_common(prompt, &seq->tokens) > resident) resident = in_common(prompt, &seq->tokens);
        fits_resident = fits_resident || fits(prompt, &seq->tokens, &nearest->divergence);
    }
    for (size_t i = 0; i < w->n; i++) {
        const struct list *list = &w->lists[i];
        if (list->scope != client->job.scope) continue;
        if (in_common(prompt, &list->tokens) > stored) stored = in_common(prompt, &list->tokens);
        fits_stored = fits_stored || fits(prompt, &list->tokens, &nearest->divergence);
    }
    if (resident == 0 && stored == 0) {
        assert_null(nearest->where);
        return;
    }
    assert_int_equal(nearest->divergence.common, resident > stored ? resident : stored);
    assert_string_equal(nearest->where, resident >= stored ? "resident" : "ram");
    assert_true(resident >= stored ? fits_resident : fits_stored);
    w->n_resident += resident >= stored;
    w->n_stored += resident < stored;
    w->n_ended += nearest->divergence.n_next == 0;
}

static void look_up(struct world *w)
{
    struct client client;
    enum store_tier tier = 0;
    draw_prompt(w, &client);
    struct job *job = &client.job;
    job->only_lookup = true;
    client.on_done = compare;
    ask(&w->stored, &client);
    struct store_query query = {.user = engine_store_user(w->rig->engine),
                                .identity = &job->identity,
                                .tokens = job->prompt.v,
                                .n = (int32_t)job->prompt.len};
    if (store_note_divergence(w->stored.store, &query, &job->nearest.divergence, &tier))
        job->nearest.where = store_tier_names[tier];
    run_alone(w->rig, &client);
    client_release(&client);
}

/* Everything is stored when this returns. */
static void compute(struct world *w)
{
    struct client client;
    struct list *list = &w->lists[w->n];
    draw_prompt(w, &client);
    run(&w->stored, &client);
    *list = (struct list){.scope = client.job.scope};
    tokens_append(&list->tokens, client.job.prompt.v, client.job.prompt.len);
    tokens_append(&list->tokens, client.got.v, client.got.len - 1);
    while (stored_of(&w->stored, &client) < (int32_t)list->tokens.len) sched_yield();
    w->n++;
    client_release(&client);
}

static void a_prompt_diverges_where_an_oracle_says(void **state)
{
    struct world *w = &world;
    for (uint32_t seed = 1; seed <= 10; seed++) {
        w->rig = *state;
        w->stored.store = NULL;
        w->random = seed * 2654435761u;
        w->n = 0;
        start(&w->stored, w->rig, few_sequences);
        while (w->n < LISTS) {
            compute(w);
            for (int i = 0; i < LOOKUPS; i++) look_up(w);
            if (w->n == LISTS / 2) restart(&w->stored, few_sequences);
        }
        stop(&w->stored);
        for (size_t i = 0; i < w->n; i++) tokens_release(&w->lists[i].tokens);
        fake_llm_reset(&w->rig->clock);
    }
    printf("    %zu resident, %zu stored, %zu at the end of one\n", w->n_resident, w->n_stored, w->n_ended);
    assert_true(w->n_resident > 100 && w->n_stored > 100 && w->n_ended > 100);
}

/* ---- What limits it ---- */

/* The lookup of that prompt after 300 tokens from 3 on were computed under scope 0. */
static struct nearest asked(struct rig *rig, struct shape shape, struct client *client)
{
    struct client before;
    open_engine(rig, shape);
    client_init(&before, 3, 300, 5);
    run_alone(rig, &before);
    client->job.only_lookup = true;
    run_alone(rig, client);
    client_release(&before);
    return client->job.nearest;
}

static void what_limits_reuse_is_named(void **state)
{
    static const struct {
        struct shape shape;
        size_t n;
        bool keeps_out;
        const char *limit;
    } rows[] = {
        {{.cache_min_tokens = 100}, 150, false, NULL},
        {{.cache_min_tokens = 200}, 150, false, "cache_min_tokens"},
        {{.no_caching = true}, 150, false, NULL},
        {{.deterministic = true}, 150, false, "deterministic"},
        {{.cache_min_tokens = 100}, 150, true, "cache_prompt"},
    };
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client client;
        struct shape shape = rows[i].shape;
        shape.slots = 2, shape.window = 2000;
        if (!shape.deterministic) shape.seqs = 8;
        client_init(&client, 3, rows[i].n, 5);
        tokens_push(&client.job.prompt, 189); /* unlike what is there */
        client.job.cache_prompt = !rows[i].keeps_out;
        struct nearest nearest = asked(rig, shape, &client);
        const char *limit = nearest.limit == NULL ? "nothing" : nearest.limit;
        assert_string_equal(limit, rows[i].limit == NULL ? "nothing" : rows[i].limit);
        if (nearest.where != NULL) assert_int_equal(nearest.divergence.common, rows[i].n);
        client_release(&client);
        engine_close(rig->engine);
        rig->engine = NULL;
        fake_llm_reset(&rig->clock);
    }
}

static void cells_that_cannot_be_cut_are_said_to_be_the_limit(void **state)
{
    struct rig *rig = *state;
    struct client client;
    fake_llm.cuts = false;
    client_init(&client, 3, 100, 5);
    tokens_push(&client.job.prompt, 189);
    struct nearest nearest = asked(rig, few_sequences, &client);
    assert_string_equal(nearest.limit, "checkpoints");
    assert_int_equal(nearest.divergence.common, 100);
    client_release(&client);
}

/* ---- The log ---- */

#define MISS "imc: most of the prompt was computed: nearest prompt"

static void ask_for(struct rig *rig, uint64_t scope, size_t same, size_t other)
{
    struct client client;
    client_init(&client, 3, same, 5);
    for (size_t i = 0; i < other; i++) tokens_push(&client.job.prompt, (int32_t)(i * 7 + 1) % 190);
    client.job.scope = scope;
    run_alone(rig, &client);
    client_release(&client);
}

static void a_large_miss_is_logged_with_positions(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, few_sequences);
    ask_for(rig, 0, 800, 0);
    assert_int_equal(times_said(MISS), 0); /* nothing was there */
    ask_for(rig, 0, 700, 100);             /* most was */
    ask_for(rig, 0, 10, 100);              /* it is short */
    ask_for(rig, 1, 100, 800);             /* nothing of this scope was there */
    assert_int_equal(times_said(MISS), 0);
    ask_for(rig, 0, 200, 800);
    assert_said(MISS
                " id=client-3 prompt_tokens=1000 cached_tokens=200 nearest=resident common_tokens=200 limit=none\n");
    assert_int_equal(times_said(MISS), 1);
}

static void words_are_logged_only_where_that_is_wanted(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, few_sequences);
    ask_for(rig, 0, 800, 0);
    ask_for(rig, 0, 200, 800);
    assert_int_equal(times_said("words"), 0);
    rig->engine->logs_words = true;
    ask_for(rig, 0, 100, 900);
    assert_said("imc: words where the prompt diverges id=client-3 prompt=");
    assert_int_equal(times_said("words"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(a_prompt_diverges_where_an_oracle_says),
        engine_test(what_limits_reuse_is_named),
        engine_test(cells_that_cannot_be_cut_are_said_to_be_the_limit),
        logged_test(a_large_miss_is_logged_with_positions),
        logged_test(words_are_logged_only_where_that_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
