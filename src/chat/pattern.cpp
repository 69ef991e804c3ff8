/* Makes patterns of JSON text, and grammars of text; and has those of formats: see pattern.hpp.
 *
 * Patterns for llama.cpp use the part of regular expressions that it converts faithfully: classes of raw characters and
 * of escapes, groups that capture nothing, repetitions. In GBNF that is written almost the same. */
#include "chat/pattern.hpp"

#include <algorithm>
#include <cstdio>

namespace chat
{

/* A longer pattern is a grammar that takes long to make. */
static const size_t max_written = (size_t)256 << 10;

/* ---- Anchors ---- */

static pattern_node anything()
{
    pattern_node any, repeated;
    any.kind = pattern_node::SET;
    any.set = char_set::all();
    repeated.kind = pattern_node::REPEAT;
    repeated.max = no_maximum;
    repeated.parts.push_back(std::move(any));
    return repeated;
}

static bool has_anchors(const pattern_node &node)
{
    return node.kind == pattern_node::START || node.kind == pattern_node::END ||
           std::any_of(node.parts.begin(), node.parts.end(), has_anchors);
}

static bool is_group(const pattern_node &node)
{
    return node.kind == pattern_node::SEQUENCE || node.kind == pattern_node::CHOICE;
}

/* Makes a pattern of whole strings: of those that have `found` anywhere in them, or only of those that are all of
 * it. */
static pattern_node whole(pattern_node found, bool anywhere)
{
    if (found.kind == pattern_node::CHOICE) {
        for (auto &part : found.parts) part = whole(std::move(part), anywhere);
        return found;
    }
    if (found.kind == pattern_node::SEQUENCE && found.parts.size() == 1 && is_group(found.parts.front()))
        return whole(std::move(found.parts.front()), anywhere);
    pattern_node result;
    if (found.kind == pattern_node::SEQUENCE)
        result.parts = std::move(found.parts);
    else
        result.parts.push_back(std::move(found));
    auto &parts = result.parts;
    bool starts = !parts.empty() && parts.front().kind == pattern_node::START;
    bool ends = !parts.empty() && parts.back().kind == pattern_node::END;
    while (!parts.empty() && parts.front().kind == pattern_node::START) parts.erase(parts.begin());
    while (!parts.empty() && parts.back().kind == pattern_node::END) parts.pop_back();
    if (has_anchors(result)) throw pattern_fault("it has '^' or '$' in its middle");
    if (!anywhere) return result;
    if (!starts) parts.insert(parts.begin(), anything());
    if (!ends && (starts || parts.size() > 1)) parts.push_back(anything());
    return result;
}

/* ---- Lengths ---- */

static uint32_t times(uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0) return 0;
    uint64_t product = static_cast<uint64_t>(a) * b;
    return a == no_maximum || b == no_maximum || product >= no_maximum ? no_maximum : static_cast<uint32_t>(product);
}

static uint32_t plus(uint32_t a, uint32_t b)
{
    uint64_t sum = static_cast<uint64_t>(a) + b;
    return sum >= no_maximum ? no_maximum : static_cast<uint32_t>(sum);
}

/* How long what it matches may be. */
static lengths lengths_of(const pattern_node &node)
{
    if (node.kind == pattern_node::SET) return {1, 1};
    if (node.kind == pattern_node::REPEAT) {
        lengths once = lengths_of(node.parts.front());
        return {times(once.min, node.min), times(once.max, node.max)};
    }
    lengths result = {0, 0};
    for (size_t i = 0; i < node.parts.size(); i++) {
        lengths part = lengths_of(node.parts[i]);
        if (node.kind == pattern_node::SEQUENCE)
            result = {plus(result.min, part.min), plus(result.max, part.max)};
        else
            result = i == 0 ? part : lengths{std::min(result.min, part.min), std::max(result.max, part.max)};
    }
    return result;
}

