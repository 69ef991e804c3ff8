/* Grammars of JSON schemas, and schemas that cannot be converted. */
#include "base/log.h"
#include "grammar/grammar.h"
#include "support.h"

#include <math.h>
#include <unistd.h>

/* Whether the grammar of the schema takes all of the text; NULL: the schema has to be a good one. */
static bool allows(const char *schema, const char *text)
{
    hearth_error error = {0};
    struct grammar_state state = {0}, next = {0};
    char *rules = chat_schema_grammar(tree_of(schema), NULL, &error);
    if (rules == NULL) fail_msg("%s: %s", schema, error.message);
    struct grammar *grammar = grammar_open(rules, NULL, &error);
    if (grammar == NULL) fail_msg("%s: %s", schema, error.message);
    bool good = true;
    grammar_start(grammar, &state);
    for (const char *at = text; good && *at != '\0'; at++) {
        good = grammar_accept_byte(grammar, &state, (unsigned char)*at, &next) && !grammar_over_budget(grammar);
        struct grammar_state before = state;
        state = next;
        next = before;
    }
    good = good && grammar_complete(&state);
    grammar_release(&state);
    grammar_release(&next);
    grammar_close(grammar);
    free(rules);
    return good;
}

/* Texts end with NULL. */
struct taken {
    const char *schema, *good[5], *bad[8];
};

static void assert_taken(const struct taken *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (const char *const *text = rows[i].good; *text != NULL; text++)
            if (!allows(rows[i].schema, *text)) fail_msg("%s does not take %s", rows[i].schema, *text);
        for (const char *const *text = rows[i].bad; *text != NULL; text++)
            if (allows(rows[i].schema, *text)) fail_msg("%s takes %s", rows[i].schema, *text);
    }
}

#define ASSERT_TAKEN(rows) assert_taken(rows, sizeof(rows) / sizeof *(rows))

static void a_schema_becomes_a_grammar(void **state)
{
    (void)state;
    hearth_error error = {0};
    char *grammar = chat_schema_grammar(tree_of("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}},"
                                                "\"$defs\":{\"n\":{\"type\":\"integer\"}}}"),
                                        NULL, &error);
    assert_non_null(grammar);
    assert_non_null(strstr(grammar, "root ::= "));
    assert_non_null(strstr(grammar, "\\\"a\\\""));
    free(grammar);
}

static void a_schema_may_refer_to_itself(void **state)
{
    (void)state;
    hearth_error error = {0};
    char *grammar = chat_schema_grammar(tree_of("{\"$ref\":\"#/$defs/tree\",\"$defs\":{\"tree\":{\"type\":\"object\","
                                                "\"properties\":{\"left\":{\"$ref\":\"#/$defs/tree\"}}}}}"),
                                        NULL, &error);
    assert_non_null(grammar);
    free(grammar);
}

