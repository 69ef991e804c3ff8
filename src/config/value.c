/* Reading, copying and printing one value, by the type of its row. Strings are checked here alone: all that get into a
 * configuration are printable UTF-8, not empty, and can be written as YAML. No state; any thread. */
#include "config/value.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "config/text.h"

#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- What a row allows ---- */

void value_put_expected(const struct config_row *row, struct buf *out)
{
    static const char *const expected[] = {
        [CONFIG_BOOL] = "true or false",
        [CONFIG_INT] = "a whole number",
        [CONFIG_NUMBER] = "a number",
        [CONFIG_SECONDS] = "seconds",
        [CONFIG_PATH] = "a path",
        [CONFIG_TEXT] = "a string",
        [CONFIG_ENUM] = "one of ",
        [CONFIG_NAME] = "one of ",
        [CONFIG_STRINGS] = "a string or a list of strings",
        [CONFIG_LORAS] = "a list of {path: FILE, scale: NUMBER}",
        [CONFIG_OBJECT] = "a map, {NAME: VALUE}",
    };
    buf_puts(out, expected[row->type]);
    if (row->type == CONFIG_ENUM || row->type == CONFIG_NAME) {
        for (const char *c = row->choices; *c != '\0'; c++) buf_append(out, *c == '|' ? ", " : c, *c == '|' ? 2 : 1);
    } else if (row->type == CONFIG_INT) {
        buf_printf(out, " from %lld to %lld", (long long)row->min, (long long)row->max);
    } else if (row->type == CONFIG_NUMBER || row->type == CONFIG_SECONDS) {
        buf_puts(out, " from ");
        text_put_number(row->min, out);
        buf_puts(out, " to ");
        text_put_number(row->max, out);
    }
    if (row->null_ok) buf_puts(out, ", or null");
}

static bool refuse(const struct config_row *row, const struct node *node, struct buf *why)
{
    buf_puts(why, "expects ");
    value_put_expected(row, why);
    buf_puts(why, "; got ");
    if (node->kind != NODE_SCALAR || node_is_null(node)) {
        buf_puts(why, node->kind == NODE_LIST ? "a list" : node->kind == NODE_MAP ? "a map" : "null");
    } else {
        buf_puts(why, node->plain ? "\"" : "the string \"");
        text_put_shown(node->text, node->len, why);
        buf_puts(why, "\"");
    }
    return false;
}

/* ---- Reading ---- */

/* A scalar's text; NULL: it is no scalar, or contains zero bytes. */
static const char *scalar(const struct node *node)
{
    return node->kind == NODE_SCALAR && strlen(node->text) == node->len ? node->text : NULL;
}

static const char *plain_scalar(const struct node *node)
{
    return node->kind == NODE_SCALAR && node->plain ? scalar(node) : NULL;
}

static bool read_bool(const struct config_row *row, const struct node *node, void *field, struct buf *why)
{
    const char *text = plain_scalar(node);
    bool value;
    if (text == NULL || !text_to_bool(text, &value)) return refuse(row, node, why);
    *(bool *)field = value;
    return true;
}

static bool read_number(const struct config_row *row, const struct node *node, void *field, struct buf *why)
{
    const char *text = plain_scalar(node);
    const bool is_whole = row->type == CONFIG_INT, null = row->null_ok && node_is_null(node);
    int64_t whole = 0;
    double number = NAN;
    if (!null && (text == NULL || !(is_whole ? text_to_int(text, &whole) : text_to_number(text, &number))))
        return refuse(row, node, why);
    const double value = is_whole ? (double)whole : number;
    if (!null && (value < row->min || value > row->max)) return refuse(row, node, why);
    if (is_whole)
        *(int64_t *)field = whole;
    else
        *(double *)field = number;
    return true;
}

/* "~" becomes $HOME, or else the home folder in the user database; "~/.cache/" is $XDG_CACHE_HOME where that is set. */
static char *expand_home(const char *path)
{
    static const char cache[] = "~/.cache/";
    if (strcmp(path, "~") && strncmp(path, "~/", 2)) return mem_strdup(path);
    const char *home = getenv("HOME"), *caches = getenv("XDG_CACHE_HOME");
    if (caches != NULL && caches[0] == '/' && !strncmp(path, cache, strlen(cache)))
        return mem_format("%s/%s", caches, path + strlen(cache));
    if (home != NULL && home[0] != '\0') return mem_format("%s%s", home, path + 1);
    struct passwd user, *found = NULL;
    char names[1024];
    getpwuid_r(getuid(), &user, names, sizeof names, &found);
    return mem_format("%s%s", found == NULL ? "" : user.pw_dir, path + 1);
}

