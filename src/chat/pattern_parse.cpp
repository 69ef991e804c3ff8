/* Parses regular expressions by recursive descent: see pattern.hpp. */
#include "chat/pattern.hpp"

#include <algorithm>

namespace chat
{

/* ---- Sets ---- */

static const uint32_t last_char = 0x10ffff;

char_set::char_set(std::vector<range> ranges)
{
    std::sort(ranges.begin(), ranges.end(), [](const range &a, const range &b) { return a.low < b.low; });
    for (const range &next : ranges) {
        bool apart = sorted.empty() || (sorted.back().high != last_char && next.low > sorted.back().high + 1);
        if (apart)
            sorted.push_back(next);
        else
            sorted.back().high = std::max(sorted.back().high, next.high);
    }
}

void char_set::add(uint32_t low, uint32_t high)
{
    std::vector<range> all = std::move(sorted);
    all.push_back({low, high});
    *this = char_set(std::move(all));
}

void char_set::add_all(const char_set &other)
{
    std::vector<range> all = std::move(sorted);
    all.insert(all.end(), other.sorted.begin(), other.sorted.end());
    *this = char_set(std::move(all));
}

char_set char_set::inverted() const
{
    char_set result;
    uint32_t next = 0;
    for (const range &out : sorted) {
        if (out.low > next) result.sorted.push_back({next, out.low - 1});
        next = out.high + 1;
    }
    if (next <= last_char) result.sorted.push_back({next, last_char});
    return result;
}

bool char_set::contains(uint32_t c) const
{
    return std::any_of(sorted.begin(), sorted.end(), [c](const range &in) { return in.low <= c && c <= in.high; });
}

char_set char_set::within(uint32_t low, uint32_t high) const
{
    char_set result;
    for (const range &in : sorted)
        if (in.low <= high && in.high >= low) result.sorted.push_back({std::max(low, in.low), std::min(high, in.high)});
    return result;
}

char_set char_set::all()
{
    char_set result;
    result.add(0, last_char);
    return result;
}

static char_set set_of(std::initializer_list<char_set::range> ranges)
{
    char_set result;
    for (const auto &range : ranges) result.add(range.low, range.high);
    return result;
}

static char_set single(uint32_t c)
{
    return set_of({{c, c}});
}

/* The sets of \d, \w and \s. */
static char_set named_set(char letter)
{
    switch (letter) {
    case 'd':
        return set_of({{'0', '9'}});
    case 'w':
        return set_of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    default:
        return set_of({{'\t', '\r'},
                       {' ', ' '},
                       {0xa0, 0xa0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200a},
                       {0x2028, 0x2029},
                       {0x202f, 0x202f},
                       {0x205f, 0x205f},
                       {0x3000, 0x3000},
                       {0xfeff, 0xfeff}});
    }
}

/* ---- Parsing ---- */

namespace
{

/* Groups in groups; llama.cpp, which converts what becomes of them, has a limit of its own. */
const int max_pattern_depth = 30;

/* A repetition of more is written out in no grammar. */
const uint32_t max_count = 2000000;

class parser
{
  public:
    explicit parser(const std::string &pattern) : text(pattern) {}

    pattern_node parse()
    {
        pattern_node all = choice();
        if (at < text.size()) throw pattern_fault("a ')' opens nothing");
        return all;
    }

  private:
    bool ahead(char c) const { return at < text.size() && text[at] == c; }
    bool ahead(const char *word) const { return text.compare(at, std::char_traits<char>::length(word), word) == 0; }
    bool take(char c)
    {
        bool found = ahead(c);
        at += found;
        return found;
    }

    pattern_node choice();
    pattern_node sequence();
    pattern_node atom();
    pattern_node group();
    bool repetition(pattern_node &what);
    bool counts(uint32_t &min, uint32_t &max);
    bool number(uint32_t &out);
    char_set klass();
    char_set klass_atom(bool &is_single);
    char_set escape(bool in_class);
    uint32_t hex(size_t digits);
    uint32_t unicode();
    uint32_t character();

