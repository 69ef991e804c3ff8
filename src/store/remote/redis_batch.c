/* Commands as Redis' protocol writes them, and what is left of their replies. Large arguments are not copied: they are
 * sent from where they are, between two parts of the text. */
#include "store/remote/redis.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static void add_argument(struct redis_batch *batch, const struct redis_argument *argument)
{
    buf_printf(&batch->text, "$%zu\r\n", argument->size);
    if (argument->size >= REDIS_LARGE_BYTES) {
        batch->large = mem_grow(batch->large, batch->n_large + 1, sizeof *batch->large);
        batch->large[batch->n_large++] =
            (struct redis_large){.text_end = batch->text.len, .bytes = argument->bytes, .size = argument->size};
    } else if (argument->size > 0) {
        buf_append(&batch->text, argument->bytes, argument->size);
    }
    buf_puts(&batch->text, "\r\n");
}

static struct redis_command *begin_command(struct redis_batch *batch)
{
    batch->commands = mem_grow(batch->commands, batch->n_commands + 1, sizeof *batch->commands);
    struct redis_command *command = &batch->commands[batch->n_commands++];
    *command = (struct redis_command){.text_begin = batch->text.len, .large_begin = batch->n_large};
    return command;
}

void redis_add(struct redis_batch *batch, const struct redis_argument *arguments, size_t n)
{
    struct redis_command *command = begin_command(batch);
    buf_printf(&batch->text, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        add_argument(batch, &arguments[i]);
        if (i != 1 || arguments[i].size >= REDIS_LARGE_BYTES) continue;
        command->key_size = arguments[i].size;
        command->key_begin = batch->text.len - strlen("\r\n") - command->key_size;
    }
}

void redis_receive_into(struct redis_batch *batch, void *room, size_t size)
{
    struct redis_command *command = &batch->commands[batch->n_commands - 1];
    command->room = room;
    command->room_size = size;
}

void redis_add_copy(struct redis_batch *batch, const struct redis_batch *from, size_t i)
{
    const struct redis_command *first = &from->commands[i], *next = i + 1 < from->n_commands ? first + 1 : NULL;
    struct redis_command *command = begin_command(batch);
    command->key_begin = first->key_begin - first->text_begin + command->text_begin;
    command->key_size = first->key_size;
    command->room = first->room;
    command->room_size = first->room_size;
    size_t text_end = next != NULL ? next->text_begin : from->text.len;
    buf_append(&batch->text, from->text.v + first->text_begin, text_end - first->text_begin);
    size_t large_end = next != NULL ? next->large_begin : from->n_large;
    for (size_t k = first->large_begin; k < large_end; k++) {
        batch->large = mem_grow(batch->large, batch->n_large + 1, sizeof *batch->large);
        batch->large[batch->n_large] = from->large[k];
        batch->large[batch->n_large++].text_end += command->text_begin - first->text_begin;
    }
}

void redis_batch_release(struct redis_batch *batch)
{
    for (size_t i = 0; i < batch->n_replies; i++) free(batch->replies[i].bytes);
    free(batch->replies);
    free(batch->large);
    free(batch->commands);
    buf_release(&batch->text);
    *batch = (struct redis_batch){0};
}

char *redis_take(struct redis_reply *reply)
{
    char *bytes = reply->bytes;
    reply->bytes = NULL;
    return bytes;
}

const char *redis_refusal(const struct redis_batch *batch)
{
    for (size_t i = 0; i < batch->n_replies; i++)
        if (batch->replies[i].kind == REDIS_REFUSED) return batch->replies[i].bytes;
    return NULL;
}