/* Narrows a repetition so that the sequence has the wanted lengths; false where that is not the same. */
static bool narrow(pattern_node &sequence, const lengths &wanted)
{
    lengths rest = {0, 0};
    pattern_node *varies = nullptr;
    for (auto &part : sequence.parts) {
        lengths own = lengths_of(part);
        if (own.min == own.max) {
            rest = {plus(rest.min, own.min), plus(rest.max, own.max)};
            continue;
        }
        if (varies != nullptr || part.kind != pattern_node::REPEAT) return false;
        varies = &part;
    }
    if (varies == nullptr) return false;
    lengths once = lengths_of(varies->parts.front());
    if (once.min != once.max || once.min == 0) return false;
    uint32_t least = wanted.min > rest.min ? (wanted.min - rest.min + once.min - 1) / once.min : 0;
    uint32_t most = wanted.max == no_maximum ? no_maximum
                    : wanted.max < rest.max  ? 0
                                             : (wanted.max - rest.max) / once.min;
    varies->min = std::max(varies->min, least);
    varies->max = std::min(varies->max, most);
    if (varies->min > varies->max) throw pattern_fault("no string that it matches has minLength and maxLength");
    return true;
}

/* Whether all that it matches has the wanted lengths afterwards. */
static bool keep_lengths(pattern_node &node, const lengths &wanted)
{
    lengths own = lengths_of(node);
    if (own.min >= wanted.min && own.max <= wanted.max) return true;
    if (own.max < wanted.min || own.min > wanted.max)
        throw pattern_fault("no string that it matches has minLength and maxLength");
    if (node.kind == pattern_node::REPEAT || node.kind == pattern_node::SET) {
        pattern_node sequence;
        sequence.parts.push_back(std::move(node));
        node = std::move(sequence);
    }
    if (node.kind == pattern_node::SEQUENCE) {
        bool around = node.parts.size() == 1 && is_group(node.parts.front());
        return around ? keep_lengths(node.parts.front(), wanted) : narrow(node, wanted);
    }
    pattern_node kept = node;
    auto outside = [&](const pattern_node &part) {
        lengths length = lengths_of(part);
        return length.max < wanted.min || length.min > wanted.max;
    };
    kept.parts.erase(std::remove_if(kept.parts.begin(), kept.parts.end(), outside), kept.parts.end());
    if (kept.parts.empty()) throw pattern_fault("no string that it matches has minLength and maxLength");
    for (auto &part : kept.parts)
        if (!keep_lengths(part, wanted)) return false;
    node = std::move(kept);
    return true;
}

/* ---- Writing ---- */

static std::string code(uint32_t c)
{
    bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    char text[16];
    if (plain) return std::string(1, static_cast<char>(c));
    std::snprintf(text, sizeof text, c < 0x80 ? "\\x%02X" : c < 0x10000 ? "\\u%04X" : "\\U%08X", c);
    return text;
}

static std::string klass(const char_set &set)
{
    std::string text = "[";
    for (const auto &range : set.ranges()) {
        text += code(range.low);
        if (range.high > range.low) text += (range.high > range.low + 1 ? "-" : "") + code(range.high);
    }
    return text + "]";
}

/* The letters behind a backslash for characters that have one, and for other control characters their code. */
static std::vector<std::string> escapes_of(const char_set &set)
{
    static const std::string written = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt", digits = "0123456789abcdef";
    char_set letters_of, codes[2];
    for (size_t i = 0; i < written.size(); i++) {
        auto letter = static_cast<unsigned char>(letters[i]);
        if (set.contains(static_cast<unsigned char>(written[i]))) letters_of.add(letter, letter);
    }
    for (uint32_t c = 0; c < 0x20; c++) {
        if (!set.contains(c) || written.find(static_cast<char>(c)) != std::string::npos) continue;
        auto digit = static_cast<unsigned char>(digits[c % 16]);
        codes[c / 16].add(digit, digit);
        if (digit >= 'a') codes[c / 16].add(digit - 0x20U, digit - 0x20U);
    }
    std::vector<std::string> result;
    if (!letters_of.empty()) result.push_back(klass(letters_of));
    if (!codes[0].empty()) result.push_back("u000" + klass(codes[0]));
    if (!codes[1].empty()) result.push_back("u001" + klass(codes[1]));
    return result;
}