/* NULL: the node is no string that is allowed in a configuration. */
static char *copy_string(const struct node *node, bool is_path)
{
    const char *text = scalar(node);
    if (text == NULL || node->len == 0 || node_is_null(node) || !text_is_printable(text, node->len)) return NULL;
    return is_path ? expand_home(text) : mem_strdup(text);
}

static bool read_text(const struct config_row *row, const struct node *node, void *field, struct buf *why)
{
    char *text = copy_string(node, row->type == CONFIG_PATH);
    if (text == NULL && !(row->null_ok && node_is_null(node))) return refuse(row, node, why);
    value_release(row, field);
    *(char **)field = text;
    return true;
}

/* The choice that equals the text, up to the next '|' or the end. A choice on, off, true or false may be written in any
 * spelling of a bool. */
static const char *find_choice(const char *choices, const char *text, size_t *len)
{
    bool wanted, flag;
    bool is_flag = text_to_bool(text, &wanted);
    for (const char *c = choices;; c += *len + 1) {
        *len = strcspn(c, "|");
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)*len, c);
        if (!strcmp(name, text) || (is_flag && text_to_bool(name, &flag) && flag == wanted)) return c;
        if (c[*len] == '\0') return NULL;
    }
}

static bool read_choice(const struct config_row *row, const struct node *node, void *field, struct buf *why)
{
    size_t len;
    const char *text = scalar(node);
    const char *choice = text == NULL ? NULL : find_choice(row->choices, text, &len);
    if (choice == NULL) return refuse(row, node, why);
    if (row->type == CONFIG_NAME) {
        value_release(row, field);
        *(char **)field = mem_strndup(choice, len);
        return true;
    }
    int before = 0;
    for (const char *c = row->choices; c < choice; c++) before += *c == '|';
    *(int *)field = before;
    return true;
}

/* A list written as a scalar or a map is a list of one. */
static const struct node *items_of(const struct node *node, size_t *n)
{
    *n = node->kind == NODE_LIST ? node->n : 1;
    return node->kind == NODE_LIST ? node->v : node;
}

static bool read_strings(const struct config_row *row, const struct node *node, void *field, struct buf *why)
{
    size_t n;
    const struct node *items = items_of(node, &n);
    struct config_strings list = {mem_alloc(n * sizeof *list.v), 0};
    for (size_t i = 0; i < n; i++) {
        char *text = copy_string(&items[i], false);
        if (text == NULL) {
            value_release(row, &list);
            return refuse(row, &items[i], why);
        }
        list.v[list.len++] = text;
    }
    value_release(row, field);
    *(struct config_strings *)field = list;
    return true;
}

static bool read_lora(const struct node *node, struct config_lora *lora)
{
    *lora = (struct config_lora){.path = NULL, .scale = 1};
    if (node->kind == NODE_SCALAR) {
        lora->path = copy_string(node, true);
        return lora->path != NULL;
    }
    for (size_t i = 0; node->kind == NODE_MAP && i + 1 < node->n; i += 2) {
        const char *key = scalar(&node->v[i]);
        const struct node *value = &node->v[i + 1];
        bool ok = false;
        if (key != NULL && !strcmp(key, "path") && lora->path == NULL) {
            lora->path = copy_string(value, true);
            ok = lora->path != NULL;
        } else if (key != NULL && !strcmp(key, "scale") && plain_scalar(value) != NULL) {
            ok = text_to_number(value->text, &lora->scale);
        }
        if (!ok) return false;
    }
    return lora->path != NULL;
}

static bool read_loras(const struct config_row *row, const struct node *node, void *field, struct buf *why)
{
    size_t n;
    const struct node *items = items_of(node, &n);
    struct config_loras list = {mem_alloc(n * sizeof *list.v), 0};
    for (size_t i = 0; i < n; i++) {
        if (read_lora(&items[i], &list.v[list.len++])) continue;
        value_release(row, &list);
        return refuse(row, &items[i], why);
    }
    value_release(row, field);
    *(struct config_loras *)field = list;
    return true;
}

