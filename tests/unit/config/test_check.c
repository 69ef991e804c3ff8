/* hearth_config_check(): keys that exclude or need each other, and files that do not exist. */
#include "support.h"

#include <stdio.h>

/* A configuration with one model whose path exists; more of its keys follow from line 4 on. */
static hearth_config *with_model(const char *text)
{
    char all[2048];
    snprintf(all, sizeof all, "models:\n m:\n  path: /proc/self/exe\n%s", text);
    return loaded(all);
}

static void assert_check(hearth_config *config, const char *expected)
{
    struct buf reported = {0};
    hearth_error error = {0};
    int code = hearth_config_check(config, note_fault, &reported, &error);
    assert_string_equal(reported.v == NULL ? "" : reported.v, expected);
    assert_int_equal(code, expected[0] == '\0' ? HEARTH_OK : HEARTH_INVALID);
    assert_int_equal(error.code, code);
    buf_release(&reported);
    hearth_config_free(config);
}

static void the_defaults_and_no_model_are_fine(void **state)
{
    (void)state;
    assert_check(hearth_config_new(), "");
    assert_check(with_model(""), "");
}

static void a_name_means_one_model(void **state)
{
    (void)state;
#define SECOND " n:\n  path: /proc/self/exe\n"
    assert_check(with_model("  aliases: [a, b]\n" SECOND "  aliases: c\nserver:\n default_model: c\n"), "");
    assert_check(with_model("  aliases: [n]\n" SECOND), "4|models.m.aliases|n is the model n already\n");
    assert_check(with_model("  aliases: [a]\n" SECOND "  aliases: [b, a]\n"),
                 "7|models.n.aliases|a is the model m already\n");
    assert_check(with_model("server:\n default_model: x\n"), "5|server.default_model|there is no model 'x'\n");
}

static void both_caches_are_refused_with_the_known_text(void **state)
{
    (void)state;
    const char *text = "  system_prompt_cache: true\n  incremental_cache: true\n";
    assert_check(with_model(text), "4|models.m.system_prompt_cache|cannot enable both SystemPromptCache and "
                                   "IncrementalCache; use IncrementalCache alone (it includes the system prompt)\n");
    hearth_config *config = with_model(text);
    hearth_error error = {0};
    assert_int_equal(hearth_config_check(config, NULL, NULL, &error), HEARTH_INVALID);
    assert_string_equal(error.param, "models.m.system_prompt_cache");
    assert_string_equal(error.message,
                        "test.yaml:4: models.m.system_prompt_cache: cannot enable both SystemPromptCache and "
                        "IncrementalCache; use IncrementalCache alone (it includes the system prompt)");
    hearth_config_free(config);
}

static void the_system_prompt_cache_alone_is_fine(void **state)
{
    (void)state;
    assert_check(with_model("  system_prompt_cache: true\n"), "");
    assert_check(with_model("  system_prompt_cache: true\n  incremental_cache: false\n"), "");
}

static void an_assumed_system_prompt_needs_its_cache(void **state)
{
    (void)state;
    const char *fault = "4|models.m.system_prompt_assumed|needs system_prompt_cache\n";
    assert_check(with_model("  system_prompt_assumed: true\n"), fault);
    assert_check(with_model("  system_prompt_assumed: true\n  incremental_cache: true\n"), fault);
    assert_check(with_model("  system_prompt_assumed: true\n  system_prompt_cache: true\n"), "");
    assert_check(with_model("  system_prompt_assumed: false\n"), "");
}

static void a_model_needs_a_file_that_is_there(void **state)
{
    (void)state;
    assert_check(loaded("models:\n m: {}\n"), "0|models.m.path|is missing: name the GGUF file of this model\n");
    assert_check(loaded("models:\n m:\n  path: /nowhere/m.gguf\n  jinja_file: /nowhere/t\n  lora: [/nowhere/l]\n"),
                 "3|models.m.path|cannot read /nowhere/m.gguf: No such file or directory\n"
                 "4|models.m.jinja_file|cannot read /nowhere/t: No such file or directory\n"
                 "5|models.m.lora|cannot read /nowhere/l: No such file or directory\n");
    assert_check(loaded("models: {m: {path: /proc}}\n"),
                 "1|models.m.path|cannot read /proc: it is a folder, name a file\n");
}

