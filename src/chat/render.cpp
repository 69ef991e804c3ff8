/* Renders prompts, and marks which bytes are the request's text and which the template's: see chat.h. */
#include "chat/blame.hpp"
#include "chat/fields.hpp"
#include "chat/request.hpp"
#include "chat/template.hpp"
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

/* Paths become one text of lines. */
static char *joined_lines(const std::vector<std::string> &paths)
{
    std::string lines;
    for (const auto &path : paths) lines += (lines.empty() ? "" : "\n") + path;
    return paths.empty() ? nullptr : mem_strdup(lines.c_str());
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
 * more by who has to send it. What the template says of it counts if it refuses that, too. */
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
        prompt.left_out = joined_lines(left_out);
    }
    std::string removed = template_.adds_bos ? template_.compiled->bos_token() : "";
    std::vector<bool> marks = mark_bytes(scope.parts, text, removed);
    mark_tools(marks, text, params);
    if (params.has_continuation()) mark_continued(marks, text, params.continue_msg);
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
