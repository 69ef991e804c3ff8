/* A compiled chat template, and the scope in which it is rendered.
 *
 * common_chat_templates_apply() is not used, for four reasons. It makes a parser for the model's replies at every call
 * (10 to 25 ms for most templates). It reads the clock where the prompt must not depend on it. It does not separate the
 * request's text from the template's, and it fails where only the parser cannot be made. Its steps before rendering are
 * in request.cpp; the rendering itself, and the handlers for single templates, are llama.cpp's.
 *
 * A chat_template belongs to whoever opened it and is immutable but for its cache of formats, which has a lock; data of
 * one rendering lives on the rendering thread's stack. */
#ifndef CHAT_TEMPLATE_HPP
#define CHAT_TEMPLATE_HPP

#include "chat/chat.h"
#include "chat/turns.hpp"

#include "chat-auto-parser.h"

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace chat
{

class format_cache;

using text_parts = std::vector<jinja::string_part>;

/* The context of one rendering on this thread, for as long as the object lives. Handlers for single templates render up
 * to three times; the first rendering is the prompt, whose parts are kept.
 *
 * A template is a program, and a client chooses how long its loops are. So each pass of a loop and each call of a macro
 * asks `stop` whether the request is still wanted, and has not taken too long. NULL: that of the scope around it, or
 * nobody. */
class render_scope
{
  public:
    explicit render_scope(int64_t when, const chat_stop *asked = nullptr)
        : now(static_cast<std::time_t>(when)), stop(asked == nullptr && current != nullptr ? current->stop : asked),
          before(current)
    {
        current = this;
    }
    ~render_scope() { current = before; }
    render_scope(const render_scope &) = delete;
    render_scope &operator=(const render_scope &) = delete;

    static thread_local render_scope *current;

    const std::time_t now;
    const chat_stop *const stop;
    bool done = false;
    text_parts parts;

  private:
    render_scope *before;
};

std::string format_time(std::time_t now, const std::string &format);

/* Makes what llama.cpp makes for a request: the prompt, and how its reply is constrained and parsed, by the template's
 * own handler or from the analysis. Throws what the template and llama.cpp throw. Needs a render_scope. */
common_chat_params apply_template(const chat_template &template_, autoparser::generation_params &params);

/* The prompt alone, and its generation prompt: much cheaper than apply_template(). Handlers return both at once;
 * otherwise the prompt is compared with one rendered without generation prompt. */
struct rendering {
    std::string prompt;
    std::optional<std::string> generation_prompt;
};

rendering prompt_of(const chat_template &template_, autoparser::generation_params params);
std::string generation_prompt_of(const chat_template &template_, autoparser::generation_params params,
                                 const chat_prompt *prompt);

/* Finds out what a template prints (probe.cpp), and sets template_.turns to the rules by which it prints most. Each
 * rule is the first of its values with which all conversations that it is about are printed, else the one that loses
 * fewest of them. */
void find_turn_rules(chat_template &template_);

} // namespace chat

struct chat_template {
    std::unique_ptr<common_chat_template> compiled;
    autoparser::autoparser analysis; /* of templates without a handler; where it failed: replies are plain text */
    std::unique_ptr<chat::format_cache> format_cache;
    common_json kwargs; /* default chat_template_kwargs: an object; null: none */
    bool adds_bos, adds_eos;
    bool has_handler = false; /* llama.cpp has a handler for this very template */
    bool supports_thinking;   /* the default of enable_thinking */
    chat::turn_rules turns;   /* how messages are put so that it prints them */

    chat_template();
    ~chat_template();
};

#endif
