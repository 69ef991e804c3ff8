/* The states of an entry: what may follow what is this table, and everything else is stopped by an assertion. */
#include "index_texts.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* A row for the state before, a column for the one after: new, writing, found, detached, unreadable, victim, gone. */
static const char *const allowed[ITEM_STATES] = {
    [ITEM_NEW] = "-wfd---",        [ITEM_WRITING] = "--fd--g", [ITEM_FOUND] = "---duvg", [ITEM_DETACHED] = "--f-uvg",
    [ITEM_UNREADABLE] = "---d-vg", [ITEM_VICTIM] = "--fd--g",  [ITEM_GONE] = "-------",
};

/* In a process of its own, which an assertion may end. */
static bool is_stopped(struct index *index, enum item_state from, enum item_state to)
{
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        struct item *item = container_of(struct item, link, hash_any(&index->items, &(size_t){0}));
        index_lock(index);
        item->state = (uint8_t)from;
        item_enter(index, item, to);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void no_other_change_of_state_is_made(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip(); /* there are no assertions */
#endif
    struct index *index = open_index(100);
    put(index, 0, "abc", 1);
    for (enum item_state from = ITEM_NEW; from < ITEM_STATES; from++)
        for (enum item_state to = ITEM_NEW; to < ITEM_STATES; to++)
            if (is_stopped(index, from, to) != (allowed[from][to] == '-'))
                fail_msg("from %d to %d: not as in the table", (int)from, (int)to);
    close_quiet(index);
}

static void expect_states(struct index *index, size_t found, size_t detached, size_t unreadable, size_t victims)
{
    index_check(index);
    assert_int_equal(index->n_states[ITEM_FOUND], found);
    assert_int_equal(index->n_states[ITEM_DETACHED], detached);
    assert_int_equal(index->n_states[ITEM_UNREADABLE], unreadable);
    assert_int_equal(index->n_states[ITEM_VICTIM], victims);
}

static struct victim *drop(struct index *index, const char *text)
{
    struct slab_key key = key_of_text(text);
    struct victim *victim = index_drop_named(index, &key, SLAB_ROWS);
    assert_non_null(victim);
    return victim;
}

/* Every change of the table, by what the index is asked to do. */
static void an_entry_goes_through_all_states(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    index_cancel(index, begin(index, 0, "abc", 1)); /* new, writing, gone */
    put(index, 0, "abc", 1);                        /* writing, found */
    struct reservation *child = begin(index, 3, "abcdef", 1);
    struct victim *root = drop(index, "abc");             /* found, victim */
    assert_null(index_publish(index, child, 1, NULL, 1)); /* writing, detached */
    expect_states(index, 0, 1, 0, 1);
    index_reinstate(index, root, false); /* victim, found; detached, found */
    expect_states(index, 2, 0, 0, 0);
    struct entry *leaf = pin(index, "abcdef"), *first = leaf->parent;
    index_mark_unreadable(index, first, 0); /* found, unreadable; found, detached */
    index_mark_unreadable(index, leaf, 0);  /* detached, unreadable */
    expect_states(index, 0, 0, 2, 0);
    index_unpin(index, leaf);
    root = drop(index, "abc");                /* unreadable, victim */
    index_retry_unreadable(index, INT64_MAX); /* unreadable, detached */
    expect_states(index, 0, 1, 0, 1);
    struct victim *last = drop(index, "abcdef"); /* detached, victim */
    index_reinstate(index, last, false);         /* victim, detached */
    index_deleted(index, root);                  /* victim, gone */
    expect_states(index, 0, 1, 0, 0);
    assert_true(adopt(index, SLAB_ROWS, NULL, 0, "xyz", 1, 1));     /* new, found */
    assert_true(adopt(index, SLAB_ROWS, "gone", 4, "gone!", 1, 1)); /* new, detached */
    put(index, 0, "gone", 1);                                       /* detached, found */
    first = pin(index, "gone");
    index_mark_unreadable(index, first, 0);
    index_unpin(index, first);
    put(index, 0, "gone", 1); /* unreadable, gone: replaced */
    expect_rows(index, "gone!", 5);
    put(index, 0, "abc", 1);
    first = pin(index, "abc");
    index_mark_unreadable(index, first, 0);
    index_unpin(index, first);
    struct reservation *again = begin(index, 0, "abc", 1);
    index_retry_unreadable(index, INT64_MAX);
    index_unpin(index, index_publish(index, again, 1, NULL, 1)); /* detached, gone: replaced */
    expect_states(index, 5, 0, 0, 0);
    close_quiet(index); /* found, gone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_other_change_of_state_is_made),
        cmocka_unit_test(an_entry_goes_through_all_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
