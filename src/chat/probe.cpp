/* Finds out what a template prints, by rendering short conversations when it is opened. They cover each role and each
 * form of a message: a string, one part, several parts, text beside calls, arguments that are no JSON. They cover each
 * place: first, in the middle, last, two in a row. Pure functions; any thread. */
#include "chat/fields.hpp"
#include "chat/request.hpp"

#include <algorithm>
#include <cctype>
#include <climits>

namespace chat
{

/* ---- Conversations ---- */

/* A conversation in letters: s system, u user, a assistant, c a call, r the result of the next call. Other calls: b one
 * with text beside it, p two calls, j one whose arguments are no JSON, l one with a long id, whose result is m. A
 * figure behind a letter is the number of text parts that its content has; without one it is a string. Every text is a
 * word of its own. */
struct script {
    std::vector<common_chat_msg> messages;
    std::vector<std::string> words; /* in their order */
};

static std::string next_word(script &to)
{
    to.words.push_back("word-" + std::to_string(100 + to.words.size()));
    return to.words.back();
}

static const char *const long_id = "call_0123456789abcdefghijklmn";

static std::string id_of_call(size_t n)
{
    return "abc123DE" + std::to_string(n % 10);
}

static common_chat_msg read_letter(script &to, char letter, int n_parts, size_t &n_calls, size_t &n_results)
{
    static const std::string results = "rm", calls = "cbpjl", with_content = "suabrm";
    common_chat_msg message;
    bool is_result = results.find(letter) != std::string::npos, is_call = calls.find(letter) != std::string::npos;
    message.role = letter == 's' ? "system" : letter == 'u' ? "user" : is_result ? "tool" : "assistant";
    if (is_result) message.tool_name = "act";
    if (is_result) message.tool_call_id = letter == 'm' ? long_id : id_of_call(n_results++);
    bool has_content = with_content.find(letter) != std::string::npos;
    if (has_content && n_parts == 0) message.content = next_word(to);
    for (int i = 0; has_content && i < n_parts; i++) message.content_parts.push_back({"text", next_word(to)});
    for (int i = 0; is_call && i < (letter == 'p' ? 2 : 1); i++) {
        common_chat_tool_call call;
        call.id = letter == 'l' ? long_id : id_of_call(n_calls++);
        call.name = "act";
        std::string word = next_word(to);
        call.arguments = letter == 'j' ? word : "{\"x\": \"" + word + "\"}";
        message.tool_calls.push_back(call);
    }
    return message;
}

static script read_script(const std::string &letters)
{
    script result;
    size_t n_calls = 0, n_results = 0;
    for (size_t i = 0; i < letters.size(); i++) {
        bool counts = i + 1 < letters.size() && std::isdigit(static_cast<unsigned char>(letters[i + 1])) != 0;
        int n_parts = counts ? letters[i + 1] - '0' : 0;
        result.messages.push_back(read_letter(result, letters[i], n_parts, n_calls, n_results));
        i += counts;
    }
    return result;
}

/* ---- Asking ---- */

/* The prompt of the messages; nothing where the template refuses them. */
static std::optional<std::string> prompt_of_messages(const chat_template &template_,
                                                     const std::vector<common_chat_msg> &messages, bool with_tools)
{
    render_scope scope(0);
    try {
        chat_parsed parsed;
        parsed.messages = messages;
        if (with_tools)
            parsed.tools = common_json::parse(R"([{"type": "function", "function": {"name": "act",
                "description": "acts", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}}])");
        chat_request request = {};
        request.add_generation_prompt = true;
        request.continue_final = HEARTH_CONTINUE_NEVER;
        return prompt_of(template_, read_request(template_, request, parsed)).prompt;
    } catch (const std::exception &) {
        return std::nullopt;
    } catch (const refusal &) {
        return std::nullopt;
    }
}

