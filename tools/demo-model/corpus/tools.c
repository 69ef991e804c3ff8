/* What a tool is called, asked for and said to return is a row of a table; tools with made-up names are rows that are
 * made up, so that the model reads names and parameters from the signature and not from memory. */
#include "corpus/tools.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { PARAMETERS_MAX = 2, CHOICES = 3, OWNED_MAX = 12 };

struct parameter {
    const char *name, *description;
    enum value value;
    bool integer;                 /* written without quotation marks */
    const char *choices[CHOICES]; /* the values that it may have; none: any */
};

/* {a}, {b}: the parameters' values; {r}: the result. */
struct known_tool {
    const char *name, *description;
    struct parameter parameters[PARAMETERS_MAX];
    int n_parameters;
    const char *asks[6];
    const char *said;    /* of the result */
    const char *results; /* the key of a result that is an object */
    enum value result;
};

static const struct known_tool known[] = {
    {"get_weather",
     "Weather of a city",
     {{"city", "Name of the city", VALUE_CITY, false, {NULL}}},
     1,
     {"What is the weather in {a}?", "How is the weather in {a}?", "Tell me the weather in {a}.", "Weather in {a}?",
      "What's the weather like in {a}?", "Is it nice in {a}?"},
     "The weather in {a} is {r}.",
     "weather",
     VALUE_WEATHER},
    {"get_time",
     "Time in a city",
     {{"city", "Name of the city", VALUE_CITY, false, {NULL}}},
     1,
     {"What time is it in {a}?", "Tell me the time in {a}.", "What is the time in {a}?"},
     "The time in {a} is {r}.",
     "time",
     VALUE_TIME},
    {"search",
     "Search the web",
     {{"query", "What to search for", VALUE_PHRASE, false, {NULL}}},
     1,
     {"Search for {a}.", "Search the web for {a}.", "Look up {a}.", "Find {a}."},
     "I found: {r}.",
     "result",
     VALUE_PHRASE},
    {"read_file",
     "Read a file",
     {{"path", "Path of the file", VALUE_WORD, false, {NULL}}},
     1,
     {"Read the file {a}.", "Open the file {a}.", "What is in the file {a}?", "Show me the file {a}."},
     "The file {a} says: {r}.",
     "content",
     VALUE_PHRASE},
    {"play_song",
     "Play a song",
     {{"title", "Title of the song", VALUE_PHRASE, false, {NULL}}},
     1,
     {"Play {a}.", "Play the song {a}.", "I want to hear {a}."},
     "Done: {r}.",
     "status",
     VALUE_WORD},
    {"get_price",
     "Price of an item",
     {{"item", "The item", VALUE_WORD, false, {NULL}}},
     1,
     {"What is the price of {a}?", "How much does {a} cost?", "Get the price of {a}."},
     "The price of {a} is {r}.",
     "price",
     VALUE_NUMBER},
    {"send_mail",
     "Send a mail",
     {{"to", "Who gets it", VALUE_NAME, false, {NULL}}, {"text", "The text", VALUE_PHRASE, false, {NULL}}},
     2,
     {"Send a mail to {a}: {b}", "Mail {a} the text {b}.", "Write to {a}: {b}"},
     "Done: {r}.",
     "status",
     VALUE_WORD},
    {"set_timer",
     "Set a timer",
     {{"minutes", "Minutes until it rings", VALUE_AGE, true, {NULL}},
      {"label", "What it is for", VALUE_WORD, false, {NULL}}},
     2,
     {"Set a timer of {a} minutes for {b}.", "Wake me in {a} minutes for {b}.", "Timer: {a} minutes, {b}."},
     "Done: {r}.",
     "status",
     VALUE_WORD},
    {"add_item",
     "Put an item on a list",
     {{"item", "The item", VALUE_WORD, false, {NULL}}, {"count", "How many", VALUE_AGE, true, {NULL}}},
     2,
     {"Add {a} to the list, {b} of them.", "Put {a} on the list, {b} times.", "Add the item {a}, {b} times."},
     "Done: {r}.",
     "status",
     VALUE_WORD},
    {"book_train",
     "Book a train",
     {{"from", "Where it starts", VALUE_CITY, false, {NULL}}, {"to", "Where it goes", VALUE_CITY, false, {NULL}}},
     2,
     {"Book a train from {a} to {b}.", "I want to go from {a} to {b} by train.", "A train from {a} to {b}, please."},
     "Done: {r}.",
     "status",
     VALUE_CODE},
};

enum { KNOWN = sizeof known / sizeof *known };

/* A tool of the scene. A made-up one owns the names of its row. */
struct tool_form {
    struct known_tool row;
    char *owned[OWNED_MAX];
    int n_owned;
};

