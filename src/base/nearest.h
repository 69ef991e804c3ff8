/* The known name that someone most likely meant. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* Letters to add, leave out, change or swap with their neighbour to make one name the other. Longer names than 48
 * letters are told apart by their beginning. */
size_t edit_distance(const char *a, size_t a_len, const char *b, size_t b_len);

/* The name with the least distance; NULL where even that one differs in more than a third of the letters (and one). */
const char *nearest_name(const char *word, const char *const *names, size_t n);

#endif
