/* An exception of llama.cpp for lack of memory fails the call and not the process. This program allocates llama.cpp's
 * buffers itself, and at times refuses. */
#include "support.h"

#include "base/log.h"
#include "llm/adapter.h"

enum { LARGE = 65536 }; /* bytes: only compute buffers are so large */

static size_t largest = SIZE_MAX; /* bytes that are allocated at most */
static int refused;

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (size > largest) {
        refused++;
        return ENOMEM;
    }
    *out = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    return *out == NULL ? ENOMEM : 0;
}

static void a_decode_without_memory_for_its_buffers_fails_alone(void **state)
{
    (void)state;
    enum { N = 20 };
    hearth_error error = {0};
    char *folder = folder_open(), *path = make_model(folder, "llama", "");
    char *adapter_path = mem_format("%s/adapter", folder);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --lora-for '%s' -o '%s' >/dev/null", env("HEARTH_BUILD"), path,
                               adapter_path);
    run(command);
    struct llm_model *model = open_model(path);
    struct llm_adapter *adapter = llm_adapter_open(model, adapter_path, &error);
    assert_non_null(adapter);
    const double none[] = {0}, all[] = {1};
    struct llm_context_params params = context_params(256, 1);
    struct llm_context *context = open_context(model, &params);
    struct tokens tokens = prompt_of(model, 2 * N);
    assert_int_equal(decode_range(context, &tokens, 0, 0, N, N), LLM_DECODED);

    largest = LARGE;
    llm_adapt(context, &(struct llm_adapters){&adapter, all, 1}); /* the next decode reserves its buffers again */
    assert_int_equal(decode_range(context, &tokens, 0, N, 2 * N, N), LLM_FAILED);
    assert_true(refused > 0);
    assert_int_equal(decode_range(context, &tokens, 0, N, 2 * N, N), LLM_FAILED);
    largest = SIZE_MAX;
    assert_int_equal(llm_seq_end(context, 0), N);
    assert_int_equal(decode_range(context, &tokens, 0, N, 2 * N, N), LLM_DECODED);
    llm_adapt(context, &(struct llm_adapters){&adapter, none, 1});
    llm_seq_clear(context, 0);
    assert_int_equal(decode_range(context, &tokens, 0, 0, 2 * N, N), LLM_DECODED);

    tokens_release(&tokens);
    llm_context_close(context);
    llm_adapter_close(adapter);
    llm_model_close(model);
    free(command);
    free(adapter_path);
    free(path);
    folder_remove(folder);
}

static void a_context_without_memory_is_refused(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct llm_model *model = open_demo();
    struct llm_context_params params = context_params(2048, 1);
    largest = LARGE;
    assert_null(llm_context_open(model, &params, &error));
    largest = SIZE_MAX;
    assert_int_equal(error.code, HEARTH_NO_MEMORY);
    assert_non_null(strstr(error.message, "n_ubatch"));
    llm_model_close(model);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decode_without_memory_for_its_buffers_fails_alone),
        cmocka_unit_test(a_context_without_memory_is_refused),
    };
    llm_init();
    log_open("/dev/null", "error", "text", &error); /* expected failures */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
