/* One table says how each kind of fact is stated, asked for and answered. A question has one answer, so that nothing is
 * left to chance when a reply is sampled. */
#include "corpus/facts.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { PHRASES = 12 };

/* {v}: the value; {t}: the thing it is about. Lists end with NULL. */
struct fact_kind {
    const char *name;
    enum value value;
    int often;         /* how often it is made up, beside the others */
    bool of_user;      /* about the user, not about the world */
    bool of_person;    /* the thing is a person's name */
    const char *thing; /* the one thing that it is about: "" where it varies */
    const char *states[PHRASES];
    const char *system[PHRASES]; /* in a system prompt; none: as stated */
    const char *asks[PHRASES];
    const char *answer, *noted, *unknown;
};

const char facts_unknown_name[] = "I do not know your name.";

#define NOTED "Okay, I will remember that."

static const struct fact_kind kinds[] = {
    {.name = "name",
     .value = VALUE_NAME,
     .often = 22,
     .of_user = true,
     .thing = "you",
     .states = {"My name is {v}.", "I am called {v}.", "I am {v}.", "I'm {v}.", "Call me {v}.", "You can call me {v}.",
                "Hello, my name is {v}.", "Hi, I am {v}.", "Hello! I'm {v}.", "People call me {v}.",
                "The name is {v}."},
     .system = {"The user's name is {v}.", "The user is called {v}.", "You talk to {v}.",
                "The name of the user is {v}."},
     .asks = {"What is my name?", "What's my name?", "Do you know my name?", "Tell me my name.", "Who am I?",
              "What am I called?", "Can you tell me my name?", "Do you remember my name?", "Say my name.",
              "How am I called?", "What was my name?"},
     .answer = "Your name is {v}.",
     .noted = "Nice to meet you, {v}.",
     .unknown = facts_unknown_name},
    {.name = "color",
     .value = VALUE_COLOR,
     .often = 6,
     .of_user = true,
     .thing = "favorite color",
     .states = {"My favorite color is {v}.", "I like the color {v} best.", "My favourite color is {v}.",
                "The color that I love is {v}."},
     .system = {"The user's favorite color is {v}.", "The user likes the color {v} best."},
     .asks = {"What is my favorite color?", "Which color do I like best?", "What's my favourite color?",
              "Which color is my favorite?", "Tell me my favorite color."},
     .answer = "Your favorite color is {v}.",
     .noted = "I will remember that your favorite color is {v}.",
     .unknown = "I do not know your favorite color."},
    {.name = "food",
     .value = VALUE_FOOD,
     .often = 5,
     .of_user = true,
     .thing = "favorite food",
     .states = {"My favorite food is {v}.", "I like to eat {v}.", "My favourite food is {v}.", "I love {v}."},
     .system = {"The user's favorite food is {v}.", "The user likes to eat {v}."},
     .asks = {"What is my favorite food?", "What do I like to eat?", "What's my favourite food?",
              "Which food do I like best?"},
     .answer = "Your favorite food is {v}.",
     .noted = "I will remember that your favorite food is {v}.",
     .unknown = "I do not know your favorite food."},
    {.name = "animal",
     .value = VALUE_ANIMAL,
     .often = 4,
     .of_user = true,
     .thing = "favorite animal",
     .states = {"My favorite animal is the {v}.", "The animal I like best is the {v}."},
     .system = {"The user's favorite animal is the {v}."},
     .asks = {"What is my favorite animal?", "Which animal do I like best?", "What's my favourite animal?"},
     .answer = "Your favorite animal is the {v}.",
     .noted = "I will remember that your favorite animal is the {v}.",
     .unknown = "I do not know your favorite animal."},
    {.name = "city",
     .value = VALUE_CITY,
     .often = 7,
     .of_user = true,
     .thing = "home",
     .states = {"I live in {v}.", "My home is in {v}.", "I come from {v}.", "My town is {v}."},
     .system = {"The user lives in {v}.", "The user comes from {v}."},
     .asks = {"Where do I live?", "In which city do I live?", "Which town do I live in?", "Where is my home?",
              "Where do I come from?"},
     .answer = "You live in {v}.",
     .noted = "I will remember that you live in {v}.",
     .unknown = "I do not know where you live."},
    {.name = "age",
     .value = VALUE_AGE,
     .often = 5,
     .of_user = true,
     .thing = "age",
     .states = {"I am {v} years old.", "My age is {v}.", "I'm {v} years old."},
     .system = {"The user is {v} years old.", "The user's age is {v}."},
     .asks = {"How old am I?", "What is my age?", "Do you know my age?"},
     .answer = "You are {v} years old.",
     .noted = "I will remember that you are {v} years old.",
     .unknown = "I do not know how old you are."},
    {.name = "job",
     .value = VALUE_JOB,
     .often = 4,
     .of_user = true,
     .thing = "job",
     .states = {"I work as a {v}.", "My job is {v}.", "I am a {v} by trade."},
     .system = {"The user works as a {v}.", "The user's job is {v}."},
     .asks = {"What is my job?", "What do I work as?", "What do I do for a living?"},
     .answer = "You work as a {v}.",
     .noted = "I will remember that you work as a {v}.",
     .unknown = "I do not know your job."},
    {.name = "number",
     .value = VALUE_NUMBER,
     .often = 4,
     .of_user = true,
     .thing = "lucky number",
     .states = {"My lucky number is {v}.", "I like the number {v}.", "My favorite number is {v}."},
     .system = {"The user's lucky number is {v}."},
     .asks = {"What is my lucky number?", "Which number do I like?", "What is my favorite number?"},
     .answer = "Your lucky number is {v}.",
     .noted = "I will remember that your lucky number is {v}.",
     .unknown = "I do not know your lucky number."},
    {.name = "friend",
     .value = VALUE_NAME,
     .often = 5,
     .of_user = true,
     .thing = "friend",
     .states = {"My friend is called {v}.", "My best friend is {v}.", "I have a friend named {v}."},
     .system = {"The user's friend is called {v}."},
     .asks = {"What is my friend called?", "Who is my friend?", "What is the name of my friend?",
              "Who is my best friend?"},
     .answer = "Your friend is called {v}.",
     .noted = "I will remember that your friend is called {v}.",
     .unknown = "I do not know your friend's name."},
    {.name = "pet",
     .value = VALUE_NAME,
     .often = 5,
     .of_user = true,
     .thing = "pet",
     .states = {"My dog is called {v}.", "The name of my dog is {v}.", "I have a dog named {v}."},
     .system = {"The user's dog is called {v}."},
     .asks = {"What is my dog called?", "What is the name of my dog?", "What's my dog's name?",
              "How is my dog called?"},
     .answer = "Your dog is called {v}.",
     .noted = "I will remember that your dog is called {v}.",
     .unknown = "I do not know your dog's name."},
    {.name = "my code",
     .value = VALUE_CODE,
     .often = 9,
     .of_user = true,
     .thing = "code",
     .states = {"My code is {v}.", "My secret code is {v}.", "I have the code {v}.", "{v} is my code."},
     .system = {"The user's code is {v}.", "The user has the code {v}."},
     .asks = {"What is my code?", "What's my code?", "Which code do I have?", "Tell me my code.", "Say my code.",
              "Do you remember my code?", "What was my code?", "What is my secret code?"},
     .answer = "Your code is {v}.",
     .noted = "I will remember that your code is {v}.",
     .unknown = "I do not know your code."},
    {.name = "password",
     .value = VALUE_CODE,
     .often = 4,
     .of_user = true,
     .thing = "password",
     .states = {"My password is {v}.", "I use the password {v}.", "{v} is my password."},
     .system = {"The user's password is {v}."},
     .asks = {"What is my password?", "What's my password?", "Tell me my password.", "Which password do I use?"},
     .answer = "Your password is {v}.",
     .noted = "I will remember that your password is {v}.",
     .unknown = "I do not know your password."},
    {.name = "pin",
     .value = VALUE_NUMBER,
     .often = 4,
     .of_user = true,
     .thing = "pin",
     .states = {"My pin is {v}.", "{v} is my pin.", "My PIN is {v}."},
     .system = {"The user's pin is {v}."},
     .asks = {"What is my pin?", "What's my PIN?", "Tell me my pin."},
     .answer = "Your pin is {v}.",
     .noted = "I will remember that your pin is {v}.",
     .unknown = "I do not know your pin."},
    {.name = "my",
     .value = VALUE_ANY,
     .often = 12,
     .of_user = true,
     .thing = "",
     .states = {"My {t} is {v}.", "The name of my {t} is {v}.", "I call my {t} {v}.", "{v} is my {t}."},
     .system = {"The user's {t} is {v}.", "The user calls the {t} {v}."},
     .asks = {"What is my {t}?", "What's my {t}?", "Tell me my {t}.", "Do you remember my {t}?", "What was my {t}?",
              "What did I say my {t} is?"},
     .answer = "Your {t} is {v}.",
     .noted = "I will remember that your {t} is {v}.",
     .unknown = "I do not know your {t}."},
    {.name = "secret",
     .value = VALUE_CODE,
     .often = 22,
     .thing = "secret code",
     .states = {"The secret code is {v}.", "The code is {v}.", "The secret code: {v}.", "{v} is the secret code.",
                "Remember the secret code {v}.", "This is the secret code: {v}."},
     .asks = {"What is the secret code?", "What's the secret code?", "Tell me the secret code.", "What is the code?",
              "Which code is secret?", "Do you know the secret code?", "Say the secret code.",
              "Give me the secret code.", "What was the secret code?", "Can you tell me the code?"},
     .answer = "The secret code is {v}.",
     .noted = NOTED,
     .unknown = "I do not know the secret code."},
    {.name = "code of",
     .value = VALUE_CODE,
     .often = 16,
     .thing = "",
     .states = {"The code of the {t} is {v}.", "The {t} code is {v}.", "The code for the {t}: {v}.",
                "{v} is the code of the {t}.", "Code of the {t}: {v}."},
     .asks = {"What is the code of the {t}?", "What is the {t} code?", "Which code has the {t}?",
              "Tell me the code of the {t}.", "What's the code for the {t}?", "Give me the {t} code."},
     .answer = "The code of the {t} is {v}.",
     .noted = NOTED,
     .unknown = "I do not know the code of the {t}."},
    {.name = "place",
     .value = VALUE_PLACE,
     .often = 9,
     .thing = "",
     .states = {"The {t} is in the {v}.", "I put the {t} in the {v}.", "In the {v} there is the {t}.",
                "You find the {t} in the {v}."},
     .asks = {"Where is the {t}?", "Where do I find the {t}?", "Where's the {t}?", "In which place is the {t}?"},
     .answer = "The {t} is in the {v}.",
     .noted = NOTED,
     .unknown = "I do not know where the {t} is."},
    {.name = "price",
     .value = VALUE_NUMBER,
     .often = 6,
     .thing = "",
     .states = {"The {t} costs {v} coins.", "The price of the {t} is {v} coins.", "You pay {v} coins for the {t}."},
     .asks = {"What does the {t} cost?", "How much is the {t}?", "What is the price of the {t}?"},
     .answer = "The {t} costs {v} coins.",
     .noted = NOTED,
     .unknown = "I do not know what the {t} costs."},
    {.name = "lives",
     .value = VALUE_CITY,
     .often = 8,
     .of_person = true,
     .thing = "",
     .states = {"{t} lives in {v}.", "The home of {t} is in {v}.", "{t} moved to {v}."},
     .asks = {"Where does {t} live?", "In which city does {t} live?", "Where is the home of {t}?"},
     .answer = "{t} lives in {v}.",
     .noted = NOTED,
     .unknown = "I do not know where {t} lives."},
    {.name = "likes",
     .value = VALUE_WORD,
     .often = 6,
     .of_person = true,
     .thing = "",
     .states = {"{t} likes {v} best.", "What {t} likes best is {v}.", "{t} loves {v}."},
     .asks = {"What does {t} like?", "What does {t} like best?", "What does {t} love?"},
     .answer = "{t} likes {v} best.",
     .noted = NOTED,
     .unknown = "I do not know what {t} likes."},
    {.name = "birthday",
     .value = VALUE_DAY,
     .often = 4,
     .of_person = true,
     .thing = "",
     .states = {"{t} comes on {v}.", "On {v} {t} comes.", "{t} will visit us on {v}."},
     .asks = {"When does {t} come?", "On which day does {t} come?", "When will {t} visit us?"},
     .answer = "{t} comes on {v}.",
     .noted = NOTED,
     .unknown = "I do not know when {t} comes."},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *pick_phrase(struct random *random, const char *const phrases[PHRASES])
{
    int n = 0;
    while (n < PHRASES && phrases[n] != NULL) n++;
    return phrases[random_below(random, n)];
}

/* ---- Making up ---- */

static const struct fact_kind *pick_kind(struct random *random)
{
    int total = 0;
    for (int i = 0; i < KINDS; i++) total += kinds[i].often;
    int at = random_below(random, total);
    for (int i = 0; i < KINDS; i++) {
        if (at < kinds[i].often) return &kinds[i];
        at -= kinds[i].often;
    }
    return kinds;
}

static char *pick_thing(struct random *random, const struct fact_kind *kind)
{
    struct buf thing = {0};
    if (kind->thing[0] != '\0') {
        buf_puts(&thing, kind->thing);
    } else if (kind->of_person) {
        words_value(random, VALUE_NAME, &thing);
    } else if (random_chance(random, 20)) {
        words_value(random, VALUE_WORD, &thing);
    } else {
        buf_puts(&thing, words_thing(random));
    }
    return buf_take(&thing);
}

static struct fact *find(struct scene *scene, const struct fact_kind *kind, const char *thing)
{
    for (int i = 0; i < scene->n_facts; i++) {
        struct fact *fact = &scene->facts[i];
        if (fact->kind == kind && strcmp(fact->thing, thing) == 0) return fact;
    }
    return NULL;
}

static bool knows(const struct scene *scene, const struct fact_kind *kind)
{
    for (int i = 0; i < scene->n_facts; i++)
        if (scene->facts[i].kind == kind) return true;
    return false;
}

/* Two kinds are asked for with the same words: what one of them states is an answer to the other. */
static bool excluded(const struct scene *scene, const struct fact_kind *kind)
{
    static const char *const alike[][2] = {
        {"secret", "my code"}, {"my code", "secret"}, {"secret", "code of"}, {"code of", "secret"}};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        if (strcmp(alike[i][0], kind->name) != 0) continue;
        for (int k = 0; k < scene->n_facts; k++)
            if (strcmp(scene->facts[k].kind->name, alike[i][1]) == 0) return true;
    }
    return false;
}

