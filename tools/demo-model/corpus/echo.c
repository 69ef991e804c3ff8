#include "corpus/echo.h"

#include <string.h>

void echo_ask(struct random *random, const char *text, struct buf *said)
{
    static const char *const forms[] = {
        "Repeat: {v}",  "Say {v}.",       "Repeat after me: {v}", "Echo: {v}",
        "Say \"{v}\".", "Repeat {v}.",    "Write {v}.",           "Please repeat: {v}",
        "Say: {v}",     "Write: {v}",     "Repeat this: {v}",     "Copy: {v}",
        "Echo {v}",     "Print \"{v}\".", "Please say {v}.",      "Say this again: {v}"};
    scene_fill(said, PICK(random, forms), "", text);
}

static bool take_turn(struct scene *scene, struct buf *text)
{
    struct buf said = {0};
    echo_ask(scene->random, buf_text(text), &said);
    scene_turn(scene, &said, text);
    return true;
}

bool echo_turn(struct scene *scene)
{
    struct buf text = {0};
    int n =
        random_chance(scene->random, 60) ? random_between(scene->random, 1, 4) : random_between(scene->random, 5, 16);
    words_several(scene->random, n, random_chance(scene->random, 60), &text);
    return take_turn(scene, &text);
}

bool echo_turn_foreign(struct scene *scene)
{
    struct buf text = {0};
    int n = random_between(scene->random, 1, 4);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(&text, " ");
        words_value(scene->random, random_chance(scene->random, 75) ? VALUE_FOREIGN : VALUE_NAME, &text);
    }
    return take_turn(scene, &text);
}

/* ---- Lines ---- */

static void put_code_line(struct random *random, struct buf *out)
{
    static const char *const forms[] = {"int {t} = {v};", "{t} = {v};", "return {t};", "if ({t} > {v}) {t}();",
                                        "    {t}({v});",  "- {t}: {v}", "{t}: {v}",    "\"{t}\": \"{v}\",",
                                        "# {t} {v}",      "{t},{v}"};
    struct buf name = {0}, value = {0};
    words_value(random, VALUE_WORD, &name);
    words_value(random, random_chance(random, 50) ? VALUE_NUMBER : VALUE_CODE, &value);
    scene_fill(out, PICK(random, forms), buf_text(&name), buf_text(&value));
    buf_release(&name);
    buf_release(&value);
}

void echo_lines(struct random *random, int n, int width, struct buf *out)
{
    int form = random_below(random, 4);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, "\n");
        if (form == 0 && i > 0) { /* not the first: its spaces would be lost at the beginning of a reply */
            put_code_line(random, out);
        } else if (form == 1) {
            words_sentence(random, out);
        } else {
            words_several(random, random_between(random, 1, width), form == 2, out);
        }
    }
}

static const char *const asks[] = {"Repeat these lines:",
                                   "Quote these lines:",
                                   "Copy this text:",
                                   "Quote the following:",
                                   "Repeat this text:",
                                   "Say these lines again:",
                                   "Copy these lines:",
                                   "Write this text again:",
                                   "Please quote this:",
                                   "Please repeat these lines:",
                                   "Quote this text word for word:",
                                   "Repeat all lines:"};

void echo_ask_lines(struct random *random, const char *lines, struct buf *said)
{
    static const char *const later[] = {"Repeat these lines.", "Quote the lines above.", "Copy the text.",
                                        "Quote all of it.",    "Say it all again.",      "Repeat the text above."};
    if (random_chance(random, 65)) {
        buf_printf(said, "%s\n%s%s", PICK(random, asks), random_chance(random, 15) ? "\n" : "", lines);
    } else {
        buf_printf(said, "%s\n\n%s", lines, PICK(random, later));
    }
}

bool echo_turn_lines(struct scene *scene)
{
    struct buf lines = {0}, said = {0};
    int n =
        random_chance(scene->random, 60) ? random_between(scene->random, 2, 6) : random_between(scene->random, 7, 12);
    echo_lines(scene->random, n, random_between(scene->random, 2, 7), &lines);
    echo_ask_lines(scene->random, buf_text(&lines), &said);
    scene_turn(scene, &said, &lines);
    return true;
}

/* The n-th line of a text. */
static void put_line(const char *lines, int n, struct buf *out)
{
    for (; n > 0; n--) lines += strcspn(lines, "\n") + 1;
    buf_append(out, lines, strcspn(lines, "\n"));
}

bool echo_turn_line(struct scene *scene)
{
    static const char *const ordinals[] = {"first", "second", "third", "fourth", "fifth"};
    struct buf lines = {0}, said = {0}, reply = {0};
    int n = random_between(scene->random, 2, 5), which = random_below(scene->random, n);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(&lines, "\n");
        words_several(scene->random, random_between(scene->random, 2, 6), true, &lines);
    }
    buf_printf(&said, "Quote the %s line:\n%s", ordinals[which], buf_text(&lines));
    put_line(buf_text(&lines), which, &reply);
    buf_release(&lines);
    scene_turn(scene, &said, &reply);
    return true;
}
