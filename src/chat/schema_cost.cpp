/* Counts what the conversion of a schema costs: see schema_parts.hpp.
 *
 * The walk is that of llama.cpp's converter: each rule there is one here, with the same name, and each reference is
 * followed once. The prices are those of one core of the machine that the tests run on, rounded up. */
#include "chat/schema_parts.hpp"

#include <algorithm>
#include <cassert>
#include <set>
#include <vector>

namespace chat
{

/* ---- Prices ---- */

/* Of one schema, before the work that is the same for all of them. */
static const size_t max_nanoseconds = 450000000, max_memory = (size_t)40 << 20;

static const size_t price_of_part = 13000, price_of_rule = 6000, price_of_copied_rule = 150, price_of_copied_name = 52,
                    price_of_same_name = 1100, price_of_argument = 60000, price_of_pair = 500, price_of_item = 25,
                    price_of_way = 1000;

/* A grammar's text is held in several forms at once, and its items beside them. */
static const size_t copies_of_text = 10, bytes_of_item = 20, bytes_of_argument = 4000, bytes_of_pair = 110,
                    copies_of_argument = 60;

/* Of all rules together: less than grammar/rules.c reads; a rule's text without literals has a symbol in so many bytes.
 */
static const size_t max_text = (size_t)3500 << 10, max_items = 900000, bytes_of_symbol = 8;

/* A grammar is followed with 2,048 alternatives at once. */
static const size_t max_alternatives = 2000;

/* As deep as llama.cpp's recursion may go, of which a level takes about a kilobyte of stack; a name, in which each
 * letter may be a level. */
static const size_t max_schema_depth = 1500, max_name_bytes = 1024;

/* ---- The budget ---- */

schema_budget::schema_budget(size_t schemas)
    : now{schemas * max_nanoseconds, schemas * max_memory, max_text, max_items, 0}
{
}

static void take(size_t &left, size_t n)
{
    bool enough = n <= left;
    left = enough ? left - n : 0;
    if (!enough) throw schema_too_large();
}

void schema_budget::spend(size_t n, size_t nanoseconds)
{
    bool enough = n <= now.nanoseconds / std::max<size_t>(nanoseconds, 1);
    now.nanoseconds = enough ? now.nanoseconds - n * nanoseconds : 0;
    if (!enough) throw schema_too_large();
}

void schema_budget::hold(size_t bytes)
{
    take(now.bytes, bytes);
}

void schema_budget::items(size_t n)
{
    take(now.items, n);
    spend(n, price_of_item);
    hold(n * bytes_of_item);
}

void schema_budget::parts(size_t n)
{
    spend(n, price_of_part);
    hold(n * 500);
}

/* Rules of the same name are given numbers by trying one after the other. */
void schema_budget::rule(const std::string &name, size_t bytes, size_t times)
{
    std::string plain;
    bool in_run = false; /* of other characters, which become one */
    names(name.size() * times);
    for (char c : name) {
        bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        if (kept || !in_run) plain += kept ? c : '-';
        in_run = !kept;
    }
    spend(times * same[std::hash<std::string>()(plain)]++, price_of_same_name + name.size());
    spend(1, price_of_rule);
    text(name.size() + bytes);
    hold((name.size() + bytes + 16) * copies_of_text);
    take(now.text, name.size() + bytes + 16);
    items(2 + bytes / bytes_of_symbol);
    now.rules++;
}

void schema_budget::pattern(size_t bytes)
{
    spend(now.rules, price_of_copied_rule);
    spend(bytes, 100);
    hold(bytes * copies_of_text);
}

schema_budget::amounts schema_budget::lend(size_t nth)
{
    amounts before = now;
    now.nanoseconds = std::min(now.nanoseconds, max_nanoseconds / nth);
    now.bytes = std::min(now.bytes, max_memory);
    lent = now;
    return before;
}

void schema_budget::give_back(const amounts &before)
{
    assert(now.nanoseconds <= lent.nanoseconds && now.bytes <= lent.bytes);
    now.nanoseconds = before.nanoseconds - (lent.nanoseconds - now.nanoseconds);
    now.bytes = before.bytes - (lent.bytes - now.bytes);
}

size_t values_in(const common_json &value)
{
    size_t n = 1;
    if (value.is_string()) return 1 + value.get<std::string>().size() / 64;
    if (value.is_array())
        for (size_t i = 0; i < value.size(); i++) n += values_in(value.at(i));
    if (value.is_object())
        for (const auto &entry : value.items()) n += 1 + entry.k.size() / 64 + values_in(entry.v);
    return n;
}

/* ---- The conversion ---- */

namespace
{

class conversion
{
  public:
    conversion(const common_json &schema, bool of_tool, schema_budget &of) : root(schema), is_tool(of_tool), budget(of)
    {
    }

    void walk(const common_json &schema, const std::string &name);

