/* Compares tokens with the bytes of a text: see prompt_text.h. */
#include "instance/requests/prompt_text.h"

#include "base/buf.h"

#include <string.h>

static void spell_token(const struct prompt_text *text, int32_t token, struct buf *bytes)
{
    bytes->len = 0;
    llm_token_bytes(text->weights, token, true, bytes);
}

static bool has_bytes_at(const struct prompt_text *text, size_t at, const char *bytes, size_t len)
{
    return len <= text->len - at && (len == 0 || memcmp(text->v + at, bytes, len) == 0);
}

/* ---- Matching ---- */

/* Words have letters and digits of ASCII, first bytes of letters of two (Latin, Greek, Cyrillic, …), and bytes within a
 * character. Scripts of three bytes a letter, such as Chinese, hardly have blanks between words. */
static bool begins_word(const struct prompt_text *text, size_t at)
{
    if (at == text->len) return true;
    unsigned char c = (unsigned char)text->v[at];
    return !((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c & 0xc0) == 0x80 ||
             (c >= 0xc3 && c <= 0xdf));
}

/* Bytes without blanks, which some vocabularies add: by them two tokenisings of a text are compared. */
static size_t count_solid(const struct buf *bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes->len; i++) n += bytes->v[i] != ' ';
    return n;
}

/* A control or user-defined token in a list, by the solid bytes before it. */
struct mark {
    size_t i, at;
    int32_t token; /* -1: the list has no more */
};

static struct mark next_mark(const struct prompt_text *text, const struct tokens *tokens, struct mark mark)
{
    struct buf bytes = {0};
    bool found = false;
    for (; mark.i < tokens->len && !found; mark.i++) {
        mark.token = tokens->v[mark.i];
        found = llm_token_is_found_first(text->weights, mark.token);
        if (found) break;
        spell_token(text, mark.token, &bytes);
        mark.at += count_solid(&bytes);
    }
    if (!found) mark.token = -1;
    buf_release(&bytes);
    return mark;
}

static struct mark pass_mark(const struct prompt_text *text, struct mark mark)
{
    struct buf bytes = {0};
    spell_token(text, mark.token, &bytes);
    mark.at += count_solid(&bytes);
    mark.i++;
    buf_release(&bytes);
    return mark;
}

/* The model may spell in words what the template writes as a control token, and may write a control token where a
 * client's text only spells it. Such a token means something else than its bytes. So the tokens end before the first
 * that the tokenizer would not make of these bytes, or would make where they have none. */
static void keep_same_marks(const struct prompt_text *text, const int32_t *tokens, size_t from,
                            struct text_match *match)
{
    const struct tokens given = {.v = (int32_t *)tokens, .len = match->n};
    struct tokens made = {0};
    text->tokenise(text->ud, from, from + match->n_bytes, &made);
    struct mark a = next_mark(text, &given, (struct mark){0}), b = next_mark(text, &made, (struct mark){0});
    while (a.token >= 0 && a.token == b.token && a.at == b.at) {
        a = next_mark(text, &given, pass_mark(text, a));
        b = next_mark(text, &made, pass_mark(text, b));
    }
    size_t end = a.token < 0 ? b.at : b.token < 0 || a.at < b.at ? a.at : b.at;
    bool differ = a.token >= 0 || b.token >= 0;
    tokens_release(&made);
    struct buf bytes = {0};
    size_t n_solid = 0, n = 0, n_bytes = 0;
    for (; differ && n < match->n; n++) {
        spell_token(text, tokens[n], &bytes);
        n_solid += count_solid(&bytes);
        if (n_solid > end || (n == a.i && a.token >= 0)) break;
        n_bytes += bytes.len;
    }
    buf_release(&bytes);
    if (differ) *match = (struct text_match){n, n_bytes};
}

struct text_match text_match(const struct prompt_text *text, const int32_t *tokens, size_t n, size_t from)
{
    struct text_match match = {0};
    struct buf bytes = {0};
    for (; match.n < n; match.n++) {
        spell_token(text, tokens[match.n], &bytes);
        if (!has_bytes_at(text, from + match.n_bytes, bytes.v, bytes.len)) break;
        match.n_bytes += bytes.len;
    }
    /* Where the text leaves the tokens within a word, the word is tokenised with what the client put there. */
    while (match.n > 0 && !begins_word(text, from + match.n_bytes)) {
        spell_token(text, tokens[--match.n], &bytes);
        match.n_bytes -= bytes.len;
    }
    buf_release(&bytes);
    if (match.n > 0) keep_same_marks(text, tokens, from, &match);
    return match;
}

/* ---- What is usual ---- */

