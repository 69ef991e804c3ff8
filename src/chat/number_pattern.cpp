/* Patterns of bounded numbers: see pattern.hpp. A number goes through digit by digit, beside the lower and the upper
 * bound. As long as its digits are a bound's, the next one may not leave the range. Once they are not, it is free. */
#include "chat/pattern.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <vector>

namespace chat
{

static const size_t max_digits = 15;

/* ---- Decimals ---- */

static void drop_zeros(decimal &number)
{
    number.whole.erase(0, std::min(number.whole.find_first_not_of('0'), number.whole.size()));
    number.fraction.erase(number.fraction.find_last_not_of('0') + 1);
}

static bool is_zero(const decimal &number)
{
    return number.whole.empty() && number.fraction.empty();
}

std::optional<decimal> read_decimal(const std::string &text)
{
    decimal number;
    bool is_fraction = false;
    size_t at = 0;
    if (text[at] == '-') number.is_negative = text[at++] == '-';
    for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; at++) {
        if (text[at] == '.')
            is_fraction = true;
        else
            (is_fraction ? number.fraction : number.whole) += text[at];
    }
    long power = at < text.size() ? std::strtol(text.c_str() + at + 1, nullptr, 10) : 0;
    drop_zeros(number);
    if (is_zero(number)) return decimal();
    if (std::labs(power) > 40) return std::nullopt;
    for (; power > 0; power--) {
        number.whole += number.fraction.empty() ? '0' : number.fraction[0];
        if (!number.fraction.empty()) number.fraction.erase(0, 1);
    }
    for (; power < 0; power++) {
        number.fraction.insert(0, 1, number.whole.empty() ? '0' : number.whole.back());
        if (!number.whole.empty()) number.whole.pop_back();
    }
    if (number.whole.size() > max_digits) return std::nullopt;
    size_t most = std::min(max_digits - number.whole.size(), max_digits - 1);
    number.is_cut = number.fraction.size() > most;
    if (number.is_cut) number.fraction.resize(most);
    drop_zeros(number);
    return number;
}

/* ---- Pieces ---- */

using choices = std::vector<std::string>;

static std::string any_of(const choices &all)
{
    std::string text;
    for (const auto &one : all) text += (text.empty() ? "" : "|") + one;
    return all.size() == 1 ? text : "(" + text + ")";
}

static std::string digits_between(char low, char high)
{
    if (low == high) return std::string(1, low);
    return std::string("[") + low + "-" + high + "]";
}

/* ---- Whole parts ---- */

/* Whether all digits from `at` on are this one: then the rest of a bound holds whatever follows. */
static bool is_rest_of(const std::string &digits, size_t at, char digit)
{
    return digits.find_first_not_of(digit, at) == std::string::npos;
}

/* The pattern of the digits behind the first `at`, of whole parts of the same length. is_low, is_high: the first `at`
 * digits are that bound's. */
static std::string whole_digits(const std::string &low, const std::string &high, size_t at, bool is_low, bool is_high)
{
    if (at == low.size()) return "";
    is_low = is_low && !is_rest_of(low, at, '0');
    is_high = is_high && !is_rest_of(high, at, '9');
    if (!is_low && !is_high) return "[0-9]{" + std::to_string(low.size() - at) + "}";
    char first = is_low ? low[at] : '0', last = is_high ? high[at] : '9';
    if (first == last) return first + whole_digits(low, high, at + 1, is_low, is_high);
    choices all;
    bool cuts_low = is_low && !is_rest_of(low, at + 1, '0'), cuts_high = is_high && !is_rest_of(high, at + 1, '9');
    if (cuts_low) all.push_back(first + whole_digits(low, high, at + 1, true, false));
    char from = cuts_low ? static_cast<char>(first + 1) : first, to = cuts_high ? static_cast<char>(last - 1) : last;
    if (from <= to) all.push_back(digits_between(from, to) + whole_digits(low, high, at + 1, false, false));
    if (cuts_high) all.push_back(last + whole_digits(low, high, at + 1, false, true));
    return any_of(all);
}

static std::string plus_one(std::string digits)
{
    size_t i = digits.size();
    while (i > 0 && digits[i - 1] == '9') digits[--i] = '0';
    if (i == 0) return "1" + digits;
    digits[i - 1]++;
    return digits;
}

static std::string minus_one(std::string digits)
{
    size_t i = digits.size();
    while (i > 0 && digits[i - 1] == '0') digits[--i] = '9';
    if (i > 0) digits[i - 1]--;
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
    return digits;
}

/* ---- Fractions ---- */

/* The range of a fraction. `low` and `high` are digits behind the point; a bound that does not hold is not tight. */
struct fractions {
    std::string low, high;
    bool is_low, is_high, excludes_low, excludes_high;
    size_t most; /* digits */
};

static char digit_of(const std::string &digits, size_t at)
{
    return at < digits.size() ? digits[at] : '0';
}

/* Whether the number may end behind `at` digits. */
static bool may_end(const fractions &range, size_t at, bool is_low, bool is_high)
{
    if (is_low && (at < range.low.size() || range.excludes_low)) return false;
    return !is_high || at < range.high.size() || !range.excludes_high;
}