static bool prints(const chat_template &template_, const script &said, bool with_tools)
{
    std::optional<std::string> prompt = prompt_of_messages(template_, said.messages, with_tools);
    size_t at = 0;
    for (size_t i = 0; prompt && i < said.words.size() && at != std::string::npos; i++)
        at = prompt->find(said.words[i], at);
    return prompt && at != std::string::npos;
}

/* ---- Rules ---- */

/* One value of a rule. */
using setting = void (*)(turn_rules &);

/* A rule with its values, in the order in which they are tried, and the conversations that it is about. */
struct rule {
    std::vector<setting> values;
    std::vector<const char *> scripts;
    bool about_calls;
};

static int n_lost(const chat_template &template_, const rule &one, int most)
{
    int lost = 0;
    for (const char *letters : one.scripts) {
        script said = read_script(letters);
        lost += !prints(template_, said, false);
        if (one.about_calls) lost += !prints(template_, said, true);
        if (lost >= most) break;
    }
    return lost;
}

static void choose(chat_template &template_, const rule &one)
{
    const turn_rules before = template_.turns;
    turn_rules best = before;
    int fewest = INT_MAX;
    for (size_t i = 0; i < one.values.size() && fewest > 0; i++) {
        template_.turns = before;
        one.values[i](template_.turns);
        int lost = n_lost(template_, one, fewest);
        if (lost < fewest) best = template_.turns;
        fewest = std::min(fewest, lost);
    }
    template_.turns = best;
}

/* The values of a shape, the one first that llama.cpp would take. */
template <shape turn_rules::*role> static std::vector<setting> shapes(const jinja::caps &caps)
{
    static const setting native = [](turn_rules &rules) { rules.*role = shape::native; };
    static const setting text = [](turn_rules &rules) { rules.*role = shape::text; };
    static const setting parts = [](turn_rules &rules) { rules.*role = shape::parts; };
    static const setting part = [](turn_rules &rules) { rules.*role = shape::part; };
    if (!caps.supports_typed_content) return {text, parts, part};
    if (!caps.supports_string_content) return {parts, part, text};
    return {native, text, parts, part};
}

/* Finds the line ends that the template prints between a first system message and the user's. Where it prints other
 * text there, or not both messages, turn_rules.system_end stays as it is. */
static void find_system_end(chat_template &template_)
{
    script said = read_script("su");
    std::optional<std::string> prompt = prompt_of_messages(template_, said.messages, false);
    size_t first = prompt ? prompt->find(said.words[0]) : std::string::npos;
    size_t second = prompt ? prompt->find(said.words[1]) : std::string::npos;
    if (first == std::string::npos || second == std::string::npos || second < first) return;
    first += said.words[0].size();
    std::string between = prompt->substr(first, second - first);
    if (!between.empty() && between.find_first_not_of('\n') == std::string::npos) template_.turns.system_end = between;
}

static const setting as_it_is = [](turn_rules &) {};

/* Most templates print a conversation that has all of it; then the rules are not asked about one by one. */
static void choose_all(chat_template &template_, const std::vector<const char *> &samples,
                       const std::vector<rule> &rules)
{
    const turn_rules before = template_.turns;
    for (const auto &one : rules) one.values[0](template_.turns);
    if (n_lost(template_, {{}, samples, rules[0].about_calls}, 1) == 0) return;
    template_.turns = before;
    for (const auto &one : rules) choose(template_, one);
}

static void find_content_rules(chat_template &template_, const jinja::caps &caps)
{
    choose_all(template_, {"s3u1a1u3a3uau", "suuaau"},
               {{shapes<&turn_rules::user_shape>(caps), {"u", "u1", "u3"}, false},
                {shapes<&turn_rules::assistant_shape>(caps), {"uau", "ua1u", "ua3u"}, false},
                {shapes<&turn_rules::system_shape>(caps), {"su", "s1u", "s3u"}, false},
                {{as_it_is, [](turn_rules &rules) { rules.joins_users = true; }}, {"uu", "uauu"}, false},
                {{as_it_is, [](turn_rules &rules) { rules.in_a_row = assistants::joined; },
                  [](turn_rules &rules) { rules.in_a_row = assistants::parted; }},
                 {"uaau"},
                 false}});
    choose(template_, {{as_it_is, [](turn_rules &rules) { rules.system = system_place::first; },
                        [](turn_rules &rules) { rules.system = system_place::nowhere; }},
                       {"su", "ssu", "sua", "suau", "us", "suasu"},
                       false});
}

