/* Hashes of leading messages: see identity.h.
 *
 * One SHA-256 runs over the template, its arguments, the tools and then message after message; at each message a copy
 * of it is finished, so that all of them cost one pass. Every part goes in with its length before it, and JSON in one
 * canonical form, compact and with sorted keys. */
#include "chat/identity.h"

#include "base/memory.h"

#include <jansson.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

bool chat_is_system_role(const char *role)
{
    return role != NULL && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

/* ---- Hashing ---- */

static bool add_text(EVP_MD_CTX *running, const char *text)
{
    size_t len = strlen(text);
    return EVP_DigestUpdate(running, &len, sizeof len) == 1 && EVP_DigestUpdate(running, text, len) == 1;
}

static bool add_value(EVP_MD_CTX *running, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    bool added = text != NULL && add_text(running, text);
    free(text);
    return added;
}

/* What is absent counts as null, so that nothing can stand in its place. */
static bool add_json(EVP_MD_CTX *running, const char *json)
{
    json_t *value = json == NULL ? json_null() : json_loads(json, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    bool added = value != NULL && add_value(running, value);
    json_decref(value);
    return added;
}

static uint64_t first_eight(const unsigned char *digest)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof hash; i++) hash = hash << 8 | digest[i];
    return hash;
}

/* The first eight bytes of the digest of what was added so far. */
static bool read_so_far(const EVP_MD_CTX *running, EVP_MD_CTX *copy, uint64_t *hash)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (EVP_MD_CTX_copy_ex(copy, running) != 1 || EVP_DigestFinal_ex(copy, digest, NULL) != 1) return false;
    *hash = first_eight(digest);
    return true;
}

uint64_t chat_scope(const char *salt)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (salt == NULL || salt[0] == '\0') return 0;
    if (EVP_Digest(salt, strlen(salt), digest, NULL, EVP_sha256(), NULL) != 1) abort(); /* OpenSSL without SHA-256 */
    return first_eight(digest);
}

static bool hash_messages(const struct chat_seen *seen, const json_t *messages, EVP_MD_CTX *running, EVP_MD_CTX *copy,
                          uint64_t *hashes)
{
    bool done = EVP_DigestInit_ex(running, EVP_sha256(), NULL) == 1 && add_text(running, seen->template_source) &&
                add_json(running, seen->kwargs_json) && add_json(running, seen->tools_json) &&
                read_so_far(running, copy, &hashes[0]);
    size_t n = json_array_size(messages);
    for (size_t i = 0; done && i < n; i++)
        done = add_value(running, json_array_get(messages, i)) && read_so_far(running, copy, &hashes[i + 1]);
    return done;
}

/* ---- The whole ---- */

static void fill(const struct chat_seen *seen, const json_t *messages, struct chat_identity *identity)
{
    const json_t *role = json_object_get(json_array_get(messages, 0), "role");
    uint64_t *hashes = mem_alloc((json_array_size(messages) + 1) * sizeof *hashes);
    EVP_MD_CTX *running = EVP_MD_CTX_new(), *copy = EVP_MD_CTX_new();
    if (running != NULL && copy != NULL && hash_messages(seen, messages, running, copy, hashes))
        *identity = (struct chat_identity){.n_messages = json_array_size(messages),
                                           .hashes = hashes,
                                           .starts_with_system = chat_is_system_role(json_string_value(role))};
    else
        free(hashes);
    EVP_MD_CTX_free(running);
    EVP_MD_CTX_free(copy);
}

bool chat_identify(const struct chat_seen *seen, struct chat_identity *identity)
{
    *identity = (struct chat_identity){0};
    json_t *messages = json_loads(seen->messages_json, JSON_ALLOW_NUL, NULL);
    if (json_is_array(messages)) fill(seen, messages, identity);
    json_decref(messages);
    return identity->hashes != NULL;
}

void chat_identity_release(struct chat_identity *identity)
{
    free(identity->hashes);
    *identity = (struct chat_identity){0};
}
