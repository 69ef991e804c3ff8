/* URLs, taken apart by libcurl: see url.h. */
#include "pull/url.h"

#include "base/error.h"
#include "base/host.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MOST 200 /* bytes of a URL in a message */

/* ---- Reading ---- */

struct parts {
    char *scheme, *user, *host, *port;
};

static bool get_parts(const char *text, struct parts *parts)
{
    CURLU *handle = curl_url();
    bool good = curl_url_set(handle, CURLUPART_URL, text, 0) == CURLUE_OK &&
                curl_url_get(handle, CURLUPART_SCHEME, &parts->scheme, 0) == CURLUE_OK &&
                curl_url_get(handle, CURLUPART_HOST, &parts->host, 0) == CURLUE_OK &&
                curl_url_get(handle, CURLUPART_PORT, &parts->port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    if (good) curl_url_get(handle, CURLUPART_USER, &parts->user, 0);
    curl_url_cleanup(handle);
    return good && parts->host[0] != '\0';
}

static void release_parts(struct parts *parts)
{
    curl_free(parts->scheme);
    curl_free(parts->user);
    curl_free(parts->host);
    curl_free(parts->port);
}

static void lower(char *text)
{
    for (; *text != '\0'; text++) *text = (char)tolower((unsigned char)*text);
}

static int refuse(const char *text, const char *why, hearth_error *error)
{
    struct buf shown = {0};
    pull_url_put(&shown, text);
    error_set(error, HEARTH_INVALID, "%s %s", buf_text(&shown), why);
    buf_release(&shown);
    return HEARTH_INVALID;
}

int pull_url_read(const char *text, struct pull_url *url, hearth_error *error)
{
    struct parts parts = {0};
    struct host host;
    bool good = get_parts(text, &parts), is_secure = good && strcmp(parts.scheme, "https") == 0;
    bool is_web = is_secure || (good && strcmp(parts.scheme, "http") == 0), has_user = parts.user != NULL;
    pull_url_release(url);
    if (is_web && !has_user) {
        *url = (struct pull_url){.text = mem_strdup(text), .secure = is_secure};
        url->origin = mem_format("%s://%s:%s", parts.scheme, parts.host, parts.port);
        lower(url->origin);
        url->loopback = host_parse(parts.host, strlen(parts.host), &host) && host_is_loopback(&host);
    }
    release_parts(&parts);
    if (has_user) /* and maybe a password: it is not shown */
        return error_set(error, HEARTH_INVALID, "the URL has a user's name in it: models are pulled without");
    return is_web ? HEARTH_OK : refuse(text, "is no http or https URL", error);
}

void pull_url_release(struct pull_url *url)
{
    free(url->text);
    free(url->origin);
    *url = (struct pull_url){0};
}

/* ---- Rules ---- */

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

/* ---- Texts ---- */

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
