/* The time of a decode call by the number of its rows (batch tokens), learned while the server runs. It decides how
 * many drafted rows pay. Each row count has a time of its own, since it does not grow evenly: kernels take rows by four
 * or eight, and change at some count. Deeper contexts and other load change all of them alike: the times are relative
 * to a common scale, which follows the last calls. Pure; belongs to one thread at a time. */
#ifndef DRAFT_ROW_TIMES_H
#define DRAFT_ROW_TIMES_H

#include <stddef.h>
#include <stdint.h>

#define ROW_TIMES   96 /* row counts that are known apart */
#define ROW_SAMPLES 7  /* a time is the median of so many calls */

struct row_times {
    double scale; /* nanoseconds of a unit; 0: nothing is known */
    struct row_time {
        float samples[ROW_SAMPLES]; /* in units */
        int32_t n;                  /* calls that were seen */
        int32_t n_here;             /* of these, behind contexts of the present length */
        int64_t seen_at;            /* the count of all calls then */
    } rows[ROW_TIMES + 1];
    int64_t n_calls;
    int32_t last; /* rows of the last of them */
};

/* Notes that a call of so many rows took `ns` nanoseconds. */
void row_times_note(struct row_times *times, int32_t rows, int64_t ns);

/* The same, of the first call behind contexts of other lengths: it gives the scale. Rows may cost more or less there,
 * so that no count is known for certain any more. */
void row_times_rescale(struct row_times *times, int32_t rows, int64_t ns);

/* Nanoseconds that a call of so many rows would take; 0: nothing is known at all. Between counts that were seen it is
 * interpolated; behind them each row is taken to cost half of what it would alone. */
double row_times_of(const struct row_times *times, int32_t rows);

/* Nanoseconds that it would take at most. Behind the highest count that was ever seen each row takes as long as a call
 * of its own, and the call no longer than calls of that count. */
double row_times_most(const struct row_times *times, int32_t rows);

/* Nanoseconds that a row more takes in a call of so many, where as many are added as make it cheapest: up to twice what
 * was ever seen. */
double row_times_least(const struct row_times *times, int32_t rows);

/* A row count between `least` and `most` whose time is not known for certain, or was not seen for long; 0: there is
 * none. */
int32_t row_times_to_try(const struct row_times *times, int32_t least, int32_t most);

#endif
