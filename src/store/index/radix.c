/* Radix tree operations: walks, insertion with edge splits, removal with edge merges. Contracts are in radix.h. */
#include "store/index/radix.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Packed token lists: little-endian integers of 3 or 4 bytes ---- */

enum { NARROW = 3, WIDE = 4 };

static uint32_t load(const uint8_t *p, uint32_t width)
{
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
    return width == NARROW ? low : low | (uint32_t)p[3] << 24;
}

struct packed packed_of(const int32_t *tokens, size_t n)
{
    uint32_t all = 0;
    for (size_t i = 0; i < n; i++) all |= (uint32_t)tokens[i];
    struct packed packed = {.len = (uint32_t)n, .width = all < (uint32_t)1 << 24 ? NARROW : WIDE};
    if (n == 0) return packed;
    uint8_t *p = packed.v = mem_grow(NULL, n, packed.width);
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < packed.width; k++) *p++ = (uint8_t)((uint32_t)tokens[i] >> 8 * k);
    return packed;
}

void packed_release(struct packed *packed)
{
    free(packed->v);
    *packed = (struct packed){0};
}

int32_t packed_at(const struct packed *packed, size_t i)
{
    assert(packed->v != NULL && i < packed->len);
    return (int32_t)load(packed->v + i * packed->width, packed->width);
}

void packed_copy(const struct packed *packed, size_t from, size_t n, int32_t *tokens)
{
    for (size_t i = 0; i < n; i++) tokens[i] = packed_at(packed, from + i);
}

size_t packed_common(const struct packed *packed, size_t from, const int32_t *tokens, size_t n)
{
    if (n == 0) return 0;
    const uint8_t *p = packed->v + from * packed->width;
    size_t i = 0;
    if (packed->width == NARROW)
        while (i < n && load(p + i * NARROW, NARROW) == (uint32_t)tokens[i]) i++;
    else
        while (i < n && load(p + i * WIDE, WIDE) == (uint32_t)tokens[i]) i++;
    return i;
}

void packed_cut(struct packed *packed, size_t from, size_t to)
{
    size_t n = to - from;
    memmove(packed->v, packed->v + from * packed->width, n * packed->width);
    packed->len = (uint32_t)n;
    packed->v = mem_grow(packed->v, n, packed->width);
}

/* ---- Edges ---- */

static uint64_t edge_hash(const struct radix_node *parent, int32_t first)
{
    return ((uint64_t)(uintptr_t)parent >> 4) * 0x100000001b3u ^ (uint32_t)first;
}

static struct radix_node *child_at(const struct radix *radix, const struct radix_node *parent, int32_t first)
{
    struct hash_link *link = hash_first(&radix->edges, edge_hash(parent, first));
    for (; link != NULL; link = hash_next(link)) {
        struct radix_node *child = container_of(struct radix_node, edge, link);
        if (child->parent == parent && packed_at(&child->tokens, 0) == first) return child;
    }
    return NULL;
}

static void attach_child(struct radix *radix, struct radix_node *parent, struct radix_node *child)
{
    child->parent = parent;
    child->prev = NULL;
    child->next = parent->first_child;
    if (child->next != NULL) child->next->prev = child;
    parent->first_child = child;
    hash_add(&radix->edges, &child->edge, edge_hash(parent, packed_at(&child->tokens, 0)));
}

static void detach_child(struct radix *radix, struct radix_node *child)
{
    hash_remove(&radix->edges, &child->edge);
    if (child->next != NULL) child->next->prev = child->prev;
    if (child->prev != NULL)
        child->prev->next = child->next;
    else
        child->parent->first_child = child->next;
}

struct radix_node *radix_open(void)
{
    return mem_alloc(sizeof(struct radix_node));
}

void radix_close(struct radix_node *node)
{
    packed_release(&node->tokens);
    free(node);
}

/* ---- Walking ---- */

struct radix_position radix_walk(const struct radix *radix, struct radix_position from, const int32_t *next, size_t n)
{
    struct radix_position at = from;
    while (n > 0) {
        size_t rest = (size_t)(at.node->end - at.end), most = rest < n ? rest : n;
        size_t same = packed_common(&at.node->tokens, at.node->tokens.len - rest, next, most);
        at.end += (int32_t)same;
        next += same;
        n -= same;
        if (same < rest || n == 0) break;
        struct radix_node *child = child_at(radix, at.node, *next);
        if (child == NULL) break;
        at.node = child;
    }
    return at;
}