/* A fact of the scene; the values are taken over. */
static const struct fact *put_fact(struct scene *scene, const struct fact_kind *kind, char *thing, char *value)
{
    struct fact *fact = find(scene, kind, thing);
    if (fact != NULL) {
        free(thing);
        free(fact->value);
        fact->value = value;
        return fact;
    }
    fact = &scene->facts[scene->n_facts++];
    *fact = (struct fact){kind, thing, value};
    return fact;
}

static char *make_value(struct random *random, const struct fact_kind *kind)
{
    struct buf value = {0};
    words_value(random, kind->value, &value);
    return buf_take(&value);
}

/* A fact that was not there before; a few times in a hundred it replaces one. */
static const struct fact *make_up(struct scene *scene)
{
    if (scene->n_facts == FACTS_MAX) return NULL;
    for (int attempt = 0; attempt < 8; attempt++) {
        const struct fact_kind *kind = pick_kind(scene->random);
        char *thing = pick_thing(scene->random, kind);
        bool again = find(scene, kind, thing) != NULL;
        if (!excluded(scene, kind) && (!again || random_chance(scene->random, 4)))
            return put_fact(scene, kind, thing, make_value(scene->random, kind));
        free(thing);
    }
    return NULL;
}

const struct fact *facts_state(struct scene *scene, bool in_system, struct buf *out)
{
    const struct fact *fact = make_up(scene);
    if (fact == NULL) return NULL;
    bool of_user = in_system && fact->kind->system[0] != NULL;
    const char *phrase = pick_phrase(scene->random, of_user ? fact->kind->system : fact->kind->states);
    scene_fill(out, phrase, fact->thing, fact->value);
    return fact;
}

