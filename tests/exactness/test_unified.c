/* The matrix with one pool of cells for all sequences. */
#include "matrix.h"

int main(void)
{
    return play_matrix(UNIFIED);
}
