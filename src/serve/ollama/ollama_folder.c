/* Ollama's routes that change the models folder: POST /api/pull, DELETE /api/delete, POST /api/create and /api/copy.
 * The last two make presets, which are names for a model with a system message and parameters of their own
 * (hearth_set_preset()). Each is a file in the folder:
 *
 *     {"from": "the model's name", "system": "…", "template": "…", "parameters": {"temperature": 0.3, …}}
 *
 * with Ollama's names of the parameters. A request is parsed on any thread; a thread of serve/pulls does the rest,
 * since network and disk may be slow; the answer is the HTTP thread's. */
#include "serve/ollama/ollama.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "pull/models_folder.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/pulls/pulls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BACKLOG_MOST 65536 /* bytes that a client has not taken, above which it gets no news */

/* The parameters of a request. Its call has them until the last line is written. */
struct asked {
    struct pulls_follower follower; /* the first member: its callbacks get it */
    char *model;                    /* to be pulled or removed; NULL: the request is about a preset */
    bool stream, insecure;
    bool is_silent; /* an answer without a body says that it is done */
    struct call *call;
    bool begun; /* the stream */
};

/* An order for the thread of a preset: to make it, or (`removes`) to remove it. */
struct order {
    char *name, *from;
    json_t *json; /* what the preset's file will have, but for "from" */
    bool stream, copies, removes;
    hearth *instance;
    char *folder;
};

static void release_asked(void *ud)
{
    struct asked *asked = ud;
    free(asked->model);
    free(asked);
}

/* ---- Answers ---- */

static void on_done(struct pulls_follower *follower, const char *model, const hearth_error *error)
{
    struct asked *asked = (struct asked *)follower;
    struct buf body = {0};
    (void)model;
    if (error != NULL) {
        call_fail(asked->call, error, ollama_put_error);
    } else if (asked->is_silent) {
        call_reply(asked->call, 200, NULL, &body);
    } else {
        if (asked->stream) buf_puts(&body, "{\"status\":\"writing manifest\"}\n");
        buf_puts(&body, "{\"status\":\"success\"}");
        if (asked->stream) buf_puts(&body, "\n");
        call_reply(asked->call, 200, asked->stream ? "application/x-ndjson" : "application/json", &body);
    }
    release_asked(asked);
}

static void on_gone(void *ud)
{
    struct asked *asked = ud;
    call_gone(asked->call);
    pulls_leave(&asked->follower);
    release_asked(asked);
}

static void await_end(struct call *call, struct asked *asked, int rc, const hearth_error *error)
{
    if (rc == HEARTH_OK) {
        http_watch(call->http, on_gone, asked);
        return;
    }
    call_fail(call, error, ollama_put_error);
    release_asked(asked);
}

/* ---- Parameters of presets ---- */

/* The parameters as those of a chat; NULL with the error: one of them is wrong. */
static struct fields *read_parameters(const json_t *parameters, hearth_error *error)
{
    json_t *chat =
        json_pack("{s:[{s:s, s:s}], s:O*}", "messages", "role", "user", "content", "", "options", parameters);
    struct fields *fields = fields_open_tree(chat, FIELDS_CHAT, &ollama_chat_api, error);
    if (fields != NULL) return fields;
    *error = ollama_rename(error);
    /* The library names "options", where Ollama's chats have them. */
    static const char old[] = "options.";
    if (strncmp(error->param, old, sizeof old - 1) == 0) {
        const hearth_error former = *error;
        const char *name = former.param + sizeof old - 1, *why = strstr(former.message, "' ");
        struct field_path path = field_path_of("parameters.%s", name);
        error_at(error, former.code, path.v, "'parameters.%s%s", name, why == NULL ? "' cannot be used" : why);
    }
    return NULL;
}

