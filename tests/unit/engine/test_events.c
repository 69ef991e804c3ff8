/* The events of a request beside its text: logprobs, the result so far, the prefill's progress; and how a reply ends
 * whose time is over, or that no token of its grammar can continue. */
#include "rig.h"

#include "base/log.h"

/* A client that reads the events. */
struct watcher {
    struct client client; /* first */
    void (*deliver)(void *ud, const hearth_event *event);
    int n_progress;
    hearth_result progress[32], last_text;
    int n_logprobs;
    double log;     /* logprob of the last sampled token */
    size_t n_top;   /* tokens of its top logprobs */
    bool all_agree; /* the token of each event is the one that its logprobs are about */
};

static void on_event(void *ud, const hearth_event *event)
{
    struct watcher *w = ud;
    if (event->type == HEARTH_EVENT_PROGRESS && w->n_progress < 32) w->progress[w->n_progress++] = *event->result;
    if (event->type == HEARTH_EVENT_TEXT) w->last_text = *event->result;
    if (event->type == HEARTH_EVENT_TEXT && event->logprobs != NULL) {
        w->n_logprobs++;
        w->log = event->logprobs->chosen.log;
        w->n_top = event->logprobs->n_top;
        w->all_agree = w->all_agree && event->logprobs->chosen.token == event->token;
    }
    w->deliver(ud, event);
}

static void watch(struct watcher *w, int32_t first, size_t n_prompt, int32_t max_tokens)
{
    *w = (struct watcher){.all_agree = true};
    client_init(&w->client, first, n_prompt, max_tokens);
    w->deliver = w->client.job.on_event;
    w->client.job.on_event = on_event;
}

static void logprobs_come_with_every_token_and_only_where_they_are_asked_for(void **state)
{
    struct rig *rig = *state;
    struct watcher w;
    open_engine(rig, (struct shape){.slots = 1, .window = 500});
    for (int n_top = -1; n_top <= 5; n_top += 3) {
        watch(&w, 5, 20, 7);
        w.client.job.top_logprobs = n_top;
        run_alone(rig, &w.client);
        assert_int_equal(w.n_logprobs, n_top < 0 ? 0 : 7);
        assert_true(w.all_agree);
        if (n_top >= 0) assert_int_equal(w.n_top, n_top);
        if (n_top >= 0) assert_true(w.log == -1);
        client_release(&w.client);
    }
    watch(&w, 5, 20, 7);
    w.client.job.top_logprobs = 0;
    w.client.job.post_sampling_probs = true;
    run_alone(rig, &w.client);
    assert_int_equal(w.n_logprobs, 7);
    assert_true(w.log == -2 && w.n_top == 0);
    client_release(&w.client);
}

static void text_events_have_the_result_so_far(void **state)
{
    struct rig *rig = *state;
    struct watcher w;
    fake_llm.call_ns = 1000000;
    open_engine(rig, (struct shape){.slots = 1, .window = 500});
    watch(&w, 5, 20, 7);
    run_alone(rig, &w.client);
    assert_int_equal(w.last_text.predicted_n, 7);
    assert_int_equal(w.last_text.prompt_n, 20);
    assert_true(w.last_text.predicted_ms == w.client.result.predicted_ms && w.last_text.predicted_ms >= 6);
    assert_true(w.last_text.prompt_ms == w.client.result.prompt_ms);
    client_release(&w.client);
}

