/* Grammars of JSON schemas, and schemas that cannot be converted. */
#include "support.h"

static void a_schema_becomes_a_grammar(void **state)
{
    (void)state;
    hearth_error error = {0};
    char *grammar = chat_schema_grammar("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}},"
                                        "\"$defs\":{\"n\":{\"type\":\"integer\"}}}",
                                        &error);
    assert_non_null(grammar);
    assert_non_null(strstr(grammar, "root ::= "));
    assert_non_null(strstr(grammar, "\\\"a\\\""));
    free(grammar);
}

static void a_schema_may_refer_to_itself(void **state)
{
    (void)state;
    hearth_error error = {0};
    char *grammar = chat_schema_grammar("{\"$ref\":\"#/$defs/tree\",\"$defs\":{\"tree\":{\"type\":\"object\","
                                        "\"properties\":{\"left\":{\"$ref\":\"#/$defs/tree\"}}}}}",
                                        &error);
    assert_non_null(grammar);
    free(grammar);
}

static void assert_refused(const char *schema, const char *part_of_message)
{
    hearth_error error = {0};
    assert_null(chat_schema_grammar(schema, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_string_equal(error.param, "json_schema");
    if (strstr(error.message, part_of_message) == NULL) fail_msg("%s: %s", schema, error.message);
    assert_null(strchr(error.message, '\n'));
}

static void an_unusable_schema_is_refused_with_its_reason(void **state)
{
    (void)state;
    assert_refused("{", "is not valid JSON");
    assert_refused("[]", "must be an object");
    assert_refused("3", "must be an object");
    assert_refused("{\"type\":\"colour\"}", "colour");
    assert_refused("{\"$ref\":\"#/$defs/missing\"}", "cannot resolve $ref #/$defs/missing");
    assert_refused("{\"$ref\":\"https://example.org/schema\"}", "unsupported $ref");
    assert_refused("{\"$ref\":3}", "$ref must be a string");
    assert_refused("{\"properties\":{\"a\":\"text\"}}", "schema must be an object");
    assert_refused("{\"type\":\"string\",\"minLength\":\"x\"}", "minLength");
    assert_refused("{\"type\":\"string\",\"pattern\":\"^(?=a)b$\"}", "pattern that cannot be kept");
    assert_refused("{\"$defs\":{\"a b\":{\"type\":\"null\"},\"a_b\":{\"type\":\"null\"}}}",
                   "differ only in punctuation");
}

static void assert_same_grammar(const char *schema, const char *other)
{
    char *a = chat_schema_grammar(schema, NULL), *b = chat_schema_grammar(other, NULL);
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
    char *kept = chat_schema_grammar("{\"const\":{\"pattern\":\"\\\\d\"}}", NULL);
    assert_non_null(kept);
    assert_null(strstr(kept, "[0-9]"));
    free(kept);
}

static void hostile_depth_is_refused_before_it_exhausts_the_stack(void **state)
{
    (void)state;
    struct buf nested = {0}, chained = {0};
    for (int i = 0; i < 100000; i++) buf_puts(&nested, "{\"items\":");
    assert_refused(nested.v, "nested too deeply");
    buf_puts(&chained, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 3000; i++) buf_printf(&chained, "\"d%d\":{\"$ref\":\"#/$defs/d%d\"},", i, i + 1);
    buf_puts(&chained, "\"d3000\":{}}}");
    assert_refused(chained.v, "refers too often");
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
    assert_refused(reference.v, "longer than");
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
    assert_refused(many.v, "too many names");
    assert_refused(alike.v, "too many names");
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
            assert_refused(schema.v, "optional properties");
        } else {
            char *grammar = chat_schema_grammar(schema.v, &error);
            assert_non_null(grammar);
            free(grammar);
        }
        buf_release(&schema);
    }
}

/* What llama.cpp makes one object of, or reads again and again. */
static void properties_that_come_together_are_counted_together(void **state)
{
    (void)state;
    struct buf alternatives = {0}, referred = {0}, parts = {0};
    hearth_error error = {0};
    buf_puts(&alternatives, "{\"allOf\":[{\"anyOf\":[");
    for (int i = 0; i < 3; i++) {
        if (i > 0) buf_puts(&alternatives, ",");
        put_properties(&alternatives, 300, 20, false);
    }
    buf_puts(&alternatives, "]}]}");
    assert_refused(alternatives.v, "optional properties");
    buf_puts(&referred, "{\"$defs\":{\"A\":");
    put_properties(&referred, 300, 20, false);
    buf_puts(&referred, "},\"allOf\":[{\"anyOf\":[");
    for (int i = 0; i < 100; i++) buf_printf(&referred, "%s{\"$ref\":\"#/$defs/A\"}", i > 0 ? "," : "");
    buf_puts(&referred, "]}]}");
    assert_refused(referred.v, "optional properties");
    buf_puts(&parts, "{\"allOf\":[");
    put_properties(&parts, 900, 20, false); /* required there, whatever it says */
    buf_puts(&parts, "]}");
    char *grammar = chat_schema_grammar(parts.v, &error);
    assert_non_null(grammar);
    free(grammar);
    buf_release(&alternatives);
    buf_release(&referred);
    buf_release(&parts);
}

static void references_in_circles_are_refused_in_an_all_of(void **state)
{
    (void)state;
    assert_refused("{\"$defs\":{\"A\":{\"$ref\":\"#/$defs/A\"}},\"allOf\":[{\"$ref\":\"#/$defs/A\"}]}",
                   "too many others");
    assert_refused("{\"$defs\":{\"A\":{\"$ref\":\"#/$defs/B\"},\"B\":{\"$ref\":\"#/$defs/A\"}},"
                   "\"allOf\":[{\"anyOf\":[{\"$ref\":\"#/$defs/A\"}]}]}",
                   "too many others");
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
        cmocka_unit_test(an_object_with_very_many_members_is_refused),
        cmocka_unit_test(a_name_of_very_many_letters_is_refused_before_it_exhausts_the_stack),
        cmocka_unit_test(names_that_are_slow_to_make_unique_are_refused),
        cmocka_unit_test(an_object_of_very_many_optional_properties_is_refused_before_it_takes_minutes),
        cmocka_unit_test(properties_that_come_together_are_counted_together),
        cmocka_unit_test(references_in_circles_are_refused_in_an_all_of),
        cmocka_unit_test(a_type_that_is_named_twice_is_refused),
        cmocka_unit_test(hostile_depth_is_refused_before_it_exhausts_the_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
