/* Fuzzes configuration files: the input is refused with a message of one line, or parsed, and then its dump parses
 * to the same dump. */
#include "config/edit.h"

#include <stdlib.h>
#include <string.h>

static void report(void *ud, const char *file, int line, const char *key, const char *message)
{
    (void)ud;
    (void)file;
    if (line < 0 || strchr(key, '\n') != NULL || strchr(message, '\n') != NULL || message[0] == '\0') abort();
}

static void dump_reads_back(const hearth_config *config)
{
    struct config_faults faults = {.report = report};
    hearth_config *again = hearth_config_new();
    char *first = hearth_config_dump(config);
    if (config_load_text(again, "dump", first, strlen(first), &faults) != HEARTH_OK) abort();
    char *second = hearth_config_dump(again);
    if (strcmp(first, second) != 0) abort();
    free(first);
    free(second);
    hearth_config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config_faults faults = {.report = report};
    hearth_config *config = hearth_config_new();
    if (config_load_text(config, "fuzz", (const char *)data, size, &faults) == HEARTH_OK) dump_reads_back(config);
    hearth_config_free(config);
    return 0;
}
