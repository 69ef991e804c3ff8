/* Goes through JSON schemas: see schema_walk.hpp. */
#include "chat/schema_walk.hpp"

#include <algorithm>
#include <cctype>
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

std::string pointer_step(const std::string &key)
{
    std::string step = "/";
    for (char c : key) step += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return step;
}

void each_subschema(const common_json &schema,
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
  public:
    references(const common_json &root, schema_budget &budget);

    void make_plain(common_json &schema, const std::string &base) const;

  private:
    void collect(const common_json &schema, const std::string &pointer, const std::string &base);
    bool resolve(const std::string &reference, const std::string &base, std::string &pointer) const;

    const common_json &root;
    schema_budget &budget;
    std::map<std::string, std::string> resources; /* the pointer of a schema, by its URI */
    std::map<std::string, std::string> anchors;   /* the pointer of a schema, by URI and "#" and name */
};

void references::collect(const common_json &schema, const std::string &pointer, const std::string &base)
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
    each_subschema(schema,
                   [&](const std::string &step, const common_json &within) { collect(within, pointer + step, here); });
}

references::references(const common_json &of, schema_budget &spent) : root(of), budget(spent)
{
    collect(root, "", "");
    resources.emplace("", "");
}

/* `base`: the URI that $id sets nearest above. */
bool references::resolve(const std::string &reference, const std::string &base, std::string &pointer) const
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

/* In place: of a copy of the root. */
void references::make_plain(common_json &schema, const std::string &base) const
{
    std::string target, reference = text_at(schema, "$ref"), id = without_fragment(text_at(schema, "$id"));
    std::string here = id.empty() ? base : joined_uri(base, id);
    each_subschema(schema, [&](const std::string &, const common_json &within) {
        make_plain(const_cast<common_json &>(within), here); /* `schema` is not const */
    });
    if (!reference.empty() && resolve(reference, here, target)) schema["$ref"] = "#" + target;
}

} // namespace

common_json with_plain_references(const common_json &schema, schema_budget &budget)
{
    common_json result = schema;
    references(schema, budget).make_plain(result, "");
    return result;
}

} // namespace chat
