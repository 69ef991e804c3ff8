/* hearth version: prints versions and CPU features. */
#include "cli/args.h"
#include "cli/command.h"

#include <stdio.h>

int command_version(int argc, char **argv)
{
    const struct args_spec spec = {
        .command = "hearth version",
        .about = "Prints hearth's version, llama.cpp's, and the CPU's features.",
        .examples = "  hearth version\n",
    };
    int status;
    if (!args_read(&spec, argc, argv, &status)) return status;
    printf("hearth %s\nllama.cpp %s\nCPU %s\n", hearth_version(), hearth_llama_version(), hearth_cpu_features());
    return EXIT_FINE;
}
