/* The number of threads, against machines with and without other processes. */
#include "fakes/cmocka_all.h"

#include "engine/thread_scaling.h"

#define US 1000LL
#define MS 1000000LL
#define S  1000000000LL

/* A machine, and what a tick costs on it. */
struct machine {
    int32_t cpus, busy;       /* CPUs, and other processes that would each use one */
    int64_t fixed, work;      /* nanoseconds of a tick: the part that threads do not share, and the part that they do */
    int64_t barriers;         /* nanoseconds that more than one thread wait for each other where each has a CPU */
    int64_t descheduled;      /* and what is added where one has none */
    int64_t spent, n[64 + 1]; /* nanoseconds in all; ticks with so many threads */
};

static const struct machine large = {.cpus = 4, .fixed = MS, .work = 36 * MS, .barriers = MS, .descheduled = 200 * MS};
static const struct machine tiny = {
    .cpus = 2, .fixed = 100 * US, .work = 300 * US, .barriers = 200 * US, .descheduled = 4 * MS};

static int64_t price(const struct machine *m, int32_t threads)
{
    int64_t ns = m->fixed + m->work / threads + (threads > 1 ? m->barriers : 0);
    return threads > 1 && threads + m->busy > m->cpus ? ns + m->descheduled : ns;
}

static int64_t best_price(const struct machine *m)
{
    int64_t best = price(m, 1);
    for (int32_t threads = 2; threads <= m->cpus; threads++)
        if (price(m, threads) < best) best = price(m, threads);
    return best;
}

static void observe(struct thread_scaling *scaling, int32_t rows, int64_t ns)
{
    thread_scaling_observe(scaling, &(struct scaling_tick){.n_tokens = rows, .ns = ns});
}

static void tick(struct thread_scaling *scaling, struct machine *m, int32_t rows)
{
    int32_t threads = thread_scaling_threads(scaling, rows);
    int64_t ns = price(m, threads);
    m->n[threads]++;
    m->spent += ns;
    observe(scaling, rows, ns);
}

/* Runs ticks for so long; returns what they took as a multiple of what the best number of threads would have taken. */
static double compute(struct thread_scaling *scaling, struct machine *m, int64_t ns)
{
    int64_t begin = m->spent, best = 0;
    while (m->spent - begin < ns) {
        tick(scaling, m, 1);
        best += best_price(m);
    }
    return (double)(m->spent - begin) / (double)best;
}

static void begin(struct thread_scaling *scaling, struct machine *m, const struct machine *like)
{
    *m = *like;
    thread_scaling_init(scaling, m->cpus, false);
    compute(scaling, m, 2 * S);
}

static void a_quiet_machine_pays_for_one_look_at_the_beginning(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &large);
    assert_in_range(m.n[3] + m.n[2] + m.n[1], 1, 16);
    struct machine before = m;
    assert_true(compute(&scaling, &m, 600 * S) == 1);
    assert_int_equal(m.n[4] - before.n[4], 600 * S / price(&m, 4) + 1);
}

static void a_deepening_context_is_no_busy_machine(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &large);
    struct machine before = m;
    for (int i = 0; i < 20000; i++) {
        m.work += 10 * US;
        tick(&scaling, &m, 1);
    }
    assert_int_equal(m.n[4] - before.n[4], 20000);
}

static void a_conversation_that_is_deeper_at_once_costs_next_to_nothing(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &large);
    int64_t stolen_ns = 0, ideal = 0;
    for (int i = 0; i < 40; i++) { /* back and forth between 11 and 38 ms a tick, for 20 s each */
        m.work = i % 2 == 0 ? 144 * MS : 36 * MS;
        int64_t before = m.spent;
        double times = compute(&scaling, &m, 20 * S);
        ideal += m.spent - before;
        stolen_ns += (int64_t)((double)(m.spent - before) * (1 - 1 / times));
    }
    assert_true((double)stolen_ns < 0.011 * (double)ideal);
}

