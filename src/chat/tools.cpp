/* Reads the tools of a chat request: see tools.hpp. */
#include "chat/tools.hpp"

#include "chat/fields.hpp"
#include "chat/schema.hpp"
#include "chat/wide.hpp"

namespace chat
{

/* llama.cpp makes rule names of tools' names with a regular expression that recurses once a letter, and renders
 * templates over all tools several times. */
static const size_t max_tool_name = 256, max_tools = 1024;

static common_json read_tool(const json_t *tool, const std::string &path)
{
    std::string type = required_text(tool, "type", path);
    if (type != "function")
        throw refusal{HEARTH_UNSUPPORTED, path + ".type", "only tools of type \"function\" are supported"};
    const json_t *function = required_object(tool, "function", path);
    std::string here = path + ".function";
    std::string name = required_text(function, "name", here);
    if (name.size() > max_tool_name)
        throw refusal{HEARTH_INVALID, here + ".name", "is longer than " + std::to_string(max_tool_name) + " bytes"};
    std::string description = optional_text(function, "description", here);
    if (find_field(function, "parameters") != nullptr) required_object(function, "parameters", here);
    const json_t *parameters = json_object_get(function, "parameters");
    return {{"type", "function"},
            {"function",
             {{"name", name},
              {"description", description},
              {"parameters",
               parameters == nullptr ? common_json::object() : to_common(parameters, wide_numbers::marked)}}}};
}

common_json read_tools(const json_t *array)
{
    check_tree(array, wide_numbers::marked, "tools");
    if (!json_is_array(array)) throw refusal{HEARTH_INVALID, "tools", "must be an array"};
    if (json_array_size(array) > max_tools)
        throw refusal{HEARTH_INVALID, "tools", "has more than " + std::to_string(max_tools) + " tools"};
    common_json tools;
    for (size_t i = 0; i < json_array_size(array); i++) {
        std::string path = indexed("tools", i);
        tools.push_back(read_tool(object_item(array, i, path), path));
    }
    return tools;
}

/* Of the budget of one schema: of a hundred tools, most have little. */
static const size_t max_schemas = 4;

void lower_parameters(common_json &tools, std::set<std::string> &unenforced)
{
    schema_budget budget(max_schemas);
    for (size_t i = 0; i < tools.size(); i++) {
        common_json &function = tools[i]["function"];
        if (!function.contains("parameters")) continue;
        common_json parameters = function.at("parameters");
        if (!parameters.is_object() || parameters.empty()) continue;
        unmark_numbers(parameters);
        function["parameters"] = tool_schema(parameters, function.at("name").get<std::string>(),
                                             "t" + std::to_string(i) + "d", budget, unenforced);
    }
}

bool free_unconvertible(common_json &tools, std::set<std::string> &unenforced)
{
    bool found = false;
    std::string reason;
    for (size_t i = 0; i < tools.size(); i++) {
        common_json &function = tools[i]["function"];
        if (!function.contains("parameters") || is_convertible(function.at("parameters"), reason)) continue;
        function["parameters"] = freed_arguments(function.at("name").get<std::string>(), reason, unenforced);
        found = true;
    }
    return found;
}

} // namespace chat
