/* The system message that a model's requests have in common, put before those that come without one
 * (system_prompt_assumed): some clients send it with the first turn alone.
 *
 * It is somebody's text that another may get to see, so it is assumed only while there is exactly one: once a second
 * one was seen, nothing is assumed ever again. Any thread. */
#ifndef LIB_REQUESTS_SYSTEM_PROMPT_H
#define LIB_REQUESTS_SYSTEM_PROMPT_H

struct system_prompt;

struct system_prompt *system_prompt_open(void);
void system_prompt_close(struct system_prompt *prompt);

/* Notes the system message that these messages begin with, if they do. */
void system_prompt_learn(struct system_prompt *prompt, const char *messages_json);

/* The messages with the known system message before them, to be freed with free(). NULL: they have one of their own, or
 * not exactly one is known. */
char *system_prompt_assume(struct system_prompt *prompt, const char *messages_json);

#endif
