/* The shim over llama.cpp's chat templates: see chat.h.
 *
 * common_chat_templates_apply() is passed by, for four reasons: it works out a parser for the model's replies at every
 * call (10 to 25 ms for most templates), it reads the clock where the prompt must not depend on it, it does not tell
 * the request's words from the template's, and it fails where only the parser cannot be made. What it does before it
 * renders is done here too; the rendering itself, and the handlers for single templates, are llama.cpp's.
 *
 * A chat_template belongs to whoever opened it and is constant; what varies from render to render lies on the
 * rendering thread's stack. */
#include "chat/chat.h"
#include "chat/messages.hpp"

#include "chat-auto-parser-helpers.h"
#include "jinja/runtime.h"
#include "log.h"

extern "C" {
#include "base/error.h"
#include "base/memory.h"
}

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>

using chat::refusal;

struct chat_template {
    std::unique_ptr<common_chat_template> compiled;
    bool adds_bos, adds_eos;
    bool thinks; /* what enable_thinking is where the request says nothing */
};

/* ---- The template's surroundings ---- */

using text_parts = std::vector<jinja::string_part>;

/* One render. Handlers for single templates run the template up to three times; the first run is the prompt. */
struct performance {
    std::time_t now;
    bool done;
    text_parts parts;
};

static thread_local performance *current;

static std::string format_time(std::time_t now, const std::string &format)
{
    struct tm local;
    char text[256];
    localtime_r(&now, &local);
    if (std::strftime(text, sizeof text, format.c_str(), &local) == 0)
        throw std::runtime_error("strftime_now: the format is too long or empty");
    return text;
}

static void trust(const jinja::value &value)
{
    for (auto &part : value->val_str.parts) part.is_input = false;
}

/* Templates build special tokens around a role ("<|" + role + "|>"), so a plain word counts as the template's. */
static void trust_roles(const jinja::value &messages)
{
    jinja::value none = jinja::mk_val<jinja::value_undefined>("role");
    for (const auto &message : messages->val_arr) {
        if (!jinja::is_val<jinja::value_object>(message)) continue;
        jinja::value role = message->at("role", none);
        std::string text = role->val_str.str();
        bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
        if (plain) trust(role);
    }
}

/* The statement around a whole template: it fixes the time, marks what may be trusted, and keeps the parts that
 * llama.cpp would join. llama.cpp marks every string it hands over as the request's, its own BOS and EOS too. */
struct stage : jinja::statement {
    jinja::statements body;

    std::string type() const override { return "Stage"; }

    static void set(jinja::context &context)
    {
        /* The built-in uses localtime(), which threads must not share. */
        auto strftime_now = [](const jinja::func_args &args) -> jinja::value {
            args.ensure_vals<jinja::value_string>();
            return jinja::mk_val<jinja::value_string>(format_time(current->now, args.get_pos(0)->as_string().str()));
        };
        context.set_val("strftime_now", jinja::mk_val<jinja::value_func>("strftime_now", strftime_now));
        trust(context.get_val("bos_token"));
        trust(context.get_val("eos_token"));
        trust_roles(context.get_val("messages"));
    }

    jinja::value execute_impl(jinja::context &context) const override
    {
        set(context);
        auto results = jinja::mk_val<jinja::value_array>();
        for (const auto &piece : body) results->push_back(piece->execute(context));
        auto text = jinja::runtime::gather_string_parts(results);
        if (!current->done) current->parts = text->val_str.parts;
        current->done = true;
        return text;
    }
};

/* ---- Errors ---- */

static std::string one_line(std::string text)
{
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
    size_t from = text.find_first_not_of(' ');
    return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') + 1 - from);
}

/* "<what>: <message>\n...<source>...\n   ^", as the lexer and the parser write it. */
static std::string compile_fault(const std::string &what)
{
    size_t line = what.find('\n');
    if (line == std::string::npos) return one_line(what);
    size_t next = what.find('\n', line + 1);
    return one_line(what.substr(0, line)) + " near " + one_line(what.substr(line + 1, next - line - 1));
}

/* "\n---\nWhile executing <kind> at <line and column> in source:\n<source>\nError: <message>"; the source has no line
 * ends. What raise_exception() says is the template's own message to the user and is left alone. */
static std::string render_fault(const std::string &what)
{
    static const std::string mark = "\nError: ", raised = "Jinja Exception: ";
    size_t at = what.find(mark);
    std::string message = at == std::string::npos ? what : what.substr(at + mark.size());
    if (message.compare(0, raised.size(), raised) == 0) return one_line(message.substr(raised.size()));
    size_t line = what.find(" at line "), source = what.find(" in source:");
    std::string where = line < source && source < at ? what.substr(line, source - line) : "";
    return "the chat template failed" + where + ": " + one_line(message);
}