static void ticks_that_stay_longer_are_soon_as_usual(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &large);
    m.work *= 4;
    compute(&scaling, &m, 60 * S);
    assert_true(compute(&scaling, &m, 600 * S) == 1);
}

static void a_model_so_small_is_computed_by_one_thread(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &tiny);
    assert_int_equal(thread_scaling_threads(&scaling, 1), 1);
    assert_int_equal(thread_scaling_threads(&scaling, 2), 2); /* with two tokens nothing is known yet */
    assert_true(compute(&scaling, &m, 60 * S) < 1.011);
}

static void fewer_threads_where_they_are_nearly_as_fast(void **state)
{
    (void)state;
    struct machine limited = large; /* memory-bound: two threads take 19 ms, three and four 18 */
    limited.fixed = 17 * MS;
    limited.work = 2 * MS;
    limited.barriers = 0;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &limited);
    assert_int_equal(thread_scaling_threads(&scaling, 1), 2);
}

/* Runs ticks until the number of threads settles on this one. */
static int64_t until(struct thread_scaling *scaling, struct machine *m, int32_t threads)
{
    int64_t begin = m->spent, at = begin;
    while (m->spent - begin < 60 * S) {
        tick(scaling, m, 1);
        if (scaling->buckets[1].trial.on || thread_scaling_threads(scaling, 1) == threads) continue;
        at = m->spent;
    }
    assert_int_equal(scaling->threads[scaling->buckets[1].step], threads);
    return at - begin;
}

/* Runs ticks until the number of threads changes, and returns it. */
static int32_t next_choice(struct thread_scaling *scaling, struct machine *m)
{
    int32_t step = scaling->buckets[1].step;
    int64_t begin = m->spent;
    while (scaling->buckets[1].step == step && m->spent - begin < 60 * S) tick(scaling, m, 1);
    return scaling->threads[scaling->buckets[1].step];
}

static void the_cpu_of_another_process_is_left_to_it_and_taken_back(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &large);
    for (int32_t busy = 1; busy <= 3; busy++) {
        int32_t left[] = {4, 3, 2, 1};
        m.busy = busy;
        assert_int_equal(next_choice(&scaling, &m), left[busy]);
        assert_true(until(&scaling, &m, left[busy]) < 2 * S);
        assert_true(compute(&scaling, &m, 60 * S) < 1.02);
        m.busy = 0;
        assert_true(until(&scaling, &m, 4) < 30 * S);
    }
}

static void it_is_so_on_machines_of_all_sizes(void **state)
{
    (void)state;
    for (int32_t cpus = 2; cpus <= 64; cpus++) {
        struct machine like = large;
        like.cpus = cpus;
        like.work = cpus * 12 * MS;
        struct thread_scaling scaling;
        struct machine m;
        begin(&scaling, &m, &like);
        int32_t most = thread_scaling_threads(&scaling, 1); /* of many threads one more or less makes no difference */
        assert_true(most == cpus || (cpus >= 30 && most == cpus - 1));
        m.busy = 1;
        assert_true(until(&scaling, &m, cpus - 1) < 3 * S);
        m.busy = 0;
        assert_true(until(&scaling, &m, most) < 60 * S);
    }
}

static void a_machine_that_was_busy_from_the_beginning_is_used_when_it_is_free(void **state)
{
    (void)state;
    struct machine busy = large;
    busy.busy = 3;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &busy);
    assert_int_equal(thread_scaling_threads(&scaling, 1), 1);
    m.busy = 0;
    assert_true(until(&scaling, &m, 4) < 30 * S);
}

static void single_slow_ticks_change_nothing(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    struct machine m;
    begin(&scaling, &m, &large);
    int64_t stolen_ns = 0;
    for (int i = 0; i < 20000; i++) {
        int32_t threads = thread_scaling_threads(&scaling, 1);
        int64_t ns = price(&m, threads);
        stolen_ns += ns - price(&m, 4);
        if (i % 100 == 99) ns += 100 * MS;
        observe(&scaling, 1, ns);
    }
    assert_int_equal(thread_scaling_threads(&scaling, 1), 4);
    assert_true(stolen_ns < 20000 * price(&m, 4) / 100);
}

