/* Reading a reply while it is written: see chat.h.
 *
 * llama.cpp's parser begins at the beginning every time, so it is given a short text: whenever the reply stands in a
 * long open piece (content, reasoning, a string among a call's arguments), the middle of that piece is cut out. A cut
 * must prove itself: the shortened text must read as the same message but for the middle. What was told already is
 * kept in two forms, as the short text gives it (`seen`), from which the next deltas follow, and whole (`told`), with
 * which the whole reply is compared at the end. Where nothing can be cut, the text is parsed less often the longer it
 * gets; either way the work is linear.
 *
 * A reader belongs to one thread at a time. No exception leaves it: what cannot be read is content. */
#include "chat/reader.h"

#include "chat/reply_parse.hpp"

extern "C" {
#include "base/utf8.h"
}

#include <sys/random.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace chat
{

static const size_t short_enough = 512;     /* no cut is worth its proof below this */
static const size_t kept_around_a_cut = 64; /* of the piece; no mark of a format is longer */
static const size_t least_cut = 128;
static const size_t often_enough = 2048; /* up to this length, the text is parsed whenever there is more of it */
static const size_t longest_escape = 12; /* a pair of surrogates */
static const int deepest = 256;          /* open brackets: the parser works by recursion */
static const size_t doubt = 64;          /* bytes in which a text that does not fit may still turn out to */

/* A text that deltas tell piece by piece. */
struct told_text {
    std::string seen, told;
};

struct told_call {
    std::string id, name;
    told_text arguments;
};

struct listener {
    hearth_delta_fn each;
    void *ud;
};

/* Where a cut goes: of the short text, and the same bytes as the message has them. */
struct cut {
    size_t from, to;        /* in the short text */
    std::string *field;     /* of the message */
    std::string *seen;      /* of what was told */
    size_t at = 0, len = 0; /* in the field */
    bool escaped = false;   /* the field holds them as JSON */
};

} // namespace chat

struct chat_reader {
    explicit chat_reader(const chat_format *of) : format(*chat::whole(chat_format_ref(of))) {}
    ~chat_reader() { chat_format_unref(&format); }
    chat_reader(const chat_reader &) = delete;
    chat_reader &operator=(const chat_reader &) = delete;

    const chat::reply_format &format;
    std::string whole;   /* prefill and reply */
    std::string cropped; /* the same, with what was cut out missing */
    std::string broken;  /* the beginning of a character */
    size_t unread = 0;   /* bytes at the end of `cropped` that were never parsed */
    size_t known = 0;    /* of `whole`, what was made sense of */
    size_t cut_again = chat::short_enough;
    size_t work = 0;
    int depth = 0;
    bool lost = false; /* the reply has left the format: what follows is content */
    chat::told_text reasoning, content;
    std::vector<chat::told_call> calls;

    chat::reading read(const std::string &text);
    chat::reading read_whole();
    void begin();
    void take(const char *text, size_t len, const chat::listener &to);
    void read_on(const chat::listener &to);
    void finish(const chat::listener &to);
    void give_up(const chat::listener &to);

  private:
    void watch_depth(const std::string &more);
    void tell(const chat::listener &to, hearth_delta_type type, const std::string &text, size_t index = 0);
    void go_on(const chat::listener &to, hearth_delta_type type, chat::told_text &text, const std::string &now,
               size_t index = 0);
    void tell_message(const chat::listener &to, const common_chat_msg &now, bool complete);
    void tell_call(const chat::listener &to, size_t index, const common_chat_tool_call &now, bool complete);
    void settle(const chat::listener &to, const common_chat_msg &now);
    void shorten(const common_chat_msg &now);
    bool try_cut(const common_chat_msg &now, std::string common_chat_msg::*field, chat::told_text &text);
    bool try_cut_arguments(const common_chat_msg &now);
    bool place(const std::string &piece, chat::cut &where) const;
    bool prove(const common_chat_msg &now, common_chat_msg &expected, chat::cut &where);
};

/* ---- Telling ---- */

static std::string make_id()
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[24];
    std::string id = "call_";
    if (getrandom(random, sizeof random, 0) != sizeof random) throw std::runtime_error("no random bytes");
    for (unsigned char byte : random) id += letters[byte % (sizeof letters - 1)];
    return id;
}

void chat_reader::tell(const chat::listener &to, hearth_delta_type type, const std::string &text, size_t index)
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

/* A text that no longer begins with what was told is left until the end. */
void chat_reader::go_on(const chat::listener &to, hearth_delta_type type, chat::told_text &text, const std::string &now,
                        size_t index)
{
    if (now.size() <= text.seen.size() || now.compare(0, text.seen.size(), text.seen) != 0) return;
    std::string more = now.substr(text.seen.size());
    text.seen = now;
    text.told += more;
    tell(to, type, more, index);
}

