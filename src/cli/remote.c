/* The HTTP client of commands: see remote.h. */
#include "cli/remote.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "cli/args.h"

#include <curl/curl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Seconds. A POST may have megabytes to send, and wait in the server's admission queue. */
#define CONNECT_TIMEOUT 10L
#define GET_TIMEOUT     10L
#define POST_TIMEOUT    300L

#define NS_PER_S        1000000000LL

struct remote remote_open(const char *url)
{
    size_t len = strlen(url);
    const char *key = getenv("HEARTH_API_KEY");
    while (len > 0 && url[len - 1] == '/') len--;
    if (len > 3 && strncmp(url + len - 3, "/v1", 3) == 0) len -= 3;
    while (len > 0 && url[len - 1] == '/') len--;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    return (struct remote){.url = mem_strndup(url, len), .key = key != NULL ? key : "none", .wakes = -1};
}

void remote_close(struct remote *remote)
{
    free(remote->url);
    curl_global_cleanup();
}

/* ---- Responses as they arrive ---- */

struct remote_stream {
    CURLM *multi;
    CURL *curl;
    struct curl_slist *headers;
    struct buf arrived;  /* of the body, and not yet taken */
    size_t total;        /* bytes of the body so far */
    int64_t silence;     /* ns; 0: any time */
    int64_t moved, when; /* bytes sent and received, and when these grew (monotonic, ns) */
    bool ended;
    char fault[CURL_ERROR_SIZE];
};

/* libcurl's CURLOPT_WRITEFUNCTION: less than all of it ends the exchange. */
static size_t take_bytes(char *bytes, size_t size, size_t n, void *ud)
{
    struct remote_stream *stream = ud;
    stream->total += size * n;
    if (stream->total > REMOTE_MOST) return 0;
    buf_append(&stream->arrived, bytes, size * n);
    return size * n;
}

static void set_options(struct remote_stream *stream, const struct remote *remote, const struct remote_request *request)
{
    CURL *curl = stream->curl;
    char *url = mem_format("%s%s", remote->url, request->path);
    char *key = mem_format("Authorization: Bearer %s", remote->key);
    stream->headers = curl_slist_append(curl_slist_append(NULL, key), "Content-Type: application/json");
    const char *authorities = getenv("SSL_CERT_FILE"); /* as OpenSSL's own programs read it */
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, stream->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, stream);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, stream->fault);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, request->whole_s);
    if (authorities != NULL && authorities[0] != '\0') curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
    if (request->body != NULL) {
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, buf_text(request->body));
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body->len);
    }
    free(key);
    free(url);
}

struct remote_stream *remote_stream_open(const struct remote *remote, const struct remote_request *request)
{
    struct remote_stream *stream = mem_alloc(sizeof *stream);
    *stream = (struct remote_stream){.multi = curl_multi_init(),
                                     .curl = curl_easy_init(),
                                     .silence = request->silence_s * NS_PER_S,
                                     .when = clock_now(clock_monotonic())};
    set_options(stream, remote, request);
    curl_multi_add_handle(stream->multi, stream->curl);
    return stream;
}

bool remote_stream_wait(struct remote_stream *stream, int fd)
{
    struct curl_waitfd other = {.fd = fd, .events = CURL_WAIT_POLLIN};
    int running = 0;
    if (stream->ended) return false;
    /* Milliseconds until there may be something to do. libcurl knows its own time limits. */
    const int64_t left = (stream->when + stream->silence - clock_now(clock_monotonic())) / 1000000 + 1;
    const int patience = stream->silence == 0 || left > INT_MAX ? INT_MAX : left > 0 ? (int)left : 0;
    curl_multi_poll(stream->multi, &other, fd >= 0, patience, NULL);
    if (curl_multi_perform(stream->multi, &running) != CURLM_OK || running == 0) {
        int left_over;
        const CURLMsg *message = curl_multi_info_read(stream->multi, &left_over);
        const CURLcode code = message != NULL ? message->data.result : CURLE_FAILED_INIT;
        stream->ended = true;
        if (code == CURLE_OK)
            stream->fault[0] = '\0'; /* that of an address before the one that answered */
        else if (stream->total > REMOTE_MOST)
            snprintf(stream->fault, sizeof stream->fault, "the response has more than %u MiB", REMOTE_MOST >> 20);
        else if (stream->fault[0] == '\0')
            snprintf(stream->fault, sizeof stream->fault, "%s", curl_easy_strerror(code));
    } else { /* one in which nothing has moved for too long ends, too */
        curl_off_t sent = 0, received = 0;
        long head = 0;
        curl_easy_getinfo(stream->curl, CURLINFO_SIZE_UPLOAD_T, &sent);
        curl_easy_getinfo(stream->curl, CURLINFO_SIZE_DOWNLOAD_T, &received);
        curl_easy_getinfo(stream->curl, CURLINFO_HEADER_SIZE, &head);
        const int64_t moved = sent + received + head, now = clock_now(clock_monotonic());
        if (moved != stream->moved) {
            stream->moved = moved;
            stream->when = now;
        } else if (stream->silence > 0 && now - stream->when >= stream->silence) {
            stream->ended = true;
            snprintf(stream->fault, sizeof stream->fault, "nothing came for %lld seconds",
                     (long long)(stream->silence / NS_PER_S));
        }
    }
    return !stream->ended;
}

