/* A preparing thread takes requests with a permit from the admission queue, and renders and tokenises their prompt. It
 * opens the reply's format and sampler, looks the prompt up in the store, and submits the job to the engine.
 *
 * On the engine thread all this would hold up every stream. An error ends the request here. */
#include "instance/requests/request.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "instance/models/model_names.h"
#include "instance/parameters/parameters.h"
#include "instance/requests/output_constraint.h"
#include "instance/requests/prepare.h"
#include "instance/requests/preparing.h"

#include <stdlib.h>
#include <string.h>

static bool computes(const hearth_request *request)
{
    return !request->job.only_lookup && !request->job.only_prompt;
}

/* ---- The prompt ---- */

/* Prepares the prompt with the assumed system message, where that is configured and the messages have none. False: it
 * is not, or the template refuses the messages so; they are to be prepared as they are. */
static bool assume_system_prompt(hearth_request *request, struct prepare_chat *chat)
{
    const json_t *given = chat->request.messages;
    json_t *messages = system_prompt_assume(request->model->system_prompt, given);
    if (messages == NULL) return false;
    chat->request.messages = messages;
    if (prepare_prompt(chat, &request->job.prompt, NULL) != HEARTH_OK) {
        chat->request.messages = given;
        json_decref(messages);
        return false;
    }
    request->assumed = messages;
    log_event(LOG_INFO, "spc", "cache hit (system prompt excluded on this request)", log_str("id", request->job.id));
    return true;
}

/* Puts the preset's system message before messages that have none. Where the template refuses that, what it says of the
 * messages as they were given counts, if it refuses those, too. */
static int prepare_preset(hearth_request *request, struct prepare_chat *chat, json_t *messages, hearth_error *error)
{
    hearth_error refusal;
    const json_t *given = chat->request.messages;
    chat->request.messages = messages;
    if (prepare_prompt(chat, &request->job.prompt, &refusal) == HEARTH_OK) {
        request->assumed = messages;
        return HEARTH_OK;
    }
    chat->request.messages = given;
    json_decref(messages);
    if (refusal.code != HEARTH_INVALID && refusal.code != HEARTH_UNSUPPORTED) {
        *error = refusal;
        return (int)error->code;
    }
    if (prepare_prompt(chat, &request->job.prompt, error) != HEARTH_OK) return (int)error->code;
    return error_at(error, HEARTH_INVALID, "model", "the system message of the preset '%s' cannot be used: %s",
                    request->preset->name, refusal.message);
}

static int prompt_of_messages(hearth_request *request, struct prepare_chat *chat, hearth_error *error)
{
    const char *said = request->preset == NULL ? NULL : request->preset->system;
    json_t *with = said == NULL ? NULL : system_prompt_put(said, chat->request.messages);
    if (with != NULL) return prepare_preset(request, chat, with, error);
    /* Requests that share no cells with others neither record a system message nor get one. Adapters do not matter: it
     * is text. */
    const char *salt = request->params->cache_salt;
    bool shares = request->job.cache_prompt && (salt == NULL || salt[0] == '\0');
    struct system_prompt *shared = shares ? request->model->system_prompt : NULL;
    if (shared != NULL && assume_system_prompt(request, chat)) return HEARTH_OK;
    int rc = prepare_prompt(chat, &request->job.prompt, error);
    if (rc == HEARTH_OK && shared != NULL) system_prompt_learn(shared, chat->request.messages);
    return rc;
}

/* The parts that were left out, as the request's own messages are counted: without an assumed system message before
 * them. */
static char *own_left_out(const hearth_request *request, struct chat_prompt *prompt)
{
    static const char head[] = "messages[";
    char *lines = prompt->left_out, *rest;
    prompt->left_out = NULL;
    if (lines == NULL || request->assumed == NULL) return lines;
    struct buf own = {0};
    for (const char *line = lines; *line != '\0'; line = rest + (*rest == '\n')) {
        unsigned long i = strtoul(line + strlen(head), &rest, 10);
        const char *tail = rest;
        rest += strcspn(rest, "\n");
        buf_printf(&own, "%s%s%lu%.*s", own.len > 0 ? "\n" : "", head, i - 1, (int)(rest - tail), tail);
    }
    free(lines);
    return buf_take(&own);
}

static const char *name_of_prompt(const hearth_request *request)
{
    return request->params->messages != NULL ? "messages" : "prompt";
}

