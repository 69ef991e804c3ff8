/* The prompt of a chat and the tokens at which its messages end, fill-in-the-middle, and the assumed system prompt: see
 * prepare.h. Runs on the preparing threads. */
#include "instance/requests/prepare.h"

#include "base/error.h"
#include "base/memory.h"
#include "instance/parameters/parameters.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- The prompt ---- */

/* Where tokens go. */
struct output {
    struct tokens *tokens;
    bool is_prompt; /* its media become those of the job */
};

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
        if (out->is_prompt)
            prompt_media_append(chat->media, upload, out->tokens);
        else
            prompt_media_tokens(chat->media, upload, out->tokens);
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
    /* Text of the request stays text, even where it spells a special token. Only then is the prompt tokenised part by
     * part: otherwise as a whole, where one token may cover the end of the template's text and the beginning of the
     * request's. */
    chat->by_parts = false;
    for (size_t i = 0; i < chat->text.n_parts && !chat->by_parts; i++) {
        const struct chat_part *part = &chat->text.parts[i];
        chat->by_parts =
            part->is_input && llm_contains_special_token(chat->weights, chat->text.text + part->offset, part->len);
    }
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

/* The number of tokens that the prompt and this text have in common from the start. Tokenising takes most of the
 * time: where the last common seam lies in the second half of the prompt, only what follows it is tokenised. */
static int32_t common_tokens(const struct ends *ends, const struct chat_prompt *text)
{
    const struct chat_prompt *whole = &ends->chat->text;
    const size_t same_bytes = common_bytes(text, whole);
    size_t seam = 0; /* the last common byte at which a part of the template's own text begins */
    for (size_t i = 0; i < whole->n_parts && whole->parts[i].offset < same_bytes; i++)
        if (!whole->parts[i].is_input) seam = whole->parts[i].offset;
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
    if (wishes->checkpoints) {
        /* Checkpoints at the end of the first message (a system prompt, shared by other conversations), and of all but
         * the last message (reused when the last is edited). Another one at the end of all messages (the prefix of the
         * next turn). */
        add_checkpoint(job, end_of(&ends, 1));
        if (n > 1) add_checkpoint(job, end_of(&ends, n - 1));
        add_checkpoint(job, end_of(&ends, n));
    }
}

/* ---- The message at a token ---- */

/* The part that the prompt has in common with the conversation of its first messages alone. */
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

/* ---- Fill-in-the-middle ----
 * Prompts are built as llama-server does, so that editors made for it get the same replies:
 *
 *     [repository] project  [file] name, text of each snippet  [file] name  (begin)  [prefix] … [suffix] … [middle]
 *
 * A model without a token for files gets a separator line between snippets instead. */

/* Names that llama-server uses, since requests do not give them. */
#define PROJECT   "myproject\n"
#define OPEN_FILE "filename\n"
#define SEPARATOR "\n\n--- snippet ---\n\n"

/* An editor's text stays text, even where it spells a special token. */
static void append(const struct llm_model *weights, const char *text, size_t len, struct tokens *out)
{
    llm_tokenize(weights, text, len, false, false, out);
}

static void append_snippets(const struct llm_model *weights, const struct llm_fim_tokens *fim,
                            const hearth_params *params, struct tokens *out)
{
    if (fim->repository >= 0) {
        tokens_push(out, fim->repository);
        append(weights, PROJECT, strlen(PROJECT), out);
    }
    for (size_t i = 0; i < params->n_snippets; i++) {
        const hearth_snippet *snippet = &params->snippets[i];
        if (fim->file >= 0) {
            struct buf line = {0};
            buf_printf(&line, "%s\n", snippet->name);
            tokens_push(out, fim->file);
            append(weights, line.v, line.len, out);
            buf_release(&line);
        } else {
            append(weights, SEPARATOR, strlen(SEPARATOR), out);
        }
        append(weights, snippet->text, strlen(snippet->text), out);
    }
    if (fim->file < 0) return;
    tokens_push(out, fim->file);
    append(weights, OPEN_FILE, strlen(OPEN_FILE), out);
}

static size_t least(size_t a, int64_t b)
{
    return b < 0 ? 0 : a < (size_t)b ? a : (size_t)b;
}

static void append_last(const struct tokens *list, size_t n, struct tokens *out)
{
    if (n > 0) tokens_append(out, list->v + (list->len - n), n);
}