void remote_stream_take(struct remote_stream *stream, struct buf *out)
{
    buf_append(out, buf_text(&stream->arrived), stream->arrived.len);
    buf_clear(&stream->arrived);
}

long remote_stream_status(const struct remote_stream *stream)
{
    long status = 0;
    curl_easy_getinfo(stream->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

const char *remote_stream_type(const struct remote_stream *stream)
{
    char *type = NULL;
    curl_easy_getinfo(stream->curl, CURLINFO_CONTENT_TYPE, &type);
    return type != NULL ? type : "";
}

const char *remote_stream_fault(const struct remote_stream *stream)
{
    return stream->ended ? stream->fault : "";
}

void remote_stream_close(struct remote_stream *stream)
{
    if (stream == NULL) return;
    curl_multi_remove_handle(stream->multi, stream->curl);
    curl_easy_cleanup(stream->curl);
    curl_multi_cleanup(stream->multi);
    curl_slist_free_all(stream->headers);
    buf_release(&stream->arrived);
    free(stream);
}

/* ---- Whole responses ---- */

static bool is_stopped(const struct remote *remote)
{
    return remote->is_stopped != NULL && remote->is_stopped();
}

/* `fault` has CURL_ERROR_SIZE bytes. */
static long ask(const struct remote *remote, const char *path, const struct buf *body, struct buf *answer, char *fault)
{
    const struct remote_request request = {
        .path = path, .body = body, .whole_s = body == NULL ? GET_TIMEOUT : POST_TIMEOUT};
    struct remote_stream *stream = remote_stream_open(remote, &request);
    bool ends = false;
    while (!ends) ends = !remote_stream_wait(stream, remote->wakes) || is_stopped(remote);
    if (!stream->ended) snprintf(stream->fault, sizeof stream->fault, "stopped");
    remote_stream_take(stream, answer);
    memcpy(fault, stream->fault, sizeof stream->fault);
    const long status = fault[0] == '\0' ? remote_stream_status(stream) : 0;
    remote_stream_close(stream);
    return status;
}

long remote_ask(const struct remote *remote, const char *path, const struct buf *body, struct buf *answer)
{
    char fault[CURL_ERROR_SIZE];
    return ask(remote, path, body, answer, fault);
}

json_t *remote_ask_json(const struct remote *remote, const char *path, const json_t *body, hearth_error *error)
{
    char fault[CURL_ERROR_SIZE], *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    struct buf sent = {0}, answer = {0};
    buf_puts(&sent, text != NULL ? text : "");
    free(text);
    const long status = ask(remote, path, body != NULL ? &sent : NULL, &answer, fault);
    json_t *json = status == 200 ? json_loadb(buf_text(&answer), answer.len, 0, NULL) : NULL;
    if (json == NULL) remote_refuse(remote, &(struct remote_reply){path, status, &answer, fault}, error);
    buf_release(&answer);
    buf_release(&sent);
    return json;
}

/* ---- Refusals ---- */

int remote_refuse_model(const json_t *models, const char *what, const char *name, hearth_error *error)
{
    struct args_list names = {0};
    struct buf list = {0};
    for (size_t i = 0; i < json_array_size(models); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(models, i), "id"));
        args_append(&names, id != NULL ? id : "");
        buf_printf(&list, "%s%s", i > 0 ? ", " : "", names.v[i]);
    }
    const char *nearest = nearest_name(name, names.v, names.len);
    error_at(error, HEARTH_NOT_FOUND, "model", "%s '%s'%s%s%s; there is: %.300s", what, name,
             nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "",
             list.len > 0 ? list.v : "none");
    buf_release(&list);
    args_release(&names);
    return HEARTH_NOT_FOUND;
}

int remote_refuse(const struct remote *remote, const struct remote_reply *reply, hearth_error *error)
{
    static const struct {
        long status;
        int code;
        const char *advice;
    } rows[] = {
        {401, HEARTH_INVALID, ": set HEARTH_API_KEY to a key of the server"},
        {404, HEARTH_NOT_FOUND, ""},
        {429, HEARTH_BUSY, ": try again in a moment"},
        {503, HEARTH_UNAVAILABLE, ""},
    };
    if (reply->status == 0 && is_stopped(remote))
        return error_at(error, HEARTH_CANCELLED, "server", "stopped before %s has answered", remote->url);
    if (reply->status == 0)
        return error_at(error, HEARTH_UNAVAILABLE, "server",
                        "no server answers at %s (%s): start one with hearth serve, or name it with --server URL",
                        remote->url, reply->fault);
    json_t *json = json_loadb(buf_text(reply->body), reply->body->len, 0, NULL);
    struct buf message = {0};
    /* OpenAI's form of an error, Ollama's, and that of servers which have none. */
    const json_t *fault = json_object_get(json, "error");
    const char *text = json_string_value(json_is_object(fault) ? json_object_get(fault, "message") : fault);
    if (text == NULL) text = json_string_value(json_object_get(json, "message"));
    if (text == NULL) text = "is it a server of OpenAI's API?";
    const char *advice = "";
    int code = HEARTH_INVALID;
    utf8_put_visible(&message, text, strlen(text), false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].status != reply->status) continue;
        code = rows[i].code;
        advice = rows[i].advice;
    }
    error_at(error, code, "server", "%s%s answers with status %ld: %.300s%s", remote->url, reply->path, reply->status,
             buf_text(&message), advice);
    buf_release(&message);
    json_decref(json);
    return code;
}
