/* From Prometheus' text format to OpenMetrics: see openmetrics.h. There a counter's family has no "_total", which its
 * sample has; buckets may have an exemplar; the text has an end. All else is the same, names and labels included, so
 * that a server's series go on when the form changes. */
#include "serve/status/openmetrics.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Whether a media range has the weight zero: not wanted at all. */
static bool is_refused(const char *range, size_t len)
{
    for (const char *at = memchr(range, ';', len); at != NULL;
         at = memchr(at + 1, ';', len - (size_t)(at + 1 - range))) {
        const char *name = at + 1 + strspn(at + 1, " \t");
        if (name + 2 <= range + len && strncasecmp(name, "q=", 2) == 0) return strtod(name + 2, NULL) <= 0;
    }
    return false;
}

bool openmetrics_is_wanted(const char *accept)
{
    static const char type[] = "application/openmetrics-text";
    for (const char *at = accept; at != NULL && *at != '\0';) {
        at += strspn(at, " \t,");
        size_t len = strcspn(at, ","), name = strcspn(at, ";, \t");
        if (name == strlen(type) && strncasecmp(at, type, name) == 0 && !is_refused(at, len)) return true;
        at += len;
    }
    return false;
}

/* "# TYPE hearth_x_total counter": the family without the end of its name. */
static void put_head(struct buf *out, const char *line, size_t len)
{
    static const char total[] = "_total";
    const char *name = memchr(line + 2, ' ', len - 2), *end = memchr(name + 1, ' ', len - (size_t)(name + 1 - line));
    size_t upto = (size_t)(end - line), n = strlen(total);
    bool is_counter = memcmp(end - n, total, n) == 0;
    buf_append(out, line, is_counter ? upto - n : upto);
    buf_append(out, end, len - upto);
}

static void put_sample(struct buf *out, const char *line, size_t len, const struct exemplars *exemplars)
{
    const char *value = memrchr(line, ' ', len);
    const struct exemplar *exemplar = exemplars_find(exemplars, line, (size_t)(value - line));
    buf_append(out, line, len);
    if (exemplar != NULL)
        buf_printf(out, " # {trace_id=\"%s\"} %.17g %.3f", exemplar->trace_id, exemplar->value, exemplar->unix_s);
}

void openmetrics_put(struct buf *out, const char *text, const struct exemplars *exemplars)
{
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        if (text[0] == '#')
            put_head(out, text, len);
        else
            put_sample(out, text, len, exemplars);
        buf_puts(out, "\n");
        text += len + (text[len] == '\n');
    }
    buf_puts(out, "# EOF\n");
}
