/* Which bytes of a text belong to an occurrence of any word of a set. One pass over the words and one over the text,
 * whatever they are (Aho and Corasick): clients choose both. Pure; any thread. */
#ifndef CHAT_WORDS_HPP
#define CHAT_WORDS_HPP

#include <set>
#include <string>
#include <vector>

namespace chat
{

/* Bytes that all words together may have, and what each of them takes in memory: some 24 bytes. */
constexpr size_t words_max = 2 << 20;

/* Sets the marks of the bytes of `text` that are in an occurrence. Throws refusal where the words are too long. */
void mark_words(std::vector<bool> &marks, const std::string &text, const std::set<std::string> &words);

/* Where the last occurrence of `word` that ends at `end` or before begins; npos: there is none. Linear. */
size_t find_last(const std::string &text, const std::string &word, size_t end);

} // namespace chat

#endif
