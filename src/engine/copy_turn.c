/* See copy_turn.h. */
#include "engine/copy_turn.h"

bool copy_turn_is_over(const struct copy_turn *turn, int64_t now)
{
    return turn->bytes == 0 || now >= turn->until;
}

size_t copy_turn_bytes(const struct copy_turn *turn, int64_t now, double byte_ns)
{
    double fit = byte_ns > 0 ? (double)(turn->until - now) / byte_ns : 0;
    return fit < (double)turn->bytes ? (size_t)fit : turn->bytes;
}

void copy_turn_take(struct copy_turn *turn, size_t bytes)
{
    turn->bytes -= bytes < turn->bytes ? bytes : turn->bytes;
}