/* Adds the preset of a file to the instance. */
static int set_preset(hearth *instance, const char *name, const json_t *json, hearth_error *error)
{
    const char *system = json_string_value(json_object_get(json, "system"));
    struct fields *fields = read_parameters(json_object_get(json, "parameters"), error);
    if (fields == NULL) return (int)error->code;
    const hearth_preset preset = {.name = name,
                                  .model = json_string_value(json_object_get(json, "from")),
                                  .system = system != NULL && system[0] != '\0' ? system : NULL,
                                  .template_ = json_string_value(json_object_get(json, "template")),
                                  .sampling = fields->params.sampling,
                                  .stop = fields->params.stop,
                                  .n_stop = fields->params.n_stop,
                                  .max_tokens = fields->params.max_tokens};
    int rc = hearth_set_preset(instance, &preset, error);
    fields_close(fields);
    return rc;
}

/* ---- Loading presets ---- */

static void load(void *ud, const char *name, const char *text)
{
    hearth_error error;
    json_t *json = json_text_read(text, strlen(text), NULL);
    int rc = json_text_is_object(json) ? set_preset(ud, name, json, &error)
                                       : error_set(&error, HEARTH_INVALID, "it is no JSON object");
    if (rc != HEARTH_OK)
        log_event(LOG_WARN, "serve", "a preset cannot be used", log_str("name", name), log_str("error", error.message));
    json_decref(json);
}

static void note_fault(void *ud, const char *name, const char *why)
{
    (void)ud;
    log_event(LOG_WARN, "serve", "a preset cannot be used", log_str("name", name), log_str("error", why));
}

void ollama_load_presets(const struct server *server)
{
    hearth_error error;
    const struct pull_preset_visitor visitor = {.each = load, .fault = note_fault, .ud = server->instance};
    char *folder = pulls_folder(server->pulls, &error);
    if (folder == NULL) return;
    if (pull_presets_list(folder, &visitor, &error) != HEARTH_OK)
        log_event(LOG_WARN, "serve", "presets cannot be read", log_str("error", error.message));
    free(folder);
}

/* ---- Bodies about presets ---- */

static void release_order(void *ud)
{
    struct order *order = ud;
    free(order->name);
    free(order->from);
    free(order->folder);
    json_decref(order->json);
    free(order);
}

static size_t order_size(const void *ud)
{
    const struct order *order = ud;
    return sizeof *order + strlen(order->name) + json_size_of_tree(order->json);
}

/* A name without a tag ":latest", to be freed. NULL with the error: it is missing. */
static char *read_name(const json_t *tree, const char *field, const char *older, hearth_error *error)
{
    static const char tag[] = ":latest";
    const char *name = NULL;
    if (older != NULL && body_text(tree, older, &name, error) != HEARTH_OK) return NULL;
    if (body_text(tree, field, &name, error) != HEARTH_OK) return NULL;
    if (name == NULL || name[0] == '\0') {
        error_at(error, HEARTH_INVALID, field, "'%s' is missing: give a model's name", field);
        return NULL;
    }
    size_t len = strlen(name), n = sizeof tag - 1;
    return mem_strndup(name, len > n && strcmp(name + len - n, tag) == 0 ? len - n : len);
}

