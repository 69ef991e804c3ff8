/* Compiles and renders chat templates: see template.hpp. */
#include "chat/template.hpp"

#include "chat/fields.hpp"
#include "chat/format.hpp"
#include "chat/request.hpp"
#include "chat/wide.hpp"

#include "chat-auto-parser-helpers.h"
#include "jinja/runtime.h"
#include "log.h"

extern "C" {
#include "base/memory.h"
}

#include <algorithm>
#include <cassert>
#include <cctype>
#include <stdexcept>

namespace chat
{

/* ---- The template's surroundings ---- */

thread_local render_scope *render_scope::current;

std::string format_time(std::time_t now, const std::string &format)
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

/* The root statement around a whole template: it fixes the time, marks trusted values, and keeps the parts that
 * llama.cpp would join. llama.cpp marks every string that it passes in as the request's, its own BOS and EOS too. */
struct template_root : jinja::statement {
    jinja::statements body;

    std::string type() const override { return "Stage"; }

    static void set(jinja::context &context)
    {
        /* llama.cpp's built-in uses localtime(), which is not thread-safe. */
        auto strftime_now = [](const jinja::func_args &args) -> jinja::value {
            args.ensure_vals<jinja::value_string>();
            return jinja::mk_val<jinja::value_string>(
                format_time(render_scope::current->now, args.get_pos(0)->as_string().str()));
        };
        context.set_val("strftime_now", jinja::mk_val<jinja::value_func>("strftime_now", strftime_now));
        trust(context.get_val("bos_token"));
        trust(context.get_val("eos_token"));
        /* Templates build special tokens around a role ("<|" + role + "|>"), so a role that is a plain word is trusted
         * as the template's text. */
        jinja::value messages = context.get_val("messages"), none = jinja::mk_val<jinja::value_undefined>("role");
        for (const auto &message : messages->val_arr) {
            if (!jinja::is_val<jinja::value_object>(message)) continue;
            jinja::value role = message->at("role", none);
            std::string text = role->val_str.str();
            if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; }))
                trust(role);
        }
        give_numbers(messages);
        give_numbers(context.get_val("tools"));
    }

    jinja::value execute_impl(jinja::context &context) const override
    {
        set(context);
        auto results = jinja::mk_val<jinja::value_array>();
        for (const auto &piece : body) results->push_back(piece->execute(context));
        auto text = jinja::runtime::gather_string_parts(results);
        for (auto &part : text->val_str.parts) restore_numbers(part.val);
        if (!render_scope::current->done) render_scope::current->parts = text->val_str.parts;
        render_scope::current->done = true;
        return text;
    }
};

/* ---- Questions ---- */

/* Prints nothing. */
struct question : jinja::statement {
    std::string type() const override { return "Question"; }

    jinja::value execute_impl(jinja::context &) const override
    {
        const chat_stop *stop = render_scope::current->stop;
        if (stop != nullptr && stop->gives_up(stop->ud)) throw given_up{};
        return jinja::mk_val<jinja::value_undefined>();
    }
};

static void begin_with_question(jinja::statements &body)
{
    auto asks = std::make_unique<question>();
    asks->pos = 0;
    body.insert(body.begin(), std::move(asks));
}

/* Makes the statements ask, in all their loops and macros. */
static void insert_questions(jinja::statements &statements)
{
    for (auto &one : statements) {
        if (auto *loop = dynamic_cast<jinja::for_statement *>(one.get())) {
            insert_questions(loop->body);
            insert_questions(loop->default_block);
            begin_with_question(loop->body);
        } else if (auto *macro = dynamic_cast<jinja::macro_statement *>(one.get())) {
            insert_questions(macro->body);
            begin_with_question(macro->body);
        } else if (auto *choice = dynamic_cast<jinja::if_statement *>(one.get())) {
            insert_questions(choice->body);
            insert_questions(choice->alternate);
        } else if (auto *block = dynamic_cast<jinja::set_statement *>(one.get())) {
            insert_questions(block->body);
        } else if (auto *filtered = dynamic_cast<jinja::filter_statement *>(one.get())) {
            insert_questions(filtered->body);
        } else if (auto *call = dynamic_cast<jinja::call_statement *>(one.get())) {
            insert_questions(call->body);
        }
    }
}

