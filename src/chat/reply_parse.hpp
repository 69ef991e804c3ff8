/* One text of a reply, read once from its beginning; and where JSON that is not complete ends.
 *
 * Pure functions; any thread. */
#ifndef CHAT_REPLY_PARSE_HPP
#define CHAT_REPLY_PARSE_HPP

#include "chat/format.hpp"

#include <string>

namespace chat
{

struct reading {
    bool fits = false;       /* the text is a reply in the format, or the beginning of one */
    common_chat_msg message; /* what was found in it */
    size_t known = 0;        /* what comes before this byte is in the message, or is a mark of a piece that is there */
    size_t end = 0;          /* what comes before this byte fits: after `known` it opens what may never come */
    enum { NOTHING, REASONING, CONTENT, CALL } last = NOTHING; /* what was found last */

    /* What comes after it: held back because it may become a mark, or more than the format expects. */
    std::string rest(const reply_format &format, const std::string &text) const;
};

/* The text begins with the prefill. */
reading read_reply(const reply_format &format, const std::string &text);

/* Follows JSON text as far as it goes. */
class json_end
{
  public:
    explicit json_end(const std::string &text);

    bool in_string() const { return quoted; }
    size_t string_start() const { return start; } /* of the one that is open */

  private:
    void feed(size_t at);

    const std::string &text;
    bool quoted = false, escaped = false;
    size_t start = 0;
};

} // namespace chat

#endif