static int refuse_others(const json_t *tree, hearth_error *error)
{
    static const char *const refused[][2] = {
        {"files", "POST /api/pull fetches a model's files"},
        {"adapters", "models.NAME.lora of the configuration names them"},
        {"quantize", "models are files as they were pulled"},
        {"modelfile", "give 'from', 'system' and 'parameters'"},
        {"messages", "send them with each request"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (!fields_asks(tree, refused[i][0])) continue;
        return error_at(error, HEARTH_UNSUPPORTED, refused[i][0], "'%s' is not supported: %s", refused[i][0],
                        refused[i][1]);
    }
    return HEARTH_OK;
}

static json_t *read_preset(const json_t *tree, hearth_error *error)
{
    const char *system = NULL, *template_ = NULL;
    const json_t *parameters = body_find(tree, "parameters");
    if (refuse_others(tree, error) != HEARTH_OK || body_text(tree, "system", &system, error) != HEARTH_OK ||
        body_text(tree, "template", &template_, error) != HEARTH_OK)
        return NULL;
    if (template_ != NULL && template_[0] == '\0') template_ = NULL;
    /* Ollama's are in Go's language, and have no statements of Jinja's. */
    if (template_ != NULL && strstr(template_, "{%") == NULL) {
        error_at(error, HEARTH_UNSUPPORTED, "template",
                 "'template' must be in Jinja, with {%%…%%}: leave it out where the model's own is right");
        return NULL;
    }
    if (parameters != NULL && !json_text_is_object(parameters)) {
        error_at(error, HEARTH_INVALID, "parameters", "'parameters' must be an object");
        return NULL;
    }
    struct fields *fields = read_parameters(parameters, error);
    if (fields == NULL) return NULL;
    fields_close(fields);
    return json_pack("{s:s*, s:s*, s:O*}", "system", system, "template", template_, "parameters", parameters);
}

static void *read_created(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    bool stream = true;
    if (tree == NULL) return NULL;
    json_t *json = body_bool(tree, "stream", &stream, error) == HEARTH_OK ? read_preset(tree, error) : NULL;
    char *name = json == NULL ? NULL : read_name(tree, "model", "name", error);
    char *from = name == NULL ? NULL : read_name(tree, "from", NULL, error);
    json_decref(tree);
    struct order *order = mem_alloc(sizeof *order);
    *order = (struct order){.name = name, .from = from, .json = json, .stream = stream};
    if (from != NULL) return order;
    release_order(order);
    return NULL;
}

static void *read_copied(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    if (tree == NULL) return NULL;
    char *from = read_name(tree, "source", NULL, error);
    char *name = from == NULL ? NULL : read_name(tree, "destination", NULL, error);
    json_decref(tree);
    struct order *order = mem_alloc(sizeof *order);
    *order = (struct order){.name = name, .from = from, .json = json_object(), .copies = true};
    if (name != NULL) return order;
    release_order(order);
    return NULL;
}

/* ---- Presets; on a thread of serve/pulls ---- */

/* One order at a time, so that the preset in memory and the file on the disk are of the same one. */
static pthread_mutex_t ordering = PTHREAD_MUTEX_INITIALIZER;

/* The JSON that the order's preset is made of: that of a preset's file, or the name of a model. NULL with the error:
 * the file cannot be read. */
static json_t *base_of(const struct order *order, hearth_error *error)
{
    const hearth_preset *base = hearth_find_preset(order->instance, order->from);
    if (base == NULL) return json_pack("{s:s}", "from", order->from);
    char *text = pull_preset_read(order->folder, base->name, error);
    json_t *json = text == NULL ? NULL : json_text_read(text, strlen(text), NULL);
    if (text != NULL && !json_text_is_object(json)) {
        error_set(error, HEARTH_IO, "the file of the preset '%s' is damaged", base->name);
        json_decref(json);
        json = NULL;
    }
    hearth_release_preset(base);
    free(text);
    return json;
}

/* The order's JSON, completed from the preset that it is made of. So a file names a model, never a preset, and needs no
 * other file. NULL with the error. */
static json_t *whole_of(const struct order *order, hearth_error *error)
{
    static const char *const texts[] = {"system", "template"};
    json_t *whole = base_of(order, error), *own = json_object_get(order->json, "parameters");
    if (whole == NULL) return NULL;
    json_t *its = json_object_get(whole, "parameters");
    if (json_text_is_object(its) && own != NULL)
        json_object_update(its, own);
    else if (own != NULL)
        json_object_set(whole, "parameters", own);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *text = json_object_get(order->json, texts[i]);
        if (text != NULL) json_object_set(whole, texts[i], text);
    }
    return whole;
}