/* Texts of up to so many bytes are tokenised even where they must be too long, so that the error has their exact number
 * of tokens. */
#define COUNTED_BYTES (64 << 10)

/* CPU seconds that one preparation may take: many times what the longest conversations take. Templates are programs,
 * and clients choose how long these run. */
#define MOST_SECONDS 10

static bool is_given_up(void *ud)
{
    const hearth_request *request = ud;
    return job_is_cancelled(&request->job) || clock_cpu_of_thread() >= request->most_thread_time;
}

/* Between two steps of a preparation. */
static int check_wanted(const hearth_request *request, hearth_error *error)
{
    if (!is_given_up((void *)request)) return HEARTH_OK;
    return error_set(error, HEARTH_CANCELLED, "request was cancelled");
}

/* From now on, on this thread. */
static void begin_patience(hearth_request *request)
{
    request->stop_rendering = (struct chat_stop){is_given_up, request};
    request->most_thread_time = clock_cpu_of_thread() + MOST_SECONDS * INT64_C(1000000000);
}

/* Refuses texts that cannot be tokenised, or that are too long for the window by their bytes alone. */
static int check_text(const void *ud, const char *text, size_t len, hearth_error *error)
{
    const hearth_request *request = ud;
    const struct llm_model *weights = request->model->weights;
    size_t window = (size_t)engine_window(request->model->engine), least = len / llm_longest_token(weights);
    hearth_error own;
    bool whole = !request->job.only_prompt && request->params->suffix == NULL; /* else it is cut or not computed */
    if (check_wanted(request, error) != HEARTH_OK) return (int)error->code;
    if (whole && len > COUNTED_BYTES && least >= window)
        return request_refuse_length(request->model->entry, name_of_prompt(request),
                                     &(struct request_length){.n_tokens = least, .bytes = len, .window = window},
                                     error);
    if (llm_check_text(weights, text, len, &own) == HEARTH_OK) return HEARTH_OK;
    return error_at(error, own.code, name_of_prompt(request), "the prompt has %s", own.message);
}

static int check_length(const hearth_request *request, hearth_error *error)
{
    const struct tokens *prompt = &request->job.prompt;
    int32_t window = engine_window(request->model->engine);
    if (request->params->keep_prompt && prompt->len > HEARTH_PROMPT_TOLD && request->job.only_prompt)
        return error_at(error, HEARTH_TOO_LONG, "prompt", "the prompt has %zu tokens: up to %d are returned at once",
                        prompt->len, HEARTH_PROMPT_TOLD);
    if (request->job.only_prompt) return HEARTH_OK;
    if (prompt->len == 0) return error_at(error, HEARTH_INVALID, "prompt", "the prompt is empty");
    if (prompt->len < (size_t)window) return HEARTH_OK;
    return request_refuse_length(request->model->entry, name_of_prompt(request),
                                 &(struct request_length){.n_tokens = prompt->len, .window = (size_t)window}, error);
}

/* The ends of messages that the configured caching uses. Cells of a dense model are cut wherever tokens differ. So it
 * needs no checkpoints, only the end of all but the last message, which an edit of the last one leaves valid. */
static struct prepare_wishes wishes_of(const hearth_request *request)
{
    const struct config_model *config = request->model->config;
    if (!request->job.cache_prompt) return (struct prepare_wishes){.checkpoints = false};
    return (struct prepare_wishes){.system_end = config->system_prompt_cache,
                                   .stable_end = config->incremental_cache,
                                   .checkpoints = engine_wants_checkpoints(request->model->engine)};
}

static struct chat_request chat_request_of(const hearth_request *request)
{
    const hearth_params *p = request->params;
    time_t now = time(NULL);
    return (struct chat_request){.messages = json_text_tree(p->messages),
                                 .kwargs = json_text_tree(p->template_kwargs),
                                 .tools = json_text_tree(p->tools),
                                 .tool_choice = p->tool_choice,
                                 .allowed_tools = json_text_tree(p->allowed_tools),
                                 .parallel_tool_calls = p->parallel_tool_calls,
                                 .grammar = p->grammar,
                                 .json_schema = json_text_tree(p->json_schema),
                                 .continue_final = p->continue_final,
                                 .reasoning_in_text = p->reasoning_in_text,
                                 .add_generation_prompt = !p->no_generation_prompt,
                                 /* The start of the day (UTC), for templates that print the date: with the current
                                  * time every request would have a prefix of its own. */
                                 .now = (int64_t)(now - now % 86400),
                                 .stop = &request->stop_rendering,
                                 .refuses_media = request->model->config->media == CONFIG_MEDIA_REFUSE};
}

