/* Tools: their signatures in the system message, what makes the model call them, and what it makes of their results. */
#ifndef DEMO_TOOLS_H
#define DEMO_TOOLS_H

#include "corpus/scene.h"

/* Offers so many tools: some that are known, some with names made up; all before the first turn. */
void tools_offer(struct scene *scene, int n);

/* Offers get_weather as tests do, or a made-up tool with so many parameters. */
void tools_offer_weather(struct scene *scene);
void tools_offer_made_up(struct scene *scene, int n_parameters);

void tool_form_free(struct tool_form *form);

/* A request that makes the model call the scene's tool, and that call: three messages with the tool's result, four with
 * what the model says of it. The turn ends after `messages` of them; at least 2, at most 4. */
void tools_call(struct scene *scene, int tool, bool plainly, int messages);

/* Turns: one call; two calls of the same tool at once; a weather question without a tool for it. */
bool tools_turn(struct scene *scene);
bool tools_turn_twice(struct scene *scene);
bool tools_turn_missing(struct scene *scene);

#endif
