/* The settings of coding agents: see agents.h. docs/clients.md has them as text to paste. */
#include "cli/agents.h"

#include "base/memory.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Takes ownership of `value`. */
static void take_variable(struct agents_settings *settings, const char *name, char *value)
{
    settings->variables = mem_grow(settings->variables, settings->n_variables + 1, sizeof *settings->variables);
    settings->variables[settings->n_variables++] = (struct agents_variable){.name = mem_strdup(name), .value = value};
}

static void set_variable(struct agents_settings *settings, const char *name, const char *value)
{
    take_variable(settings, name, mem_strdup(value));
}

/* Takes ownership of `word`. */
static void add_word(struct agents_settings *settings, char *word)
{
    settings->words = mem_grow(settings->words, settings->n_words + 1, sizeof *settings->words);
    settings->words[settings->n_words++] = word;
}

/* Takes ownership of `json`. */
static char *text_of(json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return text;
}

/* ---- One function an agent ---- */

/* Claude Code names a model for each of three sizes, and asks the smallest for titles. */
static void configure_claude(const struct agents_server *server, struct agents_settings *settings)
{
    static const char *const models[] = {"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
                                         "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL"};
    set_variable(settings, "ANTHROPIC_BASE_URL", server->url);
    set_variable(settings, "ANTHROPIC_AUTH_TOKEN", server->key);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) set_variable(settings, models[i], server->model);
    set_variable(settings, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
}

/* Codex takes lines of its configuration file as -c arguments, so that no file needs to be written. */
static void configure_codex(const struct agents_server *server, struct agents_settings *settings)
{
    const struct {
        const char *key;
        json_t *value;
    } lines[] = {{"model", json_string(server->model)},
                 {"model_context_window", json_integer(server->window)},
                 {"model_provider", json_string("hearth")},
                 {"model_providers.hearth.name", json_string("hearth")},
                 {"model_providers.hearth.base_url", json_sprintf("%s/v1", server->url)},
                 {"model_providers.hearth.wire_api", json_string("responses")},
                 {"model_providers.hearth.env_key", json_string("HEARTH_API_KEY")}};
    set_variable(settings, "HEARTH_API_KEY", server->key);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *value = json_dumps(lines[i].value, JSON_ENCODE_ANY); /* such strings and numbers are TOML as well */
        add_word(settings, mem_strdup("-c"));
        add_word(settings, mem_format("%s=%s", lines[i].key, value));
        free(value);
        json_decref(lines[i].value);
    }
}

static void configure_opencode(const struct agents_server *server, struct agents_settings *settings)
{
    json_t *limit = json_pack("{s:i, s:i}", "context", server->window, "output", server->window / 4);
    json_t *models = json_pack("{s:{s:s, s:o}}", server->model, "name", server->model, "limit", limit);
    json_t *options = json_pack("{s:o, s:s}", "baseURL", json_sprintf("%s/v1", server->url), "apiKey", server->key);
    json_t *provider = json_pack("{s:s, s:s, s:o, s:o}", "npm", "@ai-sdk/openai-compatible", "name", "hearth",
                                 "options", options, "models", models);
    char *model = mem_format("hearth/%s", server->model);
    take_variable(settings, "OPENCODE_CONFIG_CONTENT",
                  text_of(json_pack("{s:{s:o}, s:s, s:s}", "provider", "hearth", provider, "model", model,
                                    "small_model", model)));
    free(model);
}

static void configure_qwen(const struct agents_server *server, struct agents_settings *settings)
{
    take_variable(settings, "OPENAI_BASE_URL", mem_format("%s/v1", server->url));
    set_variable(settings, "OPENAI_API_KEY", server->key);
    set_variable(settings, "OPENAI_MODEL", server->model);
    add_word(settings, mem_strdup("--auth-type"));
    add_word(settings, mem_strdup("openai"));
}

/* pi reads its providers from a file in PI_CODING_AGENT_DIR, where it keeps its sessions too. */
static void configure_pi(const struct agents_server *server, struct agents_settings *settings)
{
    json_t *model =
        json_pack("{s:s, s:s, s:b, s:[s], s:i, s:i, s:{s:i, s:i, s:i, s:i}}", "id", server->model, "name",
                  server->model, "reasoning", 0, "input", "text", "contextWindow", server->window, "maxTokens",
                  server->window / 4, "cost", "input", 0, "output", 0, "cacheRead", 0, "cacheWrite", 0);
    json_t *provider = json_pack("{s:o, s:s, s:s, s:[o]}", "baseUrl", json_sprintf("%s/v1", server->url), "apiKey",
                                 "HEARTH_API_KEY", "api", "openai-completions", "models", model);
    char *folder = mem_format("%s/pi", server->home);
    settings->file = mem_format("%s/models.json", folder);
    settings->content = text_of(json_pack("{s:{s:o}}", "providers", "hearth", provider));
    set_variable(settings, "PI_CODING_AGENT_DIR", folder);
    set_variable(settings, "HEARTH_API_KEY", server->key);
    static const char *const words[] = {"--provider", "hearth", "--model"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) add_word(settings, mem_strdup(words[i]));
    add_word(settings, mem_strdup(server->model));
    free(folder);
}

