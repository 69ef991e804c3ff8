/* Formats of replies, and those that a template remembers: see chat.h. */
#ifndef CHAT_FORMAT_HPP
#define CHAT_FORMAT_HPP

#include "chat/chat.h"

#include "chat-peg-parser.h"

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <vector>

namespace chat
{

/* A format and what its C strings point to. Constant once made; lives as long as anybody holds it. */
struct reply_format : chat_format {
    reply_format() : chat_format() {}

    mutable std::atomic<int> holders{1};
    common_chat_params made;
    std::string user_grammar;
    common_peg_arena parser; /* empty: all is content */
    bool continues = false;  /* what the prefill says is no part of the reply */

    void show(); /* fills in what C sees */

  private:
    std::vector<chat_trigger> trigger_list;
    std::vector<const char *> preserved_list, stop_list, end_list;
};

inline const reply_format *whole(const chat_format *format)
{
    return static_cast<const reply_format *>(format);
}

/* The formats used last, by everything that they depend on. Any thread. */
class formats
{
  public:
    formats() = default;
    ~formats();
    formats(const formats &) = delete;
    formats &operator=(const formats &) = delete;

    const chat_format *find(const std::string &key); /* NULL, or one reference more */
    void keep(const std::string &key, const chat_format *format);

  private:
    struct kept {
        std::string key;
        const chat_format *format;
    };
    std::mutex lock;
    std::list<kept> used; /* last first */
};

} // namespace chat

#endif
