/* The matrix with a KV stream for each slot and prompts computed in fixed chunks: compared bit for bit. */
#include "matrix.h"

int main(void)
{
    return play_matrix(DETERMINISTIC);
}
