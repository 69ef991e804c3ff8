/* The answering threads do the long work, so that the HTTP thread only takes and sends bytes. Replies are parsed and
 * their JSON is made, and routes that walk or copy much run here.
 *
 * Work belongs to whoever hands it over again and again: it runs once for each workers_do(), in order, and posts to the
 * HTTP thread when it has something for it. It should take milliseconds, and hand itself over again if there is more to
 * do, so that others have their turn. */
#ifndef SERVE_CORE_WORKERS_H
#define SERVE_CORE_WORKERS_H

#include "hearth.h"

/* Turns of exchanges are many and short. Routes are run one at a time: those that change what is stored do not get into
 * each other's way, and long ones leave a thread for the turns. */
enum work_lane { WORK_TURN, WORK_ROUTE, N_WORK_LANES };

struct work {
    enum work_lane lane;
    struct work *next; /* in the queue */
    void (*run)(void *ud);
    void *ud;
};

struct workers;

/* Starts the threads. NULL with HEARTH_NO_MEMORY if that fails. */
struct workers *workers_open(hearth_error *error);

/* Ends the threads, once the queue is empty. From then on work runs on the thread that hands it over: the end of the
 * server is left. */
void workers_stop(struct workers *workers);
void workers_close(struct workers *workers); /* after workers_stop(); NULL is fine for both */

/* Any thread. The work must not be in the queue. */
void workers_do(struct workers *workers, struct work *work);

/* Has `release(owned)` called on an answering thread: to free a large request takes its time. */
void workers_release(struct workers *workers, void (*release)(void *owned), void *owned);

#endif
