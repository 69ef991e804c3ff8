/* Heap allocations of the engine's thread: none for a token of a prompt, few for a token of a reply. The test counts
 * the calls of malloc, calloc and realloc on that thread, including those of the fake model. */
#include "fakes/sanitized.h"
#include "rig.h"

#include "base/log.h"

#include <stdio.h>

enum {
    SHORT_PROMPT = 400,
    LONG_PROMPT = 4000,
    REPLY = 100,
    DOUBLINGS = 4, /* of a list that grows from the short prompt's size to the long one's */
    LISTS = 4,     /* that hold a prompt: the engine's tokens; the fake's tokens, cells and owners of cells */
    MOST_FOR_A_TOKEN = 0
};

/* ---- Counting ---- */

#define exported __attribute__((visibility("default"))) /* libc and the sanitizers are to find it */

static _Thread_local size_t n_allocations;

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
/* Sanitizers have an allocator of their own, and call this hook when it is used. */

exported void __sanitizer_malloc_hook(const volatile void *block, size_t size);
void __sanitizer_malloc_hook(const volatile void *block, size_t size)
{
    (void)block;
    (void)size;
    n_allocations++;
}

#else
/* Interposed before glibc's functions, for libc's own calls too. The blocks are glibc's, and so is free(). */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

exported void *malloc(size_t size)
{
    n_allocations++;
    return __libc_malloc(size);
}

exported void *calloc(size_t count, size_t size)
{
    n_allocations++;
    return __libc_calloc(count, size);
}

exported void *realloc(void *block, size_t size)
{
    n_allocations++;
    return __libc_realloc(block, size);
}

#endif

/* ---- A client that reads the count ---- */

struct observer {
    struct client client; /* first */
    void (*deliver)(void *ud, const hearth_event *event);
    size_t at_first_token, at_last_token, at_end; /* since the thread began, without what the client itself allocated */
    size_t most_for_a_token;
};

static void note_token(struct observer *o)
{
    size_t took = n_allocations - o->at_last_token;
    if (o->at_first_token == 0)
        o->at_first_token = n_allocations;
    else if (took > o->most_for_a_token)
        o->most_for_a_token = took;
    o->at_last_token = n_allocations;
}

/* On the engine's thread, whose count continues as if the client had not been called. */
static void on_event(void *ud, const hearth_event *event)
{
    struct observer *o = ud;
    if (event->type == HEARTH_EVENT_TEXT) note_token(o);
    if (event->type == HEARTH_EVENT_DONE) o->at_end = n_allocations;
    size_t n = n_allocations;
    o->deliver(ud, event);
    n_allocations = n;
}

static struct observer observe(struct rig *rig, int32_t first, size_t n_prompt)
{
    struct observer o = {0};
    client_init(&o.client, first, n_prompt, REPLY);
    o.deliver = o.client.job.on_event;
    o.client.job.on_event = on_event;
    o.client.job.ud = &o;
    run_alone(rig, &o.client);
    assert_int_equal(o.client.result.prompt_n, n_prompt);
    assert_int_equal(o.client.got.len, REPLY);
    client_release(&o.client);
    return o;
}

/* ---- Tests ---- */

static struct observer observe_in_a_new_engine(struct rig *rig, size_t n_prompt)
{
    open_engine(rig, (struct shape){.slots = 1, .window = 9000});
    struct observer o = observe(rig, 5, n_prompt);
    engine_close(rig->engine);
    rig->engine = NULL;
    return o;
}

static void lists_of_a_new_engine_grow_by_doubling_and_nothing_grows_with_the_prompt(void **state)
{
    struct observer few = observe_in_a_new_engine(*state, SHORT_PROMPT);
    struct observer many = observe_in_a_new_engine(*state, LONG_PROMPT);
    assert_true(few.at_first_token > 0); /* allocations are seen at all */
    assert_in_range(many.at_first_token, few.at_first_token, few.at_first_token + LISTS * DOUBLINGS);
}

/* An engine whose lists are large enough already: what it allocates then, it allocates once for a request. */
static void warm_up(struct rig *rig, struct observer *last)
{
    open_engine(rig, (struct shape){.slots = 1, .window = 9000});
    *last = observe(rig, 5, 2 * LONG_PROMPT + SHORT_PROMPT);
}

static void a_prompt_ten_times_as_long_costs_not_one_allocation_more(void **state)
{
    struct observer warm, few, many;
    warm_up(*state, &warm);
    few = observe(*state, 60, SHORT_PROMPT);
    many = observe(*state, 120, LONG_PROMPT);
    assert_true(fake_llm.calls > 10); /* and that is several batches against one */
    assert_int_equal(many.at_first_token - few.at_end, few.at_first_token - warm.at_end);
}

static void a_token_of_a_reply_costs_no_allocation(void **state)
{
    struct observer warm, o;
    warm_up(*state, &warm);
    o = observe(*state, 60, SHORT_PROMPT);
    assert_in_range(o.most_for_a_token, 0, MOST_FOR_A_TOKEN);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        engine_test(lists_of_a_new_engine_grow_by_doubling_and_nothing_grows_with_the_prompt),
        engine_test(a_prompt_ten_times_as_long_costs_not_one_allocation_more),
        engine_test(a_token_of_a_reply_costs_no_allocation),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
