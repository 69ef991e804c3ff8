/* Carries numbers that llama.cpp's JSON cannot hold through a template: integers beyond 64 bits and reals beyond a
 * double would reach the model as other numbers, or not at all.
 *
 * Such a number is a string in llama.cpp's JSON: a mark, the number as it was written, and an end. The mark is random
 * and belongs to the process, so that no text from outside can have it. The template gets a number that prints as it
 * was written, where its engine has such numbers (patches/README.md, 0007). Where it has none, what the template prints
 * of the string, with or without quotes, becomes the number again. Pure functions; any thread. */
#ifndef CHAT_WIDE_HPP
#define CHAT_WIDE_HPP

#include "jinja/value.h"
#include "json.h"

#include <string>

namespace chat
{

/* The marked string of a number, and whether llama.cpp's JSON can hold it nevertheless: integers of 64 bits without a
 * sign are wide in jansson's trees alone. */
std::string marked_number(const std::string &number);
bool is_uint64(const std::string &number);

/* The JSON text with a marked string in place of each wide number. */
std::string mark_wide_numbers(const std::string &json);

/* The nearest numbers in place of marked strings: for grammars, which know no others. */
void unmark_numbers(common_json &value);

/* Numbers in place of marked strings in what a template is given. */
void give_numbers(const jinja::value &tree);

/* The numbers in place of marked strings in what a template printed. */
void restore_numbers(std::string &printed);

} // namespace chat

#endif
