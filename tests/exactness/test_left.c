/* The matrix with one pool of cells that idle conversations leave for a store in memory whenever others are computed.
 */
#include "matrix.h"

int main(void)
{
    leaves = true;
    int failed = play_matrix(UNIFIED);
    if (n_left == 0) print_error("no conversation has left the cells\n");
    return failed + (n_left == 0);
}
