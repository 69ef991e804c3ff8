/* Goes through JSON schemas, and merges them: see schema_parts.hpp. */
#include "chat/schema_parts.hpp"

#include "chat/fields.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

namespace chat
{

/* ---- Keywords ---- */

/* Of schemas that are nested deeper nothing is converted. */
static const size_t max_pointer = 8192;

static const char *const schema_keywords[] = {"items",
                                              "additionalItems",
                                              "additionalProperties",
                                              "unevaluatedItems",
                                              "unevaluatedProperties",
                                              "contains",
                                              "not",
                                              "if",
                                              "then",
                                              "else",
                                              "propertyNames",
                                              "contentSchema",
                                              "allOf",
                                              "anyOf",
                                              "oneOf",
                                              "prefixItems"};
static const char *const map_keywords[] = {"properties", "patternProperties", "$defs", "definitions",
                                           "dependentSchemas"};

common_json of_type(const char *type)
{
    common_json schema = common_json::object();
    schema["type"] = type;
    return schema;
}

std::set<std::string> required_of(const common_json &schema)
{
    std::set<std::string> names;
    for (size_t i = 0; schema.contains("required") && i < schema.at("required").size(); i++)
        names.insert(schema.at("required").at(i).get<std::string>());
    return names;
}

std::string pointer_step(const std::string &key)
{
    std::string step = "/";
    for (char c : key) step += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return step;
}

/* Calls `each` for every schema directly within a schema, with its JSON pointer from there ("/properties/a"). */
static void each_subschema(const common_json &schema,
                           const std::function<void(const std::string &pointer, const common_json &within)> &each)
{
    if (!schema.is_object()) return;
    for (const char *key : schema_keywords) {
        if (!schema.contains(key)) continue;
        const common_json &value = schema.at(key);
        if (!value.is_array()) each(pointer_step(key), value);
        for (size_t i = 0; value.is_array() && i < value.size(); i++)
            each(pointer_step(key) + "/" + std::to_string(i), value.at(i));
    }
    for (const char *key : map_keywords) {
        if (!schema.contains(key) || !schema.at(key).is_object()) continue;
        for (const auto &named : schema.at(key).items())
            each(pointer_step(key) + pointer_step(named.key()), named.value());
    }
}

/* ---- References ---- */

const common_json *value_at(const common_json &root, const std::string &pointer, schema_budget &budget)
{
    const common_json *value = &root;
    budget.names(pointer.size());
    for (size_t from = 1, end; from <= pointer.size(); from = end + 1) {
        end = std::min(pointer.find('/', from), pointer.size());
        std::string step = pointer.substr(from, end - from), key;
        for (size_t i = 0; i < step.size(); i++) {
            bool coded = step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1');
            key += !coded ? step[i] : step[i + 1] == '0' ? '~' : '/';
            i += coded;
        }
        bool is_index = !key.empty() && key.size() < 7 && key.find_first_not_of("0123456789") == std::string::npos;
        budget.search(value->is_object() ? value->size() : 0);
        if (value->is_object() && value->contains(key))
            value = &value->at(key);
        else if (value->is_array() && is_index && std::stoul(key) < value->size())
            value = &value->at(std::stoul(key));
        else
            return nullptr;
    }
    return value;
}

static std::string text_at(const common_json &schema, const char *key)
{
    return schema.is_object() && schema.contains(key) && schema.at(key).is_string() ? schema.at(key).get<std::string>()
                                                                                    : "";
}

static std::string without_percent(const std::string &text)
{
    std::string result;
    for (size_t i = 0; i < text.size(); i++) {
        bool coded = text[i] == '%' && i + 2 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                     std::isxdigit(static_cast<unsigned char>(text[i + 2]));
        result += coded ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
        if (coded) i += 2;
    }
    return result;
}

/* A relative URI beside another: it takes the place of what stands behind the last slash. */
static std::string joined_uri(const std::string &base, const std::string &uri)
{
    if (uri.empty()) return base;
    size_t colon = uri.find(':'), slash = uri.find('/');
    if (colon != std::string::npos && colon < slash) return uri;
    size_t scheme = base.find("://"),
           host = scheme == std::string::npos ? std::string::npos : base.find('/', scheme + 3);
    if (uri[0] == '/') return (host == std::string::npos ? base : base.substr(0, host)) + uri;
    size_t last = base.rfind('/');
    return last == std::string::npos ? uri : base.substr(0, last + 1) + uri;
}

static std::string without_fragment(const std::string &uri)
{
    return uri.substr(0, uri.find('#'));
}

namespace
{

/* Where references within a schema lead to. Borrows the schema. */
class references
{
    const common_json &root;
    schema_budget &budget;
    std::map<std::string, std::string> resources; /* the pointer of a schema, by its URI */
    std::map<std::string, std::string> anchors;   /* the pointer of a schema, by URI and "#" and name */

