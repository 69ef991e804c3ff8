/* Parses one text of a reply: see reply_parse.hpp. */
#include "chat/reply_parse.hpp"

#include <algorithm>
#include <cctype>
#include <memory>

namespace chat
{

/* ---- Replies ---- */

static std::unique_ptr<common_chat_peg_mapper> mapper_of(const reply_format &format, common_chat_msg &message)
{
    switch (format.params.format) {
    case COMMON_CHAT_FORMAT_PEG_GEMMA4:
        return std::make_unique<common_chat_peg_gemma4_mapper>(message);
    case COMMON_CHAT_FORMAT_PEG_MINIMAX_M3:
        return std::make_unique<common_chat_peg_minimax_m3_mapper>(message);
    default:
        return std::make_unique<common_chat_peg_mapper>(message);
    }
}

/* Of an incomplete piece only text counts: what its tags open may never come. */
static void note(parsed_reply &result, const common_peg_ast_node &node)
{
    static const std::string calls[] = {
        common_chat_peg_builder::TOOL_NAME,      common_chat_peg_builder::TOOL_ARGS,
        common_chat_peg_builder::TOOL_CLOSE,     common_chat_peg_builder::TOOL_ARG_VALUE,
        common_chat_peg_builder::TOOL_ARG_CLOSE, common_chat_peg_builder::TOOL_ARG_STRING_VALUE};
    if (node.end <= node.start || node.end < result.known) return;
    bool is_call = std::find(std::begin(calls), std::end(calls), node.tag) != std::end(calls);
    bool is_reasoning = node.tag == common_chat_peg_builder::REASONING;
    bool is_content = node.tag == common_chat_peg_builder::CONTENT;
    if (is_call || is_reasoning || is_content)
        result.last = is_call ? parsed_reply::CALL : is_reasoning ? parsed_reply::REASONING : parsed_reply::CONTENT;
    else if (node.is_partial)
        return;
    result.known = node.end;
}

static parsed_reply parse_by(const reply_format &format, const common_peg_arena &parser, const std::string &text)
{
    parsed_reply result;
    common_peg_parse_context context(text, COMMON_PEG_PARSE_FLAG_LENIENT);
    common_peg_parse_result parsed = parser.parse(context);
    result.fits = !parsed.fail();
    if (!result.fits) return result;
    mapper_of(format, result.message)->from_ast(context.ast, parsed);
    context.ast.visit(parsed, [&](const common_peg_ast_node &node) { note(result, node); });
    result.end = std::max(result.known, parsed.end);
    return result;
}

parsed_reply parse_reply(const reply_format &format, const std::string &text)
{
    parsed_reply result;
    if (format.parser.empty()) {
        result.fits = true;
        result.message.content = text;
        result.known = result.end = text.size();
        result.last = parsed_reply::CONTENT;
        return result;
    }
    if (!format.text_parser.empty()) result = parse_by(format, format.text_parser, text);
    return result.fits ? result : parse_by(format, format.parser, text);
}

bool is_whole_reply(const reply_format &format, const std::string &text)
{
    common_peg_parse_context context(text, COMMON_PEG_PARSE_FLAG_NONE);
    return format.parser.empty() || format.parser.parse(context).success();
}

std::string without_marks(const reply_format &format, std::string text)
{
    for (bool found = true; found;) {
        found = false;
        text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
        for (const auto *marks : {&format.params.preserved_tokens, &format.params.thinking_end_tags}) {
            for (const auto &mark : *marks) {
                if (mark.empty() || text.compare(0, mark.size(), mark) != 0) continue;
                text.erase(0, mark.size());
                found = true;
            }
        }
    }
    return text;
}

std::string parsed_reply::rest(const reply_format &format, const std::string &text) const
{
    std::string left = text.substr(std::min(end, text.size()));
    bool closes_call = last == CALL && !message.tool_calls.empty();
    return closes_call || without_marks(format, left).empty() ? "" : left;
}

/* ---- JSON ---- */

json_end::json_end(const std::string &text)
{
    feed(text);
}

/* Whether the value goes on with that byte. A number or a word ends before the first byte that none has. */
bool json_end::takes(char c)
{
    if (bare && std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '+') ended = true;
    if (ended) return false;
    if (quoted) {
        quoted = c != '"' || escaped;
        escaped = c == '\\' && !escaped;
        ended = !quoted && depth == 0;
    } else if (c == '"') {
        quoted = true;
        start = at;
    } else if (c == '{' || c == '[') {
        depth++;
    } else if (c == '}' || c == ']') {
        ended = --depth == 0;
    } else {
        bare = depth == 0 && std::isspace(static_cast<unsigned char>(c)) == 0;
    }
    at++;
    return true;
}

size_t json_end::feed(const std::string &more)
{
    size_t n = 0;
    while (n < more.size() && takes(more[n])) n++;
    return n;
}

} // namespace chat
