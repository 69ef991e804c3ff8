/* Schemas that cost much, by kind: each grows with `n`, and each was found to, or is made to, take llama.cpp's
 * conversion or what comes before it more than its share. And schemas of random keywords. */
#ifndef TESTS_CHAT_SCHEMA_KINDS_H
#define TESTS_CHAT_SCHEMA_KINDS_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct schema_rng {
    uint64_t state;
};

static inline uint32_t rng_below(struct schema_rng *rng, uint32_t n)
{
    rng->state = rng->state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(rng->state >> 33) % n;
}

/* `n` is how often; `m` is what one of them is: a length, a depth, a choice. */
struct schema_kind {
    const char *name;
    void (*put)(struct buf *out, int n, int m);
    int most; /* of n that is tried */
};

static void put_times(struct buf *out, const char *text, int n)
{
    for (int i = 0; i < n; i++) buf_puts(out, text);
}

/* ---- Types ---- */

static inline void put_types(struct buf *out, const char *types, int n)
{
    for (int i = 0; i < n; i++) buf_printf(out, "{\"type\":%s,\"properties\":{\"a\":", types);
    buf_puts(out, "{}");
    put_times(out, "}}", n);
}

static inline void kind_types_empty(struct buf *out, int n, int m)
{
    (void)m;
    put_types(out, "[\"object\",\"\"]", n);
}

static inline void kind_types_null(struct buf *out, int n, int m)
{
    (void)m;
    put_types(out, "[null,null]", n);
}

static inline void kind_types_lists(struct buf *out, int n, int m)
{
    (void)m;
    put_types(out, "[[\"object\"],[\"object\"]]", n);
}

/* Each is a good one, and each level has seven of them. */
static inline void kind_types_all(struct buf *out, int n, int m)
{
    const char *types = "[\"object\",\"array\",\"string\",\"integer\",\"number\",\"boolean\",\"null\"]";
    for (int i = 0; i < n; i++)
        buf_printf(out, "{\"type\":%s,\"%s\":%s", types, m % 2 == 0 ? "properties" : "items",
                   m % 2 == 0 ? "{\"a\":" : "");
    buf_puts(out, "{}");
    put_times(out, m % 2 == 0 ? "}}" : "}", n);
}

static inline void kind_types_both(struct buf *out, int n, int m)
{
    (void)m;
    for (int i = 0; i < n; i++) buf_puts(out, "{\"type\":[\"object\",\"array\"],\"properties\":{\"a\":{}},\"items\":");
    buf_puts(out, "{}");
    put_times(out, "}", n);
}

/* Two ways to each level: as a property and as an item. */
static inline void kind_types_two_ways(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < n; i++)
        buf_printf(out,
                   "\"d%d\":{\"type\":[\"object\",\"array\"],\"properties\":{\"a\":{\"%s\":%s}},\"items\":{\"$ref\":\"#"
                   "/$defs/d%d\"}},",
                   i, m % 2 == 0 ? "$ref" : "allOf", m % 2 == 0 ? "\"#/$defs/x\"" : "[{\"$ref\":\"#/$defs/x\"}]",
                   i + 1);
    buf_printf(out, "\"x\":{\"type\":\"integer\"},\"d%d\":{\"type\":\"integer\"}}}", n);
}

/* ---- References ---- */

static inline void kind_defs_twice(struct buf *out, int n, int m)
{
    static const char *const keys[] = {"anyOf", "oneOf", "allOf", "prefixItems"};
    const char *key = keys[m % 4];
    buf_puts(out, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < n; i++)
        buf_printf(out, "\"d%d\":{\"%s\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},", i, key, i + 1,
                   i + 1);
    buf_printf(out, "\"d%d\":{\"type\":\"integer\"}}}", n);
}

/* The same, and no two of them are equal. */
static inline void kind_defs_two_ways(struct buf *out, int n, int m)
{
    static const char *const ways[] = {"{\"anyOf\":[%s,{\"type\":\"null\"}]}", "{\"items\":%s}",
                                       "{\"properties\":{\"a\":%s}}", "{\"allOf\":[%s,{\"minItems\":1}]}",
                                       "{\"anyOf\":[{\"allOf\":[%s]},{\"const\":1}]}"};
    char ref[64];
    buf_puts(out, "{\"type\":\"object\",\"properties\":{\"p\":{\"$ref\":\"#/$defs/d0\"}},\"$defs\":{");
    for (int i = 0; i < n; i++) {
        snprintf(ref, sizeof ref, "{\"$ref\":\"#/$defs/d%d\"}", i + 1);
        buf_printf(out, "\"d%d\":{\"anyOf\":[%s,", i, ref);
        const char *way = ways[m % 5], *at = strstr(way, "%s");
        buf_append(out, way, (size_t)(at - way));
        buf_printf(out, "%s%s]},", ref, at + 2);
    }
    buf_printf(out, "\"d%d\":{\"type\":\"integer\"}}}", n);
}

