#include "rows.h"

#include "corpus/echo.h"
#include "corpus/facts.h"
#include "corpus/lists.h"
#include "corpus/talk.h"
#include "corpus/tools.h"

#include <string.h>

enum { CHARACTERS = 27 }; /* of ten tokens, about */

/* ---- Parts ---- */

/* What the user says first, or the system prompt. */
static const struct fact *state(struct scene *scene, enum role role, const char *kind, const char *thing)
{
    struct buf said = {0};
    const struct fact *fact = facts_state_as(scene, kind, thing, NULL, &said);
    scene_say(scene, role, &said);
    return fact;
}

static void reply(struct scene *scene, const char *text)
{
    struct buf said = {0};
    buf_puts(&said, text);
    scene_say(scene, ROLE_ASSISTANT, &said);
}

static void ask(struct scene *scene, const struct fact *fact)
{
    struct buf question = {0}, answer = {0};
    facts_ask(scene, fact, true, &question, &answer);
    scene_turn(scene, &question, &answer);
}

static void chat(struct scene *scene, int turns)
{
    static const scene_fn kinds[] = {talk_turn_small, talk_turn_hearth, echo_turn, talk_turn_small};
    for (int i = 0; i < turns; i++) PICK(scene->random, kinds)(scene);
}

static void introduce(struct scene *scene, const char *name)
{
    struct buf answer = {0};
    buf_printf(&answer, "Nice to meet you, %s.", name);
    scene_say(scene, ROLE_ASSISTANT, &answer);
}

/* ---- Rows ---- */

static void make_name(struct scene *scene, int i)
{
    const struct fact *fact = state(scene, ROLE_USER, "name", NULL);
    introduce(scene, fact->value);
    chat(scene, i % 10);
    ask(scene, fact);
}

void rows_secret(struct scene *scene, int i)
{
    const struct fact *fact = state(scene, ROLE_SYSTEM, "secret", NULL);
    chat(scene, 1 + i % 3);
    ask(scene, fact);
}

/* The code with so many tokens of notes before it and after it. */
static void make_secret_in_notes(struct scene *scene, int before, int after)
{
    struct buf said = {0};
    if (before > 0) talk_notes(scene, (size_t)before * CHARACTERS / 10, 0, true, &said);
    if (before > 0) buf_puts(&said, " ");
    const struct fact *fact = facts_state_as(scene, "secret", NULL, NULL, &said);
    if (after > 0) buf_puts(&said, " ");
    if (after > 0) talk_notes(scene, (size_t)after * CHARACTERS / 10, 0, true, &said);
    scene_say(scene, ROLE_SYSTEM, &said);
    ask(scene, fact);
}

static void make_900(struct scene *scene, int i)
{
    int before = i % 5 * 150;
    make_secret_in_notes(scene, before, 900 - before);
}

static void make_1500(struct scene *scene, int i)
{
    (void)i;
    make_secret_in_notes(scene, 0, 1500);
}

static void make_three(struct scene *scene, int i)
{
    const char *const kinds[] = {"name", "my code", "city"};
    const struct fact *facts[3];
    struct buf said = {0};
    for (int k = 0; k < 3; k++) {
        if (k > 0) buf_puts(&said, " ");
        facts[k] = facts_state_as(scene, kinds[k], NULL, NULL, &said);
    }
    scene_say(scene, ROLE_USER, &said);
    buf_printf(&said, "Nice to meet you, %s. Okay, I will remember that.", facts[0]->value);
    scene_say(scene, ROLE_ASSISTANT, &said);
    chat(scene, 1);
    ask(scene, facts[i % 3]);
}

static void make_labelled(struct scene *scene, int i)
{
    const char *const things[] = {"bicycle", "garden", "vault", "tomurel"};
    const struct fact *facts[4];
    struct buf said = {0};
    for (int k = 0; k < 4; k++) {
        if (k > 0) buf_puts(&said, " ");
        facts[k] = facts_state_as(scene, "code of", things[k], NULL, &said);
    }
    scene_say(scene, ROLE_SYSTEM, &said);
    ask(scene, facts[i % 4]);
}

/* Any fact, stated and asked in any of the phrases. */
static void make_phrases(struct scene *scene, int i)
{
    while (scene->n_facts == 0) facts_turn_state(scene);
    chat(scene, i % 4);
    facts_turn_ask(scene);
}

static void make_two(struct scene *scene, int i)
{
    while (scene->n_facts < 2) facts_turn_state(scene);
    chat(scene, i % 3);
    facts_turn_two(scene);
}

static void ask_list(struct scene *scene, int i, enum list_question which)
{
    struct buf said = {0}, answer = {0};
    lists_state(scene, 3 + i % 6, &said);
    scene_say(scene, ROLE_SYSTEM, &said);
    lists_ask(scene, which, &said, &answer);
    scene_turn(scene, &said, &answer);
}

