/* A symmetric table. A sequence that is given shared cells shares them with all their owners. If two of three sequences
 * have a cells in common and two have b, the third pair has at least min(a, b) in common, as with prefixes of lists. */
#include "engine/sharing.h"

#include "base/memory.h"

#include <stdlib.h>

void sharing_init(struct sharing *sharing, size_t n_seqs)
{
    sharing->n = n_seqs;
    sharing->common = mem_alloc(n_seqs * n_seqs * sizeof *sharing->common);
    sharing->most = mem_alloc(n_seqs * sizeof *sharing->most);
}

void sharing_release(struct sharing *sharing)
{
    free(sharing->common);
    free(sharing->most);
}

static int32_t *at(const struct sharing *sharing, size_t a, size_t b)
{
    return &sharing->common[a * sharing->n + b];
}

static void note_most(struct sharing *sharing, size_t seq, int32_t before, int32_t n)
{
    int32_t *most = &sharing->most[seq];
    if (n >= *most) *most = n;
    if (n >= before || before < *most) return;
    *most = 0;
    for (size_t i = 0; i < sharing->n; i++)
        if (*at(sharing, seq, i) > *most) *most = *at(sharing, seq, i);
}

static void set(struct sharing *sharing, size_t a, size_t b, int32_t n)
{
    int32_t before = *at(sharing, a, b);
    *at(sharing, a, b) = *at(sharing, b, a) = n;
    note_most(sharing, a, before, n);
    note_most(sharing, b, before, n);
}

void sharing_add(struct sharing *sharing, int32_t from, int32_t to, int32_t n)
{
    size_t source = (size_t)from, target = (size_t)to;
    for (size_t i = 0; i < sharing->n; i++) {
        int32_t common = i == source ? n : *at(sharing, source, i);
        if (i != target) set(sharing, target, i, common < n ? common : n);
    }
}

void sharing_cut(struct sharing *sharing, int32_t seq, int32_t n)
{
    for (size_t i = 0; i < sharing->n; i++)
        if (*at(sharing, (size_t)seq, i) > n) set(sharing, (size_t)seq, i, n);
}

int32_t sharing_between(const struct sharing *sharing, int32_t a, int32_t b)
{
    return *at(sharing, (size_t)a, (size_t)b);
}

int32_t sharing_most(const struct sharing *sharing, int32_t seq)
{
    return sharing->most[seq];
}