void tool_form_free(struct tool_form *form)
{
    for (int i = 0; i < form->n_owned; i++) free(form->owned[i]);
    free(form);
}

/* ---- Signatures ---- */

/* Schemas differ in what they say beside names and types. */
struct dress {
    bool descriptions, silent, required, closed, draft, draft_first;
};

static struct dress pick_dress(struct random *random)
{
    return (struct dress){.descriptions = random_chance(random, 40),
                          .silent = random_chance(random, 10),
                          .required = random_chance(random, 85),
                          .closed = random_chance(random, 25),
                          .draft = random_chance(random, 10),
                          .draft_first = random_chance(random, 10)};
}

static void put_parameter(const struct parameter *p, const struct dress *dress, struct buf *out)
{
    buf_printf(out, "\"%s\": {", p->name);
    if (p->choices[0] == NULL) {
        buf_printf(out, "\"type\": \"%s\"", p->integer ? "integer" : "string");
    } else {
        for (int i = 0; i < CHOICES; i++) buf_printf(out, "%s\"%s\"", i > 0 ? ", " : "\"enum\": [", p->choices[i]);
        buf_puts(out, "]");
    }
    if (dress->descriptions) buf_printf(out, ", \"description\": \"%s\"", p->description);
    buf_puts(out, "}");
}

static char *signature_of(const struct known_tool *row, const struct dress *dress)
{
    struct buf out = {0};
    buf_printf(&out, "{\"type\": \"function\", \"function\": {\"name\": \"%s\", ", row->name);
    buf_printf(&out, "\"description\": \"%s\", ", dress->silent ? "" : row->description);
    buf_puts(&out, "\"parameters\": {");
    if (dress->draft_first) buf_puts(&out, "\"$schema\": \"https://json-schema.org/draft/2020-12/schema\", ");
    buf_puts(&out, "\"type\": \"object\", \"properties\": {");
    for (int i = 0; i < row->n_parameters; i++) {
        if (i > 0) buf_puts(&out, ", ");
        put_parameter(&row->parameters[i], dress, &out);
    }
    buf_puts(&out, "}");
    if (dress->required) {
        buf_puts(&out, ", \"required\": [");
        for (int i = 0; i < row->n_parameters; i++)
            buf_printf(&out, "%s\"%s\"", i > 0 ? ", " : "", row->parameters[i].name);
        buf_puts(&out, "]");
    }
    if (dress->closed) buf_puts(&out, ", \"additionalProperties\": false");
    if (dress->draft) buf_puts(&out, ", \"$schema\": \"http://json-schema.org/draft-07/schema#\"");
    buf_puts(&out, "}}}");
    return buf_take(&out);
}

/* Whether the scene has a tool of that name. */
static bool offered(const struct scene *scene, const char *name)
{
    for (int i = 0; i < scene->n_tools; i++)
        if (strcmp(scene->tools[i]->row.name, name) == 0) return true;
    return false;
}

static void offer(struct scene *scene, struct tool_form *form, const struct dress *dress)
{
    if (offered(scene, form->row.name)) {
        tool_form_free(form);
        return;
    }
    scene->tools[scene->n_tools++] = form;
    char *json = signature_of(&form->row, dress);
    scene->length += strlen(json);
    conversation_add_tool(scene->conversation, json);
}

/* ---- Made-up tools ---- */

static const char *own(struct tool_form *form, struct buf *text)
{
    char *taken = buf_take(text);
    form->owned[form->n_owned++] = taken;
    return taken;
}

static const char *make_name(struct scene *scene, struct tool_form *form)
{
    static const char *const verbs[] = {"get", "find", "set", "make", "open", "check", "run", "list", "count", "load"};
    struct buf name = {0};
    if (random_chance(scene->random, 70)) buf_printf(&name, "%s_", PICK(scene->random, verbs));
    words_value(scene->random, VALUE_WORD, &name);
    return own(form, &name);
}

static void make_choices(struct scene *scene, struct tool_form *form, struct parameter *parameter)
{
    for (int i = 0; i < CHOICES; i++) {
        struct buf choice = {0};
        words_value(scene->random, i == 0 ? VALUE_CODE : parameter->value, &choice);
        parameter->choices[i] = own(form, &choice);
    }
}

static struct parameter make_parameter(struct scene *scene, struct tool_form *form)
{
    static const char *const common[] = {"name", "key", "id", "text", "value", "title", "path", "user", "date", "code"};
    static const enum value values[] = {VALUE_WORD, VALUE_NAME, VALUE_CODE, VALUE_CITY, VALUE_WORD};
    struct parameter parameter = {.description = "What it takes", .value = PICK(scene->random, values)};
    int form_of_value = random_below(scene->random, 100);
    if (form_of_value < 20) {
        parameter.value = VALUE_NUMBER;
        parameter.integer = true;
    } else if (form_of_value < 30 && form->n_owned + CHOICES + 2 < OWNED_MAX) {
        make_choices(scene, form, &parameter);
    }
    if (random_chance(scene->random, 50)) {
        parameter.name = PICK(scene->random, common);
    } else {
        struct buf name = {0};
        words_value(scene->random, VALUE_WORD, &name);
        parameter.name = own(form, &name);
    }
    return parameter;
}

