/* URLs, taken apart by libcurl, and requests to a source's server: see web.h. */
#include "pull/web.h"

#include "base/error.h"
#include "base/host.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/utf8.h"

#include <assert.h>
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#define SHOWN_MOST 200 /* bytes of a URL in a message */

/* ---- URLs ---- */

int pull_url_read(const char *text, struct pull_url *url, hearth_error *error)
{
    char *scheme = NULL, *user = NULL, *name = NULL, *port = NULL;
    struct host host;
    CURLU *handle = curl_url();
    bool good = curl_url_set(handle, CURLUPART_URL, text, 0) == CURLUE_OK &&
                curl_url_get(handle, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                curl_url_get(handle, CURLUPART_HOST, &name, 0) == CURLUE_OK &&
                curl_url_get(handle, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    if (good) curl_url_get(handle, CURLUPART_USER, &user, 0);
    curl_url_cleanup(handle);
    good = good && name[0] != '\0';
    bool is_secure = good && strcmp(scheme, "https") == 0, is_web = is_secure || (good && strcmp(scheme, "http") == 0);
    bool has_user = user != NULL;
    pull_url_release(url);
    if (is_web && !has_user) {
        *url = (struct pull_url){.text = mem_strdup(text), .secure = is_secure};
        url->origin = mem_format("%s://%s:%s", scheme, name, port);
        for (char *c = url->origin; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
        url->loopback = host_parse(name, strlen(name), &host) && host_is_loopback(&host);
    }
    curl_free(scheme);
    curl_free(user);
    curl_free(name);
    curl_free(port);
    if (has_user) /* and maybe a password: it is not shown */
        return error_set(error, HEARTH_INVALID, "the URL has a user's name in it: models are pulled without");
    if (is_web) return HEARTH_OK;
    struct buf shown = {0};
    pull_url_put(&shown, text);
    error_set(error, HEARTH_INVALID, "%s is no http or https URL", buf_text(&shown));
    buf_release(&shown);
    return HEARTH_INVALID;
}

void pull_url_release(struct pull_url *url)
{
    free(url->text);
    free(url->origin);
    *url = (struct pull_url){0};
}

/* ---- Rules for them ---- */

int pull_url_allow(const struct pull_url *url, bool allow_http, hearth_error *error)
{
    if (url->secure || url->loopback || allow_http) return HEARTH_OK;
    return error_set(error, HEARTH_UNSUPPORTED,
                     "%s is not encrypted: use https, or --http (over the API \"insecure\": true) where the network in "
                     "between is trusted",
                     url->origin);
}

int pull_url_allow_redirect(const struct pull_url *from, const struct pull_url *to, bool allow_http,
                            hearth_error *error)
{
    if (from->secure && !to->secure)
        return error_set(error, HEARTH_UNSUPPORTED, "%s redirects to %s, which is not encrypted: that is not followed",
                         from->origin, to->origin);
    if (!from->loopback && to->loopback)
        return error_set(error, HEARTH_UNSUPPORTED, "%s redirects to this machine (%s): that is not followed",
                         from->origin, to->origin);
    return pull_url_allow(to, allow_http, error);
}

/* ---- Their texts ---- */

void pull_url_put(struct buf *out, const char *url)
{
    size_t len = strcspn(url, "?#"), shown = len > SHOWN_MOST ? SHOWN_MOST : len;
    utf8_put_visible(out, url, shown, false);
    if (shown < len) buf_puts(out, "...");
}

/* The bytes of the last part of the path. */
static const char *find_file(const char *url, size_t *len)
{
    size_t end = strcspn(url, "?#"), begin = end;
    while (begin > 0 && url[begin - 1] != '/') begin--;
    *len = end - begin;
    return url + begin;
}

bool pull_url_put_file(struct buf *out, const char *url)
{
    size_t len;
    int plain_len = 0;
    const char *part = find_file(url, &len);
    char *copy = mem_strndup(part, len), *plain = curl_easy_unescape(NULL, copy, (int)len, &plain_len);
    bool good = plain != NULL && len > 0 && strlen(plain) == (size_t)plain_len;
    if (good) buf_puts(out, plain);
    curl_free(plain);
    free(copy);
    return good;
}

char *pull_url_with_file(const char *url, const char *file)
{
    size_t len;
    const char *part = find_file(url, &len);
    struct buf out = {0};
    buf_append(&out, url, (size_t)(part - url));
    pull_url_put_path(&out, file);
    buf_puts(&out, part + len);
    return buf_take(&out);
}

void pull_url_put_path(struct buf *out, const char *path)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    for (; *path != '\0'; path++)
        if (strchr(plain, *path) != NULL)
            buf_append(out, path, 1);
        else
            buf_printf(out, "%%%02X", (unsigned)(unsigned char)*path);
}

#define REDIRECTS_MOST  5
#define STALL_BYTES     1024L /* a second: less is a connection that has stalled */
#define PAUSE_MOST      60.0  /* seconds between two attempts */
#define PAUSE_STEP      0.1   /* seconds between two looks whether the pull is to go on */
#define HEAD_LINES_MOST 8192  /* bytes of one header line that are looked at */
#define IGNORED_MOST    65536 /* bytes of a redirect's body */

/* ---- Requests: the answer's head ---- */

static void release_head(struct pull_head *head)
{
    free(head->etag);
    free(head->next);
    *head = (struct pull_head){.length = -1, .range_first = -1, .range_last = -1, .total = -1};
}

/* Digits and nothing else; -1: it is no such number. */
static int64_t read_number(const char *text, size_t len)
{
    int64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || value > (INT64_MAX - 9) / 10) return -1;
        value = 10 * value + text[i] - '0';
    }
    return len > 0 ? value : -1;
}

