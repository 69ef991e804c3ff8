/* Configurations: creating, reading files into, setting by path, copying, querying, freeing. Every change is made on a
 * copy, which replaces the original only if all of it was valid. The caller owns a configuration, and changes it on one
 * thread at a time. */
#include "config/config.h"

#include "base/error.h"
#include "base/memory.h"
#include "config/edit.h"
#include "config/text.h"
#include "config/value.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Faults ---- */

void config_fault(struct config_faults *faults, hearth_code code, struct config_location location, const char *format,
                  ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (faults->report != NULL) faults->report(faults->ud, location.file, location.line, location.key, message);
    if (faults->code != 0) return;
    struct buf line = {0};
    if (location.file[0] != '\0') buf_puts(&line, location.file);
    if (location.file[0] != '\0' && location.line > 0) buf_printf(&line, ":%d", location.line);
    if (location.file[0] != '\0') buf_puts(&line, ": ");
    if (location.key[0] != '\0') buf_printf(&line, "%s: ", location.key);
    buf_puts(&line, message);
    faults->code = error_at(faults->error, code, location.key, "%s", line.v);
    buf_release(&line);
}

/* ---- Defaults ---- */

/* Cannot fail: a test reads all defaults of the table. */
static void set_default(const struct config_row *row, void *owner)
{
    struct buf why = {0};
    value_read_text(row, row->default_value, config_field(row, owner), &why);
    buf_release(&why);
}

static struct config_note *set_defaults(void *owner, bool in_model)
{
    for (size_t i = 0; i < config_n_rows; i++)
        if (config_row_in_model(&config_rows[i]) == in_model) set_default(&config_rows[i], owner);
    return mem_alloc(config_n_rows * sizeof(struct config_note));
}

bool config_is_set(const struct config_note *notes, const char *pattern)
{
    return notes[config_row_index(config_row_find(pattern))].set;
}

/* Spells the values for hearth_config_get() beforehand, so that a query changes nothing. */
static void write_texts(void *owner, bool in_model, struct config_note *notes)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        if (config_row_in_model(&config_rows[i]) != in_model) continue;
        free(notes[i].text);
        notes[i].text = value_text(&config_rows[i], config_field(&config_rows[i], owner));
    }
}

static void replace_number(const struct config_model *model, const char *pattern, int64_t *field, int64_t value)
{
    if (!config_is_set(model->notes, pattern)) *field = value;
}

static void replace_text(const struct config_model *model, const char *pattern, char **field, const char *value)
{
    if (config_is_set(model->notes, pattern)) return;
    char *copy = mem_strdup(value); /* the value may be the field's */
    free(*field);
    *field = copy;
}

void config_set_context(struct config_model *model, const struct config_context *defaults)
{
    replace_number(model, "models.*.context_window", &model->context_window, defaults->context_window);
    replace_number(model, "models.*.n_seq_max", &model->n_seq_max, defaults->n_seq_max);
    replace_text(model, "models.*.cache_type_k", &model->cache_type_k, defaults->cache_type_k);
    replace_text(model, "models.*.cache_type_v", &model->cache_type_v, defaults->cache_type_v);
    write_texts(model, true, model->notes);
}

static void derive_and_spell(struct hearth_config *config)
{
    write_texts(config, false, config->notes);
    for (size_t i = 0; i < config->n_models; i++) {
        struct config_model *model = &config->models[i];
        /* Defaults that depend on other keys. */
        if (model->n_seq_max == 0) model->n_seq_max = 1;
        if (!config_is_set(model->notes, "models.*.incremental_cache"))
            model->incremental_cache = !model->system_prompt_cache;
        if (!config_is_set(model->notes, "models.*.n_ubatch")) {
            set_default(config_row_find("models.*.n_ubatch"), model);
            if (model->mmproj != NULL) model->n_ubatch = 2048;
            if (model->n_ubatch > model->n_batch) model->n_ubatch = model->n_batch;
        }
        write_texts(model, true, model->notes);
    }
}

/* ---- Creating, copying, freeing ---- */

static struct hearth_config *new_empty(void)
{
    struct hearth_config *config = mem_alloc(sizeof *config);
    config->notes = set_defaults(config, false);
    return config;
}

hearth_config *hearth_config_new(void)
{
    struct hearth_config *config = new_empty();
    derive_and_spell(config);
    return config;
}

static void release_values(void *owner, bool in_model, struct config_note *notes)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        free(notes[i].text);
        if (config_row_in_model(&config_rows[i]) == in_model)
            value_release(&config_rows[i], config_field(&config_rows[i], owner));
    }
    free(notes);
}

static void release_model(struct config_model *model)
{
    release_values(model, true, model->notes);
    free(model->name);
}

void hearth_config_free(hearth_config *config)
{
    if (config == NULL) return;
    for (size_t i = 0; i < config->n_models; i++) release_model(&config->models[i]);
    free(config->models);
    for (size_t i = 0; i < config->files.len; i++) free(config->files.v[i]);
    free(config->files.v);
    release_values(config, false, config->notes);
    free(config);
}

