/* Regular expressions of the JSON numbers between two bounds, since llama.cpp's grammars know bounds of integers alone.
 * The numbers are written without an exponent and with 15 digits at most, which a double tells apart. Pure; any thread.
 */
#ifndef CHAT_NUMBER_PATTERN_HPP
#define CHAT_NUMBER_PATTERN_HPP

#include <optional>
#include <string>

namespace chat
{

/* A decimal number: digits before and after the point, without zeros that mean nothing; zero is "" and "". */
struct decimal {
    bool is_negative = false, is_cut = false; /* is_cut: it has further digits, so that it lies nearer to zero */
    std::string whole, fraction;
};

/* Reads a JSON number, its first 15 digits. Empty: it has more before the point. */
std::optional<decimal> read_decimal(const std::string &text);

struct number_bounds {
    std::optional<decimal> low, high;
    bool excludes_low = false, excludes_high = false;
    size_t fraction_digits = 15; /* at most */
};

/* Begins the pattern of a string in a lowered schema that is a number: mend_grammar() takes its quotes. Patterns of
 * clients spell control characters as JSON does. */
#define NUMBER_MARK "\x01"

/* Without anchors; "": there is no such number. */
std::string number_pattern(const number_bounds &bounds);

} // namespace chat

#endif
