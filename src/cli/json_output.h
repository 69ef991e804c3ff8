/* The option --json of commands, and how they print what it asks for. Main thread only. */
#ifndef CLI_JSON_OUTPUT_H
#define CLI_JSON_OUTPUT_H

#include "cli/args.h"

#include <jansson.h>

static inline struct args_option json_output_option(bool *flag)
{
    return (struct args_option){.name = "json", .meaning = "print a JSON object", .flag = flag};
}

/* Prints it to standard output, indented, and lets go of it. */
void json_output_print(json_t *json);

#endif
