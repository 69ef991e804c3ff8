/* The cost model of decode calls against machines whose costs are known. */
#include "engine/decode_cost.h"

#include "fakes/cmocka_all.h"

#include <math.h>

/* Nanoseconds: of a call, of a token, of an attended, a masked and a used cell; and what the machine adds at random. */
struct machine {
    const char *name;
    double call, token, attended, masked, used, noise;
};

static const struct machine machines[] = {
    {"masked cells cost their mask", 3e6, 1.5e6, 25, 50, 0, 0.2},
    {"masked cells are read", 6e6, 4e4, 2, 0.5, 150, 0.1},
    {"masked cells are skipped", 6e6, 4e4, 2, 0, 0, 0.1},
};

static uint32_t state;

static double random_between(double low, double high)
{
    state = state * 1664525 + 1013904223;
    return low + (high - low) * ((state >> 8) / 16777216.0);
}

static double idle_cost(const struct machine *machine, double cells, double n_calls, double n_tokens)
{
    return cells * (machine->masked * n_tokens + machine->used * n_calls);
}

/* One call in fifty is slowed down by something else. */
static void call(const struct machine *machine, struct decode_cost *cost, int32_t n_tokens, double own, double idle)
{
    struct decode_call seen = {.n_tokens = n_tokens, .attended = own * n_tokens, .used = own + idle};
    double ns = machine->call + machine->token * n_tokens + machine->attended * seen.attended +
                idle_cost(machine, idle, 1, n_tokens) + machine->used * own;
    ns *= 1 + random_between(-machine->noise, machine->noise);
    if (random_between(0, 1) < 0.02) ns *= random_between(2, 8);
    decode_cost_observe(cost, &seen, (int64_t)ns);
}

/* A prompt in chunks, then a reply. */
static void converse(const struct machine *machine, struct decode_cost *cost, int32_t prompt, int32_t reply,
                     double idle)
{
    for (int32_t at = 0; at < prompt; at += 512)
        call(machine, cost, prompt - at < 512 ? prompt - at : 512, at + 256, idle);
    for (int32_t i = 0; i < reply; i++) call(machine, cost, 1, prompt + i, idle);
}

static void assert_near(const struct machine *machine, const char *what, double is, double wanted, double whole)
{
    double most = fmax(0.5 * wanted, 0.05 * whole);
    if (fabs(is - wanted) > most)
        fail_msg("%s, %s: idle cells cost %.1f ms, estimated %.1f", machine->name, what, wanted / 1e6, is / 1e6);
}

/* Conversations that stay, one after the other: what 10,000 idle cells cost a prompt, and a token of a reply. */
static void the_cost_of_idle_cells_is_learned_while_they_gather(void **state_)
{
    (void)state_;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct machine *m = &machines[i];
        struct decode_cost cost = {0};
        state = 1;
        for (int n = 0; n < 12; n++) converse(m, &cost, 2000, 30, 2030.0 * n);
        double prompt = m->call * 2 + m->token * 1000 + m->attended * 1000 * 500, reply = m->call + m->token;
        assert_near(m, "a prompt", decode_cost_of_idle(&cost, 10000, 2, 1000), idle_cost(m, 10000, 2, 1000), prompt);
        assert_near(m, "a reply", decode_cost_of_idle(&cost, 10000, 1, 1), idle_cost(m, 10000, 1, 1), reply);
    }
}

/* Where nothing varies, nothing can be told: then it is not the idle cells. */
static void what_never_changes_is_not_blamed(void **state_)
{
    (void)state_;
    const struct machine *skips = &machines[2];
    struct decode_cost cost = {0};
    state = 2;
    for (int i = 0; i < 3000; i++) call(skips, &cost, 1, 1000, 20000);
    double whole = skips->call + skips->token + skips->attended * 1000;
    assert_true(decode_cost_of_idle(&cost, 20000, 1, 1) < 0.1 * whole);
}

/* A long reply does not make it forget what prompts taught. */
static void prompts_are_remembered_while_replies_are_long(void **state_)
{
    (void)state_;
    const struct machine *m = &machines[0];
    struct decode_cost cost = {0};
    state = 3;
    for (int n = 0; n < 8; n++) converse(m, &cost, 2000, 10, 2000.0 * n);
    for (int i = 0; i < 5000; i++) call(m, &cost, 1, 3000, 16000);
    double whole = m->token * 1000;
    assert_near(m, "a prompt", decode_cost_of_idle(&cost, 10000, 2, 1000), idle_cost(m, 10000, 2, 1000), whole);
}

static void nothing_is_concluded_from_a_few_calls(void **state_)
{
    (void)state_;
    struct decode_cost cost = {0};
    state = 4;
    for (int i = 0; i < 20; i++) call(&machines[0], &cost, 1 + i % 3, 100, 1000 * i);
    assert_true(decode_cost_of_idle(&cost, 10000, 1, 1000) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cost_of_idle_cells_is_learned_while_they_gather),
        cmocka_unit_test(what_never_changes_is_not_blamed),
        cmocka_unit_test(prompts_are_remembered_while_replies_are_long),
        cmocka_unit_test(nothing_is_concluded_from_a_few_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
