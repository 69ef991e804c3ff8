/* Renders prompts, and marks which bytes are the request's text and which the template's: see chat.h. */
#include "chat/errors.hpp"
#include "chat/fields.hpp"
#include "chat/messages.hpp"
#include "chat/request.hpp"
#include "chat/template.hpp"
#include "chat/words.hpp"

#include "chat-auto-parser-helpers.h"

extern "C" {
#include "base/error.h"
#include "base/memory.h"
}

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

namespace chat
{

/* Marks each byte that comes from the request. llama.cpp removes BOS and EOS from the rendered text, and handlers for
 * single templates change its end: the common prefix and suffix keep their marks, the rest counts as the template's. */
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

/* Marks the text of the message that is continued, where the prompt ends with it. */
static void mark_continued(std::vector<bool> &marks, const std::string &text, const common_chat_msg &message)
{
    size_t end = text.size();
    for (const std::string &words : {message.render_content(), message.reasoning_content}) {
        size_t at = words.empty() || words.size() > end ? std::string::npos : find_last(text, words, end);
        if (at == std::string::npos) continue;
        std::fill_n(marks.begin() + static_cast<std::ptrdiff_t>(at), words.size(), true);
        end = at;
    }
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

/* Tools and calls are rendered as JSON, and jinja's `tojson` and `join` lose track of which text is the request's. */
static void mark_tools(std::vector<bool> &marks, const std::string &text, const autoparser::generation_params &params)
{
    std::set<std::string> texts;
    gather_texts(params.tools, texts);
    for (size_t i = 0; i < params.messages.size(); i++)
        if (params.messages.at(i).contains("tool_calls")) gather_texts(params.messages.at(i).at("tool_calls"), texts);
    mark_words(marks, text, texts);
}

static void fill_prompt(chat_prompt &prompt, const std::string &text, const std::vector<bool> &marks)
{
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

/* Templates silently drop messages of roles that they do not know. */
static bool is_known_role(const std::string &role)
{
    static const char *const known_roles[] = {"system", "developer", "user", "assistant", "tool"};
    return std::find(std::begin(known_roles), std::end(known_roles), role) != std::end(known_roles);
}

static std::string text_of(const common_json &message)
{
    if (!message.contains("content")) return "";
    const common_json &content = message.at("content");
    if (content.is_string()) return content.get<std::string>();
    return content.is_array() && content.size() > 0 ? content.at(0).at("text").get<std::string>() : "";
}

/* The index within the request of the n-th message of an unknown role: messages before it may have been merged. */
static size_t index_of_unknown_role(const std::vector<common_chat_msg> &messages, size_t n)
{
    size_t at = 0;
    while (is_known_role(messages[at].role) || n-- > 0) at++;
    return at;
}

/* Throws refusal where the template drops a role. One message of each role is searched for, and of at most a few roles,
 * since each search is a pass over the text. */
static void check_roles(const chat_parsed &parsed, const common_json &messages, const std::string &text)
{
    const size_t most_roles = 8;
    std::set<std::string> seen;
    size_t n_unknown = 0;
    for (size_t i = 0; i < messages.size() && seen.size() < most_roles; i++) {
        std::string role = messages.at(i).at("role").get<std::string>();
        if (is_known_role(role)) continue;
        bool looks = !text_of(messages.at(i)).empty() && seen.insert(role).second;
        if (looks && text.find(trim_whitespace(text_of(messages.at(i)))) == std::string::npos)
            throw refusal{HEARTH_INVALID,
                          indexed("messages", index_of_unknown_role(parsed.messages, n_unknown)) + ".role",
                          "is \"" + role.substr(0, 64) +
                              "\", which this model's chat template leaves out: use system, user, assistant or tool"};
        n_unknown++;
    }
}

static void render(const chat_template &template_, const chat_request &request, chat_prompt &prompt)
{
    render_scope scope(request.now);
    std::optional<chat_parsed> own;
    const chat_parsed &parsed = parsed_of(request, own);
    autoparser::generation_params params = read_request(template_, request, parsed);
    prompt.n_media = parsed.n_media;
    rendering rendered = prompt_of(template_, params);
    const std::string &text = rendered.prompt;
    check_roles(parsed, params.messages, text);
    std::string removed = template_.adds_bos ? template_.compiled->bos_token() : "";
    std::vector<bool> marks = mark_bytes(scope.parts, text, removed);
    mark_tools(marks, text, params);
    if (params.has_continuation()) mark_continued(marks, text, params.continue_msg);
    fill_prompt(prompt, text, marks);
    if (rendered.generation_prompt) prompt.generation_prompt = mem_strdup(rendered.generation_prompt->c_str());
}

} // namespace chat

int chat_render_parts(const struct chat_template *template_, const struct chat_request *request,
                      struct chat_prompt *prompt, hearth_error *error)
{
    *prompt = {};
    return chat::guarded(error, "messages", chat::render_error_message,
                         [&] { chat::render(*template_, *request, *prompt); });
}

void chat_prompt_release(struct chat_prompt *prompt)
{
    std::free(prompt->text);
    std::free(prompt->parts);
    std::free(prompt->generation_prompt);
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
