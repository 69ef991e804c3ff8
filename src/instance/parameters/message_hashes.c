/* Hashes of a conversation's leading messages: see parameters.h.
 *
 * One SHA-256 runs over the template, its arguments, the tools and then message after message. At each message a copy
 * of it is finished, so that all hashes cost one pass. Every part goes in with its length before it, and JSON in one
 * canonical form, compact and with sorted keys. */
#include "instance/parameters/parameters.h"

#include "base/json_text.h"
#include "base/memory.h"
#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>

bool chat_is_system_role(const char *role)
{
    return role != NULL && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

/* ---- Hashing ---- */

static void add_text(struct sha256 *running, const char *text)
{
    size_t len = strlen(text);
    sha256_feed(running, &len, sizeof len);
    sha256_feed(running, text, len);
}

/* An absent value is hashed as null, so that the parts after it keep their position. */
static void add_value(struct sha256 *running, const json_t *value)
{
    struct buf text = {0};
    json_text_write_sorted(&text, value);
    add_text(running, buf_text(&text));
    buf_release(&text);
}

static uint64_t first_eight(const uint8_t digest[SHA256_BYTES])
{
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof hash; i++) hash = hash << 8 | digest[i];
    return hash;
}

/* The first eight bytes of the digest of what was added so far. */
static uint64_t hash_so_far(const struct sha256 *running)
{
    uint8_t digest[SHA256_BYTES];
    sha256_so_far(running, digest);
    return first_eight(digest);
}

uint64_t chat_scope(const char *salt)
{
    uint8_t digest[SHA256_BYTES];
    if (salt == NULL || salt[0] == '\0') return 0;
    sha256_of(salt, strlen(salt), digest);
    return first_eight(digest);
}

void chat_identify(const struct chat_seen *seen, struct chat_identity *identity)
{
    const json_t *messages = seen->messages, *first = json_array_get(messages, 0);
    const size_t n = json_array_size(messages);
    uint64_t *hashes = mem_alloc((n + 1) * sizeof *hashes);
    struct sha256 *running = sha256_open();
    add_text(running, seen->template_source);
    add_value(running, seen->kwargs);
    add_value(running, seen->tools);
    hashes[0] = hash_so_far(running);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        size_t n_parts = seen->n_media > 0 ? json_array_size(content) : 0;
        add_value(running, message);
        for (size_t k = 0; k < n_parts; k++) { /* and the contents of the media that they name */
            const json_t *place = json_object_get(json_array_get(content, k), "media");
            json_int_t at = json_integer_value(place);
            if (json_is_integer(place) && at >= 0 && (size_t)at < seen->n_media)
                sha256_feed(running, seen->media[at], SHA256_BYTES);
        }
        hashes[i + 1] = hash_so_far(running);
    }
    sha256_close(running);
    const char *role = json_string_value(json_object_get(first, "role"));
    *identity =
        (struct chat_identity){.n_messages = n, .hashes = hashes, .starts_with_system = chat_is_system_role(role)};
}

void chat_identity_release(struct chat_identity *identity)
{
    free(identity->hashes);
    *identity = (struct chat_identity){0};
}