/* Texts of requests that share no cells are tokenised apart as well: how long that takes would show who sent what. */
static struct llm_tokenising tokenising_of(const hearth_request *request)
{
    return (struct llm_tokenising){.stop = &request->job.cancelled,
                                   .cache = request->job.cache_prompt ? request->model->tokenizer_cache : NULL,
                                   .salt = request->params->cache_salt};
}

static bool is_wanted_no_more(void *ud)
{
    const hearth_request *request = ud;
    return job_is_cancelled(&request->job);
}

/* The replies that its prompt may hold; NULL: none are looked for. Requests that share no cells see no others' replies
 * either. A request for the tokens of a text, or for their logprobs, means the tokenizer's. */
static struct reply_book *book_of(const hearth_request *request)
{
    const hearth_params *p = request->params;
    bool means_tokens = p->keep_prompt || p->prompt_logprobs >= 0 || (p->only_prompt && p->text != NULL);
    return request->job.cache_prompt && !means_tokens ? request->model->reply_book : NULL;
}

/* Where its media may come from; the time for all of them begins now. */
static struct media_sources sources_of(const hearth_request *request, const struct media_stop *stop)
{
    const struct config_model *config = request->model->config;
    return (struct media_sources){.urls = config->media_urls,
                                  .hosts = (const char *const *)config->media_url_hosts.v,
                                  .n_hosts = config->media_url_hosts.len,
                                  .folder = config->media_path,
                                  .most_bytes = (size_t)config->media_url_mb << 20,
                                  .deadline = clock_now(clock_monotonic()) +
                                              clock_from_ms((int64_t)(1000 * config->media_url_seconds)),
                                  .stop = stop};
}

/* Those of a request that has some, from when it is admitted on. */
static struct prompt_media *media_of(hearth_request *request)
{
    const hearth_params *p = request->params;
    const struct prompt_media_sharing sharing = {.salt = p->cache_salt, .none = !p->cache_prompt};
    if (request->media == NULL)
        request->media = prompt_media_open(request->model->media, p->media, p->n_media, &sharing);
    return request->media;
}

/* Reads the request's images, sounds, videos and documents, as far as the model takes them. */
static int read_media(hearth_request *request, hearth_error *error)
{
    const hearth_params *p = request->params;
    struct model *model = request->model;
    if (p->n_media == 0) return HEARTH_OK;
    const struct media_stop stop = {is_wanted_no_more, request}; /* limits of their own bound how long they take */
    struct media_sources sources = sources_of(request, &stop);
    const struct media_document_limits documents = {(size_t)model->config->max_prompt_bytes,
                                                    model->config->media_unconfined};
    const struct prompt_media_room room = {.rows = engine_window(model->engine),
                                           .pixels = (uint64_t)model->config->request_megapixels * 1000000,
                                           .documents = documents};
    return prompt_media_read(media_of(request), &sources, &room, error);
}

/* The rendered text, with a fixed word where a medium's marker, which nobody may know, stands. */
static void send_text(hearth_request *request, const struct chat_prompt *prompt)
{
    static const char word[] = "<__media__>"; /* as llama-server's libraries have it */
    const char *at = prompt->text, *end = at + prompt->len, *marker = NULL;
    size_t len, upload;
    struct buf text = {0};
    while (request->media != NULL &&
           (marker = prompt_media_find(request->media, at, (size_t)(end - at), &len, &upload)) != NULL) {
        buf_append(&text, at, (size_t)(marker - at));
        buf_puts(&text, word);
        at = marker + len;
    }
    buf_append(&text, at, (size_t)(end - at));
    job_send_prompt(&request->job, buf_text(&text), text.len);
    buf_release(&text);
}

static int take_template(hearth_request *request, hearth_error *error)
{
    const char *source = request->preset == NULL ? NULL : request->preset->template_;
    if (source == NULL) return HEARTH_OK;
    const struct chat_template_params params =
        model_template_params(request->model->config, request->model->weights, source);
    request->template_ = preset_templates_take(request->model->templates, &params, error);
    return request->template_ == NULL ? (int)error->code : HEARTH_OK;
}

