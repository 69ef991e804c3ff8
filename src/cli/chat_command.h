/* A chat with the models of a configuration, from loading them to the end of the conversation: hearth chat and hearth
 * run. Main thread only. */
#ifndef CLI_CHAT_COMMAND_H
#define CLI_CHAT_COMMAND_H

#include "hearth.h"

struct chat_options {
    const char *model, *system, *prompt; /* NULL: not given */
    const char *server, *timeout;        /* of hearth chat: a server's URL, and for how many seconds it may be silent */
    bool no_history;
};

/* Returns the exit status. `command` is its name, for messages. `config`: NULL with a server. */
int chat_command_run(const char *command, const hearth_config *config, const struct chat_options *options);

#endif
