/* A backend of llama.cpp in a file of its own, without devices, for the tests of those that are loaded. FAKE_SCORE is
 * how well it suits the processor; FAKE_VERSION is of its interface. */
#include <ggml-backend-impl.h>
#include <string.h>

#ifndef FAKE_VERSION
#define FAKE_VERSION GGML_BACKEND_API_VERSION
#endif

__attribute__((visibility("default"))) int ggml_backend_score(void);
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);

static int twice(int n)
{
    return 2 * n;
}

static const char *name(ggml_backend_reg_t reg)
{
    (void)reg;
    return FAKE_NAME;
}

static size_t count(ggml_backend_reg_t reg)
{
    (void)reg;
    return 0;
}

static void *find(ggml_backend_reg_t reg, const char *wanted)
{
    int (*function)(int) = twice;
    void *address;
    (void)reg;
    memcpy(&address, &function, sizeof address);
    return strcmp(wanted, "twice") == 0 ? address : NULL;
}

int ggml_backend_score(void)
{
    return FAKE_SCORE;
}

ggml_backend_reg_t ggml_backend_init(void)
{
    static struct ggml_backend_reg reg = {
        .api_version = FAKE_VERSION, .iface = {.get_name = name, .get_device_count = count, .get_proc_address = find}};
    return &reg;
}