size_t radix_next_tokens(struct radix_position position, int32_t *tokens, size_t max)
{
    size_t n = 0, rest = (size_t)(position.node->end - position.end);
    for (const struct radix_node *node = position.node; node != NULL && n < max; node = node->first_child) {
        if (node != position.node) rest = node->tokens.len;
        size_t some = rest < max - n ? rest : max - n;
        packed_copy(&node->tokens, node->tokens.len - rest, some, tokens + n);
        n += some;
    }
    return n;
}

static void copy_edge(const struct radix_node *node, size_t from, size_t most, struct tokens *out)
{
    size_t rest = node->tokens.len - from, n = rest < most ? rest : most;
    int32_t *tokens = mem_grow(NULL, n, sizeof *tokens);
    packed_copy(&node->tokens, from, n, tokens);
    tokens_append(out, tokens, n);
    free(tokens);
}

size_t radix_ways_on(struct radix_position position, struct tokens *ways, size_t max, size_t most)
{
    size_t n = 0, rest = (size_t)(position.node->end - position.end);
    if (rest > 0) {
        if (max > 0) copy_edge(position.node, position.node->tokens.len - rest, most, &ways[n++]);
        return n;
    }
    for (const struct radix_node *child = position.node->first_child; child != NULL && n < max; child = child->next)
        copy_edge(child, 0, most, &ways[n++]);
    return n;
}

struct radix_position radix_position_at(struct radix_node *node, int32_t end)
{
    while (node->parent != NULL && node->parent->end >= end) node = node->parent;
    return (struct radix_position){node, end};
}

/* The first of the tokens [from, end) of a path that belongs to the last edge. */
static int32_t edge_begin(const struct radix_node *node, int32_t from)
{
    return node->parent->end > from ? node->parent->end : from;
}

bool radix_matches(const struct radix_node *node, int32_t from, const int32_t *tokens)
{
    for (; node->end > from; node = node->parent) {
        int32_t begin = edge_begin(node, from);
        size_t before = (size_t)(begin - node->parent->end), n = (size_t)(node->end - begin);
        if (packed_common(&node->tokens, before, tokens + (begin - from), n) < n) return false;
    }
    return true;
}

void radix_copy_tokens(const struct radix_node *node, int32_t from, int32_t *tokens)
{
    for (; node->end > from; node = node->parent) {
        int32_t begin = edge_begin(node, from);
        size_t before = (size_t)(begin - node->parent->end), n = (size_t)(node->end - begin);
        packed_copy(&node->tokens, before, n, tokens + (begin - from));
    }
}

/* ---- Rows ---- */

struct radix_position radix_deepest_with_rows(struct radix_position position)
{
    while (position.node->n_rows == 0 && position.node->parent != NULL)
        position = (struct radix_position){position.node->parent, position.node->parent->end};
    return position;
}

struct radix_entry *radix_entry_with_rows(struct radix_position position)
{
    for (const struct radix_node *node = position.node;;) {
        for (struct radix_entry *entry = node->entries; entry != NULL; entry = entry->next)
            if (entry->rows) return entry;
        node = node->first_child;
        while (node->n_rows == 0) node = node->next;
    }
}

/* ---- Growing and shrinking ---- */

static struct radix_node *leaf(struct radix *radix, struct radix_node *parent, const int32_t *tokens, size_t n)
{
    struct radix_node *node = mem_alloc(sizeof *node);
    node->tokens = packed_of(tokens, n);
    node->end = parent->end + (int32_t)n;
    attach_child(radix, parent, node);
    return node;
}

