/* Matrix products of single-precision numbers, which are nearly all of what training computes. Pure functions; any
 * number of threads at once, each product on the thread that asks for it. */
#ifndef DEMO_GEMM_H
#define DEMO_GEMM_H

#include <stddef.h>

/* A matrix that is read: element (row, column) is v[row * down + column * right]. */
struct view {
    const float *v;
    int rows, columns;
    ptrdiff_t down, right;
};

/* Whether a product replaces what is there or is added to it. */
enum gemm_mode { GEMM_SET, GEMM_ADD };

static inline struct view view_of(const float *v, int rows, int columns, ptrdiff_t stride)
{
    return (struct view){v, rows, columns, stride, 1};
}

static inline struct view transposed(struct view m)
{
    return (struct view){m.v, m.columns, m.rows, m.right, m.down};
}

/* c = a b, or c += a b. a.columns equals b.rows; rows of c are `stride` apart and have b.columns numbers. */
void gemm(struct view a, struct view b, float *c, ptrdiff_t stride, enum gemm_mode mode);

#endif