    const std::string &text;
    size_t at = 0;
    int depth = 0;
};

pattern_node parser::choice()
{
    pattern_node result;
    result.kind = pattern_node::CHOICE;
    do result.parts.push_back(sequence());
    while (take('|'));
    return result.parts.size() == 1 ? std::move(result.parts.front()) : result;
}

pattern_node parser::sequence()
{
    pattern_node result;
    while (at < text.size() && !ahead('|') && !ahead(')')) {
        pattern_node next = atom();
        for (int times = depth; repetition(next);)
            if (++times > max_pattern_depth) throw pattern_fault("its repetitions are repeated too often");
        result.parts.push_back(std::move(next));
    }
    return result;
}

pattern_node parser::atom()
{
    pattern_node result;
    if (take('(')) return group();
    if (take('^')) {
        result.kind = pattern_node::START;
    } else if (take('$')) {
        result.kind = pattern_node::END;
    } else {
        result.kind = pattern_node::SET;
        if (ahead('*') || ahead('+') || ahead('?')) throw pattern_fault("a repetition has nothing to repeat");
        if (take('.'))
            result.set = set_of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).inverted();
        else
            result.set = take('[') ? klass() : take('\\') ? escape(false) : single(character());
    }
    return result;
}

pattern_node parser::group()
{
    if (take('?') && !take(':')) { /* names of groups mean nothing without references back */
        bool named = ahead('<') && !ahead("<=") && !ahead("<!");
        size_t end = text.find('>', at);
        if (!named || end == std::string::npos) throw pattern_fault("it looks ahead or behind, or has flags");
        at = end + 1;
    }
    if (++depth > max_pattern_depth) throw pattern_fault("its groups are nested too deeply");
    pattern_node inside = choice();
    depth--;
    if (!take(')')) throw pattern_fault("a group is not closed");
    return inside;
}

/* Wraps what it repeats; false: nothing is said of how often. */
bool parser::repetition(pattern_node &what)
{
    uint32_t min = 0, max = no_maximum;
    if (take('+'))
        min = 1;
    else if (take('?'))
        max = 1;
    else if (!take('*') && !counts(min, max))
        return false;
    take('?'); /* as few as possible: the same texts match */
    if (what.kind == pattern_node::START || what.kind == pattern_node::END)
        throw pattern_fault("a repetition has nothing to repeat");
    pattern_node inner = std::move(what);
    what = pattern_node();
    what.kind = pattern_node::REPEAT;
    what.min = min;
    what.max = max;
    what.parts.push_back(std::move(inner));
    return true;
}

/* A brace that counts nothing is a character. */
bool parser::counts(uint32_t &min, uint32_t &max)
{
    size_t from = at;
    if (!take('{')) return false;
    bool good = number(min);
    max = min;
    if (good && take(',')) {
        max = no_maximum;
        if (!ahead('}')) good = number(max);
    }
    if (good && take('}')) {
        if (max < min) throw pattern_fault("it repeats at most less often than at least");
        return true;
    }
    at = from;
    return false;
}

bool parser::number(uint32_t &out)
{
    size_t from = at;
    for (out = 0; at < text.size() && text[at] >= '0' && text[at] <= '9'; at++) {
        out = out * 10 + static_cast<uint32_t>(text[at] - '0');
        if (out > max_count) throw pattern_fault("it repeats something more than 2000000 times");
    }
    return at > from;
}

char_set parser::klass()
{
    bool negated = take('^');
    std::vector<char_set::range> ranges;
    while (!ahead(']')) {
        bool low_single = false, high_single = false;
        char_set low = klass_atom(low_single);
        bool is_range = ahead('-') && at + 1 < text.size() && text[at + 1] != ']';
        if (is_range && low_single) {
            at++;
            char_set high = klass_atom(high_single);
            if (!high_single || high.ranges()[0].low < low.ranges()[0].low)
                throw pattern_fault("a class has a range without order");
            ranges.push_back({low.ranges()[0].low, high.ranges()[0].low});
        } else {
            ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
        }
    }
    at++;
    char_set result(std::move(ranges));
    return negated ? result.inverted() : result;
}

char_set parser::klass_atom(bool &is_single)
{
    if (at >= text.size()) throw pattern_fault("a class is not closed");
    char_set result = take('\\') ? escape(true) : single(character());
    is_single = result.ranges().size() == 1 && result.ranges()[0].low == result.ranges()[0].high;
    return result;
}

char_set parser::escape(bool in_class)
{
    static const std::string letters = "tnvfr0", values = std::string("\t\n\v\f\r\0", 6);
    if (at >= text.size()) throw pattern_fault("it ends with a backslash");
    char c = text[at];
    if (c == 'd' || c == 'w' || c == 's' || c == 'D' || c == 'W' || c == 'S') {
        at++;
        char_set named = named_set(static_cast<char>(c | 0x20));
        return c < 'a' ? named.inverted() : named;
    }
    if (c == 'x' || c == 'u') {
        at++;
        return single(c == 'x' ? hex(2) : unicode());
    }
    if (in_class && c == 'b') return at++, single('\b');
    size_t known = letters.find(c);
    if (known != std::string::npos) return at++, single(static_cast<unsigned char>(values[known]));
    bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (letter) throw pattern_fault(std::string("\\") + c + " is not supported");
    return single(character());
}

uint32_t parser::hex(size_t digits)
{
    uint32_t value = 0;
    for (size_t i = 0; i < digits; i++, at++) {
        char c = at < text.size() ? text[at] : ' ';
        bool is_digit = c >= '0' && c <= '9', is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'f';
        if (!is_digit && !is_letter) throw pattern_fault("an escape has no hexadecimal digits");
        value = value * 16 + static_cast<uint32_t>(is_digit ? c - '0' : (c | 0x20) - 'a' + 10);
        if (value > last_char) throw pattern_fault("an escape is no character");
    }
    return value;
}

/* Four digits, twice for a pair of surrogates, or any number in braces. */
uint32_t parser::unicode()
{
    if (take('{')) {
        size_t end = text.find('}', at);
        if (end == std::string::npos || end == at) throw pattern_fault("an escape is not closed");
        uint32_t value = hex(end - at);
        at = end + 1;
        return value;
    }
    uint32_t value = hex(4);
    if (value < 0xd800 || value > 0xdfff) return value;
    if (value > 0xdbff || !ahead("\\u")) throw pattern_fault("an escape is half a character");
    at += 2;
    uint32_t low = hex(4);
    if (low < 0xdc00 || low > 0xdfff) throw pattern_fault("an escape is half a character");
    return 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
}

/* The next character of the pattern, which is UTF-8 since JSON is. */
uint32_t parser::character()
{
    unsigned char lead = static_cast<unsigned char>(text[at++]);
    int more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    uint32_t value = more == 0 ? lead : lead & (0x3fU >> more);
    for (; more > 0 && at < text.size(); more--) value = value << 6 | (static_cast<unsigned char>(text[at++]) & 0x3f);
    return value;
}

} // namespace

pattern_node parse_pattern(const std::string &pattern)
{
    return parser(pattern).parse();
}

} // namespace chat
