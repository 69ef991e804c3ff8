/* How much of what could be tried a test tries. `make test` plays a part of random cases, always the same, and a
 * quarter of large matrices: TESTS_QUARTER (0 to 3) says which. `make thorough` (TESTS_THOROUGH=1) plays all. */
#ifndef FAKES_CASES_H
#define FAKES_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static inline bool is_thorough(void)
{
    return getenv("TESTS_THOROUGH") != NULL;
}

static inline int cases(int all, int part)
{
    return is_thorough() ? all : part;
}

/* A quarter of a matrix's cells, given the sum of a cell's indices. Where the other dimensions have sums of four in a
 * row, any two values meet in each quarter. */
static inline bool is_in_part(size_t sum)
{
    const char *quarter = getenv("TESTS_QUARTER");
    return is_thorough() || sum % 4 == (quarter != NULL ? strtoul(quarter, NULL, 10) % 4 : 0);
}

#endif
