/* The tables of hearth ps: see ps.h. */
#include "cli/ps.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Characters of a model's name that are shown. */
#define NAME_WIDTH 26

static int64_t number(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static const char *word(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

/* ---- Cells ---- */

/* How many bytes the first `n` characters of valid UTF-8 have. */
static size_t bytes_of(const char *text, size_t n)
{
    size_t at = 0;
    for (size_t seen = 0; text[at] != '\0'; at++) {
        const bool begins = ((unsigned char)text[at] & 0xc0) != 0x80;
        if (begins && seen++ == n) break;
    }
    return at;
}

/* A text of a fixed number of characters, and two blanks; control characters are escaped, and what is longer ends in
 * three dots. */
static void put_left(struct buf *out, const char *text, size_t width)
{
    struct buf shown = {0};
    utf8_put_visible(&shown, text, strlen(text), false);
    const size_t n = utf8_count(buf_text(&shown), shown.len);
    if (n > width)
        buf_printf(out, "%.*s...  ", (int)bytes_of(shown.v, width - 3), shown.v);
    else
        buf_printf(out, "%s%*s", buf_text(&shown), (int)(width - n) + 2, "");
    buf_release(&shown);
}

/* Bytes as people read them: 0 B, 12.5 MB. */
static void put_size(struct buf *out, int64_t bytes, int width)
{
    static const char *const units[] = {"B ", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.95 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    buf_printf(out, "%*.*f %s  ", width - 3, unit == 0 ? 0 : 1, value, units[unit]);
}

/* ---- The queue ---- */

/* The label of a Prometheus sample, in which quotes and backslashes are escaped; what follows it. NULL: it is another
 * model's. */
static const char *after_label(const char *label, const char *model)
{
    for (; *model != '\0'; model++, label++) {
        if (*label == '\\') label++;
        if (*label != *model) return NULL;
    }
    return strncmp(label, "\"}", 2) == 0 ? label + 2 : NULL;
}

static int64_t sample(const char *metrics, const char *name, const char *model)
{
    const size_t len = strlen(name);
    for (const char *line = metrics; *line != '\0';) {
        const char *value = strncmp(line, name, len) == 0 ? after_label(line + len, model) : NULL;
        if (value != NULL) return strtoll(value, NULL, 10);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return 0;
}

int64_t ps_waiting(const char *metrics, const char *model)
{
    return sample(metrics, "hearth_admission_waiting{model=\"", model) +
           sample(metrics, "hearth_requests_waiting{model=\"", model);
}

/* ---- Tables ---- */

static bool is_busy(const json_t *slot)
{
    return strcmp(word(slot, "state"), "idle") != 0;
}

static int busy_slots(const json_t *slots, const char *model)
{
    int n = 0;
    size_t i;
    const json_t *slot;
    json_array_foreach(slots, i, slot) n += strcmp(word(slot, "model"), model) == 0 && is_busy(slot);
    return n;
}

static void put_models(struct buf *out, const struct ps_facts *facts)
{
    size_t i;
    const json_t *model;
    buf_printf(out, "%-*s  %-9s  %-9s  %8s  %5s  %4s  %7s\n", NAME_WIDTH, "model", "state", "type", "window", "slots",
               "busy", "waiting");
    json_array_foreach(facts->models, i, model)
    {
        const char *name = word(model, "id");
        put_left(out, name, NAME_WIDTH);
        put_left(out, word(json_object_get(model, "status"), "value"), 9);
        put_left(out, word(model, "type"), 9);
        buf_printf(out, "%8lld  %5lld  %4d  %7lld\n", (long long)number(model, "context_window"),
                   (long long)number(json_object_get(model, "meta"), "slots"), busy_slots(facts->slots, name),
                   (long long)ps_waiting(facts->metrics, name));
    }
}

/* What a slot is doing; of an idle one, how much it keeps. */
static void put_slot(struct buf *out, const json_t *slot)
{
    const json_t *next = json_array_get(json_object_get(slot, "next_token"), 0);
    buf_printf(out, "%4lld  ", (long long)number(slot, "id"));
    put_left(out, word(slot, "model"), NAME_WIDTH);
    put_left(out, word(slot, "state"), 9);
    if (is_busy(slot))
        buf_printf(out, "%8lld  %8lld  %9lld\n", (long long)number(slot, "n_prompt_tokens"),
                   (long long)number(slot, "cached_tokens"), (long long)number(next, "n_decoded"));
    else
        buf_printf(out, "%8s  %8lld  %9s\n", "-", (long long)number(slot, "cached_tokens"), "-");
}

static void put_slots(struct buf *out, const struct ps_facts *facts)
{
    size_t i;
    const json_t *slot;
    if (json_array_size(facts->slots) == 0) return;
    buf_printf(out, "\n%4s  %-*s  %-9s  %8s  %8s  %9s\n", "slot", NAME_WIDTH, "model", "state", "prompt", "cached",
               "generated");
    json_array_foreach(facts->slots, i, slot) put_slot(out, slot);
}

/* What is wrong with a tier has a line of its own. */
static void put_tier(struct buf *out, const char *name, const json_t *tier)
{
    const char *trouble = word(tier, "trouble");
    put_left(out, name, 8);
    if (json_is_true(json_object_get(tier, "on"))) {
        buf_printf(out, "%8lld  ", (long long)number(tier, "entries"));
        put_size(out, number(tier, "bytes"), 10);
        put_size(out, number(tier, "quota_bytes"), 10);
        buf_printf(out, "%8lld\n", (long long)number(tier, "evictions"));
    } else {
        buf_printf(out, "%8s\n", "off");
    }
    if (trouble[0] == '\0') return;
    buf_puts(out, "  ");
    utf8_put_visible(out, trouble, strlen(trouble), false);
    buf_puts(out, "\n");
}

static void put_tiers(struct buf *out, const struct ps_facts *facts)
{
    const char *name;
    json_t *tier;
    buf_printf(out, "\n%-8s  %8s  %10s  %10s  %8s\n", "tier", "entries", "used", "quota", "evicted");
    json_object_foreach(facts->tiers, name, tier) put_tier(out, name, tier);
}

/* One line: that the server is well, or what it is loading, and how much of that is there. */
static void put_health(struct buf *out, const struct ps_facts *facts)
{
    struct buf line = {0};
    const json_t *model = json_object_get(facts->health, "model");
    buf_printf(&line, "%s: %s", facts->url, word(facts->health, "status"));
    if (model != NULL)
        buf_printf(&line, " %s, %.0f %%", word(facts->health, "model"),
                   100 * json_number_value(json_object_get(facts->health, "progress")));
    utf8_put_visible(out, line.v, line.len, false);
    buf_puts(out, "\n\n");
    buf_release(&line);
}

void ps_put(struct buf *out, const struct ps_facts *facts)
{
    put_health(out, facts);
    put_models(out, facts);
    put_slots(out, facts);
    put_tiers(out, facts);
}