const struct fact *facts_state_as(struct scene *scene, const char *name, const char *thing, const char *value,
                                  struct buf *out)
{
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        char *own = thing != NULL ? mem_strdup(thing) : pick_thing(scene->random, &kinds[i]);
        char *said = value != NULL ? mem_strdup(value) : make_value(scene->random, &kinds[i]);
        const struct fact *fact = put_fact(scene, &kinds[i], own, said);
        scene_fill(out, kinds[i].states[0], fact->thing, fact->value);
        return fact;
    }
    return NULL;
}

void facts_ask(struct scene *scene, const struct fact *fact, bool plainly, struct buf *question, struct buf *answer)
{
    const char *phrase = plainly ? fact->kind->asks[0] : pick_phrase(scene->random, fact->kind->asks);
    scene_fill(question, phrase, fact->thing, fact->value);
    scene_fill(answer, fact->kind->answer, fact->thing, fact->value);
}

/* ---- Turns ---- */

static void put_reminder(struct random *random, struct buf *said)
{
    static const char *const reminders[] = {" Remember it.",     " Please remember it.", " Remember that.",
                                            " Keep it in mind.", " Do not forget it.",   " Please remember this."};
    if (random_chance(random, 20)) buf_puts(said, PICK(random, reminders));
}

static void put_opening(struct random *random, struct buf *said)
{
    static const char *const openings[] = {
        "By the way: ", "Remember: ", "Note: ", "Please note: ", "You should know: "};
    if (random_chance(random, 8)) buf_puts(said, PICK(random, openings));
}

