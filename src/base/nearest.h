/* The known name that is most similar to a mistyped one (Damerau-Levenshtein distance). Pure functions; any thread. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* Letters to insert, delete, change or swap with their neighbour to turn one name into the other. Of each name only the
 * first 48 letters count. */
size_t edit_distance(const char *a, size_t a_len, const char *b, size_t b_len);

/* The name with the least distance. NULL: even that one differs in more than a third of the letters of `word`, plus
 * one. */
const char *nearest_name(const char *word, const char *const *names, size_t n);

#endif
