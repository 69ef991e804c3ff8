/* What a conversation is known by: hashes of its leading messages.
 *
 * They find the same conversation again quickly, and name it in logs and in the status. They are of what the request
 * says, not of the prompt made of it: of equal hashes the tokens may differ (a template that prints the day), and it is
 * always the tokens that decide what is reused. Pure functions; any thread. */
#ifndef LIB_PARAMETERS_MESSAGE_HASHES_H
#define LIB_PARAMETERS_MESSAGE_HASHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the template sees of a request. */
struct chat_seen {
    const char *template_source;
    const char *kwargs_json, *tools_json; /* NULL: none */
    const char *messages_json;
};

struct chat_identity {
    size_t n_messages;
    uint64_t *hashes; /* n_messages + 1 of them: of the first i messages and of everything that is no message */
    bool starts_with_system;
};

/* Equal content has equal hashes, however its JSON is spaced and its keys are ordered. False, and an empty identity,
 * for JSON that jansson does not read (a number beyond 64 bits, for one). */
bool chat_identify(const struct chat_seen *seen, struct chat_identity *identity);
void chat_identity_release(struct chat_identity *identity);

/* A hash that nobody can choose a text for: what is cached for one text is never found with another. 0 for NULL and "".
 */
uint64_t chat_scope(const char *salt);

/* Whether a message with this role is the system's word: "developer" is its newer name. NULL is no role. */
bool chat_is_system_role(const char *role);

#endif