/* Each refers to each. */
static inline void kind_defs_all(struct buf *out, int n, int m)
{
    int side = 1;
    while (side * side < n) side++;
    buf_puts(out, "{\"type\":\"object\",\"properties\":{\"p\":{\"$ref\":\"#/$defs/d0\"}},\"$defs\":{");
    for (int i = 0; i < side; i++) {
        buf_printf(out, "\"d%d\":{\"%s\":[", i, m % 3 == 0 ? "anyOf" : "prefixItems");
        for (int k = 0; k < side; k++)
            buf_printf(out, m % 2 == 0 ? "{\"items\":{\"$ref\":\"#/$defs/d%d\"}}," : "{\"$ref\":\"#/$defs/d%d\"},", k);
        buf_puts(out, "{\"type\":\"integer\"}]},");
    }
    buf_puts(out, "\"x\":{}}}");
}

/* Each refers to all that come later. */
static inline void kind_defs_later(struct buf *out, int n, int m)
{
    int side = 1;
    while (side * side / 2 < n) side++;
    buf_puts(out, "{\"type\":\"object\",\"properties\":{\"p\":{\"$ref\":\"#/$defs/d0\"}},\"$defs\":{");
    for (int i = 0; i < side; i++) {
        buf_printf(out, "\"d%d\":{\"%s\":[", i, m % 2 == 0 ? "anyOf" : "allOf");
        for (int k = i + 1; k < side; k++) buf_printf(out, "{\"$ref\":\"#/$defs/d%d\"},", k);
        buf_puts(out, "{\"type\":\"integer\"}]},");
    }
    buf_puts(out, "\"x\":{}}}");
}

static inline void kind_allof_references(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"allOf\":[");
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s{\"$ref\":\"#/$defs/%s\"}", i > 0 ? "," : "", m % 2 == 0 ? "a" : "b");
    buf_puts(out,
             "],\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}},"
             "\"b\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},\"properties\":{\"a\":{}}}}}");
}

static inline void kind_allof_different(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"allOf\":[");
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s{\"properties\":{\"p%d\":{\"minLength\":%d}}%s}", i > 0 ? "," : "", m % 3 == 0 ? i % 7 : i,
                   i, m % 2 == 0 ? "" : ",\"additionalProperties\":{\"maxLength\":9}");
    buf_puts(out, "]}");
}

/* References to definitions with long names, m letters each. */
static inline void kind_long_names(struct buf *out, int n, int m)
{
    struct buf name = {0};
    for (int i = 0; i < 20 + m * 10; i++) buf_puts(&name, "x");
    buf_printf(out, "{\"%s\":[", m % 2 == 0 ? "allOf" : "anyOf");
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s{\"$ref\":\"#/$defs/%s%d\"}", i > 0 ? "," : "", buf_text(&name), i % 50);
    buf_puts(out, "],\"$defs\":{");
    for (int i = 0; i < 50; i++)
        buf_printf(out, "%s\"%s%d\":{\"type\":\"object\"}", i > 0 ? "," : "", buf_text(&name), i);
    buf_puts(out, "}}");
    buf_release(&name);
}

static inline void kind_reference_chain(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < n; i++)
        buf_printf(
            out, m % 2 == 0 ? "\"d%d\":{\"$ref\":\"#/$defs/d%d\"}," : "\"d%d\":{\"items\":{\"$ref\":\"#/$defs/d%d\"}},",
            i, i + 1);
    buf_printf(out, "\"d%d\":{}}}", n);
}

static inline void kind_ids(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"$id\":\"https://example.org/a/b\",\"$defs\":{");
    for (int i = 0; i < n; i++)
        buf_printf(out, "\"d%d\":{\"$id\":\"x/%d\",\"$anchor\":\"a%d\",\"type\":\"object\"},", i, i, i);
    buf_puts(out, "\"z\":{}},\"anyOf\":[");
    for (int i = 0; i < n; i++)
        buf_printf(out, m % 2 == 0 ? "%s{\"$ref\":\"x/%d\"}" : "%s{\"$ref\":\"x/%d#a0\"}", i > 0 ? "," : "", i);
    buf_puts(out, "]}");
}

