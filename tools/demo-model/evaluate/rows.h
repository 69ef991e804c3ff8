/* What the model is examined in: conversations with fresh names and codes, each with the reply that is right. Their
 * seeds are none of the corpus'. Any thread. */
#ifndef DEMO_ROWS_H
#define DEMO_ROWS_H

#include "corpus/scene.h"

/* Makes up the i-th conversation; its last message is the reply that is wanted. */
struct row {
    const char *name;
    void (*make)(struct scene *scene, int i);
    bool contains; /* a reply that contains it is right, too */
    int n;         /* conversations, where there is a certain number of them; 0: as many as wanted */
};

extern const struct row rows[];
extern const int n_rows;

/* A code in the system prompt, small talk, the question: what a damaged cache is tried on. */
void rows_secret(struct scene *scene, int i);

#endif