static int prepare_chat(hearth_request *request, hearth_error *error)
{
    if (read_media(request, error) != HEARTH_OK || take_template(request, error) != HEARTH_OK) return (int)error->code;
    begin_patience(request);
    struct reply_book *book = book_of(request);
    struct prepare_chat chat = {.weights = request->model->weights,
                                .template_ = request->template_ != NULL ? preset_template_compiled(request->template_)
                                                                        : request->model->template_,
                                .request = chat_request_of(request),
                                .check = check_text,
                                .ud = request,
                                .media = request->media,
                                .book = book,
                                .scope = request->job.scope,
                                .stored = book == NULL ? (struct stored_lists){.common = NULL}
                                                       : request_stored_lists(request),
                                .how = tokenising_of(request)};
    struct prepare_wishes wishes = wishes_of(request);
    if (request->media != NULL) {
        chat.request.media = prompt_media_texts(request->media);
        chat.request.n_media = request->params->n_media;
        chat.request.takes_media = request->model->media != NULL;
    }
    int rc = prompt_of_messages(request, &chat, error);
    if (computes(request)) request->place = chat.place;
    if (rc == HEARTH_OK) request->left_out = own_left_out(request, &chat.text);
    if (rc == HEARTH_OK && request->media != NULL)
        prompt_media_attach(request->media, request->model->engine, &request->job);
    /* The rows of a medium are no tokens that a model could have written. */
    if (rc == HEARTH_OK && request->params->prompt_logprobs >= 0 && request->job.media.spans.len > 0)
        rc = error_at(error, HEARTH_INVALID, "prompt_logprobs",
                      "'prompt_logprobs' needs a prompt of text alone: leave it out, or the images, sounds and videos");
    if (rc == HEARTH_OK) rc = check_length(request, error);
    if (rc == HEARTH_OK) rc = check_wanted(request, error);
    if (rc == HEARTH_OK && computes(request))
        rc = chat_format_open(chat.template_, &chat.request, &chat.text, &request->format, error);
    if (rc == HEARTH_OK && request->job.only_prompt)
        send_text(request, &chat.text);
    else if (rc == HEARTH_OK)
        prepare_conversation(&chat, &wishes, &request->job);
    if (rc == HEARTH_OK) rc = check_wanted(request, error);
    if (rc == HEARTH_OK && request->job.only_lookup)
        request->lookup.chat = chat; /* lookup_finish() needs it to find the message of the divergence */
    else
        prepare_release(&chat);
    return rc;
}

/* A range of the text of a completion. */
static void tokenise_range(const void *ud, size_t from, size_t to, struct tokens *out)
{
    const hearth_request *request = ud;
    const hearth_params *p = request->params;
    const struct llm_tokenising how = tokenising_of(request);
    struct llm_tokenizer_input in = {p->text + from, to - from, from == 0 && !p->without_bos_eos, !p->plain};
    llm_tokenize_until(request->model->weights, &in, &how, out);
}

/* With a suffix (fill-in-the-middle) the text is an editor's: it gets neither BOS nor EOS, and special tokens that it
 * spells stay text. */
static void tokenise_text(hearth_request *request)
{
    const hearth_params *p = request->params;
    const struct llm_tokenising how = tokenising_of(request);
    struct tokens *prompt = &request->job.prompt;
    bool markers = !p->without_bos_eos && p->suffix == NULL, plain = p->plain || p->suffix != NULL;
    struct llm_tokenizer_input whole = {p->text, p->text_len, markers, !plain};
    struct reply_book *book = book_of(request);
    if (p->text != NULL && p->suffix == NULL && book != NULL) {
        const struct prompt_text text = {request->model->weights, p->text, p->text_len, tokenise_range, request};
        const struct stored_lists lists = request_stored_lists(request);
        struct reply_place place;
        reply_book_tokenise(book, request->job.scope, &text, prompt, &place);
        if (stored_replies_take(&lists, &text, prompt)) reply_place_move(&place, prompt);
        if (computes(request)) request->place = place;
    } else if (p->text != NULL) {
        llm_tokenize_until(request->model->weights, &whole, &how, prompt);
    }
    /* BOS and EOS enclose a whole text; of a prompt in parts only the first part gets a BOS. */
    for (size_t i = 0; i < p->n_parts && !job_is_cancelled(&request->job); i++) {
        const hearth_part *part = &p->parts[i];
        struct llm_tokenizer_input in = {part->text, part->len, markers && i == 0, !p->plain};
        if (part->text != NULL)
            llm_tokenize_until(request->model->weights, &in, &how, prompt);
        else
            tokens_push(prompt, part->token);
    }
}

