/* Two concurrent requests that share a prefix, which is computed once; and a third that is cancelled.
 *
 *     cc -o several several.c $(pkg-config --cflags --libs hearth)
 *     ./several models/demo.gguf
 */
#include <hearth.h>
#include <stdio.h>
#include <string.h>

/* The shared prefix; it must have cache_min_tokens tokens at least. */
static const char beginning[] = "Ada, Bea, Cleo, Dora, Edda, Fay, Gina, Hedy, Ida, Jana, Kira, Lena, Mona, Nora, Olga "
                                "and Pia go to the river. They swim, they laugh, they sit in the sun, and they talk "
                                "about the day. Then they go home, one after the other, and it becomes quiet. ";

static int fail(const hearth_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

/* The result of one request. Its events are emitted on one thread, in order. */
struct outcome {
    int32_t cached, computed;
};

static void on_event(void *ud, const hearth_event *event)
{
    struct outcome *outcome = ud;
    if (event->type != HEARTH_EVENT_DONE) return;
    outcome->cached = event->result->cache_n;
    outcome->computed = event->result->prompt_n;
}

static hearth_request *ask(hearth *instance, const char *end, struct outcome *outcome, hearth_error *error)
{
    char prompt[512];
    snprintf(prompt, sizeof prompt, "%s%s", beginning, end);
    hearth_params params = hearth_params_default(); /* hearth_submit() copies all of it */
    params.text = prompt;
    params.text_len = strlen(prompt);
    params.max_tokens = 16;
    return hearth_submit(instance, &params, on_event, outcome, error);
}

int main(int argc, char **argv)
{
    hearth_error error = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]);
        return 2;
    }
    hearth_config *config = hearth_config_new();
    if (hearth_config_set(config, "models.it.path", argv[1], &error) < 0) return fail(&error);
    if (hearth_config_set(config, "cache.tiers.disk.quota_mb", "0", &error) < 0) return fail(&error); /* in memory */
    hearth *instance = hearth_open(config, &error);
    hearth_config_free(config);
    if (instance == NULL || hearth_load(instance, NULL, NULL, &error) < 0) return fail(&error);

    static const char *const ends[] = {"Ada says", "Bea says", "Cleo says"};
    struct outcome outcomes[3] = {{0}};
    hearth_request *requests[3];
    for (int i = 0; i < 3; i++)
        if ((requests[i] = ask(instance, ends[i], &outcomes[i], &error)) == NULL) return fail(&error);
    hearth_cancel(requests[2]);
    for (int i = 0; i < 3; i++) {
        int rc = hearth_wait(requests[i], &error);
        hearth_request_release(requests[i]);
        if (rc == HEARTH_OK)
            printf("%s: %d tokens computed, %d cached\n", ends[i], outcomes[i].computed, outcomes[i].cached);
        else if (rc == HEARTH_CANCELLED)
            printf("%s: cancelled\n", ends[i]);
        else
            return fail(&error);
    }
    hearth_close(instance);
    return 0;
}
