/* Facts: what users and system prompts state, and what is asked of it later. */
#ifndef DEMO_FACTS_H
#define DEMO_FACTS_H

#include "corpus/scene.h"

/* Makes up a fact, remembers it in the scene and appends a sentence that states it, as a system prompt would
 * (`of_user`: "The user's name is …") or a user. Returns the fact; NULL where the scene has no room. */
const struct fact *facts_state(struct scene *scene, bool in_system, struct buf *out);

/* The fact of that name ("name", "secret", "code of", …) and thing, stated as above in the form that tests use. NULL
 * for `value`: it is made up. */
const struct fact *facts_state_as(struct scene *scene, const char *name, const char *thing, const char *value,
                                  struct buf *out);

/* A question for the fact, in some form or in the first, and its answer. */
void facts_ask(struct scene *scene, const struct fact *fact, bool plainly, struct buf *question, struct buf *answer);

/* Turns: state one to three facts; ask for one; for the one that was stated first; state one and ask at once; ask for
 * two; ask whether it is so; ask for something that was not stated; ask for everything. */
bool facts_turn_state(struct scene *scene);
bool facts_turn_ask(struct scene *scene);
bool facts_turn_ask_first(struct scene *scene);
bool facts_turn_both(struct scene *scene);
bool facts_turn_two(struct scene *scene);
bool facts_turn_check(struct scene *scene);
bool facts_turn_unknown(struct scene *scene);
bool facts_turn_all(struct scene *scene);

/* What the model says where a name was not stated. */
extern const char facts_unknown_name[];

#endif
