/* Parses a reply while it is generated, and emits deltas: see chat.h.
 *
 * llama.cpp's parser starts from the beginning every time, so it is given a short text. While the reply is within a
 * long open piece (content, reasoning, a string among a call's arguments), the middle of that piece is cut out. Each
 * cut is verified: the shortened text must parse as the same message but for the middle. Text that was emitted is kept
 * in two forms. One is parsed from the short text (`parsed`); the next deltas extend it. The other is the full text
 * (`emitted`), with which the whole reply is compared at the end. Where nothing can be cut, the text is parsed less
 * often the longer it gets; either way the work is linear.
 *
 * A reader belongs to one thread at a time. No exception leaves it: text that cannot be parsed is content. */
#include "chat/chat.h"

#include "chat/format.hpp"

extern "C" {
#include "base/os.h"
#include "base/utf8.h"
}

#include <algorithm>
#include <cassert>
#include <cctype>
#include <memory>
#include <vector>

namespace chat
{

/* ---- One text of a reply, parsed from its beginning ---- */

struct parsed_reply {
    bool fits = false;       /* the text is a reply in the format, or a prefix of one */
    common_chat_msg message; /* what was parsed from it */
    size_t known = 0;        /* bytes that are in the message, or are a tag of a piece that is in it */
    size_t end = 0;          /* bytes that fit the format: after `known` they open a piece that may never come */
    enum { NOTHING, REASONING, CONTENT, CALL } last = NOTHING; /* the kind of piece that was parsed last */

    /* The text after it: held back because it may become a tag, or more than the format expects. */
    std::string rest(const reply_format &format, const std::string &text) const;
};

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

static parsed_reply parse_by(const reply_format &format, const common_peg_arena &parser, const std::string &text)
{
    static const std::string calls[] = {
        common_chat_peg_builder::TOOL_NAME,      common_chat_peg_builder::TOOL_ARGS,
        common_chat_peg_builder::TOOL_CLOSE,     common_chat_peg_builder::TOOL_ARG_VALUE,
        common_chat_peg_builder::TOOL_ARG_CLOSE, common_chat_peg_builder::TOOL_ARG_STRING_VALUE};
    parsed_reply result;
    common_peg_parse_context context(text, COMMON_PEG_PARSE_FLAG_LENIENT);
    common_peg_parse_result parsed = parser.parse(context);
    result.fits = !parsed.fail();
    if (!result.fits) return result;
    mapper_of(format, result.message)->from_ast(context.ast, parsed);
    /* Of an incomplete piece only text counts, since the piece that its tags open may never come. */
    context.ast.visit(parsed, [&](const common_peg_ast_node &node) {
        if (node.end <= node.start || node.end < result.known) return;
        bool is_call = std::find(std::begin(calls), std::end(calls), node.tag) != std::end(calls);
        bool is_reasoning = node.tag == common_chat_peg_builder::REASONING;
        bool is_content = node.tag == common_chat_peg_builder::CONTENT;
        if (is_call || is_reasoning || is_content)
            result.last = is_call ? parsed_reply::CALL : is_reasoning ? parsed_reply::REASONING : parsed_reply::CONTENT;
        else if (node.is_partial)
            return;
        result.known = node.end;
    });
    result.end = std::max(result.known, parsed.end);
    return result;
}

/* The text without leading tags of the format and white space. */
static std::string without_marks(const reply_format &format, std::string text)
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

/* ---- Where incomplete JSON ends ---- */

/* Scans JSON text, complete or not, and finds whether it ends within a string, and where its value ends. */
class json_end
{
    bool quoted = false, escaped = false, bare = false, ended = false;
    int depth = 0; /* open brackets */
    size_t at = 0, start = 0;

    /* Whether the value goes on with that byte. A number or a word ends before the first byte that none has. */
    bool takes(char c)
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

  public:
    explicit json_end(const std::string &text = "") { feed(text); }

    /* Scans on; returns how many bytes of `more` belong to the value. */
    size_t feed(const std::string &more)
    {
        size_t n = 0;
        while (n < more.size() && takes(more[n])) n++;
        return n;
    }