static void assert_refused(const char *schema, const char *part_of_message)
{
    hearth_error error = {0};
    assert_null(chat_schema_grammar(tree_of(schema), NULL, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_string_equal(error.param, "json_schema");
    if (strstr(error.message, part_of_message) == NULL) fail_msg("%s: %s", schema, error.message);
    assert_null(strchr(error.message, '\n'));
}

static void an_unusable_schema_is_refused_with_its_reason(void **state)
{
    (void)state;
    assert_refused("[]", "must be an object");
    assert_refused("true", "must be an object");
    assert_refused("3", "must be an object");
    assert_refused("{\"type\":\"colour\"}", "colour");
    assert_refused("{\"$ref\":\"#/$defs/missing\"}", "cannot resolve $ref #/$defs/missing");
    assert_refused("{\"$ref\":\"https://example.org/schema\"}", "unsupported $ref");
    assert_refused("{\"$ref\":3}", "$ref must be a string");
    assert_refused("{\"properties\":{\"a\":\"text\"}}", "#/properties/a a schema must be an object");
    assert_refused("{\"type\":\"string\",\"minLength\":\"x\"}", "minLength");
    assert_refused("{\"type\":\"string\",\"pattern\":\"^(?=a)b$\"}", "pattern that cannot be kept");
    assert_refused("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"\\\\bx\"}}",
                   "#/items has a pattern that cannot be kept: \\bx");
    assert_refused("{\"properties\":{\"a/b\":{\"enum\":3}}}", "#/properties/a~1b enum must be");
    assert_refused("{\"properties\":{\"a\":{\"$ref\":\"#none\"}}}", "#/properties/a cannot resolve $ref #none");
    assert_refused("{\"maxItems\":1000000,\"type\":\"array\"}", "maxItems is too large");
    assert_refused("{\"minItems\":3000,\"type\":\"array\"}", "minItems is too large");
    assert_refused("{\"maxLength\":1e9,\"type\":\"string\"}", "maxLength is too large");
    assert_refused("{\"pattern\":\"a{1,9000000}\"}", "more than 2000000 times");
    assert_refused("{\"type\":\"integer\",\"minimum\":1e17}", "more than 16 digits");
    assert_refused("{\"properties\":{\"a\":false},\"required\":[\"a\"]}", "# allows no value");
    assert_refused("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"object\"}]}", "# allows no value");
}

static void assert_same_grammar(const char *schema, const char *other)
{
    char *a = chat_schema_grammar(tree_of(schema), NULL, NULL), *b = chat_schema_grammar(tree_of(other), NULL, NULL);
    assert_non_null(a);
    assert_string_equal(a, b);
    free(a);
    free(b);
}

static void character_classes_are_expanded_in_patterns_but_not_in_literals(void **state)
{
    (void)state;
    assert_same_grammar("{\"type\":\"string\",\"pattern\":\"^\\\\d{3}-[\\\\w.]+$\"}",
                        "{\"type\":\"string\",\"pattern\":\"^[0-9]{3}-[a-zA-Z0-9_.]+$\"}");
    char *kept = chat_schema_grammar(tree_of("{\"const\":{\"pattern\":\"\\\\d\"}}"), NULL, NULL);
    assert_non_null(kept);
    assert_null(strstr(kept, "[0-9]"));
    free(kept);
}

/* A pattern is of a string's value; the grammar is of its text. */
static void patterns_are_of_values_and_not_of_their_text(void **state)
{
    (void)state;
#define PATTERN(text) "{\"type\":\"string\",\"pattern\":\"" text "\"}"
    static const struct taken rows[] = {
        {PATTERN("^\\\"x\\\"$"), {"\"\\\"x\\\"\""}, {"\"\"x\"\"", "\"x\""}},
        {PATTERN("^\\\\s{2}$"), {"\"  \"", "\"\\n\\t\"", "\"\\u000B \""}, {"\"\n\t\"", "\"\t \"", "\" \"", "\"ab\""}},
        {PATTERN("^[^x]{3}$"),
         {"\"abc\"", "\"\\\"\\\\\\n\"", "\"\u00e9\u20ac\U0001f600\"", "\"\\u0000ab\""},
         {"\"\"\"\"\"", "\"\\\\\"", "\"a\nb\"", "\"axb\"", "\"\\x00\"", "\"ab\\u0078\""}},
        {PATTERN("^.$"), {"\"a\"", "\"\\\\\"", "\"\\t\""}, {"\"\\n\"", "\"\\\"", "\"\t\"", "\"\""}},
        {PATTERN("^\\\\\\\\$"), {"\"\\\\\""}, {"\"\\\"", "\"a\""}},
        {PATTERN("^[\\\\]\\\\-^]+$"), {"\"]-^\""}, {"\"a\"", "\"\\\\\""}},
        {PATTERN("^\\\\D\\\\W\\\\S$"), {"\"a b\"", "\"\\\\.x\""}, {"\"1 x\"", "\"aax\"", "\"a  \""}},
        {PATTERN("^(?:a|b)?$"), {"\"\"", "\"a\""}, {"\"ab\"", "\"c\""}},
        {PATTERN("^(?<year>\\\\d{4})$"), {"\"2026\""}, {"\"202\""}},
        {PATTERN("^\\u00e9+$"), {"\"\u00e9\u00e9\""}, {"\"e\"", "\"\""}},
        {PATTERN("^$"), {"\"\""}, {"\"a\""}},
    };
    ASSERT_TAKEN(rows);
}

static void a_pattern_without_anchors_is_found_anywhere(void **state)
{
    (void)state;
    static const struct taken rows[] = {
        {PATTERN("b"), {"\"b\"", "\"abc\"", "\"\\\"b\\n\""}, {"\"\"", "\"ac\"", "\"\\b\""}},
        {PATTERN("^b"), {"\"b\"", "\"bc\""}, {"\"ab\""}},
        {PATTERN("b$"), {"\"b\"", "\"ab\""}, {"\"bc\""}},
        {PATTERN("^a|b$"), {"\"ac\"", "\"cb\""}, {"\"c\""}},
        {PATTERN("(^a$|^b$)"), {"\"a\"", "\"b\""}, {"\"ab\"", "\"\""}},
        {PATTERN(""), {"\"\"", "\"x\""}, {"\"\"\""}},
    };
    ASSERT_TAKEN(rows);
}

/* ECMA-262 has more than a grammar. */
static void a_pattern_that_no_grammar_expresses_is_refused(void **state)
{
    (void)state;
    static const char *const patterns[] = {"^(?!a)b$", "(?<=a)b", "^(a)\\\\1$", "\\\\bx", "^\\\\p{L}$",
                                           "a^b",      "(a",      "a)",         "[a",     "*a",
                                           "a{2,1}",   "\\\\",    "[b-a]",      "(^a)b$x"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char *schema = mem_format("{\"pattern\":\"%s\"}", patterns[i]);
        assert_refused(schema, "pattern that cannot be kept");
        free(schema);
    }
}

static void lengths_hold_beside_a_pattern_of_one_repetition(void **state)
{
    (void)state;
    static const struct taken rows[] = {
        {"{\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"abc\""},
         {"\"a\"", "\"abcd\"", "\"\""}},
        {"{\"pattern\":\"^x(ab)*$\",\"minLength\":2,\"maxLength\":4}", {"\"xab\""}, {"\"x\"", "\"xabab\""}},
        {"{\"pattern\":\"^(a|bb|cccc)$\",\"minLength\":2,\"maxLength\":3}", {"\"bb\""}, {"\"a\"", "\"cccc\""}},
        {"{\"format\":\"date\",\"maxLength\":10}", {"\"2026-11-28\""}, {"\"x\""}},
    };
    ASSERT_TAKEN(rows);
    assert_refused("{\"pattern\":\"^abc$\",\"maxLength\":2}", "no string that it matches");
}

/* What a model may draw of them is checked with another library's checks: tests/e2e/schemas.test.js. */
static void formats_take_the_forms_that_are_in_use(void **state)
{
    (void)state;
    static const struct taken rows[] = {
        {"{\"type\":\"string\",\"format\":\"duration\"}",
         {"\"P3D\"", "\"PT1H30M\"", "\"P1Y2M3DT4H5M6S\"", "\"P2W\""},
         {"\"P\"", "\"PT\"", "\"3D\"", "\"P1H\""}},
        {"{\"format\":\"email\"}",
         {"\"ann.lee+x@mail.example.com\"", "\"o'neil@a-b.ie\""},
         {"\"ann\"", "\"ann@\"", "\"a..b@c.de\"", "\"a@-b.de\""}},
        {"{\"format\":\"ipv4\"}",
         {"\"127.0.0.1\"", "\"255.255.255.255\""},
         {"\"256.1.1.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
        {"{\"format\":\"ipv6\"}",
         {"\"::1\"", "\"::\"", "\"2001:db8::8a2e:370:7334\"", "\"1:2:3:4:5:6:7:8\""},
         {"\"1:2:3\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\""}},
        {"{\"format\":\"uri\"}",
         {"\"https://example.com:8080/a/b?q=1&r=%20#top\"", "\"mailto:ann@example.com\"", "\"file:///etc/hosts\"",
          "\"http://[::1]/\""},
         {"\"example.com\"", "\"http://a b\"", "\"/a\"", "\"http://a/%2\""}},
        {"{\"format\":\"json-pointer\"}", {"\"\"", "\"/a/0/~1b\""}, {"\"a\"", "\"/~2\""}},
    };
    ASSERT_TAKEN(rows);
}

/* As a schema spells it. */
static double spelt(double value)
{
    char text[64];
    snprintf(text, sizeof text, "%.10g", value);
    return strtod(text, NULL);
}

static double picked(int digits)
{
    double scale = pow(10, digits);
    return spelt(round(((double)rand() / RAND_MAX - 0.5) * pow(10, rand() % 5) * scale) / scale);
}

/* Against comparing doubles: numbers at the bounds, beside them and elsewhere, with zeros that mean nothing. */
static void numbers_keep_their_bounds(void **state)
{
    (void)state;
    srand(11);
    for (int i = 0; i < 200; i++) {
        double low = picked(rand() % 4), high = rand() % 8 == 0 ? low : spelt(low + fabs(picked(rand() % 4)));
        bool has_low = rand() % 4 > 0, has_high = rand() % 4 > 0, without_low = rand() % 3 == 0,
             without_high = rand() % 3 == 0;
        struct buf schema = {0};
        buf_puts(&schema, "{\"anyOf\":[{\"const\":\"none\"},{\"type\":\"number\"");
        if (has_low) buf_printf(&schema, ",\"%s\":%.10g", without_low ? "exclusiveMinimum" : "minimum", low);
        if (has_high) buf_printf(&schema, ",\"%s\":%.10g", without_high ? "exclusiveMaximum" : "maximum", high);
        buf_puts(&schema, "}]}");
        for (int k = 0; k < 24; k++) {
            double base = k % 3 == 0 ? low : k % 3 == 1 ? high : picked(3);
            double value = base + (k % 2 == 0 ? 0 : picked(3)) + (k % 5 == 0 ? 1e-7 : k % 5 == 1 ? -1e-7 : 0);
            char text[64];
            snprintf(text, sizeof text, k % 4 == 3 && fabs(value) < 1e6 ? "%.9f" : "%.12g", value);
            double read = strtod(text, NULL);
            if (strchr(text, 'e') != NULL || (text[0] == '-' && read == 0)) continue; /* forms that are not written */
            bool fits = (!has_low || (without_low ? read > low : read >= low)) &&
                        (!has_high || (without_high ? read < high : read <= high));
            if (allows(schema.v, text) != fits) fail_msg("%s: %s %s", schema.v, text, fits ? "is refused" : "is taken");
        }
        buf_release(&schema);
    }
}

static void bounds_of_numbers_are_those_of_json(void **state)
{
    (void)state;
    static const struct taken rows[] = {
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
         {"0", "1.0", "0.5", "0.00001"},
         {"1.5", "-0.1", "\"0\"", "01", ".5", "1.", "1.01"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"minimum\":0}", {"0.1", "7"}, {"0", "0.0", "-1"}},
        {"{\"type\":\"number\",\"minimum\":1e2,\"maximum\":2.5e2}", {"100", "250.0"}, {"99.9", "250.1"}},
        {"{\"type\":\"number\",\"minimum\":0.12345678901234567,\"maximum\":31.240000000000002}",
         {"0.12345678901235", "31.24"},
         {"0.12345678901234", "31.2400000000001"}},
        {"{\"type\":\"number\",\"maximum\":-0.12345678901234567}", {"-0.12345678901235"}, {"-0.12345678901234"}},
        {"{\"type\":\"number\",\"minimum\":1e300}", {"5", "-1"}, {"\"\""}}, /* not kept, and named */
    };
    ASSERT_TAKEN(rows);
    assert_refused("{\"type\":\"number\",\"exclusiveMinimum\":1,\"maximum\":1}", "allows no value");
}

static void limits_beyond_what_a_grammar_repeats_are_kept(void **state)
{
    (void)state;
    static const int lengths[] = {2999, 3000, 5500, 5501};
    for (size_t i = 0; i < 4; i++) {
        struct buf text = {0};
        buf_puts(&text, "\"");
        for (int k = 0; k < lengths[i]; k++) buf_puts(&text, k % 3 == 0 ? "\\n" : "a");
        buf_puts(&text, "\"");
        bool good = lengths[i] >= 3000 && lengths[i] <= 5500;
        assert_int_equal(allows("{\"type\":\"string\",\"minLength\":3000,\"maxLength\":5500}", text.v), good);
        buf_release(&text);
    }
}

/* A name is no keyword, and a literal no schema. */
static void properties_are_named_like_keywords(void **state)
{
    (void)state;
    static const char *const names[] = {"enum",  "const", "default", "examples", "pattern",
                                        "$ref",  "type",  "allOf",   "items",    "properties",
                                        "$defs", "anyOf", "not",     "required", "additionalProperties"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *schema =
            mem_format("{\"properties\":{\"%s\":{\"type\":\"string\",\"pattern\":\"^\\\\d$\"}},\"required\":[\"%s\"]}",
                       names[i], names[i]);
        char *good = mem_format("{\"%s\":\"7\"}", names[i]), *bad = mem_format("{\"%s\":\"x\"}", names[i]);
        assert_true(allows(schema, good));
        assert_false(allows(schema, bad));
        free(schema);
        free(good);
        free(bad);
    }
    static const struct taken literals[] = {
        {"{\"const\":{\"pattern\":\"\\\\d\",\"$ref\":\"x\",\"type\":[\"a\",\"a\"]}}",
         {"{\"pattern\":\"\\\\d\",\"$ref\":\"x\",\"type\":[\"a\",\"a\"]}"},
         {"{}"}},
        {"{\"enum\":[{\"$ref\":3},false]}", {"{\"$ref\":3}", "false"}, {"true"}},
    };
    ASSERT_TAKEN(literals);
}

static void references_of_every_kind_are_followed(void **state)
{
    (void)state;
#define DEFS                                                                                                           \
    ",\"$defs\":{\"a/b c\":{\"type\":\"null\"},\"x~y\":{\"type\":\"boolean\"},\"a "                                    \
    "b\":{\"$anchor\":\"here\",\"const\":1},\"a_b\":{"                                                                 \
    "\"$id\":\"other.json\",\"const\":2,\"$defs\":{\"in\":{\"const\":3}}},\"in\":{\"const\":4}}}"
#define REFERENCE(text)                                                                                                \
    "{\"$id\":\"https://example.org/it.json\",\"items\":{\"$ref\":\"" text "\"},\"type\":\"array\",\"minItems\":"      \
    "1" DEFS
    static const struct taken rows[] = {
        {REFERENCE("#/$defs/a~1b%20c"), {"[null]"}, {"[1]"}},
        {REFERENCE("#/$defs/x~0y"), {"[true]"}, {"[1]"}},
        {REFERENCE("#/%24defs/x~0y"), {"[true]"}, {"[1]"}},
        {REFERENCE("#here"), {"[1]"}, {"[2]"}},
        {REFERENCE("other.json"), {"[2]"}, {"[1]"}},
        {REFERENCE("https://example.org/other.json"), {"[2]"}, {"[1]"}},
        {REFERENCE("other.json#/$defs/in"), {"[3]"}, {"[4]"}},
        {REFERENCE("#/$defs/in"), {"[4]"}, {"[3]"}},
        {REFERENCE("#"), {NULL}, {"[null]", "[]", "[[1]]"}}, /* one in the other, without end */
        {"{\"properties\":{\"child\":{\"$ref\":\"#\"}}}", {"{}", "{\"child\":{\"child\":{}}}"}, {"{\"child\":1}"}},
    };
    ASSERT_TAKEN(rows);
}

static void schemas_that_are_true_or_false_are_taken(void **state)
{
    (void)state;
    static const struct taken rows[] = {
        {"{\"properties\":{\"a\":true},\"required\":[\"a\"]}", {"{\"a\":[1,{}]}"}, {"{}"}},
        {"{\"properties\":{\"a\":false,\"b\":{\"type\":\"null\"}}}", {"{}", "{\"b\":null}"}, {"{\"a\":1}"}},
        {"{\"items\":false}", {"[]"}, {"[1]"}},
        {"{\"items\":true,\"minItems\":1}", {"[1]"}, {"[]"}},
        {"{\"anyOf\":[false,{\"const\":1}]}", {"1"}, {"2"}},
        {"{\"allOf\":[true,{\"const\":1}]}", {"1"}, {"2"}},
    };
    ASSERT_TAKEN(rows);
}

/* llama.cpp looks at one of them alone. */
static void what_stands_beside_one_another_holds_together(void **state)
{
    (void)state;
    static const struct taken rows[] = {
        {"{\"$ref\":\"#/$defs/"
         "p\",\"required\":[\"y\"],\"$defs\":{\"p\":{\"properties\":{\"x\":{\"const\":1},\"y\":{\"const\":2}}}}}",
         {"{\"y\":2}", "{\"y\":2,\"x\":1}"},
         {"{}", "{\"x\":1}"}},
        {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":["
         "\"b\"]}]}",
         {"{\"a\":1}", "{\"b\":2}"},
         {"{}", "{\"a\":2}", "1"}},
        {"{\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":5,\"maximum\":9,\"exclusiveMaximum\":8}",
         {"6", "7"},
         {"5", "8", "3"}},
        {"{\"type\":\"integer\",\"minimum\":100}", {"100", "4711"}, {"15", "99", "-100"}},
        {"{\"type\":\"integer\",\"maximum\":18446744073709551615}", {"1", "-5"}, {"1.5"}},
        {"{\"type\":\"number\",\"enum\":[1e20,-1e300]}", {"1e+20"}, {"1"}},
        {"{\"type\":\"string\",\"enum\":[1,\"a\",null]}", {"\"a\""}, {"1", "null"}},
        {"{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"z\"]}", {"{\"z\":[]}", "{\"z\":1,\"a\":1}"}, {"{}"}},
        {"{\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":2},\"minItems\":2}",
         {"[1,2]"},
         {"[1]", "[2,2]", "[1,1]"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}}},{\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]"
         "}]}",
         {"{\"b\":2}", "{\"b\":2,\"a\":1}"},
         {"{}", "{\"a\":1}"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct taken row = rows[i];
        for (const char *const *bad = row.bad; *bad != NULL; bad++)
            if (allows(row.schema, *bad)) fail_msg("%s takes %s", row.schema, *bad);
        bool any = false;
        for (const char *const *good = row.good; *good != NULL; good++) any = any || allows(row.schema, *good);
        assert_true(any); /* the order of properties is the schema's */
    }
}

/* A key that is no property's, or a string of any value. */
static void what_is_free_is_still_json(void **state)
{
    (void)state;
#define FURTHER "{\"properties\":{\"ab\":{\"const\":1}},\"additionalProperties\":true}"
    static const struct taken rows[] = {
        {FURTHER,
         {"{\"ab\":1}", "{\"ac\":2}", "{\"abc\":2}"},
         {"{\"ab\":2}", "{\"\\\":1}", "{\"\n\":1}", "{\"a\\\":1}"}},
        {"{\"type\":\"string\"}", {"\"\\u00e9\""}, {"\"\\ud83d\"", "\"\\uDE00\""}},
        {"{\"type\":\"number\"}", {"1.5e10", "0"}, {"1e400", "01"}},
    };
    ASSERT_TAKEN(rows);
}

/* ---- What the documents say ---- */

/* The part of docs/schemas.md from one text to another; to be freed. */
static char *documented(const char *from, const char *to)
{
    char *path = mem_format("%s/docs/schemas.md", getenv("HEARTH_SOURCE"));
    struct buf text = {0};
    char bytes[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;) buf_append(&text, bytes, n);
    fclose(file);
    free(path);
    char *begin = strstr(buf_text(&text), from), *end = begin == NULL ? NULL : strstr(begin, to);
    assert_non_null(end);
    char *part = mem_strndup(begin, (size_t)(end - begin));
    buf_release(&text);
    return part;
}

/* Whether a schema with the keyword is a line of the log. */
static bool is_logged(const char *keyword, const char *value)
{
    char path[] = "/tmp/hearth-log-XXXXXX", line[4096];
    int fd = mkstemp(path);
    char *schema = mem_format("{\"type\":\"object\",\"%s\":%s,\"$defs\":{\"a\":{}}}", keyword, value);
    assert_int_equal(log_open(path, "info", "text", NULL), HEARTH_OK);
    char *grammar = chat_schema_grammar(tree_of(schema), NULL, NULL);
    log_open(NULL, "info", "text", NULL);
    assert_non_null(grammar);
    ssize_t n = pread(fd, line, sizeof line - 1, 0);
    line[n < 0 ? 0 : n] = '\0';
    close(fd);
    unlink(path);
    free(grammar);
    free(schema);
    return strstr(line, "schemas have a keyword that is not enforced") != NULL && strstr(line, keyword) != NULL;
}

/* All keywords of the vocabularies of 2020-12 that demand something, and those of older drafts. */
static void keywords_that_are_not_enforced_are_those_of_the_documents_and_named_once(void **state)
{
    (void)state;
    static const struct {
        const char *keyword, *value;
    } rows[] = {{"not", "{\"required\":[\"z\"]}"},
                {"if", "{}"},
                {"then", "{}"},
                {"else", "{}"},
                {"dependentRequired", "{}"},
                {"dependentSchemas", "{}"},
                {"dependencies", "{}"},
                {"contains", "{}"},
                {"minContains", "1"},
                {"maxContains", "1"},
                {"patternProperties", "{}"},
                {"propertyNames", "{\"maxLength\":3}"},
                {"unevaluatedProperties", "false"},
                {"unevaluatedItems", "false"},
                {"uniqueItems", "true"},
                {"multipleOf", "2"},
                {"minProperties", "1"},
                {"maxProperties", "1"},
                {"$dynamicRef", "\"#a\""},
                {"$recursiveRef", "\"#\""},
                {"properties", "{}"},
                {"required", "[]"},
                {"additionalProperties", "{}"},
                {"items", "{}"},
                {"prefixItems", "[]"},
                {"minItems", "1"},
                {"maxItems", "1"},
                {"minLength", "1"},
                {"maxLength", "1"},
                {"pattern", "\"a\""},
                {"minimum", "1"},
                {"maximum", "1"},
                {"exclusiveMinimum", "1"},
                {"exclusiveMaximum", "1"},
                {"enum", "[{}]"},
                {"const", "{}"},
                {"anyOf", "[{}]"},
                {"allOf", "[{}]"},
                {"$ref", "\"#/$defs/a\""},
                {"title", "\"a\""},
                {"description", "\"a\""},
                {"default", "1"},
                {"examples", "[]"},
                {"deprecated", "true"},
                {"readOnly", "true"},
                {"$comment", "\"a\""}};
    char *not_enforced = documented("## What is not enforced", "other values of `format`");
    char *enforced = documented("## What is enforced", "## What is not enforced");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *quoted = mem_format("`%s`", rows[i].keyword);
        bool listed = strstr(not_enforced, quoted) != NULL, kept = strstr(enforced, quoted) != NULL, demands = i < 39;
        if (is_logged(rows[i].keyword, rows[i].value) != listed) fail_msg("%s", rows[i].keyword);
        if (listed && is_logged(rows[i].keyword, rows[i].value)) fail_msg("%s, twice", rows[i].keyword);
        if (demands && listed == kept) fail_msg("%s is not in one list", rows[i].keyword);
        free(quoted);
    }
    free(not_enforced);
    free(enforced);
}

static void hostile_depth_is_refused_before_it_exhausts_the_stack(void **state)
{
    (void)state;
    struct buf nested = {0}, chained = {0}, apart = {0};
    for (int i = 0; i < 1000; i++) buf_puts(&nested, "{\"items\":");
    buf_puts(&nested, "{}");
    for (int i = 0; i < 1000; i++) buf_puts(&nested, "}");
    assert_refused(nested.v, "nested too deeply");
    buf_puts(&chained, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 3000; i++) buf_printf(&chained, "\"d%d\":{\"$ref\":\"#/$defs/d%d\"},", i, i + 1);
    buf_puts(&chained, "\"d3000\":{}}}");
    assert_refused(chained.v, "lead to too many others");
    buf_puts(&apart, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 1000; i++) buf_printf(&apart, "\"d%d\":{\"items\":{\"$ref\":\"#/$defs/d%d\"}},", i, i + 1);
    buf_puts(&apart, "\"d1000\":{}}}");
    assert_refused(apart.v, "nested too deeply");
    buf_release(&apart);
    buf_release(&nested);
    buf_release(&chained);
}

/* llama.cpp looks up each member of an object in linear time. */
static void an_object_with_very_many_members_is_refused(void **state)
{
    (void)state;
    struct buf wide = {0};
    buf_puts(&wide, "{\"properties\":{");
    for (int i = 0; i < 100000; i++) buf_printf(&wide, "\"p%d\":{},", i);
    buf_puts(&wide, "\"p\":{}}}");
    assert_refused(wide.v, "too many members");
    buf_release(&wide);
}

/* llama.cpp makes rule names with regular expressions that recurse once a letter. */
static void a_name_of_very_many_letters_is_refused_before_it_exhausts_the_stack(void **state)
{
    (void)state;
    struct buf property = {0}, reference = {0};
    buf_puts(&property, "{\"properties\":{\"");
    buf_puts(&reference, "{\"$ref\":\"#/$defs/");
    for (int i = 0; i < 500000; i++) buf_puts(&property, "_");
    for (int i = 0; i < 500000; i++) buf_puts(&reference, "_");
    buf_puts(&property, "\":{\"type\":\"string\"}}}");
    buf_puts(&reference, "\"}");
    assert_refused(property.v, "longer than");
    assert_refused(reference.v, "cannot resolve $ref");
    buf_release(&property);
    buf_release(&reference);
}

/* llama.cpp compares each rule name with all others, and all characters of no alphabet look the same to it. */
static void names_that_are_slow_to_make_unique_are_refused(void **state)
{
    (void)state;
    struct buf many = {0}, alike = {0};
    buf_puts(&many, "{\"properties\":{");
    for (int i = 0; i < 4000; i++) buf_printf(&many, "%s\"p%d\":{}", i > 0 ? "," : "", i);
    buf_puts(&many, "}}");
    buf_puts(&alike, "{\"properties\":{");
    for (int i = 0; i < 900; i++) buf_printf(&alike, "%s\"\\u%04x\":{}", i > 0 ? "," : "", 0x4e00 + i);
    buf_puts(&alike, "}}");
    assert_refused(many.v, "becomes too large");
    assert_refused(alike.v, "becomes too large");
    buf_release(&many);
    buf_release(&alike);
}

static void put_properties(struct buf *out, int n, int letters, bool required)
{
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) buf_printf(out, "%s\"p%0*d\":{\"type\":\"string\"}", i > 0 ? "," : "", letters - 1, i);
    buf_puts(out, "},\"required\":[");
    for (int i = 0; required && i < n; i++) buf_printf(out, "%s\"p%0*d\"", i > 0 ? "," : "", letters - 1, i);
    buf_puts(out, "]}");
}

