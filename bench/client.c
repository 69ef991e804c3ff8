/* The HTTP client of the workloads, over libcurl's multi interface on the caller's thread. Timestamps are taken in
 * curl's write callback: tokens that the server sent in one piece have the same time. */
#include "client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <curl/curl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longest wait for the next token: a long prompt takes minutes on a slow machine. */
#define PATIENCE_MS (10 * 60 * 1000)
#define POLL_MS     1000

/* Tokens of single bytes in both kinds of vocabulary; none of them is a control token. */
enum { PROMPT_TOKEN_FIRST = 16, PROMPT_TOKENS = 240 };

struct stream_inside {
    struct stream outside;
    struct stream_inside *next;
    CURL *curl;
    char *body;
    struct buf unread; /* bytes of an event that is not complete, or of an error's reply */
    size_t cap_times;
    hearth_error failure; /* code 0: none */
};

struct client {
    CURLM *multi;
    struct curl_slist *headers;
    char *url, *model; /* model may be NULL */
    struct stream_inside *streams;
};

/* ---- Receiving ---- */

static void note_token(struct stream_inside *s)
{
    struct stream *out = &s->outside;
    if (out->n_times == s->cap_times) {
        s->cap_times = s->cap_times ? 2 * s->cap_times : 256;
        out->times = mem_grow(out->times, s->cap_times, sizeof *out->times);
    }
    out->times[out->n_times++] = clock_now(clock_monotonic());
}

/* The message of {"error":{"message":…}}, or NULL. */
static const char *error_message(const json_t *reply)
{
    return json_string_value(json_object_get(json_object_get(reply, "error"), "message"));
}

static void note_number(const json_t *object, const char *name, int64_t *number)
{
    const json_t *value = json_object_get(object, name);
    if (json_is_integer(value)) *number = json_integer_value(value);
}

/* The text of a chunk of a completion or of a chat, or of an event of Messages or Responses. */
static const char *text_of(const json_t *chunk)
{
    const json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
    const json_t *delta = json_object_get(choice != NULL ? choice : chunk, "delta");
    if (json_is_string(delta)) return json_string_value(delta);
    if (choice == NULL) return json_string_value(json_object_get(delta, "text"));
    return json_string_value(delta != NULL ? json_object_get(delta, "content") : json_object_get(choice, "text"));
}

/* Messages and Responses have no [DONE]. */
static bool ends_stream(const json_t *chunk)
{
    static const char *const types[] = {"message_stop", "response.completed", "response.incomplete"};
    const char *type = json_string_value(json_object_get(chunk, "type"));
    for (size_t i = 0; type != NULL && i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i])) return true;
    return false;
}

static void note_time(const json_t *object, const char *name, double *ms)
{
    const json_t *value = json_object_get(object, name);
    if (json_is_number(value)) *ms = json_number_value(value);
}

/* What Messages and Responses say of a prompt's cost, the one in the event that begins or ends a reply. */
static void note_usage(struct stream_inside *s, const json_t *chunk)
{
    const json_t *response = json_object_get(json_object_get(chunk, "response"), "usage");
    const json_t *message = json_object_get(json_object_get(chunk, "message"), "usage");
    int64_t prompt = -1;
    const json_t *usage = message != NULL ? message : json_object_get(chunk, "usage");
    int64_t kept = 0;
    note_number(usage, "cache_read_input_tokens", &s->outside.n_cached);
    note_number(usage, "input_tokens", &s->outside.n_computed);
    note_number(usage, "cache_creation_input_tokens", &kept);
    s->outside.n_computed += kept;
    note_number(response, "input_tokens", &prompt);
    note_number(json_object_get(response, "input_tokens_details"), "cached_tokens", &s->outside.n_cached);
    if (prompt >= 0) s->outside.n_computed = prompt - s->outside.n_cached;
}