/* A comma waits for what it separates: the reply may end before. */
static std::string without_comma(const std::string &arguments, bool complete)
{
    if (complete) return arguments;
    size_t last = arguments.find_last_not_of(", \t\r\n");
    return last == std::string::npos ? "" : arguments.substr(0, last + 1);
}

void chat_reader::tell_call(const chat::listener &to, size_t index, const common_chat_tool_call &now, bool complete)
{
    if (index == calls.size()) {
        calls.push_back({now.id.empty() ? make_id() : now.id, now.name, {}});
        tell(to, HEARTH_DELTA_CALL, "", index);
    }
    if (calls[index].name != now.name) return;
    go_on(to, HEARTH_DELTA_ARGUMENTS, calls[index].arguments, without_comma(now.arguments, complete), index);
}

/* A call is told once its arguments have begun or something follows it: until then its name may be the beginning of
 * another's. */
void chat_reader::tell_message(const chat::listener &to, const common_chat_msg &now, bool complete)
{
    go_on(to, HEARTH_DELTA_REASONING, reasoning, now.reasoning_content);
    go_on(to, HEARTH_DELTA_CONTENT, content, now.content);
    for (size_t i = 0; i < now.tool_calls.size(); i++) {
        bool certain = complete || i + 1 < now.tool_calls.size() || now.tool_calls[i].arguments.size() > 1;
        if (!certain || i > calls.size() || now.tool_calls[i].name.empty()) return;
        tell_call(to, i, now.tool_calls[i], complete);
    }
}

/* ---- Shortening ---- */

static bool begins_character(char c)
{
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

/* Finds the piece at the end of the short text, but for what the parser holds back, and what may go of it. */
bool chat_reader::place(const std::string &piece, chat::cut &where) const
{
    const size_t wanted = chat::least_cut + 2 * chat::kept_around_a_cut;
    for (size_t held = 0; held <= chat::kept_around_a_cut && held < cropped.size(); held++) {
        size_t end = cropped.size() - held, most = std::min(piece.size(), end), same = 0;
        while (same < most && piece[piece.size() - 1 - same] == cropped[end - 1 - same]) same++;
        if (same < wanted) continue;
        auto is_seam = [&](size_t at) {
            size_t from = at - std::min(at, chat::longest_escape);
            return begins_character(cropped[at]) && cropped.substr(from, at - from).find('\\') == std::string::npos;
        };
        where.from = end - same + chat::kept_around_a_cut;
        where.to = end - chat::kept_around_a_cut;
        while (where.from < where.to && !is_seam(where.from)) where.from++;
        while (where.to > where.from && !is_seam(where.to)) where.to--;
        std::string gone = cropped.substr(where.from, where.to - where.from);
        std::string tail = cropped.substr(where.to, end - where.to);
        auto as_json = [](const std::string &text) {
            std::string quoted = common_json(text).dump();
            return quoted.substr(1, quoted.size() - 2);
        };
        if (where.escaped) gone = as_json(gone);
        if (where.escaped) tail = as_json(tail);
        where.len = gone.size();
        if (where.to - where.from < chat::least_cut || where.field->size() < gone.size() + tail.size()) return false;
        where.at = where.field->size() - tail.size() - gone.size();
        return where.field->compare(where.at, where.len, gone) == 0 && where.seen->size() >= where.at + where.len;
    }
    return false;
}

bool chat_reader::prove(const common_chat_msg &now, common_chat_msg &expected, chat::cut &where)
{
    expected = now;
    where.field->erase(where.at, where.len);
    std::string shorter = cropped;
    shorter.erase(where.from, where.to - where.from);
    chat::reading proof = read(shorter);
    if (!proof.fits || proof.message != expected) return false;
    where.seen->erase(where.at, where.len);
    cropped = std::move(shorter);
    return true;
}

bool chat_reader::try_cut(const common_chat_msg &now, std::string common_chat_msg::*field, chat::told_text &text)
{
    common_chat_msg expected = now;
    chat::cut where = {};
    where.field = &(expected.*field);
    where.seen = &text.seen;
    return place(now.*field, where) && prove(now, expected, where);
}

/* Some formats write a string as it is, of others the arguments are JSON already. */
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
    where.seen = &calls.back().arguments.seen;
    if (place(inside, where)) return prove(now, expected, where);
    common_json plain = common_json::parse_no_throw("\"" + inside + "\"");
    where.escaped = true;
    return plain.is_string() && place(plain.get<std::string>(), where) && prove(now, expected, where);
}

void chat_reader::shorten(const common_chat_msg &now)
{
    if (cropped.size() <= cut_again) return;
    bool done = try_cut_arguments(now) || try_cut(now, &common_chat_msg::content, content) ||
                try_cut(now, &common_chat_msg::reasoning_content, reasoning);
    size_t wait = done ? chat::kept_around_a_cut + chat::least_cut : cropped.size() / 8 + chat::kept_around_a_cut;
    cut_again = std::max(chat::short_enough, cropped.size() + wait);
}

/* ---- Reading ---- */

chat::reading chat_reader::read(const std::string &text)
{
    work += text.size();
    return chat::read_reply(format, text);
}