static void batches_cells_and_cache_types_must_fit_together(void **state)
{
    (void)state;
    assert_check(with_model("  n_batch: 64\n  n_ubatch: 65\n"), "5|models.m.n_ubatch|65 is more than n_batch, 64\n");
    assert_check(with_model("  n_batch: 64\n"), "");
    assert_check(with_model("  cache_type_v: iq4_nl\n  flash_attention: off\n"),
                 "4|models.m.cache_type_v|iq4_nl needs flash attention, and flash_attention is off\n");
    assert_check(with_model("  cache_type_v: q8_0\n"), "");
    assert_check(with_model("  cache_type_v: bf16\n  cache_type_k: q4_0\n  flash_attention: off\n"), "");
    assert_check(with_model("  context_window: 1073741824\n  n_seq_max: 2\n"),
                 "4|models.m.context_window|1073741824 tokens x 2 slots are more cells than a context can have, "
                 "2147483647\n");
}

static void parts_of_a_split_are_numbers_of_which_one_is_more_than_0(void **state)
{
    (void)state;
#define NO_PART " is no part: write a number from 0 for each device, such as [3, 1]\n"
    assert_check(with_model("  tensor_split: [3, 0, 0.5]\n"), "");
    assert_check(with_model("  cpus: 0-3,8\n"), "");
    assert_check(with_model("  cpus: 0-3,x\n"),
                 "4|models.m.cpus|'0-3,x' is no list of CPUs: write numbers below 512 and ranges, as in 0-7,16\n");
    assert_check(with_model("  cpus: 0\nserver:\n  numa: isolate\n"),
                 "4|models.m.cpus|server.numa is isolate, which chooses the CPUs itself: set one of them\n");
    assert_check(with_model("  tensor_split: [3, half]\n"), "4|models.m.tensor_split|half" NO_PART);
    assert_check(with_model("  tensor_split: [3, -1]\n"), "4|models.m.tensor_split|-1" NO_PART);
    assert_check(with_model("  tensor_split: [1e39]\n"), "4|models.m.tensor_split|1e39" NO_PART);
    assert_check(with_model("  tensor_split: [0, 0]\n"), "4|models.m.tensor_split|gives no device a part\n");
    assert_check(with_model("  tensor_split: 1\n  split_mode: none\n"),
                 "4|models.m.tensor_split|needs the split_mode layer or row: with none one device takes all\n");
}

static void certificate_and_key_belong_together(void **state)
{
    (void)state;
    assert_check(loaded("server: {tls_cert: /proc/self/exe}\n"),
                 "1|server.tls_cert|needs server.tls_key, the private key that belongs to it\n");
    assert_check(loaded("server: {tls_key: /proc/self/exe}\n"),
                 "1|server.tls_key|needs server.tls_cert, the certificate that belongs to it\n");
    assert_check(loaded("server: {tls_key: /proc/self/exe, tls_cert: /proc/self/exe}\n"), "");
    assert_check(loaded("server: {api_keys_file: /nowhere/keys}\n"),
                 "1|server.api_keys_file|cannot read /nowhere/keys: No such file or directory\n");
}

static void addresses_to_listen_on_are_checked(void **state)
{
    (void)state;
    assert_check(loaded("server: {listen: ['0.0.0.0:0', 'localhost:65535', '[::1]:80', '[fe80::1%1]:80', 'unix:/x']}"),
                 "");
    assert_check(loaded("server:\n  listen:\n  - ':80'\n  - '::1:80'\n  - 'host'\n  - 'host:65536'\n  - 'host:'\n"
                        "  - '[x]:1'\n  - '[]:1'\n  - 'unix:'\n  - 'a b:1'\n  - 'host:+1'\n"),
                 "2|server.listen|:80 names no host before the port\n"
                 "2|server.listen|::1:80 needs brackets around its IPv6 address: [ADDRESS]:PORT\n"
                 "2|server.listen|host does not end in :PORT, from 0 to 65535\n"
                 "2|server.listen|host:65536 does not end in :PORT, from 0 to 65535\n"
                 "2|server.listen|host: does not end in :PORT, from 0 to 65535\n"
                 "2|server.listen|[x]:1 is no IPv6 address\n"
                 "2|server.listen|[]:1 is no IPv6 address\n"
                 "2|server.listen|unix: names no path after unix:\n"
                 "2|server.listen|a b:1 has a host name with a character that none has\n"
                 "2|server.listen|host:+1 does not end in :PORT, from 0 to 65535\n");
    assert_check(loaded("server: {listen: []}\n"), "1|server.listen|needs at least one address\n");
    assert_check(loaded("server: {ollama: true, ollama_listen: '0.0.0.0:11434'}"), "");
    assert_check(loaded("server: {ollama_listen: '11434'}\n"),
                 "1|server.ollama_listen|11434 does not end in :PORT, from 0 to 65535\n");
}

