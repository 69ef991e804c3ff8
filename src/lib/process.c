/* What of hearth.h belongs to the process and to no instance: versions, the log, and freeing of strings. Any thread. */
#include "base/error.h"
#include "base/log.h"
#include "hearth.h"
#include "llm/model.h"

#include <stdlib.h>

void hearth_free(char *string)
{
    free(string);
}

const char *hearth_version(void)
{
    return HEARTH_VERSION;
}

const char *hearth_llama_version(void)
{
    return llm_version();
}

const char *hearth_cpu_features(void)
{
    return llm_cpu_features();
}

int hearth_log_open(const char *path, const char *level, const char *format, hearth_error *error)
{
    int rc = log_open(path, level, format, error);
    return rc == HEARTH_OK ? log_start(error) : rc;
}

void hearth_log_reopen(void)
{
    log_reopen();
}
