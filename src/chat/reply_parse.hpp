/* Parses one text of a reply, from its beginning, with llama.cpp's parser; and finds where incomplete JSON ends.
 *
 * Pure functions; any thread. */
#ifndef CHAT_REPLY_PARSE_HPP
#define CHAT_REPLY_PARSE_HPP

#include "chat/format.hpp"

#include <string>

namespace chat
{

struct parsed_reply {
    bool fits = false;       /* the text is a reply in the format, or a prefix of one */
    common_chat_msg message; /* what was parsed from it */
    size_t known = 0;        /* bytes that are in the message, or are a tag of a piece that is in it */
    size_t end = 0;          /* bytes that fit the format: after `known` they open a piece that may never come */
    enum { NOTHING, REASONING, CONTENT, CALL } last = NOTHING; /* the kind of piece that was parsed last */

    /* The text after it: held back because it may become a tag, or more than the format expects. */
    std::string rest(const reply_format &format, const std::string &text) const;
};

/* Parses the text, which begins with the prefill. */
parsed_reply parse_reply(const reply_format &format, const std::string &text);

/* The text without leading tags of the format and white space. */
std::string without_marks(const reply_format &format, std::string text);

/* Whether the text is a whole reply in the format, and no prefix of one alone. */
bool is_whole_reply(const reply_format &format, const std::string &text);

/* Scans JSON text, complete or not, and finds whether it ends within a string, and where its value ends. */
class json_end
{
  public:
    explicit json_end(const std::string &text = "");

    /* Scans on; returns how many bytes of `more` belong to the value. */
    size_t feed(const std::string &more);

    bool in_string() const { return quoted; }
    size_t string_start() const { return start; } /* of the open string */

  private:
    bool takes(char c);

    bool quoted = false, escaped = false, bare = false, ended = false;
    int depth = 0; /* open brackets */
    size_t at = 0, start = 0;
};

} // namespace chat

#endif