/* A plain scalar is converted as YAML does, a quoted one is a string. */
static bool put_json_scalar(const struct node *node, struct buf *out)
{
    const char *text = scalar(node);
    bool truth;
    int64_t whole;
    double number;
    if (text == NULL) return false;
    if (node_is_null(node))
        buf_puts(out, "null");
    else if (node->plain && text_to_bool(text, &truth))
        buf_puts(out, truth ? "true" : "false");
    else if (node->plain && text_to_int(text, &whole))
        buf_printf(out, "%lld", (long long)whole);
    else if (node->plain && text_to_number(text, &number))
        text_put_number(number, out);
    else
        utf8_put_json_string(out, text, node->len);
    return true;
}

/* Recurses; node_parse() limits the depth. */
static bool put_json(const struct node *node, struct buf *out)
{
    if (node->kind == NODE_SCALAR) return put_json_scalar(node, out);
    bool is_map = node->kind == NODE_MAP, good = true;
    buf_puts(out, is_map ? "{" : "[");
    for (size_t i = 0; i < node->n && good; i++) {
        bool is_key = is_map && i % 2 == 0;
        const char *key = is_key ? scalar(&node->v[i]) : NULL;
        if (i > 0) buf_puts(out, is_map && !is_key ? ": " : ", ");
        if (key != NULL) utf8_put_json_string(out, key, node->v[i].len);
        good = is_key ? key != NULL : put_json(&node->v[i], out);
    }
    buf_puts(out, is_map ? "}" : "]");
    return good;
}

static bool read_object(const struct config_row *row, const struct node *node, void *field, struct buf *why)
{
    struct buf json = {0};
    if (node->kind != NODE_MAP || !put_json(node, &json)) {
        buf_release(&json);
        return refuse(row, node, why);
    }
    value_release(row, field);
    *(char **)field = buf_take(&json);
    return true;
}

bool value_read(const struct config_row *row, const struct node *node, void *field, struct buf *why)
{
    static bool (*const readers[])(const struct config_row *, const struct node *, void *, struct buf *) = {
        [CONFIG_BOOL] = read_bool,      [CONFIG_INT] = read_number,    [CONFIG_NUMBER] = read_number,
        [CONFIG_SECONDS] = read_number, [CONFIG_PATH] = read_text,     [CONFIG_TEXT] = read_text,
        [CONFIG_ENUM] = read_choice,    [CONFIG_NAME] = read_choice,   [CONFIG_STRINGS] = read_strings,
        [CONFIG_LORAS] = read_loras,    [CONFIG_OBJECT] = read_object,
    };
    return readers[row->type](row, node, field, why);
}

bool value_read_text(const struct config_row *row, const char *text, void *field, struct buf *why)
{
    static const char *const pairs[] = {"[]", "{}", "\"\"", "''"};
    size_t len = strlen(text);
    bool is_wrapped = false;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        is_wrapped = is_wrapped || (len >= 2 && text[0] == pairs[i][0] && text[len - 1] == pairs[i][1]);
    if (!is_wrapped) {
        struct node node = {.kind = NODE_SCALAR, .text = (char *)(uintptr_t)text, .len = len, .plain = true};
        return value_read(row, &node, field, why);
    }
    struct node node;
    int line;
    bool ok = node_parse(&node, text, len, why, &line) && value_read(row, &node, field, why);
    node_release(&node);
    return ok;
}

/* ---- Releasing and copying ---- */

void value_release(const struct config_row *row, void *field)
{
    if (row->type == CONFIG_PATH || row->type == CONFIG_TEXT || row->type == CONFIG_NAME ||
        row->type == CONFIG_OBJECT) {
        free(*(char **)field);
        *(char **)field = NULL;
    } else if (row->type == CONFIG_STRINGS) {
        struct config_strings *list = field;
        for (size_t i = 0; i < list->len; i++) free(list->v[i]);
        free(list->v);
        *list = (struct config_strings){0};
    } else if (row->type == CONFIG_LORAS) {
        struct config_loras *list = field;
        for (size_t i = 0; i < list->len; i++) free(list->v[i].path);
        free(list->v);
        *list = (struct config_loras){0};
    }
}

