/* A model's files without their bytes, from a source of this machine that has ranges or has none, breaks off, or sends
 * what is no model. Whatever happens, nothing is left in the temporary folder. */
#include "fakes/cmocka_all.h"

#include "base/buf.h"
#include "base/memory.h"
#include "pull/pull.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char temporary[] = "/tmp/hearth-test-preview-XXXXXX";

/* ---- A source ----
 * One file, or the parts of one, of `size` bytes each: `head`, then zeros. */

static struct source {
    int fd, port;
    struct buf head;
    size_t size;
    bool has_ranges, silent; /* silent: it never answers */
    size_t first_most;       /* bytes beyond which it breaks off; 0: it does not */
    _Atomic size_t sent, n_requests;
    pthread_t thread;
} source;

static bool send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0) return false;
        atomic_fetch_add(&source.sent, (size_t)n);
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

static void send_bytes(int fd, size_t from, size_t end)
{
    static const char zeros[65536];
    while (from < end) {
        size_t n = end - from < sizeof zeros ? end - from : sizeof zeros;
        const char *bytes = zeros;
        if (from < source.head.len) {
            if (n > source.head.len - from) n = source.head.len - from;
            bytes = source.head.v + from;
        }
        if (!send_all(fd, bytes, n)) return;
        from += n;
    }
}

static void answer(int fd, const char *request)
{
    const char *range = strstr(request, "Range: bytes=");
    size_t first = 0, last = source.size - 1;
    char head[256];
    if (range != NULL && source.has_ranges) {
        char *dash;
        first = strtoul(range + strlen("Range: bytes="), &dash, 10);
        last = strtoul(dash + 1, NULL, 10);
        if (last >= source.size) last = source.size - 1;
        snprintf(head, sizeof head,
                 "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %zu-%zu/%zu\r\nContent-Length: %zu\r\n"
                 "ETag: \"1\"\r\nConnection: close\r\n\r\n",
                 first, last, source.size, last - first + 1);
    } else {
        snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", source.size);
    }
    size_t end = last + 1;
    if (source.first_most > 0 && end > source.first_most) end = source.first_most;
    if (send(fd, head, strlen(head), MSG_NOSIGNAL) > 0) send_bytes(fd, first, end);
}

static void *serve(void *ud)
{
    char request[8192];
    (void)ud;
    for (int fd; (fd = accept(source.fd, NULL, NULL)) >= 0;) {
        ssize_t n = read(fd, request, sizeof request - 1);
        atomic_fetch_add(&source.n_requests, 1);
        request[n > 0 ? n : 0] = '\0';
        if (source.silent)
            while (read(fd, request, sizeof request) > 0) {
            } /* until the client goes */
        else
            answer(fd, request);
        close(fd);
    }
    return NULL;
}

/* ---- Models ---- */

static void put(struct buf *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char byte = (char)(value >> (8 * i));
        buf_append(out, &byte, 1);
    }
}

static void put_string(struct buf *out, const char *text, size_t len)
{
    put(out, len, 8);
    buf_append(out, text, len);
}

/* A header with one text of so many bytes, and a tensor of 32 numbers. */
static void put_model(struct buf *out, size_t text_len)
{
    char *text = mem_alloc(text_len + 1);
    memset(text, 'a', text_len);
    buf_puts(out, "GGUF");
    put(out, 3, 4);
    put(out, 1, 8);
    put(out, 1, 8);
    put_string(out, "text", 4);
    put(out, 8, 4); /* a string */
    put_string(out, text, text_len);
    put_string(out, "a.weight", 8);
    put(out, 1, 4);
    put(out, 32, 8);
    put(out, 0, 4); /* f32 */
    put(out, 0, 8);
    free(text);
}

static int setup(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    (void)state;
    source =
        (struct source){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .size = 100 * MIB, .has_ranges = true};
    assert_int_equal(bind(source.fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(source.fd, 8), 0);
    assert_int_equal(getsockname(source.fd, (struct sockaddr *)&address, &len), 0);
    source.port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&source.thread, NULL, serve, NULL), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shutdown(source.fd, SHUT_RDWR);
    pthread_join(source.thread, NULL);
    close(source.fd);
    buf_release(&source.head);
    return 0;
}

/* ---- Looking ---- */

struct seen {
    int n_calls, rc;
    size_t n_files;
    int64_t sizes[4], blocks;
};

static int look(void *ud, const char *folder, const struct pull_model *model, hearth_error *error)
{
    struct seen *seen = ud;
    seen->n_calls++;
    seen->n_files = model->n_files;
    for (size_t i = 0; i < model->n_files; i++) {
        struct stat is;
        char *path = pull_file_path(folder, model->name, model->files[i].name);
        assert_int_equal(stat(path, &is), 0);
        assert_int_equal(is.st_size, model->files[i].size);
        assert_int_equal(hearth_model_check(path, error), HEARTH_OK);
        seen->sizes[i] = is.st_size;
        seen->blocks += is.st_blocks * 512;
        free(path);
    }
    if (seen->rc != HEARTH_OK) snprintf(error->message, sizeof error->message, "%s/m/m.gguf is not liked", folder);
    return seen->rc;
}

