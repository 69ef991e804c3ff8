/* Merges JSON schemas: see schema_merge.hpp. */
#include "chat/schema_merge.hpp"

#include "chat/errors.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace chat
{

/* ---- Keywords ---- */

static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
static const char *const others[] = {
    "type",  "enum",        "const",           "properties", "required", "additionalProperties",
    "items", "prefixItems", "additionalItems", "pattern",    "format"};

template <size_t n> static bool is_one_of(const char *const (&list)[n], const std::string &keyword)
{
    return std::any_of(list, list + n, [&](const char *known) { return keyword == known; });
}

bool is_enforced(const std::string &keyword)
{
    return is_one_of(least, keyword) || is_one_of(most, keyword) || is_one_of(others, keyword);
}

bool is_of_type(const common_json &value, const std::string &type)
{
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    if (type == "number") return value.is_number();
    return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
}

/* ---- One schema ---- */

static common_json types_of(const common_json &type)
{
    static const char *const known[] = {"null", "boolean", "object", "array", "number", "string", "integer"};
    common_json list = type;
    if (type.is_string()) {
        list = common_json::array();
        list.push_back(type);
    }
    if (!list.is_array() || list.empty()) throw schema_fault("type must be a string or a list of strings");
    for (size_t i = 0; i < list.size(); i++) {
        if (!list.at(i).is_string()) throw schema_fault("type must be a string or a list of strings");
        std::string name = list.at(i).get<std::string>();
        if (!is_one_of(known, name)) throw schema_fault("unrecognized type " + one_line(name));
        for (size_t k = 0; k < i; k++)
            if (list.at(k).get<std::string>() == name)
                throw schema_fault("has a list of types with '" + name + "' twice");
    }
    return list;
}

static void demand(bool holds, const std::string &keyword, const char *what)
{
    if (!holds) throw schema_fault(keyword + " must be " + what);
}

/* A draft before 2019 has `exclusiveMinimum: true`, beside `minimum`. */
static void add_bound(common_json &into, const common_json &schema, const std::string &key, const common_json &value)
{
    if (value.is_boolean() && (key == "exclusiveMinimum" || key == "exclusiveMaximum")) {
        std::string bound = key == "exclusiveMinimum" ? "minimum" : "maximum";
        if (value.get<bool>() && schema.contains(bound)) into[key] = schema.at(bound);
        return;
    }
    bool counts = key.find("Length") != std::string::npos || key.find("Items") != std::string::npos;
    demand(value.is_number(), key, counts ? "a non-negative integer" : "a number");
    double number = value.get<double>();
    if (counts) demand(number >= 0 && std::floor(number) == number, key, "a non-negative integer");
    into[key] = value;
}

static void check_members(const common_json &schema)
{
    for (const char *key : {"pattern", "format"})
        if (schema.contains(key)) demand(schema.at(key).is_string(), key, "a string");
    if (schema.contains("properties")) demand(schema.at("properties").is_object(), "properties", "an object");
    if (schema.contains("prefixItems")) demand(schema.at("prefixItems").is_array(), "prefixItems", "a list");
    if (schema.contains("required")) demand(schema.at("required").is_array(), "required", "a list of strings");
    for (size_t i = 0; schema.contains("required") && i < schema.at("required").size(); i++)
        demand(schema.at("required").at(i).is_string(), "required", "a list of strings");
    if (schema.contains("enum")) demand(schema.at("enum").is_array(), "enum", "a list");
}

common_json enforced_part(const common_json &schema)
{
    common_json result = common_json::object();
    check_members(schema);
    for (const auto &entry : schema.items()) {
        const std::string &key = entry.key();
        if (is_one_of(least, key) || is_one_of(most, key))
            add_bound(result, schema, key, entry.value());
        else if (key == "type")
            result[key] = types_of(entry.value());
        else if (is_one_of(others, key))
            result[key] = entry.value();
    }
    if (result.contains("const")) {
        common_json only = common_json::array();
        only.push_back(result.at("const"));
        bool allowed = !result.contains("enum");
        for (size_t i = 0; !allowed && i < result.at("enum").size(); i++)
            allowed = result.at("enum").at(i).dump() == only.at(0).dump();
        result["enum"] = allowed ? only : common_json::array();
        result.erase("const");
    }
    if (result.contains("items") && result.at("items").is_array()) {
        common_json listed = result.at("items");
        result.erase("items");
        result["prefixItems"] = listed;
        if (result.contains("additionalItems")) result["items"] = result.at("additionalItems");
    }
    if (result.contains("additionalItems")) result.erase("additionalItems");
    return result;
}

/* ---- Two schemas ---- */

common_json both(const common_json &a, const common_json &b)
{
    if (a.is_boolean()) return a.get<bool>() ? b : a;
    if (b.is_boolean()) return b.get<bool>() ? a : b;
    if (a.dump() == b.dump()) return a;
    common_json list = common_json::array(), result = common_json::object();
    list.push_back(a);
    list.push_back(b);
    result["allOf"] = list;
    return result;
}

static bool merge_types(common_json &into, const common_json &more)
{
    common_json kept = common_json::array();
    for (size_t i = 0; i < into.size(); i++) {
        for (size_t k = 0; k < more.size(); k++) {
            std::string a = into.at(i).get<std::string>(), b = more.at(k).get<std::string>();
            bool whole = (a == "integer" && b == "number") || (a == "number" && b == "integer");
            common_json type = whole ? common_json("integer") : into.at(i);
            bool known = false;
            for (size_t n = 0; n < kept.size(); n++) known = known || kept.at(n).dump() == type.dump();
            if ((a == b || whole) && !known) kept.push_back(type);
        }
    }
    into = kept;
    return !kept.empty();
}

/* Values in both lists; those that the one list has and the other has too. */
static common_json common_values(const common_json &a, const common_json &b, bool either)
{
    std::set<std::string> in_b;
    for (size_t i = 0; i < b.size(); i++) in_b.insert(b.at(i).dump());
    common_json result = either ? b : common_json::array();
    for (size_t i = 0; i < a.size(); i++)
        if ((in_b.count(a.at(i).dump()) != 0) != either) result.push_back(a.at(i));
    return result;
}

static common_json keyword_or_true(const common_json &schema, const char *key)
{
    return schema.contains(key) ? schema.at(key) : common_json(true);
}

static bool is_true(const common_json &schema)
{
    return schema.is_boolean() && schema.get<bool>();
}

/* A property of one is what the other allows of any, where it has none of that name. */
static void merge_objects(common_json &into, const common_json &more)
{
    const common_json rest = keyword_or_true(into, "additionalProperties"),
                      other = keyword_or_true(more, "additionalProperties"), none = common_json::object();
    bool had_rest = into.contains("additionalProperties") || more.contains("additionalProperties");
    const common_json &theirs = more.contains("properties") ? more.at("properties") : none;
    if (more.contains("properties") && !into.contains("properties")) into["properties"] = none;
    if (into.contains("properties") && !is_true(other))
        for (const auto &entry : into.at("properties").items())
            if (!theirs.contains(entry.k)) entry.v = both(entry.v, other);
    for (const auto &entry : theirs.items()) {
        common_json &mine = into.at("properties");
        if (mine.contains(entry.k))
            mine.at(entry.k) = both(mine.at(entry.k), entry.v);
        else
            mine[entry.k] = both(entry.v, rest);
    }
    if (had_rest) into["additionalProperties"] = both(rest, other);
}

static void merge_arrays(common_json &into, const common_json &more)
{
    const common_json none = common_json::array();
    common_json mine = into.contains("prefixItems") ? into.at("prefixItems") : none;
    const common_json &theirs = more.contains("prefixItems") ? more.at("prefixItems") : none;
    common_json rest = keyword_or_true(into, "items"), other = keyword_or_true(more, "items"),
                list = common_json::array();
    for (size_t i = 0; i < std::max(mine.size(), theirs.size()); i++)
        list.push_back(both(i < mine.size() ? mine.at(i) : rest, i < theirs.size() ? theirs.at(i) : other));
    bool had_rest = into.contains("items") || more.contains("items");
    if (!list.empty()) into["prefixItems"] = list;
    if (had_rest) into["items"] = both(rest, other);
}

static void merge_bound(common_json &into, const std::string &key, const common_json &value)
{
    bool above = value.get<double>() > into.at(key).get<double>();
    if (above == is_one_of(least, key)) into[key] = value;
}

static void merge_text(const common_json &into, const std::string &key, const common_json &value)
{
    if (into.at(key).get<std::string>() != value.get<std::string>())
        throw schema_fault("has two demands of one string by " + key + ", of which one can be kept");
}

bool merge_schema(common_json &into, common_json more)
{
    bool possible = true;
    if (into.empty()) {
        into = std::move(more);
        return !into.contains("enum") || !into.at("enum").empty();
    }
    merge_objects(into, more);
    merge_arrays(into, more);
    for (const auto &entry : more.items()) {
        const std::string &key = entry.key();
        bool apart = key == "properties" || key == "additionalProperties" || key == "items" || key == "prefixItems";
        if (apart) continue;
        if (!into.contains(key))
            into[key] = entry.value();
        else if (key == "type")
            possible = merge_types(into[key], entry.value()) && possible;
        else if (key == "enum" || key == "required")
            into[key] = common_values(into.at(key), entry.value(), key == "required");
        else if (key == "pattern" || key == "format")
            merge_text(into, key, entry.value());
        else
            merge_bound(into, key, entry.value());
    }
    return possible && (!into.contains("enum") || !into.at("enum").empty());
}

} // namespace chat
