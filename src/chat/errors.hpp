/* Errors inside the C++ shim: they are thrown as exceptions and become a hearth_error at the boundary to C.
 *
 * No exception may leave the shim: every function that C calls runs its work under guarded(). */
#ifndef CHAT_ERRORS_HPP
#define CHAT_ERRORS_HPP

#include "hearth.h"

#include <functional>
#include <string>

namespace chat
{

/* An error in a request, with the field at fault. */
struct refusal {
    hearth_code code;
    std::string param, message;
};

/* A template's own error, with what it failed on. */
struct template_failure {
    std::string param, message;
};

/* The work is given up (patience.hpp). No std::exception: the template engine would make an error of the template's of
 * it, and the messages would be put in another form. */
struct given_up {};

/* The text without control characters and outer white space: errors are one line. */
std::string one_line(const std::string &text);

/* llama.cpp's messages for a template that does not compile, and for one that failed while rendering, made readable. */
std::string compile_error_message(const std::string &what);
std::string render_error_message(const std::string &what);

/* Runs `act`, which may throw. A refusal becomes the error as it is; for any other exception `explain` makes the
 * message. */
int guarded(hearth_error *error, const char *param, std::string (*explain)(const std::string &),
            const std::function<void()> &act);

} // namespace chat

#endif
