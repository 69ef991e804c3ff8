/* An index whose tokens are the letters of texts: put(index, 3, "abcdef", 10) saves the rows of "def". */
#ifndef UNIT_STORE_TEXTS_H
#define UNIT_STORE_TEXTS_H

#include "index_helpers.h"

enum { STRIDE = 4 };

static struct identity mine;
static int n_freed;

static inline void count_freed(void *user)
{
    n_freed++;
    free(user);
}

static inline struct index *open_index(uint64_t budget)
{
    mine = some_identity(0xAA);
    n_freed = 0;
    return index_open(STRIDE, budget, count_freed);
}

enum { TEXT = 128 };

static inline int32_t spell(const char *text, int32_t tokens[TEXT])
{
    int32_t n = 0;
    for (; text[n] != '\0'; n++) tokens[n] = (unsigned char)text[n];
    return n;
}

struct spelled {
    int32_t tokens[TEXT];
    struct reserve what;
};

/* Saves the text up to its end; the slab has the letters after `start`. */
static inline void spelled(struct spelled *s, enum slab_kind kind, int32_t start, const char *text, uint64_t size)
{
    int32_t end = spell(text, s->tokens);
    s->what = reserve_of(&mine, s->tokens, start, end, size);
    s->what.kind = kind;
}

static inline enum reserved put_kind(struct index *index, enum slab_kind kind, int32_t start, const char *text,
                                     uint64_t size)
{
    struct spelled s;
    spelled(&s, kind, start, text, size);
    return save(index, &s.what, 1000);
}

static inline enum reserved put(struct index *index, int32_t start, const char *text, uint64_t size)
{
    return put_kind(index, SLAB_ROWS, start, text, size);
}

static inline struct reservation *begin(struct index *index, int32_t start, const char *text, uint64_t size)
{
    struct spelled s;
    spelled(&s, SLAB_ROWS, start, text, size);
    struct reservation *reservation;
    struct victim *victims;
    assert_int_equal(reserve(index, &s.what, &reservation, &victims), RESERVED);
    delete_all(index, victims);
    return reservation;
}

static inline struct match look(struct index *index, const char *text, bool states)
{
    int32_t tokens[TEXT], n = spell(text, tokens);
    struct match match = find(index, &mine, tokens, n, STRIDE, states);
    assert_int_equal(verified(index, match.rows, tokens, match.n_rows), match.n_rows);
    return match;
}

static inline void expect_rows(struct index *index, const char *text, int32_t n)
{
    struct match match = look(index, text, false);
    if (match.n_rows != n) fail_msg("'%s': %d rows, not %d", text, match.n_rows, n);
    assert_int_equal(match.rows != NULL, n > 0);
    assert_null(match.state);
    index_release(index, &match);
}

static inline void expect_state(struct index *index, const char *text, int32_t n_rows, int32_t n_state)
{
    struct match match = look(index, text, true);
    if (match.n_rows != n_rows || match.n_state != n_state)
        fail_msg("'%s': %d rows and a state at %d", text, match.n_rows, match.n_state);
    assert_int_equal(match.state != NULL, n_state > 0);
    index_release(index, &match);
}

static inline struct slab_key key_of_text(const char *text)
{
    int32_t tokens[TEXT], n = spell(text, tokens);
    return slab_key_of(&mine, tokens, (size_t)n);
}

static inline enum index_has has(struct index *index, const char *text)
{
    struct slab_key key = key_of_text(text);
    return index_has(index, &key);
}

static inline struct entry *pin(struct index *index, const char *text)
{
    struct match match = look(index, text, false);
    return match.rows;
}

static inline void touch(struct index *index, const char *text, int64_t now_ms)
{
    struct entry *entry = pin(index, text);
    index_touch(index, entry, now_ms);
    index_unpin(index, entry);
}

enum { NOW = 2000 };

static inline bool adopt_used(struct index *index, enum slab_kind kind, const char *parent, int32_t start,
                              const char *text, uint64_t size, int64_t used_ms, uint32_t hits)
{
    int32_t tokens[TEXT], end = spell(text, tokens);
    struct slab_head head = {.kind = kind,
                             .identity = mine,
                             .key = key_of_text(text),
                             .start = start,
                             .end = end,
                             .tokens = {.v = tokens + start, .len = (size_t)(end - start)},
                             .used_ms = used_ms,
                             .hits = hits};
    if (parent != NULL) head.parent = key_of_text(parent);
    return index_adopt(index, &head, size, NOW);
}

static inline bool adopt(struct index *index, enum slab_kind kind, const char *parent, int32_t start, const char *text,
                         uint64_t size, int64_t used_ms)
{
    return adopt_used(index, kind, parent, start, text, size, used_ms, 0);
}

/* Nothing is pinned, reserved or still to be deleted. */
static inline void close_quiet(struct index *index)
{
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.pins, 0);
    assert_int_equal(usage.reservations, 0);
    index_close(index);
}

#endif
