/* Line editing for a terminal without the kernel's: see line.h. */
#include "cli/line.h"

#include <stdbool.h>

#define DELETE 0x7f

static bool is_control(char byte)
{
    return (unsigned char)byte < ' ' || byte == DELETE;
}

static bool is_continuation_byte(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Echoes a byte as the kernel does: control characters take two columns, all others one. */
static void echo_byte(struct buf *echo, char byte)
{
    if (byte == '\t')
        buf_puts(echo, " ");
    else if (is_control(byte))
        buf_printf(echo, "^%c", byte ^ 0x40);
    else
        buf_append(echo, &byte, 1);
}

static void erase_character(struct buf *line, struct buf *echo)
{
    if (line->len == 0) return;
    while (line->len > 1 && is_continuation_byte(line->v[line->len - 1])) line->len--;
    char first = line->v[--line->len];
    line->v[line->len] = '\0';
    buf_puts(echo, is_control(first) && first != '\t' ? "\b\b  \b\b" : "\b \b");
}

static bool ends_blank(const struct buf *line)
{
    return line->len > 0 && (line->v[line->len - 1] == ' ' || line->v[line->len - 1] == '\t');
}

static void erase_word(struct buf *line, struct buf *echo)
{
    while (ends_blank(line)) erase_character(line, echo);
    while (line->len > 0 && !ends_blank(line)) erase_character(line, echo);
}

enum line_state line_type(struct buf *line, const struct line_keys *keys, char byte, struct buf *echo)
{
    if (byte == '\n') {
        buf_puts(echo, "\n");
        return LINE_WHOLE;
    }
    if (byte == keys->end) return line->len == 0 ? LINE_NO_MORE : LINE_GOES_ON;
    if (byte == keys->erase) {
        erase_character(line, echo);
    } else if (byte == keys->word_erase) {
        erase_word(line, echo);
    } else if (byte == keys->kill) {
        while (line->len > 0) erase_character(line, echo);
    } else {
        buf_append(line, &byte, 1);
        echo_byte(echo, byte);
    }
    return LINE_GOES_ON;
}
