/* All configuration keys, one row each: name, type, range, default and meaning, which are written here and nowhere
 * else. Constant data, read by any thread. */
#include "config/table.h"

#include "base/nearest.h"

#include <limits.h>
#include <string.h>

#define SERVER(field) offsetof(struct hearth_config, server.field)
#define CACHE(field)  offsetof(struct hearth_config, cache.field)
#define MODEL(field)  offsetof(struct config_model, field)

/* Restrictions of a type. */
#define ANY                     .null_ok = false
#define OR_NULL                 .null_ok = true
#define RANGE(low, top)         .min = (low), .max = (top)
#define RANGE_OR_NULL(low, top) .min = (low), .max = (top), .null_ok = true
#define CHOICES(names)          .choices = (names)
#define DERIVED                 .derived = true

#define KEY(path_, type_, offset_, default_, meaning_, ...)                                                            \
    {                                                                                                                  \
        .path = (path_), .type = (type_), .offset = (offset_), .default_value = (default_), .meaning = (meaning_),     \
        __VA_ARGS__                                                                                                    \
    }

/* The keys of a tier. */
#define MEMORY_TIER(ID, name, medium, quota, meaning)                                                                  \
    KEY("cache.tiers." #name ".quota_mb", CONFIG_INT, CACHE(tiers[STORE_##ID].quota_mb), quota, meaning,               \
        RANGE(0, MEBIBYTES_MAX)),