static int prepare_text(hearth_request *request, hearth_error *error)
{
    const hearth_params *p = request->params;
    int rc = check_text(request, p->text, p->text_len, error);
    if (rc == HEARTH_OK) rc = check_text(request, p->suffix, p->suffix_len, error);
    if (rc == HEARTH_OK) rc = check_text(request, p->typed, p->typed_len, error);
    for (size_t i = 0; i < p->n_parts && rc == HEARTH_OK; i++)
        rc = check_text(request, p->parts[i].text, p->parts[i].len, error);
    for (size_t i = 0; i < p->n_snippets && rc == HEARTH_OK; i++)
        rc = check_text(request, p->snippets[i].text, strlen(p->snippets[i].text), error);
    if (rc != HEARTH_OK) return rc;
    tokenise_text(request);
    rc = check_wanted(request, error);
    if (rc == HEARTH_OK && p->suffix != NULL) {
        const struct config_model *config = request->model->config;
        int32_t window = engine_window(request->model->engine);
        struct infill_model model = {.weights = request->model->weights,
                                     .name = config->name,
                                     .window = window,
                                     .n_batch = config->n_batch < window ? (int32_t)config->n_batch : window};
        rc = infill_prompt(&model, p, &request->job.prompt, error);
    }
    if (rc == HEARTH_OK) rc = check_length(request, error);
    if (rc != HEARTH_OK || !request->job.only_prompt) return rc;
    if (p->text != NULL && p->suffix == NULL) {
        job_send_prompt(&request->job, p->text, p->text_len);
    } else {
        /* Answers with the text of the tokens, that of special tokens included. */
        struct buf text = {0};
        const struct tokens *prompt = &request->job.prompt;
        for (size_t i = 0; i < prompt->len; i++) llm_token_bytes(request->model->weights, prompt->v[i], true, &text);
        job_send_prompt(&request->job, text.v, text.len);
        buf_release(&text);
    }
    return HEARTH_OK;
}

/* Copies the prompt for hearth_request_prompt(): the job's own belongs to the engine from its submission on. */
static void keep_prompt(hearth_request *request)
{
    struct kept_prompt *kept = &request->kept;
    struct tokens *prompt = &request->job.prompt;
    tokens_append(&kept->tokens, prompt->v, prompt->len);
    kept->ends = mem_alloc((prompt->len + 1) * sizeof *kept->ends);
    for (size_t i = 0; i < prompt->len; i++) {
        llm_token_bytes(request->model->weights, prompt->v[i], true, &kept->text);
        kept->ends[i] = kept->text.len;
    }
}

/* ---- The reply ---- */

/* On the preparing thread, since accepting the prompt's tokens and parsing a grammar may take long. */
static int open_sampler(hearth_request *request, hearth_error *error)
{
    struct job *job = &request->job;
    struct model *model = request->model;
    struct output_constraint constraint;
    int rc = output_constraint_open(&constraint, model->weights, request->params, request->format, error);
    if (rc != HEARTH_OK) return rc;
    const char *unenforced = request->format == NULL ? constraint.unenforced : request->format->unenforced;
    request->unenforced = unenforced == NULL ? NULL : mem_strdup(unenforced);
    constraint.grammar.shown = request->shown.v;
    constraint.grammar.n_shown = request->shown.len;
    hearth_sampling given = request->params->sampling;
    if (request->preset != NULL) sampling_take(&given, &request->preset->sampling);
    if ((request->params->given & HEARTH_GIVEN_SEED) != 0) given.seed = request->params->sampling.seed;
    request->sampling = sampling_complete(&given, model->config, model->weights);
    request->biases = sampling_spell_biases(&request->sampling, model->weights);
    struct llm_sampling sampling = {.params = request->sampling,
                                    .window = engine_window(model->engine),
                                    .grammar = constraint.grammar,
                                    .thinking = constraint.thinking};
    job->sampler = llm_sampler_open(model->weights, &sampling, &job->prompt, error);
    output_constraint_close(&constraint);
    return job->sampler == NULL ? (int)error->code : HEARTH_OK;
}

/* The stop strings of the request, or else of its preset, and of the format. A grammar that holds from the beginning
 * says itself where the reply ends: the format's strings could only break it off. A model without a chat template, for
 * which ChatML was assumed, may write the end of its turn as text: its vocabulary hardly has a token for it. */