/* Runs what may throw and turns what is thrown into an error. */
template <typename action>
static int guarded(hearth_error *error, const char *param, std::string (*explain)(const std::string &), action act)
{
    try {
        act();
        return HEARTH_OK;
    } catch (const refusal &fault) {
        return error_at(error, fault.code, fault.param.c_str(), "%s", fault.message.c_str());
    } catch (const std::bad_alloc &) {
        return error_set(error, HEARTH_NO_MEMORY, "no memory for a chat prompt");
    } catch (const std::exception &fault) {
        return error_at(error, HEARTH_INVALID, param, "%s", explain(fault.what()).c_str());
    } catch (...) {
        return error_set(error, HEARTH_INTERNAL, "the chat template failed in an unknown way");
    }
}

/* ---- Opening ---- */

/* llama.cpp's own lines on stderr would go past the log. */
static void silence_llama_log()
{
    static std::once_flag once;
    std::call_once(once, [] { common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT); });
}

static bool supports_thinking(const common_chat_templates *templates)
{
    try {
        return common_chat_templates_support_enable_thinking(templates);
    } catch (const std::exception &) {
        return false;
    }
}

static std::unique_ptr<common_chat_template> compile(const std::string &source, const std::string &bos,
                                                     const std::string &eos)
{
    auto compiled = std::make_unique<common_chat_template>(source, bos, eos);
    auto around = std::make_unique<stage>();
    around->pos = 0;
    around->body = std::move(compiled->prog.body);
    compiled->prog.body.clear();
    compiled->prog.body.push_back(std::move(around));
    return compiled;
}

struct chat_template *chat_template_open(const struct chat_template_params *params, hearth_error *error)
{
    silence_llama_log();
    auto result = std::make_unique<chat_template>();
    result->adds_bos = params->adds_bos;
    result->adds_eos = params->adds_eos;
    int code = guarded(error, "chat_template", compile_fault, [&] {
        std::string source = params->source, bos = params->bos, eos = params->eos;
        if (source.empty()) throw refusal{HEARTH_INVALID, "chat_template", "must not be empty"};
        compile(source, bos, eos); /* for its message: the next line loses it */
        common_chat_templates_ptr templates = common_chat_templates_init(nullptr, source, bos, eos);
        result->thinks = supports_thinking(templates.get());
        /* llama.cpp replaces what it knows to be wrong in some templates. */
        result->compiled = compile(common_chat_templates_source(templates.get()), bos, eos);
    });
    return code == HEARTH_OK ? result.release() : nullptr;
}

void chat_template_close(struct chat_template *template_)
{
    delete template_;
}

const char *chat_template_source(const struct chat_template *template_)
{
    return template_->compiled->source().c_str();
}

/* ---- What the template is given ---- */

static void trim(common_chat_msg &message)
{
    message.content = trim_whitespace(message.content);
    message.reasoning_content = trim_whitespace(message.reasoning_content);
    for (auto &part : message.content_parts) part.text = trim_whitespace(part.text);
}

/* Bends the messages to what the template can take, as llama-server does. */
static void adapt(std::vector<common_chat_msg> &messages, const common_chat_template &compiled)
{
    bool knows_developer = compiled.source().find("<|channel|>") != std::string::npos; /* gpt-oss */
    /* StepFun's models loop on stray white space. */
    bool wants_trim =
        compiled.source().find("You have access to the following functions in JSONSchema format") != std::string::npos;
    for (auto &message : messages) {
        if (message.role == "developer" && !knows_developer) message.role = "system";
        if (wants_trim) trim(message);
    }
    if (!compiled.caps.supports_system_role && messages[0].role == "system") {
        if (messages.size() > 1) {
            messages[1].content = messages[0].render_content("\n") + "\n" + messages[1].render_content("\n");
            messages[1].content_parts.clear();
        }
        messages.erase(messages.begin());
    }
    if (compiled.caps.supports_string_content || !compiled.caps.supports_typed_content) return;
    for (auto &message : messages) {
        if (!message.content_parts.empty()) continue;
        message.content_parts.push_back({"text", message.content});
        message.content.clear();
    }
}

/* `removed`: how many messages of the request adapt() took away before these. */
static void parse_arguments(common_json &messages, size_t removed)
{
    for (size_t i = 0; i < messages.size(); i++) {
        if (!messages[i].contains("tool_calls")) continue;
        common_json &calls = messages[i]["tool_calls"];
        for (size_t k = 0; k < calls.size(); k++) {
            common_json &arguments = calls[k]["function"]["arguments"];
            std::string path = "messages[" + std::to_string(i + removed) + "].tool_calls[" + std::to_string(k) +
                               "].function.arguments";
            arguments = chat::parse_json(arguments.get<std::string>(), path);
        }
    }
}

/* The two that would undo what was checked or asked for elsewhere are refused. */
static void read_kwargs(autoparser::generation_params &params, const char *text)
{
    common_json kwargs = chat::parse_json(text, "chat_template_kwargs");
    if (!kwargs.is_object()) throw refusal{HEARTH_INVALID, "chat_template_kwargs", "must be an object"};
    for (const auto &entry : kwargs.items()) {
        std::string path = "chat_template_kwargs." + entry.key();
        if (entry.key() == "messages" || entry.key() == "add_generation_prompt")
            throw refusal{HEARTH_INVALID, path, "cannot be set here"};
        if (entry.key() == "enable_thinking") {
            if (!entry.value().is_boolean()) throw refusal{HEARTH_INVALID, path, "must be true or false"};
            params.enable_thinking = entry.value().get<bool>();
        }
        params.extra_context[entry.key()] = entry.value();
    }
}

