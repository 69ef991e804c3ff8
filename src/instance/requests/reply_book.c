/* A table of replies by scope and by the hash of the text before them, and a sorted list of where in a text they may
 * begin: see reply_book.h.
 *
 * The hash of a text is a polynomial modulo a prime, so that one pass over a prompt gives the hashes of all of its
 * beginnings. It says where to look; the bytes and the tokens' hash decide. */
#include "instance/requests/reply_book.h"

#include "base/buf.h"
#include "base/memory.h"
#include "base/os.h"
#include "instance/requests/request.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- Entries ---- */

/* A reply. A thread that reads its tokens without the lock has a reference. */
struct reply {
    struct reply *newer, *older; /* in the order of their use */
    struct reply *next;          /* in its bucket */
    struct reply_place place;
    atomic_int refs;
    size_t n;
    int32_t tokens[];
};

/* Replies that begin so many bytes behind the begin of a text. */
struct begin {
    size_t at;
    size_t n_replies;
};

enum {
    BUCKETS = 4096,
    REPLIES_MAX = 4096,
    PLACE_MAX = 8,  /* replies behind one prompt: those of its choices, or of a question that is asked again */
    SHORT_REPLY = 2 /* tokens; a classifier's answer is not worth a place */
};

struct reply_book {
    uint64_t base;         /* of the polynomial: a secret */
    pthread_mutex_t mutex; /* guards what follows */
    size_t limit, bytes, n_replies;
    struct reply *newest, *oldest;
    struct begin begins[REPLIES_MAX]; /* in ascending order */
    size_t n_begins;
    struct reply *buckets[BUCKETS];
};

/* ---- Hashes ---- */

#define PRIME ((UINT64_C(1) << 61) - 1)

__extension__ typedef unsigned __int128 uint128;

static uint64_t times(uint64_t a, uint64_t b)
{
    uint128 product = (uint128)a * b;
    uint64_t sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);
    return sum >= PRIME ? sum - PRIME : sum;
}

