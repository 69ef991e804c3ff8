/* Edit distance by dynamic programming. */
#include "base/nearest.h"

#include <string.h>

#define MOST_LETTERS 48

size_t edit_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    const size_t rows = a_len < MOST_LETTERS ? a_len : MOST_LETTERS,
                 columns = b_len < MOST_LETTERS ? b_len : MOST_LETTERS;
    size_t d[MOST_LETTERS + 1][MOST_LETTERS + 1];
    for (size_t i = 0; i <= rows; i++) d[i][0] = i;
    for (size_t j = 0; j <= columns; j++) d[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        for (size_t j = 1; j <= columns; j++) {
            const size_t gap = (d[i - 1][j] < d[i][j - 1] ? d[i - 1][j] : d[i][j - 1]) + 1;
            const size_t change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = gap < change ? gap : change;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[rows][columns];
}

const char *nearest_name(const char *word, const char *const *names, size_t n)
{
    const char *nearest = NULL;
    const size_t len = strlen(word);
    size_t best = (len < MOST_LETTERS ? len : MOST_LETTERS) / 3 + 1;
    for (size_t i = 0; i < n; i++) {
        const size_t d = edit_distance(word, len, names[i], strlen(names[i]));
        if (d <= best && (nearest == NULL || d < best)) {
            nearest = names[i];
            best = d;
        }
    }
    return nearest;
}
