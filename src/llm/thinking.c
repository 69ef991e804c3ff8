/* The reasoning budget as a state machine of five states, the same as llama-server's, so that replies are the same. */
#include "llm/thinking.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum state {
    BEFORE,   /* no reasoning yet */
    COUNTING, /* within reasoning: its tokens are counted */
    BREAKING, /* the budget is used up within a UTF-8 character, whose last byte is awaited */
    FORCING,  /* message and end tag are forced */
    AFTER
};

struct text {
    const char *v;
    size_t len;
};

struct tag {
    char *text;
    size_t len;
    struct tokens tokens;
};

/* Matches a stream of text against several tags. Text, since in many vocabularies the same tag is other tokens after a
 * word than after a space, or its last token goes on behind it. */
struct tag_matcher {
    struct tag *tags;
    size_t n, longest;
    struct buf seen; /* the last bytes, where a tag may have begun */
};

struct thinking {
    const struct llm_model *model;
    struct tag_matcher start, end;
    struct tokens forced;
    struct buf text; /* of the token that is accepted */
    int32_t budget, left;
    enum state state;
    size_t n_forced;            /* tokens of `forced` that have come */
    const struct tag *ended_by; /* the end tag; NULL: none */
};

/* ---- Matching tags ---- */

static void add_tag(struct tag_matcher *tag_matcher, const struct llm_model *model, const char *text)
{
    struct tag tag = {.len = strlen(text)};
    if (tag.len == 0) return;
    tag.text = mem_strdup(text);
    llm_tokenize(model, text, tag.len, false, true, &tag.tokens);
    tag_matcher->tags = mem_grow(tag_matcher->tags, tag_matcher->n + 1, sizeof *tag_matcher->tags);
    tag_matcher->tags[tag_matcher->n++] = tag;
    if (tag.len > tag_matcher->longest) tag_matcher->longest = tag.len;
}

/* The tag that ends first in the text, of several the longest, or NULL. A token is part of one match only. */
static const struct tag *matcher_match(struct tag_matcher *tag_matcher, struct text text)
{
    const struct tag *first = NULL;
    const char *first_end = NULL;
    struct buf *seen = &tag_matcher->seen;
    if (tag_matcher->n == 0 || text.len == 0) return NULL;
    buf_append(seen, text.v, text.len);
    for (size_t i = 0; i < tag_matcher->n; i++) {
        const struct tag *tag = &tag_matcher->tags[i];
        const char *at = memmem(seen->v, seen->len, tag->text, tag->len), *end = at == NULL ? NULL : at + tag->len;
        if (end == NULL || (first != NULL && (end > first_end || (end == first_end && tag->len < first->len))))
            continue;
        first = tag;
        first_end = end;
    }
    if (first != NULL)
        buf_clear(seen);
    else if (seen->len >= tag_matcher->longest)
        buf_drop_front(seen, seen->len - (tag_matcher->longest - 1));
    return first;
}

static void release_matcher(struct tag_matcher *tag_matcher)
{
    for (size_t i = 0; i < tag_matcher->n; i++) {
        free(tag_matcher->tags[i].text);
        tokens_release(&tag_matcher->tags[i].tokens);
    }
    free(tag_matcher->tags);
    buf_release(&tag_matcher->seen);
}

/* ---- The state machine ---- */

static void force_end(struct thinking *t)
{
    t->state = t->forced.len > 0 ? FORCING : AFTER;
    t->n_forced = 0;
    buf_clear(&t->end.seen);
}

static void count_token(struct thinking *t, struct text text)
{
    t->ended_by = matcher_match(&t->end, text);
    if (t->ended_by != NULL) {
        t->state = AFTER;
        return;
    }
    if (t->state == COUNTING && (t->budget < 0 || --t->left > 0)) return;
    if (text.len == 0 || utf8_incomplete_tail(text.v, text.len) == 0) {
        force_end(t);
        return;
    }
    if (t->state == COUNTING) buf_clear(&t->end.seen);
    t->state = BREAKING;
}

static void accept_text(struct thinking *t, struct text text)
{
    if (t->state == FORCING) {
        const struct tag *ended_by = matcher_match(&t->end, text);
        if (++t->n_forced < t->forced.len) return;
        t->state = AFTER;
        t->ended_by = ended_by;
    } else if (thinking_is_on(t)) {
        count_token(t, text);
    } else if (matcher_match(&t->start, text) != NULL) {
        t->ended_by = NULL;
        t->left = t->budget;
        t->state = COUNTING;
        buf_clear(&t->end.seen);
        if (t->budget == 0) force_end(t);
    }
}

void thinking_accept(struct thinking *t, int32_t token)
{
    buf_clear(&t->text);
    llm_token_bytes(t->model, token, true, &t->text);
    accept_text(t, (struct text){t->text.v, t->text.len});
}

int32_t thinking_forced(const struct thinking *t)
{
    return t->state == FORCING ? t->forced.v[t->n_forced] : -1;
}

bool thinking_is_on(const struct thinking *t)
{
    return t->state != BEFORE && t->state != AFTER;
}

struct tokens thinking_end(const struct thinking *t)
{
    return t->state == AFTER && t->ended_by != NULL ? t->ended_by->tokens : (struct tokens){0};
}

/* ---- Life ---- */

struct thinking *thinking_open(const struct llm_model *model, const struct llm_thinking *how)
{
    assert(model != NULL && how->start != NULL && how->n_ends > 0);
    struct thinking *t = mem_alloc(sizeof *t);
    t->model = model;
    add_tag(&t->start, model, how->start);
    for (size_t i = 0; i < how->n_ends; i++) add_tag(&t->end, model, how->ends[i]);
    if (how->message != NULL) llm_tokenize(model, how->message, strlen(how->message), false, true, &t->forced);
    if (t->end.n > 0) tokens_append(&t->forced, t->end.tags[0].tokens.v, t->end.tags[0].tokens.len);
    /* Reasoning within the prompt does not count against the budget, and nothing can be forced into it. */
    t->budget = -1;
    for (const char *text = how->prefill; text != NULL && *text != '\0'; text++) accept_text(t, (struct text){text, 1});
    t->budget = t->left = how->budget;
    if (t->budget == 0 && thinking_is_on(t)) force_end(t);
    return t;
}

void thinking_close(struct thinking *t)
{
    if (t == NULL) return;
    release_matcher(&t->start);
    release_matcher(&t->end);
    tokens_release(&t->forced);
    buf_release(&t->text);
    free(t);
}