  private:
    bool may_be_string(const common_json &schema);
    const common_json *target_of(const common_json &schema);
    void walk_within(const common_json &schema, const std::string &name, const std::string &step);
    void walk_kind(const common_json &schema, const std::string &name);
    void walk_reference(const common_json &schema, const std::string &name);
    void walk_object(const common_json &schema, const std::string &name);
    void walk_list(const common_json &list, const std::string &name, const std::string &step);
    void walk_array(const common_json &schema, const std::string &name);
    void walk_string(const common_json &schema, const std::string &name);
    void walk_integer(const common_json &schema, const std::string &name);
    void count_optional(const std::vector<std::string> &names, const std::string &name);
    void count_repeated(const common_json &schema, const char *least, const char *most);
    size_t literal(const common_json &value);

    const common_json &root;
    bool is_tool;
    schema_budget &budget;
    std::set<std::string> known; /* references that were followed */
    std::unordered_map<std::string, const common_json *> targets;
    std::set<const common_json *> being_searched; /* targets of references, for a string */
    size_t depth = 0;
};

std::string joined(const std::string &name, const std::string &more)
{
    return name.empty() ? more : name + "-" + more;
}

void check_alternatives(const common_json &list)
{
    if (list.size() > max_alternatives)
        throw schema_too_large{"has more than " + std::to_string(max_alternatives) + " alternatives"};
}

/* ---- References ---- */

const common_json *conversion::target_of(const common_json &schema)
{
    std::string reference = schema.at("$ref").get<std::string>();
    auto found = targets.find(reference);
    if (found == targets.end()) found = targets.emplace(reference, value_at(root, reference.substr(1), budget)).first;
    return found->second;
}

void conversion::walk_reference(const common_json &schema, const std::string &name)
{
    std::string reference = schema.at("$ref").get<std::string>();
    std::string target_name = "ref" + reference.substr(1);
    budget.names(reference.size());
    budget.rule(name, target_name.size());
    if (!known.insert(reference).second) return;
    const common_json *target = target_of(schema);
    if (target == nullptr) return;
    try {
        walk(*target, target_name);
    } catch (schema_too_large &reached) {
        reached.pointer.clear(); /* of a definition that the schema does not have so */
        throw;
    }
}

/* Looked for by some forms of calls, along each way of references. */
bool conversion::may_be_string(const common_json &schema)
{
    budget.spend(1, price_of_way);
    if (schema.contains("$ref")) {
        const common_json *target = target_of(schema);
        if (target == nullptr || !being_searched.insert(target).second) return false;
        bool found = may_be_string(*target);
        being_searched.erase(target);
        return found;
    }
    const common_json none = common_json::array();
    const common_json &either = schema.contains("anyOf") ? schema.at("anyOf") : none;
    for (size_t i = 0; i < either.size(); i++)
        if (may_be_string(either.at(i))) return true;
    const common_json &literals = schema.contains("enum") ? schema.at("enum") : none;
    for (size_t i = 0; i < literals.size(); i++)
        if (literals.at(i).is_string()) return true;
    return either.empty() && literals.empty() && schema.contains("type") && schema.at("type").is_string() &&
           schema.at("type").get<std::string>() == "string";
}

/* ---- Objects ---- */

/* From each optional property on, llama.cpp makes a rule for every run of them that ends with the last one. For each of
 * these rules it copies the names behind, so that the cost grows with the cube of their number. */
void conversion::count_optional(const std::vector<std::string> &names, const std::string &name)
{
    size_t n = names.size(), bytes = 0, i = 0;
    for (const auto &each : names) {
        bytes += each.size();
        budget.rule(joined(name, each).append("-rest"), 2 * (name.size() + each.size() + 16), ++i);
    }
    if (n == 0) return;
    budget.spend(n * (n + 1) / 2, 700);
    budget.spend(n * n, (n + 2) * (price_of_copied_name + bytes / n / 16) / 6);
}

void conversion::walk_object(const common_json &schema, const std::string &name)
{
    const common_json none = common_json::object();
    const common_json &properties = schema.contains("properties") ? schema.at("properties") : none;
    const std::set<std::string> required = required_of(schema);
    std::vector<std::string> optional;
    size_t text = 0;
    for (const auto &property : properties.items()) {
        const std::string &key = property.k;
        std::string child = joined(name, key);
        if (key.size() > max_name_bytes)
            throw schema_too_large{"has a name longer than " + std::to_string(max_name_bytes) + " bytes"};
        if (is_tool) {
            budget.spend(1, price_of_argument);
            budget.hold(bytes_of_argument + child.size() * copies_of_argument);
            may_be_string(property.v);
        }
        walk_within(property.v, child, "/properties" + pointer_step(key));
        budget.rule(child + "-kv", literal(key) + child.size() + 16);
        text += child.size() + 16;
        if (required.count(key) == 0) optional.push_back(key);
    }
    if (is_tool) {
        budget.spend(properties.size() * properties.size(), price_of_pair);
        budget.hold(properties.size() * properties.size() * bytes_of_pair);
    }
    bool more = schema.contains("additionalProperties") && schema.at("additionalProperties").is_object();
    if (more) walk_within(schema.at("additionalProperties"), joined(name, "additional-value"), "/additionalProperties");
    if (more || (schema.contains("additionalProperties") && schema.at("additionalProperties").get<bool>())) {
        /* Names of further properties are none of these: a group for each of their letters. */
        size_t letters = 0;
        for (const auto &property : properties.items()) letters += property.k.size();
        budget.spend(letters, 1500);
        budget.items(letters * 12);
        budget.rule(name + "-additional-k", letters * 45);
        budget.rule(name + "-additional-kv", name.size() * 2 + 60);
        optional.emplace_back("*");
    }
    count_optional(optional, name);
    budget.rule(name, 2 * text + 40);
}

/* ---- Arrays and alternatives ---- */

void conversion::walk_list(const common_json &list, const std::string &name, const std::string &step)
{
    size_t text = 0;
    for (size_t i = 0; i < list.size(); i++) {
        std::string number = std::to_string(i), child = joined(name, "tuple-" + number), at = step;
        walk_within(list.at(i), child, at.append("/").append(number));
        text += child.size() + 16;
    }
    budget.rule(name, text);
}

/* Repetitions are written out when a grammar is read. */
void conversion::count_repeated(const common_json &schema, const char *least, const char *most)
{
    size_t items = 8;
    if (schema.contains(least)) items += static_cast<size_t>(schema.at(least).get<double>());
    if (schema.contains(most)) items += 4 * static_cast<size_t>(schema.at(most).get<double>());
    budget.items(items);
}

void conversion::walk_array(const common_json &schema, const std::string &name)
{
    if (schema.contains("prefixItems")) return walk_list(schema.at("prefixItems"), name, "/prefixItems");
    std::string child = joined(name, "item");
    if (schema.contains("items")) walk_within(schema.at("items"), child, "/items");
    count_repeated(schema, "minItems", "maxItems");
    budget.rule(name, 2 * child.size() + 60);
}

/* ---- Values ---- */

size_t conversion::literal(const common_json &value)
{
    size_t bytes = value.dump().size();
    budget.names(bytes);
    budget.items(bytes);
    return 2 * bytes;
}

/* The pattern is written by json_text_pattern(), where braces are nothing but repetitions. */
void conversion::walk_string(const common_json &schema, const std::string &name)
{
    if (!schema.contains("pattern")) {
        count_repeated(schema, "minLength", "maxLength");
        return budget.rule(name, 40);
    }
    std::string pattern = schema.at("pattern").get<std::string>();
    budget.pattern(pattern.size());
    budget.items(pattern.size() / 3);
    size_t n_braces = 0;
    for (size_t at = 0; (at = pattern.find('{', at)) != std::string::npos; at++, n_braces++) {
        size_t comma = pattern.find(',', at), end = pattern.find('}', at), times = std::stoul(pattern.substr(at + 1));
        if (comma < end && comma + 1 < end) times = std::max<size_t>(times, std::stoul(pattern.substr(comma + 1)));
        budget.items(4 * times);
    }
    for (size_t i = 0; i < n_braces; i++) budget.rule(name + "-" + std::to_string(i), 40);
    budget.rule(name, 2 * pattern.size());
}

/* Bounds are alternatives for each number of digits, each with groups in groups. */
void conversion::walk_integer(const common_json &schema, const std::string &name)
{
    size_t digits = 0;
    for (const char *key : {"minimum", "maximum"})
        if (schema.contains(key)) digits = std::max(digits, schema.at(key).dump().size());
    budget.spend(digits * digits, 1000);
    budget.items(digits * digits * 6);
    budget.rule(name, digits * digits * 24 + 40);
}

/* ---- All kinds ---- */

/* In the order in which llama.cpp looks for them. */
void conversion::walk_kind(const common_json &schema, const std::string &name)
{
    if (schema.contains("$ref")) return walk_reference(schema, name);
    if (schema.contains("anyOf")) {
        check_alternatives(schema.at("anyOf"));
        return walk_list(schema.at("anyOf"), name, "/anyOf");
    }
    if (schema.contains("enum")) {
        check_alternatives(schema.at("enum"));
        return budget.rule(name, literal(schema.at("enum")));
    }
    std::string type = schema.contains("type") ? schema.at("type").get<std::string>() : "";
    if (type == "object") return walk_object(schema, name);
    if (type == "array") return walk_array(schema, name);
    if (type == "string") return walk_string(schema, name);
    if (type == "integer") return walk_integer(schema, name);
    budget.rule(name, 16);
}

void conversion::walk(const common_json &schema, const std::string &name)
{
    if (++depth > max_schema_depth) throw schema_too_large{"is nested too deeply, or refers too often"};
    if (schema.is_object()) walk_kind(schema, name);
    depth--;
}

void conversion::walk_within(const common_json &schema, const std::string &name, const std::string &step)
{
    try {
        walk(schema, name);
    } catch (schema_too_large &reached) {
        reached.pointer = step + reached.pointer;
        throw;
    }
}

} // namespace

void spend_conversion(const common_json &schema, const std::string &tool, schema_budget &budget)
{
    conversion work(schema, !tool.empty(), budget);
    work.walk(schema, tool.empty() ? "response-format-schema" : "tool-" + tool + "-schema");
}

} // namespace chat
