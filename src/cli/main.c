/* The program hearth: dispatches to its commands. */
#include "cli/args.h"
#include "cli/setup.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

static int command_version(int argc, char **argv)
{
    const struct args_spec spec = {
        .command = "hearth version",
        .about =
            "Prints hearth's version, llama.cpp's, and the CPU's features; in a portable build, which backends of\n"
            "llama.cpp were found beside its library, and why some were not loaded.",
        .examples = "  hearth version\n",
    };
    int status;
    if (!args_read(&spec, argc, argv, &status)) return status;
    printf("hearth %s\nllama.cpp %s\nCPU %s\n", hearth_version(), hearth_llama_version(), hearth_cpu_features());
    fputs(hearth_backends(), stdout);
    return EXIT_FINE;
}

static const struct command commands[] = {
    {"serve", "serve models over HTTP", command_serve},
    {"chat", "talk to a model in the terminal", command_chat},
    {"ps", "show what a running server is doing", command_ps},
    {"stop", "have a running server unload a model", command_stop},
    {"run", "pull a model if need be, and talk to it", command_run},
    {"pull", "fetch a model into the models folder", command_pull},
    {"models", "list the models folder", command_models},
    {"rm", "remove a model from it", command_rm},
    {"launch", "run a coding agent on a server", command_launch},
    {"model", "describe a model file, estimate its memory", command_model},
    {"fit", "say what of a model fits this machine", command_fit},
    {"kv", "list, check and remove what the cache has stored", command_kv},
    {"cache", "say why a prompt is not found in the cache", command_cache},
    {"config", "check a configuration, list its keys", command_config},
    {"completions", "print completions for a shell", command_completions},
    {"version", "print versions and CPU features", command_version},
};

const struct command_group command_program = {
    .program = "hearth",
    .about = "Serves language models and never computes the same prompt token twice.\n"
             "hearth serve starts with the demo model; nothing needs to be set up for it.",
    .examples = "  hearth serve\n"
                "  hearth serve --model Qwen3-8B-Q8_0.gguf\n"
                "  hearth chat\n",
    ARGS_COMMANDS(commands),
};

/* Turns a failed write to standard output into a failure of the command. Not of `hearth serve`: the reader of its first
 * lines may have closed the pipe. */
static int check_output(const char *name, int status)
{
    errno = 0;
    if ((fflush(stdout) == 0 && ferror(stdout) == 0) || strcmp(name, "serve") == 0) return status;
    fprintf(stderr, "hearth %s: cannot write to standard output%s%s\n", name, errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    return status == EXIT_FINE ? EXIT_FAILED : status;
}

int main(int argc, char **argv)
{
    /* A thread of the store that hangs in a tier is left behind. One that ends while exit() runs would free what
     * OpenSSL's own end frees at the same time: a double free. The system takes that memory back anyway. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    setup_take_starter();
    if (argc == 2 && strcmp(argv[1], "--version") == 0) return check_output("version", command_version(0, NULL));
    int status = command_dispatch(&command_program, argc - 1, argv + 1);
    return argc > 1 ? check_output(argv[1], status) : status;
}
