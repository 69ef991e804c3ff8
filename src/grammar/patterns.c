/* Compiles the patterns of one sampler and searches for them: see patterns.h. */
#include "grammar/patterns.h"

#include "base/error.h"
#include "base/memory.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* Match steps of one search: an expression that needs more counts as not found, so that it delays nobody. */
#define MAX_STEPS 1000000

struct patterns {
    pcre2_code **codes;
    size_t n;
    pcre2_match_data *found;
    pcre2_match_context *limits;
};

static pcre2_code *compile(const char *pattern, hearth_error *error)
{
    size_t len = strlen(pattern);
    bool whole = len > 1 && pattern[0] == '^' && pattern[len - 1] == '$';
    uint32_t options = PCRE2_DOTALL | (whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0);
    int code;
    PCRE2_SIZE at;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, len, options, &code, &at, NULL);
    if (compiled != NULL) return compiled;
    PCRE2_UCHAR why[128];
    pcre2_get_error_message(code, why, sizeof why);
    error_at(error, HEARTH_INVALID, "grammar", "a trigger pattern of the grammar has an error at byte %zu: %s",
             (size_t)at, (const char *)why);
    return NULL;
}

struct patterns *patterns_open(const char *const *patterns, size_t n, hearth_error *error)
{
    struct patterns *p = mem_alloc(sizeof *p);
    p->codes = mem_alloc((n + 1) * sizeof(pcre2_code *));
    p->limits = pcre2_match_context_create(NULL);
    p->found = pcre2_match_data_create(16, NULL);
    pcre2_set_match_limit(p->limits, MAX_STEPS);
    for (size_t i = 0; i < n; i++) {
        p->codes[i] = compile(patterns[i], error);
        if (p->codes[i] == NULL) {
            patterns_close(p);
            return NULL;
        }
        p->n++;
    }
    return p;
}

void patterns_close(struct patterns *p)
{
    if (p == NULL) return;
    for (size_t i = 0; i < p->n; i++) pcre2_code_free(p->codes[i]);
    pcre2_match_data_free(p->found);
    pcre2_match_context_free(p->limits);
    free(p->codes);
    free(p);
}

/* Where the grammar begins, from a match with that many groups, of which the first is the whole match. */
static size_t begin_of(const struct patterns *p, int n_groups)
{
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(p->found);
    for (int i = 1; i < n_groups; i++)
        if (ends[2 * i] != PCRE2_UNSET && ends[2 * i + 1] > ends[2 * i]) return ends[2 * i];
    return ends[0];
}

bool patterns_find(struct patterns *p, const char *text, size_t len, size_t *begin)
{
    for (size_t i = 0; i < p->n; i++) {
        int n_groups = pcre2_match(p->codes[i], (PCRE2_SPTR)text, len, 0, 0, p->found, p->limits);
        if (n_groups <= 0) continue;
        *begin = begin_of(p, n_groups);
        return true;
    }
    return false;
}