static void find_call_rules(chat_template &template_, const jinja::caps &caps)
{
    const setting objects = [](turn_rules &rules) { rules.argument_objects = true; };
    const setting texts = [](turn_rules &rules) { rules.argument_objects = false; };
    const bool takes_objects = caps.supports_object_arguments;
    choose_all(
        template_, {"sulmucr1uacr3ub3raujrau", "sucr", "ucrau", "uacruau", "up"},
        {{{as_it_is, [](turn_rules &rules) { rules.shortens_ids = true; }}, {"ulm"}, true},
         {{takes_objects ? objects : texts, takes_objects ? texts : objects}, {"ucr"}, true},
         {{as_it_is, [](turn_rules &rules) { rules.joins_results = true; }}, {"ucru"}, true},
         {{as_it_is, [](turn_rules &rules) { rules.calls_as_text = true; },
           [](turn_rules &rules) { rules.results_as_text = rules.calls_as_text = true; }},
          {"ucr", "ucru", "ucrau", "sucr"},
          true},
         {{as_it_is, [](turn_rules &rules) { rules.calls_apart = true; }}, {"up"}, true},
         {shapes<&turn_rules::tool_shape>(caps), {"ucru", "ucr1u", "ucr3u"}, true},
         {{as_it_is, [](turn_rules &rules) { rules.parts_calls = true; }}, {"uacru", "uacrau", "uacruau"}, true},
         {{as_it_is, [](turn_rules &rules) { rules.text_before_calls = true; }}, {"ubru", "ubrau", "ub3ru"}, true},
         {{as_it_is, [](turn_rules &rules) { rules.wraps_raw = true; }}, {"ujru"}, true}});
}

/* The words are for a template that prints nothing of tools, or in whose replies llama.cpp would find no calls. */
static void find_tool_words(chat_template &template_)
{
    script said = read_script("su");
    std::optional<std::string> with = prompt_of_messages(template_, said.messages, true);
    std::optional<std::string> without = prompt_of_messages(template_, said.messages, false);
    bool prints_them = with && with != without;
    template_.turns.tools_as_text = !prints_them;
    autoparser::autoparser &analysis = template_.analysis;
    bool has_form =
        analysis.jinja_caps.supports_tool_calls && analysis.tools.format.mode != autoparser::tool_format::NONE;
    if (template_.has_handler || has_form) return;
    analysis.jinja_caps.supports_tool_calls = true;
    analysis.tools = autoparser::analyze_tools();
    analysis.tools.format.mode = autoparser::tool_format::JSON_NATIVE;
    analysis.tools.format.per_call_start = "<tool_call>";
    analysis.tools.format.per_call_end = "</tool_call>";
    turn_rules &rules = template_.turns;
    rules.new_calls_as_text = rules.calls_as_text = rules.results_as_text = true;
}

/* The order matters. The rules of users' and system messages are known before calls are tried, and those of calls
 * before the text beside them. All of them are known before it is tried whose message may come first. */
void find_turn_rules(chat_template &template_)
{
    const jinja::caps caps = template_.compiled->caps;
    /* llama.cpp would bring the content of all messages into one form. */
    template_.compiled->caps.supports_string_content = template_.compiled->caps.supports_typed_content = true;
    template_.turns = turn_rules();
    find_system_end(template_);
    find_content_rules(template_, caps);
    find_call_rules(template_, caps);
    find_tool_words(template_);
    choose(template_,
           {{as_it_is, [](turn_rules &rules) { rules.user_first = true; }}, {"au", "cru", "sau", "a", "s"}, true});
}

} // namespace chat
