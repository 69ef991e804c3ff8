/* Finds what a template failed on, and what it left out: see blame.hpp. */
#include "chat/blame.hpp"

#include "chat/fields.hpp"

#include "chat-auto-parser-helpers.h"

#include <cstring>
#include <exception>
#include <functional>

namespace chat
{

/* ---- What failed ---- */

/* A template's error does not say what it failed on, so smaller requests are rendered until one does not fail: a few
 * for each doubling of messages and tools, and only when a request has failed. */

/* Whether smaller requests fail like the request did. */
struct trial {
    const chat_template &template_;
    const chat_request &request;
    const std::string &failure;

    bool fails(const chat_parsed &parsed) const
    {
        render_scope scope(request.now);
        chat_request asked = request;
        asked.continue_final = HEARTH_CONTINUE_NEVER; /* where messages are cut off, the last may be anybody's */
        try {
            prompt_of(template_, read_request(template_, asked, parsed));
            return false;
        } catch (const std::exception &exception) {
            return render_error_message(exception.what()) == failure;
        } catch (const refusal &) {
            return false;
        }
    }
};

/* The smallest number of leading items that fail, of `most` that do, if none does not; searched for by halves, so that
 * it is one whose predecessors do not fail. */
static size_t first_to_fail(size_t most, const std::function<bool(size_t)> &fails)
{
    size_t fine = 0, failing = most;
    while (failing - fine > 1) {
        size_t middle = fine + (failing - fine) / 2;
        (fails(middle) ? failing : fine) = middle;
    }
    return failing;
}

/* Of a tool that fails by itself: whether its parameters are what fails, and which of them. */
static std::string blame_parameters(const trial &trial, chat_parsed alone, const std::string &path)
{
    std::string here = path + ".function.parameters";
    common_json &parameters = alone.tools[0]["function"]["parameters"];
    const common_json schema = parameters, none = common_json::object();
    parameters = common_json{{"type", "object"}, {"properties", none}};
    if (trial.fails(alone)) return path;
    const common_json properties = schema.value("properties", none);
    if (!properties.is_object()) return here;
    size_t left = 64; /* each is a rendering */
    for (const auto &entry : properties.items()) {
        if (left-- == 0) break;
        parameters = schema;
        parameters["properties"] = common_json{{entry.key(), entry.value()}};
        if (trial.fails(alone)) return here + ".properties." + entry.key();
    }
    return here;
}

static std::string blame_tools(const trial &trial, const chat_parsed &parsed)
{
    chat_parsed some = parsed;
    auto cut = [&](size_t n) {
        some.tools = common_json();
        for (size_t i = 0; i < n; i++) some.tools.push_back(parsed.tools.at(i));
    };
    size_t n = first_to_fail(parsed.tools.size(), [&](size_t middle) {
        cut(middle);
        return trial.fails(some);
    });
    std::string path = indexed("tools", n - 1);
    some.tools = common_json::array({parsed.tools.at(n - 1)});
    return trial.fails(some) ? blame_parameters(trial, some, path) : path;
}

static std::string blame_messages(const trial &trial, const chat_parsed &parsed)
{
    chat_parsed some = parsed;
    size_t n = first_to_fail(parsed.messages.size(), [&](size_t middle) {
        some.messages.assign(parsed.messages.begin(), parsed.messages.begin() + static_cast<std::ptrdiff_t>(middle));
        return trial.fails(some);
    });
    return indexed("messages", n - 1);
}

std::string find_culprit(const chat_template &template_, const chat_request &request, const chat_parsed &parsed,
                         const std::string &failure)
{
    trial trial = {template_, request, failure};
    chat_parsed greeting = parsed;
    common_chat_msg hello;
    hello.role = "user";
    hello.content = "Hello";
    greeting.messages = {hello};
    if (!trial.fails(parsed)) return "";
    if (trial.fails(greeting)) {
        chat_parsed bare = greeting;
        bare.tools = common_json();
        return parsed.tools.empty() || trial.fails(bare) ? "" : blame_tools(trial, greeting);
    }
    return blame_messages(trial, parsed);
}

/* ---- What is lost ---- */

/* A text that is not found in the prompt as it stands may have been printed otherwise: trimmed, as JSON, or without the
 * reasoning in it. So the conversation is rendered once more, with a word in the place of each such text, and what
 * counts is whether the words are printed. */

/* A text of the request's messages. */
struct said {
    size_t message;
    int part;         /* -1: the content is a string */
    std::string word; /* in its place */
};

static std::string &words_at(std::vector<common_chat_msg> &messages, const said &where)
{
    common_chat_msg &message = messages[where.message];
    return where.part < 0 ? message.content : message.content_parts[static_cast<size_t>(where.part)].text;
}

/* memmem() is linear, whatever clients choose. */
static bool find_from(const std::string &prompt, size_t &from, const std::string &text)
{
    const void *found = memmem(prompt.data() + from, prompt.size() - from, text.data(), text.size());
    if (found == nullptr) return false;
    from = static_cast<size_t>(static_cast<const char *>(found) - prompt.data()) + text.size();
    return true;
}

/* Whether the prompt has the text, behind those before it or anywhere, as it is or as JSON writes it. */
static bool holds(const std::string &prompt, size_t &from, const std::string &text)
{
    size_t anywhere = 0;
    if (find_from(prompt, from, text) || find_from(prompt, anywhere, text)) return true;
    std::string quoted = common_json(text).dump();
    return find_from(prompt, anywhere, quoted.substr(1, quoted.size() - 2));
}

/* So many texts are looked into: each that is not found costs some passes over the prompt. */
static const size_t max_missing = 16;

/* The texts that are not found as they stand. */
static std::vector<said> find_missing(std::vector<common_chat_msg> &messages, const std::string &prompt)
{
    std::vector<said> missing;
    size_t from = 0;
    for (size_t i = 0; i < messages.size(); i++) {
        int n_parts = static_cast<int>(messages[i].content_parts.size());
        for (int part = n_parts > 0 ? 0 : -1; part < n_parts && missing.size() < max_missing; part++) {
            said where = {i, part, "word-" + std::to_string(missing.size() + 100) + "-of-" + std::to_string(i)};
            std::string text = trim_whitespace(words_at(messages, where));
            if (!text.empty() && !holds(prompt, from, text)) missing.push_back(where);
            if (n_parts == 0) break;
        }
    }
    return missing;
}

/* "": the template refuses the words, which says nothing of the texts. */
static std::string prompt_with_words(const chat_template &template_, const chat_request &request,
                                     const chat_parsed &parsed, const std::vector<said> &missing)
{
    chat_parsed with_words = parsed;
    for (const auto &where : missing) words_at(with_words.messages, where) = where.word;
    render_scope scope(request.now);
    try {
        return prompt_of(template_, read_request(template_, request, with_words)).prompt;
    } catch (const std::exception &) {
        return "";
    }
}

static std::string path_of(const said &where)
{
    std::string path = indexed("messages", where.message) + ".content";
    return where.part < 0 ? path : indexed(path, static_cast<size_t>(where.part));
}

/* Templates know these roles, if any. */
static bool is_known_role(const std::string &role)
{
    return role == "system" || role == "developer" || role == "user" || role == "assistant" || role == "tool";
}

static void refuse(const common_chat_msg &message, const said &where)
{
    if (is_known_role(message.role))
        throw refusal{HEARTH_INVALID, path_of(where),
                      "is text of a message that this model's chat template does not print here: leave it out, or put "
                      "it into another message"};
    throw refusal{HEARTH_INVALID, indexed("messages", where.message) + ".role",
                  "is \"" + message.role.substr(0, 64) +
                      "\", which this model's chat template leaves out: use system, user, assistant or tool"};
}

/* Where the last turn begins: with the last message of the user's. */
static size_t last_turn_of(const std::vector<common_chat_msg> &messages)
{
    for (size_t i = messages.size(); i-- > 0;)
        if (messages[i].role == "user") return i;
    return 0;
}

std::vector<std::string> find_lost(const chat_template &template_, const chat_request &request,
                                   const chat_parsed &parsed, const std::string &prompt)
{
    std::vector<common_chat_msg> messages = parsed.messages;
    std::vector<std::string> lost;
    std::vector<said> missing = find_missing(messages, prompt);
    if (missing.empty()) return lost;
    std::string with_words = prompt_with_words(template_, request, parsed, missing);
    size_t last_turn = last_turn_of(messages);
    for (const auto &where : missing) {
        if (with_words.empty() || with_words.find(where.word) != std::string::npos) continue;
        const common_chat_msg &message = messages[where.message];
        bool is_system = message.role == "system" || message.role == "developer";
        if (is_system || where.message >= last_turn) refuse(message, where);
        lost.push_back(path_of(where));
    }
    return lost;
}

} // namespace chat