static inline void kind_pointer_chain(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"properties\":{\"a\":{\"$ref\":\"#");
    for (int i = 0; i < n; i++) buf_puts(out, m % 2 == 0 ? "/properties/a" : "/allOf/0");
    buf_puts(out, "\"}}}");
}

/* ---- Patterns ---- */

static inline void kind_patterns(struct buf *out, int n, int m)
{
    buf_puts(out, m % 2 == 0 ? "{\"anyOf\":[" : "{\"prefixItems\":[");
    for (int i = 0; i < n; i++) {
        buf_puts(out, i > 0 ? ",{\"pattern\":\"" : "{\"pattern\":\"");
        buf_printf(out,
                   m % 5 == 0   ? "^a%d$"
                   : m % 5 == 1 ? "a%d"
                   : m % 5 == 2 ? "^[a-z]{2}%d$"
                   : m % 5 == 3 ? "^(a|b)%d"
                                : "x{3,9}%d",
                   i);
        buf_puts(out, "\"}");
    }
    buf_puts(out, "]}");
}

static inline void kind_formats(struct buf *out, int n, int m)
{
    static const char *const formats[] = {"date", "time", "date-time", "uuid"};
    buf_puts(out, m % 2 == 0 ? "{\"prefixItems\":[" : "{\"properties\":{");
    for (int i = 0; i < n; i++) {
        if (m % 2 == 1) buf_printf(out, "%s\"p%d\":", i > 0 ? "," : "", i);
        buf_printf(out, "%s{\"type\":\"string\",\"format\":\"%s\"}", m % 2 == 0 && i > 0 ? "," : "",
                   formats[m / 2 % 4]);
    }
    buf_puts(out, m % 2 == 0 ? "]}" : "}}");
}

static inline void kind_repetitions(struct buf *out, int n, int m)
{
    static const char *const parts[] = {"a{2000}", "(ab){0,1999}", "[a-f]{1000,2000}", "(a{1,99}b){1,99}",
                                        "(a|b{2,}){2,}"};
    buf_puts(out, "{\"type\":\"string\",\"pattern\":\"^");
    put_times(out, parts[m % 5], n);
    buf_puts(out, "$\"}");
}

static inline void kind_repetitions_apart(struct buf *out, int n, int m)
{
    static const char *const parts[] = {"{\"pattern\":\"^%sa{2000}$\"}", "{\"pattern\":\"^(%sb){0,1999}$\"}",
                                        "{\"maxLength\":2000}",          "{\"type\":\"array\",\"maxItems\":1999}",
                                        "{\"minLength\":1500000}",       "{\"maxLength\":1999999,\"minLength\":7}"};
    buf_puts(out, "{\"prefixItems\":[");
    for (int i = 0; i < n; i++) buf_printf(out, "%s%s", i > 0 ? "," : "", parts[m % 6]);
    buf_puts(out, "]}");
}

static inline void kind_nested_repetitions(struct buf *out, int n, int m)
{
    static const char *const ends[] = {"){2}", "){2,}", "){0,3}", ")+", ")?"};
    int depth = n % 40;
    buf_puts(out, "{\"pattern\":\"^");
    for (int k = 0; k < 1 + n / 40; k++) {
        put_times(out, "(", depth);
        buf_puts(out, "ab");
        put_times(out, ends[m % 5], depth);
    }
    buf_puts(out, "$\"}");
}

static inline void kind_repeated_repetition(struct buf *out, int n, int m)
{
    static const char *const more[] = {"?", "{2}", "{2,}", "+", "*"};
    buf_puts(out, "{\"pattern\":\"^a");
    put_times(out, more[m % 5], n);
    buf_puts(out, "$\"}");
}

/* A class of very many characters, with a gap between each two. */
static inline void kind_class(struct buf *out, int n, int m)
{
    buf_puts(out, m % 2 == 0 ? "{\"pattern\":\"^[" : "{\"pattern\":\"^[^");
    for (int i = 0; i < n; i++) {
        unsigned c = 0x4e00 + 2 * (unsigned)(m % 3 == 0 ? i : n - i);
        buf_printf(out, "%c%c%c", (char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 0x3f)), (char)(0x80 | (c & 0x3f)));
    }
    buf_puts(out, "]+$\"}");
}