static void read_range(struct pull_head *head, const char *value)
{
    if (strncasecmp(value, "bytes ", 6) != 0) return;
    const char *first = value + 6, *dash = strchr(first, '-'), *slash = strchr(first, '/');
    if (slash == NULL) return;
    head->total = read_number(slash + 1, strlen(slash + 1));
    if (dash == NULL || dash > slash) return; /* "bytes * / 100": none of it */
    head->range_first = read_number(first, (size_t)(dash - first));
    head->range_last = read_number(dash + 1, (size_t)(slash - dash - 1));
}

/* <URL>; rel="next", one of several after commas. */
static void read_link(struct pull_head *head, const char *value)
{
    const char *next = strstr(value, "rel=\"next\""), *open = NULL;
    for (const char *c = value; next != NULL && c < next; c++)
        if (*c == '<') open = c;
    const char *close = open == NULL ? NULL : strchr(open, '>');
    if (close == NULL || close > next) return;
    free(head->next);
    head->next = mem_strndup(open + 1, (size_t)(close - open - 1));
}

static void read_field(struct pull_head *head, char *line)
{
    char *colon = strchr(line, ':');
    if (colon == NULL) return;
    *colon = '\0';
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    if (strcasecmp(line, "content-length") == 0) {
        head->length = read_number(value, strlen(value));
    } else if (strcasecmp(line, "content-range") == 0) {
        read_range(head, value);
    } else if (strcasecmp(line, "transfer-encoding") == 0) {
        head->has_end = head->has_end || strcasestr(value, "chunked") != NULL;
    } else if (strcasecmp(line, "content-encoding") == 0) {
        head->is_encoded = strcasecmp(value, "identity") != 0;
    } else if (strcasecmp(line, "etag") == 0) {
        free(head->etag);
        head->etag = value[0] == '"' && strlen(value) < 512 ? mem_strdup(value) : NULL; /* W/"...": a weak one */
    } else if (strcasecmp(line, "link") == 0) {
        read_link(head, value);
    }
}

/* Called with each line of a head. A status line begins another one: after a 100, say. */
static size_t take_line(char *bytes, size_t size, size_t n, void *ud)
{
    struct pull_request *request = ud;
    size_t len = size * n, end = len;
    while (end > 0 && (bytes[end - 1] == '\r' || bytes[end - 1] == '\n' || bytes[end - 1] == ' ')) end--;
    if (end > HEAD_LINES_MOST) return len;
    char *line = mem_strndup(bytes, end);
    if (strncmp(line, "HTTP/", 5) == 0) {
        const char *blank = strchr(line, ' ');
        release_head(&request->head);
        request->head.status = blank == NULL ? 0 : strtol(blank, NULL, 10);
        request->head.has_end = line[5] >= '2'; /* since HTTP/2 every body's end is marked */
    } else {
        read_field(&request->head, line);
    }
    free(line);
    return len;
}

/* ---- Performing ---- */