static void copy_values(void *to, const void *from, bool in_model, struct config_note *to_notes,
                        const struct config_note *from_notes)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];
        if (config_row_in_model(row) != in_model) continue;
        value_release(row, config_field(row, to));
        value_copy(row, config_field(row, to), config_field(row, from));
        char *text = to_notes[i].text;
        to_notes[i] = from_notes[i];
        to_notes[i].text = text;
    }
}

struct hearth_config *config_copy(const struct hearth_config *config)
{
    struct hearth_config *copy = new_empty();
    copy_values(copy, config, false, copy->notes, config->notes);
    for (size_t i = 0; i < config->n_models; i++) {
        struct config_model *model = config_declare_model(copy, config->models[i].name);
        copy_values(model, &config->models[i], true, model->notes, config->models[i].notes);
    }
    copy->files.len = config->files.len;
    copy->files.v = mem_alloc(copy->files.len * sizeof *copy->files.v);
    for (size_t i = 0; i < copy->files.len; i++) copy->files.v[i] = mem_strdup(config->files.v[i]);
    derive_and_spell(copy);
    return copy;
}

/* Ends a change: swaps the draft in if no fault was found. */
static int commit_draft(struct hearth_config *config, struct hearth_config *draft, int code)
{
    if (code == 0) {
        derive_and_spell(draft);
        struct hearth_config before = *config;
        *config = *draft;
        *draft = before;
    }
    hearth_config_free(draft);
    return code;
}

/* ---- Models ---- */

const char *config_name_fault(const struct hearth_config *config, const char *name, size_t len)
{
    if (len == 0 || len > CONFIG_MAX_NAME) return "a model's name has 1 to 128 bytes";
    if (!text_is_printable(name, len) || memchr(name, ' ', len) != NULL)
        return "a model's name has no spaces or control characters";
    if (!strcmp(name, "*")) return "a model's name must say which one";
    if (config->n_models >= CONFIG_MAX_MODELS && config_find_model(config, name) == NULL)
        return "there are too many models";
    return NULL;
}

struct config_model *config_declare_model(struct hearth_config *config, const char *name)
{
    const struct config_model *known = config_find_model(config, name);
    if (known != NULL) return &config->models[known - config->models];
    config->models = mem_grow(config->models, config->n_models + 1, sizeof *config->models);
    struct config_model *model = &config->models[config->n_models++];
    *model = (struct config_model){.name = mem_strdup(name)};
    model->notes = set_defaults(model, true);
    return model;
}

const struct config_model *config_find_model(const struct hearth_config *config, const char *name)
{
    for (size_t i = 0; i < config->n_models; i++)
        if (name == NULL || !strcmp(config->models[i].name, name)) return &config->models[i];
    return NULL;
}

static bool is_among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static const struct config_model *find_called(const struct hearth_config *config, const char *name)
{
    const struct config_model *model = config_find_model(config, name);
    for (size_t i = 0; i < config->n_models && model == NULL; i++) {
        const struct config_strings *aliases = &config->models[i].aliases;
        if (is_among(name, (const char *const *)aliases->v, aliases->len)) model = &config->models[i];
    }
    return model;
}

const struct config_model *config_resolve_model(const struct hearth_config *config, const char *name)
{
    static const char tag[] = ":latest";
    size_t len = strlen(name), tag_len = strlen(tag);
    const struct config_model *model = find_called(config, name);
    if (model != NULL || len <= tag_len || strcmp(name + len - tag_len, tag)) return model;
    char *untagged = mem_strndup(name, len - tag_len);
    model = find_called(config, untagged);
    free(untagged);
    return model;
}

const char *hearth_config_model(const hearth_config *config, size_t index)
{
    return index < config->n_models ? config->models[index].name : NULL;
}

const char *hearth_config_key(size_t index)
{
    return index < config_n_rows ? config_rows[index].path : NULL;
}

int hearth_config_keep_models(hearth_config *config, const char *const *names, size_t n, hearth_error *error)
{
    for (size_t i = 0; i < n; i++)
        if (config_find_model(config, names[i]) == NULL)
            return error_at(error, HEARTH_NOT_FOUND, names[i], "the configuration has no model named %s", names[i]);
    size_t kept = 0;
    for (size_t i = 0; i < config->n_models; i++) {
        if (is_among(config->models[i].name, names, n))
            config->models[kept++] = config->models[i];
        else
            release_model(&config->models[i]);
    }
    config->n_models = kept;
    return 0;
}

/* ---- By path ---- */

/* The target of a key: a row, and for models.* the model. */
struct target {
    const struct config_row *row; /* NULL: no such key */
    char *pattern;                /* as in the table; of an unknown key, its path in that form */
    char *model;                  /* NULL outside models.* */
};