/* The whole reply. What looked like the beginning of a mark is text after all, if with one more character, which no
 * mark has, it reads as text. */
chat::reading chat_reader::read_whole()
{
    static const std::string no_mark = "\x1f";
    chat::reading begun = read(whole), more = read(whole + no_mark);
    if (!begun.fits || !more.fits) return begun;
    for (auto field : {&common_chat_msg::content, &common_chat_msg::reasoning_content}) {
        std::string &text = more.message.*field, &before = begun.message.*field;
        bool goes_on = text.size() > before.size() && text.compare(0, before.size(), before) == 0;
        if (goes_on && text.back() == no_mark[0]) before = text.substr(0, text.size() - no_mark.size());
    }
    return begun;
}

/* What the prompt has said of the reply already counts as told where the reply goes on with a message. */
void chat_reader::begin()
{
    if (format.parser.empty()) return;
    whole = cropped = format.made.generation_prompt;
    if (!format.continues) return;
    chat::reading before = read(cropped);
    std::string held = before.rest(format, cropped);
    if (before.last == chat::reading::REASONING) before.message.reasoning_content += held;
    if (before.last == chat::reading::CONTENT) before.message.content += held;
    reasoning.seen = reasoning.told = before.message.reasoning_content;
    content.seen = content.told = before.message.content;
    known = whole.size();
}

void chat_reader::watch_depth(const std::string &more)
{
    for (char c : more) {
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && depth > 0) depth--;
        if (depth > chat::deepest) lost = true;
    }
}

void chat_reader::take(const char *text, size_t len, const chat::listener &to)
{
    broken.append(text, len);
    size_t begun = utf8_incomplete_tail(broken.data(), broken.size());
    std::string more = broken.substr(0, broken.size() - begun);
    broken.erase(0, more.size());
    if (more.empty()) return;
    if (lost) {
        content.told += more;
        return tell(to, HEARTH_DELTA_CONTENT, more);
    }
    whole += more;
    cropped += more;
    unread += more.size();
    watch_depth(more);
    if (lost) return give_up(to);
    if (cropped.size() <= chat::often_enough || unread > cropped.size() / 16) read_on(to);
}

void chat_reader::read_on(const chat::listener &to)
{
    chat::reading now = read(cropped);
    unread = now.fits ? 0 : unread;
    if (!now.fits) {
        if (whole.size() > known + chat::doubt) give_up(to);
        return;
    }
    known = std::max(known, whole.size() - cropped.size() + now.known);
    if (now.last != chat::reading::CALL) depth = 0; /* brackets in a text are nothing to the parser */
    tell_message(to, now.message, false);
    shorten(now.message);
}

/* Nothing is lost: all that was not understood is content. */
void chat_reader::give_up(const chat::listener &to)
{
    std::string rest = whole.substr(std::min(known, whole.size()));
    lost = true;
    known = whole.size();
    content.told += rest;
    if (!rest.empty()) tell(to, HEARTH_DELTA_CONTENT, rest);
}

/* The whole reply as it reads in the end; what was told stands, only missing ends are added. */
void chat_reader::settle(const chat::listener &to, const common_chat_msg &now)
{
    reasoning.seen = reasoning.told;
    content.seen = content.told;
    for (auto &call : calls) call.arguments.seen = call.arguments.told;
    tell_message(to, now, true);
}

void chat_reader::finish(const chat::listener &to)
{
    whole += broken; /* half a character: the parser takes it for what it is */
    chat::reading all = lost ? chat::reading() : read_whole();
    if (all.fits) {
        settle(to, all.message);
        content.seen = content.told;
        go_on(to, HEARTH_DELTA_CONTENT, content, content.told + all.rest(format, whole));
    } else if (!lost) {
        give_up(to);
    }
    lost = true;
}

/* ---- For C ---- */

/* Whatever goes wrong, the reply goes on as content. */
static void guard(chat_reader *reader, const chat::listener &to, void (*act)(chat_reader *, const chat::listener &))
{
    try {
        act(reader, to);
    } catch (...) {
        reader->give_up(to);
    }
}

struct chat_reader *chat_reader_open(const struct chat_format *format)
{
    auto *reader = new chat_reader(format);
    guard(reader, {nullptr, nullptr}, [](chat_reader *opened, const chat::listener &) { opened->begin(); });
    return reader;
}

void chat_reader_close(struct chat_reader *reader)
{
    delete reader;
}

void chat_reader_add(struct chat_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud)
{
    chat::listener to = {each, ud};
    try {
        reader->take(text, len, to);
    } catch (...) {
        reader->give_up(to);
    }
}

void chat_reader_end(struct chat_reader *reader, hearth_delta_fn each, void *ud)
{
    guard(reader, {each, ud}, [](chat_reader *ended, const chat::listener &to) { ended->finish(to); });
}

size_t chat_reader_work(const struct chat_reader *reader)
{
    return reader->work;
}
