/* Finds all occurrences of a set of words in a text, in one pass over the words and one over the text (Aho and
 * Corasick), since clients choose both. Pure functions; any thread. */
#ifndef CHAT_WORDS_HPP
#define CHAT_WORDS_HPP

#include <set>
#include <string>
#include <vector>

namespace chat
{

/* Total bytes of all words at most; each takes some 24 bytes of memory. */
constexpr size_t words_max = 2 << 20;

/* Sets the marks of the bytes of `text` that are part of an occurrence. Throws refusal where the words exceed
 * words_max. */
void mark_words(std::vector<bool> &marks, const std::string &text, const std::set<std::string> &words);

/* The offset of the last occurrence of `word` that ends at or before `end`; npos: there is none. Linear time. */
size_t find_last(const std::string &text, const std::string &word, size_t end);

} // namespace chat

#endif