static char *fold_dashes(const char *key)
{
    char *text = mem_strdup(key);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '-') *c = '_';
    return text;
}

/* A model's name may contain dots: it ends at the first one after which a known key follows; where none does, at the
 * first dot, for the error message. */
static struct target find_in_model(const char *key)
{
    const char *name = key + strlen("models.");
    struct target first = {0};
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        char *rest = fold_dashes(dot + 1);
        struct target t = {.pattern = mem_format("models.*.%s", rest),
                           .model = mem_strndup(name, (size_t)(dot - name))};
        free(rest);
        t.row = config_row_find(t.pattern);
        bool keep = t.row != NULL || first.pattern == NULL;
        struct target *drop = keep ? &first : &t;
        free(drop->pattern);
        free(drop->model);
        if (keep) first = t;
        if (t.row != NULL) break;
    }
    if (first.pattern == NULL) first.pattern = mem_strdup(key);
    return first;
}

static struct target find_target(const char *key)
{
    if (!strncmp(key, "models.", strlen("models."))) return find_in_model(key);
    struct target t = {.pattern = fold_dashes(key)};
    t.row = config_row_find(t.pattern);
    return t;
}

static void release_target(struct target *t)
{
    free(t->pattern);
    free(t->model);
}

static void set_value(struct hearth_config *draft, const struct target *t, const char *value,
                      struct config_faults *faults, const char *key)
{
    struct config_location location = {"", 0, key};
    void *owner = draft;
    struct config_note *notes = draft->notes;
    if (t->model != NULL) {
        const char *fault = config_name_fault(draft, t->model, strlen(t->model));
        if (fault != NULL) {
            config_fault(faults, HEARTH_INVALID, location, "%s", fault);
            return;
        }
        struct config_model *model = config_declare_model(draft, t->model);
        owner = model;
        notes = model->notes;
    }
    struct buf why = {0};
    if (!value_read_text(t->row, value, config_field(t->row, owner), &why))
        config_fault(faults, HEARTH_INVALID, location, "%s", why.v);
    struct config_note *note = &notes[config_row_index(t->row)];
    *note = (struct config_note){.text = note->text, .set = true};
    buf_release(&why);
}

int hearth_config_set(hearth_config *config, const char *key, const char *value, hearth_error *error)
{
    struct config_faults faults = {.error = error};
    struct hearth_config *draft = config_copy(config);
    struct target t = find_target(key);
    struct buf shown = {0};
    text_put_shown(key, strlen(key), &shown);
    struct config_location location = {"", 0, shown.v};
    if (t.row != NULL) {
        set_value(draft, &t, value, &faults, shown.v);
    } else if (config_is_section(t.pattern)) {
        config_fault(&faults, HEARTH_INVALID, location, "is a section: name a key in it");
    } else {
        struct buf nearest = {0};
        config_put_nearest(&nearest, t.pattern);
        config_fault(&faults, HEARTH_INVALID, location, "unknown key; the nearest known one is %s", nearest.v);
        buf_release(&nearest);
    }
    buf_release(&shown);
    release_target(&t);
    return commit_draft(config, draft, faults.code);
}

const char *hearth_config_get(const hearth_config *config, const char *key)
{
    struct target t = find_target(key);
    const struct config_note *notes = config->notes;
    if (t.model != NULL) {
        const struct config_model *model = config_find_model(config, t.model);
        notes = model == NULL ? NULL : model->notes;
    }
    const char *text = t.row == NULL || notes == NULL ? NULL : notes[config_row_index(t.row)].text;
    release_target(&t);
    return text;
}

/* ---- Files ---- */

int config_load_text(struct hearth_config *config, const char *name, const char *text, size_t len,
                     struct config_faults *faults)
{
    struct hearth_config *draft = config_copy(config);
    config_read(draft, name, text, len, faults);
    /* Of a text with faults all are reported, also those between keys. */
    if (faults->code != 0) config_check_all(draft, faults);
    return commit_draft(config, draft, faults->code);
}

/* False with errno set. Reads at most 2 MiB: node_parse() refuses texts above 1 MiB. */
static bool read_file(const char *path, struct buf *text)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    char part[65536];
    size_t n;
    while (text->len < 2 * 1024 * 1024 && (n = fread(part, 1, sizeof part, file)) > 0) buf_append(text, part, n);
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    errno = failed;
    return failed == 0;
}

int hearth_config_load(hearth_config *config, const char *path, hearth_config_report report, void *ud,
                       hearth_error *error)
{
    struct config_faults faults = {.report = report, .ud = ud, .error = error};
    struct buf text = {0};
    if (read_file(path, &text))
        config_load_text(config, path, buf_text(&text), text.len, &faults);
    else
        config_fault(&faults, errno == ENOENT ? HEARTH_NOT_FOUND : HEARTH_IO, (struct config_location){path, 0, ""},
                     "cannot be read: %s", strerror(errno));
    buf_release(&text);
    return faults.code;
}
