/* Follows stored token lists along the bytes of a prompt: see stored_replies.h. */
#include "lib/requests/stored_replies.h"

#include "base/buf.h"

#include <string.h>

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