/* Copilot's CLI asks for no login once it is told of another provider. */
static void configure_copilot(const struct agents_server *server, struct agents_settings *settings)
{
    take_variable(settings, "COPILOT_PROVIDER_BASE_URL", mem_format("%s/v1", server->url));
    set_variable(settings, "COPILOT_PROVIDER_TYPE", "openai");
    set_variable(settings, "COPILOT_PROVIDER_WIRE_API", "completions");
    set_variable(settings, "COPILOT_PROVIDER_BEARER_TOKEN", server->key); /* goes before a key */
    set_variable(settings, "COPILOT_MODEL", server->model);
    set_variable(settings, "COPILOT_PROVIDER_WIRE_MODEL", server->model);
    if (server->window > 0) {
        take_variable(settings, "COPILOT_PROVIDER_MAX_PROMPT_TOKENS",
                      mem_format("%d", server->window - server->window / 4));
        take_variable(settings, "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS", mem_format("%d", server->window / 4));
    }
}

/* Cline reads its providers from a file that a variable names; all else of the user's stays where it is. */
static void configure_cline(const struct agents_server *server, struct agents_settings *settings)
{
    static const char provider[] = "openai-compatible";
    json_t *own = json_pack("{s:s, s:s, s:s, s:o}", "provider", provider, "apiKey", server->key, "model", server->model,
                            "baseUrl", json_sprintf("%s/v1", server->url));
    json_t *entry =
        json_pack("{s:o, s:s, s:s}", "settings", own, "updatedAt", "2026-01-01T00:00:00.000Z", "tokenSource", "manual");
    settings->file = mem_format("%s/cline/providers.json", server->home);
    settings->content = text_of(json_pack("{s:i, s:s, s:{}, s:{s:o}}", "version", 1, "lastUsedProvider", provider,
                                          "modes", "providers", provider, entry));
    set_variable(settings, "CLINE_PROVIDER_SETTINGS_PATH", settings->file);
    set_variable(settings, "CLINE_SESSION_BACKEND_MODE", "local"); /* its daemon has the settings it was started with */
}

/* Droid merges a file of settings that is named to it with the user's own, for that process alone. `droid exec` wants
 * no login then. */
static void configure_droid(const struct agents_server *server, struct agents_settings *settings)
{
    json_t *model =
        json_pack("{s:s, s:s, s:o, s:s, s:s}", "model", server->model, "displayName", "hearth", "baseUrl",
                  json_sprintf("%s/v1", server->url), "apiKey", server->key, "provider", "generic-chat-completion-api");
    if (server->window > 0) {
        json_object_set_new(model, "maxContextLimit", json_integer(server->window));
        json_object_set_new(model, "maxOutputTokens", json_integer(server->window / 4));
    }
    settings->file = mem_format("%s/droid/settings.json", server->home);
    settings->content =
        text_of(json_pack("{s:[o], s:o}", "customModels", model, "model", json_sprintf("custom:%s", server->model)));
    add_word(settings, mem_strdup("--settings"));
    add_word(settings, mem_strdup(settings->file));
}

static void configure_kimi(const struct agents_server *server, struct agents_settings *settings)
{
    set_variable(settings, "KIMI_MODEL_NAME", server->model);
    set_variable(settings, "KIMI_MODEL_PROVIDER_TYPE", "openai");
    take_variable(settings, "KIMI_MODEL_BASE_URL", mem_format("%s/v1", server->url));
    set_variable(settings, "KIMI_MODEL_API_KEY", server->key);
    if (server->window > 0) take_variable(settings, "KIMI_MODEL_MAX_CONTEXT_SIZE", mem_format("%d", server->window));
}

/* Mistral's Vibe takes lists of its configuration as variables, and adds them to the user's. */
static void configure_vibe(const struct agents_server *server, struct agents_settings *settings)
{
    json_t *model = json_pack("{s:s, s:s, s:s}", "name", server->model, "provider", "hearth", "alias", "hearth");
    if (server->window > 0) json_object_set_new(model, "max_context_length", json_integer(server->window));
    take_variable(settings, "VIBE_PROVIDERS",
                  text_of(json_pack("[{s:s, s:o, s:s}]", "name", "hearth", "api_base",
                                    json_sprintf("%s/v1", server->url), "api_key_env_var", "HEARTH_API_KEY")));
    take_variable(settings, "VIBE_MODELS", text_of(json_pack("[o]", model)));
    set_variable(settings, "VIBE_ACTIVE_MODEL", "hearth");
    set_variable(settings, "HEARTH_API_KEY", server->key);
}

