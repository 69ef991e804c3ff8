/* A blocked matrix product. Parts of b that fit the second-level cache are packed into panels as wide as a tile; the
 * innermost loop keeps a tile of sums in registers. Rows of a are read where they lie, a tile's at a time; only a
 * transposed a, and the last rows, are packed, since there neighbours would lie in as many cache lines, or nowhere.
 *
 * The panels belong to the calling thread. */
#include "gemm.h"

#include <stdbool.h>
#include <string.h>

/* A tile's sums, a row of the panel and a factor fit the registers: 32 of 16 numbers with AVX-512, else 16, of 8 with
 * AVX and of 4 without. Where they do not fit, or are longer than the processor's, the compiler keeps them in memory:
 * with tiles of 8 by 32 numbers a processor of AVX2 did 2 GFLOPS in place of 55. */
#if defined __AVX512F__
enum { TILE_ROWS = 8, LANES = 16 };
#elif defined __AVX__
enum { TILE_ROWS = 6, LANES = 8 };
#else
enum { TILE_ROWS = 6, LANES = 4 };
#endif
enum { TILE_COLUMNS = 2 * LANES, DEPTH = 256, WIDTH = 512 };

/* Two of them are a tile's row. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

static _Thread_local _Alignas(64) float packed_b[DEPTH * WIDTH];
static _Thread_local _Alignas(64) float packed_a[DEPTH * TILE_ROWS];

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* At most a tile's columns; all of them, as it is mostly, in a few instructions. */
static inline void put_row(float *out, const float *in, int columns, bool add)
{
    if (columns == TILE_COLUMNS) {
        for (int i = 0; i < TILE_COLUMNS; i++) out[i] = add ? out[i] + in[i] : in[i];
    } else {
        for (int i = 0; i < columns; i++) out[i] = add ? out[i] + in[i] : in[i];
    }
}

/* ---- Packing ---- */

/* One panel: `rows` times a tile's columns, zeros beyond the last one. */
static void pack_panel(struct view b, float *panel)
{
    if (b.columns < TILE_COLUMNS) memset(panel, 0, (size_t)b.rows * TILE_COLUMNS * sizeof *panel);
    if (b.right == 1) {
        for (int row = 0; row < b.rows; row++)
            put_row(panel + row * TILE_COLUMNS, b.v + row * b.down, b.columns, false);
        return;
    }
    for (int column = 0; column < b.columns; column++)
        for (int row = 0; row < b.rows; row++)
            panel[row * TILE_COLUMNS + column] = b.v[row * b.down + column * b.right];
}

static struct view part_of(struct view m, int row, int column, int rows, int columns)
{
    return (struct view){m.v + row * m.down + column * m.right, least(rows, m.rows - row),
                         least(columns, m.columns - column), m.down, m.right};
}

static void pack_b(struct view b)
{
    for (int column = 0; column < b.columns; column += TILE_COLUMNS)
        pack_panel(part_of(b, 0, column, b.rows, TILE_COLUMNS), packed_b + (ptrdiff_t)column * b.rows);
}

/* At most a tile's rows, column after column; zeros in place of the missing ones. */
static struct view pack_rows(struct view a)
{
    if (a.rows == TILE_ROWS && a.down == 1) {
        for (int column = 0; column < a.columns; column++)
            memcpy(packed_a + column * TILE_ROWS, a.v + column * a.right, TILE_ROWS * sizeof *packed_a);
    } else {
        memset(packed_a, 0, (size_t)a.columns * TILE_ROWS * sizeof *packed_a);
        for (int row = 0; row < a.rows; row++)
            for (int column = 0; column < a.columns; column++)
                packed_a[column * TILE_ROWS + row] = a.v[row * a.down + column * a.right];
    }
    return (struct view){packed_a, TILE_ROWS, a.columns, 1, TILE_ROWS};
}

/* ---- Computing ---- */

struct tile {
    _Alignas(64) float v[TILE_ROWS][TILE_COLUMNS];
};

/* The product of a tile's rows of a and one panel. */
static inline void multiply(struct view a, const float *panel, struct tile *tile)
{
    lanes sums[TILE_ROWS][2];
    memset(sums, 0, sizeof sums);
    const float *column = a.v;
    for (int k = 0; k < a.columns; k++, column += a.right, panel += TILE_COLUMNS) {
        lanes left, right;
        memcpy(&left, panel, sizeof left);
        memcpy(&right, panel + LANES, sizeof right);
        for (int row = 0; row < TILE_ROWS; row++) {
            float factor = column[row * a.down];
            sums[row][0] += factor * left;
            sums[row][1] += factor * right;
        }
    }
    memcpy(tile->v, sums, sizeof tile->v);
}

static void put_tile(const struct tile *tile, float *c, ptrdiff_t stride, int rows, int columns, bool add)
{
    for (int row = 0; row < rows; row++) put_row(c + row * stride, tile->v[row], columns, add);
}

/* c (+)= a times the packed part of b, which has `columns` columns. */
static void multiply_packed(struct view a, int columns, float *c, ptrdiff_t stride, bool add)
{
    struct tile tile;
    for (int row = 0; row < a.rows; row += TILE_ROWS) {
        struct view rows = part_of(a, row, 0, TILE_ROWS, a.columns);
        if (rows.rows < TILE_ROWS || rows.right != 1) rows = pack_rows(rows);
        for (int column = 0; column < columns; column += TILE_COLUMNS) {
            const float *panel = packed_b + (ptrdiff_t)column * a.columns;
            if (rows.right == 1) {
                multiply(rows, panel, &tile);
            } else {
                multiply((struct view){packed_a, TILE_ROWS, a.columns, 1, TILE_ROWS}, panel, &tile);
            }
            put_tile(&tile, c + row * stride + column, stride, least(TILE_ROWS, a.rows - row),
                     least(TILE_COLUMNS, columns - column), add);
        }
    }
}

void gemm(struct view a, struct view b, float *c, ptrdiff_t stride, enum gemm_mode mode)
{
    for (int column = 0; column < b.columns; column += WIDTH) {
        for (int k = 0; k < a.columns; k += DEPTH) {
            struct view part = part_of(b, k, column, DEPTH, WIDTH);
            pack_b(part);
            multiply_packed(part_of(a, 0, k, a.rows, DEPTH), part.columns, c + column, stride,
                            mode == GEMM_ADD || k > 0);
        }
    }
}