static uint64_t add_tokens(uint64_t hash, const struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->len; i++) {
        hash = (hash ^ (uint32_t)tokens->v[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* ---- The table ---- */

struct reply_book *reply_book_open(size_t bytes)
{
    struct reply_book *book = mem_alloc(sizeof *book);
    book->limit = bytes;
    os_random(&book->base, sizeof book->base); /* it keeps collisions from being made, which cost time alone */
    book->base = book->base % (PRIME - 1000) + 500;
    pthread_mutex_init(&book->mutex, NULL);
    return book;
}

static void unref(struct reply *reply)
{
    if (atomic_fetch_sub(&reply->refs, 1) == 1) free(reply);
}

static struct reply **bucket_of(struct reply_book *book, const struct reply_place *place)
{
    return &book->buckets[(place->text ^ place->text >> 32 ^ place->scope * 31) % BUCKETS];
}

static size_t size_of(const struct reply *reply)
{
    return sizeof *reply + reply->n * sizeof *reply->tokens;
}

/* The first begin at or behind `at`. */
static size_t find_begin(const struct reply_book *book, size_t at)
{
    size_t low = 0, high = book->n_begins;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (book->begins[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void unlink_use(struct reply_book *book, struct reply *reply)
{
    *(reply->newer == NULL ? &book->newest : &reply->newer->older) = reply->older;
    *(reply->older == NULL ? &book->oldest : &reply->older->newer) = reply->newer;
}

static void link_newest(struct reply_book *book, struct reply *reply)
{
    reply->newer = NULL;
    reply->older = book->newest;
    *(book->newest == NULL ? &book->oldest : &book->newest->newer) = reply;
    book->newest = reply;
}

static void drop(struct reply_book *book, struct reply *reply)
{
    struct reply **at = bucket_of(book, &reply->place);
    while (*at != reply) at = &(*at)->next;
    *at = reply->next;
    unlink_use(book, reply);
    size_t i = find_begin(book, reply->place.n_bytes);
    assert(i < book->n_begins && book->begins[i].at == reply->place.n_bytes);
    if (--book->begins[i].n_replies == 0) {
        book->n_begins--;
        memmove(&book->begins[i], &book->begins[i + 1], (book->n_begins - i) * sizeof *book->begins);
    }
    book->bytes -= size_of(reply);
    book->n_replies--;
    unref(reply);
}

static void drop_oldest(struct reply_book *book)
{
    book->oldest->older = NULL; /* as it is: clang's analyzer does not see it */
    drop(book, book->oldest);
}

void reply_book_close(struct reply_book *book)
{
    if (book == NULL) return;
    while (book->oldest != NULL) drop_oldest(book);
    pthread_mutex_destroy(&book->mutex);
    free(book);
}

/* Behind the same text; the tokens before it may be others. */
static bool begins_at(const struct reply *reply, const struct reply_place *place)
{
    const struct reply_place *its = &reply->place;
    return its->scope == place->scope && its->text == place->text && its->n_bytes == place->n_bytes;
}

static struct reply *find_equal(struct reply_book *book, const struct reply *reply)
{
    const struct reply_place *place = &reply->place;
    for (struct reply *other = *bucket_of(book, place); other != NULL; other = other->next)
        if (begins_at(other, place) && other->place.tokens == place->tokens &&
            other->place.n_tokens == place->n_tokens && other->n == reply->n &&
            memcmp(other->tokens, reply->tokens, reply->n * sizeof *reply->tokens) == 0)
            return other;
    return NULL;
}

static void insert(struct reply_book *book, struct reply *reply)
{
    struct reply **bucket = bucket_of(book, &reply->place), *oldest = NULL;
    size_t n_there = 0;
    for (struct reply *other = *bucket; other != NULL; other = other->next) {
        if (!begins_at(other, &reply->place)) continue;
        oldest = other;
        n_there++;
    }
    if (n_there >= PLACE_MAX) drop(book, oldest); /* the last that may be kept at a place leaves it to a newer one */
    while (book->n_replies > 0 && (book->n_replies == REPLIES_MAX || book->bytes + size_of(reply) > book->limit))
        drop_oldest(book);
    reply->next = *bucket;
    *bucket = reply;
    link_newest(book, reply);
    size_t at = reply->place.n_bytes, i = find_begin(book, at);
    if (i == book->n_begins || book->begins[i].at != at) {
        memmove(&book->begins[i + 1], &book->begins[i], (book->n_begins - i) * sizeof *book->begins);
        book->begins[i] = (struct begin){.at = at};
        book->n_begins++;
    }
    book->begins[i].n_replies++;
    book->bytes += size_of(reply);
    book->n_replies++;
}

void reply_book_add(struct reply_book *book, const struct reply_place *place, const struct tokens *reply)
{
    size_t size = sizeof(struct reply) + reply->len * sizeof *reply->v;
    if (place->n_bytes == 0 || reply->len <= SHORT_REPLY || size > book->limit) return;
    struct reply *added = mem_alloc(size);
    *added = (struct reply){.place = *place, .refs = 1, .n = reply->len};
    memcpy(added->tokens, reply->v, reply->len * sizeof *reply->v);
    pthread_mutex_lock(&book->mutex);
    struct reply *known = find_equal(book, added);
    if (known == NULL) {
        insert(book, added);
    } else {
        unlink_use(book, known);
        link_newest(book, known);
    }
    pthread_mutex_unlock(&book->mutex);
    if (known != NULL) unref(added);
}

/* ---- Finding ---- */

/* A text that is being tokenised. */
struct work {
    struct reply_book *book;
    uint64_t scope;
    const struct prompt_text *text;
    struct tokens *out; /* the tokens of its first `done` bytes */
    size_t done;
    uint64_t hash; /* of these tokens */
};

/* The replies that begin `at` bytes behind the begin of a text with that hash, with references. */
static size_t find_replies(struct reply_book *book, const struct reply_place *place, struct reply *found[PLACE_MAX])
{
    size_t n = 0;
    pthread_mutex_lock(&book->mutex);
    for (struct reply *reply = *bucket_of(book, place); reply != NULL && n < PLACE_MAX; reply = reply->next) {
        if (!begins_at(reply, place)) continue;
        atomic_fetch_add(&reply->refs, 1);
        found[n++] = reply;
    }
    pthread_mutex_unlock(&book->mutex);
    return n;
}

/* A reply that the text goes on with, and how far. */
struct found {
    struct reply *reply;
    struct text_match match;
};

/* Takes the best of the replies that begin there, if the tokens before it are the same as when it was sampled. False:
 * they are not, and tokenising them was in vain. */
static bool take_best(struct work *work, const struct found *found, size_t n, size_t at)
{
    const struct found *best = NULL;
    struct tokens more = {0};
    bool same = text_tokenise_on(work->text, work->done, at, &more);
    uint64_t hash = add_tokens(work->hash, &more);
    for (size_t i = 0; same && i < n; i++) {
        const struct reply_place *place = &found[i].reply->place;
        if (place->tokens != hash || place->n_tokens != work->out->len + more.len) continue;
        /* The one that goes on for most bytes; of several tokenisings of these the shortest: others are odd. */
        const struct text_match *a = &found[i].match, *b = best == NULL ? NULL : &best->match;
        if (b == NULL || a->n_bytes > b->n_bytes || (a->n_bytes == b->n_bytes && a->n < b->n)) best = &found[i];
    }
    if (best != NULL) {
        struct tokens sampled = {.v = best->reply->tokens, .len = best->match.n};
        tokens_append(work->out, more.v, more.len);
        tokens_append(work->out, sampled.v, sampled.len);
        work->hash = add_tokens(hash, &sampled);
        work->done = at + best->match.n_bytes;
        pthread_mutex_lock(&work->book->mutex);
        bool kept = find_equal(work->book, best->reply) == best->reply;
        if (kept) unlink_use(work->book, best->reply);
        if (kept) link_newest(work->book, best->reply);
        pthread_mutex_unlock(&work->book->mutex);
    }
    tokens_release(&more);
    return best != NULL;
}

/* The text may go on with a reply at `at`, where its hash is that of some reply's place. False: one would fit, but not
 * behind these tokens. */
static bool take_reply(struct work *work, size_t at, uint64_t text_hash)
{
    const struct reply_place place = {.scope = work->scope, .text = text_hash, .n_bytes = at};
    struct reply *replies[PLACE_MAX];
    struct found fitting[PLACE_MAX];
    size_t n = find_replies(work->book, &place, replies), n_fitting = 0;
    for (size_t i = 0; i < n; i++) {
        struct found found = {replies[i], text_match(work->text, replies[i]->tokens, replies[i]->n, at)};
        if (found.match.n > 0) fitting[n_fitting++] = found;
    }
    bool taken = n_fitting == 0 || take_best(work, fitting, n_fitting, at);
    for (size_t i = 0; i < n; i++) unref(replies[i]);
    return taken;
}

static size_t copy_begins(struct reply_book *book, size_t most, size_t **begins)
{
    pthread_mutex_lock(&book->mutex);
    size_t n = find_begin(book, most);
    *begins = mem_grow(NULL, n + 1, sizeof **begins);
    for (size_t i = 0; i < n; i++) (*begins)[i] = book->begins[i].at;
    pthread_mutex_unlock(&book->mutex);
    return n;
}

/* Places with the same text before them have the same tokens before them, but where some of their replies were dropped.
 * Each that has not costs tokenising a range in vain. */
#define FAILURES_MAX 8

void reply_book_tokenise(struct reply_book *book, uint64_t scope, const struct prompt_text *text, struct tokens *out,
                         struct reply_place *place)
{
    struct work work = {.book = book, .scope = scope, .text = text, .out = out};
    size_t *begins, n_begins = copy_begins(book, text->len, &begins), next = 0, n_failures = 0;
    uint64_t hash = 1;
    for (size_t at = 0; at < text->len; at++) {
        if (next < n_begins && begins[next] == at) {
            next++;
            bool tries = at >= work.done && n_failures < FAILURES_MAX;
            if (tries && !take_reply(&work, at, hash)) n_failures++;
        }
        uint64_t sum = times(hash, book->base) + (unsigned char)text->v[at] + 1;
        hash = sum >= PRIME ? sum - PRIME : sum;
    }
    free(begins);
    struct tokens rest = {0};
    if (!text_tokenise_on(text, work.done, text->len, &rest)) { /* as if nothing had been found */
        tokens_truncate(out, 0);
        tokens_truncate(&rest, 0);
        work.hash = 0;
        text->tokenise(text->ud, 0, text->len, &rest);
    }
    tokens_append(out, rest.v, rest.len);
    *place = (struct reply_place){.scope = scope,
                                  .text = hash,
                                  .tokens = add_tokens(work.hash, &rest),
                                  .n_bytes = text->len,
                                  .n_tokens = out->len};
    tokens_release(&rest);
}

void reply_place_move(struct reply_place *place, const struct tokens *tokens)
{
    if (place->n_bytes == 0) return;
    place->tokens = add_tokens(0, tokens);
    place->n_tokens = tokens->len;
}

/* ---- Replies that outlive the process ---- */

enum {
    SPLICES_MAX = 8, /* parts of one prompt that are replaced: each costs tokenising the rest once more */
    STEPS_MAX = 512, /* edges of the tree of lists that one part follows */
    WAYS_MAX = 8
};

/* The tokens of a way that have these bytes. */
static size_t count_same(const struct prompt_text *text, const struct tokens *way, const struct buf *bytes, size_t from,
                         size_t *to)
{
    struct buf spelled = {0};
    size_t n = 0;
    for (*to = from; n < way->len; n++) {
        spelled.len = 0;
        llm_token_bytes(text->weights, way->v[n], true, &spelled);
        if (spelled.len > bytes->len - *to) break;
        if (spelled.len > 0 && memcmp(bytes->v + *to, spelled.v, spelled.len) != 0) break;
        *to += spelled.len;
    }
    buf_release(&spelled);
    return n;
}

/* Goes one edge further, where one has the next bytes. Of several ways the one that has most of them counts; of ways
 * with as many, the one that needs fewer tokens. Returns whether more may follow. */
static bool follow_edge(const struct stored_lists *lists, const struct prompt_text *text, const struct buf *bytes,
                        size_t *at, struct tokens *path)
{
    struct tokens ways[WAYS_MAX] = {0};
    size_t n_ways = lists->ways_on(lists->ud, path->v, (int32_t)path->len, ways, WAYS_MAX);
    size_t best = 0, most = 0, furthest = *at;
    for (size_t i = 0; i < n_ways; i++) {
        size_t to, n = count_same(text, &ways[i], bytes, *at, &to);
        if (to < furthest || n == 0 || (to == furthest && most > 0 && n >= most)) continue;
        best = i;
        most = n;
        furthest = to;
    }
    bool whole = most > 0 && most == ways[best].len;
    tokens_append(path, ways[best].v, most);
    *at = furthest;
    for (size_t i = 0; i < WAYS_MAX; i++) tokens_release(&ways[i]);
    return whole;
}

/* Appends to the first `common` tokens those of stored lists that go on with the same bytes as the rest does. */
static struct tokens follow(const struct stored_lists *lists, const struct prompt_text *text,
                            const struct tokens *tokens, size_t common)
{
    struct tokens path = {0};
    struct buf bytes = {0};
    size_t at = 0;
    tokens_append(&path, tokens->v, common);
    for (size_t i = common; i < tokens->len; i++) llm_token_bytes(text->weights, tokens->v[i], true, &bytes);
    for (int step = 0; step < STEPS_MAX && follow_edge(lists, text, &bytes, &at, &path); step++) {
    }
    buf_release(&bytes);
    return path;
}

/* Where the tokens part from the lists behind `common`: takes what some list goes on with. */
static bool splice(const struct stored_lists *lists, const struct prompt_text *text, struct tokens *tokens,
                   size_t common)
{
    struct tokens path = follow(lists, text, tokens, common), more = {0};
    const struct text_seam least = {.n_tokens = common};
    struct text_match match = {0};
    struct text_seam seam;
    if (path.len > common && text_seam_before(text, tokens, &least, &seam) && seam.n_tokens == common) {
        match = text_match(text, path.v + common, path.len - common, seam.n_bytes);
        if (match.n > 0) text_keep_usual(text, path.v + common, seam.n_bytes, &match);
    }
    bool takes = match.n > 0 && text_tokenise_on(text, seam.n_bytes + match.n_bytes, text->len, &more);
    if (takes) {
        tokens_truncate(tokens, common);
        tokens_append(tokens, path.v + common, match.n);
        tokens_append(tokens, more.v, more.len);
    }
    tokens_release(&path);
    tokens_release(&more);
    return takes;
}

bool stored_replies_take(const struct stored_lists *lists, const struct prompt_text *text, struct tokens *tokens)
{
    bool taken = false, goes_on = lists->common != NULL;
    for (int i = 0; i < SPLICES_MAX && goes_on; i++) {
        size_t common = (size_t)lists->common(lists->ud, tokens->v, (int32_t)tokens->len);
        goes_on = common > 0 && common < tokens->len && splice(lists, text, tokens, common);
        taken = taken || goes_on;
    }
    return taken;
}

/* ---- The stored lists of a request ---- */

static struct store_query query_of(const hearth_request *request, const int32_t *tokens, int32_t n)
{
    return (struct store_query){.user = engine_store_user(request->model->engine),
                                .identity = &request->job.identity,
                                .tokens = tokens,
                                .n = n};
}

static int32_t common(const void *ud, const int32_t *tokens, int32_t n)
{
    const hearth_request *request = ud;
    const struct store_query query = query_of(request, tokens, n);
    return store_common(request->model->store, &query);
}

static size_t ways_on(const void *ud, const int32_t *tokens, int32_t n, struct tokens *ways, size_t max)
{
    const hearth_request *request = ud;
    const struct store_query query = query_of(request, tokens, n);
    return store_ways_on(request->model->store, &query, ways, max);
}

struct stored_lists request_stored_lists(const hearth_request *request)
{
    const struct model *model = request->model;
    if (!request->job.cache_prompt || engine_store_user(model->engine) == NULL)
        return (struct stored_lists){.common = NULL};
    store_wait_scan(model->store, clock_now(request->clock) + model->resume_wait_ns);
    return (struct stored_lists){common, ways_on, request};
}
