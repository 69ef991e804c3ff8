/* Random words of many kinds. Most are made up of syllables, letters or digits, so that a model can only copy them.
 * Every function appends valid UTF-8. Any thread. */
#ifndef DEMO_WORDS_H
#define DEMO_WORDS_H

#include "base/buf.h"
#include "random.h"

enum value {
    VALUE_NAME, /* of a person: "Ottilie", now and then beyond ASCII */
    VALUE_COLOR,
    VALUE_FOOD,
    VALUE_ANIMAL,
    VALUE_CITY,
    VALUE_JOB,
    VALUE_PLACE, /* "drawer" */
    VALUE_DAY,
    VALUE_NUMBER, /* 1 to 4 digits */
    VALUE_AGE,
    VALUE_CODE,   /* 3 to 9 letters and digits: "QX7B2" */
    VALUE_ANY,    /* what a thing of the user's can be: a code, a number, a name, a word */
    VALUE_WORD,   /* lower case */
    VALUE_PHRASE, /* 2 to 6 words */
    VALUE_WEATHER,
    VALUE_TIME,
    VALUE_FOREIGN /* characters beyond ASCII: accents, other alphabets, CJK, emoji */
};

void words_value(struct random *random, enum value kind, struct buf *out);

/* A thing that somebody can own, or that can lie somewhere: "bicycle". Static. */
const char *words_thing(struct random *random);

/* A sentence of filler, "The small kettle was near Doramin.", without a line end. */
void words_sentence(struct random *random, struct buf *out);

/* So many words with spaces between them; of mixed kinds where `mixed`. */
void words_several(struct random *random, int n, bool mixed, struct buf *out);

/* One of a table of texts. */
#define PICK(random, table) ((table)[random_below((random), (int)(sizeof(table) / sizeof *(table)))])

#endif
