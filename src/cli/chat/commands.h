/* The commands of a chat: lines that begin with "/" and the name of one. Main thread only. */
#ifndef CLI_CHAT_COMMANDS_H
#define CLI_CHAT_COMMANDS_H

#include "cli/chat/chat_turns.h"

/* Runs a message of one line that is a command; false: it is none. `*status` gets the code of its failure, which was
 * printed, or HEARTH_OK. On a terminal a line that begins like a command is refused, with the nearest name. */
bool commands_take(struct chat *chat, const char *text, int *status);

#endif
