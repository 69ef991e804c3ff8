/* News of an index for its follower. All indexed entries are in a list, in the order in which they were indexed,
 * parents before children. The index keeps the position up to which the follower has read the list. An entry that
 * leaves before it was read is no news. Of one that it knows the follower gets back what it keeps. So what is waiting
 * for a follower takes no more memory than the entries do.
 *
 * Part of the index, under its mutex (index_parts.h). */
#include "base/memory.h"
#include "store/index/index_parts.h"

#include <assert.h>

/* The follower reads past so many entries before others have a turn at the mutex. */
enum { BATCH_STEPS = 64 };

/* ---- The list ---- */

static void tell(struct index *index)
{
    if (!index->follower_waits) return;
    index->follower_waits = false;
    index->follower.changed(index->follower.ud);
}

void follow_added(struct index *index, struct item *item)
{
    index_require_held(index);
    item->older = index->newest;
    if (index->newest != NULL)
        index->newest->newer = item;
    else
        index->oldest = item;
    index->newest = item;
    if (index->unread == NULL) index->unread = item;
    tell(index);
}

void follow_removed(struct index *index, struct item *item)
{
    index_require_held(index);
    if (index->unread == item) index->unread = item->newer;
    *(item->older != NULL ? &item->older->newer : &index->oldest) = item->newer;
    *(item->newer != NULL ? &item->newer->older : &index->newest) = item->older;
    item->older = item->newer = NULL;
    if (item->followed == NULL) return;
    item->followed->next = NULL;
    *index->left_end = item->followed;
    index->left_end = &item->followed->next;
    item->followed = NULL;
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

static bool is_told(const struct index *index, const struct item *item)
{
    return item->followed != NULL && item->followed->round == index->round;
}

/* Reads one entry. Whether that is news. A child of one that the follower does not know yet is none: its identity was
 * named just now. */
static bool read_entry(struct index *index, struct index_news *news)
{
    struct item *item = index->unread;
    index->unread = item->newer;
    if (is_told(index, item)) return false;
    const struct item *parent = parent_of(item);
    bool follows = parent == NULL || is_told(index, parent);
    news->name = index->follower.name(index->follower.ud, &item->space->identity);
    if (news->name == NULL || !follows) return false;
    const struct entry *entry = &item->entry;
    struct tokens *tokens = &news->tokens;
    news->type = INDEX_ENTERED;
    news->was_told = item->followed != NULL;
    if (!news->was_told) item->followed = mem_alloc(index->follower.size);
    item->followed->round = index->round;
    news->followed = item->followed;
    news->parent = parent == NULL ? NULL : parent->followed;
    news->kind = entry->kind;
    news->start = entry->start;
    news->end = entry->end;
    news->from = entry->kind == SLAB_STATE ? 0 : entry->start - entry->start % index->follower.block;
    tokens->len = (size_t)(entry->end - news->from);
    if (tokens->cap < tokens->len) {
        tokens->cap = tokens->len;
        tokens->v = mem_grow(tokens->v, tokens->cap, sizeof *tokens->v);
    }
    radix_copy_tokens(item->node, news->from, tokens->v);
    return true;
}

/* Entries that came are told first: where the same tokens left and came again, the follower never sees them gone. */
void index_next_news(struct index *index, struct index_news *news)
{
    news->type = INDEX_NO_NEWS;
    index_lock(index);
    assert(index->follower.changed != NULL);
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
    assert(follower->changed != NULL && follower->name != NULL && follower->release != NULL);
    assert(follower->size >= sizeof(struct index_followed) && follower->block > 0);
    index_lock(index);
    assert(index->follower.changed == NULL);
    index->follower = *follower;
    index->left_end = &index->left;
    index->unread = index->oldest;
    index->follower_waits = false;
    index_unlock(index);
}

void index_unfollow(struct index *index)
{
    index_lock(index);
    assert(index->follower.changed != NULL);
    index->follower_waits = false;
    while (index->left != NULL) index->follower.release(take_left(index));
    for (struct item *item = index->oldest; item != NULL; item = item->newer) {
        if (item->followed != NULL) index->follower.release(item->followed);
        item->followed = NULL;
    }
    index->follower = (struct index_follower){.changed = NULL};
    index_unlock(index);
}