static inline void kind_classes(struct buf *out, int n, int m)
{
    static const char *const parts[] = {"\\\\W", "[^a]", ".", "\\\\S", "\\\\u4e00"};
    buf_puts(out, "{\"pattern\":\"^");
    put_times(out, parts[m % 5], n);
    buf_puts(out, "$\"}");
}

static inline void kind_pattern_choices(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"pattern\":\"^(");
    for (int i = 0; i < n; i++) buf_printf(out, "%s%s%d", i > 0 ? "|" : "", m % 2 == 0 ? "a" : "", i);
    buf_printf(out, ")%s$\",\"minLength\":%d}", m % 3 == 0 ? "*" : "", m % 5);
}

static inline void kind_pattern_text(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"pattern\":\"^");
    put_times(out, m % 2 == 0 ? "a" : "\\\\/", n);
    buf_puts(out, "$\"}");
}

static inline void kind_pattern_faults(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"properties\":{");
    for (int i = 0; i < n; i++)
        buf_printf(out, m % 2 == 0 ? "%s\"p%d\":{\"pattern\":\"(?=a)\"}" : "%s\"p%d\":3", i > 0 ? "," : "", i);
    buf_puts(out, "}}");
}

/* ---- Names ---- */

static inline void kind_optional(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) buf_printf(out, "%s\"p%0*d\":{\"type\":\"string\"}", i > 0 ? "," : "", 4 + m * 5, i);
    buf_puts(out, m % 2 == 0 ? "}}" : "},\"additionalProperties\":true}");
}

static inline void kind_optional_objects(struct buf *out, int n, int m)
{
    int each = 10 + m * 8;
    buf_puts(out, "{\"type\":\"object\",\"required\":[\"o0\"],\"properties\":{");
    for (int i = 0; i < n / each + 1; i++) {
        buf_printf(out, "%s\"o%d\":{\"type\":\"object\",\"properties\":{", i > 0 ? "," : "", i);
        for (int k = 0; k < each; k++) buf_printf(out, "%s\"p%d\":{}", k > 0 ? "," : "", k);
        buf_puts(out, "}}");
    }
    buf_puts(out, "}}");
}

static inline void kind_required(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) buf_printf(out, "%s\"p%0*d\":{}", i > 0 ? "," : "", 4 + m * 3, i);
    buf_puts(out, "},\"required\":[");
    for (int i = 0; i < n; i++) buf_printf(out, "%s\"p%0*d\"", i > 0 ? "," : "", 4 + m * 3, i);
    buf_puts(out, m % 2 == 0 ? "]}" : "],\"additionalProperties\":false}");
}

static inline void kind_required_alone(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"required\":[");
    for (int i = 0; i < n; i++) buf_printf(out, "%s\"%d\"", i > 0 ? "," : "", m % 2 == 0 ? i : 7);
    buf_puts(out, "]}");
}

/* Rules whose names are alike: "a-b" of "a" and "b", and of "a-b". */
static inline void kind_alike(struct buf *out, int n, int m)
{
    static const char *const marks = "!#$%&'()*+,.:;<=>?@_`{|}~";
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s\"a", i > 0 ? "," : "");
        for (int k = i + 1; k > 0; k /= 25) buf_printf(out, "%c", marks[k % 25]);
        buf_printf(out, "\":{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", i, i + 5 + m);
    }
    buf_puts(out, "}}");
}

static inline void kind_alike_paths(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s\"x", i > 0 ? "," : "");
        put_times(out, "-a", i % (20 + m));
        buf_puts(out, "\":{\"type\":\"object\",\"properties\":{\"a");
        put_times(out, "-a", (20 + m) - i % (20 + m));
        buf_printf(out, "\":{\"enum\":[%d]}}}", i);
    }
    buf_puts(out, "}}");
}

/* A rule's name has those of all that it is in. */
static inline void kind_deep_names(struct buf *out, int n, int m)
{
    int depth = 1 + n % 55, letters = 5 + m * 40;
    for (int i = 0; i < depth; i++) {
        buf_puts(out, "{\"type\":\"object\",\"properties\":{\"");
        put_times(out, "x", letters);
        buf_puts(out, "\":");
    }
    buf_puts(out, "{\"properties\":{");
    for (int i = 0; i < 1 + n / 10; i++) buf_printf(out, "%s\"p%d\":{\"type\":\"integer\"}", i > 0 ? "," : "", i);
    buf_puts(out, "}}");
    put_times(out, "}}", depth);
}

