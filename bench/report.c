/* Figures of a workload, their statistics and their output. One thread; a report owns all but its literals. */
#include "report.h"

#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Statistics ---- */

void samples_add(struct samples *s, double value)
{
    if (s->len == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->v = mem_grow(s->v, s->cap, sizeof *s->v);
    }
    s->v[s->len++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value at an index, 0 … len-1, of the sorted list. */
static double nth_smallest(const struct samples *s, size_t n)
{
    if (s->len == 0) return NAN;
    double *sorted = mem_grow(NULL, s->len, sizeof *sorted);
    memcpy(sorted, s->v, s->len * sizeof *sorted);
    qsort(sorted, s->len, sizeof *sorted, by_value);
    double value = sorted[n];
    free(sorted);
    return value;
}

double samples_percentile(const struct samples *s, double percent)
{
    double rank = ceil(percent / 100 * (double)s->len);
    return nth_smallest(s, rank > 1 ? (size_t)rank - 1 : 0);
}

double samples_median(const struct samples *s)
{
    return (nth_smallest(s, s->len / 2) + samples_percentile(s, 50)) / 2;
}

double samples_max(const struct samples *s)
{
    return nth_smallest(s, s->len > 0 ? s->len - 1 : 0);
}

void samples_release(struct samples *s)
{
    free(s->v);
    *s = (struct samples){0};
}

/* ---- The report ---- */

enum { FIGURES_MAX = 32, CHECKS_MAX = 8 };

struct figure {
    char *name;
    const char *unit;
    struct samples rounds;
};

struct check {
    char *text;
    bool holds;
};

struct report {
    const char *workload;
    size_t prompt_tokens;
    struct figure figures[FIGURES_MAX];
    size_t n_figures;
    struct check checks[CHECKS_MAX];
    size_t n_checks;
};

struct report *report_open(const char *workload, size_t prompt_tokens)
{
    struct report *report = mem_alloc(sizeof *report);
    report->workload = workload;
    report->prompt_tokens = prompt_tokens;
    return report;
}

void report_close(struct report *report)
{
    if (report == NULL) return;
    for (size_t i = 0; i < report->n_figures; i++) {
        free(report->figures[i].name);
        samples_release(&report->figures[i].rounds);
    }
    for (size_t i = 0; i < report->n_checks; i++) free(report->checks[i].text);
    free(report);
}

static const struct figure *find(const struct report *report, const char *name)
{
    for (size_t i = 0; i < report->n_figures; i++)
        if (!strcmp(report->figures[i].name, name)) return &report->figures[i];
    return NULL;
}

void report_add(struct report *report, const char *name, const char *unit, double value)
{
    struct figure *figure = (struct figure *)find(report, name);
    if (figure == NULL) {
        if (report->n_figures == FIGURES_MAX) abort(); /* the workload has more figures than the report was made for */
        figure = &report->figures[report->n_figures++];
        *figure = (struct figure){.name = mem_strdup(name), .unit = unit};
    }
    samples_add(&figure->rounds, value);
}

const struct samples *report_samples(const struct report *report, const char *name)
{
    static const struct samples none;
    const struct figure *figure = find(report, name);
    return figure != NULL ? &figure->rounds : &none;
}

void report_check(struct report *report, bool holds, const char *format, ...)
{
    va_list args;
    char text[256];
    if (report->n_checks == CHECKS_MAX) abort();
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    report->checks[report->n_checks++] = (struct check){.text = mem_strdup(text), .holds = holds};
}

/* ---- Output ---- */

static void print_text(const struct report *report, FILE *out)
{
    fprintf(out, "%s: prompt of %zu tokens; median (smallest … largest) of the rounds\n", report->workload,
            report->prompt_tokens);
    for (size_t i = 0; i < report->n_figures; i++) {
        const struct figure *figure = &report->figures[i];
        fprintf(out, "  %-58s %9.2f %-2s (%.2f … %.2f)\n", figure->name, samples_median(&figure->rounds), figure->unit,
                samples_percentile(&figure->rounds, 0), samples_max(&figure->rounds));
    }
    for (size_t i = 0; i < report->n_checks; i++)
        fprintf(out, "  %s: %s\n", report->checks[i].text, report->checks[i].holds ? "holds" : "DOES NOT HOLD");
}

static json_t *figure_json(const struct figure *figure)
{
    json_t *rounds = json_array();
    for (size_t i = 0; i < figure->rounds.len; i++) json_array_append_new(rounds, json_real(figure->rounds.v[i]));
    return json_pack("{s:s, s:s, s:f, s:o}", "name", figure->name, "unit", figure->unit, "median",
                     samples_median(&figure->rounds), "rounds", rounds);
}

static void print_json(const struct report *report, FILE *out)
{
    json_t *figures = json_array(), *checks = json_array();
    for (size_t i = 0; i < report->n_figures; i++) json_array_append_new(figures, figure_json(&report->figures[i]));
    for (size_t i = 0; i < report->n_checks; i++)
        json_array_append_new(
            checks, json_pack("{s:s, s:b}", "text", report->checks[i].text, "holds", (int)report->checks[i].holds));
    json_t *whole = json_pack("{s:s, s:I, s:o, s:o}", "workload", report->workload, "prompt_tokens",
                              (json_int_t)report->prompt_tokens, "figures", figures, "checks", checks);
    json_dumpf(whole, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    fputc('\n', out);
    json_decref(whole);
}

int report_conclude(struct report *report, bool json, const char *program, const hearth_error *error)
{
    bool measured = error->code == HEARTH_OK;
    if (!measured)
        fprintf(stderr, "%s: %s\n", program, error->message);
    else if (json)
        print_json(report, stdout);
    else
        print_text(report, stdout);
    report_close(report);
    return measured ? EXIT_SUCCESS : EXIT_FAILURE;
}
