/* Takes llama.cpp's parser of replies without calls for a grammar, with the schema in the place of the content: see
 * json_reply.hpp. */
#include "chat/json_reply.hpp"

#include "chat-peg-parser.h"
#include "json-schema-to-grammar.h"

namespace chat
{

bool lacks_json_grammar(const common_chat_params &made, const autoparser::generation_params &params)
{
    return !params.json_schema.is_null() && made.grammar.empty();
}

static bool is_content(const common_peg_parser_variant &node)
{
    const auto *tag = std::get_if<common_peg_tag_parser>(&node);
    return tag != nullptr && tag->tag == common_chat_peg_builder::CONTENT;
}

static void require_content(const common_peg_arena &arena, common_peg_parser_variant &node)
{
    auto *optional = std::get_if<common_peg_repetition_parser>(&node);
    if (optional != nullptr && is_content(arena.get(optional->child))) optional->min_count = 1;
}

/* Text before content that has marks around it, which some templates allow: the schema is of one of the two. */
static void drop_all_but_last_content(common_peg_arena &arena, common_peg_parser_variant &node)
{
    auto *sequence = std::get_if<common_peg_sequence_parser>(&node);
    bool found = false;
    for (size_t i = sequence == nullptr ? 0 : sequence->children.size(); i-- > 0;) {
        common_peg_parser_variant &child = arena.get(sequence->children[i]);
        if (!is_content(child)) continue;
        if (found) child = common_peg_epsilon_parser{};
        found = true;
    }
}

void take_last_content(common_peg_arena &parser)
{
    for (common_peg_parser_id id = 0; id < parser.size(); id++) drop_all_but_last_content(parser, parser.get(id));
}

static void replace_content(common_peg_parser_variant &node, const std::string &rule)
{
    if (is_content(node)) node = common_peg_gbnf_parser{std::get<common_peg_tag_parser>(node).child, rule};
}

static std::string json_grammar(const common_chat_params &made, const common_json &schema)
{
    common_peg_arena arena;
    arena.load(made.parser);
    common_chat_schema_document document = common_chat_schema_from_json(schema);
    return build_grammar([&](const common_grammar_builder &builder) {
        std::string rule = builder.add_schema("response-format", *document.root);
        take_last_content(arena);
        for (common_peg_parser_id id = 0; id < arena.size(); id++) require_content(arena, arena.get(id));
        for (common_peg_parser_id id = 0; id < arena.size(); id++) replace_content(arena.get(id), rule);
        arena.build_grammar(builder, false);
    });
}

common_chat_params json_reply(const chat_template &template_, autoparser::generation_params params)
{
    params.tools = common_json::array();
    params.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    const common_json schema = params.json_schema;
    params.json_schema = common_json();
    autoparser::generation_params scratch = params, apart = params; /* some handlers modify it */
    common_chat_params result = apply_template(template_, scratch);
    apart.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK; /* else reasoning is content, too */
    result.grammar = json_grammar(apply_template(template_, apart), schema);
    return result;
}

} // namespace chat