/* For each that may be left out llama.cpp makes a rule of each that follows, and copies the names behind that. */
static void an_object_of_very_many_optional_properties_is_refused_before_it_takes_minutes(void **state)
{
    (void)state;
    static const struct {
        int n, letters;
        bool required, refused;
    } rows[] = {{1000, 1000, false, true}, {200, 1000, false, true}, {1000, 20, false, true},
                {300, 20, false, false},   {100, 200, false, false}, {1000, 200, true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf schema = {0};
        hearth_error error = {0};
        put_properties(&schema, rows[i].n, rows[i].letters, rows[i].required);
        if (rows[i].refused) {
            assert_refused(schema.v, "becomes too large");
        } else {
            char *grammar = chat_schema_grammar(tree_of(schema.v), NULL, &error);
            assert_non_null(grammar);
            free(grammar);
        }
        buf_release(&schema);
    }
}

/* Each is counted where it is converted; a definition is, once. */
static void optional_properties_of_all_objects_are_counted(void **state)
{
    (void)state;
    struct buf alternatives = {0}, referred = {0};
    hearth_error error = {0};
    buf_puts(&alternatives, "{\"anyOf\":[");
    for (int i = 0; i < 3; i++) {
        if (i > 0) buf_puts(&alternatives, ",{\"items\":");
        put_properties(&alternatives, 330, 20 + i, false);
        if (i > 0) buf_puts(&alternatives, "}");
    }
    buf_puts(&alternatives, "]}");
    assert_refused(alternatives.v, "becomes too large");
    buf_puts(&referred, "{\"$defs\":{\"A\":");
    put_properties(&referred, 300, 20, false);
    buf_puts(&referred, "},\"allOf\":[{\"anyOf\":[");
    for (int i = 0; i < 100; i++) buf_printf(&referred, "%s{\"$ref\":\"#/$defs/A\"}", i > 0 ? "," : "");
    buf_puts(&referred, "]}]}");
    char *grammar = chat_schema_grammar(tree_of(referred.v), NULL, &error);
    assert_non_null(grammar);
    free(grammar);
    buf_release(&alternatives);
    buf_release(&referred);
}

/* Alternatives multiply, and references in parts of an allOf. */
static void combinations_without_number_are_refused(void **state)
{
    (void)state;
    struct buf choices = {0}, parts = {0};
    buf_puts(&choices, "{\"allOf\":[");
    for (int i = 0; i < 20; i++)
        buf_printf(&choices, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}", i > 0 ? "," : "", i,
                   i);
    buf_puts(&choices, "]}");
    assert_refused(choices.v, "too many alternatives");
    buf_puts(&parts, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 14; i++)
        buf_printf(&parts, "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},", i, i + 1,
                   i + 1);
    buf_puts(&parts, "\"d14\":{\"type\":\"object\"}}}");
    assert_refused(parts.v, "becomes too large");
    buf_release(&choices);
    buf_release(&parts);
}

