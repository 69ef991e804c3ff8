/* Formats of replies (grammar, triggers, stops, parser), and a template's cache of them: see chat.h. */
#ifndef CHAT_FORMAT_HPP
#define CHAT_FORMAT_HPP

#include "chat/chat.h"

#include "chat-peg-parser.h"

#include <atomic>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace chat
{

/* A chat_format with the strings that it points to. Immutable once made; reference-counted. */
struct reply_format : chat_format {
    reply_format() : chat_format() {}

    mutable std::atomic<int> references{1};
    common_chat_params params;
    std::string user_grammar;
    std::set<std::string> unenforced_parts;
    common_peg_arena parser;      /* empty: the whole reply is content */
    common_peg_arena text_parser; /* tried first, of text without calls; empty: `parser` reads all */
    bool writes_json = false;     /* the content is JSON of a schema */
    bool mixes_reasoning = false; /* reasoning is part of the content */
    bool continues = false;       /* the reply continues a message: its prefill is no part of the new text */

    void fill_c_members(); /* fills in the members of chat_format */

  private:
    std::vector<chat_trigger> trigger_list;
    std::vector<const char *> preserved_list, stop_list, end_list;
    std::string unenforced_lines;
};

inline const reply_format *as_reply_format(const chat_format *format)
{
    return static_cast<const reply_format *>(format);
}

/* An LRU cache of the formats used last, by a key of everything that they depend on. Any thread. */
class format_cache
{
  public:
    format_cache() = default;
    ~format_cache();
    format_cache(const format_cache &) = delete;
    format_cache &operator=(const format_cache &) = delete;

    const chat_format *find(const std::string &key); /* NULL, or a new reference */
    void insert(const std::string &key, const chat_format *format);

  private:
    struct cached {
        std::string key;
        const chat_format *format;
    };
    std::mutex lock;
    std::list<cached> recent; /* most recently used first */
};

} // namespace chat

#endif
