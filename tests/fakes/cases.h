/* How much of what could be tried a test tries. `make test` plays a part of random cases, always the same, and half of
 * large matrices: TESTS_HALF (0 or 1) says which. `make thorough` (TESTS_THOROUGH=1) plays all. */
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

/* Half of a matrix's cells, given the sum of a cell's indices: any values of all dimensions but one still meet, since
 * the last one's has the parity that the others leave. */
static inline bool is_in_part(size_t sum)
{
    const char *half = getenv("TESTS_HALF");
    return is_thorough() || sum % 2 == (half != NULL && half[0] == '1');
}

#endif
