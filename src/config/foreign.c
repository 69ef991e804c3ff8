/* The keys that correspond to options of llama-server and vLLM and settings of Ollama, for the error message of an
 * unknown key. Constant data; any thread. */
#include "config/table.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *theirs, *ours;
} names[] = {
    /* llama-server, long and short. */
    {"host", "server.listen"},
    {"port", "server.listen"},
    {"api_key", "server.api_keys_file"},
    {"api_key_file", "server.api_keys_file"},
    {"ssl_key_file", "server.tls_key"},
    {"ssl_cert_file", "server.tls_cert"},
    {"origins", "server.allowed_origins"},
    {"verbose", "server.log_level"},
    {"verbosity", "server.log_level"},
    {"slot_save_path", "cache.tiers.disk.path"},
    {"cache_ram", "cache.tiers.ram.quota_mb"},
    {"cors", "server.allowed_origins"},
    {"cors_origins", "server.allowed_origins"},
    {"alias", "models.*.aliases"},
    {"model", "models.*.path"},
    {"model_path", "models.*.path"},
    {"m", "models.*.path"},
    {"n_ctx", "models.*.context_window"},
    {"ctx_size", "models.*.context_window"},
    {"ctx", "models.*.context_window"},
    {"c", "models.*.context_window"},
    {"parallel", "models.*.n_seq_max"},
    {"n_parallel", "models.*.n_seq_max"},
    {"np", "models.*.n_seq_max"},
    {"batch_size", "models.*.n_batch"},
    {"b", "models.*.n_batch"},
    {"ubatch_size", "models.*.n_ubatch"},
    {"ub", "models.*.n_ubatch"},
    {"gpu_layers", "models.*.n_gpu_layers"},
    {"ngl", "models.*.n_gpu_layers"},
    {"sm", "models.*.split_mode"},
    {"ts", "models.*.tensor_split"},
    {"mg", "models.*.main_gpu"},
    {"dev", "models.*.devices"},
    {"device", "models.*.devices"},
    {"ncmoe", "models.*.n_cpu_moe"},
    {"cmoe", "models.*.cpu_moe"},
    {"ot", "models.*.override_tensors"},
    {"override_tensor", "models.*.override_tensors"},
    {"mlock", "models.*.load_mode"},
    {"mmap", "models.*.load_mode"},
    {"no_mmap", "models.*.load_mode"},
    {"lm", "models.*.load_mode"},
    {"t", "models.*.threads"},
    {"cpu_mask", "models.*.cpus"},
    {"cpu_range", "models.*.cpus"},
    {"cr", "models.*.cpus"},
    {"prio", "models.*.thread_priority"},
    {"n_threads", "models.*.threads"},
    {"flash_attn", "models.*.flash_attention"},
    {"fa", "models.*.flash_attention"},
    {"ctk", "models.*.cache_type_k"},
    {"ctv", "models.*.cache_type_v"},
    {"cache_reuse", "models.*.cache_min_tokens"},
    {"chat_template", "models.*.jinja_file"},
    {"chat_template_file", "models.*.jinja_file"},
    {"reasoning", "models.*.chat_template_kwargs"},
    {"enable_thinking", "models.*.chat_template_kwargs"},
    {"think", "models.*.chat_template_kwargs"},
    {"embeddings", "models.*.embedding"},
    {"reranking", "models.*.pooling"},
    {"sleep_idle_seconds", "models.*.idle_unload"},
    {"temp", "models.*.sampling.temperature"},
    {"typical", "models.*.sampling.typical_p"},
    /* Ollama: options, and its environment with and without the prefix. */
    {"num_ctx", "models.*.context_window"},
    {"context_length", "models.*.context_window"},
    {"num_parallel", "models.*.n_seq_max"},
    {"num_batch", "models.*.n_batch"},
    {"num_gpu", "models.*.n_gpu_layers"},
    {"use_mmap", "models.*.load_mode"},
    {"use_mlock", "models.*.load_mode"},
    {"num_thread", "models.*.threads"},
    {"keep_alive", "models.*.idle_unload"},
    {"kv_cache_type", "models.*.cache_type_k"},
    {"max_queue", "models.*.queue_depth"},
    {"template", "models.*.jinja_file"},
    {"max_loaded_models", "server.memory_budget_mb"},
    {"debug", "server.log_level"},
    /* vLLM. */
    {"served_model_name", "models.*.aliases"},
    {"max_model_len", "models.*.context_window"},
    {"max_num_seqs", "models.*.n_seq_max"},
    {"max_num_batched_tokens", "models.*.n_batch"},
    {"enable_prefix_caching", "models.*.incremental_cache"},
    {"enable_lora", "models.*.lora"},
    {"lora_modules", "models.*.lora"},
};

const char *foreign_key(const char *name, size_t len)
{
    static const char prefix[] = "ollama_";
    size_t skip = len > sizeof prefix && strncasecmp(name, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].theirs) == len - skip && strncasecmp(names[i].theirs, name + skip, len - skip) == 0)
            return names[i].ours;
    return NULL;
}