/* Where the file cannot be written, the preset of that name, if there was one, is as it was. */
static int set_and_write(const struct order *order, const json_t *whole, hearth_error *error)
{
    const hearth_preset *before = hearth_find_preset(order->instance, order->name);
    char *text = json_text_of(whole);
    int rc = set_preset(order->instance, order->name, whole, error);
    if (rc == HEARTH_OK && pull_preset_write(order->folder, order->name, text, error) != HEARTH_OK) {
        rc = (int)error->code;
        if (before == NULL)
            hearth_remove_preset(order->instance, order->name, NULL);
        else
            hearth_set_preset(order->instance, before, NULL);
    }
    hearth_release_preset(before);
    free(text);
    return rc;
}

static int make(void *ud, hearth_error *error)
{
    const struct order *order = ud;
    pthread_mutex_lock(&ordering);
    json_t *whole = whole_of(order, error);
    int rc = whole == NULL ? (int)error->code : set_and_write(order, whole, error);
    pthread_mutex_unlock(&ordering);
    if (rc == HEARTH_OK) log_event(LOG_INFO, "serve", "a preset was made", log_str("name", order->name));
    json_decref(whole);
    return rc;
}

static int remove_it(void *ud, hearth_error *error)
{
    const struct order *order = ud;
    pthread_mutex_lock(&ordering);
    int rc = pull_preset_remove(order->folder, order->name, error);
    if (rc == HEARTH_OK || rc == HEARTH_NOT_FOUND) rc = hearth_remove_preset(order->instance, order->name, error);
    pthread_mutex_unlock(&ordering);
    if (rc == HEARTH_OK) log_event(LOG_INFO, "serve", "a preset was removed", log_str("name", order->name));
    return rc;
}

/* ---- Routes of presets ---- */

/* Takes the order over. */
static void begin_order(struct call *call, void *ud)
{
    struct order *order = ud;
    hearth_error error;
    struct asked *asked = mem_alloc(sizeof *asked);
    *asked = (struct asked){.follower = {.on_end = on_done},
                            .call = call,
                            .stream = order->stream,
                            .is_silent = order->copies || order->removes};
    order->instance = call->server->instance;
    order->folder = pulls_folder(call->server->pulls, &error);
    const struct pulls_task task = {.run = order->removes ? remove_it : make, .release = release_order, .ud = order};
    int rc = order->folder == NULL ? (int)error.code : HEARTH_OK;
    if (rc != HEARTH_OK)
        release_order(order);
    else
        rc = pulls_run(call->server->pulls, &task, &asked->follower, &error);
    await_end(call, asked, rc, &error);
}

const struct reading_form ollama_create =
    READING_FORM(read_created, order_size, begin_order, release_order, ollama_put_error);

const struct reading_form ollama_copy =
    READING_FORM(read_copied, order_size, begin_order, release_order, ollama_put_error);

/* ---- The body of a pull ---- */

static size_t asked_size(const void *ud)
{
    const struct asked *asked = ud;
    return sizeof *asked + strlen(asked->model);
}

/* "name" is the older name of "model". */
static void *read_asked(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    const char *model = NULL;
    bool stream = true, insecure = false;
    if (tree == NULL) return NULL;
    int rc = body_text(tree, "name", &model, error);
    if (rc == HEARTH_OK) rc = body_text(tree, "model", &model, error);
    if (rc == HEARTH_OK) rc = body_bool(tree, "stream", &stream, error);
    if (rc == HEARTH_OK) rc = body_bool(tree, "insecure", &insecure, error);
    if (rc == HEARTH_OK && (model == NULL || model[0] == '\0'))
        rc = error_at(error, HEARTH_INVALID, "model", "'model' is missing: name the model");
    struct asked *asked = rc == HEARTH_OK ? mem_alloc(sizeof *asked) : NULL;
    if (asked != NULL) *asked = (struct asked){.model = mem_strdup(model), .stream = stream, .insecure = insecure};
    json_decref(tree);
    return asked;
}

/* ---- Lines of a pull ---- */