    bool in_string() const { return quoted; }
    size_t string_start() const { return start; } /* of the open string */
};

/* ---- The reader ---- */

static const size_t never_cut_below = 512; /* bytes; below this, no cut pays for its verification */
static const size_t cut_margin = 64;       /* bytes of the piece on each side; no tag of a format is longer */
static const size_t min_cut = 128;
static const size_t always_parse_below = 2048; /* bytes; up to this length, all new text is parsed at once */
static const size_t longest_escape = 12;       /* bytes: a pair of surrogates */
static const int max_open_brackets = 256;      /* the parser recurses for each */
static const size_t misfit_tolerance = 64; /* bytes that may follow before text that does not fit counts as content */

/* A text that is emitted in deltas. */
struct emitted_text {
    std::string parsed, emitted;
};

struct emitted_call {
    std::string id, name;
    emitted_text arguments;
};

struct delta_sink {
    hearth_delta_fn each;
    void *ud;
};

/* The range of a cut: in the short text, and the same bytes in the message. */
struct cut {
    size_t from, to;        /* in the short text */
    std::string *field;     /* of the message */
    std::string *parsed;    /* the emitted_text.parsed of that field */
    size_t at = 0, len = 0; /* in the field */
    bool escaped = false;   /* the field holds them as JSON */
};

} // namespace chat

struct chat_reader {
    explicit chat_reader(const chat_format *of) : format(*chat::as_reply_format(chat_format_ref(of))) {}
    ~chat_reader() { chat_format_unref(&format); }
    chat_reader(const chat_reader &) = delete;
    chat_reader &operator=(const chat_reader &) = delete;

    const chat::reply_format &format;
    std::string full_text;         /* prefill and reply so far */
    std::string cropped;           /* the same without what was cut out */
    std::string partial_character; /* leading bytes of a UTF-8 character */
    size_t unparsed = 0;           /* bytes at the end of `cropped` that were never parsed */
    size_t understood = 0;         /* bytes of `full_text` that were understood */
    size_t cut_again = chat::never_cut_below;
    size_t work = 0;
    int depth = 0;
    bool closed = true;       /* it has ended, and with it the last call */
    bool left_format = false; /* the reply does not fit the format: all that follows is content */
    bool within_json = false; /* but only to the end of the JSON value that it is of */
    chat::json_end value;
    chat::emitted_text reasoning, content;
    std::vector<chat::emitted_call> calls;

    chat::parsed_reply parse(const std::string &text);
    chat::parsed_reply parse_whole();
    void begin();
    void append(const char *text, size_t len, const chat::delta_sink &to);
    void parse_more(const chat::delta_sink &to);
    void finish(const chat::delta_sink &to);
    void fall_back_to_content(const chat::delta_sink &to);

  private:
    void emit_unparsed(const chat::delta_sink &to, const std::string &more);
    void emit(const chat::delta_sink &to, hearth_delta_type type, const std::string &text, size_t index = 0);
    void emit_more(const chat::delta_sink &to, hearth_delta_type type, chat::emitted_text &text, const std::string &now,
                   size_t index = 0);
    void emit_message(const chat::delta_sink &to, const common_chat_msg &now, bool complete);
    bool try_cut(const common_chat_msg &now, std::string common_chat_msg::*field, chat::emitted_text &text);
    bool try_cut_content(const common_chat_msg &now);
    bool try_cut_arguments(const common_chat_msg &now);
    bool locate_cut(const std::string &piece, chat::cut &where) const;
    bool verify_cut(const common_chat_msg &now, common_chat_msg &expected, chat::cut &where);
};

/* ---- Telling ---- */

static std::string make_id()
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[24];
    std::string id = "call_";
    os_random(random, sizeof random);
    for (unsigned char byte : random) id += letters[byte % (sizeof letters - 1)];
    return id;
}

void chat_reader::emit(const chat::delta_sink &to, hearth_delta_type type, const std::string &text, size_t index)
{
    hearth_delta delta = {};
    delta.type = type;
    delta.text = text.data();
    delta.len = text.size();
    delta.index = index;
    if (index < calls.size() && type >= HEARTH_DELTA_CALL) {
        delta.id = calls[index].id.c_str();
        delta.name = calls[index].name.c_str();
    }
    if (to.each != nullptr) to.each(to.ud, &delta);
}

/* A text that no longer begins with what was emitted is left for the end. */
void chat_reader::emit_more(const chat::delta_sink &to, hearth_delta_type type, chat::emitted_text &text,
                            const std::string &now, size_t index)
{
    if (now.size() <= text.parsed.size() || now.compare(0, text.parsed.size(), text.parsed) != 0) return;
    std::string more = now.substr(text.parsed.size());
    text.parsed = now;
    text.emitted += more;
    emit(to, type, more, index);
}

