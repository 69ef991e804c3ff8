/* The matrix with a stream of cells for each slot and prompts computed in fixed chunks: compared bit for bit. */
#include "matrix.h"

int main(void)
{
    return play_matrix(DETERMINISTIC);
}
