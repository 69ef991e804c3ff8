/* How many threads compute a tick: fewer than configured, where more would wait for each other.
 *
 * llama.cpp's threads spin at hundreds of barriers per token until the last one has come. Where another process has one
 * of the CPUs, all threads wait at nearly each barrier for the one that lost it, and fewer threads are many times
 * faster. So is one thread with a model so small that the barriers take longer than the work between them.
 *
 * Ticks of few tokens, such as those of replies, take the same time again and again: numbers of threads are tried out
 * and timed, and only for a reason. One is that such ticks begin, another that they take much longer than they did.
 * While fewer threads than configured compute, one step more is tried from time to time. Ticks of many tokens, such as
 * those of prompts, are long and differ from each other. There the CPU time that the threads did not get (stolen time)
 * shows that other processes use the CPUs.
 *
 * Pure: no clock and no threads of its own. The engine's thread owns and feeds it. */
#ifndef ENGINE_THREAD_SCALING_H
#define ENGINE_THREAD_SCALING_H

#include <stdbool.h>
#include <stdint.h>

/* Ticks of less than so many tokens have a bucket for each number of tokens; all others are "large". */
#define SCALING_BUCKETS 16

/* Numbers of threads that are tried: all, one less, and halves of all. */
#define SCALING_STEPS 12

/* Ticks of the same number of tokens. */
struct scaling_bucket {
    int32_t step;           /* index into thread_scaling.threads; 0: all threads */
    bool warmed_up;         /* the first measurement, which includes start-up costs, is over */
    bool known;             /* fewer threads have been tried once */
    double usual;           /* nanoseconds that a tick takes */
    bool was_slow;          /* the last measurement was much longer than that */
    int64_t cooldown_ns[2]; /* nanoseconds of such ticks until fewer threads, and until more, may be tried again */

    struct { /* the measurement under way: with `step`, or during a trial with the trial's own */
        int64_t ns;
        int32_t ticks;
    } measure;
    struct {
        bool on;
        bool more; /* one step more; else fewer and fewer threads are tried */
        int32_t step;
        int32_t best;                 /* the best step so far */
        double before, least, chosen; /* nanoseconds per tick: before the trial; with the fastest step; with `best` */
        double cost;                  /* nanoseconds lost with steps slower than before */
    } trial;
};

/* Ticks of many tokens. */
struct scaling_large {
    int32_t step;
    int64_t ns, stolen_ns; /* the measurement under way: duration; CPU time that the threads were due and did not get */
    int64_t cooldown_ns;   /* nanoseconds of such ticks until more threads may be tried */
    bool was_stolen;       /* other processes had a CPU in the last measurement */
    bool tries_more;       /* this measurement has one step more than the last */
};

struct thread_scaling {
    int32_t threads[SCALING_STEPS]; /* descending */
    int32_t n;
    struct scaling_bucket buckets[SCALING_BUCKETS];
    struct scaling_large large;
};

/* With at most `most` threads; `fixed`: always with exactly so many. */
void thread_scaling_init(struct thread_scaling *scaling, int32_t most, bool fixed);

/* How many threads compute the next tick, which has so many tokens. */
int32_t thread_scaling_threads(const struct thread_scaling *scaling, int32_t n_tokens);

/* A tick that was computed by thread_scaling_threads() threads. */
struct scaling_tick {
    int32_t n_tokens;
    int64_t ns;     /* duration of its decode calls */
    int64_t cpu_ns; /* CPU time of the process meanwhile */
};

/* Whether ticks of so many tokens are computed with another number of threads for a trial. */
bool thread_scaling_tries(const struct thread_scaling *scaling, int32_t n_tokens);

/* Returns whether ticks of so many tokens have another number of threads from now on, trials aside. */
bool thread_scaling_observe(struct thread_scaling *scaling, const struct scaling_tick *tick);

#endif