/* A call is emitted once its arguments have begun or something follows it: until then its name may be a prefix of
 * another name. */
void chat_reader::emit_message(const chat::delta_sink &to, const common_chat_msg &now, bool complete)
{
    emit_more(to, HEARTH_DELTA_REASONING, reasoning, now.reasoning_content);
    emit_more(to, HEARTH_DELTA_CONTENT, content, now.content);
    for (size_t i = 0; i < now.tool_calls.size(); i++) {
        const common_chat_tool_call &call = now.tool_calls[i];
        bool certain = complete || i + 1 < now.tool_calls.size() || call.arguments.size() > 1;
        if (!certain || i > calls.size() || call.name.empty()) return;
        if (i == calls.size()) {
            calls.push_back({call.id.empty() ? make_id() : call.id, call.name, {}});
            emit(to, HEARTH_DELTA_CALL, "", i);
        }
        if (calls[i].name != call.name) continue;
        std::string arguments = call.arguments;
        /* A trailing comma is held back: the reply may end before the next element. */
        if (!complete) arguments.erase(arguments.find_last_not_of(", \t\r\n") + 1);
        emit_more(to, HEARTH_DELTA_ARGUMENTS, calls[i].arguments, arguments, i);
    }
}

/* ---- Shortening ---- */

/* Finds the piece at the end of the short text, ignoring what the parser holds back, and the range that can be cut. */
bool chat_reader::locate_cut(const std::string &piece, chat::cut &where) const
{
    const size_t wanted = chat::min_cut + 2 * chat::cut_margin;
    for (size_t held = 0; held <= chat::cut_margin && held < cropped.size(); held++) {
        size_t end = cropped.size() - held, most = std::min(piece.size(), end), same = 0;
        while (same < most && piece[piece.size() - 1 - same] == cropped[end - 1 - same]) same++;
        if (same < wanted) continue;
        auto is_cut_point = [&](size_t at) {
            size_t from = at - std::min(at, chat::longest_escape);
            return (static_cast<unsigned char>(cropped[at]) & 0xc0) != 0x80 &&
                   cropped.substr(from, at - from).find('\\') == std::string::npos;
        };
        where.from = end - same + chat::cut_margin;
        where.to = end - chat::cut_margin;
        while (where.from < where.to && !is_cut_point(where.from)) where.from++;
        while (where.to > where.from && !is_cut_point(where.to)) where.to--;
        std::string gone = cropped.substr(where.from, where.to - where.from);
        std::string tail = cropped.substr(where.to, end - where.to);
        auto as_json = [](const std::string &text) {
            std::string quoted = common_json(text).dump();
            return quoted.substr(1, quoted.size() - 2);
        };
        if (where.escaped) gone = as_json(gone);
        if (where.escaped) tail = as_json(tail);
        where.len = gone.size();
        if (where.to - where.from < chat::min_cut || where.field->size() < gone.size() + tail.size()) return false;
        where.at = where.field->size() - tail.size() - gone.size();
        return where.field->compare(where.at, where.len, gone) == 0 && where.parsed->size() >= where.at + where.len;
    }
    return false;
}

bool chat_reader::verify_cut(const common_chat_msg &now, common_chat_msg &expected, chat::cut &where)
{
    expected = now;
    where.field->erase(where.at, where.len);
    std::string shorter = cropped;
    shorter.erase(where.from, where.to - where.from);
    chat::parsed_reply proof = parse(shorter);
    if (!proof.fits || proof.message != expected) return false;
    where.parsed->erase(where.at, where.len);
    cropped = std::move(shorter);
    return true;
}

bool chat_reader::try_cut(const common_chat_msg &now, std::string common_chat_msg::*field, chat::emitted_text &text)
{
    common_chat_msg expected = now;
    chat::cut where = {};
    where.field = &(expected.*field);
    where.parsed = &text.parsed;
    return locate_cut(now.*field, where) && verify_cut(now, expected, where);
}

/* JSON is cut within a string only: without a bracket of the middle its end would be found elsewhere. */
bool chat_reader::try_cut_content(const common_chat_msg &now)
{
    if (!format.writes_json) return try_cut(now, &common_chat_msg::content, content);
    chat::json_end end(now.content);
    if (format.mixes_reasoning || !end.in_string()) return false;
    common_chat_msg expected = now;
    chat::cut where = {};
    where.field = &expected.content;
    where.parsed = &content.parsed;
    return locate_cut(now.content.substr(end.string_start() + 1), where) && verify_cut(now, expected, where);
}