/* Ticks of a prompt, no two alike, on so many CPUs with so many other processes, each of which takes half a CPU from
 * the threads that have none for themselves. Returns how many ticks were computed by another number of threads than
 * that. */
static int32_t read_prompts(struct thread_scaling *scaling, int32_t cpus, int32_t busy, int32_t ticks, int32_t threads)
{
    int32_t others = 0;
    for (int i = 0; i < ticks; i++) {
        int32_t rows = SCALING_BUCKETS + i * 37 % 2000, n = thread_scaling_threads(scaling, rows),
                over = n + busy - cpus;
        int64_t ns = (MS + rows * 50 * US) / n + 300 * US, stolen_ns = over > 0 ? over * ns / 2 : 0;
        others += n != threads;
        thread_scaling_observe(
            scaling,
            &(struct scaling_tick){.n_tokens = rows, .ns = ns, .cpu_ns = n * ns - stolen_ns - (n - 1) * 300 * US});
    }
    return others;
}

static void prompts_have_all_threads_on_a_quiet_machine(void **state)
{
    (void)state;
    for (int32_t cpus = 1; cpus <= 64; cpus++) {
        struct thread_scaling scaling;
        thread_scaling_init(&scaling, cpus, false);
        assert_int_equal(read_prompts(&scaling, cpus, 0, 2000, cpus), 0);
    }
}

static void prompts_leave_cpus_to_other_processes_and_take_them_back(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    thread_scaling_init(&scaling, 4, false);
    for (int32_t busy = 1; busy <= 3; busy++) {
        int32_t left[] = {4, 3, 2, 1};
        read_prompts(&scaling, 4, busy, 20, 0);
        assert_in_range(read_prompts(&scaling, 4, busy, 1000, left[busy]), 1, 60); /* checks that it is still so */
        read_prompts(&scaling, 4, 0, 500, 0);
        assert_int_equal(read_prompts(&scaling, 4, 0, 1000, 4), 0);
    }
}

static void one_interruption_takes_no_thread_from_prompts(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    thread_scaling_init(&scaling, 4, false);
    for (int i = 0; i < 20; i++) {
        thread_scaling_observe(&scaling, &(struct scaling_tick){.n_tokens = 1000, .ns = 50 * MS, .cpu_ns = 170 * MS});
        assert_int_equal(read_prompts(&scaling, 4, 0, 20, 4), 0);
    }
}

static void a_fixed_number_stays(void **state)
{
    (void)state;
    struct thread_scaling scaling;
    struct machine m = tiny;
    m.busy = 2;
    thread_scaling_init(&scaling, 2, true);
    compute(&scaling, &m, 10 * S);
    assert_int_equal(m.n[1], 0);
    assert_int_equal(read_prompts(&scaling, 2, 2, 1000, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_machine_pays_for_one_look_at_the_beginning),
        cmocka_unit_test(a_deepening_context_is_no_busy_machine),
        cmocka_unit_test(a_conversation_that_is_deeper_at_once_costs_next_to_nothing),
        cmocka_unit_test(ticks_that_stay_longer_are_soon_as_usual),
        cmocka_unit_test(a_model_so_small_is_computed_by_one_thread),
        cmocka_unit_test(fewer_threads_where_they_are_nearly_as_fast),
        cmocka_unit_test(the_cpu_of_another_process_is_left_to_it_and_taken_back),
        cmocka_unit_test(it_is_so_on_machines_of_all_sizes),
        cmocka_unit_test(a_machine_that_was_busy_from_the_beginning_is_used_when_it_is_free),
        cmocka_unit_test(single_slow_ticks_change_nothing),
        cmocka_unit_test(prompts_have_all_threads_on_a_quiet_machine),
        cmocka_unit_test(prompts_leave_cpus_to_other_processes_and_take_them_back),
        cmocka_unit_test(one_interruption_takes_no_thread_from_prompts),
        cmocka_unit_test(a_fixed_number_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