/* ---- What llama.cpp makes of a request ---- */

/* For a template without a handler, as common_chat_templates_apply() does it. */
static common_chat_params generate(const chat_template &template_, const autoparser::generation_params &params)
{
    const autoparser::autoparser &analysis = template_.analysis;
    common_chat_params result = autoparser::peg_generator::generate_parser(*template_.compiled, params, analysis);
    if (template_.turns.new_calls_as_text && !params.tools.empty())
        result.preserved_tokens.insert(result.preserved_tokens.end(), {"<tool_call>", "</tool_call>"});
    result.supports_thinking = analysis.reasoning.mode != autoparser::reasoning_mode::NONE;
    if (!result.supports_thinking) return result;
    result.thinking_start_tag = trim_whitespace(analysis.reasoning.start);
    std::string end = trim_whitespace(analysis.reasoning.end);
    if (!end.empty()) result.thinking_end_tags = {end};
    return result;
}

common_chat_params apply_template(const chat_template &template_, autoparser::generation_params &params)
{
    assert(render_scope::current != nullptr);
    const common_chat_template &compiled = *template_.compiled;
    auto special = common_chat_try_specialized_template(compiled, compiled.source(), params);
    return special ? *special : generate(template_, params);
}

static std::optional<common_chat_params> apply_handler(const chat_template &template_,
                                                       autoparser::generation_params &params)
{
    if (template_.turns.tools_as_text) params.tools = common_json::array(); /* tools are words of its messages */
    params.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE; /* it changes the parser, not the prompt, and would cost more */
    return common_chat_try_specialized_template(*template_.compiled, template_.compiled->source(), params);
}

rendering prompt_of(const chat_template &template_, autoparser::generation_params params)
{
    assert(render_scope::current != nullptr);
    if (auto special = apply_handler(template_, params)) return {special->prompt, special->generation_prompt};
    bool as_it_is = params.continue_final_message == COMMON_CHAT_CONTINUATION_NONE;
    return {as_it_is ? common_chat_template_direct_apply(*template_.compiled, params)
                     : generate(template_, params).prompt,
            std::nullopt};
}

std::string generation_prompt_of(const chat_template &template_, autoparser::generation_params params,
                                 const chat_prompt *prompt)
{
    if (prompt != nullptr && prompt->generation_prompt != nullptr) return prompt->generation_prompt;
    if (auto special = apply_handler(template_, params)) return special->generation_prompt;
    bool has_generation_prompt =
        params.add_generation_prompt && params.continue_final_message == COMMON_CHAT_CONTINUATION_NONE;
    if (prompt == nullptr || !has_generation_prompt)
        return common_chat_template_generation_prompt(*template_.compiled, params);
    params.add_generation_prompt = false;
    std::string whole(prompt->text, prompt->len);
    std::string without = common_chat_template_direct_apply(*template_.compiled, params);
    size_t most = std::min(whole.size(), without.size()), same = 0;
    while (same < most && whole[same] == without[same]) same++;
    return whole.substr(same);
}

/* ---- Opening ---- */

/* llama.cpp's own lines on stderr would bypass the log. */
static void silence_llama_log()
{
    static std::once_flag once;
    std::call_once(once, [] { common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT); });
}

static common_chat_templates_ptr templates_of(const chat_template_params &params)
{
    return common_chat_templates_init(nullptr, params.source, params.bos, params.eos);
}

static std::unique_ptr<common_chat_template> compile_template(const std::string &source, const std::string &bos,
                                                              const std::string &eos)
{
    auto compiled = std::make_unique<common_chat_template>(source, bos, eos);
    auto around = std::make_unique<template_root>();
    around->pos = 0;
    around->body = std::move(compiled->prog.body);
    insert_questions(around->body);
    compiled->prog.body.clear();
    compiled->prog.body.push_back(std::move(around));
    return compiled;
}

