/* The matrix with a stream of cells for each slot and prompts computed in fixed pieces: to the bit. */
#include "matrix.h"

int main(void)
{
    return play_matrix(DETERMINISTIC);
}
