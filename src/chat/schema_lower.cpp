/* Rewrites JSON schemas for llama.cpp: see schema_parts.hpp. */

#include "chat/fields.hpp"
#include "chat/pattern.hpp"
#include "chat/schema_parts.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>

namespace chat
{

namespace
{

/* Combining alternatives can make any number. */
const size_t max_combined = 256;

/* More are not told. */
const size_t max_faults = 64;

/* References that lead to one another, and parts of parts of an allOf; schemas in schemas, which are less than that
 * without references. */
const int max_combining = 32, max_lowered_depth = 400;

/* Nanoseconds: a letter of a pattern that is parsed and written. */
const size_t price_of_pattern = 1200;

/* Of memory, about. */
const size_t bytes_of_value = 100;

/* The grammar's reader takes a larger number for none. */
const uint32_t max_repeats = 2000, max_string = 2000000;

/* llama.cpp writes integers of 16 digits. */
const int64_t max_integer = 9999999999999999;

/* Keywords that demand something which is not enforced. */
const char *const unenforced[] = {
    "not",           "if",           "then",        "else",        "dependentRequired", "dependentSchemas",
    "dependencies",  "contains",     "minContains", "maxContains", "patternProperties", "unevaluatedProperties",
    "propertyNames", "uniqueItems",  "multipleOf",  "$dynamicRef", "minProperties",     "unevaluatedItems",
    "maxProperties", "$recursiveRef"};

/* A schema and what all its parts demand; each of `choices` is a list of alternatives. */
struct demands {
    common_json plain = common_json::object();
    std::vector<common_json> choices;
    bool possible = true;
};

using maybe = std::optional<common_json>; /* empty: there is no such value */

/* Any of the alternatives; a list of one is that one. */
maybe any_of(const common_json &alternatives)
{
    common_json all = common_json::object();
    if (alternatives.empty()) return {};
    if (alternatives.size() == 1) return alternatives.at(0);
    all["anyOf"] = alternatives;
    return all;
}

class lowerer
{
  public:
    lowerer(common_json schema, std::string begin, bool is_tools, schema_budget &all)
        : root(std::move(schema)), prefix(std::move(begin)), of_tool(is_tools), budget(all)
    {
    }

    void lower_root();

    lowered_schema result;

  private:
    maybe lower(const common_json &schema, const std::string &at);
    maybe lower_within(const common_json &schema, const std::string &at);
    maybe lower_named(const common_json &schema, const std::string &at);
    maybe lower_demands(const demands &all, const std::string &at);
    maybe lower_literals(const common_json &schema);
    maybe lower_plain(const common_json &schema, const std::string &at);
    maybe lower_type(const common_json &schema, const std::string &type, const std::string &at);
    maybe lower_object(const common_json &schema, const std::string &at);
    maybe lower_array(const common_json &schema, const std::string &at);
    maybe lower_tuple(const common_json &schema, const std::string &at);
    maybe lower_string(const common_json &schema, const std::string &at);
    maybe lower_format(const common_json &schema, const std::string &at);
    maybe lower_integer(const common_json &schema);
    maybe lower_number(const common_json &schema);
    maybe matching(const std::string &pattern, const lengths &wanted, const char *unkept, const std::string &at);
    common_json with_required(const common_json &schema, const std::set<std::string> &required) const;
    void gather(const common_json &schema, demands &into, int depth);
    void spend_merge(const common_json &into, const common_json &more);
    void gather_choices(const common_json &schema, const char *key, demands &into);
    std::vector<common_json> combined(const demands &all);
    const common_json &target_of(const common_json &schema);
    void note_unenforced(const common_json &schema);
    void note(const std::string &at, const std::string &reason);
    uint32_t limit(uint32_t count, const char *key, uint32_t most, uint32_t none, const std::string &at);