/* In some formats arguments are plain strings, in others JSON already. */
bool chat_reader::try_cut_arguments(const common_chat_msg &now)
{
    if (now.tool_calls.empty() || now.tool_calls.size() != calls.size()) return false;
    const std::string &arguments = now.tool_calls.back().arguments;
    chat::json_end end(arguments);
    if (!end.in_string()) return false;
    std::string inside = arguments.substr(end.string_start() + 1);
    common_chat_msg expected = now;
    chat::cut where = {};
    where.field = &expected.tool_calls.back().arguments;
    where.parsed = &calls.back().arguments.parsed;
    if (locate_cut(inside, where)) return verify_cut(now, expected, where);
    common_json plain = common_json::parse_no_throw("\"" + inside + "\"");
    where.escaped = true;
    return plain.is_string() && locate_cut(plain.get<std::string>(), where) && verify_cut(now, expected, where);
}

/* ---- Reading ---- */

/* Parses the text, which begins with the prefill. */
chat::parsed_reply chat_reader::parse(const std::string &text)
{
    chat::parsed_reply result;
    work += text.size();
    if (format.parser.empty()) {
        result.fits = true;
        result.message.content = text;
        result.known = result.end = text.size();
        result.last = chat::parsed_reply::CONTENT;
        return result;
    }
    if (!format.text_parser.empty()) result = chat::parse_by(format, format.text_parser, text);
    return result.fits ? result : chat::parse_by(format, format.parser, text);
}

/* A character that no tag has. */
static const char no_mark[] = "\x1f";

/* Parses the whole reply. Text that looked like the start of a tag is text after all, if it still parses as text with
 * one more character that no tag has. */
chat::parsed_reply chat_reader::parse_whole()
{
    chat::parsed_reply begun = parse(full_text), more = parse(full_text + no_mark);
    if (!begun.fits || !more.fits) return begun;
    for (auto field : {&common_chat_msg::content, &common_chat_msg::reasoning_content}) {
        std::string &text = more.message.*field, &before = begun.message.*field;
        bool goes_on = text.size() > before.size() && text.compare(0, before.size(), before) == 0;
        if (goes_on && text.back() == no_mark[0]) before = text.substr(0, text.size() - 1);
    }
    return begun;
}

/* Where the reply continues a message, the prefill counts as emitted. */
void chat_reader::begin()
{
    if (format.parser.empty()) return;
    full_text = cropped = format.params.generation_prompt;
    understood = full_text.size();
    if (!format.continues) return;
    chat::parsed_reply before = parse(cropped);
    std::string held = before.rest(format, cropped);
    if (before.last == chat::parsed_reply::REASONING) before.message.reasoning_content += held;
    if (before.last == chat::parsed_reply::CONTENT) before.message.content += held;
    reasoning.parsed = reasoning.emitted = before.message.reasoning_content;
    content.parsed = content.emitted = before.message.content;
}

void chat_reader::append(const char *text, size_t len, const chat::delta_sink &to)
{
    partial_character.append(text, len);
    size_t begun = utf8_incomplete_tail(partial_character.data(), partial_character.size());
    std::string more = partial_character.substr(0, partial_character.size() - begun);
    partial_character.erase(0, more.size());
    if (more.empty()) return;
    if (left_format) return emit_unparsed(to, more);
    full_text += more;
    cropped += more;
    unparsed += more.size();
    for (char c : more) {
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && depth > 0) depth--;
        if (depth > chat::max_open_brackets) left_format = true;
    }
    if (left_format) return fall_back_to_content(to);
    if (cropped.size() <= chat::always_parse_below || unparsed > cropped.size() / 16) parse_more(to);
}