#define FOLDER_TIER(ID, name, medium, quota, meaning, folder, folder_meaning)                                          \
    KEY("cache.tiers." #name ".quota_mb", CONFIG_INT, CACHE(tiers[STORE_##ID].quota_mb), quota, meaning,               \
        RANGE(0, MEBIBYTES_MAX), DERIVED),                                                                             \
        KEY("cache.tiers." #name ".path", CONFIG_PATH, CACHE(tiers[STORE_##ID].path), folder, folder_meaning, ANY),
#define SERVER_KEY(ID, name, key, type, field, ...)                                                                    \
    KEY("cache.tiers." #name "." key, type, CACHE(tiers[STORE_##ID].server.field), __VA_ARGS__),
#define SERVER_TIER(ID, name, medium, quota, meaning)                                                                  \
    SERVER_KEY(ID, name, "url", CONFIG_TEXT, url, "null",                                                              \
               "A Redis or Valkey server where several hearths store what they computed and find each other's: "       \
               "redis://HOST[:PORT][/DATABASE], with TLS rediss://…, or unix:PATH. Of a cluster, any node. null: "   \
               "none.",                                                                                                \
               OR_NULL)                                                                                                \
    MEMORY_TIER(ID, name, medium, quota, meaning)                                                                      \
    SERVER_KEY(ID, name, "prefix", CONFIG_TEXT, prefix, "hearth",                                                      \
               "Beginning of the names of all its entries on that server, before a colon.", ANY)                       \
    SERVER_KEY(ID, name, "ttl", CONFIG_SECONDS, ttl, "604800",                                                         \
               "How long the server keeps an entry that nobody reads; 0: until it needs the memory.",                  \
               RANGE(0, 3650.0 * DAY))                                                                                 \
    SERVER_KEY(ID, name, "timeout_ms", CONFIG_INT, timeout_ms, "500",                                                  \
               "Milliseconds without a byte from that server after which it counts as away. A request waits no "       \
               "longer for what it is asked.",                                                                         \
               RANGE(1, 60000))                                                                                        \
    SERVER_KEY(ID, name, "user", CONFIG_TEXT, user, "null", "User (ACL) on that server; null: its default user.",      \
               OR_NULL)                                                                                                \
    SERVER_KEY(ID, name, "password_file", CONFIG_PATH, password_file, "null",                                          \
               "File with the password for that server in its first line; read again when hearth connects anew.",      \
               OR_NULL)                                                                                                \
    SERVER_KEY(ID, name, "ca_file", CONFIG_PATH, ca_file, "null",                                                      \
               "Certificates (PEM) of which one must have signed that server's, with rediss://; null: those that the " \
               "system trusts.",                                                                                       \
               OR_NULL)                                                                                                \
    SERVER_KEY(ID, name, "certificate_file", CONFIG_PATH, certificate_file, "null",                                    \
               "Certificate (PEM), with those that signed it, which hearth shows that server where it asks for one, "  \
               "with rediss://; null: none.",                                                                          \
               OR_NULL)                                                                                                \
    SERVER_KEY(ID, name, "certificate_key_file", CONFIG_PATH, certificate_key_file, "null",                            \
               "Private key (PEM, without a password) of certificate_file; null: it stands in that file.", OR_NULL)    \
    SERVER_KEY(                                                                                                        \
        ID, name, "key_file", CONFIG_PATH, key_file, "null",                                                           \
        "File with a secret (openssl rand -hex 32) that all hearths have which share entries. Entries "                \
        "that were changed on the server or stored without it are not used. Needed where the server is on another "    \
        "machine.",                                                                                                    \
        OR_NULL)                                                                                                       \
    SERVER_KEY(ID, name, "encrypt", CONFIG_BOOL, encrypt, "false",                                                     \
               "Whether entries are encrypted with key_file (AES-256-GCM), so that the server sees no tokens. All "    \
               "hearths that share entries need the same.",                                                            \
               ANY)
#define TIER_CHOICE(ID, name, ...) "|" #name
#define NO_CHOICE(...)
#define TIER_NAMES (&STORE_TIER_TABLE(TIER_CHOICE, TIER_CHOICE, NO_CHOICE)[1])

/* The keys of sampling. Where the model's GGUF file may have a value, that is used unless the key is set. */
#define SAMPLING_KEY(type, name, default_, low, top, in_file, meaning)                                                 \
    KEY("models.*.sampling." #name, type, MODEL(sampling.name), default_, meaning, RANGE(low, top),                    \
        .derived = sizeof(in_file) > 1),
#define SAMPLING_NUMBER(...)  SAMPLING_KEY(CONFIG_NUMBER, __VA_ARGS__)
#define SAMPLING_INTEGER(...) SAMPLING_KEY(CONFIG_INT, __VA_ARGS__)

#define DAY                   86400
#define MEBIBYTES_MAX         1e9
#define CACHE_TYPES           "auto|f32|f16|bf16|q8_0|q5_1|q5_0|q4_1|q4_0|iq4_nl"

/* Rows of a section stand together: the dump and docs/config.md have this order. */
const struct config_row config_rows[] = {
    KEY("server.listen", CONFIG_STRINGS, SERVER(listen), "[127.0.0.1:8080]",
        "Addresses to listen on: host:port, [IPv6]:port or unix:PATH. Port 0 takes a free one.", ANY),
    KEY("server.ollama", CONFIG_BOOL, SERVER(ollama), "false",
        "Whether to listen on ollama_listen as well, where Ollama's clients look for a server. Its routes, /api/..., "
        "are on every address: docs/ollama.md.",
        ANY),
    KEY("server.ollama_listen", CONFIG_TEXT, SERVER(ollama_listen), "127.0.0.1:11434",
        "The address for Ollama's clients, with server.ollama.", ANY),
    KEY("server.api_keys_file", CONFIG_PATH, SERVER(api_keys_file), "null",
        "File of API keys, one a line, with an optional name, grants and limits: docs/security.md. SIGHUP reads it "
        "again.",
        OR_NULL),
    KEY("server.isolate_keys", CONFIG_ENUM, SERVER(isolate_keys), "auto",
        "Whether requests with API keys of different owners share no cached state. auto: once api_keys_file has keys "
        "of two owners.",
        CHOICES("auto|true|false")),
    KEY("server.allowed_origins", CONFIG_STRINGS, SERVER(allowed_origins), "[]",
        "Web pages that may send requests besides those of this machine and of desktop apps, by their origin: "
        "scheme://host[:port], where one * stands for any characters. \"*\": all pages. Others are answered with 403.",
        ANY),
    KEY("server.allowed_hosts", CONFIG_STRINGS, SERVER(allowed_hosts), "[]",
        "Without API keys: names and addresses that clients may ask for (Host) besides those of this machine and of "
        "listen. \"*\": any. Others are answered with 403.",
        ANY),
    KEY("server.tls_cert", CONFIG_PATH, SERVER(tls_cert), "null",
        "Certificate chain (PEM) to serve HTTPS with on every address but unix sockets. SIGHUP reads it again.",
        OR_NULL),
    KEY("server.tls_key", CONFIG_PATH, SERVER(tls_key), "null",
        "Private key (PEM, without passphrase) that belongs to tls_cert. SIGHUP reads it again.", OR_NULL),
    KEY("server.max_body_bytes", CONFIG_INT, SERVER(max_body_bytes), "33554432",
        "Size up to which a request's body is read; a larger one is answered with 413.", RANGE(1024, 1099511627776.0)),
    KEY("server.max_connections", CONFIG_INT, SERVER(max_connections), "1024",
        "Connections that may be open at once. For a further one an idle one is closed, first one that never sent a "
        "request; where none is idle it is answered with 503. /health always answers.",
        RANGE(1, 1000000)),
    KEY("server.responses_max", CONFIG_INT, SERVER(responses_max), "1000",
        "Responses (`store`, of the Responses API) and conversations that are kept in memory for their clients to come "
        "back to, until the server ends; the least recently used goes first. 0: none are kept.",
        RANGE(0, 1000000)),
    KEY("server.responses_max_mb", CONFIG_INT, SERVER(responses_max_mb), "64", "Mebibytes that they may take together.",
        RANGE(1, MEBIBYTES_MAX)),
    KEY("server.first_request_timeout", CONFIG_SECONDS, SERVER(first_request_timeout), "10",
        "How long a new connection may be silent before it is closed, a TLS handshake included; and how long the head "
        "of its first request may take.",
        RANGE(0.1, DAY)),
    KEY("server.socket_mode", CONFIG_NAME, SERVER(socket_mode), "0600",
        "Users who may connect to sockets unix:PATH: hearth's own alone, its group as well, or all.",
        CHOICES("0600|0660|0666")),
    KEY("server.socket_group", CONFIG_TEXT, SERVER(socket_group), "null",
        "Name of the group that sockets unix:PATH belong to, one that hearth's user is in; null: that user's own.",
        OR_NULL),
    KEY("server.handover", CONFIG_PATH, SERVER(handover), "null",
        "Path of a socket by which the next `hearth serve` with this key takes this one's place without a refused "
        "connection: docs/durability.md. null: a second one cannot listen on the same addresses.",
        OR_NULL),
    KEY("server.stream_tokens", CONFIG_INT, SERVER(stream_tokens), "1",
        "Tokens of a stream that are sent together. Drafts make several tokens come at once, and who watches the "
        "connection could tell from that what was guessed right. Pieces as large as `draft.n_max` look alike.",
        RANGE(1, 64)),
    KEY("server.drain_timeout", CONFIG_SECONDS, SERVER(drain_timeout), "10",
        "How long running requests may go on after SIGTERM or SIGINT.", RANGE(0, DAY)),
    KEY("server.memory_budget_mb", CONFIG_INT, SERVER(memory_budget_mb), "0",
        "Mebibytes that the weights and cells of loaded models may take. One that is to be loaded waits until others "
        "that no request has have left, the least recently used first; 0: no limit.",
        RANGE(0, MEBIBYTES_MAX)),
    KEY("server.numa", CONFIG_NAME, SERVER(numa), "none",
        "On machines of several NUMA nodes: how threads and weights are spread over them. distribute: evenly; isolate: "
        "on the node that the process began on; numactl: on those of numactl(8). A process decides once.",
        CHOICES("none|distribute|isolate|numactl")),
    KEY("server.default_model", CONFIG_TEXT, SERVER(default_model), "null",
        "The model for requests that name none. Without it the first one that does what the request asks for.",
        OR_NULL),
    KEY("server.any_model_name", CONFIG_BOOL, SERVER(any_model_name), "true",
        "A request for text whose model does not exist goes to default_model, or where that is not set, to the only "
        "chat model; false: 404.",
        ANY),
    KEY("server.models_path", CONFIG_PATH, SERVER(models_path), "null",
        "Folder of the models that `hearth pull` fetches. null: HEARTH_MODELS, else hearth/models in XDG_DATA_HOME or "
        "~/.local/share.",
        OR_NULL),
    KEY("server.serve_pulled", CONFIG_BOOL, SERVER(serve_pulled), "true",
        "Whether `hearth serve` without --model also serves the models of models_path, under their names and loaded on "
        "demand; one that is configured under the same name comes first. false also refuses POST /api/pull and DELETE "
        "/api/delete.",
        ANY),
    KEY("server.metrics_names", CONFIG_ENUM, SERVER(metrics_names), "hearth",
        "vllm: GET /metrics has a few gauges under vLLM's names as well, which routers ask for: docs/fleet.md.",
        CHOICES("hearth|vllm")),
    KEY("server.kv_events", CONFIG_TEXT, SERVER(kv_events), "null",
        "Where routers (llm-d, NVIDIA Dynamo) subscribe to cache events: tcp://HOST:PORT, as tcp://*:5557, a ZeroMQ "
        "PUB socket. Programs that reach it read the tokens of all prompts: docs/fleet.md. null: nothing is published.",
        OR_NULL),
    KEY("server.kv_events_replay", CONFIG_TEXT, SERVER(kv_events_replay), "null",
        "Where routers ask for cache events that they have missed: a ZeroMQ ROUTER socket, as tcp://*:5558.", OR_NULL),
    KEY("server.kv_events_address", CONFIG_TEXT, SERVER(kv_events_address), "null",
        "The HOST:PORT by which routers know this server. null: the first address of listen.", OR_NULL),
    KEY("server.otlp_endpoint", CONFIG_TEXT, SERVER(otlp_endpoint), "null",
        "The collector that a trace of each request is sent to, by OTLP over HTTP, in JSON: http://HOST:PORT or https, "
        "as http://127.0.0.1:4318, to which /v1/traces is added: docs/tracing.md. null: none is made.",
        OR_NULL),
    KEY("server.log_file", CONFIG_PATH, SERVER(log_file), "null",
        "File that the log is appended to; without it the log goes to stderr. SIGHUP reopens it.", OR_NULL),
    KEY("server.log_level", CONFIG_NAME, SERVER(log_level), "info", "The least important events that are logged.",
        CHOICES("error|warn|info|debug")),
    KEY("server.log_format", CONFIG_NAME, SERVER(log_format), "text", "Log lines as text or as JSON.",
        CHOICES("text|json")),
    KEY("server.insecure_logging", CONFIG_BOOL, SERVER(insecure_logging), "false",
        "The log may hold words of prompts: those where a large miss diverges from the nearest prompt.", ANY),

    KEY("cache.boundary_align_tokens", CONFIG_INT, CACHE(boundary_align_tokens), "256",
        "Tokens of a stored block, and the stride at which lookups probe for the longest stored prefix.",
        RANGE(1, 65536)),
    KEY("cache.continued_interval", CONFIG_INT, CACHE(continued_interval), "2048",
        "Tokens between two saves of a prompt or a reply that is still being computed.", RANGE(1, INT_MAX)),
    KEY("cache.evict_save_timeout_ms", CONFIG_INT, CACHE(evict_save_timeout_ms), "30000",
        "Milliseconds that saving may hold up an eviction or the shutdown.", RANGE(0, INT_MAX)),
    KEY("cache.session_resume_wait_ms", CONFIG_INT, CACHE(session_resume_wait_ms), "500",
        "Milliseconds that a request waits for the save of the turn it continues.", RANGE(0, INT_MAX)),
    KEY("cache.fetch_timeout_ms", CONFIG_INT, CACHE(fetch_timeout_ms), "5000",
        "Milliseconds that a request waits for stored tokens that do not come, before it computes them. A tier that "
        "takes longer to read an entry is out of service until it answers.",
        RANGE(1, INT_MAX)),
    KEY("cache.save_tier", CONFIG_NAME, CACHE(save_tier), STORE_DEFAULT_TIER,
        "The tier that saves go to; a save never moves. Whole blocks of it also go to the tier on a server.",
        CHOICES(TIER_NAMES)),
    STORE_TIER_TABLE(MEMORY_TIER, FOLDER_TIER, SERVER_TIER)

        KEY("models.*.path", CONFIG_PATH, MODEL(path), "null",
            "The weights: a GGUF file, or the first part of a split one. Every model needs it.", OR_NULL),
    KEY("models.*.aliases", CONFIG_STRINGS, MODEL(aliases), "[]",
        "Other names that requests may use for the model. A tag \":latest\" after a name is ignored.", ANY),
    KEY("models.*.tags", CONFIG_STRINGS, MODEL(tags), "[]",
        "Words about the model, for clients that list models: no name leads to it.", ANY),
    KEY("models.*.ignore_integrity_check", CONFIG_BOOL, MODEL(ignore_integrity_check), "false",
        "Loads the weights also where their SHA-256 is not the one in PATH.sha256, the sidecar beside them.", ANY),
    KEY("models.*.load", CONFIG_ENUM, MODEL(load), "start",
        "When the model is loaded: at the start, or with the first request for it.", CHOICES("start|demand")),
    KEY("models.*.optional", CONFIG_BOOL, MODEL(optional), "false",
        "A model with load: demand whose file cannot be read at the start is left out, with a line in the log; false: "
        "the start fails.",
        ANY),
    KEY("models.*.idle_unload", CONFIG_SECONDS, MODEL(idle_unload), "0",
        "How long the model stays in memory without a request; the next one loads it again. 0: for ever.",
        RANGE(0, 365 * DAY)),
    KEY("models.*.mmproj", CONFIG_PATH, MODEL(mmproj), "null",
        "Projection file (mmproj) for images or sound, of a model that can take them.", OR_NULL),
    KEY("models.*.media_cache_mb", CONFIG_INT, MODEL(media_cache_mb), "256",
        "MiB of encoded images and sounds that are kept in memory with mmproj, the least recently used dropped first. "
        "They need not be encoded again for a prompt that is computed again. Those that are dropped are still in the "
        "store.",
        RANGE(0, 1 << 20)),
    KEY("models.*.media_urls", CONFIG_BOOL, MODEL(media_urls), "false",
        "Fetches images, sounds, videos and documents that a request names by an http or https URL, from public "
        "addresses only. Off, such a request is refused.",
        ANY),
    KEY("models.*.media_url_hosts", CONFIG_STRINGS, MODEL(media_url_hosts), "[]",
        "Hosts, as name or name:port, from which URLs are fetched though their addresses are not public.", ANY),
    KEY("models.*.media_url_mb", CONFIG_INT, MODEL(media_url_mb), "32",
        "MiB that the files which one request names by URLs have together at most.", RANGE(1, 1 << 14)),
    KEY("models.*.media_url_seconds", CONFIG_SECONDS, MODEL(media_url_seconds), "10",
        "How long fetching the files of one request may take.", RANGE(1, 600)),
    KEY("models.*.media_path", CONFIG_PATH, MODEL(media_path), "null",
        "Folder: a request may name files below it, file://NAME. null: none.", OR_NULL),
    KEY("models.*.media_unconfined", CONFIG_BOOL, MODEL(media_unconfined), "false",
        "`ffmpeg` and `pdftotext` also read the videos and documents of requests where the kernel cannot confine them "
        "(it has no Landlock, or no seccomp). Code that takes over such a program can then do all that hearth's user "
        "can.",
        ANY),
    KEY("models.*.image_megapixels", CONFIG_INT, MODEL(image_megapixels), "40",
        "Largest image that is decoded, in millions of pixels; each takes 3 bytes of memory meanwhile.",
        RANGE(1, 1000)),
    KEY("models.*.request_megapixels", CONFIG_INT, MODEL(request_megapixels), "400",
        "Most pixels that the images of one request have together, in millions. More is refused before any is decoded.",
        RANGE(1, 1000000)),
    KEY("models.*.image_min_tokens", CONFIG_INT, MODEL(image_min_tokens), "0",
        "Fewest tokens of an image, where its size decides; smaller ones are made larger. 0: as the projector says.",
        RANGE(0, 1 << 16)),
    KEY("models.*.image_max_tokens", CONFIG_INT, MODEL(image_max_tokens), "0",
        "Most tokens of an image, where its size decides; larger ones are made smaller. 0: as the projector says.",
        RANGE(0, 1 << 16)),
    KEY("models.*.sound_seconds", CONFIG_INT, MODEL(sound_seconds), "3600", "Longest sound that is decoded.",
        RANGE(1, 24 * 3600)),
    KEY("models.*.video_fps", CONFIG_NUMBER, MODEL(video_fps), "4",
        "Frames a second that are taken of a video, which `ffmpeg` reads where it is installed.", RANGE(0.01, 60)),
    KEY("models.*.video_frames", CONFIG_INT, MODEL(video_frames), "64",
        "Most frames that are taken of a video: of a longer one every second frame, every fourth and so on.",
        RANGE(1, 1024)),
    KEY("models.*.context_window", CONFIG_INT, MODEL(context_window), "8192",
        "Tokens that one slot can hold, prompt and reply together. More than the model was trained for is lowered to "
        "that, unless rope_scaling is on. Where it is not set, and the model has 256 MiB of weights or more: as many "
        "as fit this machine, 65536 at most, as `hearth fit` says.",
        RANGE(1, INT_MAX), DERIVED),
    KEY("models.*.n_seq_max", CONFIG_INT, MODEL(n_seq_max), "1",
        "Slots: requests computed at once. The context has context_window x n_seq_max KV cells. 0 is read as 1. Where "
        "it is not set: as with context_window, 4 at most.",
        RANGE(0, 256), DERIVED),
    KEY("models.*.n_seq_spare", CONFIG_INT, MODEL(n_seq_spare), "-1",
        "Conversations that stay in the KV cache beside those of the slots, where incremental_cache has one pool of KV "
        "cells; others are evicted to the store and restored from there. They take no memory of their own in most "
        "models. In a recurrent or hybrid model each has a state, in one with a sliding window as many cells as that "
        "is long: `hearth model vram` counts them. -1: as many as slots and 3 at least where they take memory, else "
        "three times as many and 28 at least. With the slots they are 255 at most.",
        RANGE(-1, 254)),
    KEY("models.*.queue_depth", CONFIG_INT, MODEL(queue_depth), "2",
        "Requests that may be in flight (running or waiting) for each slot. A model for embeddings takes all that "
        "come, up to 64 MiB of text, and packs them into calls.",
        RANGE(1, 1024)),
    KEY("models.*.admission_timeout", CONFIG_SECONDS, MODEL(admission_timeout), "30",
        "How long a request may wait in the admission queue before it is answered with 429; for embeddings, only until "
        "their model is loaded.",
        RANGE(0, DAY)),
    KEY("models.*.max_prompt_bytes", CONFIG_INT, MODEL(max_prompt_bytes), "4194304",
        "Bytes of text that a request may bring: messages, tools, a prompt, a schema or a grammar. More is refused "
        "before anything is made of it, since rendering and tokenising take a multiple of it in memory.",
        RANGE(1024, 1073741824)),
    KEY("models.*.n_batch", CONFIG_INT, MODEL(n_batch), "2048",
        "Most tokens of one decode call, of all slots together.", RANGE(1, 1048576)),
    KEY("models.*.n_ubatch", CONFIG_INT, MODEL(n_ubatch), "512",
        "Tokens of one micro-batch, which are computed together; more is faster and needs more memory. Where it is not "
        "set: 2048 with mmproj, and never more than n_batch.",
        RANGE(1, 1048576), DERIVED),
    KEY("models.*.max_decode_gap_ms", CONFIG_INT, MODEL(max_decode_gap_ms), "250",
        "Milliseconds that the prefill of one request may delay the decoding of others: a bound of their inter-token "
        "latency. A single tile of 64 tokens may take a third more.",
        RANGE(1, 3600000)),
    KEY("models.*.kv_unified", CONFIG_ENUM, MODEL(kv_unified), "auto",
        "One pool of KV cells shared by all slots (true), or one stream of cells for each (false). auto: one pool, "
        "unless nothing is shared (no caching, or deterministic).",
        CHOICES("auto|true|false")),
    KEY("models.*.deterministic", CONFIG_BOOL, MODEL(deterministic), "false",
        "Fixed cuts and one sequence a decode call: replies are bit-identical whatever else runs, and slower. Sliding "
        "windows take the memory of a whole context, and are not stored.",
        ANY),
    KEY("models.*.cache_type_k", CONFIG_NAME, MODEL(cache_type_k), "f16",
        "Data type of the keys in the KV cache. Where it is not set: as with context_window, q8_0 where f16 does not "
        "fit.",
        CHOICES(CACHE_TYPES), DERIVED),
    KEY("models.*.cache_type_v", CONFIG_NAME, MODEL(cache_type_v), "f16",
        "Data type of the values in the KV cache; where it is not set, as with cache_type_k. A quantised one needs "
        "flash attention.",
        CHOICES(CACHE_TYPES), DERIVED),
    KEY("models.*.flash_attention", CONFIG_NAME, MODEL(flash_attention), "auto",
        "Flash attention; auto turns it on where the model and the device support it.", CHOICES("auto|on|off")),
    KEY("models.*.system_prompt_cache", CONFIG_BOOL, MODEL(system_prompt_cache), "false",
        "SPC: the state of system prompts is kept in memory and restored into any slot that a request with the same "
        "one gets; all other messages are computed again. Excludes incremental_cache.",
        ANY),
    KEY("models.*.system_prompt_assumed", CONFIG_BOOL, MODEL(system_prompt_assumed), "false",
        "A chat without a system message gets that of earlier requests, if all since the start had the same one; once "
        "there were two, none does. All clients can learn that message, so this is for clients that trust each other. "
        "Requests with cache_prompt: false neither give nor get it. Needs system_prompt_cache.",
        ANY),
    KEY("models.*.incremental_cache", CONFIG_BOOL, MODEL(incremental_cache), "true",
        "IMC: conversations stay in the KV cache, and only new tokens are computed. Where it is not set: false with "
        "system_prompt_cache. With neither, every prompt is computed whole.",
        ANY, DERIVED),
    KEY("models.*.cache_min_tokens", CONFIG_INT, MODEL(cache_min_tokens), "100",
        "A system prompt or a common prefix shorter than so many tokens is not reused.", RANGE(0, INT_MAX)),
    KEY("models.*.cache_slot_timeout", CONFIG_SECONDS, MODEL(cache_slot_timeout), "30",
        "How long a request waits in the queue before the slot it waits for is preempted. If all slots are computing "
        "prompts then, it is answered with 'server busy' instead.",
        RANGE(0, DAY)),
    KEY("models.*.preempt", CONFIG_ENUM, MODEL(preempt), "park",
        "Preempted requests: park suspends one and resumes it where it was once a slot is free, fail ends it with an "
        "error.",
        CHOICES("park|fail")),
    KEY("models.*.idle_conversations", CONFIG_ENUM, MODEL(idle_conversations), "auto",
        "How long an idle conversation that is stored keeps its KV cells in one pool, where they slow down those that "
        "are computed. auto: until that has cost as much as bringing it back would, by measured times. stay: until the "
        "room is needed. leave: until another one is computed.",
        CHOICES("auto|stay|leave")),
    KEY("models.*.draft.sources", CONFIG_STRINGS, MODEL(draft.sources), "[auto]",
        "Drafts: one decode call computes guesses at the next tokens as well; the reply is the same without. grammar: "
        "text that a grammar leaves no choice in. request: the prompt and the reply so far. store: other conversations "
        "of the same scope. model: draft.path, or without it the MTP head in the model's own file (qwen35, qwen35moe "
        "and "
        "glm4moe may have one). auto: all that there are. []: no drafts. As many are computed as pay by "
        "measured times. Not with `deterministic`.",
        ANY),
    KEY("models.*.draft.n_max", CONFIG_INT, MODEL(draft.n_max), "64",
        "Most drafted tokens of a reply in one decode call.", RANGE(1, 64)),
    KEY("models.*.draft.path", CONFIG_PATH, MODEL(draft.path), "null",
        "A draft model: the GGUF file of a small model with the same vocabulary, or of an EAGLE-3 head for this one. "
        "It writes ahead where no other source does better. It has the last tokens of each conversation, some MiB a "
        "slot, and is asked as far as that "
        "pays.",
        OR_NULL),
    KEY("models.*.draft.n_gpu_layers", CONFIG_INT, MODEL(draft.n_gpu_layers), "0",
        "Layers of the draft model kept on the GPU: 0 all, -1 none, else so many.", RANGE(-1, 1000000)),
    KEY("models.*.n_gpu_layers", CONFIG_INT, MODEL(n_gpu_layers), "0",
        "Layers kept on the GPU: 0 all, -1 none, else so many.", RANGE(-1, 1000000)),
    KEY("models.*.split_mode", CONFIG_NAME, MODEL(split_mode), "layer",
        "How several GPUs share a model; row needs devices that hold rows of a tensor, as SYCL's do.",
        CHOICES("none|layer|row")),
    KEY("models.*.rpc", CONFIG_STRINGS, MODEL(rpc), "[]",
        "llama.cpp's RPC servers, as host:port, whose devices take layers as GPUs do. They have neither passwords nor "
        "encryption: on a network of your own only.",
        ANY),
    KEY("models.*.tensor_split", CONFIG_STRINGS, MODEL(tensor_split), "[]",
        "The part of the layers (with row: of each one's rows) that a device takes. A number for each, those of rpc "
        "first, then the GPUs; [3, 1] is three quarters and one. Empty: by their free memory.",
        ANY),
    KEY("models.*.devices", CONFIG_STRINGS, MODEL(devices), "[]",
        "Names of the devices that take layers, in this order, such as CUDA0, Vulkan1 or RPC0; the error of a wrong "
        "one "
        "lists those that are there. [none]: the CPU takes all. Empty: all cards, or else the graphics within the "
        "processor.",
        ANY),
    KEY("models.*.main_gpu", CONFIG_INT, MODEL(main_gpu), "0",
        "With split_mode none: the device that takes all layers, counted from 0.", RANGE(0, 1024)),
    KEY("models.*.n_cpu_moe", CONFIG_INT, MODEL(n_cpu_moe), "0",
        "Of a mixture of experts: the experts of so many first layers stay in the machine's memory, and the CPU "
        "computes "
        "them. The rest of each layer is on the GPU.",
        RANGE(0, 4000)),
    KEY("models.*.cpu_moe", CONFIG_BOOL, MODEL(cpu_moe), "false", "The same for the experts of all layers.", ANY),
    KEY("models.*.override_tensors", CONFIG_STRINGS, MODEL(override_tensors), "[]",
        "Where tensors go whose names match a pattern, as llama.cpp's --override-tensor has it: `exps=CPU` or "
        "`blk\\.[0-9]\\.ffn=CUDA1`. The first pattern that matches counts.",
        ANY),
    KEY("models.*.load_mode", CONFIG_NAME, MODEL(load_mode), "auto",
        "How weights are read: mmap maps the file, mlock keeps them in memory, dio reads past the system's cache. "
        "auto: "
        "mmap where the devices allow it.",
        CHOICES("auto|none|mmap|mlock|mmap+mlock|dio")),
    KEY("models.*.offload_kqv", CONFIG_BOOL, MODEL(offload_kqv), "true", "Keeps the KV cache on the GPU.", ANY),
    KEY("models.*.reply_tokens", CONFIG_BOOL, MODEL(reply_tokens), "true",
        "A reply that comes back in a prompt has the tokens that were sampled, though its text might be tokenised "
        "otherwise: its cells are reused. Not with `deterministic`.",
        ANY),
    KEY("models.*.op_offload", CONFIG_BOOL, MODEL(op_offload), "true",
        "Lets the GPU compute large batches of layers that are kept in the machine's memory.", ANY),
    KEY("models.*.threads", CONFIG_INT, MODEL(threads), "0",
        "CPU threads that compute at most, never more than there are CPUs; 0: one a physical core. Fewer compute where "
        "that is faster, beside a busy process or with a very small model, unless `deterministic` is set or there is a "
        "GPU.",
        RANGE(0, 1024)),
    KEY("models.*.cpus", CONFIG_TEXT, MODEL(cpus), "null",
        "CPUs that these threads run on, as numbers and ranges: 0-7,16. null: all that the process may use.", OR_NULL),
    KEY("models.*.cpu_strict", CONFIG_BOOL, MODEL(cpu_strict), "false",
        "Each thread of a context has one CPU, in their order; else each may run on all of them.", ANY),
    KEY("models.*.thread_priority", CONFIG_NAME, MODEL(thread_priority), "normal",
        "Of these threads. low (SCHED_BATCH) gives way a little; from medium on they come before all that are not in "
        "real "
        "time, which the system has to allow.",
        CHOICES("low|normal|medium|high|realtime")),
    KEY("models.*.rope_scaling", CONFIG_NAME, MODEL(rope_scaling), "none",
        "How positions are stretched for a window longer than trained; yarn is good for two to four times.",
        CHOICES("none|linear|yarn")),
    KEY("models.*.rope_freq_base", CONFIG_NUMBER, MODEL(rope_freq_base), "null", "Base frequency; null: the model's.",
        RANGE_OR_NULL(1, 1e12)),
    KEY("models.*.rope_freq_scale", CONFIG_NUMBER, MODEL(rope_freq_scale), "null",
        "Frequency factor; null: with linear and yarn that of the windows, else the model's.",
        RANGE_OR_NULL(1e-6, 1e6)),
    KEY("models.*.yarn_ext_factor", CONFIG_NUMBER, MODEL(yarn_ext_factor), "null",
        "Share of extrapolation; null: the model's, or 1 with yarn; 0: none.", RANGE_OR_NULL(0, 100)),
    KEY("models.*.yarn_attn_factor", CONFIG_NUMBER, MODEL(yarn_attn_factor), "null",
        "Scale of the attention's magnitude; null: 1. Beside an ext_factor other than 0 llama.cpp takes its own.",
        RANGE_OR_NULL(0, 100)),
    KEY("models.*.yarn_beta_fast", CONFIG_NUMBER, MODEL(yarn_beta_fast), "null", "Low correction dimension; null: 32.",
        RANGE_OR_NULL(0, 10000)),
    KEY("models.*.yarn_beta_slow", CONFIG_NUMBER, MODEL(yarn_beta_slow), "null", "High correction dimension; null: 1.",
        RANGE_OR_NULL(0, 10000)),
    KEY("models.*.yarn_orig_ctx", CONFIG_INT, MODEL(yarn_orig_ctx), "0",
        "Window that the model was trained for; 0 or null: as its file says.", RANGE_OR_NULL(0, INT_MAX)),
    KEY("models.*.jinja_file", CONFIG_PATH, MODEL(jinja_file), "null",
        "Chat template to use in place of the model's own. A model without one gets ChatML.", OR_NULL),
    KEY("models.*.chat_template_kwargs", CONFIG_OBJECT, MODEL(chat_template_kwargs), "{}",
        "Arguments of the template where a request does not say otherwise: {enable_thinking: false} keeps a model from "
        "thinking.",
        ANY),
    KEY("models.*.media", CONFIG_ENUM, MODEL(media), "note",
        "For models that do not take an image, a sound or a document in the messages: note puts a fixed line in its "
        "place, refuse answers with 400.",
        CHOICES("note|refuse")),
    KEY("models.*.embedding", CONFIG_ENUM, MODEL(embedding), "auto",
        "Whether the model is for embeddings, or with a head for it for reranking scores, in place of text; auto: as "
        "its file says, and true where pooling is set. Such a model has n_seq_max contexts, each of which packs the "
        "inputs of requests into calls of n_batch tokens; an input has context_window tokens at most.",
        CHOICES("auto|true|false")),
    KEY("models.*.pooling", CONFIG_NAME, MODEL(pooling), "auto",
        "How the vectors of an input's tokens become one; none: each is given, rank: a score. auto: as the file says, "
        "else mean for an encoder and last for a decoder.",
        CHOICES("auto|none|mean|cls|last|rank")),
    KEY("models.*.truncate", CONFIG_BOOL, MODEL(truncate), "false",
        "Embeddings and reranking: inputs that are too long lose their end, where a request does not say `truncate` "
        "itself. Otherwise they are refused, which some clients take for no answer at all.",
        ANY),
    KEY("models.*.lora", CONFIG_LORAS, MODEL(lora), "[]",
        "LoRA adapters for the weights, each with the scale of requests that name none: 1, if not given.", ANY),
    HEARTH_SAMPLING_TABLE(SAMPLING_NUMBER, SAMPLING_INTEGER)
        KEY("models.*.sampling.dry_sequence_breakers", CONFIG_STRINGS, MODEL(sampling.dry_sequence_breakers), "[]",
            "Texts that end a repetition; none: the end of a line, a colon, a double quote and an asterisk.", ANY),
    KEY("models.*.sampling.samplers", CONFIG_STRINGS, MODEL(sampling.samplers),
        "[penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature]",
        "The samplers in the order in which they are applied: docs/sampling.md.", ANY, DERIVED),
    KEY("models.*.sampling.seed", CONFIG_INT, MODEL(sampling.seed), "-1",
        "Replies with the same seed are the same; -1: a random one for each.", RANGE(-1, 4294967295.0)),
};

const size_t config_n_rows = sizeof config_rows / sizeof config_rows[0];

const struct config_section config_sections[CONFIG_SECTIONS] = {
    {"server", "server.", "The HTTP server and its log."},
    {"cache", "cache.",
     "The store of computed state on disk and in memory, shared by all models and found by its tokens."},
    {"models", "models.*.", "The models, each under the name that requests use for it."},
};

const struct config_row *config_row_find(const char *pattern)
{
    for (size_t i = 0; i < config_n_rows; i++)
        if (!strcmp(config_rows[i].path, pattern)) return &config_rows[i];
    return NULL;
}

bool config_is_section(const char *pattern)
{
    size_t len = strlen(pattern);
    for (size_t i = 0; i < config_n_rows; i++)
        if (!strncmp(config_rows[i].path, pattern, len) && config_rows[i].path[len] == '.') return true;
    return false;
}

bool config_row_in_model(const struct config_row *row)
{
    return !strncmp(row->path, "models.", strlen("models."));
}

size_t config_row_index(const struct config_row *row)
{
    return (size_t)(row - config_rows);
}

void *config_field(const struct config_row *row, const void *owner)
{
    return (char *)(uintptr_t)owner + row->offset;
}

/* The last part of a path, and the section before it. */
struct leaf {
    const char *name;
    size_t len;
    const char *section;
    size_t section_len;
};

static struct leaf leaf_of(const char *path, size_t len)
{
    size_t start = len;
    while (start > 0 && path[start - 1] != '.') start--;
    return (struct leaf){path + start, len - start, path, start > 0 ? start - 1 : 0};
}

void config_put_nearest(struct buf *out, const char *pattern)
{
    struct leaf wanted = leaf_of(pattern, strlen(pattern));
    const char *foreign = foreign_key(wanted.name, wanted.len);
    size_t best = SIZE_MAX;
    const char *path = foreign != NULL ? foreign : "";
    size_t len = strlen(path);
    for (size_t i = 0; i < config_n_rows && foreign == NULL; i++) {
        /* Each prefix of a row's path is a section, the whole path is the key. */
        for (size_t end = 1; end <= strlen(config_rows[i].path); end++) {
            char after = config_rows[i].path[end];
            if ((after != '.' && after != '\0') || config_rows[i].path[end - 1] == '*') continue;
            struct leaf known = leaf_of(config_rows[i].path, end);
            /* Of equally similar names one of the same section is preferred. */
            bool same =
                wanted.section_len == known.section_len && !strncmp(wanted.section, known.section, wanted.section_len);
            size_t candidate = 2 * edit_distance(wanted.name, wanted.len, known.name, known.len) + !same;
            if (candidate >= best) continue;
            best = candidate;
            path = config_rows[i].path;
            len = end;
        }
    }
    for (size_t i = 0; i < len; i++) buf_append(out, path[i] == '*' ? "NAME" : path + i, path[i] == '*' ? 4 : 1);
}
