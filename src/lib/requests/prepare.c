/* The prompt of a chat and the tokens at which its messages end: see prepare.h. Runs on the preparing threads; no
 * state.
 */
#include "lib/requests/prepare.h"

#include "base/error.h"
#include "lib/parameters/message_hashes.h"

#include <string.h>

/* ---- The prompt ---- */

/* Text of the request stays text, even where it spells a special token. Only then is the prompt tokenised part by part:
 * otherwise as a whole, where one token may cover the end of the template's text and the beginning of the request's. */
static bool spells_special(const struct llm_model *weights, const struct chat_prompt *text)
{
    for (size_t i = 0; i < text->n_parts; i++) {
        const struct chat_part *part = &text->parts[i];
        if (part->is_input && llm_contains_special_token(weights, text->text + part->offset, part->len)) return true;
    }
    return false;
}

/* Where tokens go. */
struct output {
    struct tokens *tokens;
    bool is_prompt; /* its media become those of the job */
};

static void put_medium(const struct prepare_chat *chat, size_t upload, const struct output *out)
{
    if (out->is_prompt)
        prompt_media_append(chat->media, upload, out->tokens);
    else
        prompt_media_tokens(chat->media, upload, out->tokens);
}

/* Appends the tokens of a text, with media in the place of their markers. */
static void tokenise_run(const struct prepare_chat *chat, struct llm_tokenizer_input in, const struct output *out)
{
    size_t marker_len, upload;
    const char *marker;
    while (chat->media != NULL &&
           (marker = prompt_media_find(chat->media, in.text, in.len, &marker_len, &upload)) != NULL) {
        struct llm_tokenizer_input before = in;
        before.len = (size_t)(marker - in.text);
        if (before.len > 0 || before.add_special) llm_tokenize_until(chat->weights, &before, &chat->how, out->tokens);
        put_medium(chat, upload, out);
        in.add_special = false;
        in.text = marker + marker_len;
        in.len -= before.len + marker_len;
    }
    if (in.len > 0 || in.add_special) llm_tokenize_until(chat->weights, &in, &chat->how, out->tokens);
}

/* Appends the tokens of a range of the text. */
static void tokenise_range(const struct prepare_chat *chat, const struct chat_prompt *text, size_t from, size_t to,
                           const struct output *out)
{
    if (!chat->by_parts) {
        tokenise_run(chat, (struct llm_tokenizer_input){text->text + from, to - from, from == 0, true}, out);
        return;
    }
    for (size_t i = 0; i < text->n_parts; i++) {
        const struct chat_part *part = &text->parts[i];
        size_t end = part->offset + part->len, begin = part->offset > from ? part->offset : from;
        if (end > to) end = to;
        struct llm_tokenizer_input in = {text->text + begin, end - begin, begin == 0, !part->is_input};
        if (begin < end) tokenise_run(chat, in, out);
    }
}

/* A text of the chat: the whole, or a part of its messages. */
struct chat_text {
    const struct prepare_chat *chat;
    const struct chat_prompt *text;
};

static void tokenise_text_range(const void *ud, size_t from, size_t to, struct tokens *out)
{
    const struct chat_text *it = ud;
    tokenise_range(it->chat, it->text, from, to, &(struct output){.tokens = out});
}

/* Appends the tokens of the whole text to a list that is empty: where it holds replies that the book or the store has,
 * those that were sampled. */
static void tokenise_chat(const struct prepare_chat *chat, const struct chat_prompt *text, const struct output *out,
                          struct reply_place *place)
{
    *place = (struct reply_place){0};
    if (chat->book == NULL || chat->media != NULL) {
        tokenise_range(chat, text, 0, text->len, out);
        return;
    }
    const struct chat_text it = {chat, text};
    const struct prompt_text all = {chat->weights, text->text, text->len, tokenise_text_range, &it};
    reply_book_tokenise(chat->book, chat->scope, &all, out->tokens, place);
    /* Tokenised part by part a text has other tokens than the same text as a whole, which may be stored: no reply. */
    if (!chat->by_parts && stored_replies_take(&chat->stored, &all, out->tokens)) reply_place_move(place, out->tokens);
}

/* Renders all messages as the request wants them (n_messages 0), or only the first `n_messages` as complete turns,
 * without a generation prompt. */