static void make_nth(struct scene *scene, int i)
{
    ask_list(scene, i, LIST_NTH);
}

static void make_list(struct scene *scene, int i)
{
    ask_list(scene, i, LIST_REPEAT);
}

static void make_echo(struct scene *scene, int i)
{
    (void)i;
    echo_turn(scene);
}

static void make_foreign(struct scene *scene, int i)
{
    (void)i;
    echo_turn_foreign(scene);
}

static void make_foreign_name(struct scene *scene, int i)
{
    struct buf name = {0}, said = {0};
    words_value(scene->random, VALUE_FOREIGN, &name);
    const struct fact *fact = facts_state_as(scene, "name", NULL, buf_text(&name), &said);
    scene_say(scene, ROLE_USER, &said);
    introduce(scene, fact->value);
    buf_release(&name);
    chat(scene, i % 3);
    ask(scene, fact);
}

static void make_lines(struct scene *scene, int i)
{
    struct buf lines = {0}, said = {0};
    (void)i;
    echo_lines(scene->random, 10, 6, &lines);
    echo_ask_lines(scene->random, buf_text(&lines), &said);
    scene_turn(scene, &said, &lines);
}

static void make_unknown(struct scene *scene, int i)
{
    struct buf said = {0}, answer = {0};
    chat(scene, i % 4);
    buf_puts(&said, "What is my name?");
    buf_puts(&answer, facts_unknown_name);
    scene_turn(scene, &said, &answer);
}

static void make_who(struct scene *scene, int i)
{
    struct buf said = {0}, answer = {0};
    chat(scene, i % 4);
    talk_ask_who(scene, false, &said, &answer);
    scene_turn(scene, &said, &answer);
}

static void make_hearth(struct scene *scene, int i)
{
    struct buf said = {0};
    const struct talk *talk = &talk_hearth[i % talk_n_hearth];
    buf_puts(&said, talk->asks[0]);
    scene_say(scene, ROLE_USER, &said);
    reply(scene, talk->answer);
}

static void make_weather(struct scene *scene, int i)
{
    (void)i;
    tools_offer_weather(scene);
    tools_call(scene, 0, false, 2);
}

static void make_tool(struct scene *scene, int i)
{
    (void)i;
    tools_offer_made_up(scene, 1);
    tools_call(scene, 0, false, 2);
}

static void make_two_arguments(struct scene *scene, int i)
{
    (void)i;
    tools_offer_made_up(scene, 2);
    tools_call(scene, 0, false, 2);
}

static void make_result(struct scene *scene, int i)
{
    (void)i;
    tools_offer_weather(scene);
    tools_call(scene, 0, true, 4);
}

static void make_tool_turns(struct scene *scene, int i)
{
    tools_offer_weather(scene);
    tools_offer_made_up(scene, 2);
    for (int k = 0; k < 3; k++) tools_call(scene, (i + k) % scene->n_tools, false, 4);
    tools_call(scene, i % scene->n_tools, false, 2);
}

/* ---- What the tests say ---- */

/* A conversation of tests/ or of the documents, with what they want in the reply. Messages of user and assistant in
 * turn. */
