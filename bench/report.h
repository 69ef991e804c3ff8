/* The report of a workload: figures measured once a round, and promises that hold or not, printed as text or as JSON
 * for bench/compare.mjs.
 *
 * One thread. The workload's name and the units are borrowed and must live as long as the report: literals. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>

/* A growable list of numbers; struct samples s = {0} is an empty one, whose statistics are NAN. */
struct samples {
    double *v;
    size_t len, cap;
};

void samples_add(struct samples *s, double value);
double samples_median(const struct samples *s);
double samples_percentile(const struct samples *s,
                          double percent); /* the smallest value that so many percent do not exceed */
double samples_max(const struct samples *s);
void samples_release(struct samples *s);

struct report;

/* `prompt_tokens` is the length of the prompt that its figures depend on. */
struct report *report_open(const char *workload, size_t prompt_tokens);
void report_close(struct report *report);

/* Adds a round's value. `unit` may be "". Names of figures are what bench/compare.mjs finds their goals by. */
void report_add(struct report *report, const char *figure, const char *unit, double value);

/* The values of a figure so far, one per round; owned by the report. */
const struct samples *report_samples(const struct report *report, const char *figure);

/* Adds a promise of hearth's, as text with the measured numbers. */
void report_check(struct report *report, bool holds, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Ends a workload: prints the report to stdout, or the error to stderr, and closes the report, which may be NULL.
 * Returns the program's exit status. */
int report_conclude(struct report *report, bool json, const char *program, const hearth_error *error);

#endif
