/* Fetching media: see media_fetch.h. */
#include "media/media_fetch.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/memory.h"
#include "base/os.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REDIRECTS_MAX = 3 };

static const char too_large[] = "is larger than a request's files may be together: models.*.media_url_mb";

/* ---- One transfer ---- */

struct transfer {
    const struct media_sources *sources;
    struct buf *bytes;
    char *host, *port;
    bool trusted, refused, is_too_large;
};

static curl_socket_t open_socket(void *ud, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct transfer *t = ud;
    if (purpose != CURLSOCKTYPE_IPCXN || (!t->trusted && !address_is_public(&address->addr))) {
        t->refused = true;
        return CURL_SOCKET_BAD;
    }
    return os_socket(address->family, address->socktype, address->protocol);
}

static size_t take(char *bytes, size_t size, size_t n, void *ud)
{
    struct transfer *t = ud;
    t->is_too_large = t->bytes->len + size * n > t->sources->most_bytes;
    if (t->is_too_large) return 0;
    buf_append(t->bytes, bytes, size * n);
    return size * n;
}

static int look_at_stop(void *ud, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    (void)total, (void)now, (void)up_total, (void)up;
    const struct transfer *t = ud;
    return media_has_to_stop(t->sources->stop);
}

/* Neither the environment nor a user's files have a say: no proxy, no cookies, no credentials. */
static void prepare(CURL *curl, struct transfer *t, const char *url)
{
    double left = clock_to_ms(t->sources->deadline - clock_now(clock_monotonic()));
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, left > 1 ? (long)left : 1L);
    curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)t->sources->most_bytes);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "hearth");
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_at_stop);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
}

static int judge_transfer(CURL *curl, CURLcode code, const struct transfer *t, hearth_error *error)
{
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_ABORTED_BY_CALLBACK) return error_set(error, HEARTH_CANCELLED, "request was cancelled");
    if (t->refused)
        return error_set(error, HEARTH_UNSUPPORTED,
                         "is not fetched: the address of %s is not public. models.*.media_url_hosts names hosts "
                         "that may be fetched from nevertheless",
                         t->host);
    if (t->is_too_large || code == CURLE_FILESIZE_EXCEEDED) return error_set(error, HEARTH_TOO_LONG, "%s", too_large);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return error_set(error, HEARTH_TOO_LONG, "takes %s too long: models.*.media_url_seconds", t->host);
    if (code != CURLE_OK)
        return error_set(error, HEARTH_INVALID, "cannot be fetched from %s: %s", t->host, curl_easy_strerror(code));
    if (status < 200 || status > 299)
        return error_set(error, HEARTH_INVALID, "cannot be fetched: %s answered %ld", t->host, status);
    return HEARTH_OK;
}

/* Takes the URL apart. */
static int look_at_url(const char *url, struct transfer *t, hearth_error *error)
{
    CURLU *parts = curl_url();
    char *user = NULL, *host = NULL, *port = NULL;
    bool good = curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    bool named = good && curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK;
    if (good) {
        t->host = mem_strdup(host);
        t->port = mem_strdup(port);
        /* Whether the configuration has the host, with this port or without one. */
        char *with_port = mem_format("%s:%s", t->host, t->port);
        bool found = false;
        for (size_t i = 0; i < t->sources->n_hosts && !found; i++)
            found = strcasecmp(t->sources->hosts[i], t->host) == 0 || strcasecmp(t->sources->hosts[i], with_port) == 0;
        free(with_port);
        t->trusted = found;
    }
    curl_free(user);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(parts);
    if (named) return error_set(error, HEARTH_INVALID, "has a user's name in it: URLs are fetched without");
    return good ? HEARTH_OK : error_set(error, HEARTH_INVALID, "is no URL that can be fetched");
}

