#include "fakes/client.h"

#include "base/error.h"
#include "engine/engine.h"
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
    case HEARTH_EVENT_PROMPT_LOGPROBS:
        client->scores = realloc(client->scores, (client->n_scores + 1) * sizeof *client->scores);
        client->scores[client->n_scores++] =
            (struct client_score){event->token, event->logprobs->chosen.log, client->got.len > 0};
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
    client->job.top_logprobs = client->job.prompt_logprobs = -1;
    client->job.cache_prompt = true;
    client->job.draft_max = -1;
    client->job.sampler = llm_sampler_open(NULL, &(struct llm_sampling){0}, NULL, NULL);
    snprintf(client->job.id, sizeof client->job.id, "client-%d", first);
    for (size_t i = 0; i < n; i++) tokens_push(&client->job.prompt, (first + (int32_t)i) % 190);
}

/* ---- Media ---- */

struct media_spans client_spans_of(const struct tokens *tokens)
{
    struct media_spans spans = {0};
    for (int32_t i = 0, end; i < (int32_t)tokens->len; i = end) {
        bool is_row = media_token_is_one(tokens->v[i]);
        for (end = i + 1; end < (int32_t)tokens->len && media_token_is_one(tokens->v[end]) == is_row;) end++;
        struct media_span span = {.at = i, .n = end - i, .n_pos = end - i};
        span.causal = tokens->v[i] % 2 == 0 || span.n > 512; /* n_ubatch */
        if (is_row) media_spans_add(&spans, &span);
    }
    return spans;
}

void client_add_medium(struct tokens *prompt, uint8_t key, int32_t n)
{
    uint8_t hash[32];
    memset(hash, key, sizeof hash);
    media_tokens_append(prompt, hash, n);
}

static enum job_rows rows_of(void *ud, size_t i, struct job_span_rows *rows, hearth_error *error)
{
    struct client *client = ud;
    struct client_media *media = &client->media;
    const struct media_span *span = &client->job.media.spans.v[i];
    if (i >= sizeof media->rows / sizeof *media->rows) abort(); /* the test's fault */
    media->asked[i]++;
    if (media->fails) {
        error_set(error, HEARTH_INVALID, "the image cannot be encoded");
        return JOB_ROWS_FAILED;
    }
    if (media->held) return JOB_ROWS_PENDING;
    if (media->pending > 0) {
        media->pending--;
        engine_poke(client->engine);
        return JOB_ROWS_PENDING;
    }
    if (media->rows[i] == NULL) media->rows[i] = malloc((size_t)span->n * FAKE_WIDTH * sizeof(float));
    for (int32_t k = 0; k < span->n; k++)
        fake_llm_row_of_token(client->job.prompt.v[span->at + k], media->rows[i] + (size_t)k * FAKE_WIDTH);
    *rows = (struct job_span_rows){.v = media->rows[i], .width = FAKE_WIDTH};
    return JOB_ROWS_READY;
}

/* Nothing may read them any more. */
static void forget_rows(void *ud, size_t i)
{
    struct client_media *media = &((struct client *)ud)->media;
    media->computed[i]++;
    free(media->rows[i]);
    media->rows[i] = NULL;
}

void client_find_media(struct client *client)
{
    client->job.media = (struct job_media){
        .spans = client_spans_of(&client->job.prompt), .ud = client, .rows = rows_of, .computed = forget_rows};
}

void client_release(struct client *client)
{
    for (size_t i = 0; i < sizeof client->media.rows / sizeof *client->media.rows; i++) free(client->media.rows[i]);
    media_spans_release(&client->job.media.spans);
    llm_sampler_close(client->job.sampler);
    tokens_release(&client->job.prompt);
    tokens_release(&client->got);
    buf_release(&client->text);
    free(client->scores);
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

bool client_got_right_scores(const struct client *client)
{
    const struct tokens *prompt = &client->job.prompt;
    int32_t adapted = fake_llm_adapted(client->job.scales, CLIENT_ADAPTERS);
    bool right = client->n_scores < prompt->len;
    for (size_t i = 0; right && i < client->n_scores; i++) {
        const struct client_score *score = &client->scores[i];
        int32_t token = prompt->v[i + 1];
        right = score->token == token && !score->behind_text &&
                score->log == fake_llm_logprob(adapted, prompt->v, i + 1, token);
    }
    return right;
}
