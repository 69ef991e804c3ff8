/* How many threads compute a tick: fewer than there are where more would wait for each other.
 *
 * llama.cpp's threads spin at hundreds of barriers a token until the last has come. Where another process has one of
 * the CPUs, the thread that stolen_ns it is waited for at nearly each of them, and fewer threads are many times faster;
 * so is one thread with a model so small that the barriers take longer than the work between them.
 *
 * Ticks of few rows, as of replies, take the same time again and again: which number of threads is fastest is tried
 * out, and only where there is reason to: when such ticks begin, when they take much longer than they did, and, as long
 * as threads are left out, from time to time with one step more. Ticks of many rows, as of prompts, are long, and no
 * two of them alike: there it is the CPU time which the threads did not get that tells of other processes.
 *
 * Pure: no clock and no threads of its own. It belongs to whoever feeds it, the engine's thread. */
#ifndef ENGINE_THREAD_SCALING_H
#define ENGINE_THREAD_SCALING_H

#include <stdbool.h>
#include <stdint.h>

/* Ticks of less than so many rows are told apart by their number; all others are "many". */
#define SCALING_BUCKETS 16

/* Numbers of threads that are tried: all, one less, and halves of all. */
#define SCALING_STEPS 12

/* Ticks of the same number of rows. */
struct scaling_bucket {
    int32_t step;           /* of struct thread_scaling's: the threads that compute; 0: all */
    bool warmed_up;         /* the first measure, which has the costs of beginning in it, is over */
    bool known;             /* fewer threads have been tried once */
    double usual;           /* nanoseconds that a tick takes */
    bool was_slow;          /* the last measure was much longer than that */
    int64_t cooldown_ns[2]; /* nanoseconds of such ticks until fewer threads, and until more may be tried again */

    struct { /* what is being measured: with `step`, or during a trial with its own */
        int64_t ns;
        int32_t ticks;
    } measure;
    struct {
        bool on;
        bool more; /* by one step; else fewer and fewer threads are tried */
        int32_t step;
        int32_t best;                 /* the step to keep, as far as is known */
        double before, least, chosen; /* nanoseconds a tick: as it was; with the fastest; with `best` */
        double cost;                  /* nanoseconds that were stolen_ns with what was slower than before */
    } trial;
};

/* Ticks of many. */
struct scaling_large {
    int32_t step;
    int64_t ns, stolen_ns; /* what is being measured; CPU time that the threads would have had, and did not get */
    int64_t cooldown_ns;   /* nanoseconds of such ticks until more threads may be tried */
    bool was_stolen;       /* others had a CPU in the last measure */
    bool tries_more;       /* this one has a step more than the last */
};

struct thread_scaling {
    int32_t threads[SCALING_STEPS]; /* falling */
    int32_t n;
    struct scaling_bucket buckets[SCALING_BUCKETS];
    struct scaling_large large;
};

/* With at most so many threads, or always with so many. */
void thread_scaling_init(struct thread_scaling *scaling, int32_t most, bool fixed);

/* How many threads are to compute the next tick, which has so many rows. */
int32_t thread_scaling_threads(const struct thread_scaling *scaling, int32_t rows);

/* A tick has been computed by as many as thread_scaling_threads() said. */
struct scaling_tick {
    int32_t n_tokens;
    int64_t ns;     /* that its decode calls took */
    int64_t cpu_ns; /* CPU time of the process meanwhile */
};

/* Returns whether ticks of so many rows have another number of threads from now on, trials aside. */
bool thread_scaling_observe(struct thread_scaling *scaling, const struct scaling_tick *tick);

#endif