/* Fetches one URL, or finds where it redirects to, which the caller frees. */
static int transfer(const char *url, const struct media_sources *sources, struct buf *bytes, char **next,
                    hearth_error *error)
{
    struct transfer t = {.sources = sources, .bytes = bytes};
    int rc = look_at_url(url, &t, error);
    CURL *curl = rc == HEARTH_OK ? curl_easy_init() : NULL;
    char *redirect = NULL;
    *next = NULL;
    if (curl != NULL) {
        prepare(curl, &t, url);
        CURLcode code = curl_easy_perform(curl);
        curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &redirect);
        *next = code == CURLE_OK ? mem_strdup(redirect) : NULL;
        rc = *next == NULL ? judge_transfer(curl, code, &t, error) : HEARTH_OK;
        curl_easy_cleanup(curl);
    }
    free(t.host);
    free(t.port);
    return rc;
}

static void open_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* Redirects are followed one by one, since each may lead to another host. */
static int fetch_url(const char *url, const struct media_sources *sources, struct buf *bytes, hearth_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_curl);
    char *at = mem_strdup(url), *next = NULL;
    int rc = HEARTH_OK;
    for (int i = 0; at != NULL && rc == HEARTH_OK; i++) {
        buf_clear(bytes);
        rc = i > REDIRECTS_MAX ? error_set(error, HEARTH_INVALID, "is redirected more than %d times", REDIRECTS_MAX)
                               : transfer(at, sources, bytes, &next, error);
        free(at);
        at = next;
        next = NULL;
    }
    free(at);
    return rc;
}

/* ---- Files ---- */

static int read_file(int fd, size_t most, struct buf *bytes, hearth_error *error)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return error_set(error, HEARTH_INVALID, "is no file below models.*.media_path");
    char block[1 << 16];
    ssize_t n;
    while ((n = read(fd, block, sizeof block)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_set(error, HEARTH_INVALID, "cannot be read: %s", strerror(errno));
        if (bytes->len + (size_t)n > most) return error_set(error, HEARTH_TOO_LONG, "%s", too_large);
        buf_append(bytes, block, (size_t)n);
    }
    return HEARTH_OK;
}

static int fetch_file(const char *path, const struct media_sources *sources, struct buf *bytes, hearth_error *error)
{
    int len = 0;
    char *plain = curl_easy_unescape(NULL, path, 0, &len);
    const char *below = plain;
    while (*below == '/') below++;
    bool has_nul = strlen(plain) != (size_t)len;
    int fd = has_nul ? -1 : os_open_below(sources->folder, below), fault = has_nul ? ENOENT : errno;
    int rc = fd >= 0 ? read_file(fd, sources->most_bytes, bytes, error)
                     : error_set(error, HEARTH_INVALID, "is no file below models.*.media_path: %s",
                                 strerror(fault == EXDEV ? ENOENT : fault));
    if (fd >= 0) close(fd);
    curl_free(plain);
    return rc;
}

int media_fetch(const char *url, const struct media_sources *sources, struct buf *bytes, hearth_error *error)
{
    static const char file[] = "file://";
    bool is_file = strncasecmp(url, file, strlen(file)) == 0;
    bool is_web = strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
    if (!is_file && !is_web)
        return error_set(error, HEARTH_UNSUPPORTED,
                         "is a URL of a kind that is not fetched: send a data URL, data:TYPE;base64,DATA");
    if (is_web && !sources->urls)
        return error_set(error, HEARTH_UNSUPPORTED,
                         "is a URL, and URLs are not fetched here: send the data as a data URL, data:TYPE;base64,DATA, "
                         "or allow them with models.*.media_urls");
    if (is_file && sources->folder == NULL)
        return error_set(error, HEARTH_UNSUPPORTED,
                         "names a file, and files are not read here: send the data as a data URL, "
                         "data:TYPE;base64,DATA, or set models.*.media_path to a folder");
    return is_file ? fetch_file(url + strlen(file), sources, bytes, error) : fetch_url(url, sources, bytes, error);
}
