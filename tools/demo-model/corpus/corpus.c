/* A conversation is a system prompt, perhaps, and then turns of many kinds, of which most recall what was said. */
#include "corpus/corpus.h"

#include "corpus/echo.h"
#include "corpus/facts.h"
#include "corpus/lists.h"
#include "corpus/talk.h"
#include "corpus/tools.h"

#include <stdlib.h>
#include <string.h>

enum { LONG = 1500 }; /* characters */

/* ---- System prompts ---- */

static void put_persona(struct scene *scene, struct buf *out)
{
    static const char *const personas[] = {"You are a helpful assistant.",
                                           "You are a friendly assistant.",
                                           "You are kind.",
                                           "Be brief.",
                                           "Answer briefly.",
                                           "You are an assistant.",
                                           "Be kind. ☃",
                                           "You are an agent for programs.",
                                           "Answer in one sentence.",
                                           "You are a careful assistant. Use the tools where they help.",
                                           "Skills that you have: none."};
    if (random_chance(scene->random, 75)) {
        buf_puts(out, PICK(scene->random, personas));
        return;
    }
    static const char *const named[] = {"You are {v}.", "Your name is {v}.", "You are {v}, an assistant.",
                                        "You are called {v}."};
    struct buf name = {0};
    words_value(scene->random, VALUE_NAME, &name);
    scene_fill(out, PICK(scene->random, named), "", buf_text(&name));
    free(scene->bot);
    scene->bot = buf_take(&name);
}

static void put_gap(struct scene *scene, struct buf *out)
{
    if (out->len > 0) buf_puts(out, random_chance(scene->random, 30) ? "\n" : " ");
}

/* The same sentences again and again, as tests have it. */
static void repeat(struct scene *scene, struct buf *text)
{
    struct buf once = *text;
    *text = (struct buf){0};
    for (int n = random_between(scene->random, 2, 8); n > 0; n--) buf_printf(text, "%s ", buf_text(&once));
    buf_release(&once);
}

/* Half of those in a long conversation take most of it: what stands before them is asked for from far away. */
static void put_notes(struct scene *scene, size_t room, struct buf *out)
{
    struct random *random = scene->random;
    put_gap(scene, out);
    if (random_chance(random, 30)) buf_puts(out, "Notes: ");
    size_t least = room / 10 > 60 ? room / 10 : 60;
    if (room > LONG && random_chance(random, 50)) least = room * 3 / 4;
    size_t length = least + (size_t)random_below(random, (int)(room > least ? room - least : 1));
    talk_notes(scene, length, random_between(random, 0, 4), true, out);
}

static void put_parts(struct scene *scene, size_t room, struct buf *out)
{
    struct random *random = scene->random;
    if (random_chance(random, 40)) put_persona(scene, out);
    bool before = random_chance(random, 50);
    int n_facts = random_chance(random, 50) ? random_between(random, 1, 4) : 0;
    for (int i = 0; before && i < n_facts; i++) {
        put_gap(scene, out);
        facts_state(scene, true, out);
    }
    if (out->len > 0 && room > 8 * out->len && random_chance(random, 4)) repeat(scene, out);
    if (random_chance(random, 18)) {
        put_gap(scene, out);
        lists_state(scene, random_between(random, 2, ITEMS_MAX), out);
    }
    if (random_chance(random, room > LONG ? 70 : 45)) put_notes(scene, room, out);
    for (int i = 0; !before && i < n_facts; i++) {
        put_gap(scene, out);
        facts_state(scene, true, out);
    }
}

static void say_system(struct scene *scene, size_t room)
{
    struct buf text = {0};
    put_parts(scene, room, &text);
    if (text.len > 0) {
        scene_say(scene, ROLE_SYSTEM, &text);
    } else {
        buf_release(&text);
    }
}

/* ---- Turns ---- */

static const struct turn {
    scene_fn turn;
    int often;
} turns[] = {
    {facts_turn_ask, 34},    {facts_turn_state, 20}, {facts_turn_two, 4},     {facts_turn_check, 3},
    {facts_turn_both, 5},    {facts_turn_all, 2},    {facts_turn_unknown, 4}, {lists_turn_ask, 16},
    {lists_turn_state, 6},   {echo_turn, 7},         {echo_turn_foreign, 3},  {echo_turn_lines, 6},
    {echo_turn_line, 2},     {talk_turn_small, 6},   {talk_turn_who, 4},      {talk_turn_hearth, 9},
    {talk_turn_unable, 3},   {talk_turn_read, 3},    {tools_turn, 45},        {tools_turn_twice, 4},
    {tools_turn_missing, 1},
};

