/* Parses the regular expressions of JSON schemas: those of ECMA-262, as far as a grammar can express them. Pure
 * functions; any thread. */
#ifndef CHAT_PATTERN_PARSE_HPP
#define CHAT_PATTERN_PARSE_HPP

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace chat
{

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

} // namespace chat

#endif
