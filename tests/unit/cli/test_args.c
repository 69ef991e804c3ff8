/* Parsing command lines by a table of options, and the messages about mistakes. */
#include "base/nearest.h"
#include "cli/args.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A command with one option of each kind and an operand. */
struct fixture {
    const char *port, *path;
    struct args_list sets;
    struct args_option options[2];
    struct args_spec spec;
};

static struct fixture *fixture(void **state)
{
    return *state;
}

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){
        .options = {{"port", "P", "the port", .text = &f.port}, {"set", "K=V", "a key", .list = &f.sets}}};
    f.spec = (struct args_spec){
        .command = "hearth try",
        .about = "Tries.",
        .options = f.options,
        .n_options = COUNT(f.options),
        .operand = "PATH",
        .operand_value = &f.path,
        .examples = "  hearth try this\n",
    };
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    args_release(&fixture(state)->sets);
    return 0;
}

/* Parses words and expects them to be right. */
#define PARSE(f, ...)                                                                                                  \
    do {                                                                                                               \
        char *words[] = {__VA_ARGS__};                                                                                 \
        bool help;                                                                                                     \
        hearth_error error;                                                                                            \
        assert_int_equal(args_parse(&(f)->spec, (int)COUNT(words), words, &help, &error), 0);                          \
        assert_false(help);                                                                                            \
    } while (0)

/* Parses words and expects them to be refused with exactly this message. */
#define REFUSE(f, message_, ...)                                                                                       \
    do {                                                                                                               \
        char *words[] = {__VA_ARGS__};                                                                                 \
        bool help;                                                                                                     \
        hearth_error error;                                                                                            \
        assert_int_equal(args_parse(&(f)->spec, (int)COUNT(words), words, &help, &error), HEARTH_INVALID);             \
        assert_string_equal(error.message, message_);                                                                  \
    } while (0)

static void a_value_follows_its_option_or_an_equals_sign(void **state)
{
    struct fixture *f = fixture(state);
    PARSE(f, "--port", "1", "file");
    assert_string_equal(f->port, "1");
    assert_string_equal(f->path, "file");
    f->path = NULL;
    PARSE(f, "file", "--port=2");
    assert_string_equal(f->port, "2");
    assert_string_equal(f->path, "file");
}

static void of_an_option_given_twice_the_last_holds_and_a_list_keeps_all(void **state)
{
    struct fixture *f = fixture(state);
    PARSE(f, "--port", "1", "--set", "a=1", "--port", "2", "--set=b=2", "file");
    assert_string_equal(f->port, "2");
    assert_int_equal(f->sets.len, 2);
    assert_string_equal(f->sets.v[0], "a=1");
    assert_string_equal(f->sets.v[1], "b=2");
}

static void a_value_may_be_empty_or_begin_with_a_dash(void **state)
{
    struct fixture *f = fixture(state);
    PARSE(f, "--port=", "--set", "--odd", "-");
    assert_string_equal(f->port, "");
    assert_string_equal(f->sets.v[0], "--odd");
    assert_string_equal(f->path, "-");
}

static void after_two_dashes_everything_is_an_operand(void **state)
{
    struct fixture *f = fixture(state);
    PARSE(f, "--port", "1", "--", "--help");
    assert_string_equal(f->path, "--help");
}

static void an_unknown_option_is_told_the_nearest_one(void **state)
{
    struct fixture *f = fixture(state);
    REFUSE(f, "unknown option --prot; did you mean --port?", "file", "--prot", "1");
    REFUSE(f, "unknown option --prt; did you mean --port?", "--prt=1");
    REFUSE(f, "unknown option --nonsense; see hearth try --help", "--nonsense");
    REFUSE(f, "unknown option -p; options begin with two dashes", "-p", "1");
}

static void a_missing_value_is_named(void **state)
{
    REFUSE(fixture(state), "--port needs a value: --port P", "file", "--port");
}