/* Puts a node into the middle of an edge. The lower node keeps its address, since its entries' owners point to it. */
static struct radix_node *split(struct radix *radix, struct radix_position position)
{
    struct radix_node *lower = position.node;
    size_t rest = (size_t)(lower->end - position.end), n = lower->tokens.len - rest;
    int32_t *above = mem_grow(NULL, n, sizeof *above);
    packed_copy(&lower->tokens, 0, n, above);
    detach_child(radix, lower);
    struct radix_node *upper = leaf(radix, lower->parent, above, n);
    free(above);
    packed_cut(&lower->tokens, n, n + rest);
    attach_child(radix, upper, lower);
    upper->n_rows = lower->n_rows > 0 ? 1 : 0;
    return upper;
}

struct radix_node *radix_insert(struct radix *radix, struct radix_position from, const int32_t *next, size_t n,
                                struct radix_entry *entry)
{
    struct radix_position at = radix_walk(radix, from, next, n);
    size_t known = (size_t)(at.end - from.end);
    struct radix_node *node = at.end < at.node->end ? split(radix, at) : at.node;
    if (known < n) node = leaf(radix, node, next + known, n - known);
    entry->next = node->entries;
    node->entries = entry;
    /* A parent counts only whether a child has any rows, so a change stops at the first ancestor that it leaves as it
     * was. */
    struct radix_node *ancestor = entry->rows ? node : NULL;
    while (ancestor != NULL && ancestor->n_rows++ == 0) ancestor = ancestor->parent;
    return node;
}

/* Joins the edges above and below a node that neither ends a list nor branches. */
static void merge_with_child(struct radix *radix, struct radix_node *node)
{
    struct radix_node *child = node->first_child;
    size_t above = node->tokens.len, n = above + child->tokens.len;
    int32_t *both = mem_grow(NULL, n, sizeof *both);
    packed_copy(&node->tokens, 0, above, both);
    packed_copy(&child->tokens, 0, n - above, both + above);
    detach_child(radix, child);
    detach_child(radix, node);
    packed_release(&node->tokens);
    packed_release(&child->tokens);
    child->tokens = packed_of(both, n);
    free(both);
    attach_child(radix, node->parent, child);
    free(node);
}

void radix_remove(struct radix *radix, struct radix_node *node, struct radix_entry *entry)
{
    struct radix_entry **at = &node->entries;
    while (*at != entry) at = &(*at)->next;
    *at = entry->next;
    struct radix_node *ancestor = entry->rows ? node : NULL;
    while (ancestor != NULL && --ancestor->n_rows == 0) ancestor = ancestor->parent;
    while (node->entries == NULL && node->first_child == NULL && node->parent != NULL) {
        struct radix_node *parent = node->parent;
        detach_child(radix, node);
        radix_close(node);
        node = parent;
    }
    bool passes_through = node->entries == NULL && node->first_child != NULL && node->first_child->next == NULL;
    if (passes_through && node->parent != NULL) merge_with_child(radix, node);
}

/* ---- What always holds ---- */

#ifndef NDEBUG

/* Returns how many entries are at it. */
static size_t check_node(const struct radix *radix, const struct radix_node *node)
{
    size_t n = 0;
    uint32_t rows = 0;
    assert(node->tokens.len > 0 && node->end == node->parent->end + (int32_t)node->tokens.len);
    assert(child_at(radix, node->parent, packed_at(&node->tokens, 0)) == node);
    assert(node->prev == NULL ? node->parent->first_child == node : node->prev->next == node);
    assert(node->next == NULL || node->next->prev == node);
    for (const struct radix_entry *entry = node->entries; entry != NULL; entry = entry->next, n++) rows += entry->rows;
    for (const struct radix_node *child = node->first_child; child != NULL; child = child->next) {
        assert(child->parent == node);
        rows += child->n_rows > 0;
    }
    assert(node->n_rows == rows);
    assert(n > 0 || (node->first_child != NULL && node->first_child->next != NULL)); /* it ends a list, or branches */
    return n;
}

void radix_check(const struct radix *radix, size_t n_entries)
{
    const struct hash_link *link;
    size_t n = 0;
    for (size_t bucket = 0; (link = hash_any(&radix->edges, &bucket)) != NULL; bucket++)
        for (; link != NULL; link = link->next)
            n += check_node(radix, container_of(const struct radix_node, edge, link));
    assert(n == n_entries);
}

#else

void radix_check(const struct radix *radix, size_t n_entries)
{
    (void)radix;
    (void)n_entries;
}

#endif
