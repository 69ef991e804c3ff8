#include "fakes/client.h"

#include "fakes/fake_llm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_event(void *ud, const hearth_event *event)
{
    struct client *client = ud;
    pthread_mutex_lock(&client->mutex);
    switch (event->type) {
    case HEARTH_EVENT_STARTED:
        client->n_started++;
        client->start = *event->result;
        break;
    case HEARTH_EVENT_PROMPT:
    case HEARTH_EVENT_PROGRESS:
        break;
    case HEARTH_EVENT_TEXT:
        if (event->token >= 0) tokens_push(&client->got, event->token);
        buf_append(&client->text, event->text, event->text_len);
        break;
    case HEARTH_EVENT_DONE:
        client->result = *event->result;
        client->n_last_events++;
        break;
    case HEARTH_EVENT_FAILED:
        client->failed = true;
        client->error = *event->error;
        client->n_last_events++;
        break;
    }
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->mutex);
    if (event->type == HEARTH_EVENT_TEXT && client->on_text != NULL) client->on_text(client);
    if (event->type == HEARTH_EVENT_DONE && client->on_done != NULL) client->on_done(client);
}

static void on_end(struct job *job)
{
    struct client *client = (struct client *)job;
    pthread_mutex_lock(&client->mutex);
    client->ended = true;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->mutex);
}

void client_init(struct client *client, int32_t first, size_t n, int32_t max_tokens)
{
    memset(client, 0, sizeof *client);
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->changed, NULL);
    client->job.on_event = on_event;
    client->job.on_end = on_end;
    client->job.ud = client;
    client->job.max_tokens = max_tokens;
    client->job.top_logprobs = -1;
    client->job.cache_prompt = true;
    client->job.sampler = llm_sampler_open(NULL, &(struct llm_sampling){0}, NULL, NULL);
    snprintf(client->job.id, sizeof client->job.id, "client-%d", first);
    for (size_t i = 0; i < n; i++) tokens_push(&client->job.prompt, (first + (int32_t)i) % 190);
}

void client_release(struct client *client)
{
    llm_sampler_close(client->job.sampler);
    tokens_release(&client->job.prompt);
    tokens_release(&client->got);
    buf_release(&client->text);
    pthread_mutex_destroy(&client->mutex);
    pthread_cond_destroy(&client->changed);
}

static void await(struct client *client, bool (*holds)(const struct client *, size_t), size_t n)
{
    pthread_mutex_lock(&client->mutex);
    while (!holds(client, n)) pthread_cond_wait(&client->changed, &client->mutex);
    pthread_mutex_unlock(&client->mutex);
}

static bool has_ended(const struct client *client, size_t n)
{
    (void)n;
    return client->ended;
}

static bool has_tokens(const struct client *client, size_t n)
{
    return client->got.len >= n;
}

static bool has_started(const struct client *client, size_t n)
{
    (void)n;
    return client->n_started > 0;
}

void client_await_end(struct client *client)
{
    await(client, has_ended, 0);
}

void client_await_tokens(struct client *client, size_t n)
{
    await(client, has_tokens, n);
}

void client_await_start(struct client *client)
{
    await(client, has_started, 0);
}

bool client_got_right_reply(struct client *client)
{
    int32_t *expected = malloc((client->got.len + 1) * sizeof *expected);
    int32_t adapted = fake_llm_adapted(client->job.scales, CLIENT_ADAPTERS);
    fake_llm_reply_under(adapted, client->job.prompt.v, client->job.prompt.len, expected, client->got.len);
    bool right = client->got.len == 0 || memcmp(expected, client->got.v, client->got.len * sizeof *expected) == 0;
    free(expected);
    return right;
}
