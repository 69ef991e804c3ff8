/* What a follower is told of an index: the list of all indexed entries in the order in which they were indexed, parents
 * before children, and how far the follower has read it. An entry that leaves before it was read is no news; what the
 * follower keeps of one that it knows is queued for it. So what is waiting for a follower takes no more memory than the
 * entries do.
 *
 * Part of the index, under its mutex (index_parts.h). */
#include "base/memory.h"
#include "store/index/index_parts.h"

#include <stdlib.h>

/* The follower reads past so many entries before others have a turn at the mutex. */
enum { BATCH_STEPS = 64 };

/* ---- The list ---- */

static void tell(struct index *index)
{
    if (!index->follower_waits) return;
    index->follower_waits = false;
    index->follower.changed(index->follower.ud);
}

void follow_added(struct index *index, struct indexed *indexed)
{
    index_require_held(index);
    indexed->older = index->newest;
    if (index->newest != NULL)
        index->newest->newer = indexed;
    else
        index->oldest = indexed;
    index->newest = indexed;
    if (index->unread == NULL) index->unread = indexed;
    tell(index);
}

void follow_removed(struct index *index, struct indexed *indexed)
{
    index_require_held(index);
    if (index->unread == indexed) index->unread = indexed->newer;
    *(indexed->older != NULL ? &indexed->older->newer : &index->oldest) = indexed->newer;
    *(indexed->newer != NULL ? &indexed->newer->older : &index->newest) = indexed->older;
    indexed->older = indexed->newer = NULL;
    if (indexed->followed == NULL) return;
    indexed->followed->next = NULL;
    *index->left_end = indexed->followed;
    index->left_end = &indexed->followed->next;
    indexed->followed = NULL;
    tell(index);
}

/* ---- Reading ---- */

static struct index_followed *take_left(struct index *index)
{
    struct index_followed *followed = index->left;
    index->left = followed->next;
    if (index->left == NULL) index->left_end = &index->left;
    return followed;
}

static void copy_tokens(const struct indexed *indexed, int32_t block, struct index_news *news)
{
    const struct entry *entry = &indexed->entry;
    struct tokens *tokens = &news->tokens;
    news->from = entry->kind == SLAB_STATE ? 0 : entry->start - entry->start % block;
    tokens->len = (size_t)(entry->end - news->from);
    if (tokens->cap < tokens->len) {
        tokens->cap = tokens->len;
        tokens->v = mem_grow(tokens->v, tokens->cap, sizeof *tokens->v);
    }
    radix_copy_tokens(indexed->node, news->from, tokens->v);
}

static void enter(struct index *index, struct indexed *indexed, struct index_news *news)
{
    const struct entry *entry = &indexed->entry;
    const struct indexed *parent = indexed_of(entry->parent);
    news->type = INDEX_ENTERED;
    news->was_told = indexed->followed != NULL;
    if (!news->was_told) indexed->followed = mem_alloc(index->follower.size);
    indexed->followed->round = index->round;
    news->followed = indexed->followed;
    news->parent = parent == NULL ? NULL : parent->followed;
    news->kind = entry->kind;
    news->start = entry->start;
    news->end = entry->end;
    copy_tokens(indexed, index->follower.block, news);
}

static bool is_told(const struct index *index, const struct indexed *indexed)
{
    return indexed->followed != NULL && indexed->followed->round == index->round;
}

/* Reads one entry. Whether that is news. A child of one that the follower does not know yet is none: its identity was
 * named just now. */
static bool read_entry(struct index *index, struct index_news *news)
{
    struct indexed *indexed = index->unread;
    index->unread = indexed->newer;
    if (is_told(index, indexed)) return false;
    const struct indexed *parent = indexed_of(indexed->entry.parent);
    bool follows = parent == NULL || is_told(index, parent);
    news->name = index->follower.name(index->follower.ud, &indexed->space->identity);
    if (news->name == NULL || !follows) return false;
    enter(index, indexed, news);
    return true;
}

/* Entries that came are told first: where the same tokens left and came again, the follower never sees them gone. */
void index_next_news(struct index *index, struct index_news *news)
{
    news->type = INDEX_NO_NEWS;
    index_lock(index);
    for (int steps = 1; index->unread != NULL && !read_entry(index, news); steps++) {
        if (steps % BATCH_STEPS > 0) continue;
        index_unlock(index);
        index_lock(index);
    }
    if (news->type == INDEX_NO_NEWS && index->left != NULL) {
        news->type = INDEX_LEFT;
        news->followed = take_left(index);
        news->was_told = news->followed->round == index->round;
    }
    index->follower_waits = news->type == INDEX_NO_NEWS;
    index_unlock(index);
}

void index_follow_anew(struct index *index)
{
    index_lock(index);
    index->round++;
    index->unread = index->oldest;
    tell(index);
    index_unlock(index);
}

void index_follow_again(struct index *index)
{
    index_lock(index);
    index->unread = index->oldest;
    tell(index);
    index_unlock(index);
}

bool index_has_identity(struct index *index, const struct identity *identity)
{
    index_lock(index);
    bool has = space_find(index, identity) != NULL;
    index_unlock(index);
    return has;
}

/* ---- Beginning and ending ---- */

void index_follow(struct index *index, const struct index_follower *follower)
{
    index_lock(index);
    index->follower = *follower;
    index->left_end = &index->left;
    index->unread = index->oldest;
    index->follower_waits = false;
    index_unlock(index);
}

void index_unfollow(struct index *index)
{
    index_lock(index);
    index->follower_waits = false;
    while (index->left != NULL) index->follower.release(take_left(index));
    for (struct indexed *indexed = index->oldest; indexed != NULL; indexed = indexed->newer) {
        if (indexed->followed != NULL) index->follower.release(indexed->followed);
        indexed->followed = NULL;
    }
    index->follower = (struct index_follower){.changed = NULL};
    index_unlock(index);
}