/* BOS, prefix, typed text, suffix, and the token that the reply follows. */
static void append_core(const struct llm_model *weights, int32_t n_batch, const hearth_params *params,
                        const struct tokens *prefix, struct tokens *out)
{
    struct llm_fim_tokens fim = llm_fim_tokens(weights);
    struct tokens typed = {0}, suffix = {0};
    if (params->typed != NULL) llm_tokenize(weights, params->typed, params->typed_len, false, true, &typed);
    append(weights, params->suffix, params->suffix_len, &suffix);
    size_t before = least(prefix->len, 3 * (int64_t)(n_batch / 4));
    size_t after = least(suffix.len, n_batch / 4 - 2 - (int64_t)typed.len);
    if (fim.begin >= 0) tokens_push(out, fim.begin);
    tokens_push(out, fim.prefix);
    append_last(prefix, before, out);
    tokens_append(out, typed.v, typed.len);
    tokens_push(out, fim.suffix);
    tokens_append(out, suffix.v, after);
    tokens_push(out, fim.middle);
    tokens_release(&typed);
    tokens_release(&suffix);
}

int infill_prompt(const struct infill_model *model, const hearth_params *params, struct tokens *prompt,
                  hearth_error *error)
{
    struct llm_fim_tokens fim = llm_fim_tokens(model->weights);
    if (fim.prefix < 0 || fim.suffix < 0 || fim.middle < 0)
        return error_at(
            error, HEARTH_UNSUPPORTED, "suffix",
            "model '%s' cannot fill in the middle: its vocabulary has no token for the %s. Leave the suffix "
            "out, or name a model for code in 'model'",
            model->name,
            fim.prefix < 0   ? "prefix"
            : fim.suffix < 0 ? "suffix"
                             : "middle");
    struct tokens core = {0}, whole = {0};
    append_core(model->weights, model->n_batch, params, prompt, &core);
    append_snippets(model->weights, &fim, params, &whole);
    /* The snippets may take the window less prefix and suffix and less twice the reply's length. */
    int64_t taken = (int64_t)core.len + 1 > model->n_batch ? (int64_t)core.len + 1 : model->n_batch;
    int64_t reply = params->max_tokens == HEARTH_UNSET ? 0 : params->max_tokens;
    size_t beside = least(whole.len, model->window - taken - 2 * reply);
    tokens_truncate(prompt, 0);
    append_last(&whole, beside, prompt);
    tokens_append(prompt, core.v, core.len);
    tokens_release(&core);
    tokens_release(&whole);
    return HEARTH_OK;
}

/* ---- The assumed system prompt ----
 * The preparing threads of the model share it under a mutex, which they hold for a comparison or a copy only. It is a
 * copy of a request's message, and each request gets one of its own. */

struct system_prompt {
    pthread_mutex_t mutex;
    json_t *only; /* the one message seen; NULL: none yet, or several */
    bool several; /* a second one was seen: never reset */
};

struct system_prompt *system_prompt_open(void)
{
    struct system_prompt *prompt = mem_alloc(sizeof *prompt);
    pthread_mutex_init(&prompt->mutex, NULL);
    return prompt;
}

void system_prompt_close(struct system_prompt *prompt)
{
    if (prompt == NULL) return;
    pthread_mutex_destroy(&prompt->mutex);
    json_decref(prompt->only);
    free(prompt);
}

static bool is_system(const json_t *message)
{
    return chat_is_system_role(json_string_value(json_object_get(message, "role")));
}

void system_prompt_learn(struct system_prompt *prompt, const json_t *messages)
{
    const json_t *first = json_array_get(messages, 0);
    if (!is_system(first)) return;
    pthread_mutex_lock(&prompt->mutex);
    /* It may be one that no other request can have: an image or a sound is named by its place among those of its own
     * request. */
    bool is_own = false;
    size_t i;
    const json_t *part;
    json_array_foreach(json_object_get(first, "content"), i, part)
    {
        is_own = is_own || json_object_get(part, "media") != NULL;
    }
    if (!is_own && prompt->only == NULL && !prompt->several) prompt->only = json_deep_copy(first);
    if (is_own || !json_equal(prompt->only, first)) {
        json_decref(prompt->only);
        prompt->only = NULL;
        prompt->several = true;
    }
    pthread_mutex_unlock(&prompt->mutex);
}

/* Takes the message over. NULL: the messages have a system message, or are none. */
static json_t *with_first(json_t *message, const json_t *messages)
{
    json_t *list = NULL;
    bool has_system = false;
    for (size_t i = 0; i < json_array_size(messages); i++)
        has_system = has_system || is_system(json_array_get(messages, i));
    if (json_array_size(messages) > 0 && !has_system) {
        list = json_copy((json_t *)messages);
        json_array_insert(list, 0, message);
    }
    json_decref(message);
    return list;
}

json_t *system_prompt_put(const char *text, const json_t *messages)
{
    return with_first(json_pack("{s:s, s:s}", "role", "system", "content", text), messages);
}

json_t *system_prompt_assume(struct system_prompt *prompt, const json_t *messages)
{
    pthread_mutex_lock(&prompt->mutex);
    json_t *only = json_deep_copy(prompt->only);
    pthread_mutex_unlock(&prompt->mutex);
    return only == NULL ? NULL : with_first(only, messages);
}
