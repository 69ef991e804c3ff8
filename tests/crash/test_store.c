/* Crash safety: a process that saves is killed before and after its Nth system call, for every N until it ends by
 * itself. The next process finds only whole slabs with the right tokens, and everything that was reported as durable.
 */
#include "base/log.h"
#include "fakes/cmocka_all.h"
#include "fakes/fake_files.h"
#include "fakes/store_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LISTS = 2, TOKENS = 60 };

/* What a process does, and what is expected after it was killed. */
struct workload {
    enum store_tier tier;
    bool has_state;
    uint64_t quota;
    void (*before)(struct rig *rig, const struct tokens *lists); /* runs in the parent process, before */
    bool damaged;                                                /* some files were damaged before */
    bool evicts;
};

/* Shared with the child: tokens of each list that were durable before it was killed; evictions, at its end. */
static int32_t *durable;
static int kills;

static int n_threads_at_start;

/* ---- The process that is killed ---- */

/* Two conversations with a common prefix, which grow and are read in between. */
static struct tokens list_number(size_t i)
{
    struct tokens t = some_tokens(1, TOKENS);
    for (size_t k = 20; k < TOKENS; k++) t.v[k] += (int32_t)i;
    return t;
}

static void save_and_read(struct rig *rig, const struct tokens *lists)
{
    for (int32_t n = TOKENS / 2; n <= TOKENS; n += TOKENS / 2)
        for (size_t i = 0; i < LISTS; i++) {
            rig_keep(rig, lists[i].v, n);
            durable[i] = n;
            if (i == 0) rig_restore(rig, lists[i].v, n);
        }
}

static void live_and_die(struct rig *rig, const struct tokens *lists, struct fake_fault fault)
{
    static struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    fake_faults_set(&faults, fault);
    rig->params.files = &faults.files;
    rig_start(rig);
    save_and_read(rig, lists);
    durable[LISTS] = (int32_t)rig_status(rig).evictions;
    rig_stop(rig);
    _exit(0);
}

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    assert_non_null(tasks);
    while (readdir(tasks) != NULL) n++;
    closedir(tasks);
    return n;
}

/* The store's threads are detached, and may still be ending after store_close(). A child forked meanwhile would inherit
 * locks of a sanitizer that are held, for ever. */
static void wait_for_threads(void)
{
    while (count_threads() > n_threads_at_start) sched_yield();
}

/* Returns whether it was killed. */
static bool run_child(struct rig *rig, const struct tokens *lists, struct fake_fault fault)
{
    int status;
    memset(durable, 0, (LISTS + 1) * sizeof *durable);
    wait_for_threads();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) live_and_die(rig, lists, fault);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    kills++;
    return true;
}

/* ---- The next process ---- */

static void check(struct rig *rig, const struct workload *workload, const struct tokens *lists)
{
    size_t files;
    uint64_t left = rig_folder_bytes(rig, NULL);
    rig_start(rig);
    for (size_t i = 0; i < LISTS; i++) {
        int32_t found = rig_found(rig, lists[i].v, TOKENS), restored = rig_restore(rig, lists[i].v, TOKENS);
        assert_true(restored >= 0);
        if (workload->damaged) continue;
        assert_int_equal(restored, found);
        if (!workload->evicts) assert_true(restored >= durable[i]);
    }
    const struct store_stats *stats = store_stats(rig->store);
    if (!workload->damaged) {
        struct store_tier_status status = rig_status(rig);
        assert_int_equal(metric_get(&stats->corrupt_files), 0);
        assert_int_equal(rig_folder_bytes(rig, &files), status.bytes);
        assert_int_equal(files, status.entries);
        assert_true(left <= workload->quota);
    }
    /* Damage is noticed when a slab is used; then the slab is stored again, and its descendants are found again, of
     * which one may be damaged as well: there are two. */
    for (int i = 0; i < (workload->damaged ? 3 : 1); i++) {
        rig_keep(rig, lists[LISTS - 1].v, TOKENS);
        if (rig_restore(rig, lists[LISTS - 1].v, TOKENS) == TOKENS) break;
        assert_true(workload->damaged);
    }
    assert_int_equal(rig_restore(rig, lists[LISTS - 1].v, TOKENS), TOKENS);
    rig_stop(rig);
}

