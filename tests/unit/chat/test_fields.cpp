/* Trees are read as llama.cpp reads the text that they were read from: random values, and the bounds. */
#include "json_trees.h"

#include "chat/fields.hpp"
#include "chat/wide.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include <functional>
#include <random>

using namespace chat;

namespace
{

class writer
{
  public:
    explicit writer(unsigned seed) : random(seed) {}

    std::string value(int depth)
    {
        static const char *const numbers[] = {"0",
                                              "-0",
                                              "-0.0",
                                              "7",
                                              "-7",
                                              "1.0",
                                              "1e5",
                                              "1E+2",
                                              "0.1",
                                              "2.50",
                                              "5e-324",
                                              "1e16",
                                              "1e308",
                                              "123456789012345678",
                                              "9223372036854775807",
                                              "-9223372036854775808",
                                              "9223372036854775808",
                                              "-9223372036854775809",
                                              "18446744073709551615",
                                              "18446744073709551616",
                                              "123456789012345678901234567890",
                                              "100000000000000000000.0"};
        static const char *const words[] = {"true", "false", "null"};
        switch (below(depth > 4 ? 4 : 6)) {
        case 0:
            return words[below(3)];
        case 1:
        case 2:
            return numbers[below(sizeof numbers / sizeof *numbers)];
        case 3:
            return text();
        case 4:
            return list(depth, '[', ']', false);
        default:
            return list(depth, '{', '}', true);
        }
    }

  private:
    unsigned below(size_t n) { return static_cast<unsigned>(random() % n); }

    std::string text()
    {
        static const char *const texts[] = {"\"\"",
                                            "\"a\"",
                                            "\"é\"",
                                            "\"\\u0000\"",
                                            "\"\\ud83d\\ude00\"",
                                            "\"\\\"\\\\\"",
                                            "\"\\u007f\\u2028\\n\"",
                                            "\"1e999\"",
                                            "\"\\/\"",
                                            "\"</s>\""};
        return texts[below(sizeof texts / sizeof *texts)];
    }

    /* Names are given twice now and then. */
    std::string list(int depth, char opening, char closing, bool named)
    {
        static const char *const names[] = {"\"a\":", "\"b\":", "\"\":", "\"é\":", "\"\\\"\":"};
        std::string all(1, opening);
        for (unsigned i = 0, n = below(5); i < n; i++)
            all += (i > 0 ? "," : "") + std::string(named ? names[below(5)] : "") + value(depth + 1);
        return all + closing;
    }

    std::mt19937 random;
};

std::string refusal_of(const std::function<void()> &act)
{
    try {
        act();
        return "";
    } catch (const refusal &refused) {
        return refused.param + ": " + refused.message;
    }
}

std::string nested(size_t depth)
{
    return std::string(depth, '[') + std::string(depth, ']');
}

std::string wide_object(size_t members)
{
    std::string all;
    for (size_t i = 0; i < members; i++) all += (i > 0 ? ",\"" : "{\"") + std::to_string(i) + "\":1";
    return all + "}";
}

} // namespace

static void a_tree_is_read_like_its_text(void **)
{
    writer write(1);
    for (int i = 0; i < 20000; i++) {
        std::string text = write.value(0);
        const json_t *tree = tree_of(text.c_str());
        assert_non_null(tree);
        std::string marked = read_tree(tree, wide_numbers::marked, "it").dump();
        assert_string_equal(marked.c_str(), parse_json(mark_wide_numbers(text), "it").dump().c_str());
        std::string nearest = read_tree(tree, wide_numbers::nearest, "it").dump();
        assert_string_equal(nearest.c_str(), parse_json(text, "it").dump().c_str());
    }
}

static void a_tree_is_refused_like_its_text(void **)
{
    const std::string refused[] = {nested(129), wide_object(4097), "{\"a\":" + nested(128) + "}", "[1e999]",
                                   "-1" + std::string(400, '0')};
    for (const auto &text : refused) {
        const json_t *tree = tree_of(text.c_str());
        std::string reason = refusal_of([&] { parse_json(text, "it"); });
        assert_string_not_equal(reason.c_str(), "");
        assert_string_equal(refusal_of([&] { read_tree(tree, wide_numbers::nearest, "it"); }).c_str(), reason.c_str());
    }
    for (const auto &text : {nested(128), wide_object(4096), std::string("[1e999]")})
        assert_string_equal(refusal_of([&] { read_tree(tree_of(text.c_str()), wide_numbers::marked, "it"); }).c_str(),
                            "");
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_is_read_like_its_text),
        cmocka_unit_test(a_tree_is_refused_like_its_text),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
