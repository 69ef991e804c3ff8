/* The assumed system prompt (system_prompt_assumed): the one system message that all requests of a model have is put
 * before the messages of requests without one, since some clients send it with the first turn alone.
 *
 * A client's text may so reach another client: it is assumed only while every request had the same one, and never again
 * once a second one was seen. Any thread. */
#ifndef LIB_REQUESTS_SYSTEM_PROMPT_H
#define LIB_REQUESTS_SYSTEM_PROMPT_H

#include <jansson.h>

struct system_prompt;

struct system_prompt *system_prompt_open(void);
void system_prompt_close(struct system_prompt *prompt);

/* Records the system message that these messages begin with, if they have one. */
void system_prompt_learn(struct system_prompt *prompt, const json_t *messages);

/* A list of a system message of this text and these messages; json_decref() it. NULL: they have one. */
json_t *system_prompt_put(const char *text, const json_t *messages);

/* The same with the recorded system message. NULL: they have one, or not exactly one is recorded. */
json_t *system_prompt_assume(struct system_prompt *prompt, const json_t *messages);

#endif