/* Whether llama.cpp has a handler for the template and, where it has one, whether the model reasons. A handler throws
 * where the template refuses what it is tried with. */
static void find_handler(chat_template &template_)
{
    render_scope scope(0);
    autoparser::generation_params params;
    params.messages = common_json::array({common_json{{"role", "user"}, {"content", "test"}}});
    params.add_generation_prompt = true;
    params.extra_context = common_json::object();
    template_.supports_thinking = false;
    try {
        const common_chat_template &compiled = *template_.compiled;
        auto special = common_chat_try_specialized_template(compiled, compiled.source(), params);
        template_.has_handler = special.has_value();
        template_.supports_thinking = special && special->supports_thinking;
    } catch (const std::exception &) {
        template_.has_handler = true;
    }
}

} // namespace chat

chat_template::chat_template() : format_cache(std::make_unique<chat::format_cache>()) {}
chat_template::~chat_template() = default;

struct chat_template *chat_template_open(const struct chat_template_params *params, hearth_error *error)
{
    assert(params != nullptr && params->source != nullptr && params->bos != nullptr && params->eos != nullptr);
    chat::silence_llama_log();
    auto result = std::make_unique<chat_template>();
    result->adds_bos = params->adds_bos;
    result->adds_eos = params->adds_eos;
    int code = chat::guarded(error, "chat_template", chat::compile_error_message, [&] {
        std::string source = params->source, bos = params->bos, eos = params->eos;
        if (source.empty()) throw chat::refusal{HEARTH_INVALID, "chat_template", "must not be empty"};
        if (params->kwargs_json != nullptr)
            result->kwargs = chat::read_kwargs(
                chat::parse_json(chat::mark_wide_numbers(params->kwargs_json), "chat_template_kwargs"));
        chat::compile_template(source, bos, eos); /* for its error message: the next line loses it */
        common_chat_templates_ptr templates = chat::templates_of(*params);
        /* llama.cpp replaces some templates that it knows to be wrong. */
        result->compiled = chat::compile_template(common_chat_templates_source(templates.get()), bos, eos);
        chat::find_handler(*result);
        if (!result->has_handler) {
            /* How it is structured. Where that cannot be found out, replies are plain text. */
            chat::render_scope scope(0);
            autoparser::autoparser &analysis = result->analysis;
            try {
                analysis.analyze_template(*result->compiled);
            } catch (const std::exception &) {
                analysis = autoparser::autoparser();
                analysis.analysis_complete = true;
            }
            result->supports_thinking = analysis.reasoning.mode != autoparser::reasoning_mode::NONE;
        }
        chat::find_turn_rules(*result);
    });
    return code == HEARTH_OK ? result.release() : nullptr;
}

void chat_template_close(struct chat_template *template_)
{
    delete template_;
}

char *chat_capabilities(const struct chat_template_params *params)
{
    common_json caps = common_json::object();
    chat::silence_llama_log();
    chat::guarded(nullptr, "chat_template", chat::compile_error_message, [&] {
        if (params->source[0] == '\0') return;
        for (const auto &cap : common_chat_templates_get_caps(chat::templates_of(*params).get()))
            caps[cap.first] = cap.second;
    });
    return mem_strdup(caps.dump().c_str());
}

void chat_transcription_texts(const struct chat_template_params *params, char **system, char **user)
{
    common_chat_prompt_preset preset;
    chat::silence_llama_log();
    chat::guarded(nullptr, "chat_template", chat::compile_error_message, [&] {
        if (params->source[0] == '\0') return;
        preset = common_chat_get_asr_prompt(chat::templates_of(*params).get());
    });
    *system = mem_strdup(preset.system.c_str());
    *user = mem_strdup(preset.user.c_str());
}

const char *chat_template_source(const struct chat_template *template_)
{
    return template_->compiled->source().c_str();
}
