/* The assumed system prompt (system_prompt_assumed): the one system message that all requests of a model have is put
 * before the messages of requests without one, since some clients send it with the first turn alone.
 *
 * A client's text may so reach another client: it is assumed only while every request had the same one, and never again
 * once a second one was seen. Any thread. */
#ifndef LIB_REQUESTS_SYSTEM_PROMPT_H
#define LIB_REQUESTS_SYSTEM_PROMPT_H

struct system_prompt;

struct system_prompt *system_prompt_open(void);
void system_prompt_close(struct system_prompt *prompt);

/* Records the system message that these messages begin with, if they have one. */
void system_prompt_learn(struct system_prompt *prompt, const char *messages_json);

/* The messages with a system message of this text before them, to be freed with free(). NULL: they have one. */
char *system_prompt_put(const char *text, const char *messages_json);

/* The messages with the recorded system message before them, to be freed with free(). NULL: they have one, or not
 * exactly one is recorded. */
char *system_prompt_assume(struct system_prompt *prompt, const char *messages_json);

#endif