void chat_reader::parse_more(const chat::delta_sink &to)
{
    chat::parsed_reply now = parse(cropped);
    unparsed = now.fits ? 0 : unparsed;
    if (!now.fits) {
        if (full_text.size() > understood + chat::misfit_tolerance) fall_back_to_content(to);
        return;
    }
    understood = std::max(understood, full_text.size() - cropped.size() + now.known);
    if (now.last != chat::parsed_reply::CALL) depth = 0; /* brackets within text do not make the parser recurse */
    /* Some formats do without the end tag of the reasoning. The beginning of such a tag looks like content then, and is
     * held back until it is certain. */
    if (!now.message.content.empty() && content.emitted.empty()) {
        chat::parsed_reply more = parse(cropped + no_mark);
        if (more.fits && more.message.reasoning_content.size() > now.message.reasoning_content.size())
            now.message.content.clear();
    }
    emit_message(to, now.message, false);
    if (cropped.size() <= cut_again) return;
    bool is_cut = try_cut_arguments(now.message) || try_cut_content(now.message) ||
                  try_cut(now.message, &common_chat_msg::reasoning_content, reasoning);
    size_t wait = is_cut ? chat::cut_margin + chat::min_cut : cropped.size() / 8 + chat::cut_margin;
    cut_again = std::max(chat::never_cut_below, cropped.size() + wait);
}

void chat_reader::emit_unparsed(const chat::delta_sink &to, const std::string &more)
{
    std::string text = within_json ? more.substr(0, value.feed(more)) : more;
    content.emitted += text;
    if (!text.empty()) emit(to, HEARTH_DELTA_CONTENT, text);
}

/* Loses nothing: all that was not understood is emitted as content. JSON to which the reply is bound may spell the
 * format's tags in its strings, and not fit therefore. Text behind its value is tags of the format, and is dropped. */
void chat_reader::fall_back_to_content(const chat::delta_sink &to)
{
    std::string rest = full_text.substr(std::min(understood, full_text.size()));
    std::string json =
        format.writes_json && !format.mixes_reasoning ? without_marks(format, content.emitted + rest) : "";
    within_json = !json.empty() && json.find_first_of("{[\"") == 0;
    if (within_json && content.emitted.find_first_not_of(" \t\r\n") == std::string::npos) rest = json;
    if (within_json) value.feed(content.emitted);
    left_format = true;
    understood = full_text.size();
    emit_unparsed(to, rest);
}

void chat_reader::finish(const chat::delta_sink &to)
{
    full_text += partial_character; /* an incomplete character: the parser treats it as such */
    chat::parsed_reply all = left_format ? chat::parsed_reply() : parse_whole();
    if (all.fits) {
        /* The parse of the whole reply has the missing ends. Text that was emitted before stays. */
        reasoning.parsed = reasoning.emitted;
        content.parsed = content.emitted;
        for (auto &call : calls) call.arguments.parsed = call.arguments.emitted;
        emit_message(to, all.message, true);
        content.parsed = content.emitted;
        emit_more(to, HEARTH_DELTA_CONTENT, content, content.emitted + all.rest(format, full_text));
    } else if (!left_format) {
        fall_back_to_content(to);
    }
    bool whole = calls.empty();
    if (!whole && all.fits) { /* whether it is a whole reply in the format, and no prefix of one alone */
        common_peg_parse_context context(full_text, COMMON_PEG_PARSE_FLAG_NONE);
        whole = format.parser.empty() || format.parser.parse(context).success();
    }
    closed = whole;
    left_format = true;
}

/* ---- For C ---- */

/* After any exception the rest of the reply is content. */
template <typename action> static void guard(chat_reader *reader, const chat::delta_sink &to, const action &act)
{
    try {
        act();
    } catch (...) {
        reader->fall_back_to_content(to);
    }
}

struct chat_reader *chat_reader_open(const struct chat_format *format)
{
    assert(format != nullptr);
    auto *reader = new chat_reader(format);
    guard(reader, {nullptr, nullptr}, [&] { reader->begin(); });
    return reader;
}

void chat_reader_close(struct chat_reader *reader)
{
    delete reader;
}

void chat_reader_add(struct chat_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud)
{
    assert(reader != nullptr && (text != nullptr || len == 0));
    chat::delta_sink to = {each, ud};
    guard(reader, to, [&] { reader->append(text, len, to); });
}

void chat_reader_end(struct chat_reader *reader, hearth_delta_fn each, void *ud)
{
    chat::delta_sink to = {each, ud};
    guard(reader, to, [&] { reader->finish(to); });
}

bool chat_reader_is_whole(const struct chat_reader *reader)
{
    for (const auto &call : reader->calls)
        if (!common_json::parse_no_throw(call.arguments.emitted).is_object()) return false;
    return reader->calls.empty() || reader->closed;
}

size_t chat_reader_work(const struct chat_reader *reader)
{
    return reader->work;
}
