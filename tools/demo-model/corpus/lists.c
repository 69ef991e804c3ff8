#include "corpus/lists.h"

#include <stdlib.h>
#include <string.h>

static const char *const ordinals[ITEMS_MAX] = {"first", "second",  "third",  "fourth", "fifth",
                                                "sixth", "seventh", "eighth", "ninth"};

static bool has_item(const struct scene *scene, const char *text)
{
    for (int i = 0; i < scene->n_items; i++)
        if (strcmp(scene->items[i], text) == 0) return true;
    return false;
}

static void make_items(struct scene *scene, int n)
{
    static const enum value kinds[] = {VALUE_WORD, VALUE_WORD,   VALUE_NAME, VALUE_FOOD,
                                       VALUE_CODE, VALUE_ANIMAL, VALUE_CITY};
    enum value kind = PICK(scene->random, kinds);
    for (int i = 0; i < scene->n_items; i++) free(scene->items[i]);
    scene->n_items = 0;
    while (scene->n_items < n) {
        struct buf item = {0};
        words_value(scene->random, kind, &item);
        if (has_item(scene, buf_text(&item))) {
            buf_release(&item);
        } else {
            scene->items[scene->n_items++] = buf_take(&item);
        }
    }
}

static void put_items(const struct scene *scene, struct buf *out)
{
    for (int i = 0; i < scene->n_items; i++) buf_printf(out, "%s%s", i > 0 ? ", " : "", scene->items[i]);
}

static void put_numbered(const struct scene *scene, struct buf *out)
{
    for (int i = 0; i < scene->n_items; i++) buf_printf(out, "\n%d. %s", i + 1, scene->items[i]);
}

void lists_state(struct scene *scene, int n, struct buf *out)
{
    static const char *const forms[] = {"The list: ",         "List: ",    "The items of the list are ",
                                        "This is the list: ", "My list: ", "Items: "};
    make_items(scene, n);
    if (random_chance(scene->random, 15)) {
        buf_puts(out, "The list:");
        put_numbered(scene, out);
        return;
    }
    buf_puts(out, PICK(scene->random, forms));
    put_items(scene, out);
    buf_puts(out, ".");
}

/* The model counts aloud: it cannot do so in its head. */
static void put_counted(const struct scene *scene, int n, struct buf *out)
{
    for (int i = 0; i < n; i++) buf_printf(out, "%s%d: %s", i > 0 ? ", " : "", i + 1, scene->items[i]);
    buf_puts(out, ". ");
}

static void ask_nth(struct scene *scene, struct buf *question, struct buf *answer)
{
    static const char *const forms[] = {"What is the {v} item?", "Which item is the {v}?", "Tell me the {v} item.",
                                        "What is the {v} item of the list?", "The {v} item?"};
    int i = random_below(scene->random, scene->n_items);
    scene_fill(question, PICK(scene->random, forms), "", ordinals[i]);
    put_counted(scene, i + 1, answer);
    buf_printf(answer, "The %s item is %s.", ordinals[i], scene->items[i]);
}

void lists_ask(struct scene *scene, enum list_question which, struct buf *question, struct buf *answer)
{
    static const char *const last[] = {"What is the last item?", "Which item is the last?", "Tell me the last item."};
    static const char *const count[] = {"How many items are there?", "How many items are on the list?",
                                        "Count the items.", "How long is the list?"};
    static const char *const repeat[] = {"Repeat the list.",    "What is on the list?",   "Tell me the list.",
                                         "Say the list again.", "Which items are there?", "List the items."};
    switch (which) {
    case LIST_LAST:
        buf_puts(question, PICK(scene->random, last));
        buf_printf(answer, "The last item is %s.", scene->items[scene->n_items - 1]);
        break;
    case LIST_COUNT:
        buf_puts(question, PICK(scene->random, count));
        put_counted(scene, scene->n_items, answer);
        buf_printf(answer, "There are %d items.", scene->n_items);
        break;
    case LIST_REPEAT:
        buf_puts(question, PICK(scene->random, repeat));
        put_items(scene, answer);
        break;
    case LIST_NTH:
        ask_nth(scene, question, answer);
        break;
    }
}

bool lists_turn_state(struct scene *scene)
{
    struct buf said = {0}, reply = {0};
    lists_state(scene, random_between(scene->random, 2, ITEMS_MAX), &said);
    buf_puts(&reply, "Okay, I will remember the list.");
    scene_turn(scene, &said, &reply);
    return true;
}

bool lists_turn_ask(struct scene *scene)
{
    if (scene->n_items == 0) return false;
    /* What takes longest to learn is asked most. */
    static const enum list_question questions[] = {LIST_NTH,    LIST_NTH,  LIST_NTH,  LIST_REPEAT,
                                                   LIST_REPEAT, LIST_LAST, LIST_COUNT};
    struct buf question = {0}, answer = {0};
    lists_ask(scene, PICK(scene->random, questions), &question, &answer);
    scene_roughen(scene->random, &question);
    scene_turn(scene, &question, &answer);
    return true;
}
