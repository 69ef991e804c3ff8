/* Logs what becomes of JSON schemas: see schema_log.h. */
#include "chat/schema_log.h"

#include "base/log.h"

void schema_log_freed(const char *tool, const char *property, const char *reason)
{
    log_event(LOG_WARN, "chat", "part of a tool's schema cannot be kept, any value is taken there",
              log_str("tool", tool), log_str("property", property[0] == '\0' ? "#" : property),
              log_str("reason", reason));
}

void schema_log_unenforced(const char *keyword)
{
    log_event(LOG_INFO, "chat", "schemas have a keyword that is not enforced", log_str("keyword", keyword));
}
