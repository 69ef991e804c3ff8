/* A cache lookup: how much of a prompt is cached, and where the rest diverges from an earlier prompt.
 *
 *     cc -o lookup lookup.c $(pkg-config --cflags --libs hearth)
 *     ./lookup models/demo.gguf "Once upon a time there was" "Once upon a hill there was"
 */
#include <hearth.h>
#include <stdio.h>
#include <string.h>

static int fail(const hearth_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

static void on_event(void *ud, const hearth_event *event)
{
    hearth_result *result = ud;
    if (event->type == HEARTH_EVENT_DONE) *result = *event->result;
}

/* Submits a prompt and waits for its last event. NULL: it failed. */
static hearth_request *run(hearth *instance, const char *prompt, bool only_lookup, hearth_result *result,
                           hearth_error *error)
{
    hearth_params params = hearth_params_default();
    params.text = prompt;
    params.text_len = strlen(prompt);
    params.max_tokens = 1;
    params.only_lookup = only_lookup;
    hearth_request *request = hearth_submit(instance, &params, on_event, result, error);
    if (request == NULL || hearth_wait(request, error) == HEARTH_OK) return request;
    hearth_request_release(request);
    return NULL;
}

int main(int argc, char **argv)
{
    hearth_error error = {0};
    hearth_result result = {0};
    if (argc != 4) {
        fprintf(stderr, "usage: %s MODEL.gguf PROMPT OTHER\n", argv[0]);
        return 2;
    }
    hearth_config *config = hearth_config_new();
    if (hearth_config_set(config, "models.it.path", argv[1], &error) < 0) return fail(&error);
    if (hearth_config_set(config, "models.it.cache_min_tokens", "0", &error) < 0) return fail(&error);
    if (hearth_config_set(config, "cache.tiers.disk.quota_mb", "0", &error) < 0) return fail(&error); /* in memory */
    hearth *instance = hearth_open(config, &error);
    hearth_config_free(config);
    if (instance == NULL || hearth_load(instance, NULL, NULL, &error) < 0) return fail(&error);

    hearth_request *request = run(instance, argv[2], false, &result, &error);
    if (request == NULL) return fail(&error);
    hearth_request_release(request);
    request = run(instance, argv[3], true, &result, &error);
    if (request == NULL) return fail(&error);
    hearth_divergence d = hearth_request_divergence(request);
    printf("%d of %d tokens are cached\n", result.lookup.reusable, result.lookup.prompt);
    if (d.where != NULL)
        printf("they diverge after %d tokens (\"...%s\"): \"%s\", before \"%s\"\n", d.position, d.common, d.prompt,
               d.nearest);
    hearth_request_release(request);
    hearth_close(instance);
    return 0;
}
