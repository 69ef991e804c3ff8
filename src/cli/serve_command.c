/* hearth serve: runs the server and prints its addresses and an example request. on_listening is called on the main
 * thread and on_ready on the thread that loads the models: the lock of struct announcement guards what both use. */
#include "serve/serve.h"

#include "base/buf.h"
#include "base/log_stderr.h"
#include "base/memory.h"
#include "cli/args.h"
#include "cli/setup.h"
#include "cli/terminal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct announcement {
    const hearth_config *config;
    const struct buf *pulled; /* names of models that are declared because they were pulled, as struct setup has them */
    pthread_mutex_t lock;
    struct buf curl; /* curl's arguments for the first address */
};

static void print_address(void *ud, const char *address)
{
    struct announcement *a = ud;
    const bool is_socket = strncmp(address, "unix:", 5) == 0;
    const bool is_tls = hearth_config_get(a->config, "server.tls_cert") != NULL;
    const char *scheme = is_socket ? "" : is_tls ? "https://" : "http://";
    pthread_mutex_lock(&a->lock);
    printf("hearth %s listens on %s%s\n", hearth_version(), scheme, address);
    fflush(stdout);
    if (a->curl.len == 0 && is_socket)
        buf_printf(&a->curl, "--unix-socket %s http://localhost", address + 5);
    else if (a->curl.len == 0)
        buf_printf(&a->curl, "%s%s", scheme, address);
    pthread_mutex_unlock(&a->lock);
}

/* A curl command with a request of the model's type. */
static void put_example(struct buf *out, const struct announcement *a, const hearth_model_info *model)
{
    static const struct {
        const char *type, *route, *members;
    } examples[] = {
        {"chat", "/v1/chat/completions", "\"messages\": [{\"role\": \"user\", \"content\": \"Who are you?\"}]"},
        {"embedding", "/v1/embeddings", "\"input\": \"Who are you?\""},
        {"rerank", "/v1/rerank", "\"query\": \"Who are you?\", \"documents\": [\"A server.\", \"A river.\"]"},
        {"text", "/v1/completions", "\"prompt\": \"Once upon a time\""},
    };
    if (model->name == NULL) return; /* there is no model */
    const bool is_base = model->type == HEARTH_MODEL_CHAT && !model->has_chat_template;
    const char *type = is_base ? "text" : hearth_model_type_name(model->type);
    const bool has_keys = hearth_config_get(a->config, "server.api_keys_file") != NULL;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        if (strcmp(examples[i].type, type) == 0)
            buf_printf(out, "curl %s%s%s -H 'Content-Type: application/json' -d '{\"model\": \"%s\", %s}'", a->curl.v,
                       examples[i].route, has_keys ? " -H \"Authorization: Bearer $KEY\"" : "", model->name,
                       examples[i].members);
}

static void announce(void *ud, const hearth *instance)
{
    struct announcement *a = ud;
    struct buf example = {0};
    /* The model of the example request: the first chat model, else the first model. */
    hearth_model_info model = {0}, info;
    for (size_t i = 0; hearth_model(instance, i, &info); i++)
        if (i == 0 || (info.type == HEARTH_MODEL_CHAT && model.type != HEARTH_MODEL_CHAT)) model = info;
    const char *log = hearth_config_get(a->config, "server.log_file");
    pthread_mutex_lock(&a->lock);
    put_example(&example, a, &model);
    /* The folder that saves go to. The log says so where it cannot be used. */
    char quota[64], path[64];
    const char *tier = hearth_config_get(a->config, "cache.save_tier");
    snprintf(quota, sizeof quota, "cache.tiers.%s.quota_mb", tier);
    snprintf(path, sizeof path, "cache.tiers.%s.path", tier);
    const bool saves = strcmp(hearth_config_get(a->config, quota), "0") != 0;
    const char *folder = saves ? hearth_config_get(a->config, path) : NULL;
    printf("ready\n"
           "  try    %s\n"
           "  log    %s\n"
           "  cache  %s\n"
           "  stop   Ctrl-C\n",
           example.v, log ? log : "standard error", folder != NULL ? folder : "in memory, until hearth ends");
    fflush(stdout);
    pthread_mutex_unlock(&a->lock);
    buf_release(&example);
}

static bool is_pulled(void *ud, const char *name)
{
    const struct announcement *a = ud;
    char *line = mem_format("\n%s\n", name);
    const bool found = strstr(buf_text(a->pulled), line) != NULL;
    free(line);
    return found;
}

static int serve(const char *command, const hearth_config *config, void *pulled)
{
    struct announcement a = {.config = config, .pulled = pulled, .lock = PTHREAD_MUTEX_INITIALIZER};
    const struct serve_options options = {
        .on_listening = print_address,
        .on_progress = terminal_progress,
        .on_ready = announce,
        .is_pulled = is_pulled,
        .ud = &a,
    };
    hearth_error error = {0};
    int status =
        hearth_log_open(hearth_config_get(config, "server.log_file"), hearth_config_get(config, "server.log_level"),
                        hearth_config_get(config, "server.log_format"), &error);
    log_outlive_crashes();
    if (status == 0) status = log_take_stderr(&error);
    if (status == 0) status = serve_run(config, &options, &error);
    log_give_stderr();
    buf_release(&a.curl);
    return status == 0 ? EXIT_FINE : args_fail(command, &error, setup_failure_status(config, &error));
}

int command_serve(int argc, char **argv)
{
    struct buf pulled = {0};
    struct setup setup = {.adds_pulled = true, .pulled = &pulled};
    const struct args_option options[] = {
        setup_option_config(&setup),
        {"model", "PATH|NAME", "a file, a configured or a pulled model; only these load", .list = &setup.models},
        {"mmproj", "FILE", "projection file for images or sound, of the only model", .text = &setup.mmproj},
        {"host", "H", "address to listen on (127.0.0.1)", .text = &setup.host},
        {"port", "P", "port to listen on (8080); 0: any free one", .text = &setup.port},
        setup_option_set(&setup),
        {"log-format", "F", "text or json", .text = &setup.log_format, .choices = "text|json"},
        setup_option_log_level(&setup),
    };
    const struct args_spec spec = {
        .command = "hearth serve",
        .about =
            "Serves models over HTTP until SIGTERM or SIGINT. Without --config and --model: the demo model. Without\n"
            "--model also those that hearth pull fetched, each loaded with the first request for it.",
        ARGS_OPTIONS(options),
        .examples = "  hearth serve\n"
                    "  hearth serve --model Qwen3-8B-Q8_0.gguf --set n_seq_max=4\n"
                    "  hearth serve --config hearth.yaml --model Qwen3-8B-Q8_0 --port 9000\n",
    };
    int status = setup_run(&spec, &setup, argc, argv, serve, &pulled);
    buf_release(&pulled);
    return status;
}