    void collect(const common_json &schema, const std::string &pointer, const std::string &base)
    {
        std::string here = base, id = without_fragment(text_at(schema, "$id"));
        if (pointer.size() > max_pointer) return;
        budget.text(pointer.size() + base.size());
        if (!id.empty()) {
            here = joined_uri(base, id);
            budget.hold(here.size() + pointer.size());
            resources.emplace(here, pointer);
        }
        for (const char *key : {"$anchor", "$dynamicAnchor"})
            if (!text_at(schema, key).empty()) anchors.emplace(here + "#" + text_at(schema, key), pointer);
        each_subschema(
            schema, [&](const std::string &step, const common_json &within) { collect(within, pointer + step, here); });
    }

    /* `base`: the URI that $id sets nearest above. */
    bool resolve(const std::string &reference, const std::string &base, std::string &pointer) const
    {
        std::string uri = joined_uri(base, without_fragment(reference));
        size_t hash = reference.find('#');
        std::string fragment = hash == std::string::npos ? "" : without_percent(reference.substr(hash + 1));
        auto resource = resources.find(uri);
        if (!fragment.empty() && fragment[0] != '/') {
            auto anchor = anchors.find(uri + "#" + fragment);
            if (anchor == anchors.end()) return false;
            pointer = anchor->second;
            return true;
        }
        if (resource == resources.end()) return false;
        pointer = resource->second + fragment;
        return pointer.size() <= max_pointer && value_at(root, pointer, budget) != nullptr;
    }

  public:
    references(const common_json &of, schema_budget &spent) : root(of), budget(spent)
    {
        collect(root, "", "");
        resources.emplace("", "");
    }

