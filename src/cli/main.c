/* The program: picks the command and hands it the rest of the command line. */
#include "cli/command.h"

#include <string.h>

static const struct command commands[] = {
    {"serve", "serve models over HTTP", command_serve},
    {"chat", "talk to a model in the terminal", command_chat},
    {"launch", "run a coding agent on a server", command_launch},
    {"model", "describe a model file, estimate its memory", command_model},
    {"kv", "list, check and remove what the cache has stored", command_kv},
    {"config", "check a configuration, list its keys", command_config},
    {"version", "print versions and CPU features", command_version},
};

static const struct command_group program = {
    .program = "hearth",
    .about = "Serves language models and never computes the same prompt token twice.\n"
             "hearth serve starts with the demo model; nothing needs to be set up for it.",
    .examples = "  hearth serve\n"
                "  hearth serve --model Qwen3-8B-Q8_0.gguf\n"
                "  hearth chat\n",
    .commands = commands,
    .n_commands = sizeof commands / sizeof *commands,
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) return command_version(0, NULL);
    return command_dispatch(&program, argc - 1, argv + 1);
}
