/* The matrix with a stream of cells for each slot. */
#include "matrix.h"

int main(void)
{
    return play_matrix(SPLIT);
}
