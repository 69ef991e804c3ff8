/* Counts of right and wrong guesses, the older ones of less weight: see chances.h. */
#include "draft/chances.h"

#define KEPT_OF_ALL 256 /* guesses that the counts remember: when there are so many, all weigh half */
#define KEPT_OF_OWN 24
#define SHARED      4 /* the counts over all requests weigh as much as so many guesses of the request's own */

/* The shortest match of each class. */
static const int32_t lengths[CHANCE_LENGTHS] = {0, 4, 6, 9, 14, 24, 40, 64};

int32_t chances_evidence(float chance)
{
    int32_t i = (int32_t)(chance * CHANCE_LENGTHS);
    return i < 0 ? 0 : i >= CHANCE_LENGTHS ? CHANCE_LENGTHS - 1 : i;
}

/* A grammar's text is likely once its first token was right, and then it hardly matters how much of it was. */
static int class_of(enum draft_source source, int32_t matched)
{
    if (source == DRAFT_GRAMMAR || source == DRAFT_MODEL)
        return matched < CHANCE_LENGTHS ? matched : CHANCE_LENGTHS - 1;
    int i = 0;
    while (i + 1 < CHANCE_LENGTHS && matched >= lengths[i + 1]) i++;
    return i;
}

void chances_init(struct chances *all)
{
    static const float expected[CHANCE_LENGTHS] = {0.4F, 0.6F, 0.75F, 0.85F, 0.92F, 0.96F, 0.98F, 0.99F};
    *all = (struct chances){0};
    for (int source = 0; source < DRAFT_SOURCES; source++)
        for (int i = 0; i < CHANCE_LENGTHS; i++) {
            all->tried[source][i] = SHARED;
            all->right[source][i] = SHARED * (source == DRAFT_GRAMMAR ? 0.95F
                                              : source == DRAFT_MODEL ? ((float)i + 0.5F) / CHANCE_LENGTHS
                                                                      : expected[i]);
        }
}

double chances_of(const struct chances *all, const struct chances *own, enum draft_source source, int32_t matched)
{
    int i = class_of(source, matched);
    double shared = (double)all->right[source][i] / (double)all->tried[source][i];
    return ((double)own->right[source][i] + SHARED * shared) / ((double)own->tried[source][i] + SHARED);
}

static void note(struct chances *chances, enum draft_source source, int i, bool right, float kept)
{
    chances->tried[source][i] += 1;
    chances->right[source][i] += right;
    if (chances->tried[source][i] < kept) return;
    chances->tried[source][i] /= 2;
    chances->right[source][i] /= 2;
}

void chances_note(struct chances *all, struct chances *own, enum draft_source source, int32_t matched, bool right)
{
    int i = class_of(source, matched);
    note(all, source, i, right, KEPT_OF_ALL);
    note(own, source, i, right, KEPT_OF_OWN);
}
