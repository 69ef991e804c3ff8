/* A compiled chat template, and the surroundings in which it is run.
 *
 * common_chat_templates_apply() is passed by, for four reasons: it works out a parser for the model's replies at every
 * call (10 to 25 ms for most templates), it reads the clock where the prompt must not depend on it, it does not tell
 * the request's words from the template's, and it fails where only the parser cannot be made. What it does before it
 * renders is done in request.cpp; the rendering itself, and the handlers for single templates, are llama.cpp's.
 *
 * A chat_template belongs to whoever opened it and is constant but for the formats it remembers, which have a lock;
 * what varies from render to render lies on the rendering thread's stack. */
#ifndef CHAT_TEMPLATE_HPP
#define CHAT_TEMPLATE_HPP

#include "chat/chat.h"

#include "chat-auto-parser.h"

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace chat
{

class formats;

using text_parts = std::vector<jinja::string_part>;

/* One render, on this thread, for as long as it lives. Handlers for single templates run the template up to three
 * times; the first run is the prompt, whose parts are kept. */
class performance
{
  public:
    explicit performance(int64_t when) : now(static_cast<std::time_t>(when)), before(current) { current = this; }
    ~performance() { current = before; }
    performance(const performance &) = delete;
    performance &operator=(const performance &) = delete;

    static thread_local performance *current;

    const std::time_t now;
    bool done = false;
    text_parts parts;
    size_t n_media = 0; /* parts that a note stands for */

  private:
    performance *before;
};

std::string format_time(std::time_t now, const std::string &format);

/* What llama.cpp makes for a request: the prompt, and how its reply is constrained and read. By the template's own
 * handler, or from the analysis. Throws what the template and llama.cpp throw; std::invalid_argument where the template
 * could not be analysed. Needs a performance. */
common_chat_params apply_template(const chat_template &template_, autoparser::generation_params &params);

/* The prompt alone, and its last words, which make the assistant speak: much cheaper than the whole. Handlers give both
 * at once; else what was rendered is compared with what has no such words. */
struct rendering {
    std::string prompt;
    std::optional<std::string> cue;
};
rendering prompt_of(const chat_template &template_, autoparser::generation_params params);
std::string generation_prompt_of(const chat_template &template_, autoparser::generation_params params, const chat_prompt *prompt);

} // namespace chat

struct chat_template {
    std::unique_ptr<common_chat_template> compiled;
    std::optional<autoparser::autoparser> analysis; /* of templates without a handler; empty where it failed */
    std::unique_ptr<chat::formats> formats;
    std::string kwargs; /* arguments where a request does not say otherwise: JSON; "": none */
    bool adds_bos, adds_eos;
    bool thinks;                    /* what enable_thinking is where the request says nothing */
    bool takes_later_system = true; /* system messages after the first message, where they stand: system.hpp */

    chat_template();
    ~chat_template();
};

#endif
