/* Patterns of JSON schemas, made into patterns of JSON text.
 *
 * llama.cpp makes a grammar of a pattern as if it were one of the text between a string's quotes. What JSON writes
 * otherwise (quotes, backslashes, control characters) has to be in the pattern as JSON writes it, and nothing in it may
 * match them unescaped. A schema's pattern is found anywhere in the string; llama.cpp wants all of it. Pure functions;
 * any thread. */
#ifndef CHAT_PATTERN_HPP
#define CHAT_PATTERN_HPP

#include "chat/pattern_parse.hpp"

#include <string>

namespace chat
{

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

} // namespace chat

#endif
