/* The commands of the program and their dispatch by name. Each runs on the main thread and returns an exit status. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stddef.h>

struct command {
    const char *name;
    const char *summary;               /* one line for the list of commands */
    int (*run)(int argc, char **argv); /* the words after its name */
};

struct command_group {
    const char *program; /* the words before the command's name: "hearth", "hearth model" */
    const char *about;
    const char *examples; /* whole lines */
    const struct command *commands;
    size_t n_commands;
};

/* Runs the command named by argv[0]. Without one, prints the list of commands to stderr and returns EXIT_USAGE. */
int command_dispatch(const struct command_group *group, int argc, char **argv);

/* The program itself: main.c. */
extern const struct command_group command_program;

int command_serve(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_run(int argc, char **argv);
int command_pull(int argc, char **argv);
int command_models(int argc, char **argv);
int command_rm(int argc, char **argv);
int command_launch(int argc, char **argv);
int command_ps(int argc, char **argv);
int command_stop(int argc, char **argv);
int command_model(int argc, char **argv);
int command_fit(int argc, char **argv);
int command_completions(int argc, char **argv);
int command_kv(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_config(int argc, char **argv);
int command_version(int argc, char **argv);

#endif
