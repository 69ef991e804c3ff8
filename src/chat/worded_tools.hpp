/* Tools for templates that print none: they are words of the system's. Where the template has no form of calls either,
 * calls are JSON between tags, and results are words of the user's: any model can be told so, and one that is required
 * to call is bound by the grammar. Pure functions; any thread. */
#ifndef CHAT_WORDED_TOOLS_HPP
#define CHAT_WORDED_TOOLS_HPP

#include "chat/template.hpp"

#include <vector>

namespace chat
{

/* Whether replies can hold calls in a form of the template's own. */
bool has_form_of_calls(const chat_template &template_);

/* Makes the template one whose calls are words. */
void put_calls_in_words(chat_template &template_);

/* Tells of the tools that the template does not print, and of calls that are words, in a first message of the system's.
 */
void tell_of_tools(const turn_rules &rules, std::vector<common_chat_msg> &messages, const common_json &tools);

} // namespace chat

#endif