static void read_event(struct stream_inside *s, const char *data)
{
    if (!strcmp(data, "[DONE]")) {
        s->outside.done = true;
        return;
    }
    json_t *chunk = json_loads(data, 0, NULL);
    const char *message = error_message(chunk);
    const char *text = text_of(chunk);
    const json_t *timings = json_object_get(chunk, "timings");
    if (chunk == NULL)
        error_set(&s->failure, HEARTH_INTERNAL, "the server sent an event that is not JSON: %.200s", data);
    else if (message != NULL)
        error_set(&s->failure, HEARTH_INTERNAL, "the server ended a stream with: %.400s", message);
    else if (text != NULL && text[0] != '\0') {
        note_token(s);
        buf_puts(&s->outside.text, text);
    }
    if (ends_stream(chunk)) s->outside.done = true;
    note_usage(s, chunk);
    note_number(timings, "cache_n", &s->outside.n_cached);
    note_number(timings, "prompt_n", &s->outside.n_computed);
    note_time(timings, "queue_ms", &s->outside.queue_ms);
    note_time(timings, "restore_ms", &s->outside.restore_ms);
    json_decref(chunk);
}

/* A line of the event stream; all but data lines (comments, blank lines) are ignored. */
static void read_line(struct stream_inside *s, char *line, size_t len)
{
    if (len > 0 && line[len - 1] == '\r') len--;
    line[len] = '\0';
    if (strncmp(line, "data:", 5) != 0) return;
    read_event(s, line + 5 + (line[5] == ' '));
}

static size_t receive(char *bytes, size_t size, size_t n, void *ud)
{
    struct stream_inside *s = ud;
    long status = 0;
    buf_append(&s->unread, bytes, size * n);
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) return size * n; /* not a stream: read as a whole when it ends */

    size_t read = 0;
    char *end;
    while ((end = memchr(s->unread.v + read, '\n', s->unread.len - read)) != NULL) {
        char *line = s->unread.v + read;
        read_line(s, line, (size_t)(end - line));
        read = (size_t)(end - s->unread.v) + 1;
    }
    buf_drop_front(&s->unread, read);
    return size * n;
}

static void note_refusal(struct stream_inside *s, long status)
{
    json_t *reply = s->unread.v ? json_loads(s->unread.v, 0, NULL) : NULL;
    const char *message = error_message(reply);
    error_set(&s->failure, HEARTH_INVALID, "the server answered %ld: %.400s", status,
              message ? message : "no reason given");
    json_decref(reply);
}

/* The connection's end. */
static void note_end(struct stream_inside *s, CURLcode result)
{
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (s->failure.code != HEARTH_OK || s->outside.done) return;
    if (result != CURLE_OK)
        error_set(&s->failure, HEARTH_IO, "no reply from the server: %s", curl_easy_strerror(result));
    else if (status != 200)
        note_refusal(s, status);
    else
        error_set(&s->failure, HEARTH_IO, "the server closed a stream before its end");
}

/* ---- Progress ---- */

static void collect_ends(struct client *client)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        struct stream_inside *s = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&s);
        note_end(s, message->data.result);
    }
}

static int first_failure(const struct client *client, hearth_error *error)
{
    for (const struct stream_inside *s = client->streams; s != NULL; s = s->next) {
        if (s->failure.code == HEARTH_OK) continue;
        *error = s->failure;
        return s->failure.code;
    }
    return HEARTH_OK;
}

/* Waits for activity on any stream, `ms` at most, then processes all of them. */
static int step(struct client *client, int ms, hearth_error *error)
{
    int running;
    CURLMcode result = curl_multi_poll(client->multi, NULL, 0, ms, NULL);
    if (result == CURLM_OK) result = curl_multi_perform(client->multi, &running);
    if (result != CURLM_OK) return error_set(error, HEARTH_IO, "%s", curl_multi_strerror(result));
    collect_ends(client);
    return first_failure(client, error);
}

/* Until the stream has `n` tokens or is done. */
static int run(struct client *client, const struct stream *stream, size_t n, hearth_error *error)
{
    int64_t patience = clock_from_ms(PATIENCE_MS);
    while (stream->n_times < n && !stream->done) {
        int64_t last = stream->n_times > 0 ? stream->times[stream->n_times - 1] : stream->started;
        if (clock_now(clock_monotonic()) - last > patience)
            return error_set(error, HEARTH_IO, "no token within %d s", PATIENCE_MS / 1000);
        int rc = step(client, POLL_MS, error);
        if (rc != HEARTH_OK) return rc;
    }
    return HEARTH_OK;
}

