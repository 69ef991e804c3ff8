/* Lists that headers of an answer report: see header_list.h. */
#include "serve/core/header_list.h"

#include <stdio.h>
#include <string.h>

#define SEPARATOR ", "

/* Bytes of one name; longer ones are cut. */
enum { NAME_BYTES = 96 };

void header_list_add(struct header_list *list, const char *name)
{
    char plain[NAME_BYTES + 1];
    size_t len = 0, used = strlen(list->names);
    for (; name[len] != '\0' && len < NAME_BYTES; len++)
        plain[len] = name[len] >= ' ' && name[len] < 0x7f && name[len] != ',' ? name[len] : '?';
    plain[len] = '\0';
    for (const char *at = list->names; *at != '\0';) {
        size_t own = strcspn(at, ",");
        if (own == len && memcmp(at, plain, len) == 0) return;
        at += own + strspn(at + own, SEPARATOR);
    }
    if (list->more > 0 || list->named == HEADER_LIST_NAMES || used + strlen(SEPARATOR) + len >= sizeof list->names) {
        list->more++;
        return;
    }
    snprintf(list->names + used, sizeof list->names - used, "%s%s", used > 0 ? SEPARATOR : "", plain);
    list->named++;
}

void header_list_add_all(struct header_list *list, const struct header_list *other)
{
    char names[sizeof other->names], *rest = names, *name;
    memcpy(names, other->names, sizeof names);
    while (!header_list_is_empty(other) && (name = strsep(&rest, ",")) != NULL)
        header_list_add(list, name + strspn(name, SEPARATOR));
    list->more += other->more;
}

bool header_list_is_empty(const struct header_list *list)
{
    return list->named == 0;
}

bool header_list_value(const struct header_list *list, char value[HEADER_LIST_VALUE])
{
    if (header_list_is_empty(list)) return false;
    if (list->more == 0)
        snprintf(value, HEADER_LIST_VALUE, "%s", list->names);
    else
        snprintf(value, HEADER_LIST_VALUE, "%s and %zu more", list->names, list->more);
    return true;
}