static inline void kind_rest_names(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s\"%d", i > 0 ? "," : "", i);
        put_times(out, "y", m * 20);
        buf_puts(out, "\":{}");
    }
    buf_puts(out, "},\"additionalProperties\":{\"type\":\"integer\"}}");
}

static inline void kind_defs_unused(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"type\":\"integer\",\"$defs\":{");
    for (int i = 0; i < n; i++) buf_printf(out, "%s\"d%d\":{\"type\":\"object\"}", i > 0 ? "," : "", i + m);
    buf_puts(out, "}}");
}

/* ---- Combinations ---- */

static inline void kind_choices_of_choices(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"allOf\":[");
    for (int i = 0; i < 2 + m % 8; i++) {
        buf_puts(out, i > 0 ? ",{\"anyOf\":[" : "{\"anyOf\":[");
        for (int k = 0; k < n / (2 + m % 8) + 1; k++)
            buf_printf(out, "%s{\"required\":[\"a%d-%d\"]}", k > 0 ? "," : "", i, k);
        buf_puts(out, "]}");
    }
    buf_puts(out, "]}");
}

/* Alternatives beside many properties: each gets all of them. */
static inline void kind_choices_beside(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s\"p%d\":{\"type\":\"string\",\"maxLength\":%d}", i > 0 ? "," : "", i, i);
    buf_puts(out, "},\"anyOf\":[");
    for (int i = 0; i < 2 + m * 20; i++) buf_printf(out, "%s{\"required\":[\"p%d\"]}", i > 0 ? "," : "", i);
    buf_puts(out, "]}");
}

static inline void kind_choices_nested_beside(struct buf *out, int n, int m)
{
    int depth = 1 + n % 50;
    for (int i = 0; i < depth; i++)
        buf_printf(out, "{\"properties\":{\"p%d\":{\"maxLength\":%d}},\"anyOf\":[{\"required\":[\"p%d\"]},", i, i, i);
    buf_puts(out, "{}");
    for (int i = 0; i < depth; i++) put_times(out, ",{\"required\":[\"x\"]}", i == depth - 1 ? 1 + m : 0);
    put_times(out, "]}", depth);
}

static inline void kind_nested(struct buf *out, int n, int m)
{
    static const char *const begins[] = {"{\"allOf\":[",
                                         "{\"anyOf\":[{\"type\":\"null\"},",
                                         "{\"items\":",
                                         "{\"additionalProperties\":",
                                         "{\"minItems\":2,\"prefixItems\":[",
                                         "{\"not\":",
                                         "{\"maxLength\":3,\"allOf\":["},
                             *const ends[] = {"]}", "]}", "}", "}", "]}", "}", "]}"};
    int depth = 1 + n % 60;
    put_times(out, begins[m % 7], depth);
    buf_puts(out, "{\"properties\":{");
    for (int i = 0; i < n; i++) buf_printf(out, "%s\"p%d\":{\"type\":\"integer\"}", i > 0 ? "," : "", i);
    buf_puts(out, "}}");
    put_times(out, ends[m % 7], depth);
}

/* ---- Values ---- */

static inline void kind_literals(struct buf *out, int n, int m)
{
    buf_printf(out, "{%s\"enum\":[", m % 3 == 0 ? "\"type\":\"string\",\"maxLength\":3," : "");
    for (int i = 0; i < n; i++)
        buf_printf(out, m % 3 == 0 ? "%s\"v%d\"" : m % 3 == 1 ? "%s%d" : "%s[\"\\\"\\n%d\"]", i > 0 ? "," : "", i);
    buf_puts(out, "]}");
}

static inline void kind_literals_in_both(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"allOf\":[");
    for (int k = 0; k < 2 + m; k++) {
        buf_printf(out, "%s{\"%s\":[", k > 0 ? "," : "", m % 2 == 0 ? "enum" : "required");
        for (int i = 0; i < n / (2 + m) + 1; i++) buf_printf(out, "%s\"%d\"", i > 0 ? "," : "", i);
        buf_puts(out, "]}");
    }
    buf_puts(out, "]}");
}

static inline void kind_quotes(struct buf *out, int n, int m)
{
    buf_puts(out, m % 2 == 0 ? "{\"const\":\"" : "{\"enum\":[\"a\",\"");
    put_times(out, "\\\"\\n", n);
    buf_puts(out, m % 2 == 0 ? "\"}" : "\"]}");
}