static size_t n_left(void)
{
    size_t n = 0;
    DIR *folder = opendir(temporary);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

static bool (*is_cancelled)(void *ud);

static int preview(const char *file, struct seen *seen, hearth_error *error)
{
    struct pull_reference reference;
    struct pull_options options = pull_options_default();
    char *url = mem_format("http://127.0.0.1:%d/%s", source.port, file);
    options.retries = 0;
    options.is_cancelled = is_cancelled;
    assert_int_equal(pull_reference_read(url, NULL, &reference, error), HEARTH_OK);
    int rc = pull_preview(&reference, &options, look, seen, error);
    pull_reference_release(&reference);
    free(url);
    assert_int_equal(n_left(), 0);
    return rc;
}

static void only_the_header_of_a_file_is_fetched(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    put_model(&source.head, 100);
    assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_OK);
    assert_int_equal(seen.n_calls, 1);
    assert_int_equal(seen.sizes[0], 100 * MIB);
    assert_true(seen.blocks <= (int64_t)(2 * MIB));
    assert_int_equal(atomic_load(&source.sent), MIB + 1); /* and the byte that asks for the size */
}

static void a_long_header_comes_in_ranges_that_grow(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    put_model(&source.head, 5 * MIB);
    assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_OK);
    assert_int_equal(seen.n_calls, 1);
    assert_int_equal(atomic_load(&source.n_requests), 4);
    assert_int_equal(atomic_load(&source.sent), 16 * MIB + 1);
}

static void a_header_longer_than_any_is_given_up(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    put_model(&source.head, 70 * MIB);
    assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "what precedes the weights in m.gguf is larger than any model's"));
    assert_int_equal(seen.n_calls, 0);
    assert_int_equal(atomic_load(&source.sent), 64 * MIB + 1);
}

static void a_source_without_ranges_is_left_once_the_header_has_come(void **state)
{
    (void)state;
    static const size_t texts[] = {100, 5 * MIB}, most[] = {MIB, 16 * MIB};
    for (int i = 0; i < 2; i++) {
        struct seen seen = {0};
        hearth_error error;
        buf_clear(&source.head);
        put_model(&source.head, texts[i]);
        source.has_ranges = false;
        atomic_store(&source.sent, 0);
        assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_OK);
        assert_int_equal(seen.sizes[0], 100 * MIB);
        /* Beside it lies what sockets held of the two answers. */
        if (atomic_load(&source.sent) > most[i] + 20 * MIB) fail_msg("%zu bytes were sent", atomic_load(&source.sent));
    }
}

static void each_part_has_its_header(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    put_model(&source.head, 100);
    assert_int_equal(preview("m-00001-of-00003.gguf", &seen, &error), HEARTH_OK);
    assert_int_equal(seen.n_files, 3);
    assert_int_equal(seen.sizes[2], 100 * MIB);
    assert_int_equal(atomic_load(&source.sent), 3 * (MIB + 1));
}

static void a_file_that_is_cut_is_told(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    put_model(&source.head, 2 * MIB);
    source.size = MIB + 7; /* within its header */
    assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "/m.gguf is no whole model: m.gguf is truncated or damaged"));
    source.size = source.head.len + 32; /* within its tensor */
    assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "is no whole model: m.gguf is truncated: its tensors end at byte"));
    assert_int_equal(seen.n_calls, 0);
}

static void a_source_that_breaks_off_is_an_error(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    put_model(&source.head, 2 * MIB);
    source.first_most = MIB + 5;
    assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "cannot be read"));
    assert_int_equal(seen.n_calls, 0);
}

static void a_file_that_is_no_model_is_told_after_its_first_bytes(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    buf_puts(&source.head, "<!DOCTYPE html>");
    assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_INVALID);
    assert_non_null(strstr(error.message, "m.gguf is not a GGUF file"));
    assert_null(strstr(error.message, temporary));
    assert_int_equal(seen.n_calls, 0);
    assert_int_equal(atomic_load(&source.sent), MIB + 1);
}

static void what_the_user_says_is_the_result(void **state)
{
    (void)state;
    struct seen seen = {.rc = HEARTH_UNSUPPORTED};
    hearth_error error;
    put_model(&source.head, 100);
    assert_int_equal(preview("m.gguf", &seen, &error), HEARTH_UNSUPPORTED);
    assert_string_equal(error.message, "m.gguf is not liked");
}

static bool once_it_was_asked(void *ud)
{
    (void)ud;
    return atomic_load(&source.n_requests) > 0;
}

static void it_ends_when_it_is_cancelled(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    source.silent = true;
    is_cancelled = once_it_was_asked;
    int rc = preview("m.gguf", &seen, &error);
    is_cancelled = NULL;
    assert_int_equal(rc, HEARTH_CANCELLED);
}

static void no_folder_can_be_made(void **state)
{
    (void)state;
    struct seen seen = {0};
    hearth_error error;
    put_model(&source.head, 100);
    setenv("TMPDIR", "/nowhere", 1);
    int rc = preview("m.gguf", &seen, &error);
    setenv("TMPDIR", temporary, 1);
    assert_int_equal(rc, HEARTH_IO);
    assert_non_null(strstr(error.message, "set TMPDIR"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(only_the_header_of_a_file_is_fetched),
        CASE(a_long_header_comes_in_ranges_that_grow),
        CASE(a_header_longer_than_any_is_given_up),
        CASE(a_source_without_ranges_is_left_once_the_header_has_come),
        CASE(each_part_has_its_header),
        CASE(a_file_that_is_cut_is_told),
        CASE(a_source_that_breaks_off_is_an_error),
        CASE(a_file_that_is_no_model_is_told_after_its_first_bytes),
        CASE(what_the_user_says_is_the_result),
        CASE(it_ends_when_it_is_cancelled),
        CASE(no_folder_can_be_made),
    };
    if (mkdtemp(temporary) == NULL) return 1;
    setenv("TMPDIR", temporary, 1);
    setenv("no_proxy", "*", 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(temporary);
    return failed;
}
