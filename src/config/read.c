/* From the nodes of a YAML file to the fields of the configuration. Continues after an error, so that all are reported.
 * Works on the caller's draft; no state of its own. */
#include "base/memory.h"
#include "config/edit.h"
#include "config/text.h"
#include "config/value.h"
#include "config/yaml_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct hearth_config *config;
    const char *file;
    int file_number;
    struct config_faults *faults;
};

/* A key in the tree of keys. */
struct key_position {
    const char *pattern;        /* as the table writes it: "models.*.sampling"; "" at the root */
    const char *path;           /* as in the file: "models.demo.sampling" */
    struct config_model *model; /* below models.*, else NULL */
};

static struct config_location location_at(const struct reader *r, int line, const char *key)
{
    return (struct config_location){.file = r->file, .line = line, .key = key};
}

/* The path of a key below `parent`, printable on one line whatever bytes the key has. */
static char *child_path(const char *parent, const struct node *key, bool fold)
{
    struct buf out = {0};
    if (parent[0] != '\0') buf_printf(&out, "%s.", parent);
    size_t start = out.len;
    text_put_shown(key->text, key->len, &out);
    for (size_t i = start; fold && i < out.len; i++)
        if (out.v[i] == '-') out.v[i] = '_';
    return buf_take(&out);
}

static char folded(char c)
{
    return c == '-' ? '_' : c;
}

static bool same_key(const struct node *a, const struct node *b, bool fold)
{
    if (a->kind != NODE_SCALAR || b->kind != NODE_SCALAR || a->len != b->len) return false;
    for (size_t i = 0; i < a->len; i++)
        if (fold ? folded(a->text[i]) != folded(b->text[i]) : a->text[i] != b->text[i]) return false;
    return true;
}

static void read_section(struct reader *r, const struct key_position *here, const struct node *map);

static void read_key(struct reader *r, const struct key_position *here, const struct node *key,
                     const struct node *value)
{
    const struct config_row *row = config_row_find(here->pattern);
    if (row != NULL) {
        struct buf why = {0};
        struct config_note *note =
            &(here->model != NULL ? here->model->notes : r->config->notes)[config_row_index(row)];
        if (value_read(row, value, config_field(row, here->model != NULL ? (void *)here->model : r->config), &why))
            *note = (struct config_note){.text = note->text, .set = true, .file = r->file_number, .line = key->line};
        else
            config_fault(r->faults, HEARTH_INVALID, location_at(r, key->line, here->path), "%s", why.v);
        buf_release(&why);
    } else if (!config_is_section(here->pattern)) {
        struct buf nearest = {0};
        config_put_nearest(&nearest, here->pattern);
        config_fault(r->faults, HEARTH_INVALID, location_at(r, key->line, here->path),
                     "unknown key; the nearest known one is %s", nearest.v);
        buf_release(&nearest);
    } else if (value->kind == NODE_MAP) {
        read_section(r, here, value);
    } else if (!node_is_null(value)) {
        config_fault(r->faults, HEARTH_INVALID, location_at(r, key->line, here->path),
                     "expects keys with values below it");
    }
}

/* Recurses into sections; node_parse() limits the depth. */
static void read_section(struct reader *r, const struct key_position *here, const struct node *map)
{
    bool names = !strcmp(here->pattern, "models");
    for (size_t i = 0; i + 1 < map->n; i += 2) {
        const struct node *key = &map->v[i];
        if (key->kind != NODE_SCALAR) {
            config_fault(r->faults, HEARTH_INVALID, location_at(r, key->line, here->path), "a key must be a name");
            continue;
        }
        char *path = child_path(here->path, key, !names);
        char *pattern = child_path(here->pattern, key, true);
        int line = 0; /* of an earlier entry with the same key; maps are short (see yaml_node.c) */
        for (size_t k = 0; k < i && line == 0; k += 2)
            if (same_key(&map->v[k], key, !names)) line = map->v[k].line;
        const char *fault = names ? config_name_fault(r->config, key->text, key->len) : NULL;
        if (line > 0) {
            config_fault(r->faults, HEARTH_INVALID, location_at(r, key->line, path),
                         "stands here a second time, after line %d", line);
        } else if (fault != NULL) {
            config_fault(r->faults, HEARTH_INVALID, location_at(r, key->line, path), "%s", fault);
        } else {
            struct key_position below = {pattern, path, here->model};
            if (names) below = (struct key_position){"models.*", path, config_declare_model(r->config, key->text)};
            read_key(r, &below, key, &map->v[i + 1]);
        }
        free(pattern);
        free(path);
    }
}

void config_read(struct hearth_config *draft, const char *name, const char *text, size_t len,
                 struct config_faults *faults)
{
    struct config_strings *files = &draft->files;
    files->v = mem_grow(files->v, files->len + 1, sizeof *files->v);
    files->v[files->len++] = mem_strdup(name);
    struct reader r = {.config = draft, .file = name, .file_number = (int)files->len, .faults = faults};

    struct node root;
    struct buf why = {0};
    int line = 0;
    if (!node_parse(&root, text, len, &why, &line)) {
        config_fault(faults, HEARTH_INVALID, location_at(&r, line, ""), "%s", why.v);
    } else if (root.kind == NODE_MAP) {
        read_section(&r, &(struct key_position){"", "", NULL}, &root);
    } else if (!node_is_null(&root)) {
        config_fault(faults, HEARTH_INVALID, location_at(&r, root.line, ""),
                     "expects sections: server, cache or models");
    }
    buf_release(&why);
    node_release(&root);
}
