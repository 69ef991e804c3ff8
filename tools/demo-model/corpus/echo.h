/* Replies that are copies: of a few words, of a line, of many lines. They teach copying, and with drafts from the
 * prompt they are what hearth generates fastest. */
#ifndef DEMO_ECHO_H
#define DEMO_ECHO_H

#include "corpus/scene.h"

/* A request to say `text` again. */
void echo_ask(struct random *random, const char *text, struct buf *said);

/* n lines of `width` words or so, with a line end between two; some of them look like code. */
void echo_lines(struct random *random, int n, int width, struct buf *out);

/* A request to quote those lines. */
void echo_ask_lines(struct random *random, const char *lines, struct buf *said);

/* Turns: say some words; some beyond ASCII; quote 2 to 12 lines; quote one line of several. */
bool echo_turn(struct scene *scene);
bool echo_turn_foreign(struct scene *scene);
bool echo_turn_lines(struct scene *scene);
bool echo_turn_line(struct scene *scene);

#endif
