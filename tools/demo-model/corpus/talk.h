/* Small talk, questions about hearth, and questions that a very small model cannot answer: fixed answers, each to
 * several ways of asking. */
#ifndef DEMO_TALK_H
#define DEMO_TALK_H

#include "corpus/scene.h"

/* Questions with one answer. */
struct talk {
    const char *asks[10]; /* ends with NULL */
    const char *answer;   /* NULL: talk_unable */
};

extern const struct talk talk_small[], talk_hearth[];
extern const int talk_n_small, talk_n_hearth;

/* What the model says to everything else. */
extern const char talk_unable[];

/* Turns: small talk; who the model is; hearth; what it cannot know; a text to be read, with facts in it. */
bool talk_turn_small(struct scene *scene);
bool talk_turn_who(struct scene *scene);
bool talk_turn_hearth(struct scene *scene);
bool talk_turn_unable(struct scene *scene);
bool talk_turn_read(struct scene *scene);

/* Asks who the model is; the answer is the name of the system prompt, where it gave one. */
void talk_ask_who(struct scene *scene, bool plainly, struct buf *question, struct buf *answer);

/* `length` characters of filler sentences, and `n_facts` facts among them. */
void talk_notes(struct scene *scene, size_t length, int n_facts, bool in_system, struct buf *out);

#endif