    const common_json root;
    const std::string prefix;
    const bool of_tool;
    schema_budget &budget;
    common_json definitions = common_json::object();
    std::map<std::string, std::string> names; /* of definitions, by what they define */
    std::set<std::string> impossible;         /* names of those without a value */
    std::set<std::string> open;               /* names of those that are being made, with nothing read before */
    std::map<std::string, const common_json *> targets; /* of references */
    int n_open = 0;                                     /* schemas in schemas */
};

/* ---- Faults ---- */

void lowerer::note(const std::string &at, const std::string &reason)
{
    auto known = [&](const lowered_schema::fault &fault) { return fault.pointer == at && fault.reason == reason; };
    if (result.faults.size() >= max_faults) return;
    if (std::none_of(result.faults.begin(), result.faults.end(), known)) result.faults.push_back({at, reason});
}

void lowerer::note_unenforced(const common_json &schema)
{
    for (const char *key : unenforced) {
        if (!schema.contains(key)) continue;
        const common_json &value = schema.at(key);
        bool demands = !value.is_boolean() || value.get<bool>() == (std::string(key) == "uniqueItems");
        if (demands) result.unenforced.insert(key);
    }
}

/* The count, or none where it is more than can be kept. */
uint32_t lowerer::limit(uint32_t count, const char *key, uint32_t most, uint32_t none, const std::string &at)
{
    if (count == none || count <= most) return count;
    note(at, std::string(key) + " is too large: the limit is " + std::to_string(most));
    return none;
}

/* ---- Combining ---- */

const common_json &lowerer::target_of(const common_json &schema)
{
    if (!schema.at("$ref").is_string()) throw schema_fault("$ref must be a string");
    std::string reference = schema.at("$ref").get<std::string>();
    auto known = targets.find(reference);
    if (known != targets.end()) return *known->second;
    bool inside = reference == "#" || reference.compare(0, 2, "#/") == 0;
    const common_json *target = inside ? value_at(root, reference.substr(1), budget) : nullptr;
    if (target == nullptr && reference.compare(0, 1, "#") == 0)
        throw schema_fault("cannot resolve $ref " + one_line(reference.substr(0, 200)));
    if (target == nullptr)
        throw schema_fault("unsupported $ref " + one_line(reference.substr(0, 200)) +
                           ", which leads out of the schema");
    targets.emplace(reference, target);
    return *target;
}

void lowerer::gather_choices(const common_json &schema, const char *key, demands &into)
{
    if (!schema.contains(key)) return;
    const common_json &list = schema.at(key);
    if (!list.is_array() || list.empty()) throw schema_fault(std::string(key) + " must be a list of schemas");
    budget.values(values_in(list));
    into.choices.push_back(list);
}

/* A merge searches for each property in the other schema, and demands what that says of others of all of them. */
void lowerer::spend_merge(const common_json &into, const common_json &more)
{
    size_t n[2] = {0, 0}, i = 0;
    for (const common_json *side : {&into, &more})
        n[i++] = side->contains("properties") ? side->at("properties").size() : 0;
    budget.search(n[0] * n[1] + n[1] * n[1] / 2);
    budget.values(2 * values_in(more));
    for (const char *key : {"additionalProperties", "prefixItems", "items", "enum", "required"})
        if (more.contains(key) && !into.empty()) return budget.values(2 * values_in(into));
}

void lowerer::gather(const common_json &schema, demands &into, int depth)
{
    budget.parts(1);
    if (depth > max_combining)
        throw schema_fault("has references that lead to too many others, or go round in circles");
    if (schema.is_boolean()) {
        into.possible = into.possible && schema.get<bool>();
        return;
    }
    if (!schema.is_object()) throw schema_fault("a schema must be an object, true or false");
    if (schema.contains("$ref")) gather(target_of(schema), into, depth + 1);
    if (schema.contains("allOf")) {
        const common_json &parts = schema.at("allOf");
        if (!parts.is_array() || parts.empty()) throw schema_fault("allOf must be a list of schemas");
        for (size_t i = 0; i < parts.size(); i++) gather(parts.at(i), into, depth + 1);
    }
    gather_choices(schema, "anyOf", into);
    gather_choices(schema, "oneOf", into);
    if (schema.contains("oneOf") && schema.at("oneOf").size() > 1) result.unenforced.insert("oneOf");
    note_unenforced(schema);
    common_json enforced = enforced_part(schema);
    spend_merge(into.plain, enforced);
    into.possible = merge_schema(into.plain, std::move(enforced)) && into.possible;
}

/* Each alternative together with what is demanded beside it. */
std::vector<common_json> lowerer::combined(const demands &all)
{
    std::vector<common_json> each = {all.plain};
    for (const auto &list : all.choices) {
        std::vector<common_json> more;
        bool many = each.size() * list.size() > max_combined && (all.choices.size() > 1 || !all.plain.empty());
        if (many) throw schema_fault("has too many alternatives, combined with what is beside them");
        for (const auto &before : each) {
            size_t n = before.empty() ? 0 : values_in(before);
            budget.values(list.size() * n + values_in(list));
            budget.hold(list.size() * n * bytes_of_value);
            for (size_t i = 0; i < list.size(); i++)
                more.push_back(before.empty() ? list.at(i) : both(before, list.at(i)));
        }
        each = std::move(more);
    }
    return each;
}

maybe lowerer::lower_demands(const demands &all, const std::string &at)
{
    if (!all.possible) return {};
    if (all.choices.empty()) return lower_plain(all.plain, at);
    common_json alternatives = common_json::array();
    std::set<std::string> known;
    const std::vector<common_json> each = combined(all);
    for (size_t i = 0; i < each.size(); i++) {
        maybe lowered = lower(each[i], all.choices.size() == 1 ? at + "/anyOf/" + std::to_string(i) : at);
        if (!lowered) continue;
        std::string text = lowered->dump();
        budget.text(text.size());
        if (known.insert(std::move(text)).second) alternatives.push_back(std::move(*lowered));
    }
    return any_of(alternatives);
}

/* ---- Definitions ---- */

/* A schema that refers to others may refer to itself, so it becomes a definition. */
maybe lowerer::lower_named(const common_json &schema, const std::string &at)
{
    bool alone = !schema.contains("allOf") && !schema.contains("anyOf") && !schema.contains("oneOf") &&
                 enforced_part(schema).empty() && schema.contains("$ref");
    std::string key = alone ? schema.at("$ref").dump() : schema.dump();
    budget.text(key.size());
    auto known = names.find(key);
    common_json reference = common_json::object();
    if (known == names.end()) {
        std::string name = prefix + std::to_string(names.size());
        budget.hold(key.size());
        names.emplace(key, name);
        definitions[name] = common_json::object();
        open.insert(name);
        maybe lowered;
        if (alone) {
            note_unenforced(schema);
            lowered = lower(target_of(schema), at);
        } else {
            demands all;
            gather(schema, all, 0);
            lowered = lower_demands(all, at);
        }
        open.erase(name);
        if (!lowered) impossible.insert(name);
        if (lowered) definitions[name] = std::move(*lowered);
        known = names.find(key);
    } else if (open.count(known->second) != 0) {
        throw schema_fault("has a $ref that goes round in circles");
    }
    if (impossible.count(known->second) != 0) return {};
    reference["$ref"] = "#/$defs/" + known->second;
    return reference;
}

/* A schema within an object or an array is reached after something was read, so it may refer to open definitions. */
maybe lowerer::lower_within(const common_json &schema, const std::string &at)
{
    std::set<std::string> before;
    before.swap(open);
    maybe lowered = lower(schema, at);
    open.swap(before);
    return lowered;
}

/* Where it cannot be kept, any value is taken. */
maybe lowerer::lower(const common_json &schema, const std::string &at)
{
    struct deeper {
        explicit deeper(int &of) : levels(of) { levels++; }
        ~deeper() { levels--; }
        int &levels;
    } here(n_open);
    try {
        budget.parts(1);
        if (n_open > max_lowered_depth) throw schema_fault("is nested too deeply, with its references");
        if (schema.is_object() && (schema.contains("$ref") || schema.contains("allOf"))) return lower_named(schema, at);
        demands all;
        gather(schema, all, 0);
        return lower_demands(all, at);
    } catch (const schema_fault &fault) {
        note(at, fault.what());
        return common_json::object();
    } catch (schema_too_large &reached) {
        if (reached.pointer.empty()) reached.pointer = at;
        throw;
    }
}

/* ---- Literals ---- */

maybe lowerer::lower_literals(const common_json &schema)
{
    common_json values = common_json::array(), literals = common_json::object();
    for (size_t i = 0; i < schema.at("enum").size(); i++) {
        const common_json &value = schema.at("enum").at(i);
        if (allows_literal(schema, value)) values.push_back(value);
        if (value.is_string() && schema.contains("pattern")) result.unenforced.insert("pattern beside enum");
    }
    if (values.empty()) return {};
    literals["enum"] = values;
    return literals;
}

/* ---- Types ---- */

maybe lowerer::lower_plain(const common_json &schema, const std::string &at)
{
    common_json alternatives = common_json::array();
    auto has_any = [&](std::initializer_list<const char *> keys) {
        return std::any_of(keys.begin(), keys.end(), [&](const char *key) { return schema.contains(key); });
    };
    if (schema.contains("enum")) return lower_literals(schema);
    if (!schema.contains("type")) {
        bool object = has_any({"properties", "required", "additionalProperties"});
        bool array = has_any({"prefixItems", "items", "minItems", "maxItems"});
        bool string = has_any({"pattern", "format", "minLength", "maxLength"});
        if (schema.empty()) return common_json::object();
        return lower_type(schema, object ? "object" : array ? "array" : string ? "string" : "number", at);
    }
    for (size_t i = 0; i < schema.at("type").size(); i++) {
        maybe lowered = lower_type(schema, schema.at("type").at(i).get<std::string>(), at);
        if (lowered) alternatives.push_back(std::move(*lowered));
    }
    return any_of(alternatives);
}

maybe lowerer::lower_type(const common_json &schema, const std::string &type, const std::string &at)
{
    if (type == "object") return lower_object(schema, at);
    if (type == "array") return lower_array(schema, at);
    if (type == "string") return lower_string(schema, at);
    if (type == "integer") return lower_integer(schema);
    if (type == "number") return lower_number(schema);
    return of_type(type.c_str());
}

/* ---- Objects ---- */

/* llama.cpp requires only what is among the properties. */
common_json lowerer::with_required(const common_json &schema, const std::set<std::string> &required) const
{
    common_json properties = schema.contains("properties") ? schema.at("properties") : common_json::object();
    const common_json rest =
        schema.contains("additionalProperties") ? schema.at("additionalProperties") : common_json(true);
    std::set<std::string> missing = required;
    size_t n_rest = values_in(rest);
    for (const auto &entry : properties.items()) missing.erase(entry.k);
    budget.values(values_in(properties) + required.size());
    for (size_t i = 0; !missing.empty() && i < schema.at("required").size(); i++) {
        std::string name = schema.at("required").at(i).get<std::string>();
        if (missing.erase(name) == 0) continue;
        budget.values(n_rest);
        budget.search(properties.size());
        properties[name] = rest;
    }
    return properties;
}

/* Names that llama.cpp cannot keep apart from those of further properties, which then are none; of a long one, each
 * letter is a group within another. */
bool is_hard_to_exclude(const std::string &name)
{
    static const size_t max_groups = 150;
    auto hard = [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || std::string("]\\\"^-").find(c) != std::string::npos;
    };
    return name.empty() || name.size() > max_groups || std::any_of(name.begin(), name.end(), hard);
}

maybe lowerer::lower_object(const common_json &schema, const std::string &at)
{
    const std::set<std::string> required = required_of(schema);
    const common_json properties = with_required(schema, required);
    common_json kept = common_json::object(), object = of_type("object");
    bool hard = false;
    for (const auto &entry : properties.items()) {
        maybe value = lower_within(entry.value(), at + "/properties" + pointer_step(entry.key()));
        if (!value && required.count(entry.key()) != 0) return {};
        hard = hard || is_hard_to_exclude(entry.key());
        budget.search(kept.size());
        if (value) kept[entry.key()] = std::move(*value);
    }
    if (schema.contains("properties") || !properties.empty()) object["properties"] = std::move(kept);
    if (!required.empty()) object["required"] = schema.at("required");
    if (!schema.contains("additionalProperties")) return object;
    maybe rest = lower_within(schema.at("additionalProperties"), at + "/additionalProperties");
    if (!rest || hard)
        object["additionalProperties"] = false;
    else
        object["additionalProperties"] = rest->empty() ? common_json(true) : std::move(*rest);
    return object;
}

/* ---- Arrays ---- */

/* As many items as are listed, or as there have to be; llama.cpp has no other tuple. */
maybe lowerer::lower_tuple(const common_json &schema, const std::string &at)
{
    common_json list = common_json::array(), tuple = of_type("array");
    const common_json &given = schema.at("prefixItems");
    common_json rest = schema.contains("items") ? schema.at("items") : common_json(true);
    size_t least = count_of(schema, "minItems", 0), most = count_of(schema, "maxItems", no_maximum);
    size_t n = std::min(std::max(given.size(), least), most);
    if (n > max_repeats) throw schema_fault("minItems is too large");
    for (size_t i = 0; i < n; i++) {
        bool listed = i < given.size();
        maybe item =
            lower_within(listed ? given.at(i) : rest, at + (listed ? "/prefixItems/" + std::to_string(i) : "/items"));
        if (!item && i < least) return {};
        if (!item) break;
        list.push_back(std::move(*item));
    }
    tuple[list.empty() ? "maxItems" : "prefixItems"] = list.empty() ? common_json(0) : list;
    return tuple;
}

maybe lowerer::lower_array(const common_json &schema, const std::string &at)
{
    common_json array = of_type("array");
    uint32_t least = count_of(schema, "minItems", 0), most = count_of(schema, "maxItems", no_maximum);
    if (least > most) return {};
    if (schema.contains("prefixItems")) return lower_tuple(schema, at);
    maybe item = common_json::object();
    if (schema.contains("items")) item = lower_within(schema.at("items"), at + "/items");
    if (!item && least > 0) return {};
    if (!item) most = 0;
    if (item && !item->empty()) array["items"] = std::move(*item);
    if (limit(least, "minItems", max_repeats, 0, at) > 0) array["minItems"] = least;
    if (limit(most, "maxItems", max_repeats, no_maximum, at) != no_maximum) array["maxItems"] = most;
    return array;
}

/* ---- Strings ---- */

maybe lowerer::matching(const std::string &pattern, const lengths &wanted, const char *unkept, const std::string &at)
{
    common_json string = of_type("string");
    bool keeps_lengths = true;
    std::string text;
    try {
        budget.spend(pattern.size(), price_of_pattern);
        text = json_text_pattern(pattern, wanted, keeps_lengths);
        budget.spend(text.size(), price_of_pattern / 4);
        budget.hold(4 * text.size());
    } catch (const pattern_fault &fault) {
        note(at, "has a pattern that cannot be kept: " + one_line(pattern.substr(0, 200)) + " (" + fault.what() + ")");
        return string;
    }
    if (!keeps_lengths) result.unenforced.insert(unkept);
    string[text.empty() ? "const" : "pattern"] = text;
    return string;
}

maybe lowerer::lower_format(const common_json &schema, const std::string &at)
{
    std::string format = schema.at("format").get<std::string>();
    lengths wanted = lengths_in(schema);
    const char *pattern = pattern_of_format(format);
    if (pattern != nullptr) return matching(pattern, wanted, "minLength or maxLength beside format", at);
    common_json string = schema;
    bool uuid = format == "uuid" || (format.size() == 5 && format.compare(0, 4, "uuid") == 0);
    if (uuid && (wanted.min > 36 || wanted.max < 36)) return {};
    string.erase("format");
    if (uuid) {
        string = of_type("string");
        string["format"] = "uuid";
        return string;
    }
    result.unenforced.insert("format " + one_line(format.substr(0, 40)));
    return lower_string(string, at);
}

maybe lowerer::lower_string(const common_json &schema, const std::string &at)
{
    common_json string = of_type("string");
    lengths wanted = lengths_in(schema);
    if (wanted.min > wanted.max) return {};
    if (schema.contains("pattern")) {
        std::string pattern = schema.at("pattern").get<std::string>();
        if (schema.contains("format")) result.unenforced.insert("format beside pattern");
        return matching(pattern, wanted, "minLength or maxLength beside pattern", at);
    }
    if (schema.contains("format")) return lower_format(schema, at);
    wanted = {limit(wanted.min, "minLength", max_string, 0, at),
              limit(wanted.max, "maxLength", max_string, no_maximum, at)};
    if (wanted.min > max_repeats || (wanted.max != no_maximum && wanted.max > max_repeats)) {
        string["pattern"] = json_text_of_length(wanted);
        return string;
    }
    if (wanted.min > 0) string["minLength"] = wanted.min;
    if (wanted.max != no_maximum) string["maxLength"] = wanted.max;
    return string;
}

/* ---- Integers ---- */

/* The least integer that is not below a number, or the greatest that is not above; `step` is added to a bound that is
 * an integer and excluded itself. */
int64_t bound_of(const common_json &value, bool is_least, bool is_excluded)
{
    double number = value.get<double>();
    if (std::fabs(number) > static_cast<double>(max_integer)) return number < 0 ? -max_integer - 1 : max_integer + 1;
    double inside = is_least ? std::ceil(number) : std::floor(number);
    int64_t bound = value.is_number_integer() ? value.get<int64_t>() : static_cast<int64_t>(inside);
    if (is_excluded && inside == number) bound += is_least ? 1 : -1;
    return bound;
}

/* llama.cpp has both bounds right, but not one alone. */
maybe lowerer::lower_integer(const common_json &schema)
{
    int64_t low = -max_integer, high = max_integer;
    for (const char *key : {"minimum", "exclusiveMinimum"})
        if (schema.contains(key)) low = std::max(low, bound_of(schema.at(key), true, key[0] == 'e'));
    for (const char *key : {"maximum", "exclusiveMaximum"})
        if (schema.contains(key)) high = std::min(high, bound_of(schema.at(key), false, key[0] == 'e'));
    common_json integer = of_type("integer");
    if (low > max_integer || high < -max_integer) throw schema_fault("has bounds of integers with more than 16 digits");
    if (low > high) return {};
    if (low == -max_integer && high == max_integer) return integer;
    integer["minimum"] = low;
    integer["maximum"] = high;
    return integer;
}

/* ---- Numbers ---- */

/* llama.cpp's grammars have no bounds of numbers: mend_grammar() makes one of a string with such a pattern. In a tool's
 * parameters it would be taken for a string where a form of calls has no quotes. */
maybe lowerer::lower_number(const common_json &schema)
{
    static const struct {
        const char *key;
        bool is_low, excludes;
    } keys[] = {{"minimum", true, false},
                {"exclusiveMinimum", true, true},
                {"maximum", false, false},
                {"exclusiveMaximum", false, true}};
    number_bounds bounds;
    double low = 0, high = 0;
    bool is_kept = !of_tool, is_bounded = false;
    for (const auto &one : keys) {
        if (!schema.contains(one.key)) continue;
        std::optional<decimal> &bound = one.is_low ? bounds.low : bounds.high;
        double value = schema.at(one.key).get<double>(), &before = one.is_low ? low : high;
        bool is_tighter = !bound || (one.is_low ? value >= before : value <= before);
        std::optional<decimal> read = read_decimal(schema.at(one.key).dump());
        is_kept = is_kept && read;
        is_bounded = true;
        if (!is_tighter || !is_kept) continue;
        bound = read;
        before = value;
        /* A bound that was cut is none of the numbers that lie beyond it. */
        bool is_near_end = one.is_low != read->is_negative;
        (one.is_low ? bounds.excludes_low : bounds.excludes_high) = read->is_cut ? is_near_end : one.excludes;
    }
    common_json number = of_type("number");
    if (!is_bounded) return number;
    std::string pattern = is_kept ? number_pattern(bounds) : "";
    if (is_kept && pattern.empty()) return {};
    for (const auto &one : keys)
        if (!is_kept && schema.contains(one.key)) result.unenforced.insert(std::string(one.key) + " of numbers");
    if (!is_kept) return number;
    budget.spend(pattern.size(), price_of_pattern);
    number["type"] = "string";
    number["pattern"] = "^" NUMBER_MARK "(" + pattern + ")$";
    return number;
}

/* ---- The outermost schema ---- */

/* Formats of calls with a tag for each argument take their names from an object. */
void lowerer::lower_root()
{
    demands all;
    maybe lowered;
    try {
        gather(root, all, 0);
        if (of_tool && all.plain.contains("properties") && !all.choices.empty()) {
            all.choices.clear();
            result.unenforced.insert("anyOf or oneOf beside a tool's properties");
        }
        lowered = lower_demands(all, "");
        if (!lowered) note("", "allows no value");
    } catch (const schema_fault &fault) {
        note("", fault.what());
    }
    result.schema = lowered ? *lowered : common_json::object();
    bool nameless = result.schema.contains("properties") && result.schema.at("properties").contains("");
    if (nameless && !of_tool) {
        /* A property without a name would have the name of the outermost rule. */
        definitions[prefix] = result.schema;
        result.schema = common_json::object();
        result.schema["$ref"] = "#/$defs/" + prefix;
    }
    if (!definitions.empty()) result.schema["$defs"] = definitions;
}

} // namespace

lowered_schema lower_schema(const common_json &schema, const std::string &prefix, bool of_tool, schema_budget &budget)
{
    size_t n = values_in(schema);
    budget.values(3 * n);
    budget.hold(n * 3 * bytes_of_value);
    lowerer work(with_plain_references(schema, budget), prefix, of_tool, budget);
    work.lower_root();
    return std::move(work.result);
}

} // namespace chat