static size_t take_bytes(char *bytes, size_t size, size_t n, void *ud)
{
    struct pull_request *request = ud;
    bool is_wanted = request->head.status == 200 || request->head.status == 206;
    if (is_wanted && request->head.is_encoded)
        error_set(&request->error, HEARTH_IO, "%s sends the file in another encoding than was asked for",
                  request->at.origin);
    else if (is_wanted && request->take(request, bytes, size * n))
        return size * n;
    /* A redirect's body is of no use, but libcurl knows where it leads only at its end. */
    bool is_redirect = request->head.status >= 300 && request->head.status < 400;
    request->ignored += size * n;
    return is_redirect && request->ignored <= IGNORED_MOST ? size * n : 0;
}

/* The address is checked when the connection is made: one that the name had before does not count. */
static curl_socket_t open_public_socket(void *ud, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct pull_request *request = ud;
    if (purpose == CURLSOCKTYPE_IPCXN && address_is_public(&address->addr))
        return os_socket(address->family, address->socktype, address->protocol);
    error_set(&request->error, HEARTH_UNSUPPORTED,
              "%s has an address that is not public: a URL that a request names is fetched from public ones alone",
              request->at.origin);
    return CURL_SOCKET_BAD;
}

static bool is_cancelled(const struct pull_web *web)
{
    return web->is_cancelled != NULL && web->is_cancelled(web->ud);
}

int pull_web_check(const struct pull_web *web, hearth_error *error)
{
    return is_cancelled(web) ? error_set(error, HEARTH_CANCELLED, "the pull was cancelled") : HEARTH_OK;
}

static int look_at_cancel(void *ud, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    (void)total, (void)now, (void)up_total, (void)up;
    return is_cancelled(ud);
}

static void open_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void prepare(struct pull_request *request)
{
    CURL *curl = request->curl;
    const struct pull_web *web = request->web;
    const char *authorities = getenv("SSL_CERT_FILE"); /* as OpenSSL's own programs read it */
    request->ignored = 0;
    if (authorities != NULL && authorities[0] != '\0') {
        curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL); /* no others */
    }
    curl_easy_setopt(curl, CURLOPT_URL, request->at.text);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* a proxy's */
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)web->stall_seconds);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)web->stall_seconds);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "hearth/" HEARTH_VERSION);
    curl_easy_setopt(curl, CURLOPT_RANGE, request->range);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_line);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, request);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, request);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_at_cancel);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, web);
    if (web->public_only) {
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
        curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_public_socket);
        curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, request);
    }
    curl_slist_free_all(request->fields);
    request->fields = NULL;
    bool knows = web->token != NULL && web->token_origin != NULL && strcmp(web->token_origin, request->at.origin) == 0;
    char *token = knows ? mem_format("Authorization: Bearer %s", web->token) : NULL;
    char *condition =
        request->range != NULL && request->etag != NULL ? mem_format("If-Range: %s", request->etag) : NULL;
    if (token != NULL) request->fields = curl_slist_append(request->fields, token);
    if (condition != NULL) request->fields = curl_slist_append(request->fields, condition);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request->fields);
    free(token);
    free(condition);
}

int pull_request_begin(struct pull_request *request, hearth_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_curl);
    int rc = pull_url_read(request->url, &request->at, error);
    if (rc == HEARTH_OK) rc = pull_url_allow(&request->at, request->web->allow_http, error);
    if (rc != HEARTH_OK) return rc;
    if (request->curl == NULL) request->curl = curl_easy_init();
    if (request->curl == NULL) return error_set(error, HEARTH_NO_MEMORY, "there is no memory for a connection");
    request->redirects = 0;
    request->enough = false;
    request->error = (hearth_error){0};
    release_head(&request->head);
    prepare(request);
    return HEARTH_OK;
}

void pull_request_release(struct pull_request *request)
{
    if (request->curl != NULL) curl_easy_cleanup(request->curl);
    curl_slist_free_all(request->fields);
    pull_url_release(&request->at);
    release_head(&request->head);
    request->curl = NULL;
    request->fields = NULL;
}

/* ---- What became of it ---- */

static enum pull_end redirect(struct pull_request *request, hearth_error *error)
{
    char *to = NULL;
    struct pull_url next = {0};
    curl_easy_getinfo(request->curl, CURLINFO_REDIRECT_URL, &to);
    if (to == NULL || ++request->redirects > REDIRECTS_MOST) {
        error_set(error, HEARTH_IO, "%s redirects %s", request->at.origin, to == NULL ? "to nowhere" : "too often");
        return PULL_FAILED;
    }
    int rc = pull_url_read(to, &next, error);
    if (rc == HEARTH_OK) rc = pull_url_allow_redirect(&request->at, &next, request->web->allow_http, error);
    if (rc != HEARTH_OK) {
        pull_url_release(&next);
        return PULL_FAILED;
    }
    pull_url_release(&request->at);
    request->at = next;
    request->error = (hearth_error){0};
    release_head(&request->head);
    prepare(request);
    return PULL_REDIRECTED;
}

