/* The matrix with a KV stream for each slot. */
#include "matrix.h"

int main(void)
{
    return play_matrix(SPLIT);
}