/* The pattern of the digits behind the first `at`, one at least; "": there can be none. The caller makes them optional
 * where the number may end before them. */
static std::string fraction_digits(const fractions &range, size_t at, bool is_low, bool is_high)
{
    if (at == range.most) return "";
    if (is_low && at >= range.low.size() && !range.excludes_low) is_low = false; /* it is kept, whatever follows */
    if (!is_low && !is_high) return "[0-9]{1," + std::to_string(range.most - at) + "}";
    if (!is_low && at >= range.high.size() && !range.excludes_high)
        return "0{1," + std::to_string(range.most - at) + "}";
    char first = is_low ? digit_of(range.low, at) : '0', last = is_high ? digit_of(range.high, at) : '9';
    choices all;
    auto add = [&](char from, char to, bool low, bool high) {
        std::string digit = digits_between(from, to), more = fraction_digits(range, at + 1, low, high);
        bool ends = may_end(range, at + 1, low, high);
        if (ends) all.push_back(more.empty() ? digit : digit + "(" + more + ")?");
        if (!ends && !more.empty()) all.push_back(digit + more);
    };
    if (first == last) {
        add(first, last, is_low, is_high);
    } else if (first < last) {
        if (is_low) add(first, first, true, false);
        char from = is_low ? static_cast<char>(first + 1) : first, to = is_high ? static_cast<char>(last - 1) : last;
        if (from <= to) add(from, to, false, false);
        if (is_high) add(last, last, false, true);
    }
    return all.empty() ? "" : any_of(all);
}

/* A whole part and its fractions; nothing where there are none. */
static void add_whole(choices &all, const std::string &whole, const fractions &range)
{
    std::string more = fraction_digits(range, 0, range.is_low, range.is_high);
    bool ends = may_end(range, 0, range.is_low, range.is_high);
    if (!ends && more.empty()) return;
    all.push_back(more.empty() ? whole : whole + "(\\." + more + ")" + (ends ? "?" : ""));
}

/* ---- Ranges ---- */

/* Digits that a fraction may have behind a whole part. */
static size_t most_behind(const std::string &whole, const number_bounds &bounds)
{
    size_t taken = std::max<size_t>(whole.size(), 1);
    return std::min(bounds.fraction_digits, taken < max_digits ? max_digits - taken : 0);
}

static std::string spelt(const std::string &whole)
{
    return whole.empty() ? "0" : whole;
}

/* Whether one whole part is below another. */
static bool is_below(const std::string &a, const std::string &b)
{
    return a.size() != b.size() ? a.size() < b.size() : a < b;
}

/* Numbers without a sign. */
static void add_magnitudes(choices &all, const decimal &low, bool excludes_low, const std::optional<decimal> &high,
                           const number_bounds &bounds)
{
    bool is_one = high && high->whole == low.whole;
    std::string last = high ? high->whole : std::string(max_digits, '9');
    if (high && is_below(high->whole, low.whole)) return;
    add_whole(all, spelt(low.whole),
              {low.fraction, is_one ? high->fraction : "", true, is_one, excludes_low, bounds.excludes_high,
               most_behind(low.whole, bounds)});
    if (is_one) return;
    std::string from = plus_one(low.whole.empty() ? "0" : low.whole), to = high ? minus_one(last) : last;
    size_t least = std::max<size_t>(from.size(), 1), most = std::max<size_t>(to.size(), 1);
    /* The whole parts between, each with any fraction. */
    for (size_t n = least; n <= most && !is_below(to, from); n++) {
        std::string begin = n == least ? spelt(from) : "1" + std::string(n - 1, '0');
        std::string end = n == most ? spelt(to) : std::string(n, '9');
        add_whole(all, whole_digits(begin, end, 0, true, true),
                  {"", "", false, false, false, false, most_behind(begin, bounds)});
    }
    if (high)
        add_whole(all, spelt(high->whole),
                  {"", high->fraction, false, true, false, bounds.excludes_high, most_behind(high->whole, bounds)});
}

/* Those of the numbers that are not below zero; without zero itself where `excludes_zero`. */
static choices not_negative(const number_bounds &bounds, bool excludes_zero)
{
    choices all;
    if (bounds.high && bounds.high->is_negative) return all;
    bool from_zero = !bounds.low || bounds.low->is_negative || is_zero(*bounds.low);
    bool excludes =
        from_zero ? excludes_zero || (bounds.low && is_zero(*bounds.low) && bounds.excludes_low) : bounds.excludes_low;
    add_magnitudes(all, from_zero ? decimal() : *bounds.low, excludes, bounds.high, bounds);
    return all;
}

std::string number_pattern(const number_bounds &bounds)
{
    number_bounds turned = bounds; /* those of numbers below zero, without their sign */
    std::swap(turned.low, turned.high);
    std::swap(turned.excludes_low, turned.excludes_high);
    for (auto *bound : {&turned.low, &turned.high})
        if (*bound) (*bound)->is_negative = !(*bound)->is_negative && !is_zero(**bound);
    choices all = not_negative(bounds, false), negative = not_negative(turned, true);
    if (!negative.empty()) all.push_back("-" + any_of(negative));
    return all.empty() ? "" : any_of(all);
}

} // namespace chat
