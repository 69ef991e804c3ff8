/* Provides stack for tokenizers that recurse: llama.cpp runs some patterns with std::regex, which recurses once for
 * each character of a run. Ten thousand letters in a row use up eight megabytes.
 *
 * The stack for one character is measured when a model is opened, and texts with long runs are tokenised on a thread
 * with as much stack as they need, up to a bound. No state besides the model's; any thread. */
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "llm/llm_parts.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define OWN_STACK     ((size_t)256 << 10) /* bytes that every thread has free */
#define SPARE_STACK   ((size_t)1 << 20)   /* bytes on top of what a run takes */
#define MEASURE_STACK ((size_t)16 << 20)
#define MEASURE_RUN   2048 /* characters */
#define TASK          "tokenises words without end"
#define RUN_STACK_MAX ((size_t)48 << 20)

/* ---- A thread with a large stack ---- */

struct task {
    const struct llm_model *model;
    const struct llm_tokenizer_input *in;
    struct tokens *out;
};

static void *work(void *ud)
{
    struct task *task = ud;
    llm_tokenize_here(task->model, task->in, task->out);
    return NULL;
}

static size_t round_up_to_page(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Bytes of the stack that were used: those of its resident pages. */
static size_t used_of(void *stack, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = size / page, first = 0;
    unsigned char *there = mem_alloc(n);
    if (mincore(stack, size, there) != 0) memset(there, 1, n);
    while (first < n && (there[first] & 1) == 0) first++;
    free(there);
    return size - first * page;
}

/* `used`: bytes of the stack. HEARTH_NO_MEMORY: the system refuses such a thread now, and nothing was done. */
static int run_on(size_t size, struct task *task, size_t *used, hearth_error *error)
{
    pthread_t thread;
    pthread_attr_t attributes;
    void *stack =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) return thread_refuse(errno, TASK, error);
    madvise(stack, size, MADV_NOHUGEPAGE);
    pthread_attr_init(&attributes);
    int refused = pthread_attr_setstack(&attributes, stack, size);
    if (refused == 0) refused = pthread_create(&thread, &attributes, work, task);
    if (refused == 0) pthread_join(thread, NULL);
    if (refused == 0) *used = used_of(stack, size);
    pthread_attr_destroy(&attributes);
    munmap(stack, size);
    return refused == 0 ? HEARTH_OK : thread_refuse(refused, TASK, error);
}

/* ---- Measuring ---- */

static int measure_run(const struct llm_model *model, const char *character, size_t n, size_t *used,
                       hearth_error *error)
{
    struct buf text = {0};
    struct tokens tokens = {0};
    for (size_t i = 0; i < n; i++) buf_puts(&text, character);
    struct llm_tokenizer_input in = {.text = text.v, .len = text.len};
    int rc = run_on(MEASURE_STACK, &(struct task){model, &in, &tokens}, used, error);
    tokens_release(&tokens);
    buf_release(&text);
    return rc;
}

int llm_measure_recursion(const struct llm_model *model, size_t *bytes, hearth_error *error)
{
    static const char *const characters[] = {"a", "A", "1", ".", " ", "\n", "\xc3\xa4", "\xe4\xb8\xad"};
    size_t most = 0;
    for (size_t i = 0; i < sizeof characters / sizeof *characters; i++) {
        size_t one, many;
        if (measure_run(model, characters[i], 1, &one, error) < 0 ||
            measure_run(model, characters[i], MEASURE_RUN, &many, error) < 0)
            return HEARTH_NO_MEMORY;
        size_t each = many > one ? (many - one) / MEASURE_RUN : 0;
        if (each > most) most = each;
    }
    *bytes = most < 16 ? 0 : most + most / 4; /* less growth than 16 bytes a character is no recursion */
    return HEARTH_OK;
}

/* ---- Texts ---- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Bytes of the longest run of blanks, or of other characters. */
static size_t longest_run(const char *text, size_t len)
{
    size_t longest = 0, run = 0;
    for (size_t i = 0; i < len; i++) {
        run = i > 0 && is_blank(text[i]) == is_blank(text[i - 1]) ? run + 1 : 1;
        if (run > longest) longest = run;
    }
    return longest;
}

int llm_check_run(const struct llm_model *model, const char *text, size_t len, hearth_error *error)
{
    size_t each = llm_model_recursion(model), run = each == 0 ? 0 : longest_run(text, len);
    if (run * each <= RUN_STACK_MAX) return HEARTH_OK;
    return error_set(error, HEARTH_TOO_LONG,
                     "%zu bytes in a row without a blank, or of blanks: this model's tokenizer takes at most %zu", run,
                     RUN_STACK_MAX / each);
}

void llm_tokenize_whole(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out)
{
    size_t each = llm_model_recursion(model);
    size_t need = each == 0 || in->len * each <= OWN_STACK ? 0 : longest_run(in->text, in->len) * each, used;
    const struct timespec pause = {.tv_nsec = 10000000};
    if (need <= OWN_STACK) {
        llm_tokenize_here(model, in, out);
        return;
    }
    /* A thread that the system refuses now can be started when others have ended; leaving this text out would change
     * the prompt. */
    while (run_on(round_up_to_page(need + SPARE_STACK), &(struct task){model, in, out}, &used, NULL) < 0)
        nanosleep(&pause, NULL);
}