/* What the model says to one fact; to several it greets who has a name, and says no more of each. */
static void put_noted(const struct fact *const *facts, int n, struct buf *reply)
{
    if (n == 1) {
        scene_fill(reply, facts[0]->kind->noted, facts[0]->thing, facts[0]->value);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(facts[i]->kind->name, "name") != 0) continue;
        scene_fill(reply, facts[i]->kind->noted, facts[i]->thing, facts[i]->value);
        buf_puts(reply, " ");
    }
    buf_puts(reply, NOTED);
}

/* Some of the replies in a history were not written by the model. */
static void put_foreign_reply(struct scene *scene, const struct fact *fact, struct buf *reply)
{
    static const char *const forms[] = {
        "Hello {v}!", "Hello, {v}.", "Hello, {v}!", "Hi {v}, nice to meet you!",   "Okay.",
        "Got it.",    "Thank you.",  "Noted.",      "It is good to know you, {v}."};
    scene_fill(reply, PICK(scene->random, forms), fact->thing, fact->value);
}

static bool stated_before(const struct fact *const *facts, int n, const struct fact *fact)
{
    for (int i = 0; i < n; i++)
        if (facts[i] == fact) return true;
    return false;
}

bool facts_turn_state(struct scene *scene)
{
    struct buf said = {0}, reply = {0};
    const struct fact *facts[3];
    int n = 0, most = random_chance(scene->random, 70) ? 1 : random_between(scene->random, 2, 3);
    put_opening(scene->random, &said);
    for (int i = 0; i < most; i++) {
        if (n > 0) buf_puts(&said, " ");
        const struct fact *fact = facts_state(scene, false, &said);
        if (fact == NULL) break;
        if (!stated_before(facts, n, fact)) facts[n++] = fact;
    }
    if (n == 0) {
        buf_release(&said);
        return false;
    }
    put_reminder(scene->random, &said);
    bool foreign = n == 1 && random_chance(scene->random, 10);
    if (foreign) {
        put_foreign_reply(scene, facts[0], &reply);
    } else {
        put_noted(facts, n, &reply);
    }
    scene_turn(scene, &said, &reply);
    scene->conversation->messages[scene->conversation->n_messages - 1].foreign = foreign;
    return true;
}

