/* Redis' protocol, for a batch: its commands as they are sent, and the reading of its replies. Large arguments are not
 * copied: they are sent from where they are, between two parts of the text. */
#include "store/remote/redis_replies.h"

#include "base/error.h"
#include "base/memory.h"
#include "store/remote/redis.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct redis_command *begin_command(struct redis_batch *batch)
{
    batch->commands = mem_grow(batch->commands, batch->n_commands + 1, sizeof *batch->commands);
    struct redis_command *command = &batch->commands[batch->n_commands++];
    *command = (struct redis_command){.text_begin = batch->text.len, .large_begin = batch->n_large};
    return command;
}

void redis_add(struct redis_batch *batch, const struct redis_argument *arguments, size_t n)
{
    assert(n > 0);
    struct redis_command *command = begin_command(batch);
    buf_printf(&batch->text, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        const void *bytes = arguments[i].bytes;
        size_t size = arguments[i].size;
        buf_printf(&batch->text, "$%zu\r\n", size);
        if (size >= REDIS_LARGE_BYTES) {
            batch->large = mem_grow(batch->large, batch->n_large + 1, sizeof *batch->large);
            batch->large[batch->n_large++] =
                (struct redis_large){.text_end = batch->text.len, .bytes = bytes, .size = size};
        } else {
            if (i == 1) {
                command->key_begin = batch->text.len;
                command->key_size = size;
            }
            if (size > 0) buf_append(&batch->text, bytes, size);
        }
        buf_puts(&batch->text, "\r\n");
    }
}

void redis_receive_into(struct redis_batch *batch, void *room, size_t size)
{
    assert(batch->n_commands > 0);
    struct redis_command *command = &batch->commands[batch->n_commands - 1];
    command->room = room;
    command->room_size = size;
}