/* The language in which a pattern is written: a regular expression of JSON text, for llama.cpp; or GBNF of the text
 * itself. */
enum class form { json, gbnf };

static std::string group(const std::vector<std::string> &parts, form as)
{
    std::string text = as == form::json ? "(?:" : "(";
    for (size_t i = 0; i < parts.size(); i++) text += (i > 0 ? "|" : "") + parts[i];
    return text + ")";
}

static std::string written_set(const char_set &set, form as)
{
    if (as == form::gbnf && set.empty()) throw pattern_fault("it has a class without characters");
    if (as == form::gbnf) return klass(set);
    char_set escaped, raw; /* raw: JSON may write these as they are */
    escaped.add(0, 0x1f);
    escaped.add('"', '"');
    escaped.add('\\', '\\');
    const char_set unescaped = escaped.inverted();
    for (const auto &range : unescaped.ranges()) raw.add_all(set.within(range.low, range.high));
    std::vector<std::string> escapes = escapes_of(set), either;
    if (raw.empty() && escapes.empty()) throw pattern_fault("it has a class without characters");
    if (!raw.empty()) either.push_back(klass(raw));
    if (!escapes.empty()) either.push_back("\\\\" + (escapes.size() > 1 ? group(escapes, as) : escapes[0]));
    return either.size() == 1 && escapes.empty() ? either[0] : group(either, as);
}

/* The grammar's reader knows no larger number, so that more is written as repetitions of repetitions. */
static const uint32_t max_braces = 2000, block = 1000;

static std::string braces(const std::string &what, uint32_t min, uint32_t max)
{
    if (max == no_maximum) return what + "{" + std::to_string(min) + ",}";
    return what + "{" + std::to_string(min) + (max > min ? "," + std::to_string(max) : "") + "}";
}

static std::string exactly(const std::string &unit, uint32_t n, form as)
{
    if (n <= max_braces) return n == 0 ? "" : braces(unit, n, n);
    std::string whole = braces(group({braces(unit, block, block)}, as), n / block, n / block);
    return whole + (n % block > 0 ? braces(unit, n % block, n % block) : "");
}

static std::string repeated(const std::string &unit, uint32_t min, uint32_t max, form as)
{
    if (max == no_maximum) {
        if (min < 2) return unit + (min == 0 ? "*" : "+");
        return exactly(unit, min, as) + unit + "*";
    }
    if (min == 0 && max == 1) return unit + "?";
    if (min == 1 && max == 1) return unit;
    if (max <= max_braces) return max == 0 ? "" : braces(unit, min, max);
    uint32_t more = max - min;
    std::string text = exactly(unit, min, as);
    if (more <= max_braces) return text + (more == 0 ? "" : braces(unit, 0, more));
    return text + braces(group({braces(unit, block, block)}, as), 0, more / block - 1) +
           braces(unit, 0, block + more % block);
}

static void check_written(size_t bytes)
{
    if (bytes > max_written) throw pattern_fault("it is too large");
}

static std::string written(const pattern_node &node, form as)
{
    std::string text, unit;
    std::vector<std::string> parts;
    bool optional = false, is_one;
    size_t bytes = 0;
    switch (node.kind) {
    case pattern_node::SET:
        return written_set(node.set, as);
    case pattern_node::CHOICE:
        for (const auto &part : node.parts) {
            std::string one = written(part, as);
            optional = optional || one.empty();
            check_written(bytes += one.size());
            if (!one.empty()) parts.push_back(one);
        }
        /* An alternative without text makes the others optional: a grammar of llama.cpp's has no empty group. */
        if (!parts.empty()) text = group(parts, as) + (optional ? "?" : "");
        break;
    case pattern_node::REPEAT:
        unit = written(node.parts.front(), as);
        is_one = node.parts.front().kind == pattern_node::SET && unit[0] == '[';
        if (!unit.empty()) text = repeated(is_one ? unit : group({unit}, as), node.min, node.max, as);
        break;
    default:
        for (const auto &part : node.parts) {
            text += written(part, as);
            check_written(text.size());
        }
    }
    check_written(text.size());
    return text;
}