static void fill_requests(struct known_tool *row)
{
    static const char *const one[] = {
        "Call {n} with {p} {a}.",        "Use {n} with {p} {a}.",           "Run {n}: {p} is {a}.",
        "Please call {n} with {p} {a}.", "Call the tool {n} with {p} {a}.", NULL};
    static const char *const two[] = {"Call {n} with {p} {a} and {q} {b}.",
                                      "Use {n} with {p} {a} and {q} {b}.",
                                      "Run {n}: {p} is {a}, {q} is {b}.",
                                      "Please call {n} with {p} {a} and {q} {b}.",
                                      "Call the tool {n} with {p} {a} and {q} {b}.",
                                      NULL};
    memcpy(row->asks, row->n_parameters == 1 ? one : two, sizeof row->asks);
}

static struct tool_form *make_form(struct scene *scene, int n_parameters)
{
    struct tool_form *form = mem_alloc(sizeof *form);
    struct buf description = {0};
    form->row.name = make_name(scene, form);
    words_value(scene->random, VALUE_PHRASE, &description);
    form->row.description = own(form, &description);
    for (int i = 0; i < n_parameters; i++) {
        struct parameter parameter = make_parameter(scene, form);
        if (i > 0 && strcmp(parameter.name, form->row.parameters[0].name) == 0) parameter.name = "other";
        form->row.parameters[i] = parameter;
    }
    form->row.n_parameters = n_parameters;
    form->row.said = "The result is {r}.";
    form->row.results = "result";
    form->row.result = VALUE_ANY;
    fill_requests(&form->row);
    return form;
}

void tools_offer_weather(struct scene *scene)
{
    struct tool_form *form = mem_alloc(sizeof *form);
    form->row = known[0];
    offer(scene, form, &(struct dress){.required = true});
}

void tools_offer_made_up(struct scene *scene, int n_parameters)
{
    struct tool_form *form = make_form(scene, n_parameters);
    struct dress dress = pick_dress(scene->random);
    offer(scene, form, &dress);
}

void tools_offer(struct scene *scene, int n)
{
    struct dress dress = pick_dress(scene->random);
    for (int i = 0; i < n && scene->n_tools < TOOLS_MAX; i++) {
        struct tool_form *form;
        if (random_chance(scene->random, 45)) {
            form = make_form(scene, random_between(scene->random, 1, 2));
        } else {
            form = mem_alloc(sizeof *form);
            form->row = known[random_chance(scene->random, 35) ? 0 : random_below(scene->random, KNOWN)];
        }
        offer(scene, form, &dress);
    }
}

/* ---- Calls ---- */

/* What a call's template can name. */
struct call {
    const struct known_tool *row;
    char *a, *b, *result;
};

static void put_part(const struct call *call, char marker, struct buf *out)
{
    const struct {
        char marker;
        const char *text;
    } parts[] = {{'a', call->a},         {'b', call->b},
                 {'n', call->row->name}, {'p', call->row->parameters[0].name},
                 {'r', call->result},    {'q', call->row->parameters[1].name}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].marker == marker && parts[i].text != NULL) buf_puts(out, parts[i].text);
}

static void put_template(const struct call *call, const char *text, struct buf *out)
{
    while (*text != '\0') {
        size_t plain = strcspn(text, "{");
        buf_append(out, text, plain);
        text += plain;
        if (*text == '\0') break;
        put_part(call, text[1], out);
        text += 3;
    }
}

static char *make_text(struct random *random, enum value kind)
{
    struct buf text = {0};
    words_value(random, kind, &text);
    return buf_take(&text);
}

static char *make_argument(struct random *random, const struct parameter *parameter)
{
    return parameter->choices[0] != NULL ? mem_strdup(PICK(random, parameter->choices))
                                         : make_text(random, parameter->value);
}

static struct call make_call(struct scene *scene, const struct known_tool *row)
{
    struct call call = {.row = row, .a = make_argument(scene->random, &row->parameters[0])};
    if (row->n_parameters > 1) call.b = make_argument(scene->random, &row->parameters[1]);
    return call;
}

static void release_call(struct call *call)
{
    free(call->a);
    free(call->b);
    free(call->result);
}