    /* In place: of a copy of the root. */
    void make_plain(common_json &schema, const std::string &base) const
    {
        std::string target, reference = text_at(schema, "$ref"), id = without_fragment(text_at(schema, "$id"));
        std::string here = id.empty() ? base : joined_uri(base, id);
        each_subschema(schema, [&](const std::string &, const common_json &within) {
            make_plain(const_cast<common_json &>(within), here); /* `schema` is not const */
        });
        if (!reference.empty() && resolve(reference, here, target)) schema["$ref"] = "#" + target;
    }
};

} // namespace

common_json with_plain_references(const common_json &schema, schema_budget &budget)
{
    common_json result = schema;
    references(schema, budget).make_plain(result, "");
    return result;
}

/* ---- Enforced keywords ---- */

static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
static const char *const others[] = {
    "type",  "enum",        "const",           "properties", "required", "additionalProperties",
    "items", "prefixItems", "additionalItems", "pattern",    "format"};

template <size_t n> static bool is_one_of(const char *const (&list)[n], const std::string &keyword)
{
    return std::any_of(list, list + n, [&](const char *known) { return keyword == known; });
}

/* Whether a value is of the type that a schema names. */
static bool is_of_type(const common_json &value, const std::string &type)
{
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    if (type == "number") return value.is_number();
    return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
}

/* ---- What one schema demands ---- */

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

common_json enforced_part(const common_json &schema)
{
    common_json result = common_json::object();
    for (const char *key : {"pattern", "format"})
        if (schema.contains(key)) demand(schema.at(key).is_string(), key, "a string");
    if (schema.contains("properties")) demand(schema.at("properties").is_object(), "properties", "an object");
    if (schema.contains("prefixItems")) demand(schema.at("prefixItems").is_array(), "prefixItems", "a list");
    if (schema.contains("required")) demand(schema.at("required").is_array(), "required", "a list of strings");
    for (size_t i = 0; schema.contains("required") && i < schema.at("required").size(); i++)
        demand(schema.at("required").at(i).is_string(), "required", "a list of strings");
    if (schema.contains("enum")) demand(schema.at("enum").is_array(), "enum", "a list");
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

/* ---- What two demand ---- */

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

/* A property of one is what the other allows of any, where it has none of that name. */
static void merge_objects(common_json &into, const common_json &more)
{
    const common_json rest = keyword_or_true(into, "additionalProperties"),
                      other = keyword_or_true(more, "additionalProperties"), none = common_json::object();
    bool had_rest = into.contains("additionalProperties") || more.contains("additionalProperties");
    const common_json &theirs = more.contains("properties") ? more.at("properties") : none;
    if (more.contains("properties") && !into.contains("properties")) into["properties"] = none;
    if (into.contains("properties") && !(other.is_boolean() && other.get<bool>()))
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
        if (!into.contains(key)) {
            into[key] = entry.value();
        } else if (key == "type") {
            possible = merge_types(into[key], entry.value()) && possible;
        } else if (key == "enum" || key == "required") {
            into[key] = common_values(into.at(key), entry.value(), key == "required");
        } else if (key == "pattern" || key == "format") {
            if (into.at(key).get<std::string>() != entry.value().get<std::string>())
                throw schema_fault("has two demands of one string by " + key + ", of which one can be kept");
        } else {
            const common_json &value = entry.value();
            bool above = value.get<double>() > into.at(key).get<double>();
            if (above == is_one_of(least, key)) into[key] = value;
        }
    }
    return possible && (!into.contains("enum") || !into.at("enum").empty());
}

/* ---- Numbers and literals ---- */

uint32_t count_of(const common_json &schema, const char *key, uint32_t none)
{
    if (!schema.contains(key)) return none;
    double number = schema.at(key).get<double>();
    return number >= no_maximum ? no_maximum - 1 : static_cast<uint32_t>(number);
}

lengths lengths_in(const common_json &schema)
{
    return {count_of(schema, "minLength", 0), count_of(schema, "maxLength", no_maximum)};
}

bool allows_literal(const common_json &schema, const common_json &value)
{
    bool fits = !schema.contains("type");
    for (size_t i = 0; !fits && i < schema.at("type").size(); i++)
        fits = is_of_type(value, schema.at("type").at(i).get<std::string>());
    if (value.is_string()) {
        std::string text = value.get<std::string>();
        auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
        auto n = static_cast<uint32_t>(std::count_if(text.begin(), text.end(), begins));
        fits = fits && n >= lengths_in(schema).min && n <= lengths_in(schema).max;
    }
    if (value.is_array())
        fits = fits && value.size() >= count_of(schema, "minItems", 0) &&
               value.size() <= count_of(schema, "maxItems", no_maximum);
    if (value.is_number()) {
        const double endless = std::numeric_limits<double>::infinity();
        auto bound = [&](const char *key, double none) {
            return schema.contains(key) ? schema.at(key).get<double>() : none;
        };
        double number = value.get<double>();
        fits = fits && number >= bound("minimum", -endless) && number <= bound("maximum", endless) &&
               number > bound("exclusiveMinimum", -endless) && number < bound("exclusiveMaximum", endless);
    }
    return fits;
}

} // namespace chat
