/* A list that is stated once, and questions for its items. */
#ifndef DEMO_LISTS_H
#define DEMO_LISTS_H

#include "corpus/scene.h"

/* Makes up the scene's list of n items and appends the sentence that states it: "The list: a, b, c." */
void lists_state(struct scene *scene, int n, struct buf *out);

enum list_question { LIST_NTH, LIST_LAST, LIST_COUNT, LIST_REPEAT };

/* Asks something of the scene's list, which exists. */
void lists_ask(struct scene *scene, enum list_question which, struct buf *question, struct buf *answer);

/* Turns: state a list, ask something of it. */
bool lists_turn_state(struct scene *scene);
bool lists_turn_ask(struct scene *scene);

#endif
