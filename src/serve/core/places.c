/* The client's fields for those of a chat: see places.h. */
#include "serve/core/places.h"

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct place place_of(const char *path, const char *rest)
{
    struct place place;
    snprintf(place.v, sizeof place.v, "%s%s", path, rest);
    return place;
}

/* The part of a message's content that the rest of a path names; 0: none, or more than one. */
static size_t part_of(const json_t *message, const char *rest)
{
    static const char content[] = ".content";
    const size_t n_parts = json_array_size(message) - 1;
    if (strncmp(rest, content, strlen(content)) != 0) return 0;
    const char *index = rest + strlen(content);
    size_t part = *index == '[' ? strtoul(index + 1, NULL, 10) : n_parts == 1 ? 0 : n_parts;
    return part < n_parts ? part + 1 : 0;
}

static bool is_of_medium(const json_t *places, const char *path)
{
    size_t i;
    json_t *medium;
    json_array_foreach(json_object_get(places, "media"), i,
                       medium) if (strcmp(json_string_value(medium), path) == 0) return true;
    return false;
}

struct place places_find(const json_t *places, const char *path)
{
    char list[16];
    size_t len = strcspn(path, "[");
    if (path[len] == '\0' || len >= sizeof list || is_of_medium(places, path)) return place_of(path, "");
    snprintf(list, sizeof list, "%.*s", (int)len, path);
    char *end;
    const json_t *entry = json_array_get(json_object_get(places, list), strtoul(path + len + 1, &end, 10));
    if (entry == NULL || *end != ']') return place_of(path, "");
    const char *rest = end + 1;
    if (json_is_string(entry)) return place_of(json_string_value(entry), rest);
    return place_of(json_string_value(json_array_get(entry, part_of(entry, rest))), "");
}

hearth_error places_rename(const json_t *places, const hearth_error *error)
{
    hearth_error renamed = *error;
    struct place own = places_find(places, error->param);
    const char *message = error->message;
    size_t len = strlen(error->param);
    if (strcmp(own.v, error->param) == 0) return renamed;
    bool begins = message[0] == '\'' && strncmp(message + 1, error->param, len) == 0 && message[1 + len] == '\'';
    error_at(&renamed, error->code, own.v, "%s%s%s%s", begins ? "'" : "", begins ? own.v : "", begins ? "'" : "",
             begins ? message + len + 2 : message);
    return renamed;
}