static void collect_stops(hearth_request *request)
{
    const hearth_params *p = request->params;
    bool assumed = p->messages != NULL && !request->model->entry->facts.info.has_chat_template;
    bool bound = request->format != NULL && request->format->grammar != NULL && !request->format->grammar_lazy &&
                 p->grammar == NULL;
    size_t n_format = request->format == NULL || bound ? 0 : request->format->n_stops;
    bool by_preset = p->n_stop == 0 && (p->given & HEARTH_GIVEN_STOP) == 0 && request->preset != NULL;
    const char *const *stop = by_preset ? request->preset->stop : p->stop;
    size_t n_stop = by_preset ? request->preset->n_stop : p->n_stop;
    request->stop = mem_alloc((n_stop + n_format + 1) * sizeof *request->stop);
    for (size_t i = 0; i < n_stop; i++) request->stop[i] = stop[i];
    for (size_t i = 0; i < n_format; i++) request->stop[n_stop + i] = request->format->stops[i];
    request->job.n_stop = n_stop + n_format;
    if (assumed && !bound) request->stop[request->job.n_stop++] = "<|im_end|>";
    request->job.n_own_stop = request->job.n_stop - n_stop;
    request->job.stop = request->stop;
}

/* ---- Store lookup and submission ---- */

/* The query to the store; `parent` is storage for the parent_key of the request. */
static struct store_query query_of(const hearth_request *request, struct slab_key *parent)
{
    const struct model *model = request->model;
    const struct job *job = &request->job;
    const char *hex = request->params->parent_key;
    bool has_parent = hex != NULL && sha256_from_hex(hex, parent->v);
    int32_t n = model->config->incremental_cache ? (int32_t)job->prompt.len - 1 : job->conversation.system_end;
    return (struct store_query){.user = engine_store_user(model->engine),
                                .identity = &job->identity,
                                .tokens = job->prompt.v,
                                .n = n < (int32_t)job->prompt.len ? n : (int32_t)job->prompt.len - 1,
                                .parent_key = has_parent ? parent : NULL,
                                .deadline = clock_now(request->clock) + model->resume_wait_ns};
}

/* Whether the request waits for a parent that is still being saved. It is postponed meanwhile and holds no thread:
 * until the save has ended or session_resume_wait_ms has passed, when this is called again. */
static bool waits_for_parent(hearth_request *request, const struct store_query *query)
{
    struct model *model = request->model;
    if (query->parent_key == NULL) return false;
    if (request->parent_deadline == 0) request->parent_deadline = query->deadline;
    if (clock_now(request->clock) >= request->parent_deadline) return false;
    uint64_t seen = admission_wakes(model->admission);
    return store_parent_is_coming(model->store, query, &model->waiter, &request->parent_ticket) &&
           admission_postpone(model->admission, &request->job, request->parent_deadline, seen);
}

/* Edges of the store's tree that are followed: one a branch. */
#define PAST_STEPS 16

/* Copies the stored tokens that followed the prompt when it was asked before: a draft of the reply. */
static void note_past(hearth_request *request, struct store_query query)
{
    struct tokens *past = &request->job.past, path = {0};
    const struct tokens *prompt = &request->job.prompt;
    tokens_append(&path, prompt->v, prompt->len);
    for (size_t n = 1, steps = 0; n > 0 && steps < PAST_STEPS && path.len < prompt->len + DRAFT_PAST; steps++) {
        struct tokens way = {0};
        query.tokens = path.v;
        query.n = (int32_t)path.len;
        n = store_ways_on(request->model->store, &query, &way, 1);
        if (way.len == 0) n = 0;
        tokens_append(&path, way.v, way.len);
        tokens_release(&way);
    }
    size_t from = prompt->len > SUFFIX_MOST ? prompt->len - SUFFIX_MOST : 0;
    if (path.len > prompt->len) tokens_append(past, path.v + from, path.len - from);
    tokens_release(&path);
}

/* Looks the prompt up in the store, unless the request waits for its parent, and submits the job to the engine. Hashing
 * a whole prompt would hold up the engine thread. */
