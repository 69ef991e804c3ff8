/* What of a request the model does not see: see left_out.h. */
#include "serve/core/left_out.h"

#include "base/log.h"
#include "http/http.h"

#include <stdio.h>
#include <string.h>

#define HEADER    "X-Hearth-Left-Out"
#define SEPARATOR ", "

/* Bytes of one path; longer ones are cut. */
enum { PATH_BYTES = 96 };

/* Whether the list has the path, which is no longer than PATH_BYTES. */
static bool has(const struct left_out *list, const char *path)
{
    size_t len = strlen(path);
    const char *at = list->paths;
    while (*at != '\0') {
        size_t own = strcspn(at, ",");
        if (own == len && memcmp(at, path, len) == 0) return true;
        at += own + strspn(at + own, SEPARATOR);
    }
    return false;
}

void left_out_add(struct left_out *list, const char *path)
{
    char plain[PATH_BYTES + 1];
    size_t len = 0, used = strlen(list->paths);
    for (; path[len] != '\0' && len < PATH_BYTES; len++)
        plain[len] = path[len] > ' ' && path[len] < 0x7f && path[len] != ',' ? path[len] : '?';
    plain[len] = '\0';
    if (has(list, plain)) return;
    if (list->more > 0 || list->named == LEFT_OUT_PATHS || used + strlen(SEPARATOR) + len >= sizeof list->paths) {
        list->more++;
        return;
    }
    snprintf(list->paths + used, sizeof list->paths - used, "%s%s", used > 0 ? SEPARATOR : "", plain);
    list->named++;
}

void left_out_add_all(struct left_out *list, const struct left_out *other)
{
    char paths[sizeof other->paths], *rest = paths, *path;
    memcpy(paths, other->paths, sizeof paths);
    while (!left_out_is_empty(other) && (path = strsep(&rest, ",")) != NULL)
        left_out_add(list, path + strspn(path, SEPARATOR));
    list->more += other->more;
}

bool left_out_is_empty(const struct left_out *list)
{
    return list->named == 0;
}

void left_out_report(const struct left_out *list, struct http_request *http, const char *request_id, const char *model)
{
    char value[sizeof list->paths + 32];
    if (left_out_is_empty(list)) return;
    if (list->more == 0)
        snprintf(value, sizeof value, "%s", list->paths);
    else
        snprintf(value, sizeof value, "%s and %zu more", list->paths, list->more);
    http_set_header(http, HEADER, value);
    log_event(LOG_INFO, "serve", "left out what the model cannot be shown", log_str("request_id", request_id),
              model == NULL ? log_nothing() : log_str("model", model), log_str("paths", value),
              log_int("count", (int64_t)(list->named + list->more)));
}
