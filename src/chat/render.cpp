/* Renders prompts, and marks which bytes are the request's text and which the template's: see chat.h. Finds what of a
 * request is to blame where its template fails, or does not print all of it. */
#include "chat/template.hpp"

#include "chat/fields.hpp"
#include "chat/request.hpp"
#include "chat/words.hpp"

#include "chat-auto-parser-helpers.h"

extern "C" {
#include "base/error.h"
#include "base/memory.h"
}

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <set>

namespace chat
{

/* ---- What failed ---- */

/* A template's error does not say what it failed on, so smaller requests are rendered until one does not fail. These
 * are a few for each doubling of messages and tools, and one for each of a tool's first 64 properties. They are
 * rendered only when a request has failed. */

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

/* The message or tool that a template failed on: "messages[3]", "tools[0].function.parameters.properties.x" or as much
 * of it as is certain. "": it is none of them, since every request fails, or this one no longer does. `failure` is what
 * render_error_message() made of the error. Needs no render_scope. */
static std::string find_culprit(const chat_template &template_, const chat_request &request, const chat_parsed &parsed,
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
    chat_parsed some = parsed;
    size_t n = first_to_fail(parsed.messages.size(), [&](size_t middle) {
        some.messages.assign(parsed.messages.begin(), parsed.messages.begin() + static_cast<std::ptrdiff_t>(middle));
        return trial.fails(some);
    });
    return indexed("messages", n - 1);
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

static std::string path_of(const said &where)
{
    std::string path = indexed("messages", where.message) + ".content";
    return where.part < 0 ? path : indexed(path, static_cast<size_t>(where.part));
}

static void refuse(const common_chat_msg &message, const said &where)
{
    /* Templates know these roles, if any. */
    if (message.role == "system" || message.role == "developer" || message.role == "user" ||
        message.role == "assistant" || message.role == "tool")
        throw refusal{HEARTH_INVALID, path_of(where),
                      "is text of a message that this model's chat template does not print here: leave it out, or put "
                      "it into another message"};
    throw refusal{HEARTH_INVALID, indexed("messages", where.message) + ".role",
                  "is \"" + message.role.substr(0, 64) +
                      "\", which this model's chat template leaves out: use system, user, assistant or tool"};
}

/* Paths of the request's fields, as in "messages[2].content[0]", whose text the template does not print. It leaves them
 * out though the messages were put as it prints them (turns.hpp), because of the message's role or its place. Throws
 * refusal where such a text is in the last turn or of a system message, since the model would answer without it. */
static std::vector<std::string> find_lost(const chat_template &template_, const chat_request &request,
                                          const chat_parsed &parsed, const std::string &prompt)
{
    std::vector<common_chat_msg> messages = parsed.messages;
    std::vector<std::string> lost;
    std::vector<said> missing = find_missing(messages, prompt);
    if (missing.empty()) return lost;
    std::string printed;
    chat_parsed with_words = parsed;
    for (const auto &where : missing) words_at(with_words.messages, where) = where.word;
    try {
        render_scope scope(request.now);
        printed = prompt_of(template_, read_request(template_, request, with_words)).prompt;
    } catch (const std::exception &) {
        return lost; /* the template refuses the words, which says nothing of the texts */
    }
    /* The last turn begins with the last message of the user's. */
    size_t last_turn = messages.size() - 1;
    while (last_turn > 0 && messages[last_turn].role != "user") last_turn--;
    for (const auto &where : missing) {
        if (printed.empty() || printed.find(where.word) != std::string::npos) continue;
        const common_chat_msg &message = messages[where.message];
        bool is_system = message.role == "system" || message.role == "developer";
        if (is_system || where.message >= last_turn) refuse(message, where);
        lost.push_back(path_of(where));
    }
    return lost;
}

/* ---- Rendering ---- */

/* Marks each byte that comes from the request. llama.cpp removes BOS and EOS from the rendered text, and handlers for
 * single templates change its end. So the common prefix and suffix keep their marks, and the rest counts as the
 * template's. */
static std::vector<bool> mark_bytes(const text_parts &parts, const std::string &text, const std::string &removed)
{
    std::string given;
    std::vector<bool> marks;
    for (const auto &part : parts) {
        given += part.val;
        marks.resize(given.size(), part.is_input);
    }
    size_t skip = given.compare(0, removed.size(), removed) == 0 ? removed.size() : 0;
    size_t most = std::min(given.size() - skip, text.size()), front = 0, back = 0;
    while (front < most && given[skip + front] == text[front]) front++;
    while (back < most - front && given[given.size() - 1 - back] == text[text.size() - 1 - back]) back++;

    auto at = [&](size_t index) { return marks.begin() + static_cast<std::ptrdiff_t>(index); };
    std::vector<bool> result(at(skip), at(skip + front));
    result.resize(text.size() - back, false);
    result.insert(result.end(), at(given.size() - back), marks.end());
    return result;
}

/* Collects the strings in a JSON value that might spell a special token, as JSON writes them. Short ones count only in
 * quotes: without, they may be the template's own. */
static void gather_texts(const common_json &value, std::set<std::string> &texts)
{
    static const size_t short_words = 16;
    if (value.is_string()) {
        std::string text = value.get<std::string>();
        if (text.find_first_of("<[{|\xef\xe2") == std::string::npos) return;
        texts.insert(value.dump());
        if (text.size() > short_words) texts.insert(text);
    } else if (value.is_array()) {
        for (size_t i = 0; i < value.size(); i++) gather_texts(value.at(i), texts);
    } else if (value.is_object()) {
        for (const auto &entry : value.items()) {
            gather_texts(common_json(entry.key()), texts);
            gather_texts(entry.value(), texts);
        }
    }
}

static void fill_prompt(chat_prompt &prompt, const std::string &text, const std::vector<bool> &marks)
{
    assert(marks.size() == text.size());
    std::vector<chat_part> parts;
    for (size_t i = 0; i < text.size(); i++) {
        if (i == 0 || marks[i] != marks[i - 1]) parts.push_back({i, 0, marks[i]});
        parts.back().len++;
    }
    prompt.text = static_cast<char *>(mem_alloc(text.size() + 1));
    std::memcpy(prompt.text, text.data(), text.size());
    prompt.len = text.size();
    prompt.parts = static_cast<chat_part *>(mem_alloc((parts.size() + 1) * sizeof(chat_part)));
    std::copy(parts.begin(), parts.end(), prompt.parts);
    prompt.n_parts = parts.size();
}

/* Throws the template's failure again, as template_failure where it is one on a message or a tool. */
[[noreturn]] static void fail_with_culprit(const chat_template &template_, const chat_request &request,
                                           const chat_parsed &parsed, const std::exception_ptr &failure)
{
    try {
        std::rethrow_exception(failure);
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &exception) {
        std::string what = render_error_message(exception.what());
        std::string culprit = find_culprit(template_, request, parsed, what);
        if (culprit.empty()) throw;
        throw template_failure{culprit, what};
    }
}

/* The prompt shows the schema that the client sent, not what became of it for a grammar. */
static autoparser::generation_params read_for_prompt(const chat_template &template_, const chat_request &request,
                                                     const chat_parsed &parsed)
{
    autoparser::generation_params params = read_request(template_, request, parsed);
    params.json_schema = parsed.given_schema;
    return params;
}

/* A conversation that the template refuses is put in the plainest form that there is: a history cannot be changed any
 * more by who has to send it. If the template refuses that form, too, its first error counts. */
static rendering render_messages(const chat_template &template_, chat_request &request, const chat_parsed &parsed,
                                 autoparser::generation_params &params)
{
    try {
        params = read_for_prompt(template_, request, parsed);
        return prompt_of(template_, params);
    } catch (const std::exception &) {
        if (request.n_messages > 0) throw; /* a part is put as the whole is: request.plain */
        std::exception_ptr first = std::current_exception();
        try {
            request.plain = true;
            params = read_for_prompt(template_, request, parsed);
            return prompt_of(template_, params);
        } catch (const std::exception &) {
            request.plain = false;
            fail_with_culprit(template_, request, parsed, first);
        }
    }
}

static void render(const chat_template &template_, const chat_request &asked, chat_prompt &prompt)
{
    render_scope scope(asked.now, asked.stop);
    std::optional<chat_parsed> own;
    chat_request request = asked;
    const chat_parsed &parsed = parsed_of(request, own);
    autoparser::generation_params params;
    rendering rendered = render_messages(template_, request, parsed, params);
    const std::string &text = rendered.prompt;
    if (request.n_messages == 0) {
        std::vector<std::string> left_out = find_lost(template_, request, parsed, text);
        left_out.insert(left_out.begin(), parsed.media_left_out.begin(), parsed.media_left_out.end());
        /* Paths become one text of lines. */
        std::string lines;
        for (const auto &path : left_out) lines += (lines.empty() ? "" : "\n") + path;
        prompt.left_out = left_out.empty() ? nullptr : mem_strdup(lines.c_str());
    }
    std::string removed = template_.adds_bos ? template_.compiled->bos_token() : "";
    std::vector<bool> marks = mark_bytes(scope.parts, text, removed);
    /* Tools and calls are rendered as JSON, and jinja's `tojson` and `join` lose track of which text is the request's.
     */
    std::set<std::string> texts;
    gather_texts(params.tools, texts);
    for (size_t i = 0; i < params.messages.size(); i++)
        if (params.messages.at(i).contains("tool_calls")) gather_texts(params.messages.at(i).at("tool_calls"), texts);
    mark_words(marks, text, texts);
    /* The text of the message that is continued, where the prompt ends with it. */
    const common_chat_msg &continued = params.continue_msg;
    size_t end = params.has_continuation() ? text.size() : 0;
    for (const std::string &words : {continued.render_content(), continued.reasoning_content}) {
        size_t at = words.empty() || words.size() > end ? std::string::npos : find_last(text, words, end);
        if (at == std::string::npos) continue;
        std::fill_n(marks.begin() + static_cast<std::ptrdiff_t>(at), words.size(), true);
        end = at;
    }
    fill_prompt(prompt, text, marks);
    prompt.plain = request.plain;
    if (rendered.generation_prompt) prompt.generation_prompt = mem_strdup(rendered.generation_prompt->c_str());
}

} // namespace chat

int chat_render_parts(const struct chat_template *template_, const struct chat_request *request,
                      struct chat_prompt *prompt, hearth_error *error)
{
    assert(template_ != nullptr && request != nullptr && prompt != nullptr);
    *prompt = {};
    int rc = chat::guarded(error, "messages", chat::render_error_message,
                           [&] { chat::render(*template_, *request, *prompt); });
    if (rc != HEARTH_OK) chat_prompt_release(prompt);
    return rc;
}

void chat_prompt_release(struct chat_prompt *prompt)
{
    std::free(prompt->text);
    std::free(prompt->parts);
    std::free(prompt->generation_prompt);
    std::free(prompt->left_out);
    *prompt = {};
}

char *chat_render(const struct chat_template *template_, const struct chat_request *request, hearth_error *error)
{
    struct chat_prompt prompt;
    if (chat_render_parts(template_, request, &prompt, error) != HEARTH_OK) return nullptr;
    if (std::strlen(prompt.text) != prompt.len) {
        error_at(error, HEARTH_INVALID, "messages", "must not contain U+0000");
        chat_prompt_release(&prompt);
        return nullptr;
    }
    char *text = prompt.text;
    prompt.text = nullptr;
    chat_prompt_release(&prompt);
    return text;
}