static char *arguments_of(const struct call *call)
{
    const char *values[PARAMETERS_MAX] = {call->a, call->b};
    struct buf out = {0};
    for (int i = 0; i < PARAMETERS_MAX && i < call->row->n_parameters; i++) {
        const struct parameter *parameter = &call->row->parameters[i];
        const char *quote = parameter->integer ? "" : "\"";
        buf_printf(&out, "%s\"%s\": %s%s%s", i > 0 ? ", " : "{", parameter->name, quote, values[i], quote);
    }
    buf_puts(&out, "}");
    return buf_take(&out);
}

static void put_request(struct scene *scene, const struct call *call, bool plainly, struct buf *said)
{
    int n = 1;
    while (n < 6 && call->row->asks[n] != NULL) n++;
    put_template(call, call->row->asks[plainly ? 0 : random_below(scene->random, n)], said);
}

/* Adds the model's message with these calls. */
static void say_calls(struct scene *scene, const struct call *calls, int n)
{
    struct message *message = conversation_add(scene->conversation, ROLE_ASSISTANT, "");
    for (int i = 0; i < n; i++) {
        conversation_add_call(message, mem_strdup(calls[i].row->name), arguments_of(&calls[i]));
        scene->length += 80;
    }
}

/* Adds the tool's result, and appends what the model will say of it: the value, whatever form it came in. */
static void say_result(struct scene *scene, struct call *call, struct buf *reply)
{
    struct buf result = {0};
    struct random *random = scene->random;
    const char *key = random_chance(random, 80) ? call->row->results : words_thing(random);
    const char *space = random_chance(random, 50) ? " " : "";
    char *more = NULL;
    call->result = make_text(random, random_chance(random, 75) ? call->row->result : VALUE_ANY);
    int form = random_below(random, 100);
    if (form < 30) {
        buf_puts(&result, call->result);
        put_template(call, call->row->said, reply);
    } else if (form < 80) {
        buf_printf(&result, "{\"%s\":%s\"%s\"}", key, space, call->result);
        put_template(call, call->row->said, reply);
    } else if (form < 90) {
        more = make_text(random, VALUE_NUMBER);
        buf_printf(&result, "{\"%s\":%s\"%s\",%s\"number\":%s%s}", key, space, call->result, space, space, more);
        put_template(call, call->row->said, reply);
        buf_printf(reply, " The number is %s.", more);
    } else if (form < 97) {
        buf_printf(&result, "{\"error\":%s\"%s\"}", space, call->result);
        buf_printf(reply, "The tool failed: %s.", call->result);
    } else {
        buf_puts(reply, "The tool gave no result.");
    }
    free(more);
    scene_say(scene, ROLE_TOOL, &result);
}

void tools_call(struct scene *scene, int tool, bool plainly, int messages)
{
    struct buf said = {0}, reply = {0};
    struct call call = make_call(scene, &scene->tools[tool]->row);
    put_request(scene, &call, plainly, &said);
    scene_say(scene, ROLE_USER, &said);
    say_calls(scene, &call, 1);
    if (messages > 2) say_result(scene, &call, &reply);
    if (messages > 3) scene_say(scene, ROLE_ASSISTANT, &reply);
    buf_release(&reply);
    release_call(&call);
}

bool tools_turn(struct scene *scene)
{
    if (scene->n_tools == 0) return false;
    tools_call(scene, random_below(scene->random, scene->n_tools), random_chance(scene->random, 35), 4);
    return true;
}

/* "What is the weather in Lisbon? What is the weather in Oslo?": two calls in one message. */
bool tools_turn_twice(struct scene *scene)
{
    if (scene->n_tools == 0) return false;
    const struct known_tool *row = &scene->tools[random_below(scene->random, scene->n_tools)]->row;
    struct call calls[2] = {make_call(scene, row), make_call(scene, row)};
    struct buf said = {0}, reply = {0};
    put_request(scene, &calls[0], false, &said);
    buf_puts(&said, " ");
    put_request(scene, &calls[1], false, &said);
    scene_say(scene, ROLE_USER, &said);
    say_calls(scene, calls, 2);
    say_result(scene, &calls[0], &reply);
    buf_puts(&reply, " ");
    say_result(scene, &calls[1], &reply);
    scene_say(scene, ROLE_ASSISTANT, &reply);
    release_call(&calls[0]);
    release_call(&calls[1]);
    return true;
}

bool tools_turn_missing(struct scene *scene)
{
    const struct known_tool *row = &known[random_below(scene->random, 3)];
    if (offered(scene, row->name)) return false;
    struct call call = make_call(scene, row);
    struct buf said = {0}, reply = {0};
    put_request(scene, &call, random_chance(scene->random, 40), &said);
    buf_puts(&reply, "I have no tool for that.");
    scene_turn(scene, &said, &reply);
    release_call(&call);
    return true;
}
