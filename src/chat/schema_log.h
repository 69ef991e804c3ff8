/* Log events about JSON schemas. In C, as the log's interface is. Any thread. */
#ifndef CHAT_SCHEMA_LOG_H
#define CHAT_SCHEMA_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

/* `property`: the JSON pointer of the part of the tool's parameters, "" for all of them. */
void schema_log_freed(const char *tool, const char *property, const char *reason);

void schema_log_unenforced(const char *keyword);

#ifdef __cplusplus
}
#endif
#endif