static void the_operand_must_be_given_exactly_once(void **state)
{
    struct fixture *f = fixture(state);
    REFUSE(f, "PATH is missing: hearth try PATH", "--port", "1");
    REFUSE(f, "one PATH is enough: 'two' is one too many", "one", "two");
}

static void a_second_operand_may_follow(void **state)
{
    struct fixture *f = fixture(state);
    const char *second = NULL;
    f->spec.second = "WORDS";
    f->spec.second_value = &second;
    PARSE(f, "a", "--port", "5");
    assert_null(second);
    f->path = NULL;
    PARSE(f, "a", "--port", "5", "b c");
    assert_string_equal(f->path, "a");
    assert_string_equal(second, "b c");
    f->path = second = NULL;
    REFUSE(f, "one PATH is enough: 'd' is one too many", "a", "b", "d");
}

static void an_optional_operand_may_be_left_out(void **state)
{
    struct fixture *f = fixture(state);
    f->spec.operand_is_optional = true;
    PARSE(f, "--port", "1");
    assert_null(f->path);
    PARSE(f, "one");
    assert_string_equal(f->path, "one");
}

static void a_command_without_operand_refuses_one(void **state)
{
    struct fixture *f = fixture(state);
    f->spec.operand = NULL;
    REFUSE(f, "unexpected argument 'x'; see hearth try --help", "x");
}

static void help_is_given_whatever_else_is_wrong(void **state)
{
    struct fixture *f = fixture(state);
    char *words[] = {"--nonsense", "-h"};
    bool help;
    hearth_error error;
    assert_int_equal(args_parse(&f->spec, 2, words, &help, &error), 0);
    assert_true(help);
}

static void the_status_is_2_for_a_mistake_and_0_for_help(void **state)
{
    struct fixture *f = fixture(state);
    char *wrong[] = {"--nonsense"}, *help[] = {"--help"}, *right[] = {"file"};
    int status = -1;
    assert_false(args_read(&f->spec, 1, wrong, &status));
    assert_int_equal(status, EXIT_USAGE);
    assert_false(args_read(&f->spec, 1, help, &status));
    assert_int_equal(status, EXIT_FINE);
    assert_true(args_read(&f->spec, 1, right, &status));
}

static void the_nearest_name_is_near(void **state)
{
    (void)state;
    static const char *const names[] = {"serve", "chat", "model", "config", "version"};
    assert_string_equal(nearest_name("sevre", names, COUNT(names)), "serve");
    assert_string_equal(nearest_name("models", names, COUNT(names)), "model");
    assert_string_equal(nearest_name("conifg", names, COUNT(names)), "config");
    assert_string_equal(nearest_name("chat", names, COUNT(names)), "chat");
    assert_null(nearest_name("frobnicate", names, COUNT(names)));
    assert_null(nearest_name("", names, COUNT(names)));
    assert_null(nearest_name("x", NULL, 0));
}

static void a_very_long_word_is_near_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"serve"};
    char word[5000];
    memset(word, 's', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    assert_null(nearest_name(word, names, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_value_follows_its_option_or_an_equals_sign),
        TEST(of_an_option_given_twice_the_last_holds_and_a_list_keeps_all),
        TEST(a_value_may_be_empty_or_begin_with_a_dash),
        TEST(after_two_dashes_everything_is_an_operand),
        TEST(an_unknown_option_is_told_the_nearest_one),
        TEST(a_missing_value_is_named),
        TEST(the_operand_must_be_given_exactly_once),
        TEST(a_second_operand_may_follow),
        TEST(an_optional_operand_may_be_left_out),
        TEST(a_command_without_operand_refuses_one),
        TEST(help_is_given_whatever_else_is_wrong),
        TEST(the_status_is_2_for_a_mistake_and_0_for_help),
        TEST(the_nearest_name_is_near),
        TEST(a_very_long_word_is_near_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
