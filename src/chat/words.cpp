/* Finds words in a text: see words.hpp. */
#include "chat/words.hpp"

#include "chat/fields.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace chat
{

namespace
{

/* A node of the trie, for a prefix of words. Its children are a linked list; those of the root, where most steps begin,
 * an array. */
struct node {
    std::uint32_t child, sibling; /* 0: none */
    std::uint32_t fail;           /* failure link: the longest proper suffix of this prefix that is a prefix too */
    std::uint32_t longest;        /* bytes of the longest word that this prefix ends with; 0: none */
    unsigned char byte;
};

class automaton
{
  public:
    explicit automaton(const std::set<std::string> &words);

    /* The state after one more byte. */
    std::uint32_t step(std::uint32_t state, unsigned char byte) const
    {
        for (;; state = nodes[state].fail) {
            std::uint32_t next = child_of(state, byte);
            if (next != 0 || state == 0) return next;
        }
    }

    std::uint32_t longest(std::uint32_t state) const { return nodes[state].longest; }

  private:
    std::uint32_t child_of(std::uint32_t state, unsigned char byte) const
    {
        if (state == 0) return root[byte];
        std::uint32_t at = nodes[state].child;
        while (at != 0 && nodes[at].byte != byte) at = nodes[at].sibling;
        return at;
    }

    std::vector<node> nodes;
    std::array<std::uint32_t, 256> root = {};
};

automaton::automaton(const std::set<std::string> &words)
{
    size_t bytes = 0;
    for (const auto &word : words) bytes += word.size();
    if (bytes > words_max)
        throw refusal{HEARTH_TOO_LONG, "messages",
                      "tools and calls have " + std::to_string(bytes) +
                          " bytes of words that may look like special tokens: at most " + std::to_string(words_max)};
    nodes.reserve(bytes + 1);
    nodes.push_back({});
    for (const auto &word : words) {
        std::uint32_t state = 0;
        for (char c : word) {
            auto byte = static_cast<unsigned char>(c);
            std::uint32_t next = child_of(state, byte);
            if (next == 0) {
                next = static_cast<std::uint32_t>(nodes.size());
                nodes.push_back({0, state == 0 ? 0 : nodes[state].child, 0, 0, byte});
                (state == 0 ? root[byte] : nodes[state].child) = next;
            }
            state = next;
        }
        nodes[state].longest = static_cast<std::uint32_t>(word.size());
    }
    /* Breadth first, since the failure links of shorter prefixes are needed for longer ones. */
    std::vector<std::uint32_t> queue;
    queue.reserve(nodes.size());
    for (std::uint32_t first : root)
        if (first != 0) queue.push_back(first);
    for (size_t i = 0; i < queue.size(); i++) {
        const node &parent = nodes[queue[i]];
        for (std::uint32_t at = parent.child; at != 0; at = nodes[at].sibling) {
            nodes[at].fail = step(parent.fail, nodes[at].byte);
            nodes[at].longest = std::max(nodes[at].longest, nodes[nodes[at].fail].longest);
            queue.push_back(at);
        }
    }
}

} // namespace

void mark_words(std::vector<bool> &marks, const std::string &text, const std::set<std::string> &words)
{
    if (words.empty()) return;
    automaton words_in(words);
    std::vector<std::uint32_t> lengths(text.size()); /* of the longest word that ends with this byte */
    std::uint32_t state = 0;
    for (size_t i = 0; i < text.size(); i++) {
        state = words_in.step(state, static_cast<unsigned char>(text[i]));
        lengths[i] = words_in.longest(state);
    }
    /* From the end backwards: `from` is how far back the occurrences seen so far reach. */
    size_t from = text.size();
    for (size_t i = text.size(); i-- > 0;) {
        if (lengths[i] > 0) from = std::min(from, i + 1 - lengths[i]);
        if (from <= i) marks[i] = true;
    }
}

/* memmem() is linear, and the last occurrence is the first one in the reversed text. */
size_t find_last(const std::string &text, const std::string &word, size_t end)
{
    std::string from_behind(text.rend() - static_cast<std::ptrdiff_t>(end), text.rend());
    std::string reversed(word.rbegin(), word.rend());
    const void *found = memmem(from_behind.data(), from_behind.size(), reversed.data(), reversed.size());
    if (found == nullptr) return std::string::npos;
    return end - static_cast<size_t>(static_cast<const char *>(found) - from_behind.data()) - word.size();
}

} // namespace chat
