/* How much the engine's thread may copy in or out of the context between two ticks: bytes, and time. On a CPU the bytes
 * decide, which are copied as fast as memory is. Other backends copy each run of cells by itself, layer by layer, and
 * replies of several slots lie interleaved: there the same bytes may take a hundred times as long. Pure; the engine's
 * thread passes the time. */
#ifndef ENGINE_COPY_TURN_H
#define ENGINE_COPY_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The time that is left of a turn. */
struct copy_turn {
    size_t bytes;
    int64_t until; /* clock of the engine, in nanoseconds */
};

static inline bool copy_turn_is_over(const struct copy_turn *turn, int64_t now)
{
    return turn->bytes == 0 || now >= turn->until;
}

/* The bytes that the next copy should have at most. byte_ns: nanoseconds that a byte took lately; 0: not known yet, so
 * that as little as possible is copied first. */
static inline size_t copy_turn_bytes(const struct copy_turn *turn, int64_t now, double byte_ns)
{
    double fit = byte_ns > 0 ? (double)(turn->until - now) / byte_ns : 0;
    return fit < (double)turn->bytes ? (size_t)fit : turn->bytes;
}

static inline void copy_turn_take(struct copy_turn *turn, size_t bytes)
{
    turn->bytes -= bytes < turn->bytes ? bytes : turn->bytes;
}

#endif
