/* Exceptions and error messages of the C++ shim: see errors.hpp. */
#include "chat/errors.hpp"

extern "C" {
#include "base/error.h"
}

#include <algorithm>
#include <exception>
#include <new>

namespace chat
{

std::string one_line(const std::string &what)
{
    std::string text = what;
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
    size_t from = text.find_first_not_of(' ');
    return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') + 1 - from);
}

/* "<what>: <message>\n...<source>...\n   ^", as the lexer and the parser write it. */
std::string compile_error_message(const std::string &what)
{
    size_t line = what.find('\n');
    if (line == std::string::npos) return one_line(what);
    size_t next = what.find('\n', line + 1);
    return one_line(what.substr(0, line)) + " near " + one_line(what.substr(line + 1, next - line - 1));
}

/* llama.cpp's form: "\n---\nWhile executing <kind> at <line and column> in source:\n<source>\nError: <message>"; the
 * source has no line ends. A raise_exception() is the template's own message to the user and is passed on unchanged. */
std::string render_error_message(const std::string &what)
{
    static const std::string mark = "\nError: ", raised = "Jinja Exception: ";
    size_t at = what.find(mark);
    std::string message = at == std::string::npos ? what : what.substr(at + mark.size());
    if (message.compare(0, raised.size(), raised) == 0) return one_line(message.substr(raised.size()));
    size_t line = what.find(" at line "), source = what.find(" in source:");
    std::string where = line < source && source < at ? what.substr(line, source - line) : "";
    return "the chat template failed" + where + ": " + one_line(message);
}

int guarded(hearth_error *error, const char *param, std::string (*explain)(const std::string &),
            const std::function<void()> &act)
{
    try {
        act();
        return HEARTH_OK;
    } catch (const refusal &exception) {
        return error_at(error, exception.code, exception.param.c_str(), "'%s' %s", exception.param.c_str(),
                        exception.message.c_str());
    } catch (const template_failure &exception) {
        return error_at(error, HEARTH_INVALID, exception.param.c_str(), "%s: %s", exception.param.c_str(),
                        exception.message.c_str());
    } catch (const given_up &) {
        return error_set(error, HEARTH_CANCELLED, "request was cancelled");
    } catch (const std::bad_alloc &) {
        return error_set(error, HEARTH_NO_MEMORY, "no memory for a chat prompt");
    } catch (const std::exception &exception) {
        return error_at(error, HEARTH_INVALID, param, "%s", explain(exception.what()).c_str());
    } catch (...) {
        return error_set(error, HEARTH_INTERNAL, "the chat template failed in an unknown way");
    }
}

} // namespace chat
