/* Hashes of a conversation's leading messages, one for each number of them.
 *
 * They name a conversation in logs and in /slots. They hash what the request says, not the prompt made of it: equal
 * hashes may have different tokens (a template that prints the day), and only the tokens decide what is reused. Pure
 * functions; any thread. */
#ifndef LIB_PARAMETERS_MESSAGE_HASHES_H
#define LIB_PARAMETERS_MESSAGE_HASHES_H

#include "base/sha256.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the template gets from a request. */
struct chat_seen {
    const char *template_source;
    const json_t *kwargs, *tools; /* NULL: none */
    const json_t *messages;
    const uint8_t (*media)[SHA256_BYTES]; /* of the contents of n_media media, which parts name by their place */
    size_t n_media;
};

struct chat_identity {
    size_t n_messages;
    uint64_t *hashes; /* n_messages + 1: hashes[i] covers template, arguments, tools and the first i messages */
    bool starts_with_system;
};

/* Equal content has equal hashes, however its JSON was spaced and its keys are ordered. */
void chat_identify(const struct chat_seen *seen, struct chat_identity *identity);
void chat_identity_release(struct chat_identity *identity);

/* The scope of a cache_salt: 8 bytes of its SHA-256, so that nobody can choose a salt that finds the cells of another.
 * 0 for NULL and "". */
uint64_t chat_scope(const char *salt);

/* Whether the role is "system" or its newer name "developer". NULL is neither. */
bool chat_is_system_role(const char *role);

#endif