static void origins_and_hosts_are_checked(void **state)
{
    (void)state;
    assert_check(loaded("server:\n  allowed_origins: ['*', 'null', 'https://a.example', 'http://[fd00::1]:3000', "
                        "'chrome-extension://*', 'https://*.a.example', 'http://10.0.0.1:*']\n"
                        "  allowed_hosts: ['*', 'box', 'Box.example:8080', '10.0.0.1', 'fd00::1', '[fd00::1]:80']\n"),
                 "");
    assert_check(
        loaded("server:\n  allowed_origins: ['a.example', '://a', 'https://a.example/', 'https://*.*', "
               "'https://a,https://b', 'https://u@a']\n"
               "  allowed_hosts: ['http://a.example', 'a/b', 'a b', 'a,b', 'u@a', 'a:x']\n"),
        "2|server.allowed_origins|a.example is no origin: write it as scheme://host or scheme://host:port\n"
        "2|server.allowed_origins|://a is no origin: write it as scheme://host or scheme://host:port\n"
        "2|server.allowed_origins|https://a.example/ has more than scheme, host and port: leave out all else\n"
        "2|server.allowed_origins|https://*.* has more than one *\n"
        "2|server.allowed_origins|https://a,https://b has more than scheme, host and port: leave out all else\n"
        "2|server.allowed_origins|https://u@a has more than scheme, host and port: leave out all else\n"
        "3|server.allowed_hosts|http://a.example is no host name or address: write it without scheme and path\n"
        "3|server.allowed_hosts|a/b is no host name or address: write it without scheme and path\n"
        "3|server.allowed_hosts|a b is no host name or address: write it without scheme and path\n"
        "3|server.allowed_hosts|a,b is no host name or address: write it without scheme and path\n"
        "3|server.allowed_hosts|u@a is no host name or address: write it without scheme and path\n"
        "3|server.allowed_hosts|a:x is no host name or address: write it without scheme and path\n");
}

static void isolation_that_is_asked_for_needs_keys(void **state)
{
    (void)state;
    assert_check(loaded("server: {isolate_keys: yes}\n"),
                 "1|server.isolate_keys|needs server.api_keys_file, the keys whose owners are kept apart\n");
    assert_check(loaded("server: {isolate_keys: auto}\n"), "");
    assert_check(loaded("server: {isolate_keys: false}\n"), "");
    assert_check(loaded("server: {isolate_keys: true, api_keys_file: /proc/self/exe}\n"), "");
}

static void a_quota_larger_than_the_disk_is_refused(void **state)
{
    (void)state;
    struct buf reported = {0};
    hearth_config *config = loaded("cache:\n  tiers:\n    disk: {quota_mb: 1000000000, path: ./not/there/yet}\n");
    assert_int_equal(hearth_config_check(config, note_fault, &reported, NULL), HEARTH_INVALID);
    const char *start = "3|cache.tiers.disk.quota_mb|1000000000 MiB are more than the ";
    assert_int_equal(strncmp(reported.v, start, strlen(start)), 0);
    assert_non_null(strstr(reported.v, "of the disk that ./not/there/yet is on\n"));
    buf_release(&reported);
    hearth_config_free(config);
    assert_check(loaded("cache: {tiers: {disk: {quota_mb: 1, path: /not/there/yet}}}\n"), "");
    assert_check(loaded("cache: {tiers: {disk: {quota_mb: 1, path: not-there-yet}}}\n"), "");
}

static void what_was_set_by_path_is_checked_too_and_has_no_line(void **state)
{
    (void)state;
    hearth_config *config = with_model("  n_batch: 64\n");
    set(config, "models.m.n_ubatch", "65");
    struct buf reported = {0};
    hearth_error error = {0};
    assert_int_equal(hearth_config_check(config, note_fault, &reported, &error), HEARTH_INVALID);
    assert_string_equal(reported.v, "0|models.m.n_ubatch|65 is more than n_batch, 64\n");
    assert_string_equal(error.message, "models.m.n_ubatch: 65 is more than n_batch, 64");
    buf_release(&reported);
    hearth_config_free(config);
}