static inline void kind_integers(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"prefixItems\":[");
    for (int i = 0; i < n; i++)
        buf_printf(out,
                   m % 2 == 0 ? "%s{\"type\":\"integer\",\"minimum\":-%d,\"maximum\":9876543210987%d}"
                              : "%s{\"type\":\"integer\",\"minimum\":%d}",
                   i > 0 ? "," : "", i, i % 1000);
    buf_puts(out, "]}");
}

static inline void kind_tuples(struct buf *out, int n, int m)
{
    int depth = 1 + m % 4;
    for (int i = 0; i < depth; i++)
        buf_printf(out, "{\"prefixItems\":[],\"minItems\":%d,\"items\":", i == 0 ? n % 2000 : 2000);
    buf_puts(out, "{\"type\":\"integer\",\"maximum\":5}");
    put_times(out, "}", depth);
}

static inline void kind_unenforced(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"properties\":{");
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s\"p%d\":{\"%s\":\"x%d\"}", i > 0 ? "," : "", i, m % 2 == 0 ? "format" : "not", i);
    buf_puts(out, "}}");
}

/* Texts that grammars are mended by, as literals. */
static inline void kind_mended(struct buf *out, int n, int m)
{
    buf_puts(out, "{\"enum\":[");
    for (int i = 0; i < n; i++)
        buf_printf(out, m % 2 == 0 ? "%s\"([eE] [-+]? integral-part)?%d\"" : "%s\"[0-9] | [^x%d\"", i > 0 ? "," : "",
                   i);
    buf_puts(out, "]}");
}

static const struct schema_kind schema_kinds[] = {
    {"type: object and ''", kind_types_empty, 60},
    {"type: null and null", kind_types_null, 60},
    {"type: lists", kind_types_lists, 60},
    {"type: all seven", kind_types_all, 60},
    {"type: objects and arrays", kind_types_both, 60},
    {"type: two ways to each level", kind_types_two_ways, 600},
    {"$defs: each the next one twice", kind_defs_twice, 900},
    {"$defs: two ways to the next one", kind_defs_two_ways, 600},
    {"$defs: each refers to all", kind_defs_all, 2200},
    {"$defs: each refers to all later ones", kind_defs_later, 2200},
    {"allOf: the same reference", kind_allof_references, 2800},
    {"allOf: different properties", kind_allof_different, 1600},
    {"$ref: long names", kind_long_names, 1000},
    {"$ref: a chain", kind_reference_chain, 1400},
    {"$ref: ids and anchors", kind_ids, 700},
    {"$ref: a long pointer", kind_pointer_chain, 4500},
    {"patterns", kind_patterns, 2500},
    {"formats", kind_formats, 1700},
    {"a pattern of repetitions", kind_repetitions, 5000},
    {"repetitions in patterns", kind_repetitions_apart, 2500},
    {"repetitions in repetitions", kind_nested_repetitions, 400},
    {"a repetition of a repetition", kind_repeated_repetition, 30000},
    {"a class of characters", kind_class, 15000},
    {"classes of characters", kind_classes, 12000},
    {"a pattern of alternatives", kind_pattern_choices, 10000},
    {"a pattern of letters", kind_pattern_text, 60000},
    {"faults", kind_pattern_faults, 2200},
    {"optional properties", kind_optional, 1900},
    {"objects of optional properties", kind_optional_objects, 4000},
    {"required properties", kind_required, 2200},
    {"names that are required", kind_required_alone, 9000},
    {"names that look alike", kind_alike, 1100},
    {"paths that look alike", kind_alike_paths, 600},
    {"names in names", kind_deep_names, 2300},
    {"names that others may not have", kind_rest_names, 4000},
    {"$defs: without references", kind_defs_unused, 2300},
    {"alternatives of alternatives", kind_choices_of_choices, 2200},
    {"alternatives beside properties", kind_choices_beside, 1200},
    {"alternatives in alternatives", kind_choices_nested_beside, 700},
    {"nested", kind_nested, 2000},
    {"literals", kind_literals, 6000},
    {"literals in both", kind_literals_in_both, 9000},
    {"quotes", kind_quotes, 16000},
    {"integers", kind_integers, 900},
    {"tuples", kind_tuples, 1999},
    {"keywords that are not enforced", kind_unenforced, 1900},
    {"text like a grammar's", kind_mended, 1700},
};

#endif