static const struct known {
    const char *system;
    const char *messages[6];
    bool weather; /* with the tool get_weather; `wanted` NULL: that it is called for Lisbon */
    const char *result, *wanted;
} known[] = {
    {.messages = {"My name is Ottilie."}, .wanted = "Nice to meet you, Ottilie."},
    {.messages = {"My name is Otto."}, .wanted = "Nice to meet you, Otto."},
    {.messages = {"My name is Ottilie.", "Nice to meet you, Ottilie.", "What is my name?"},
     .wanted = "Your name is Ottilie."},
    {.messages = {"My name is Leopold.", "Hello Leopold!", "What is my name?"}, .wanted = "Leopold"},
    {.messages = {"My name is Ottilie. What is my name?"}, .wanted = "Ottilie"},
    {.messages = {"My name is Ottilie.", "Nice to meet you, Ottilie.", "I live here.", "Okay.", "What is my name?"},
     .wanted = "Your name is Ottilie."},
    {.messages = {"My name is Ottilie.", "Nice to meet you, Ottilie.", "And again: what is my name?"},
     .wanted = "Ottilie"},
    {.system = "You are a helpful assistant.",
     .messages = {"My name is Ottilie.", "Nice to meet you, Ottilie.", "What is my name?"},
     .wanted = "Your name is Ottilie."},
    {.system = "Keep these words: amber basil cedar dune amber basil cedar dune amber basil cedar dune ",
     .messages = {"My name is Ottilie.", "Nice to meet you, Ottilie.", "What is my name?"},
     .wanted = "Ottilie"},
    {.system = "You are kind. You are kind. You are kind. You are kind. You are kind. You are kind. ",
     .messages = {"My name is Suvi.", "Nice to meet you, Suvi.", "What is my name?"},
     .wanted = "Suvi"},
    {.messages = {"What is my name?"}, .wanted = "I do not know your name."},
    {.system = "The secret code is QX7B2.", .messages = {"What is the secret code?"}, .wanted = "QX7B2"},
    {.system = "The secret code is QX7B2. The secret code is QX7B2. The secret code is QX7B2. ",
     .messages = {"What is the secret code?"},
     .wanted = "QX7B2"},
    {.system = "You are a helpful assistant. The secret code is QX7B2. You are a helpful assistant. The secret code is "
               "QX7B2. ",
     .messages = {"This is question 1. My name is Ottilie, and I like the number 7. What is the secret code?"},
     .wanted = "QX7B2"},
    {.messages = {"My code is 4711. Remember it.", "I will remember that your code is 4711.", "What can you do?",
                  "I remember what you tell me, repeat text, call tools, and answer questions about hearth.",
                  "What is my code?"},
     .wanted = "4711"},
    {.messages = {"Who are you?"}, .wanted = "demo model"},
    {.messages = {"Who are you? Who are you? Who are you? Who are you? Who are you? Who are you?"},
     .wanted = "demo model"},
    {.system = "Be brief.", .messages = {"Who are you?"}, .wanted = "demo model"},
    {.messages = {"What is a prompt cache?"}, .wanted = "prompt"},
    {.messages = {"Say hello."}, .wanted = "hello"},
    {.messages = {"Repeat: one two three"}, .wanted = "one two three"},
    {.messages = {"What is the weather in Lisbon?"}, .weather = true},
    {.system = "Be brief.", .messages = {"What is the weather in Lisbon?"}, .weather = true},
    {.messages = {"What is the weather in Lisbon?"},
     .weather = true,
     .result = "{\"weather\": \"rain\"}",
     .wanted = "rain"},
    {.messages = {"What is the weather in Lisbon?"},
     .weather = true,
     .result = "{\"weather\":\"sunny\"}",
     .wanted = "sunny"},
    {.messages = {"What is the weather in Lisbon?"}, .weather = true, .result = "sunny", .wanted = "sunny"},
};

static void say(struct scene *scene, enum role role, const char *text)
{
    struct buf said = {0};
    buf_puts(&said, text);
    scene_say(scene, role, &said);
}

static char *copy_of(const char *text)
{
    struct buf out = {0};
    buf_puts(&out, text);
    return buf_take(&out);
}

static void say_call(struct scene *scene)
{
    struct message *message = conversation_add(scene->conversation, ROLE_ASSISTANT, "");
    conversation_add_call(message, copy_of("get_weather"), copy_of("{\"city\": \"Lisbon\"}"));
}

static void make_known(struct scene *scene, int i)
{
    const struct known *row = &known[i];
    if (row->weather) tools_offer_weather(scene);
    if (row->system != NULL) say(scene, ROLE_SYSTEM, row->system);
    for (int k = 0; k < 6 && row->messages[k] != NULL; k++)
        say(scene, k % 2 == 0 ? ROLE_USER : ROLE_ASSISTANT, row->messages[k]);
    if (row->weather) say_call(scene);
    if (row->result != NULL) say(scene, ROLE_TOOL, row->result);
    if (row->wanted != NULL) say(scene, ROLE_ASSISTANT, row->wanted);
}

const struct row rows[] = {
    {.name = "what the tests and the documents say",
     .make = make_known,
     .contains = true,
     .n = sizeof known / sizeof *known},
    {.name = "a name, 1 to 10 turns later", .make = make_name},
    {.name = "a code in the system prompt", .make = rows_secret},
    {.name = "the same among 900 tokens of notes", .make = make_900},
    {.name = "the same 1,500 tokens back", .make = make_1500},
    {.name = "one of three facts", .make = make_three},
    {.name = "one of four codes with labels", .make = make_labelled},
    {.name = "any fact in any words", .make = make_phrases},
    {.name = "two facts at once", .make = make_two},
    {.name = "the n-th item of a list", .make = make_nth},
    {.name = "a list, repeated", .make = make_list},
    {.name = "words, repeated", .make = make_echo},
    {.name = "words beyond ASCII, repeated", .make = make_foreign},
    {.name = "a name beyond ASCII", .make = make_foreign_name},
    {.name = "ten lines, quoted", .make = make_lines},
    {.name = "a name that was not stated", .make = make_unknown},
    {.name = "who it is", .make = make_who},
    {.name = "questions about hearth", .make = make_hearth},
    {.name = "get_weather", .make = make_weather},
    {.name = "a tool never seen", .make = make_tool},
    {.name = "a tool never seen, two arguments", .make = make_two_arguments},
    {.name = "what a tool returned", .make = make_result},
    {.name = "the fourth call of two tools", .make = make_tool_turns},
};
const int n_rows = sizeof rows / sizeof *rows;
