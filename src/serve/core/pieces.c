/* Bodies that are made while they are sent: see pieces.h. */
#include "serve/core/pieces.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void pieces_put_list(struct pieces *pieces, struct pieces_list list)
{
    list.at = pieces->text.len;
    pieces->lists = mem_grow(pieces->lists, pieces->n_lists + 1, sizeof *pieces->lists);
    pieces->lists[pieces->n_lists++] = list;
}

/* Text up to the next list, as much as there is room for. */
static void take_text(struct pieces *pieces, size_t enough, struct buf *out)
{
    size_t end = pieces->list < pieces->n_lists ? pieces->lists[pieces->list].at : pieces->text.len;
    size_t left = end - pieces->sent, room = out->len < enough ? enough - out->len : 0;
    if (left > room) left = room;
    buf_append(out, pieces->text.v + pieces->sent, left);
    pieces->sent += left;
}

static void take_elements(struct pieces *pieces, size_t enough, struct buf *out)
{
    const struct pieces_list *list = &pieces->lists[pieces->list];
    for (; pieces->item < list->n && out->len < enough; pieces->item++) {
        if (pieces->item > 0) buf_puts(out, ",");
        list->put(list->items, pieces->item, out);
    }
    if (pieces->item < list->n) return;
    pieces->item = 0;
    pieces->list++;
}

bool pieces_take(struct pieces *pieces, size_t enough, struct buf *out)
{
    while (out->len < enough && pieces->sent + pieces->list < pieces->text.len + pieces->n_lists) {
        bool is_list = pieces->list < pieces->n_lists && pieces->lists[pieces->list].at == pieces->sent;
        (is_list ? take_elements : take_text)(pieces, enough, out);
    }
    return pieces->sent + pieces->list < pieces->text.len + pieces->n_lists;
}

void pieces_put_all(struct pieces *pieces, struct buf *out)
{
    pieces_take(pieces, SIZE_MAX, out);
    pieces_release(pieces);
}

void pieces_release(struct pieces *pieces)
{
    buf_release(&pieces->text);
    free(pieces->lists);
    *pieces = (struct pieces){0};
}

/* ---- Members of objects ---- */

void member_put(struct buf *out, const char *name, const char *text, size_t len)
{
    const char last = out->len == 0 ? '{' : out->v[out->len - 1];
    buf_printf(out, "%s\"%s\":", last == '{' || last == ',' ? "" : ",", name);
    utf8_put_json_string(out, text == NULL ? "" : text, len);
}

void member_puts(struct buf *out, const char *name, const char *text)
{
    member_put(out, name, text, strlen(text));
}
