/* Failures inside the shim: they travel as exceptions and become a hearth_error at the boundary to C.
 *
 * Nothing may leave the shim as an exception: every function that C calls runs its work under guarded(). */
#ifndef CHAT_ERRORS_HPP
#define CHAT_ERRORS_HPP

#include "hearth.h"

#include <functional>
#include <string>

namespace chat
{

/* What is wrong with a request, by the field at fault. */
struct refusal {
    hearth_code code;
    std::string param, message;
};

/* Without control characters and white space around it: errors are one line. */
std::string one_line(const std::string &text);

/* llama.cpp's words for a template that cannot be compiled, and for one that failed while rendering. */
std::string compile_fault(const std::string &what);
std::string render_fault(const std::string &what);

/* Runs what may throw. A refusal is taken over as it is; of any other exception `explain` makes the message. */
int guarded(hearth_error *error, const char *param, std::string (*explain)(const std::string &),
            const std::function<void()> &act);

} // namespace chat

#endif
