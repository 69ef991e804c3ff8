/* Patterns of JSON schemas, made into patterns of JSON text.
 *
 * llama.cpp makes a grammar of a pattern as if it were one of the text between a string's quotes. Characters that JSON
 * escapes (quotes, backslashes, control characters) have to be in the pattern as JSON writes them, and nothing in it
 * may match them unescaped. A schema's pattern is found anywhere in the string; llama.cpp wants all of it. Pure
 * functions; any thread. */
#ifndef CHAT_PATTERN_HPP
#define CHAT_PATTERN_HPP

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace chat
{

/* ---- Parsing the regular expressions of JSON schemas: those of ECMA-262, as far as a grammar can express them ---- */

/* A pattern that no grammar expresses, or that is no regular expression. */
struct pattern_fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* A set of characters: ranges of code points, in order and apart. */
class char_set
{
  public:
    struct range {
        uint32_t low, high;
    };

    char_set() = default;
    explicit char_set(std::vector<range> ranges); /* in any order */

    void add(uint32_t low, uint32_t high);
    void add_all(const char_set &other);
    char_set inverted() const;
    bool contains(uint32_t c) const;
    bool empty() const { return sorted.empty(); }
    const std::vector<range> &ranges() const { return sorted; }
    char_set within(uint32_t low, uint32_t high) const;

    static char_set all(); /* what a string may have */

  private:
    std::vector<range> sorted;
};

struct pattern_node {
    enum { SET, SEQUENCE, CHOICE, REPEAT, START, END } kind = SEQUENCE;
    char_set set;                    /* SET */
    std::vector<pattern_node> parts; /* SEQUENCE, CHOICE; REPEAT: one */
    uint32_t min = 0, max = 0;       /* REPEAT */
};

/* As many as one likes. */
const uint32_t no_maximum = UINT32_MAX;

/* Throws pattern_fault. */
pattern_node parse_pattern(const std::string &pattern);

/* ---- Patterns of JSON text ---- */

/* How many characters a string may have. */
struct lengths {
    uint32_t min = 0, max = no_maximum;

    bool any() const { return min == 0 && max == no_maximum; }
};

/* A pattern for llama.cpp that matches the JSON text of the strings in which `pattern` is found, of the given lengths.
 * `keeps_lengths`: false where strings of other lengths match too: they are kept where one part of the pattern alone is
 * repeated, or all its strings have such lengths. "": only the empty string matches. Throws pattern_fault. */
std::string json_text_pattern(const std::string &pattern, const lengths &wanted, bool &keeps_lengths);

/* GBNF of the texts that are all of what a pattern matches. Throws pattern_fault. */
std::string pattern_grammar(const std::string &pattern);

/* A pattern as the first one for any string of these lengths. */
std::string json_text_of_length(const lengths &wanted);

/* The regular expression of the values of a schema's "format", with anchors; NULL: there is none for that format. UUIDs
 * are llama.cpp's. */
const char *pattern_of_format(const std::string &format);

/* ---- Patterns of numbers ----
 * Regular expressions of the JSON numbers between two bounds, since llama.cpp's grammars know bounds of integers alone.
 * The numbers are written without an exponent and with 15 digits at most, which a double tells apart. */

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