/* Statuses that are no answer. */
static enum pull_end refuse_status(const struct pull_request *request, hearth_error *error)
{
    long status = request->head.status;
    struct buf shown = {0};
    pull_url_put(&shown, request->at.text);
    bool is_denied = status == 401 || status == 403;
    bool may_pass = status == 408 || status == 425 || status == 429 || status >= 500 ||
                    (is_denied && request->redirects > 0); /* a signed URL that has run out */
    if (status == 404)
        error_set(error, HEARTH_NOT_FOUND, "%s is not there (404)", buf_text(&shown));
    else if (is_denied)
        error_set(error, HEARTH_IO, "%s may not be read, or is not there (%ld)%s", buf_text(&shown), status,
                  request->web->token == NULL ? ": it may want a token, HF_TOKEN" : ": HF_TOKEN does not open it");
    else
        error_set(error, HEARTH_IO, "%s answers with status %ld", buf_text(&shown), status);
    buf_release(&shown);
    return may_pass ? PULL_AGAIN : PULL_FAILED;
}

static enum pull_end refuse_failure(const struct pull_request *request, CURLcode code, hearth_error *error)
{
    static const CURLcode passing[] = {
        CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY,
        CURLE_COULDNT_CONNECT,      CURLE_OPERATION_TIMEDOUT,
        CURLE_PARTIAL_FILE,         CURLE_RECV_ERROR,
        CURLE_SEND_ERROR,           CURLE_GOT_NOTHING,
        CURLE_SSL_CONNECT_ERROR,    CURLE_HTTP2,
        CURLE_HTTP2_STREAM,
    };
    if (pull_web_check(request->web, error) != HEARTH_OK) return PULL_FAILED;
    if (code == CURLE_OPERATION_TIMEDOUT)
        error_set(error, HEARTH_IO, "%s sends nothing for %d s", request->at.origin, request->web->stall_seconds);
    else
        error_set(error, HEARTH_IO, "%s cannot be read: %s", request->at.origin, curl_easy_strerror(code));
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (passing[i] == code) return PULL_AGAIN;
    return PULL_FAILED;
}

enum pull_end pull_request_end(struct pull_request *request, CURLcode code, hearth_error *error)
{
    assert(request->curl != NULL && request->at.text != NULL);
    long status = request->head.status;
    bool is_whole = code == CURLE_OK || code == CURLE_WRITE_ERROR; /* the latter: its body was not wanted */
    if (request->error.code != HEARTH_OK) {
        *error = request->error;
        return PULL_FAILED;
    }
    if (is_whole && status >= 300 && status < 400) return redirect(request, error);
    if (is_whole && status != 200 && status != 206) return refuse_status(request, error);
    if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && request->enough)) return PULL_FINE;
    return refuse_failure(request, code, error);
}

double pull_request_pause(const struct pull_request *request, int failures)
{
    curl_off_t asked = 0;
    double pause = 0.25;
    for (int i = 0; i < failures && pause < PAUSE_MOST; i++) pause *= 2;
    if (request->curl != NULL) curl_easy_getinfo(request->curl, CURLINFO_RETRY_AFTER, &asked);
    if ((double)asked > pause) pause = (double)asked;
    return pause < PAUSE_MOST ? pause : PAUSE_MOST;
}

/* ---- One at a time ---- */

int pull_web_get(struct pull_request *request, hearth_error *error)
{
    enum pull_end end = PULL_AGAIN;
    for (int failures = 0; end == PULL_AGAIN && failures <= request->web->retries; failures++) {
        if (failures > 0) {
            double seconds = pull_request_pause(request, failures);
            const struct timespec step = {.tv_nsec = (long)(PAUSE_STEP * 1e9)};
            for (; seconds > 0 && !is_cancelled(request->web); seconds -= PAUSE_STEP) nanosleep(&step, NULL);
        }
        int rc = pull_web_check(request->web, error);
        if (rc == HEARTH_OK) rc = pull_request_begin(request, error);
        if (rc != HEARTH_OK) return rc;
        do end = pull_request_end(request, curl_easy_perform(request->curl), error);
        while (end == PULL_REDIRECTED);
    }
    return end == PULL_FINE ? HEARTH_OK : (int)error->code;
}