static int render(const struct prepare_chat *chat, size_t n_messages, struct chat_prompt *text, hearth_error *error)
{
    struct chat_request request = chat->request;
    if (n_messages > 0) {
        request.n_messages = n_messages;
        request.plain = chat->text.plain; /* a part is put as the whole is */
        request.add_generation_prompt = false;
        request.continue_final = HEARTH_CONTINUE_NEVER;
    }
    return chat_render_parts(chat->template_, &request, text, error);
}

void prepare_release(struct prepare_chat *chat)
{
    chat_prompt_release(&chat->text);
    chat_parsed_close(chat->parsed);
    chat->request.parsed = chat->parsed = NULL;
}

int prepare_prompt(struct prepare_chat *chat, struct tokens *prompt, hearth_error *error)
{
    int rc = chat_parse(&chat->request, &chat->parsed, error);
    chat->request.parsed = chat->parsed;
    if (rc == HEARTH_OK) rc = render(chat, 0, &chat->text, error);
    if (rc == HEARTH_OK && chat->check != NULL) rc = chat->check(chat->ud, chat->text.text, chat->text.len, error);
    if (rc != HEARTH_OK) {
        prepare_release(chat);
        return rc;
    }
    chat->by_parts = spells_special(chat->weights, &chat->text);
    tokenise_chat(chat, &chat->text, &(struct output){.tokens = prompt, .is_prompt = true}, &chat->place);
    if (!atomic_load(chat->how.stop)) return HEARTH_OK;
    tokens_truncate(prompt, 0);
    prepare_release(chat);
    return error_set(error, HEARTH_CANCELLED, "request was cancelled");
}

/* ---- Where messages end ---- */

#define MAX_ENDS 3

/* Ends of leading messages that were computed already. */
struct ends {
    const struct prepare_chat *chat;
    const struct tokens *prompt;
    struct {
        size_t n_messages;
        int32_t at;
    } found[MAX_ENDS];
    size_t n_found;
};

/* The last byte before `before` at which a part of the template's own text begins. */
static size_t last_seam(const struct chat_prompt *text, size_t before)
{
    size_t seam = 0;
    for (size_t i = 0; i < text->n_parts && text->parts[i].offset < before; i++)
        if (!text->parts[i].is_input) seam = text->parts[i].offset;
    return seam;
}

static size_t common_bytes(const struct chat_prompt *a, const struct chat_prompt *b)
{
    size_t i = 0, len = a->len < b->len ? a->len : b->len;
    while (i < len && a->text[i] == b->text[i]) i++;
    return i;
}

/* The number of the prompt's tokens before that byte of its text; 0 where a token covers the byte's boundary. */
static size_t tokens_before(const struct ends *ends, size_t byte)
{
    struct tokens rest = {0};
    tokenise_range(ends->chat, &ends->chat->text, byte, ends->chat->text.len, &(struct output){.tokens = &rest});
    size_t n = 0;
    if (rest.len > 0 && rest.len < ends->prompt->len) n = ends->prompt->len - rest.len;
    if (n > 0 && memcmp(ends->prompt->v + n, rest.v, rest.len * sizeof *rest.v) != 0) n = 0;
    tokens_release(&rest);
    return n;
}

/* The number of tokens that the prompt and this text have in common from the start. Tokenising takes most of the time:
 * where the last common seam lies in the second half of the prompt, only what follows it is tokenised. */
static int32_t common_tokens(const struct ends *ends, const struct chat_prompt *text)
{
    const struct chat_prompt *whole = &ends->chat->text;
    size_t seam = last_seam(whole, common_bytes(text, whole));
    size_t skipped = seam > whole->len / 2 ? tokens_before(ends, seam) : 0;
    struct tokens part = {0}, rest = {.v = ends->prompt->v + skipped, .len = ends->prompt->len - skipped};
    struct reply_place place;
    if (skipped > 0)
        tokenise_range(ends->chat, text, seam, text->len, &(struct output){.tokens = &part});
    else
        tokenise_chat(ends->chat, text, &(struct output){.tokens = &part}, &place);
    size_t common = tokens_common_prefix(&part, &rest);
    tokens_release(&part);
    return (int32_t)(skipped + common);
}