static autoparser::generation_params prepare(const chat_template &template_, const chat_request &request)
{
    const common_chat_template &compiled = *template_.compiled;
    autoparser::generation_params params;
    std::vector<common_chat_msg> messages = chat::read_messages(request.messages_json);
    if (request.n_messages > 0 && request.n_messages < messages.size()) messages.resize(request.n_messages);
    size_t given = messages.size();
    adapt(messages, compiled);
    bool joined = compiled.caps.supports_string_content && !compiled.caps.supports_typed_content;
    params.messages = common_chat_msgs_to_json_oaicompat(messages, joined);
    if (compiled.caps.supports_object_arguments) parse_arguments(params.messages, given - messages.size());
    params.reasoning_format = COMMON_REASONING_FORMAT_NONE;
    params.add_generation_prompt = request.generation_cue;
    params.enable_thinking = template_.thinks;
    params.add_bos = template_.adds_bos;
    params.add_eos = template_.adds_eos;
    params.extra_context = common_json::object();
    params.extra_context["datetime"] = format_time(current->now, "%b %d %Y");
    params.extra_context["date_string"] = format_time(current->now, "%d %b %Y");
    if (request.kwargs_json != nullptr) read_kwargs(params, request.kwargs_json);
    return params;
}

/* ---- Rendering ---- */

/* For each byte, whether it is the request's. llama.cpp takes BOS and EOS off what the template gave, and handlers for
 * single templates change its end: what is the same at both ends keeps its marks, the rest is the template's. */
static std::vector<bool> mark_bytes(const text_parts &parts, const std::string &text, const std::string &removed)
{
    std::string given;
    std::vector<bool> marks;
    for (const auto &part : parts) {
        given += part.val;
        marks.resize(given.size(), part.is_input);
    }
    size_t skip = given.compare(0, removed.size(), removed) == 0 ? removed.size() : 0;
    size_t most = std::min(given.size() - skip, text.size()), front = 0, back = 0;
    while (front < most && given[skip + front] == text[front]) front++;
    while (back < most - front && given[given.size() - 1 - back] == text[text.size() - 1 - back]) back++;

    auto at = [&](size_t index) { return marks.begin() + static_cast<std::ptrdiff_t>(index); };
    std::vector<bool> result(at(skip), at(skip + front));
    result.resize(text.size() - back, false);
    result.insert(result.end(), at(given.size() - back), marks.end());
    return result;
}

static void fill(chat_prompt &prompt, const std::string &text, const std::vector<bool> &marks)
{
    std::vector<chat_part> parts;
    for (size_t i = 0; i < text.size(); i++) {
        if (i == 0 || marks[i] != marks[i - 1]) parts.push_back({i, 0, marks[i]});
        parts.back().len++;
    }
    prompt.text = static_cast<char *>(mem_alloc(text.size() + 1));
    std::memcpy(prompt.text, text.data(), text.size());
    prompt.len = text.size();
    prompt.parts = static_cast<chat_part *>(mem_alloc((parts.size() + 1) * sizeof(chat_part)));
    std::copy(parts.begin(), parts.end(), prompt.parts);
    prompt.n_parts = parts.size();
}

static void render(const chat_template &template_, const chat_request &request, chat_prompt &prompt)
{
    const common_chat_template &compiled = *template_.compiled;
    autoparser::generation_params params = prepare(template_, request);
    auto special = common_chat_try_specialized_template(compiled, compiled.source(), params);
    std::string text = special ? special->prompt : common_chat_template_direct_apply(compiled, params);
    fill(prompt, text, mark_bytes(current->parts, text, template_.adds_bos ? compiled.bos_token() : ""));
}

int chat_render_parts(const struct chat_template *template_, const struct chat_request *request,
                      struct chat_prompt *prompt, hearth_error *error)
{
    *prompt = {};
    performance now_playing = {static_cast<std::time_t>(request->now), false, {}};
    current = &now_playing;
    int code = guarded(error, "messages", render_fault, [&] { render(*template_, *request, *prompt); });
    current = nullptr;
    return code;
}

void chat_prompt_release(struct chat_prompt *prompt)
{
    std::free(prompt->text);
    std::free(prompt->parts);
    *prompt = {};
}

char *chat_render(const struct chat_template *template_, const struct chat_request *request, hearth_error *error)
{
    struct chat_prompt prompt;
    if (chat_render_parts(template_, request, &prompt, error) != HEARTH_OK) return nullptr;
    if (std::strlen(prompt.text) != prompt.len) {
        error_at(error, HEARTH_INVALID, "messages", "must not contain U+0000");
        chat_prompt_release(&prompt);
        return nullptr;
    }
    char *text = prompt.text;
    prompt.text = nullptr;
    chat_prompt_release(&prompt);
    return text;
}