void value_copy(const struct config_row *row, void *to, const void *from)
{
    switch (row->type) {
    case CONFIG_BOOL:
        *(bool *)to = *(const bool *)from;
        break;
    case CONFIG_INT:
        *(int64_t *)to = *(const int64_t *)from;
        break;
    case CONFIG_ENUM:
        *(int *)to = *(const int *)from;
        break;
    case CONFIG_NUMBER:
    case CONFIG_SECONDS:
        *(double *)to = *(const double *)from;
        break;
    case CONFIG_PATH:
    case CONFIG_TEXT:
    case CONFIG_NAME:
    case CONFIG_OBJECT:
        *(char **)to = mem_strdup(*(char *const *)from);
        break;
    case CONFIG_STRINGS: {
        const struct config_strings *list = from;
        struct config_strings copy = {mem_alloc(list->len * sizeof *copy.v), list->len};
        for (size_t i = 0; i < copy.len; i++) copy.v[i] = mem_strdup(list->v[i]);
        *(struct config_strings *)to = copy;
        break;
    }
    case CONFIG_LORAS: {
        const struct config_loras *list = from;
        struct config_loras copy = {mem_alloc(list->len * sizeof *copy.v), list->len};
        for (size_t i = 0; i < copy.len; i++)
            copy.v[i] = (struct config_lora){mem_strdup(list->v[i].path), list->v[i].scale};
        *(struct config_loras *)to = copy;
        break;
    }
    }
}

/* ---- Printing ---- */

/* YAML and text differ in how lists and strings are written. */
struct style {
    const char *open, *comma, *close;
    bool quoted;
};

static const struct style yaml_style = {"[", ", ", "]", true};
static const struct style text_style = {"", ",", "", false};

static void put_text(const struct style *style, const char *text, struct buf *out)
{
    if (style->quoted)
        text_put_yaml(text, out);
    else
        buf_puts(out, text);
}

static void put_list(const struct config_row *row, const void *field, const struct style *style, struct buf *out)
{
    const struct config_strings *strings = field;
    const struct config_loras *loras = field;
    const bool has_strings = row->type == CONFIG_STRINGS;
    buf_puts(out, style->open);
    for (size_t i = 0; i < (has_strings ? strings->len : loras->len); i++) {
        buf_puts(out, i == 0 ? "" : style->comma);
        if (has_strings) {
            put_text(style, strings->v[i], out);
            continue;
        }
        buf_puts(out, "{path: ");
        text_put_yaml(loras->v[i].path, out);
        buf_puts(out, ", scale: ");
        text_put_number(loras->v[i].scale, out);
        buf_puts(out, "}");
    }
    buf_puts(out, style->close);
}

static void put_value(const struct config_row *row, const void *field, const struct style *style, struct buf *out)
{
    const char *choice = row->choices;
    switch (row->type) {
    case CONFIG_BOOL:
        buf_puts(out, *(const bool *)field ? "true" : "false");
        break;
    case CONFIG_INT:
        buf_printf(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case CONFIG_NUMBER:
    case CONFIG_SECONDS:
        text_put_number(*(const double *)field, out);
        break;
    case CONFIG_PATH:
    case CONFIG_TEXT:
        put_text(style, *(char *const *)field, out);
        break;
    case CONFIG_ENUM:
        for (int place = *(const int *)field; place > 0; place--) choice = strchr(choice, '|') + 1;
        buf_append(out, choice, strcspn(choice, "|"));
        break;
    case CONFIG_NAME:
    case CONFIG_OBJECT: /* JSON is YAML */
        buf_puts(out, *(char *const *)field);
        break;
    case CONFIG_STRINGS:
    case CONFIG_LORAS:
        put_list(row, field, style, out);
        break;
    }
}

static bool is_null(const struct config_row *row, const void *field)
{
    if (row->type == CONFIG_PATH || row->type == CONFIG_TEXT) return *(char *const *)field == NULL;
    return (row->type == CONFIG_NUMBER || row->type == CONFIG_SECONDS) && isnan(*(const double *)field);
}

void value_put_yaml(const struct config_row *row, const void *field, struct buf *out)
{
    if (is_null(row, field))
        buf_puts(out, "null");
    else
        put_value(row, field, &yaml_style, out);
}

char *value_text(const struct config_row *row, const void *field)
{
    if (is_null(row, field)) return NULL;
    struct buf out = {0};
    put_value(row, field, &text_style, &out);
    return buf_take(&out);
}
