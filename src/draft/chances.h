/* How likely drafted tokens are to be the ones that are sampled, by where they come from and by how many tokens before
 * them match. It is counted while the server runs, over all requests and of each by itself. A guess that was not
 * computed counts as well, since the next sampled token shows whether it was right. Pure; belongs to one thread at a
 * time. */
#ifndef DRAFT_CHANCES_H
#define DRAFT_CHANCES_H

#include <stdbool.h>
#include <stdint.h>

/* Where a draft comes from, in the order in which they are tried. */
enum draft_source {
    DRAFT_GRAMMAR, /* the output constraint leaves no choice */
    DRAFT_REQUEST, /* the request's own prompt and reply */
    DRAFT_STORE,   /* what followed the same tokens elsewhere: in other conversations of the same scope */
    DRAFT_MODEL,   /* a draft model */
    DRAFT_SOURCES
};

#define CHANCE_LENGTHS 8 /* classes of match lengths */

struct chances {
    float right[DRAFT_SOURCES][CHANCE_LENGTHS], tried[DRAFT_SOURCES][CHANCE_LENGTHS];
};

/* Sets the chances that are expected of a machine and a model that nothing is known of. */
void chances_init(struct chances *all);

/* The evidence for a draft model's token, in place of a match length, by the chance that the model itself gives. */
int32_t chances_evidence(float chance);

/* That the next token is right, where `matched` tokens before it match; of a request ({0} at first), whose own counts
 * weigh more the more there are. */
double chances_of(const struct chances *all, const struct chances *own, enum draft_source source, int32_t matched);

void chances_note(struct chances *all, struct chances *own, enum draft_source source, int32_t matched, bool right);

#endif