static void references_in_circles_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"$defs\":{\"A\":{\"$ref\":\"#/$defs/A\"}},\"allOf\":[{\"$ref\":\"#/$defs/A\"}]}",
                   "go round in circles");
    assert_refused("{\"$defs\":{\"A\":{\"$ref\":\"#/$defs/B\"},\"B\":{\"$ref\":\"#/$defs/A\"}},"
                   "\"allOf\":[{\"anyOf\":[{\"$ref\":\"#/$defs/A\"}]}]}",
                   "goes round in circles");
    assert_refused("{\"$defs\":{\"A\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
                   "A\"},{\"type\":\"null\"}]}},\"items\":{\"$ref\":\"#/$defs/A\"}}",
                   "goes round in circles");
}

/* Each level twice as often as the one around it. */
static void a_type_that_is_named_twice_is_refused(void **state)
{
    (void)state;
    struct buf deep = {0};
    for (int i = 0; i < 30; i++) buf_puts(&deep, "{\"type\":[\"object\",\"object\"],\"properties\":{\"a\":");
    buf_puts(&deep, "{}");
    for (int i = 0; i < 30; i++) buf_puts(&deep, "}}");
    assert_refused(deep.v, "'object' twice");
    buf_release(&deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schema_becomes_a_grammar),
        cmocka_unit_test(a_schema_may_refer_to_itself),
        cmocka_unit_test(an_unusable_schema_is_refused_with_its_reason),
        cmocka_unit_test(character_classes_are_expanded_in_patterns_but_not_in_literals),
        cmocka_unit_test(patterns_are_of_values_and_not_of_their_text),
        cmocka_unit_test(a_pattern_without_anchors_is_found_anywhere),
        cmocka_unit_test(a_pattern_that_no_grammar_expresses_is_refused),
        cmocka_unit_test(lengths_hold_beside_a_pattern_of_one_repetition),
        cmocka_unit_test(formats_take_the_forms_that_are_in_use),
        cmocka_unit_test(numbers_keep_their_bounds),
        cmocka_unit_test(bounds_of_numbers_are_those_of_json),
        cmocka_unit_test(limits_beyond_what_a_grammar_repeats_are_kept),
        cmocka_unit_test(properties_are_named_like_keywords),
        cmocka_unit_test(references_of_every_kind_are_followed),
        cmocka_unit_test(schemas_that_are_true_or_false_are_taken),
        cmocka_unit_test(what_stands_beside_one_another_holds_together),
        cmocka_unit_test(what_is_free_is_still_json),
        cmocka_unit_test(keywords_that_are_not_enforced_are_those_of_the_documents_and_named_once),
        cmocka_unit_test(hostile_depth_is_refused_before_it_exhausts_the_stack),
        cmocka_unit_test(an_object_with_very_many_members_is_refused),
        cmocka_unit_test(a_name_of_very_many_letters_is_refused_before_it_exhausts_the_stack),
        cmocka_unit_test(names_that_are_slow_to_make_unique_are_refused),
        cmocka_unit_test(an_object_of_very_many_optional_properties_is_refused_before_it_takes_minutes),
        cmocka_unit_test(optional_properties_of_all_objects_are_counted),
        cmocka_unit_test(combinations_without_number_are_refused),
        cmocka_unit_test(references_in_circles_are_refused),
        cmocka_unit_test(a_type_that_is_named_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
