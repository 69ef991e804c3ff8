/* The matrix with replies that come back in the tokens that were sampled (instance/requests/reply_book.h). */
#include "matrix.h"

int main(void)
{
    samples = true;
    int failed = play_matrix(UNIFIED) + play_matrix(SPLIT);
    if (n_sampled == 0) print_error("every reply was tokenised as it was sampled: nothing is shown\n");
    return failed + (n_sampled == 0);
}
