/* The example at the top of hearth.h as a complete program: asks a model a question and streams the answer to stdout.
 *
 *     cc -o chat chat.c $(pkg-config --cflags --libs hearth)
 *     ./chat models/demo.gguf "Who are you?"
 */
#include <hearth.h>
#include <stdio.h>
#include <string.h>

static int fail(const hearth_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

/* Called on a thread of the instance: must return quickly. */
static void on_event(void *ud, const hearth_event *event)
{
    if (event->type == HEARTH_EVENT_TEXT) fwrite(event->text, 1, event->text_len, ud);
}

int main(int argc, char **argv)
{
    hearth_error error = {0};
    char messages[4096];
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL.gguf QUESTION\n", argv[0]);
        return 2;
    }
    hearth_config *config = hearth_config_new();
    if (hearth_config_set(config, "models.it.path", argv[1], &error) < 0) return fail(&error);
    hearth *instance = hearth_open(config, &error);
    hearth_config_free(config);
    if (instance == NULL || hearth_load(instance, NULL, NULL, &error) < 0) return fail(&error);

    /* A real program uses a JSON library to quote text. */
    snprintf(messages, sizeof messages, "[{\"role\":\"user\",\"content\":\"%s\"}]", argv[2]);
    hearth_params params = hearth_params_default();
    params.messages = hearth_json_read(messages, strlen(messages), &error);
    if (params.messages == NULL) return fail(&error);
    hearth_request *request = hearth_submit(instance, &params, on_event, stdout, &error);
    hearth_json_free(params.messages); /* the request has a reference of its own */
    if (request == NULL) return fail(&error);
    int rc = hearth_wait(request, &error);
    hearth_request_release(request);
    hearth_close(instance);
    printf("\n");
    return rc == HEARTH_OK ? 0 : fail(&error);
}
