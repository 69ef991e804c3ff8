#include "corpus/words.h"
#include "gemm.h"
#include "support.h"

#include <math.h>

static float number(struct random *random)
{
    return (float)random_below(random, 2001) / 1000.0f - 1.0f;
}

static float *numbers(struct random *random, int n)
{
    float *v = mem_grow(NULL, (size_t)n, sizeof *v);
    for (int i = 0; i < n; i++) v[i] = number(random);
    return v;
}

static double element(struct view m, int row, int column)
{
    return (double)m.v[row * m.down + column * m.right];
}

/* A view of that size over `v`, as it is or transposed. */
static struct view some_view(const float *v, int rows, int columns, bool turned)
{
    return turned ? transposed(view_of(v, columns, rows, rows)) : view_of(v, rows, columns, columns);
}

static void check(struct random *random, int m, int n, int k, int form)
{
    float *va = numbers(random, m * k), *vb = numbers(random, k * n), *c = numbers(random, m * (n + 3));
    float *before = mem_grow(NULL, (size_t)(m * (n + 3)), sizeof *before);
    memcpy(before, c, (size_t)(m * (n + 3)) * sizeof *c);
    struct view a = some_view(va, m, k, form & 1), b = some_view(vb, k, n, form & 2);
    gemm(a, b, c, n + 3, form & 4 ? GEMM_ADD : GEMM_SET);
    for (int row = 0; row < m; row++) {
        for (int column = 0; column < n; column++) {
            double sum = form & 4 ? (double)before[row * (n + 3) + column] : 0;
            for (int i = 0; i < k; i++) sum += element(a, row, i) * element(b, i, column);
            double found = (double)c[row * (n + 3) + column];
            if (fabs(found - sum) > 1e-5 * (k + 10))
                fail_msg("%d x %d x %d, form %d: (%d, %d) is %g, not %g", m, n, k, form, row, column, found, sum);
        }
        for (int i = n; i < n + 3; i++) assert_true(c[row * (n + 3) + i] == before[row * (n + 3) + i]);
    }
    free(va);
    free(vb);
    free(c);
    free(before);
}

static void a_product_is_that_of_three_loops_whatever_its_sizes(void **state)
{
    (void)state;
    struct random random = random_of(3, 0);
    static const int sizes[] = {1, 7, 8, 9, 31, 32, 33, 64, 100, 257, 530};
    for (int form = 0; form < 8; form++) {
        for (int i = 0; i < 12; i++)
            check(&random, PICK(&random, sizes), PICK(&random, sizes), PICK(&random, sizes), form);
        check(&random, 40, 520, 20, form);
        check(&random, 20, 33, 600, form);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_product_is_that_of_three_loops_whatever_its_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
