/* Prints what commands say as JSON: see json_output.h. */
#include "cli/json_output.h"

#include <stdio.h>

void json_output_print(json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(json);
}
