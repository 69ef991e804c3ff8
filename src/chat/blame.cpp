/* Finds what a template failed on: see blame.hpp. */
#include "chat/blame.hpp"

#include "chat/errors.hpp"
#include "chat/fields.hpp"

#include <exception>
#include <functional>

namespace chat
{

/* Whether smaller requests fail like the request did. */
struct trial {
    const chat_template &template_;
    const chat_request &request;
    const std::string &failure;

    bool fails(const chat_parsed &parsed) const
    {
        render_scope scope(request.now);
        chat_request asked = request;
        asked.continue_final = HEARTH_CONTINUE_NEVER; /* where messages are cut off, the last may be anybody's */
        try {
            prompt_of(template_, read_request(template_, asked, parsed));
            return false;
        } catch (const std::exception &exception) {
            return render_error_message(exception.what()) == failure;
        } catch (const refusal &) {
            return false;
        }
    }
};

/* The smallest number of leading items that fail, of `most` that do, if none does not; searched for by halves, so that
 * it is one whose predecessors do not fail. */
static size_t first_to_fail(size_t most, const std::function<bool(size_t)> &fails)
{
    size_t fine = 0, failing = most;
    while (failing - fine > 1) {
        size_t middle = fine + (failing - fine) / 2;
        (fails(middle) ? failing : fine) = middle;
    }
    return failing;
}

/* Of a tool that fails by itself: whether its parameters are what fails, and which of them. */
static std::string blame_parameters(const trial &trial, chat_parsed alone, const std::string &path)
{
    std::string here = path + ".function.parameters";
    common_json &parameters = alone.tools[0]["function"]["parameters"];
    const common_json schema = parameters, none = common_json::object();
    parameters = common_json{{"type", "object"}, {"properties", none}};
    if (trial.fails(alone)) return path;
    const common_json properties = schema.value("properties", none);
    if (!properties.is_object()) return here;
    size_t left = 64; /* each is a rendering */
    for (const auto &entry : properties.items()) {
        if (left-- == 0) break;
        parameters = schema;
        parameters["properties"] = common_json{{entry.key(), entry.value()}};
        if (trial.fails(alone)) return here + ".properties." + entry.key();
    }
    return here;
}

static std::string blame_tools(const trial &trial, const chat_parsed &parsed)
{
    chat_parsed some = parsed;
    auto cut = [&](size_t n) {
        some.tools = common_json();
        for (size_t i = 0; i < n; i++) some.tools.push_back(parsed.tools.at(i));
    };
    size_t n = first_to_fail(parsed.tools.size(), [&](size_t middle) {
        cut(middle);
        return trial.fails(some);
    });
    std::string path = indexed("tools", n - 1);
    some.tools = common_json::array({parsed.tools.at(n - 1)});
    return trial.fails(some) ? blame_parameters(trial, some, path) : path;
}

static std::string blame_messages(const trial &trial, const chat_parsed &parsed)
{
    chat_parsed some = parsed;
    size_t n = first_to_fail(parsed.messages.size(), [&](size_t middle) {
        some.messages.assign(parsed.messages.begin(), parsed.messages.begin() + static_cast<std::ptrdiff_t>(middle));
        return trial.fails(some);
    });
    return indexed("messages", n - 1);
}

std::string find_culprit(const chat_template &template_, const chat_request &request, const chat_parsed &parsed,
                         const std::string &failure)
{
    trial trial = {template_, request, failure};
    chat_parsed greeting = parsed;
    common_chat_msg hello;
    hello.role = "user";
    hello.content = "Hello";
    greeting.messages = {hello};
    if (!trial.fails(parsed)) return "";
    if (trial.fails(greeting)) {
        chat_parsed bare = greeting;
        bare.tools = common_json();
        return parsed.tools.empty() || trial.fails(bare) ? "" : blame_tools(trial, greeting);
    }
    return blame_messages(trial, parsed);
}

} // namespace chat