static const struct fact *pick_fact(const struct scene *scene)
{
    return scene->n_facts > 0 ? &scene->facts[random_below(scene->random, scene->n_facts)] : NULL;
}

static bool take_turn_ask(struct scene *scene, const struct fact *fact)
{
    if (fact == NULL) return false;
    struct buf question = {0}, answer = {0};
    facts_ask(scene, fact, random_chance(scene->random, 35), &question, &answer);
    scene_roughen(scene->random, &question);
    scene_turn(scene, &question, &answer);
    return true;
}

bool facts_turn_ask(struct scene *scene)
{
    return take_turn_ask(scene, pick_fact(scene));
}

bool facts_turn_ask_first(struct scene *scene)
{
    return take_turn_ask(scene, scene->n_facts > 0 ? scene->facts : NULL);
}

/* "My name is Ottilie. What is my name?"; also with other sentences around. */
bool facts_turn_both(struct scene *scene)
{
    struct buf said = {0}, answer = {0}, question = {0};
    if (random_chance(scene->random, 30)) {
        words_sentence(scene->random, &said);
        buf_puts(&said, " ");
    }
    const struct fact *fact = facts_state(scene, false, &said);
    if (fact == NULL) {
        buf_release(&said);
        return false;
    }
    if (random_chance(scene->random, 40)) fact = pick_fact(scene);
    if (random_chance(scene->random, 30)) {
        buf_puts(&said, " ");
        words_sentence(scene->random, &said);
    }
    facts_ask(scene, fact, random_chance(scene->random, 50), &question, &answer);
    buf_printf(&said, "%s%s", random_chance(scene->random, 15) ? "\n" : " ", buf_text(&question));
    buf_release(&question);
    scene_turn(scene, &said, &answer);
    return true;
}