/* Returns whether it was killed. */
static bool run_once(const struct workload *workload, const struct tokens *lists, struct fake_fault fault)
{
    struct rig rig;
    rig_init(&rig, workload->tier);
    rig.params.tiers[workload->tier].quota = workload->quota;
    rig.user.user.codec.has_state = workload->has_state;
    if (workload->before != NULL) workload->before(&rig, lists);
    bool killed = run_child(&rig, lists, fault);
    check(&rig, workload, lists);
    rig_release(&rig);
    return killed;
}

static void at_every_call(const struct workload *workload)
{
    struct tokens lists[LISTS];
    for (size_t i = 0; i < LISTS; i++) lists[i] = list_number(i);
    static const enum fake_effect effects[] = {FAKE_KILL_BEFORE, FAKE_KILL_AFTER};
    for (size_t e = 0; e < 2; e++) {
        struct fake_fault fault = {.call = FAKE_ANY_CALL, .nth = 1, .effect = effects[e]};
        while (run_once(workload, lists, fault)) fault.nth++;
        assert_true(fault.nth > 100);
        assert_int_equal(durable[LISTS] > 0, workload->evicts);
    }
    for (size_t i = 0; i < LISTS; i++) tokens_release(&lists[i]);
}

/* ---- Workloads ---- */

static void conversations_survive(void **state)
{
    (void)state;
    at_every_call(&(struct workload){.tier = STORE_DISK, .quota = 1 << 20});
}

static void states_survive(void **state)
{
    (void)state;
    at_every_call(&(struct workload){.tier = STORE_RAM_FILE, .has_state = true, .quota = 1 << 20});
}

static void eviction_survives(void **state)
{
    (void)state;
    at_every_call(&(struct workload){.tier = STORE_RAM_FILE, .quota = 3600, .evicts = true});
}

static void damage_first(void *ud, const char *path)
{
    bool *done = ud;
    if (*done) return;
    *done = truncate(path, 100) == 0;
}

static void damage_last_byte(void *ud, const char *path)
{
    (void)ud;
    FILE *file = fopen(path, "r+");
    fseek(file, -30, SEEK_END);
    fputc('x', file);
    fclose(file);
}

/* Damages two files: one is cut short, of the other a byte of the payload is changed. */
static void leave_damage(struct rig *rig, const struct tokens *lists)
{
    bool done = false;
    rig_start(rig);
    rig_keep(rig, lists[0].v, 16);
    rig_stop(rig);
    rig_each_file(rig, damage_last_byte, NULL);
    rig_start(rig);
    rig_keep(rig, lists[1].v, TOKENS);
    rig_stop(rig);
    rig_each_file(rig, damage_first, &done);
}

static void quarantine_survives(void **state)
{
    (void)state;
    at_every_call(
        &(struct workload){.tier = STORE_RAM_FILE, .quota = 1 << 20, .before = leave_damage, .damaged = true});
}

static void a_thousand_were_killed(void **state)
{
    (void)state;
    assert_in_range(kills, 1000, 100000);
}

static void *do_nothing(void *ud)
{
    return ud;
}

/* A sanitizer starts a thread of its own with the first thread. */
static void note_threads(void)
{
    pthread_t first;
    if (pthread_create(&first, NULL, do_nothing, NULL) != 0 || pthread_join(first, NULL) != 0) abort();
    n_threads_at_start = count_threads();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_survive),  cmocka_unit_test(states_survive),
        cmocka_unit_test(eviction_survives),      cmocka_unit_test(quarantine_survives),
        cmocka_unit_test(a_thousand_were_killed),
    };
    log_open(NULL, "error", "text", NULL);
    note_threads();
    durable = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
