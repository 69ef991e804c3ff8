/* Finds out what a template prints, by rendering short conversations when it is opened: for each role, each form of a
 * message (a string, one part, several parts, text beside calls, arguments that are no JSON) and each place (first, in
 * the middle, last, two in a row). Pure functions; any thread. */
#ifndef CHAT_PROBE_HPP
#define CHAT_PROBE_HPP

#include "chat/template.hpp"

namespace chat
{

/* Sets template_.turns to the rules by which the template prints most. Each rule is the first of its values with which
 * all conversations that it is about are printed, else the one that loses fewest of them. */
void find_turn_rules(chat_template &template_);

} // namespace chat

#endif
