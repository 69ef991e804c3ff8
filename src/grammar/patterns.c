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

bool patterns_find(struct patterns *p, const char *text, size_t len, size_t *begin)
{
    for (size_t i = 0; i < p->n; i++) {
        int n_groups = pcre2_match(p->codes[i], (PCRE2_SPTR)text, len, 0, 0, p->found, p->limits);
        if (n_groups <= 0) continue;
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(p->found);
        int group = 1; /* group 0 is the whole match */
        while (group < n_groups && (ends[2 * group] == PCRE2_UNSET || ends[2 * group + 1] <= ends[2 * group])) group++;
        *begin = ends[group < n_groups ? 2 * group : 0];
        return true;
    }
    return false;
}