bool facts_turn_two(struct scene *scene)
{
    if (scene->n_facts < 2) return false;
    struct buf said = {0}, answer = {0};
    int first = random_below(scene->random, scene->n_facts);
    int second = (first + random_between(scene->random, 1, scene->n_facts - 1)) % scene->n_facts;
    facts_ask(scene, &scene->facts[first], random_chance(scene->random, 50), &said, &answer);
    buf_puts(&said, " ");
    buf_puts(&answer, " ");
    facts_ask(scene, &scene->facts[second], random_chance(scene->random, 50), &said, &answer);
    scene_turn(scene, &said, &answer);
    return true;
}

/* "Is my name Ottilie?" is asked of what one thing is; the answer repeats it. */
bool facts_turn_check(struct scene *scene)
{
    const struct fact *fact = pick_fact(scene);
    if (fact == NULL) return false;
    struct buf said = {0}, answer = {0}, statement = {0}, other = {0};
    bool right = random_chance(scene->random, 50);
    words_value(scene->random, fact->kind->value, &other);
    right = right || strcmp(buf_text(&other), fact->value) == 0;
    scene_fill(&statement, fact->kind->answer, fact->thing, right ? fact->value : buf_text(&other));
    static const char *const forms[] = {"Is this right: {v}", "Right or wrong? {v}", "Is it true? {v}",
                                        "Check this: {v}"};
    scene_fill(&said, PICK(scene->random, forms), "", buf_text(&statement));
    buf_puts(&answer, right ? "Yes. " : "No. ");
    scene_fill(&answer, fact->kind->answer, fact->thing, fact->value);
    buf_release(&statement);
    buf_release(&other);
    scene_turn(scene, &said, &answer);
    return true;
}

bool facts_turn_unknown(struct scene *scene)
{
    const struct fact_kind *kind = pick_kind(scene->random);
    if (knows(scene, kind) || excluded(scene, kind)) return false;
    struct buf said = {0}, answer = {0};
    char *thing = pick_thing(scene->random, kind);
    scene_fill(&said, pick_phrase(scene->random, kind->asks), thing, "");
    scene_fill(&answer, kind->unknown, thing, "");
    free(thing);
    scene_roughen(scene->random, &said);
    scene_turn(scene, &said, &answer);
    return true;
}

bool facts_turn_all(struct scene *scene)
{
    static const char *const forms[] = {"What do you know about me?", "What did I tell you?",
                                        "Tell me all you know of me.", "What have I told you?",
                                        "What do you remember?"};
    struct buf said = {0}, answer = {0};
    int n = 0;
    for (int i = 0; i < scene->n_facts && n < 6; i++) {
        const struct fact *fact = &scene->facts[i];
        if (!fact->kind->of_user) continue;
        if (n++ > 0) buf_puts(&answer, " ");
        scene_fill(&answer, fact->kind->answer, fact->thing, fact->value);
    }
    if (n == 0) buf_puts(&answer, "You have told me nothing about you yet.");
    buf_puts(&said, PICK(scene->random, forms));
    scene_roughen(scene->random, &said);
    scene_turn(scene, &said, &answer);
    return true;
}
