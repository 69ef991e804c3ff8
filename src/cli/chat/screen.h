/* Where a chat shows what: replies go to standard output, and are decorated on a terminal only; prompts and notices go
 * to the terminal, also where the replies go into a file. Main thread only. */
#ifndef CLI_CHAT_SCREEN_H
#define CLI_CHAT_SCREEN_H

#include <stdbool.h>
#include <stdio.h>

struct screen {
    FILE *file;   /* the terminal: stdout, else stderr; NULL: neither is one */
    bool renders; /* stdout is a terminal: reasoning and figures are shown beside the reply */
    bool colours; /* it shows colours, and the user wants them: https://no-color.org */
};

struct screen screen_find(void);

/* Sets bold, dim or coloured text by its SGR numbers ("1", "2"; "0" ends all), where colours are wanted. */
void screen_style(const struct screen *screen, FILE *file, const char *sgr);

/* Prints a line to the terminal, if there is one; control characters in it are shown as escapes: names and messages
 * come from files and servers. */
void screen_say(const struct screen *screen, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