static void put_status(struct buf *out, const char *status)
{
    buf_puts(out, "{");
    member_puts(out, "status", status);
}

static void send_line(struct asked *asked, struct buf *line)
{
    if (!asked->begun) call_begin(asked->call, "application/x-ndjson");
    asked->begun = true;
    http_send(asked->call->http, line->v, line->len);
    buf_release(line);
}

static void on_news(struct pulls_follower *follower, const struct pulls_news *news)
{
    struct asked *asked = (struct asked *)follower;
    struct buf line = {0};
    if (!asked->stream || http_backlog(asked->call->http) > BACKLOG_MOST) return;
    static const char *const statuses[] = {[PULLS_LISTING] = "pulling manifest",
                                           [PULLS_CHECKING] = "verifying sha256 digest",
                                           [PULLS_SERVING] = "writing manifest"};
    if (news->step == PULLS_FETCHING) {
        /* Clients tell files apart by the digest; where the source has none the file's name does for it. */
        bool has_digest = news->digest[0] != '\0';
        char *digest = mem_format("%s%s", has_digest ? "sha256:" : "", has_digest ? news->digest : news->file);
        char *status = has_digest ? mem_format("pulling %.12s", news->digest) : mem_format("pulling %s", news->file);
        put_status(&line, status);
        member_puts(&line, "digest", digest);
        if (news->total >= 0) buf_printf(&line, ",\"total\":%lld", (long long)news->total);
        buf_printf(&line, ",\"completed\":%lld,", (long long)news->done);
        member_puts(&line, "file", news->file);
        free(status);
        free(digest);
    } else {
        put_status(&line, statuses[news->step]);
    }
    buf_puts(&line, "}\n");
    send_line(asked, &line);
}

static void put_success(struct buf *out, const char *model)
{
    put_status(out, "success");
    member_puts(out, "model", model);
    buf_puts(out, "}");
}

/* An error that comes before the first line has a status of its own. */
static void on_pulled(struct pulls_follower *follower, const char *model, const hearth_error *error)
{
    struct asked *asked = (struct asked *)follower;
    struct buf line = {0};
    if (error != NULL && !asked->begun) {
        call_fail(asked->call, error, ollama_put_error);
    } else if (!asked->stream) {
        put_success(&line, model);
        call_reply(asked->call, 200, "application/json", &line);
    } else {
        if (error != NULL)
            ollama_put_error(&line, error, NULL);
        else
            put_success(&line, model);
        buf_puts(&line, "\n");
        send_line(asked, &line);
        call_end(asked->call);
    }
    release_asked(asked);
}

/* ---- Routes of models ---- */

static void begin_pull(struct call *call, void *ud)
{
    struct asked *asked = ud;
    hearth_error error;
    asked->call = call;
    asked->follower = (struct pulls_follower){.on_news = on_news, .on_end = on_pulled};
    int rc = pulls_pull(call->server->pulls, asked->model, asked->insecure, &asked->follower, &error);
    await_end(call, asked, rc, &error);
}

static void begin_removal(struct call *call, void *ud)
{
    struct asked *asked = ud;
    hearth_error error;
    const hearth_preset *preset = hearth_find_preset(call->server->instance, asked->model);
    if (preset != NULL) {
        struct order *order = mem_alloc(sizeof *order);
        *order = (struct order){.name = mem_strdup(preset->name), .removes = true};
        hearth_release_preset(preset);
        begin_order(call, order);
        release_asked(asked);
        return;
    }
    asked->call = call;
    asked->is_silent = true;
    asked->follower = (struct pulls_follower){.on_end = on_done};
    int rc = pulls_remove(call->server->pulls, asked->model, &asked->follower, &error);
    await_end(call, asked, rc, &error);
}

const struct reading_form ollama_pull =
    READING_FORM(read_asked, asked_size, begin_pull, release_asked, ollama_put_error);

const struct reading_form ollama_delete =
    READING_FORM(read_asked, asked_size, begin_removal, release_asked, ollama_put_error);
