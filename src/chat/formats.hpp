/* Regular expressions of the values of a JSON schema's "format", each in the forms that its standard has and that are
 * in use. Pure; any thread. */
#ifndef CHAT_FORMATS_HPP
#define CHAT_FORMATS_HPP

#include <string>

namespace chat
{

/* With anchors; NULL: there is none for that format. UUIDs are llama.cpp's. */
const char *pattern_of_format(const std::string &format);

} // namespace chat

#endif
