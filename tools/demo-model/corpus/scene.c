#include "corpus/scene.h"

#include "base/memory.h"
#include "corpus/tools.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void scene_open(struct scene *scene, struct random *random, struct conversation *conversation)
{
    *scene = (struct scene){.random = random, .conversation = conversation};
}

void scene_close(struct scene *scene)
{
    for (int i = 0; i < scene->n_facts; i++) {
        free(scene->facts[i].thing);
        free(scene->facts[i].value);
    }
    for (int i = 0; i < scene->n_items; i++) free(scene->items[i]);
    for (int i = 0; i < scene->n_tools; i++) tool_form_free(scene->tools[i]);
    free(scene->bot);
}

void scene_say(struct scene *scene, enum role role, struct buf *text)
{
    conversation_add(scene->conversation, role, buf_text(text));
    scene->length += text->len + 20; /* what ChatML adds */
    buf_release(text);
}

void scene_turn(struct scene *scene, struct buf *said, struct buf *reply)
{
    scene_say(scene, ROLE_USER, said);
    scene_say(scene, ROLE_ASSISTANT, reply);
}

void scene_fill(struct buf *out, const char *text, const char *thing, const char *value)
{
    while (*text != '\0') {
        size_t plain = strcspn(text, "{");
        buf_append(out, text, plain);
        text += plain;
        if (strncmp(text, "{v}", 3) == 0 || strncmp(text, "{t}", 3) == 0) {
            buf_puts(out, text[1] == 'v' ? value : thing);
            text += 3;
        } else if (*text != '\0') {
            buf_append(out, text++, 1);
        }
    }
}

static void small_first(struct buf *text, size_t at)
{
    bool alone = at + 1 < text->len && !islower((unsigned char)text->v[at + 1]); /* "I", "QX7B2" */
    if (at < text->len && !alone) text->v[at] = (char)tolower((unsigned char)text->v[at]);
}

static void put_before(struct buf *text, const char *words)
{
    struct buf whole = {0};
    buf_puts(&whole, words);
    size_t at = whole.len;
    buf_append(&whole, buf_text(text), text->len);
    small_first(&whole, at);
    buf_release(text);
    *text = whole;
}

void scene_roughen(struct random *random, struct buf *question)
{
    static const char *const before[] = {
        "And again: ", "Please tell me: ", "Now tell me: ", "Question: ", "So, ", "Well, ",
        "Hm, ",        "One more: ",       "And ",          "Ok, "};
    static const char *const after[] = {" Please.", " Answer briefly.", " Be brief.", " Thanks.", " Do you know?"};
    if (question->len == 0) return;
    if (random_chance(random, 12)) put_before(question, PICK(random, before));
    if (random_chance(random, 5)) {
        buf_puts(question, PICK(random, after));
    } else if (random_chance(random, 6) && ispunct((unsigned char)question->v[question->len - 1])) {
        question->v[--question->len] = '\0';
    }
    if (random_chance(random, 6)) small_first(question, 0);
}