/* Of Hermes' providers this is the one for a server of one's own that sends a key. */
static void configure_hermes(const struct agents_server *server, struct agents_settings *settings)
{
    static const char *const words[] = {"--provider", "lmstudio", "--model"};
    take_variable(settings, "LM_BASE_URL", mem_format("%s/v1", server->url));
    set_variable(settings, "LM_API_KEY", server->key);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) add_word(settings, mem_strdup(words[i]));
    add_word(settings, mem_strdup(server->model));
}

/* OpenClaw has one file of configuration, which a variable names. Its other data stay in the user's folder. */
static void configure_openclaw(const struct agents_server *server, struct agents_settings *settings)
{
    json_t *model = json_pack("{s:s, s:s, s:[s]}", "id", server->model, "name", server->model, "input", "text");
    if (server->window > 0) {
        json_object_set_new(model, "contextWindow", json_integer(server->window));
        json_object_set_new(model, "maxTokens", json_integer(server->window / 4));
    }
    json_t *provider = json_pack("{s:o, s:s, s:s, s:[o]}", "baseUrl", json_sprintf("%s/v1", server->url), "apiKey",
                                 server->key, "api", "openai-completions", "models", model);
    json_t *first = json_sprintf("hearth/%s", server->model);
    settings->file = mem_format("%s/openclaw/openclaw.json", server->home);
    settings->content =
        text_of(json_pack("{s:{s:{s:{s:o}}}, s:{s:s, s:{s:o}}}", "agents", "defaults", "model", "primary", first,
                          "models", "mode", "merge", "providers", "hearth", provider));
    set_variable(settings, "OPENCLAW_CONFIG_PATH", settings->file);
}

/* Options, since aider lets a .env file of the folder replace variables. */
static void configure_aider(const struct agents_server *server, struct agents_settings *settings)
{
    set_variable(settings, "AIDER_OPENAI_API_KEY", server->key);
    add_word(settings, mem_strdup("--openai-api-base"));
    add_word(settings, mem_format("%s/v1", server->url));
    add_word(settings, mem_strdup("--model"));
    add_word(settings, mem_format("openai/%s", server->model));
    add_word(settings,
             mem_strdup("--no-show-model-warnings")); /* it knows prices and windows of others' models alone */
}

/* The sizes of first prompts were measured, in tokens. */
static const struct agent {
    const char *name;
    int32_t first_prompt;
    void (*configure)(const struct agents_server *server, struct agents_settings *settings);
} agents[] = {
    {"claude", 25100, configure_claude}, /* in a terminal */
    {"codex", 0, configure_codex},
    {"opencode", 7400, configure_opencode},
    {"qwen", 15100, configure_qwen},
    {"pi", 1600, configure_pi},
    {"copilot", 13800, configure_copilot},
    {"cline", 7200, configure_cline},
    {"droid", 9300, configure_droid},
    {"kimi", 24000, configure_kimi},
    {"vibe", 9200, configure_vibe},
    {"hermes", 14600, configure_hermes}, /* and refuses a window of less than 64,000 */
    {"openclaw", 10800, configure_openclaw},
    {"aider", 600, configure_aider},
};

#define N_AGENTS (sizeof agents / sizeof *agents)

static const struct agent *find_agent(const char *name)
{
    for (size_t i = 0; i < N_AGENTS; i++)
        if (strcmp(agents[i].name, name) == 0) return &agents[i];
    return NULL;
}

int32_t agents_first_prompt(const char *agent)
{
    const struct agent *found = find_agent(agent);
    return found == NULL ? -1 : found->first_prompt;
}

void agents_put_names(struct buf *out)
{
    for (size_t i = 0; i < N_AGENTS; i++) buf_printf(out, "%s%s", i == 0 ? "" : ", ", agents[i].name);
}

void agents_configure(const char *agent, const struct agents_server *server, struct agents_settings *settings)
{
    *settings = (struct agents_settings){0};
    add_word(settings, mem_strdup(agent)); /* programs have the names of their agents */
    find_agent(agent)->configure(server, settings);
}

void agents_release(struct agents_settings *settings)
{
    for (size_t i = 0; i < settings->n_variables; i++) {
        free(settings->variables[i].name);
        free(settings->variables[i].value);
    }
    for (size_t i = 0; i < settings->n_words; i++) free(settings->words[i]);
    free(settings->variables);
    free(settings->words);
    free(settings->file);
    free(settings->content);
}