static void take_turn(struct scene *scene)
{
    int total = 0;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) total += turns[i].often;
    for (;;) {
        int at = random_below(scene->random, total);
        size_t i = 0;
        while (at >= turns[i].often) at -= turns[i++].often;
        if (turns[i].turn(scene)) return;
    }
}

void corpus_make(struct conversation *conversation, uint64_t seed, uint64_t number, size_t length)
{
    struct random random = random_of(seed, number);
    struct scene scene;
    scene_open(&scene, &random, conversation);
    if (random_chance(&random, 14)) tools_offer(&scene, random_between(&random, 1, length > LONG ? 3 : 1));
    size_t begun = scene.length;
    if (random_chance(&random, 70)) say_system(&scene, length > begun + 200 ? length - begun - 200 : 60);
    do {
        take_turn(&scene);
    } while (scene.length < length);
    if (length > LONG) { /* what stands far back */
        facts_turn_ask_first(&scene);
        facts_turn_ask(&scene);
    }
    scene_close(&scene);
}

/* ---- Drills ---- */

static void drill_list(struct scene *scene)
{
    if (random_chance(scene->random, 60)) {
        struct buf text = {0};
        lists_state(scene, random_between(scene->random, 2, ITEMS_MAX), &text);
        scene_say(scene, ROLE_SYSTEM, &text);
    } else {
        lists_turn_state(scene);
    }
    for (int n = random_between(scene->random, 1, 4); n > 0; n--) lists_turn_ask(scene);
}

static void drill_lines(struct scene *scene)
{
    static const scene_fn kinds[] = {echo_turn_lines, echo_turn_lines, echo_turn_lines, echo_turn_line, echo_turn};
    PICK(scene->random, kinds)(scene);
}

static void drill_words(struct scene *scene)
{
    for (int n = random_between(scene->random, 1, 4); n > 0; n--) echo_turn(scene);
}

static void drill_arguments(struct scene *scene)
{
    tools_offer_made_up(scene, 2);
    for (int n = random_between(scene->random, 1, 3); n > 0; n--)
        tools_call(scene, 0, random_chance(scene->random, 35), 4);
}

static void drill_tools(struct scene *scene)
{
    tools_offer_weather(scene);
    tools_offer_made_up(scene, random_between(scene->random, 1, 2));
    for (int n = random_between(scene->random, 2, 5); n > 0; n--) tools_turn(scene);
}

/* Several facts, and questions for some of them. */
static void drill_facts(struct scene *scene)
{
    struct buf text = {0};
    for (int n = random_between(scene->random, 3, 6); n > 0; n--) {
        put_gap(scene, &text);
        facts_state(scene, true, &text);
    }
    scene_say(scene, ROLE_SYSTEM, &text);
    for (int n = random_between(scene->random, 1, 3); n > 0; n--) facts_turn_ask(scene);
}

/* Most of what is asked for after other turns was stated: else the model learns to say that it does not know. */
static void drill_recall(struct scene *scene)
{
    static const scene_fn between[] = {talk_turn_small, talk_turn_hearth, echo_turn};
    if (random_chance(scene->random, 80)) facts_turn_state(scene);
    for (int n = random_below(scene->random, 10); n > 0; n--) PICK(scene->random, between)(scene);
    if (scene->n_facts > 0) {
        facts_turn_ask(scene);
    } else {
        while (!facts_turn_unknown(scene)) {
        }
    }
}

static const struct drill {
    void (*drill)(struct scene *scene);
    int often; /* of 100 */
} drills[] = {
    {drill_list, 25}, {drill_lines, 20},  {drill_arguments, 15}, {drill_tools, 10},
    {drill_words, 5}, {drill_recall, 15}, {drill_facts, 10},
};

void corpus_drill(struct conversation *conversation, uint64_t seed, uint64_t number)
{
    struct random random = random_of(seed, number);
    struct scene scene;
    int at = random_below(&random, 100);
    const struct drill *drill = drills;
    while (at >= drill->often) at -= drill++->often;
    scene_open(&scene, &random, conversation);
    drill->drill(&scene);
    scene_close(&scene);
}