void redis_add_copy(struct redis_batch *batch, const struct redis_batch *from, size_t i)
{
    assert(batch != from && i < from->n_commands);
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

enum { RECEIVED_BYTES = 16 << 10, LONGEST_LINE = 16 };

/* Bytes of one reply: a part and its ends. A server that sends more is not what it says. */
#define MOST_REPLY_BYTES ((size_t)8 << 20)

/* Of a refusal, whatever was asked for, and of what stands around a reply. */
#define MOST_MESSAGE_BYTES 1024

static int fail(hearth_error *error, const char *what)
{
    return error_set(error, HEARTH_UNAVAILABLE, "the server is away: %s", what);
}

/* ---- As hiredis makes them ---- */

static void *make_reply(enum redis_kind kind, int64_t integer, const char *bytes, size_t size)
{
    struct redis_reply *reply = mem_alloc(sizeof *reply);
    *reply = (struct redis_reply){.kind = kind, .integer = integer, .size = size};
    if (bytes == NULL) return reply;
    reply->bytes = malloc(size + 1);
    if (reply->bytes == NULL) {
        free(reply);
        return NULL;
    }
    memcpy(reply->bytes, bytes, size);
    reply->bytes[size] = '\0';
    return reply;
}

static void *make_string(const redisReadTask *task, char *bytes, size_t size)
{
    return make_reply(task->type == REDIS_REPLY_ERROR ? REDIS_REFUSED : REDIS_BYTES, 0, bytes, size);
}

/* No command that is sent here is answered by a list, and hiredis 0.14 would allocate whatever number of elements a
 * server names. */
static void *refuse_list(const redisReadTask *task, int elements)
{
    (void)task;
    (void)elements;
    return NULL;
}

static void *make_integer(const redisReadTask *task, long long value)
{
    (void)task;
    return make_reply(REDIS_INTEGER, value, NULL, 0);
}

static void *make_nil(const redisReadTask *task)
{
    (void)task;
    return make_reply(REDIS_NIL, 0, NULL, 0);
}

static void free_reply(void *object)
{
    struct redis_reply *reply = object;
    if (reply == NULL) return;
    free(reply->bytes);
    free(reply);
}

static redisReplyObjectFunctions functions = {make_string, refuse_list, make_integer, make_nil, free_reply};

redisReader *redis_reader_open(void)
{
    return redisReaderCreateWithFunctions(&functions);
}

/* ---- What the batch gets ---- */

static size_t most_reply(const struct redis_batch *batch)
{
    return batch->most_reply != 0 ? batch->most_reply + MOST_MESSAGE_BYTES : MOST_REPLY_BYTES;
}

static int check_wanted(const struct redis_batch *batch, size_t size, hearth_error *error)
{
    if (batch->n_replies == batch->n_commands) return fail(error, "it answers what it was not asked");
    return size > most_reply(batch) ? fail(error, "an answer is too long") : 0;
}

static char *room_for(const struct redis_batch *batch, size_t size)
{
    const struct redis_command *command = &batch->commands[batch->n_replies];
    return command->room_size == size ? command->room : NULL;
}

static void add_reply(struct redis_batch *batch, struct redis_reply reply)
{
    char *room = reply.kind == REDIS_BYTES ? room_for(batch, reply.size) : NULL;
    if (room != NULL && reply.bytes != NULL) {
        memcpy(room, reply.bytes, reply.size);
        free(reply.bytes);
        reply.bytes = NULL;
    }
    batch->replies[batch->n_replies++] = reply;
}

/* ---- Through hiredis ---- */

static int give_to_hiredis(struct redis_replies *r, const char *bytes, size_t n, hearth_error *error)
{
    redisReader *reader = r->reader;
    if (redisReaderFeed(reader, bytes, n) != REDIS_OK) return fail(error, reader->errstr);
    while (reader->pos < reader->len) { /* where nothing is left, it would begin the next reply */
        void *object = NULL;
        if (redisReaderGetReply(reader, &object) != REDIS_OK) return fail(error, reader->errstr);
        if (object == NULL) break;
        struct redis_reply *reply = object;
        int result = check_wanted(r->batch, reply->size, error);
        if (result != 0) {
            free_reply(reply);
            return result;
        }
        add_reply(r->batch, *reply);
        free(reply);
    }
    return reader->len - reader->pos > most_reply(r->batch) ? fail(error, "an answer is too long") : 0;
}

/* ---- Long replies ---- */

static int begin_long(struct redis_replies *r, size_t size, hearth_error *error)
{
    int result = check_wanted(r->batch, size, error);
    if (result != 0) return result;
    r->place = room_for(r->batch, size);
    r->own = r->place == NULL;
    if (r->own) r->place = malloc(size + 1);
    if (r->place == NULL) return error_set(error, HEARTH_NO_MEMORY, "no memory for an answer");
    if (r->own) r->place[size] = '\0';
    r->size = size;
    r->has = 0;
    return 0;
}

/* Of the reply, or of the line's end behind it. Says how many bytes it took. */
static int take_long(struct redis_replies *r, const char *bytes, size_t n, size_t *took, hearth_error *error)
{
    *took = r->has >= r->size ? 1 : n < r->size - r->has ? n : r->size - r->has;
    if (r->has >= r->size && *bytes != "\r\n"[r->has - r->size]) return fail(error, "Protocol error");
    if (r->has < r->size) memcpy(r->place + r->has, bytes, *took);
    r->has += *took;
    if (r->has < r->size + 2) return 0;
    add_reply(r->batch, (struct redis_reply){.kind = REDIS_BYTES, .bytes = r->own ? r->place : NULL, .size = r->size});
    r->place = NULL;
    return 0;
}

/* ---- What was received ---- */

/* At the beginning of a reply: begins a long one, or gives hiredis a short one. */
static int take_next(struct redis_replies *r, const char *bytes, size_t n, size_t *took, hearth_error *error)
{
    /* The bytes of the first line, with its end; 0: it is not whole, or longer than any that says a size. */
    const char *end = memchr(bytes, '\n', n < LONGEST_LINE ? n : LONGEST_LINE);
    size_t line = end == NULL ? 0 : (size_t)(end - bytes) + 1;
    size_t size = line > 0 && bytes[0] == '$' ? strtoul(bytes + 1, NULL, 10) : 0;
    *took = line > 0 ? line : n;
    if (bytes[0] == '$' && line > 0 && bytes[1] != '-') {
        if (size >= REDIS_LARGE_BYTES) return begin_long(r, size, error);
        *took = n < line + size + 2 ? n : line + size + 2;
    }
    return give_to_hiredis(r, bytes, *took, error);
}

static int take_received(struct redis_replies *r, const char *bytes, size_t n, hearth_error *error)
{
    int result = 0;
    for (size_t took; n > 0 && result == 0; bytes += took, n -= took) {
        took = n;
        if (r->place != NULL)
            result = take_long(r, bytes, n, &took, error);
        else if (r->reader->ridx == -1 && r->reader->len == r->reader->pos) /* hiredis is between two replies */
            result = take_next(r, bytes, n, &took, error);
        else
            result = give_to_hiredis(r, bytes, n, error);
    }
    return result;
}

char *redis_replies_room(const struct redis_replies *r, size_t *size)
{
    bool in_place = r->place != NULL && r->has < r->size;
    *size = in_place ? r->size - r->has : RECEIVED_BYTES;
    return in_place ? r->place + r->has : r->received;
}

int redis_replies_take(struct redis_replies *r, size_t n, hearth_error *error)
{
    assert(n <= (r->place != NULL && r->has < r->size ? r->size - r->has : RECEIVED_BYTES));
    if (r->place == NULL || r->has >= r->size) return take_received(r, r->received, n, error);
    r->has += n;
    return 0;
}

/* ---- Life ---- */

int redis_replies_begin(struct redis_replies *r, redisReader *reader, struct redis_batch *batch, hearth_error *error)
{
    *r = (struct redis_replies){.reader = reader, .batch = batch, .received = malloc(RECEIVED_BYTES)};
    if (r->received == NULL) return error_set(error, HEARTH_NO_MEMORY, "no memory for an answer");
    batch->replies = mem_alloc((batch->n_commands + 1) * sizeof *batch->replies);
    return 0;
}

void redis_replies_end(struct redis_replies *r)
{
    if (r->place != NULL && r->own) free(r->place);
    free(r->received);
}