static void endpoints_of_cache_events(void **state)
{
    (void)state;
#define EVENTS(keys) with_model("server:\n" keys)
    assert_check(EVENTS(" kv_events: 'tcp://*:5557'\n kv_events_replay: tcp://[::1]:5558\n"), "");
    assert_check(EVENTS(" kv_events: ipc:///tmp/x\n"),
                 "5|server.kv_events|ipc:///tmp/x does not begin with tcp://: write it as tcp://HOST:PORT, or "
                 "tcp://*:PORT\n");
    assert_check(EVENTS(" kv_events: tcp://a\n"),
                 "5|server.kv_events|tcp://a does not end in :PORT, from 0 to 65535: write it as tcp://HOST:PORT, or "
                 "tcp://*:PORT\n");
    assert_check(EVENTS(" kv_events: tcp://unix:/x:1\n"),
                 "5|server.kv_events|tcp://unix:/x:1 names a socket of another kind: write it as tcp://HOST:PORT, or "
                 "tcp://*:PORT\n");
    assert_check(EVENTS(" kv_events_replay: tcp://127.0.0.1:5558\n"),
                 "5|server.kv_events_replay|needs server.kv_events, the events that are to be had again\n");
    assert_check(EVENTS(" kv_events: tcp://127.0.0.1:1\n listen: 0.0.0.0:8080\n"),
                 "5|server.kv_events|needs server.kv_events_address, the HOST:PORT by which routers know this server: "
                 "the first address of server.listen is none that they could use\n");
    assert_check(EVENTS(" kv_events: tcp://127.0.0.1:1\n listen: ['unix:/x']\n kv_events_address: 10.0.0.1:80\n"), "");
    assert_check(EVENTS(" kv_events: tcp://127.0.0.1:1\n kv_events_address: 10.0.0.1\n"),
                 "6|server.kv_events_address|10.0.0.1 is no HOST:PORT that another machine could use\n");
    assert_check(EVENTS(" kv_events: tcp://127.0.0.1:1\n kv_events_address: 0.0.0.0:80\n"),
                 "6|server.kv_events_address|0.0.0.0:80 is no HOST:PORT that another machine could use\n");
    assert_check(
        EVENTS(" kv_events: tcp://127.0.0.1:1\n handover: /run/hearth\n"),
        "6|server.handover|excludes server.kv_events, whose addresses two processes cannot have at once: unset "
        "one of them\n");
}

static void collectors_of_traces(void **state)
{
    (void)state;
#define COLLECTOR(url) with_model("server:\n otlp_endpoint: '" url "'\n")
#define REMEDY         ": write it as http://HOST:PORT, without /v1/traces\n"
    assert_check(COLLECTOR("http://127.0.0.1:4318"), "");
    assert_check(COLLECTOR("https://[::1]/a/path/"), "");
    assert_check(COLLECTOR("127.0.0.1:4318"),
                 "5|server.otlp_endpoint|127.0.0.1:4318 begins with neither http:// nor https://" REMEDY);
    assert_check(COLLECTOR("http:///v1"), "5|server.otlp_endpoint|http:///v1 names no host" REMEDY);
    assert_check(COLLECTOR("https://user:word@host"),
                 "5|server.otlp_endpoint|https://user:word@host has more than host, port and path" REMEDY);
    assert_check(COLLECTOR("http://host/?a=b"),
                 "5|server.otlp_endpoint|http://host/?a=b has more than host, port and path" REMEDY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_and_no_model_are_fine),
        cmocka_unit_test(a_name_means_one_model),
        cmocka_unit_test(both_caches_are_refused_with_the_known_text),
        cmocka_unit_test(the_system_prompt_cache_alone_is_fine),
        cmocka_unit_test(an_assumed_system_prompt_needs_its_cache),
        cmocka_unit_test(a_model_needs_a_file_that_is_there),
        cmocka_unit_test(batches_cells_and_cache_types_must_fit_together),
        cmocka_unit_test(parts_of_a_split_are_numbers_of_which_one_is_more_than_0),
        cmocka_unit_test(certificate_and_key_belong_together),
        cmocka_unit_test(addresses_to_listen_on_are_checked),
        cmocka_unit_test(origins_and_hosts_are_checked),
        cmocka_unit_test(isolation_that_is_asked_for_needs_keys),
        cmocka_unit_test(a_quota_larger_than_the_disk_is_refused),
        cmocka_unit_test(what_was_set_by_path_is_checked_too_and_has_no_line),
        cmocka_unit_test(endpoints_of_cache_events),
        cmocka_unit_test(collectors_of_traces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