static void submit_job(hearth_request *request)
{
    struct slab_key parent;
    struct job *job = &request->job;
    const struct model *model = request->model;
    struct store_query query = query_of(request, &parent);
    /* The store's states are of the loaded files; and the engine hears of a change before it takes the job. */
    if (job->cache_prompt && file_watch_check(model->watch) != FILES_SAME) query.user = NULL;
    bool keeps = query.user != NULL && job->cache_prompt, asks = keeps && job->prompt_logprobs < 0;
    if (keeps && model->events != NULL) {
        /* Routers learn what is stored under the request's salt and adapters. */
        char *adapters = request->params->lora == NULL ? NULL : adapters_label(model->adapters, request->scales);
        struct identity_name name = {.model = model->config->name,
                                     .adapters = adapters,
                                     .salt = request->params->cache_salt,
                                     .by_state = query.user->codec.has_state};
        cache_events_name(model->events, &job->identity, &name);
        free(adapters);
    }
    if (asks && waits_for_parent(request, &query)) return;
    if (asks) store_probe(model->store, &query);
    if (asks) job->hit = store_find(model->store, &query);
    if (asks && !job->only_lookup && job->draft_max != 0 && engine_drafts_from_store(model->engine))
        note_past(request, query);
    if (query.user != NULL && (job->only_lookup || model->logs_words)) {
        /* The divergence of the whole prompt from what is stored, beyond the part that may be reused. */
        enum store_tier tier = 0;
        query.n = (int32_t)job->prompt.len;
        if (store_note_divergence(model->store, &query, &job->nearest.divergence, &tier))
            job->nearest.where = store_tier_names[tier];
    }
    job->looked_up_at = clock_now(request->clock);
    engine_submit(model->engine, job);
}

static void prepare_and_submit(hearth_request *request)
{
    hearth_error error;
    preparing_begin(request->model->preparing, &request->job);
    begin_patience(request);
    const hearth_params *p = request->params;
    int rc = p->messages != NULL ? prepare_chat(request, &error) : prepare_text(request, &error);
    if (rc == HEARTH_OK && p->keep_prompt) keep_prompt(request);
    if (rc == HEARTH_OK) rc = check_wanted(request, &error);
    if (rc == HEARTH_OK && computes(request)) {
        collect_stops(request);
        output_shown_tokens(request->model->weights, request->format, &request->shown);
        request->job.shown = request->shown.v;
        request->job.n_shown = request->shown.len;
        rc = open_sampler(request, &error);
    }
    preparing_end(request->model->preparing, &request->job);
    if (rc != HEARTH_OK) {
        /* The reason, for a client that still waits for a preparation that was given up. */
        if (error.code == HEARTH_CANCELLED && !job_is_cancelled(&request->job))
            error_at(&error, HEARTH_INVALID, name_of_prompt(request),
                     "preparing the prompt takes more than %d s of computing: send fewer messages, tools or media",
                     MOST_SECONDS);
        job_fail(&request->job, &error);
        return;
    }
    request->job.prepared_at = clock_now(request->clock);
    if (request->job.only_prompt) {
        hearth_result result = {.slot = -1, .n_prompt = (int32_t)request->job.prompt.len};
        job_note_stages(&request->job, &result);
        job_done(&request->job, &result);
        return;
    }
    submit_job(request);
}

void request_prepare_slowly(struct job *job)
{
    prepare_and_submit((hearth_request *)job);
}

void *request_prepare_loop(void *ud)
{
    struct model *model = ud;
    while (true) {
        struct job *job = NULL;
        enum admission_verdict verdict = admission_next(model->admission, &job);
        hearth_request *request = (hearth_request *)job;
        switch (verdict) {
        case ADMISSION_ADMITTED: {
            const struct media_sources sources = sources_of(request, NULL);
            if (request->params->n_media > 0 && prompt_media_is_slow(media_of(request), &sources)) {
                admission_set_apart(model->admission, job);
                slow_lane_add(model->slow_lane, job);
            } else {
                prepare_and_submit(request);
            }
            break;
        }
        case ADMISSION_DUE:
            /* A request that was postponed: for its parent's save, or for the engine's answer to a lookup. */
            begin_patience(request);
            if (request->lookup.answered)
                lookup_finish(request);
            else
                submit_job(request);
            break;
        case ADMISSION_EXPIRED:
            job_fail_with(job, HEARTH_BUSY, "server busy processing other requests, try again shortly");
            break;
        case ADMISSION_CANCELLED:
            job_fail_with(job, HEARTH_CANCELLED, "request was cancelled");
            break;
        case ADMISSION_CLOSED:
            return NULL;
        }
    }
}
