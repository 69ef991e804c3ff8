/* A conversation while it is made up: what was said in it so far, and so can be asked. One owner, one thread. */
#ifndef DEMO_SCENE_H
#define DEMO_SCENE_H

#include "corpus/conversation.h"
#include "corpus/words.h"

struct fact_kind;
struct tool_form;

/* Something that was stated. Of two with the same kind and thing the later one counts, in its place. */
struct fact {
    const struct fact_kind *kind;
    char *thing; /* what it is about, where the kind has such; "" */
    char *value;
};

enum { FACTS_MAX = 40, ITEMS_MAX = 9, TOOLS_MAX = 4 };

struct scene {
    struct random *random;
    struct conversation *conversation;
    struct fact facts[FACTS_MAX];
    int n_facts;
    char *items[ITEMS_MAX]; /* of the list */
    int n_items;
    char *bot; /* the name that the system prompt gives the model; NULL: none */
    struct tool_form *tools[TOOLS_MAX];
    int n_tools;
    size_t length; /* characters so far */
};

void scene_open(struct scene *scene, struct random *random, struct conversation *conversation);
void scene_close(struct scene *scene); /* not the conversation */

/* Adds a message; the text is copied and released. */
void scene_say(struct scene *scene, enum role role, struct buf *text);

/* A whole turn: what the user says, and the reply. Both are released. */
void scene_turn(struct scene *scene, struct buf *said, struct buf *reply);

/* Appends a template in which {v} stands for `value` and {t} for `thing`. */
void scene_fill(struct buf *out, const char *text, const char *thing, const char *value);

/* Makes a question less perfect, now and then: without its capital or its end, or with words before it. */
void scene_roughen(struct random *random, struct buf *question);

/* One kind of turn. False: it does not fit the scene, and nothing was added. */
typedef bool (*scene_fn)(struct scene *scene);

#endif
