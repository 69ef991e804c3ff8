/* Wide numbers as marked strings: see wide.hpp. */
#include "chat/wide.hpp"

extern "C" {
#include "base/json_text.h"
}

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>

namespace chat
{

/* Behind the number. */
static const char end_mark = 'z';

static const std::string &mark()
{
    static const std::string text = json_text_name_of_wide();
    return text;
}

std::string marked_number(const std::string &number)
{
    return mark() + number + end_mark;
}

bool is_uint64(const std::string &number)
{
    if (number.find_first_not_of("0123456789") != std::string::npos) return false;
    errno = 0;
    std::strtoull(number.c_str(), nullptr, 10);
    return errno == 0;
}

std::string mark_wide_numbers(const std::string &json)
{
    std::string marked;
    const char *begin = json.data(), *copied = begin, *end = begin + json.size();
    struct json_piece piece;
    for (const char *at = begin; json_text_next(&at, end, &piece);) {
        std::string number(piece.text, piece.is_wide ? piece.len : 0);
        if (number.empty() || is_uint64(number)) continue;
        marked.append(copied, piece.text);
        marked.append("\"").append(marked_number(number)).append("\"");
        copied = at;
    }
    return marked.append(copied, end);
}

/* Whether the value is such a string, and then the number. `integer` is a parameter of the template so that an engine
 * without numbers of any length compiles, too. */
template <typename integer> static bool give_number(jinja::value &value)
{
    if constexpr (std::is_constructible_v<integer, const std::string &>) {
        std::string text = jinja::is_val<jinja::value_string>(value) ? value->val_str.str() : "";
        size_t begin = mark().size();
        if (text.size() <= begin + 1 || text.compare(0, begin, mark()) != 0 || text.back() != end_mark) return false;
        value = std::make_shared<integer>(text.substr(begin, text.size() - begin - 1));
        return true;
    }
    return false;
}

void give_numbers(const jinja::value &tree)
{
    for (auto &item : tree->val_arr)
        if (!give_number<jinja::value_int_t>(item)) give_numbers(item);
    for (auto &[key, member] : tree->val_obj) {
        if (give_number<jinja::value_int_t>(member))
            tree->at(key) = member; /* llama.cpp keeps a second reference */
        else
            give_numbers(member);
    }
}

/* The quotes that stand before one end of a marked string and behind the other: none, those of JSON or Python, or those
 * of JSON in a string of JSON. */
static size_t quotes_around(const std::string &text, size_t from, size_t to)
{
    for (const std::string quotes : {"\\\"", "\"", "'"}) {
        size_t n = quotes.size();
        if (from >= n && text.compare(from - n, n, quotes) == 0 && text.compare(to, n, quotes) == 0) return n;
    }
    return 0;
}

/* `print` gives what stands in place of a number. */
static void replace_marked(std::string &text, const std::function<std::string(const std::string &)> &print)
{
    size_t at = text.find(mark());
    if (at == std::string::npos) return;
    std::string replaced;
    size_t copied = 0;
    for (; at != std::string::npos; at = text.find(mark(), copied)) {
        size_t number = at + mark().size(), end = text.find(end_mark, number);
        if (end == std::string::npos) break; /* a template cut it */
        size_t quotes = quotes_around(text, at, end + 1);
        replaced.append(text, copied, at - quotes - copied).append(print(text.substr(number, end - number)));
        copied = end + 1 + quotes;
    }
    text = replaced.append(text, copied, std::string::npos);
}

void restore_numbers(std::string &printed)
{
    replace_marked(printed, [](const std::string &number) { return number; });
}

/* Through text: llama.cpp looks members up in linear time. */
void unmark_numbers(common_json &value)
{
    std::string text = value.dump(), marked = text;
    const double most = std::numeric_limits<double>::max();
    replace_marked(text, [&](const std::string &number) {
        return common_json(std::clamp(std::strtod(number.c_str(), nullptr), -most, most)).dump();
    });
    if (text != marked) value = common_json::parse(text);
}

} // namespace chat
