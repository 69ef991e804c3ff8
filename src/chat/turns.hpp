/* How messages are put so that a template prints all of their text. Templates differ in what they print. One drops the
 * text beside a call, another all but the first part of a message, a third refuses two messages of the user's in a row.
 * The turn_rules of a template are found once, when it is opened (probe.cpp); each request's messages are then put by
 * them.
 *
 * Messages are changed so that a prompt that was rendered once stays a prefix of later ones. Pure functions; any
 * thread. */
#ifndef CHAT_TURNS_HPP
#define CHAT_TURNS_HPP

#include "chat-auto-parser.h"

#include <string>
#include <vector>

namespace chat
{

/* How a message's content is handed over. */
enum class shape {
    native, /* a string is a string, parts are parts */
    text,   /* parts are joined to a string */
    parts,  /* a string is one part */
    part    /* all of it is one part */
};

enum class system_place {
    anywhere,
    first,  /* later ones become part of a user's turn, in their own place */
    nowhere /* the first one, too */
};

enum class assistants {
    apart,  /* two of them may follow each other */
    joined, /* they become one */
    parted  /* an empty message of the user's is put between them */
};

struct turn_rules {
    shape system_shape = shape::native, user_shape = shape::native, assistant_shape = shape::native,
          tool_shape = shape::native;
    system_place system = system_place::anywhere;
    std::string system_end = "\n"; /* between the first system message and the user's text, where it is no message */
    bool user_first = false;    /* an empty message of the user's is put before any other that is no system message */
    bool joins_users = false;   /* users' messages in a row become one */
    bool joins_results = false; /* a user's message becomes a part of the tool's result before it */
    bool shortens_ids = false;  /* ids of calls become nine letters and digits */
    bool argument_objects = false;  /* arguments are objects; else the text of one */
    bool wraps_raw = false;         /* arguments that are no object become one: {"arguments": text} */
    bool tools_as_text = false;     /* tools are words of the system's: see tell_of_tools() */
    bool new_calls_as_text = false; /* so are the calls in replies */
    bool calls_as_text = false;     /* calls are words of the assistant's */
    bool results_as_text = false;   /* results of tools are words of the user's */
    bool calls_apart = false;       /* each call is a message of its own */
    bool parts_calls = false; /* an empty message of the user's is put between what the assistant says and calls */
    bool text_before_calls = false; /* text beside calls is a message of its own before them */
    assistants in_a_row = assistants::apart;
};

/* The messages as the template gets them. `whole`: they are not the leading part of a request, to be rendered by
 * itself.
 */
std::vector<common_chat_msg> make_turns(const turn_rules &rules, const std::vector<common_chat_msg> &messages,
                                        bool whole);

/* Rules that any template keeps: users and the assistant take turns, and all else is their words. For conversations
 * that a template refuses by the rules that it is known to have. */
turn_rules plain_rules(const turn_rules &known);

/* Tells of the tools that the template does not print, and of calls that are words, in a first message of the system's.
 * Where a template has no form of calls, they are JSON between tags, and results are words of the user's. Any model can
 * be told so, and the grammar binds one that is required to call. */
void tell_of_tools(const turn_rules &rules, std::vector<common_chat_msg> &messages, const common_json &tools);

/* The form in which the template gets them. */
common_json turns_to_json(const turn_rules &rules, const std::vector<common_chat_msg> &turns);

/* All text of a message: its parts joined by line ends, but for media, whose markers stand between them as they are. */
std::string text_of(const common_chat_msg &message);

/* Puts one message of the assistant's before another, which it becomes a part of. */
void join_before(common_chat_msg &message, const common_chat_msg &before);

} // namespace chat

#endif