/* Tokens more than usual that may come close together, and how many usual ones each of them takes to be forgotten. A
 * model spells a word otherwise now and then, but does not write letter by letter. */
enum { EXCESS_MAX = 8, USUAL_PER_EXCESS = 8 };

/* A list that is read along with another one. */
struct reading {
    const int32_t *v;
    size_t len, i;
    size_t solid, n_bytes; /* of the tokens before i */
};

static void read_token(const struct prompt_text *text, struct reading *reading, struct buf *bytes)
{
    spell_token(text, reading->v[reading->i++], bytes);
    reading->solid += count_solid(bytes);
    reading->n_bytes += bytes->len;
}

void text_keep_usual(const struct prompt_text *text, const int32_t *tokens, size_t from, struct text_match *match)
{
    struct tokens made = {0};
    text->tokenise(text->ud, from, from + match->n_bytes, &made);
    struct reading given = {.v = tokens, .len = match->n}, usual = {.v = made.v, .len = made.len};
    struct text_match good = {0};
    struct buf bytes = {0};
    double excess = 0;
    while (given.i < given.len && excess <= EXCESS_MAX) {
        size_t n_given = given.i, n_usual = usual.i;
        do /* up to the next seam of both */
            if (usual.i < usual.len && (usual.solid < given.solid || given.i == given.len))
                read_token(text, &usual, &bytes);
            else
                read_token(text, &given, &bytes);
        while (given.solid != usual.solid && (given.i < given.len || usual.i < usual.len));
        double n_more = (double)(given.i - n_given) - (double)(usual.i - n_usual) * (1 + 1.0 / USUAL_PER_EXCESS);
        excess = excess + n_more > 0 ? excess + n_more : 0;
        if (excess == 0 && begins_word(text, from + given.n_bytes)) good = (struct text_match){given.i, given.n_bytes};
    }
    if (excess > EXCESS_MAX) *match = good;
    buf_release(&bytes);
    tokens_release(&made);
}

/* ---- Seams ---- */

static bool begins_with_control_token(const struct prompt_text *text, const struct tokens *tokens, size_t from)
{
    struct buf as_text = {0}, spelled = {0};
    if (tokens->len == 0) return false;
    llm_token_bytes(text->weights, tokens->v[0], false, &as_text);
    llm_token_bytes(text->weights, tokens->v[0], true, &spelled);
    bool control = as_text.len == 0 && spelled.len > 0 && has_bytes_at(text, from, spelled.v, spelled.len);
    buf_release(&as_text);
    buf_release(&spelled);
    return control;
}

bool text_tokenise_on(const struct prompt_text *text, size_t from, size_t to, struct tokens *more)
{
    text->tokenise(text->ud, from, to, more);
    if (from == 0 || begins_with_control_token(text, more, from)) return true;
    struct buf bytes = {0};
    for (size_t i = 0; i < more->len && bytes.len <= to - from; i++)
        llm_token_bytes(text->weights, more->v[i], true, &bytes);
    bool same = bytes.len == to - from && has_bytes_at(text, from, bytes.v, bytes.len);
    buf_release(&bytes);
    return same;
}

/* The bytes of the text that end at `end` and that token i spells; SIZE_MAX: it spells others. Behind a control token
 * the first token may have a blank of its own. */
static size_t bytes_before(const struct prompt_text *text, const struct tokens *tokens, size_t i, size_t end,
                           struct buf *bytes)
{
    spell_token(text, tokens->v[i], bytes);
    if (bytes->len <= end && has_bytes_at(text, end - bytes->len, bytes->v, bytes->len)) return bytes->len;
    bool blank =
        bytes->len > 0 && bytes->v[0] == ' ' && i > 0 && llm_token_is_found_first(text->weights, tokens->v[i - 1]);
    if (blank && bytes->len - 1 <= end && has_bytes_at(text, end + 1 - bytes->len, bytes->v + 1, bytes->len - 1))
        return bytes->len - 1;
    return SIZE_MAX;
}

bool text_seam_before(const struct prompt_text *text, const struct tokens *tokens, const struct text_seam *least,
                      struct text_seam *seam)
{
    struct buf bytes = {0};
    size_t n = 0;
    *seam = (struct text_seam){tokens->len, text->len};
    while (n != SIZE_MAX && seam->n_tokens > least->n_tokens && seam->n_bytes > least->n_bytes) {
        n = bytes_before(text, tokens, seam->n_tokens - 1, seam->n_bytes, &bytes);
        if (n != SIZE_MAX) *seam = (struct text_seam){seam->n_tokens - 1, seam->n_bytes - n};
    }
    buf_release(&bytes);
    return n != SIZE_MAX;
}