int client_run_until(struct client *client, int64_t end, hearth_error *error)
{
    int rc = HEARTH_OK;
    int64_t now;
    while (rc == HEARTH_OK && (now = clock_now(clock_monotonic())) < end) {
        double left = ceil(clock_to_ms(end - now));
        rc = step(client, left < POLL_MS ? (int)left : POLL_MS, error);
    }
    return rc;
}

int client_wait(struct client *client, const struct stream *stream, size_t n, hearth_error *error)
{
    int rc = run(client, stream, n, error);
    if (rc == HEARTH_OK && stream->n_times < n)
        return error_set(error, HEARTH_INTERNAL, "a stream ended after %zu tokens, %zu were waited for",
                         stream->n_times, n);
    return rc;
}

int client_finish(struct client *client, const struct stream *stream, hearth_error *error)
{
    return run(client, stream, SIZE_MAX, error);
}

/* ---- Times ---- */

double client_first_ms(const struct stream *s)
{
    return s->n_times == 0 ? NAN : clock_to_ms(s->times[0] - s->started);
}

double client_token_ms(const struct stream *s)
{
    return s->n_times < 2 ? NAN : clock_to_ms(s->times[s->n_times - 1] - s->times[0]) / (double)(s->n_times - 1);
}

/* ---- Requests ---- */

static json_t *make_tokens(const struct tokens *prompt)
{
    json_t *tokens = json_array();
    for (size_t i = 0; i < prompt->len; i++) json_array_append_new(tokens, json_integer(prompt->v[i]));
    return tokens;
}

static char *make_body(const struct client *client, const struct wish *wish)
{
    char reply_token[16];
    if (wish->body != NULL) return mem_strdup(wish->body);
    snprintf(reply_token, sizeof reply_token, "%d", CLIENT_REPLY_TOKEN);
    json_t *body =
        json_pack("{s:i, s:i, s:b, s:b, s:b, s:{s:i}}", "max_tokens", wish->max_tokens, "temperature", 0, "stream", 1,
                  "ignore_eos", 1, "cache_prompt", (int)wish->from_cache, "logit_bias", reply_token, 100);
    if (wish->messages != NULL)
        json_object_set_new(body, "messages", json_loads(wish->messages, 0, NULL));
    else
        json_object_set_new(body, "prompt", make_tokens(wish->prompt));
    if (wish->lora != NULL) json_object_set_new(body, "lora", json_loads(wish->lora, 0, NULL));
    if (client->model != NULL) json_object_set_new(body, "model", json_string(client->model));
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

static const char *route_of(const struct wish *wish)
{
    if (wish->route != NULL) return wish->route;
    return wish->messages != NULL ? "/v1/chat/completions" : "/v1/completions";
}

static CURL *make_request(struct client *client, struct stream_inside *s, const char *route)
{
    CURL *curl = curl_easy_init();
    if (curl == NULL) return NULL;
    char *url = mem_format("%s%s", client->url, route);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, client->headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, s->body); /* borrowed */
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, s);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    free(url);
    return curl;
}

struct stream *client_stream(struct client *client, const struct wish *wish, hearth_error *error)
{
    int running;
    struct stream_inside *s = mem_alloc(sizeof *s);
    s->outside = (struct stream){.n_cached = -1, .n_computed = -1, .queue_ms = NAN, .restore_ms = NAN, .inside = s};
    s->body = make_body(client, wish);
    s->curl = make_request(client, s, route_of(wish));
    s->next = client->streams;
    client->streams = s;

    s->outside.started = clock_now(clock_monotonic());
    if (s->curl == NULL || curl_multi_add_handle(client->multi, s->curl) != CURLM_OK ||
        curl_multi_perform(client->multi, &running) != CURLM_OK) {
        error_set(error, HEARTH_IO, "cannot start a request");
        client_drop(client, &s->outside);
        return NULL;
    }
    return &s->outside;
}

