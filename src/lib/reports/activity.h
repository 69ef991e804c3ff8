/* What models have done and what waits for them, of their engines' and queues' counters. Any thread. */
#ifndef LIB_REPORTS_ACTIVITY_H
#define LIB_REPORTS_ACTIVITY_H

#include <stddef.h>

struct model_entry;

/* Requests in the admission queue of a model, and those that wait for the model to be loaded. */
size_t activity_admission(struct model_entry *entry);

#endif