static std::string anchored(const std::string &text)
{
    return text.empty() ? "" : "^" + text + "$";
}

std::string json_text_pattern(const std::string &pattern, const lengths &wanted, bool &keeps_lengths)
{
    pattern_node node = whole(parse_pattern(pattern), true);
    keeps_lengths = keep_lengths(node, wanted);
    return anchored(written(node, form::json));
}

std::string json_text_of_length(const lengths &wanted)
{
    pattern_node node = anything();
    node.min = wanted.min;
    node.max = wanted.max;
    return anchored(written(node, form::json));
}

std::string pattern_grammar(const std::string &pattern)
{
    std::string text = written(whole(parse_pattern(pattern), false), form::gbnf);
    return "root ::= " + (text.empty() ? "\"\"" : text) + "\n";
}

/* ---- Formats ---- */

/* Each in the forms that its standard has and that are in use. */
#define YEAR  "[0-9]{4}"
#define MONTH "(0[1-9]|1[0-2])"
#define DATE                                                                                                           \
    "(" YEAR "-(" MONTH "-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"                        \
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{3})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"

/* ISO 8601's, as of RFC 3339: a smaller unit only behind the next larger one. */
#define N        "[0-9]{1,9}"
#define DUR_DATE "(" N "D|" N "M(" N "D)?|" N "Y(" N "M(" N "D)?)?)"
#define DUR_TIME "T(" N "S|" N "M(" N "S)?|" N "H(" N "M(" N "S)?)?)"
#define DURATION "P(" DUR_DATE "(" DUR_TIME ")?|" DUR_TIME "|" N "W)"

#define OCTET    "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4     "(" OCTET "\\.){3}" OCTET
#define H        "[0-9a-fA-F]{1,4}"
#define IPV6                                                                                                           \
    "((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H ":){1,4}(:" H "){1,3}|(" H   \
    ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H "){1,6}|:((:" H "){1,7}|:))"

#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define ATOM  "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"
#define EMAIL ATOM "(\\." ATOM ")*@(" LABEL "\\.)+" LABEL

/* RFC 3986, with a scheme. */
#define HEX2  "%[0-9a-fA-F]{2}"
#define NAME  "([a-zA-Z0-9._~!$&'()*+,;=-]|" HEX2 ")"
#define PCHAR "([a-zA-Z0-9._~!$&'()*+,;=:@-]|" HEX2 ")"
#define TAIL  "([a-zA-Z0-9._~!$&'()*+,;=:@/?-]|" HEX2 ")*"
#define URI                                                                                                            \
    "[a-zA-Z][a-zA-Z0-9+.-]*:(//((" NAME "|:)*@)?(" NAME "*|\\[" IPV6 "\\])(:[0-9]{0,5})?(/" PCHAR "*)*|/(" PCHAR      \
    "+(/" PCHAR "*)*)?|" PCHAR "+(/" PCHAR "*)*)(\\?" TAIL ")?(#" TAIL ")?"

/* No address of IPv6 ends in one of IPv4. */
static const struct {
    const char *name, *pattern;
} formats[] = {{"date", "^" DATE "$"},         {"time", "^" TIME "$"},   {"date-time", "^" DATE "T" TIME "$"},
               {"duration", "^" DURATION "$"}, {"email", "^" EMAIL "$"}, {"ipv4", "^" IPV4 "$"},
               {"ipv6", "^" IPV6 "$"},         {"uri", "^" URI "$"},     {"json-pointer", "^(/([^/~]|~[01])*)*$"}};

const char *pattern_of_format(const std::string &format)
{
    for (const auto &known : formats)
        if (format == known.name) return known.pattern;
    return nullptr;
}

} // namespace chat
