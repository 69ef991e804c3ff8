/* Occurrences of a set of words in a text, compared with a naive search at every offset; and that no choice of words
 * takes long. */
#include "chat/words.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
}

#include "chat/fields.hpp"

#include <random>

namespace
{

std::vector<bool> naive(const std::string &text, const std::set<std::string> &words)
{
    std::vector<bool> marks(text.size());
    for (const auto &word : words)
        for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
            for (size_t i = 0; i < word.size(); i++) marks[at + i] = true;
    return marks;
}

std::string some(std::mt19937 &random, size_t len)
{
    std::string text;
    for (size_t i = 0; i < len; i++) text += static_cast<char>('a' + random() % 3);
    return text;
}

void what_is_marked_is_what_a_search_for_each_word_finds(void **)
{
    std::mt19937 random(7);
    for (int round = 0; round < 3000; round++) {
        std::set<std::string> words;
        for (size_t i = random() % 6; i > 0; i--) words.insert(some(random, 1 + random() % 6));
        std::string text = some(random, random() % 60);
        std::vector<bool> marks(text.size());
        chat::mark_words(marks, text, words);
        assert_true(marks == naive(text, words));
    }
}

void all_bytes_are_words_like_others(void **)
{
    const std::string text("\x00\xff<\x80\xff", 5);
    std::vector<bool> marks(text.size());
    chat::mark_words(marks, text, {std::string("\x00", 1), "\xff<"});
    assert_true(marks == std::vector<bool>({true, true, true, false, false}));
}

/* Every offset begins like every word, and every word like every other: comparing each pair of bytes would take hours.
 */
void words_that_are_alike_take_no_longer(void **)
{
    std::set<std::string> words;
    for (size_t i = 1; i < 1000; i++) words.insert(std::string(i, '<') + "|");
    words.insert(std::string(900000, '<') + "|");
    std::string text(3000000, '<');
    std::vector<bool> marks(text.size());
    chat::mark_words(marks, text, words);
    assert_true(marks == std::vector<bool>(text.size()));
    text += "|";
    marks.resize(text.size());
    chat::mark_words(marks, text, words);
    assert_true(marks == [&] {
        std::vector<bool> end(text.size());
        std::fill(end.end() - 900001, end.end(), true);
        return end;
    }());
}

void words_too_long_together_are_refused(void **)
{
    std::vector<bool> marks(1);
    bool refused = false;
    try {
        chat::mark_words(marks, "a", {std::string(chat::words_max + 1, 'a')});
    } catch (const chat::refusal &exception) {
        refused = exception.code == HEARTH_TOO_LONG && exception.message.find("2097152") != std::string::npos;
    }
    assert_true(refused);
}

void the_last_occurrence_is_found_from_behind(void **)
{
    assert_int_equal(chat::find_last("abcabcab", "abc", 8), 3);
    assert_int_equal(chat::find_last("abcabcab", "abc", 5), 0);
    assert_int_equal(chat::find_last("abcabcab", "abc", 6), 3);
    assert_true(chat::find_last("abcabcab", "cb", 8) == std::string::npos);
    std::string many(2000000, 'a'), half = std::string(1000000, 'a') + "b";
    assert_true(chat::find_last(many, half, many.size()) == std::string::npos);
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_marked_is_what_a_search_for_each_word_finds),
        cmocka_unit_test(all_bytes_are_words_like_others),
        cmocka_unit_test(words_that_are_alike_take_no_longer),
        cmocka_unit_test(words_too_long_together_are_refused),
        cmocka_unit_test(the_last_occurrence_is_found_from_behind),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