/* The divergence, in tokens, between the prompt and that of a conversation of its first messages alone. 0: the template
 * refuses to render this part of the conversation. */
static int32_t end_of(struct ends *ends, size_t n_messages)
{
    for (size_t i = 0; i < ends->n_found; i++)
        if (ends->found[i].n_messages == n_messages) return ends->found[i].at;
    struct chat_prompt text;
    int32_t at = 0;
    if (render(ends->chat, n_messages, &text, NULL) == HEARTH_OK) {
        at = common_tokens(ends, &text);
        chat_prompt_release(&text);
    }
    ends->found[ends->n_found].n_messages = n_messages;
    ends->found[ends->n_found++].at = at;
    return at;
}

static void add_checkpoint(struct job *job, int32_t position)
{
    bool further = job->n_checkpoints == 0 || position > job->checkpoints[job->n_checkpoints - 1];
    if (further && position > 0 && position < (int32_t)job->prompt.len)
        job->checkpoints[job->n_checkpoints++] = position;
}

/* Positions for checkpoints: the end of the first message (a system prompt, shared by other conversations), of all but
 * the last message (reused when the last is edited), of all messages (the prefix of the next turn). */
static void add_checkpoints(struct ends *ends, size_t n_messages, struct job *job)
{
    add_checkpoint(job, end_of(ends, 1));
    if (n_messages > 1) add_checkpoint(job, end_of(ends, n_messages - 1));
    add_checkpoint(job, end_of(ends, n_messages));
}

void prepare_conversation(const struct prepare_chat *chat, const struct prepare_wishes *wishes, struct job *job)
{
    struct chat_seen seen = {.template_source = chat_template_source(chat->template_),
                             .kwargs = chat->request.kwargs,
                             .tools = chat->request.tools,
                             .messages = chat->request.messages};
    if (chat->media != NULL) {
        seen.media = prompt_media_digests(chat->media);
        seen.n_media = chat->request.n_media;
    }
    struct ends ends = {.chat = chat, .prompt = &job->prompt};
    struct chat_identity identity;
    if (!wishes->system_end && !wishes->stable_end && !wishes->checkpoints) return;
    chat_identify(&seen, &identity);
    size_t n = identity.n_messages;
    job->conversation = (struct conversation){.n_messages = n, .hashes = identity.hashes};
    if (identity.starts_with_system && (wishes->system_end || wishes->checkpoints))
        job->conversation.system_end = end_of(&ends, 1);
    if (n > 1 && (wishes->stable_end || wishes->checkpoints)) job->conversation.stable_end = end_of(&ends, n - 1);
    if (wishes->checkpoints) add_checkpoints(&ends, n, job);
}

/* ---- The message at a token ---- */

/* What the prompt has in common with the conversation of its first messages alone. */
struct beginning {
    int32_t tokens;
    bool whole; /* it contains the whole text of these messages */
};

static struct beginning beginning_of(const struct ends *ends, size_t n_messages)
{
    struct chat_prompt text;
    struct beginning beginning = {0};
    if (render(ends->chat, n_messages, &text, NULL) != HEARTH_OK) return beginning;
    size_t common = common_bytes(&text, &ends->chat->text), last = 0;
    for (size_t i = 0; i < text.n_parts; i++)
        if (text.parts[i].is_input) last = text.parts[i].offset + text.parts[i].len;
    beginning = (struct beginning){.tokens = common_tokens(ends, &text), .whole = last > 0 && last <= common};
    chat_prompt_release(&text);
    return beginning;
}

int32_t prepare_message_at(const struct prepare_chat *chat, const struct tokens *prompt, size_t n_messages,
                           int32_t position)
{
    struct ends ends = {.chat = chat, .prompt = prompt};
    bool before_is_whole = chat->request.tools == NULL; /* tools may precede the first message */
    size_t before = 0, with = n_messages;
    if (n_messages == 0 || position >= beginning_of(&ends, n_messages).tokens) return -1;
    while (with - before > 1) {
        size_t middle = before + (with - before) / 2;
        struct beginning beginning = beginning_of(&ends, middle);
        if (position < beginning.tokens) {
            with = middle;
        } else {
            before = middle;
            before_is_whole = beginning.whole;
        }
    }
    return before_is_whole ? (int32_t)before : -1;
}