void client_drop(struct client *client, struct stream *stream)
{
    if (stream == NULL) return;
    struct stream_inside *s = stream->inside, **link = &client->streams;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    curl_multi_remove_handle(client->multi, s->curl);
    curl_easy_cleanup(s->curl);
    buf_release(&s->unread);
    buf_release(&s->outside.text);
    free(s->body);
    free(s->outside.times);
    free(s);
}

void client_move(struct client *client, const char *url)
{
    size_t len = strlen(url);
    while (len > 0 && url[len - 1] == '/') len--;
    free(client->url);
    client->url = mem_strndup(url, len);
}

struct client *client_open(const char *url, const char *model, hearth_error *error)
{
    struct client *client = mem_alloc(sizeof *client);
    client_move(client, url);
    client->model = mem_strdup(model);
    client->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) client->multi = curl_multi_init();
    if (client->multi == NULL) {
        error_set(error, HEARTH_INTERNAL, "libcurl cannot be started");
        client_close(client);
        return NULL;
    }
    return client;
}

void client_close(struct client *client)
{
    if (client == NULL) return;
    while (client->streams != NULL) client_drop(client, &client->streams->outside);
    curl_multi_cleanup(client->multi);
    curl_slist_free_all(client->headers);
    curl_global_cleanup();
    free(client->url);
    free(client->model);
    free(client);
}

/* ---- Counters ---- */

/* Polls, since the server does not notify of changed counters. */
#define COUNTER_PAUSE_NS (20 * 1000 * 1000)

static size_t keep(char *bytes, size_t size, size_t n, void *ud)
{
    buf_append(ud, bytes, size * n);
    return size * n;
}

char *client_get(const struct client *client, const char *path)
{
    long status = 0;
    struct buf reply = {0};
    CURL *curl = curl_easy_init();
    if (curl == NULL) return NULL;
    char *url = mem_format("%s%s", client->url, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (curl_easy_perform(curl) == CURLE_OK) curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    free(url);
    if (status == 200) return buf_take(&reply);
    buf_release(&reply);
    return NULL;
}

int64_t client_counter(const struct client *client, const char *name)
{
    int64_t value = -1;
    char *reply = client_get(client, "/cache");
    json_t *counters = reply != NULL ? json_loads(reply, 0, NULL) : NULL;
    note_number(counters, name, &value);
    json_decref(counters);
    free(reply);
    return value;
}

int client_wait_counter(const struct client *client, const char *name, int64_t before, hearth_error *error)
{
    const struct timespec pause = {.tv_nsec = COUNTER_PAUSE_NS};
    int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(CLIENT_STORE_MS);
    while (client_counter(client, name) <= before) {
        if (clock_now(clock_monotonic()) > deadline)
            return error_set(error, HEARTH_INTERNAL, "%s is not counted within %d s", name, CLIENT_STORE_MS / 1000);
        nanosleep(&pause, NULL);
    }
    return HEARTH_OK;
}

/* ---- Prompts ---- */

/* Knuth's MMIX generator. */
static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((*state >> 33) % below);
}

void client_prompt(struct tokens *prompt, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) tokens_push(prompt, PROMPT_TOKEN_FIRST + (int32_t)draw(&seed, PROMPT_TOKENS));
}

/* One token each in the usual vocabularies, with the blank before it. */
static const char *const words[] = {
    "time",   "year",    "people", "way",     "day",      "man",     "thing",      "woman",  "life",  "child", "world",
    "school", "state",   "family", "student", "group",    "country", "problem",    "hand",   "part",  "place", "case",
    "week",   "company", "system", "program", "question", "work",    "government", "number", "night", "point"};

enum { N_WORDS = sizeof words / sizeof words[0] };

void client_words(struct buf *text, long n, uint64_t seed)
{
    for (long i = 0; i < n; i++) buf_printf(text, " %s", words[draw(&seed, N_WORDS)]);
}
