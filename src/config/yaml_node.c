/* From YAML text to nodes, by libyaml's events: unlike its documents, events leave aliases unresolved, so that a small
 * file cannot expand to a huge tree. No state outside the call; any thread. */
#include "config/yaml_node.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* A configuration is a page of text, five levels deep. These limits refuse anything else. */
#define MAX_BYTES (1024 * 1024)
#define MAX_DEPTH 16
#define MAX_ITEMS 1024

struct parse {
    yaml_parser_t yaml;
    const char *text;
    size_t len;
    struct buf *why;
    int *line;
};

static bool yaml_fault(struct parse *p, size_t line, const char *why)
{
    buf_puts(p->why, why);
    *p->line = (int)line;
    return false;
}

static bool next_event(struct parse *p, yaml_event_t *event)
{
    if (yaml_parser_parse(&p->yaml, event)) return true;
    size_t line = p->yaml.problem_mark.line + 1;
    if (p->yaml.error == YAML_READER_ERROR) { /* it knows the byte alone */
        line = 1;
        for (size_t i = 0; i < p->yaml.problem_offset && i < p->len; i++) line += p->text[i] == '\n';
    }
    buf_puts(p->why, "not valid YAML: ");
    if (p->yaml.context != NULL) buf_printf(p->why, "%s, ", p->yaml.context);
    return yaml_fault(p, line, p->yaml.problem == NULL ? "out of memory" : p->yaml.problem);
}

static bool read_node(struct parse *p, const yaml_event_t *event, int depth, struct node *node);

static bool read_items(struct parse *p, int depth, struct node *parent)
{
    for (;;) {
        yaml_event_t event;
        if (!next_event(p, &event)) return false;
        if (event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return true;
        }
        bool ok;
        if (parent->n < MAX_ITEMS) {
            if ((parent->n & (parent->n - 1)) == 0)
                parent->v = mem_grow(parent->v, parent->n == 0 ? 1 : 2 * parent->n, sizeof *parent->v);
            struct node *item = &parent->v[parent->n++];
            *item = (struct node){0};
            ok = read_node(p, &event, depth, item);
        } else {
            ok = yaml_fault(p, event.start_mark.line + 1, "too many entries for a configuration");
        }
        yaml_event_delete(&event);
        if (!ok) return false;
    }
}

/* Recurses, MAX_DEPTH levels at most. */
static bool read_node(struct parse *p, const yaml_event_t *event, int depth, struct node *node)
{
    size_t line = event->start_mark.line + 1;
    node->line = (int)line;
    const yaml_char_t *tag = event->type == YAML_SCALAR_EVENT           ? event->data.scalar.tag
                             : event->type == YAML_SEQUENCE_START_EVENT ? event->data.sequence_start.tag
                             : event->type == YAML_MAPPING_START_EVENT  ? event->data.mapping_start.tag
                                                                        : NULL;
    if (tag != NULL) return yaml_fault(p, line, "YAML tags (!…) are not supported: remove it");
    if (depth >= MAX_DEPTH) return yaml_fault(p, line, "nested too deeply for a configuration");
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        node->kind = NODE_SCALAR;
        node->len = event->data.scalar.length;
        node->text = mem_strndup((const char *)event->data.scalar.value, node->len);
        node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        return true;
    case YAML_SEQUENCE_START_EVENT:
        node->kind = NODE_LIST;
        return read_items(p, depth + 1, node);
    case YAML_MAPPING_START_EVENT:
        node->kind = NODE_MAP;
        return read_items(p, depth + 1, node);
    default:
        return yaml_fault(p, line, "YAML aliases (*name) are not supported: write the value out");
    }
}

/* The events around the one document: stream start, document start, root, document end, stream end. */
static bool read_stream(struct parse *p, struct node *root)
{
    bool found = false;
    for (;;) {
        yaml_event_t event;
        if (!next_event(p, &event)) return false;
        yaml_event_type_t type = event.type;
        bool ok = true;
        if (type == YAML_DOCUMENT_START_EVENT) {
            if (found) ok = yaml_fault(p, event.start_mark.line + 1, "a second YAML document: a configuration is one");
            found = true;
        } else if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_END_EVENT &&
                   type != YAML_STREAM_END_EVENT) {
            ok = read_node(p, &event, 0, root);
        }
        yaml_event_delete(&event);
        if (!ok || type == YAML_STREAM_END_EVENT) return ok;
    }
}

bool node_parse(struct node *root, const char *text, size_t len, struct buf *why, int *line)
{
    struct parse p = {.text = text, .len = len, .why = why, .line = line};
    *root = (struct node){.kind = NODE_SCALAR, .line = 1, .plain = true};
    if (len > MAX_BYTES) return yaml_fault(&p, 0, "larger than 1 MiB: this is no configuration");
    if (!yaml_parser_initialize(&p.yaml)) return yaml_fault(&p, 0, "out of memory");
    yaml_parser_set_input_string(&p.yaml, (const unsigned char *)text, len);
    bool ok = read_stream(&p, root);
    yaml_parser_delete(&p.yaml);
    if (root->kind == NODE_SCALAR && root->text == NULL) root->text = mem_strdup("");
    return ok;
}

void node_release(struct node *node)
{
    for (size_t i = 0; i < node->n; i++) node_release(&node->v[i]);
    free(node->v);
    free(node->text);
    *node = (struct node){0};
}

bool node_is_null(const struct node *node)
{
    static const char *const spellings[] = {"", "~", "null", "Null", "NULL"};
    if (node->kind != NODE_SCALAR || !node->plain) return false;
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
        if (node->len == strlen(spellings[i]) && !memcmp(node->text, spellings[i], node->len)) return true;
    return false;
}
