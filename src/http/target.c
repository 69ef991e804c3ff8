/* The request's target: percent-decodes the path, and the names and values of the query. Pure functions.
 *
 * The target owns the decoded text; path, names and values point into it. */
#include "http/connection.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place. A zero byte counts as malformed, since comparisons of paths would stop there. */
static bool percent_decode(char *text, bool plus_is_space)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        char c = *from;
        if (c == '+' && plus_is_space) c = ' ';
        if (c == '%') {
            int high = hex_digit(from[1]);
            int low = high < 0 ? -1 : hex_digit(from[2]);
            if (low < 0 || (high == 0 && low == 0)) return false;
            c = (char)(high * 16 + low);
            from += 2;
        }
        *to++ = c;
    }
    *to = '\0';
    return true;
}

static bool decode_query(struct http_target *target, char *query)
{
    size_t max = 1;
    for (const char *c = query; *c != '\0'; c++) max += *c == '&';
    target->pairs = mem_grow(NULL, max, sizeof *target->pairs);
    char *rest = query;
    for (char *pair; (pair = strsep(&rest, "&")) != NULL;) {
        if (*pair == '\0') continue;
        char *value = strchr(pair, '=');
        if (value != NULL)
            *value++ = '\0';
        else
            value = pair + strlen(pair);
        if (!percent_decode(pair, true) || !percent_decode(value, true)) return false;
        target->pairs[target->n_pairs++] = (struct http_pair){.name = pair, .value = value};
    }
    return true;
}

/* Cuts the host off an absolute target ("http://host/path"), which proxies send. Returns the rest. */
static char *take_host(struct http_target *target)
{
    char *host = *target->text == '/' ? NULL : strstr(target->text, "://");
    if (host == NULL) return target->text;
    host += 3;
    size_t len = strcspn(host, "/?");
    target->host = mem_strndup(host, len);
    return host + len;
}

bool target_decode(struct http_target *target, const char *url)
{
    target->text = mem_strdup(url);
    char *path = take_host(target);
    path[strcspn(path, "#")] = '\0';
    char *query = strchr(path, '?');
    if (query != NULL) *query++ = '\0';
    if (!percent_decode(path, false)) return false;
    target->path = *path == '\0' ? "/" : path;
    return query == NULL || decode_query(target, query);
}

void target_release(struct http_target *target)
{
    free(target->pairs);
    free(target->host);
    free(target->text);
    *target = (struct http_target){0};
}

const char *target_query(const struct http_target *target, const char *name)
{
    for (size_t i = 0; i < target->n_pairs; i++) {
        if (strcmp(target->pairs[i].name, name) == 0) return target->pairs[i].value;
    }
    return NULL;
}