/* The first event tells what is reused, as llama-server's does, and those after it count up from there. */
static void progress_is_emitted_from_what_is_cached_to_the_whole_prompt(void **state)
{
    struct rig *rig = *state;
    struct watcher w;
    open_engine(rig, (struct shape){.slots = 1, .window = 3000});
    watch(&w, 5, 1200, 3);
    w.client.job.progress = true;
    run_alone(rig, &w.client);
    assert_int_equal(w.n_progress, 4); /* 512 tokens a call */
    assert_int_equal(w.progress[0].cache_n + w.progress[0].prompt_n, 0);
    assert_true(w.progress[0].prompt_ms == 0);
    for (int i = 1; i < 4; i++) assert_true(w.progress[i].prompt_n > w.progress[i - 1].prompt_n);
    assert_int_equal(w.progress[3].prompt_n, 1200);
    assert_int_equal(w.progress[3].predicted_n, 0);
    client_release(&w.client);

    watch(&w, 5, 1201, 3); /* most of it is cached */
    w.client.job.progress = true;
    run_alone(rig, &w.client);
    assert_int_equal(w.n_progress, 2);
    assert_int_equal(w.progress[0].prompt_n, 0);
    assert_int_equal(w.progress[1].cache_n + w.progress[1].prompt_n, 1201);
    assert_int_equal(w.progress[0].cache_n, w.progress[1].cache_n);
    assert_true(w.progress[0].cache_n > 1000);
    client_release(&w.client);

    watch(&w, 5, 1200, 3);
    run_alone(rig, &w.client);
    assert_int_equal(w.n_progress, 0);
    client_release(&w.client);
}

static void special_tokens_have_a_text_where_the_format_needs_it(void **state)
{
    struct rig *rig = *state;
    struct watcher w;
    int32_t reply[4];
    open_engine(rig, (struct shape){.slots = 1, .window = 500});
    watch(&w, 5, 20, 4);
    fake_llm_reply(w.client.job.prompt.v, 20, reply, 4);
    w.client.job.shown = &reply[2];
    w.client.job.n_shown = 1;
    run_alone(rig, &w.client);
    for (int i = 0; i < 4; i++)
        assert_int_equal(w.client.text.v[i], (reply[i] == reply[2] ? 'A' : 'a') + reply[i] % 26);
    client_release(&w.client);
}

static void a_reply_without_time_ends_with_its_line(void **state)
{
    struct rig *rig = *state;
    struct watcher w;
    int32_t reply[40];
    fake_llm.call_ns = 1000000;
    open_engine(rig, (struct shape){.slots = 1, .window = 500});
    watch(&w, 5, 20, 40);
    fake_llm_reply(w.client.job.prompt.v, 20, reply, 40);
    fake_llm.newline = reply[30];
    int first = 0;
    while (reply[first] != reply[30] || first <= 10) first++; /* the first line to end after 10 ms */
    w.client.job.max_ns = 10 * fake_llm.call_ns;
    run_alone(rig, &w.client);
    assert_int_equal(w.client.result.predicted_n, first + 1);
    assert_int_equal(w.client.result.finish, HEARTH_FINISH_LENGTH);
    client_release(&w.client);

    watch(&w, 5, 20, 8); /* a line that ends in time does not end the reply */
    fake_llm.newline = reply[3];
    w.client.job.max_ns = 10 * fake_llm.call_ns;
    run_alone(rig, &w.client);
    assert_int_equal(w.client.result.predicted_n, 8);
    client_release(&w.client);
}

static void a_request_fails_by_itself_where_no_token_fits_its_grammar(void **state)
{
    struct rig *rig = *state;
    struct watcher w, other;
    open_engine(rig, (struct shape){.slots = 2, .window = 500});
    fake_llm.fail_after = 3;
    watch(&w, 5, 20, 7);
    watch(&other, 60, 20, 2);
    engine_submit(rig->engine, &other.client.job);
    run_alone(rig, &w.client);
    client_await_end(&other.client);
    assert_true(w.client.failed);
    assert_int_equal(w.client.error.code, HEARTH_INVALID);
    assert_string_equal(w.client.error.param, "grammar");
    assert_int_equal(w.client.got.len, 3);
    assert_false(other.client.failed);
    client_release(&w.client);
    client_release(&other.client);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        engine_test(logprobs_come_with_every_token_and_only_where_they_are_asked_for),
        engine_test(text_events_have_the_result_so_far),
        engine_test(progress_is_emitted_from_what_is_cached_to_the_whole_prompt),
        engine_test(special_tokens_have_a_text_where_the_format_needs_it),
        engine_test(a_reply_without_time_ends_with_its_line),
        engine_test(a_request_fails_by_itself_where_no_token_fits_its_grammar),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
