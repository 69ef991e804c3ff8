/* The dashboard and the alerts of packaging/: they can be read, and every metric that they name is one of
 * docs/metrics.md, which scripts/check-docs.sh compares with the sources. */
#include "base/buf.h"
#include "base/memory.h"
#include "fakes/cmocka_all.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

static char *file_of_source(const char *path)
{
    char *full = mem_format("%s/%s", getenv("HEARTH_SOURCE"), path);
    FILE *file = fopen(full, "r");
    struct buf text = {0};
    char block[4096];
    size_t n;
    if (file == NULL) fail_msg("%s cannot be read", full);
    while ((n = fread(block, 1, sizeof block, file)) > 0) buf_append(&text, block, n);
    fclose(file);
    free(full);
    return buf_take(&text);
}

static bool is_measured(const char *metrics, const char *name, size_t len)
{
    char *row = mem_format("\n| `%.*s` |", (int)len, name);
    bool found = strstr(metrics, row) != NULL;
    free(row);
    return found;
}

/* A histogram's samples have its name and one of these behind it. */
static size_t without_suffix(const char *name, size_t len)
{
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t n = strlen(suffixes[i]);
        if (len > n && memcmp(name + len - n, suffixes[i], n) == 0) return len - n;
    }
    return len;
}

/* Returns how many metrics the text names. */
static int expect_measured(const char *text)
{
    static const char prefix[] = "hearth_";
    char *metrics = file_of_source("docs/metrics.md");
    int n = 0;
    for (const char *at = text; (at = strstr(at, prefix)) != NULL; n++) {
        size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (!is_measured(metrics, at, len) && !is_measured(metrics, at, without_suffix(at, len)))
            fail_msg("%.*s is no metric of docs/metrics.md", (int)len, at);
        at += len;
    }
    free(metrics);
    return n;
}

/* ---- The dashboard ---- */

static void a_dashboard_asks_for_what_is_measured(void **state)
{
    (void)state;
    char *text = file_of_source("packaging/grafana/hearth.json");
    json_error_t error;
    json_t *dashboard = json_loads(text, JSON_REJECT_DUPLICATES, &error), *panel, *target;
    size_t i, k, n_panels = 0;
    if (dashboard == NULL) fail_msg("line %d: %s", error.line, error.text);
    assert_string_equal(json_string_value(json_object_get(dashboard, "title")), "hearth");
    json_array_foreach(json_object_get(dashboard, "panels"), i, panel)
    {
        json_t *targets = json_object_get(panel, "targets");
        if (strcmp(json_string_value(json_object_get(panel, "type")), "row") == 0) continue;
        assert_true(json_array_size(targets) > 0);
        json_array_foreach(targets, k, target)
            assert_true(expect_measured(json_string_value(json_object_get(target, "expr"))) > 0);
        n_panels++;
    }
    assert_true(n_panels > 10);
    assert_true(expect_measured(text) > 0); /* those of its variables, too */
    json_decref(dashboard);
    free(text);
}

/* ---- The alerts ---- */

/* The value of a mapping's key, or of a list's index (key NULL); NULL: there is none. */
static yaml_node_t *child(yaml_document_t *document, yaml_node_t *node, const char *key, size_t i)
{
    if (node == NULL) return NULL;
    if (key == NULL && node->type == YAML_SEQUENCE_NODE) {
        yaml_node_item_t *item = node->data.sequence.items.start + i;
        return item < node->data.sequence.items.top ? yaml_document_get_node(document, *item) : NULL;
    }
    if (key == NULL || node->type != YAML_MAPPING_NODE) return NULL;
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *name = yaml_document_get_node(document, pair->key);
        if (strcmp((const char *)name->data.scalar.value, key) == 0)
            return yaml_document_get_node(document, pair->value);
    }
    return NULL;
}

static const char *text_of(yaml_node_t *node)
{
    assert_non_null(node);
    assert_int_equal(node->type, YAML_SCALAR_NODE);
    return (const char *)node->data.scalar.value;
}

static void expect_rule(yaml_document_t *document, yaml_node_t *rule)
{
    const char *expr = text_of(child(document, rule, "expr", 0));
    assert_int_equal(strncmp(text_of(child(document, rule, "alert", 0)), "Hearth", 6), 0);
    assert_true(strstr(expr, "job=\"hearth\"") != NULL);
    assert_true(expect_measured(expr) > 0 || strncmp(expr, "up{", 3) == 0);
    text_of(child(document, child(document, rule, "labels", 0), "severity", 0));
    text_of(child(document, child(document, rule, "annotations", 0), "summary", 0));
}

static void alerts_ask_for_what_is_measured(void **state)
{
    (void)state;
    char *text = file_of_source("packaging/prometheus/hearth.rules.yml");
    yaml_parser_t parser;
    yaml_document_t document;
    assert_true(yaml_parser_initialize(&parser));
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    if (!yaml_parser_load(&parser, &document)) fail_msg("line %zu: %s", parser.problem_mark.line + 1, parser.problem);
    yaml_node_t *groups = child(&document, yaml_document_get_root_node(&document), "groups", 0), *rule;
    yaml_node_t *rules = child(&document, child(&document, groups, NULL, 0), "rules", 0);
    size_t n = 0;
    for (; (rule = child(&document, rules, NULL, n)) != NULL; n++) expect_rule(&document, rule);
    assert_true(n >= 10);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dashboard_asks_for_what_is_measured),
        cmocka_unit_test(alerts_ask_for_what_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
