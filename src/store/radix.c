#include "store/radix.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- Edges ---- */

static uint64_t edge_hash(const struct place *parent, int32_t first)
{
    return ((uint64_t)(uintptr_t)parent >> 4) * 0x100000001b3u ^ (uint32_t)first;
}

static struct place *child_at(const struct radix *radix, const struct place *parent, int32_t first)
{
    struct hash_link *link = hash_first(&radix->edges, edge_hash(parent, first));
    for (; link != NULL; link = hash_next(link)) {
        struct place *child = container_of(struct place, edge, link);
        if (child->parent == parent && packed_at(&child->tokens, 0) == first) return child;
    }
    return NULL;
}

static void attach(struct radix *radix, struct place *parent, struct place *child)
{
    child->parent = parent;
    child->prev = NULL;
    child->next = parent->first_child;
    if (child->next != NULL) child->next->prev = child;
    parent->first_child = child;
    hash_add(&radix->edges, &child->edge, edge_hash(parent, packed_at(&child->tokens, 0)));
}

static void detach(struct radix *radix, struct place *child)
{
    hash_remove(&radix->edges, &child->edge);
    if (child->next != NULL) child->next->prev = child->prev;
    if (child->prev != NULL)
        child->prev->next = child->next;
    else
        child->parent->first_child = child->next;
}

struct place *radix_open(void)
{
    return mem_alloc(sizeof(struct place));
}

void radix_close(struct place *place)
{
    packed_release(&place->tokens);
    free(place);
}

/* ---- Walking ---- */

struct spot radix_walk(const struct radix *radix, struct spot from, const int32_t *next, size_t n)
{
    struct spot at = from;
    while (n > 0) {
        size_t rest = (size_t)(at.place->end - at.end), most = rest < n ? rest : n;
        size_t same = packed_common(&at.place->tokens, at.place->tokens.len - rest, next, most);
        at.end += (int32_t)same;
        next += same;
        n -= same;
        if (same < rest || n == 0) break;
        struct place *child = child_at(radix, at.place, *next);
        if (child == NULL) break;
        at.place = child;
    }
    return at;
}

size_t radix_next(struct spot spot, int32_t *tokens, size_t max)
{
    size_t n = 0, rest = (size_t)(spot.place->end - spot.end);
    for (const struct place *place = spot.place; place != NULL && n < max; place = place->first_child) {
        if (place != spot.place) rest = place->tokens.len;
        size_t some = rest < max - n ? rest : max - n;
        packed_copy(&place->tokens, place->tokens.len - rest, some, tokens + n);
        n += some;
    }
    return n;
}

struct spot radix_spot(struct place *place, int32_t end)
{
    while (place->parent != NULL && place->parent->end >= end) place = place->parent;
    return (struct spot){place, end};
}

/* Of the tokens [from, end) that lead to a place, those of its own edge begin here. */
static int32_t begin_of(const struct place *place, int32_t from)
{
    return place->parent->end > from ? place->parent->end : from;
}

bool radix_has(const struct place *place, int32_t from, const int32_t *tokens)
{
    for (; place->end > from; place = place->parent) {
        int32_t begin = begin_of(place, from);
        size_t before = (size_t)(begin - place->parent->end), n = (size_t)(place->end - begin);
        if (packed_common(&place->tokens, before, tokens + (begin - from), n) < n) return false;
    }
    return true;
}

void radix_copy(const struct place *place, int32_t from, int32_t *tokens)
{
    for (; place->end > from; place = place->parent) {
        int32_t begin = begin_of(place, from);
        size_t before = (size_t)(begin - place->parent->end), n = (size_t)(place->end - begin);
        packed_copy(&place->tokens, before, n, tokens + (begin - from));
    }
}

/* ---- Rows ---- */

/* Each place counts those of its children that have any: a change goes up only as far as it is one. */
static void add_rows(struct place *place)
{
    while (place != NULL && place->n_rows++ == 0) place = place->parent;
}

static void take_rows(struct place *place)
{
    while (place != NULL && --place->n_rows == 0) place = place->parent;
}

struct spot radix_with_rows(struct spot spot)
{
    while (spot.place->n_rows == 0 && spot.place->parent != NULL)
        spot = (struct spot){spot.place->parent, spot.place->parent->end};
    return spot;
}

struct guest *radix_rows_of(struct spot spot)
{
    for (const struct place *place = spot.place;;) {
        for (struct guest *guest = place->guests; guest != NULL; guest = guest->next)
            if (guest->rows) return guest;
        place = place->first_child;
        while (place->n_rows == 0) place = place->next;
    }
}

/* ---- Growing and shrinking ---- */

static struct place *leaf(struct radix *radix, struct place *parent, const int32_t *tokens, size_t n)
{
    struct place *place = mem_alloc(sizeof *place);
    place->tokens = packed_of(tokens, n);
    place->end = parent->end + (int32_t)n;
    attach(radix, parent, place);
    return place;
}

/* A place in the middle of an edge. The lower place stays what it is, since its guests know it. */
static struct place *split(struct radix *radix, struct spot spot)
{
    struct place *lower = spot.place;
    size_t rest = (size_t)(lower->end - spot.end), n = lower->tokens.len - rest;
    int32_t *above = mem_grow(NULL, n, sizeof *above);
    packed_copy(&lower->tokens, 0, n, above);
    detach(radix, lower);
    struct place *upper = leaf(radix, lower->parent, above, n);
    free(above);
    packed_cut(&lower->tokens, n, n + rest);
    attach(radix, upper, lower);
    upper->n_rows = lower->n_rows > 0 ? 1 : 0;
    return upper;
}

struct place *radix_enter(struct radix *radix, struct spot from, const int32_t *next, size_t n, struct guest *guest)
{
    struct spot at = radix_walk(radix, from, next, n);
    size_t known = (size_t)(at.end - from.end);
    struct place *place = at.end < at.place->end ? split(radix, at) : at.place;
    if (known < n) place = leaf(radix, place, next + known, n - known);
    guest->next = place->guests;
    place->guests = guest;
    if (guest->rows) add_rows(place);
    return place;
}

/* An edge that nothing parts from any more is one with the next. */
static void join(struct radix *radix, struct place *place)
{
    struct place *child = place->first_child;
    size_t above = place->tokens.len, n = above + child->tokens.len;
    int32_t *both = mem_grow(NULL, n, sizeof *both);
    packed_copy(&place->tokens, 0, above, both);
    packed_copy(&child->tokens, 0, n - above, both + above);
    detach(radix, child);
    detach(radix, place);
    packed_release(&place->tokens);
    packed_release(&child->tokens);
    child->tokens = packed_of(both, n);
    free(both);
    attach(radix, place->parent, child);
    free(place);
}

void radix_leave(struct radix *radix, struct place *place, struct guest *guest)
{
    struct guest **at = &place->guests;
    while (*at != guest) at = &(*at)->next;
    *at = guest->next;
    if (guest->rows) take_rows(place);
    while (place->guests == NULL && place->first_child == NULL && place->parent != NULL) {
        struct place *parent = place->parent;
        detach(radix, place);
        radix_close(place);
        place = parent;
    }
    bool passes = place->guests == NULL && place->first_child != NULL && place->first_child->next == NULL;
    if (passes && place->parent != NULL) join(radix, place);
}
