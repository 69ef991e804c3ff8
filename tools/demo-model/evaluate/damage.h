/* What the model says from a damaged KV cache: which faults of a cache show in its replies, and which do not. Over
 * llama.cpp itself, since no fault of this kind can be had from libhearth. One thread. */
#ifndef DEMO_DAMAGE_H
#define DEMO_DAMAGE_H

#include "hearth.h"

/* Prints a table of so many conversations for each kind of damage, as Markdown. */
int damage_table(const char *path, int conversations, hearth_error *error);

#endif
