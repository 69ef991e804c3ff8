/* The time of a call by its rows: see row_times.h. */
#include "draft/row_times.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#define FOLLOW   0.4 /* how fast the scale follows the last calls */
#define OUTLIER  2.0 /* a call that differs by more is the machine's fault, as far as the scale goes */
#define SURE     3   /* calls from which on a time is the median; of fewer it is the shortest */
#define CERTAIN  (ROW_SAMPLES / 2 + 1) /* calls that make the median, whatever was seen before */
#define LONG_AGO 64                    /* a time is tried again after so many calls for each of its rows */

static double unit_time(const struct row_time *row)
{
    float sorted[ROW_SAMPLES];
    int n = row->n < ROW_SAMPLES ? row->n : ROW_SAMPLES;
    assert(n > 0);
    for (int i = 0; i < n; i++) {
        int k = i;
        for (; k > 0 && sorted[k - 1] > row->samples[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = row->samples[i];
    }
    return (double)sorted[n < SURE ? 0 : (n - 1) / 2];
}

void row_times_note(struct row_times *times, int32_t rows, int64_t ns)
{
    if (rows < 1 || rows > ROW_TIMES || ns <= 0) return;
    struct row_time *row = &times->rows[rows];
    if (times->scale <= 0) times->scale = (double)ns;
    if (row->n > 0) {
        double off = (double)ns / (times->scale * unit_time(row));
        off = off > OUTLIER ? OUTLIER : off < 1 / OUTLIER ? 1 / OUTLIER : off;
        times->scale *= pow(off, FOLLOW);
    }
    row->seen_at = ++times->n_calls;
    /* The same count again tells the scale. How it compares with the others shows when these take turns with it. */
    bool again = times->last == rows && row->n_here >= CERTAIN;
    times->last = rows;
    if (again) return;
    row->n_here++;
    row->samples[row->n++ % ROW_SAMPLES] = (float)((double)ns / times->scale);
    if (row->n == 2 * ROW_SAMPLES) row->n = ROW_SAMPLES; /* the same place in the ring */
}

double row_times_of(const struct row_times *times, int32_t rows)
{
    assert(rows >= 1 && rows <= ROW_TIMES);
    int32_t below = rows, above = rows;
    while (below > 0 && times->rows[below].n == 0) below--;
    while (above <= ROW_TIMES && times->rows[above].n == 0) above++;
    double low = below > 0 ? unit_time(&times->rows[below]) : 0;
    double high = above <= ROW_TIMES ? unit_time(&times->rows[above]) : 0;
    if (below == 0 && above > ROW_TIMES) return 0;
    if (below == 0) return times->scale * high; /* fewer rows do not take longer */
    if (below == rows) return times->scale * low;
    if (above > ROW_TIMES) return times->scale * low * (1 + (double)(rows - below) / (2.0 * below));
    return times->scale * (low + (high - low) * (rows - below) / (above - below));
}

void row_times_rescale(struct row_times *times, int32_t rows, int64_t ns)
{
    double known = rows >= 1 && rows <= ROW_TIMES ? row_times_of(times, rows) : 0;
    if (known > 0 && ns > 0) times->scale *= (double)ns / known;
    for (size_t i = 0; i <= ROW_TIMES; i++) times->rows[i].n_here = 0;
    row_times_note(times, rows, ns);
}

/* 0: none. */
static int32_t highest_seen(const struct row_times *times)
{
    int32_t rows = ROW_TIMES;
    while (rows > 0 && times->rows[rows].n == 0) rows--;
    return rows;
}

double row_times_most(const struct row_times *times, int32_t rows)
{
    int32_t seen = highest_seen(times);
    if (rows <= seen || seen == 0) return row_times_of(times, rows);
    double alone = row_times_of(times, seen) + (rows - seen) * row_times_of(times, 1);
    double calls = ceil((double)rows / seen) * row_times_of(times, seen);
    return alone < calls ? alone : calls;
}

double row_times_least(const struct row_times *times, int32_t rows)
{
    int32_t seen = highest_seen(times);
    double plain = row_times_of(times, rows), least = INFINITY;
    for (int32_t more = 1; rows + more <= ROW_TIMES && rows + more / 2 <= seen; more *= 2) {
        double row = (row_times_of(times, rows + more) - plain) / more;
        if (row < least) least = row;
    }
    return least > 0 ? least : 0;
}

int32_t row_times_to_try(const struct row_times *times, int32_t least, int32_t most)
{
    static const int32_t tried[] = {2, 4, 8, 16, 32, 64};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        const struct row_time *row = &times->rows[tried[i]];
        bool is_stale = times->n_calls - row->seen_at > LONG_AGO * tried[i];
        bool is_certain = row->n_here >= (row->n > row->n_here ? CERTAIN : SURE);
        if (tried[i] >= least && tried[i] <= most && (!is_certain || is_stale)) return tried[i];
    }
    return 0;
}
