/* Where a chat shows what: see screen.h. */
#include "cli/chat/screen.h"

#include "cli/chat/markdown.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool wants_colours(void)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (none == NULL || none[0] == '\0') && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

struct screen screen_find(void)
{
    const bool out = isatty(STDOUT_FILENO);
    return (struct screen){
        .file = out                     ? stdout
                : isatty(STDERR_FILENO) ? stderr
                                        : NULL,
        .renders = out,
        .colours = wants_colours(),
    };
}

void screen_style(const struct screen *screen, FILE *file, const char *sgr)
{
    if (screen->colours) fprintf(file, "\033[%sm", sgr);
}

void screen_say(const struct screen *screen, const char *format, ...)
{
    if (screen->file == NULL) return;
    char *text = NULL;
    struct buf shown = {0};
    va_list args;
    va_start(args, format);
    const int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0) return;
    markdown_put_plain(text, (size_t)len, &shown);
    fprintf(screen->file, "%s\n", buf_text(&shown));
    fflush(screen->file);
    buf_release(&shown);
    free(text);
}
