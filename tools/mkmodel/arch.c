/* The table of architectures: the metadata and tensors that llama.cpp v0.5.0 requires of each, and tiny sizes that
 * still show what is special about it. Optional tensors appear only where the published models have them. Constant
 * data. */
#include "arch.h"

#include "base/error.h"

#include <string.h>

/* ---- Keys ---- */

static const struct key model_keys[] = {
    {"vocab_size", KEY_SIZE, SIZE_VOCAB, 0},
    {"context_length", KEY_SIZE, SIZE_CTX, 0},
    {"embedding_length", KEY_SIZE, SIZE_EMBD, 0},
    {"block_count", KEY_SIZE, SIZE_BLOCKS, 0},
    {0},
};

static const struct key shared_expert_keys[] = {
    {"expert_shared_feed_forward_length", KEY_SIZE, SIZE_FF, 0},
    {0},
};

static const struct key mtp_keys[] = {{"nextn_predict_layers", KEY_SIZE, SIZE_MTP, 0}, {0}};

/* For a model as wide as the head, with the layers that `llama` has here. */
static const struct key eagle_keys[] = {
    {"target_layers", KEY_LAYERS, SIZE_END, 4},
    {"target_hidden_size", KEY_SIZE, SIZE_EMBD, 0},
    {0},
};

static const struct key rms_keys[] = {{"attention.layer_norm_rms_epsilon", KEY_F32, SIZE_END, 1e-6}, {0}};

static const struct key ffn_keys[] = {{"feed_forward_length", KEY_SIZE, SIZE_FF, 0}, {0}};

static const struct key moe_keys[] = {
    {"expert_feed_forward_length", KEY_SIZE, SIZE_FF, 0},
    {"expert_count", KEY_SIZE, SIZE_EXPERTS, 0},
    {"expert_used_count", KEY_SIZE, SIZE_EXPERTS_USED, 0},
    {0},
};

static const struct key glm_keys[] = {
    {"expert_shared_count", KEY_U32, SIZE_END, 1},
    {"leading_dense_block_count", KEY_U32, SIZE_END, 0},
    {"expert_weights_norm", KEY_BOOL, SIZE_END, true},
    {0},
};

static const struct key attention_keys[] = {
    {"attention.head_count", KEY_SIZE, SIZE_HEADS, 0},    {"attention.head_count_kv", KEY_SIZE, SIZE_KV_HEADS, 0},
    {"attention.key_length", KEY_SIZE, SIZE_HEAD_DIM, 0}, {"attention.value_length", KEY_SIZE, SIZE_HEAD_DIM, 0},
    {"rope.dimension_count", KEY_SIZE, SIZE_ROTARY, 0},   {0},
};

static const struct key window_keys[] = {
    {"attention.sliding_window", KEY_SIZE, SIZE_SWA, 0},
    {"attention.sliding_window_pattern", KEY_SIZE, SIZE_PERIOD, 0},
    {0},
};

static const struct key sections_keys[] = {{"rope.dimension_sections", KEY_SECTIONS, SIZE_END, 0}, {0}};

static const struct key ssm_keys[] = {
    {"ssm.conv_kernel", KEY_SIZE, SIZE_KERNEL, 0}, {"ssm.inner_size", KEY_SIZE, SIZE_INNER, 0},
    {"ssm.state_size", KEY_SIZE, SIZE_STATE, 0},   {"ssm.time_step_rank", KEY_SIZE, SIZE_SSM_HEADS, 0},
    {"ssm.group_count", KEY_SIZE, SIZE_GROUPS, 0}, {0},
};

static const struct key delta_net_keys[] = {{"full_attention_interval", KEY_SIZE, SIZE_PERIOD, 0}, {0}};

static const struct key lfm2_keys[] = {
    {"attention.head_count", KEY_SIZE, SIZE_HEADS, 0},
    {"attention.head_count_kv", KEY_SIZE_OR_NONE, SIZE_KV_HEADS, 0},
    {"shortconv.l_cache", KEY_SIZE, SIZE_KERNEL, 0},
    {0},
};

static const struct key encoder_keys[] = {
    {"attention.head_count", KEY_SIZE, SIZE_HEADS, 0},
    {"attention.head_count_kv", KEY_SIZE, SIZE_KV_HEADS, 0},
    {"attention.layer_norm_epsilon", KEY_F32, SIZE_END, 1e-12},
    {"attention.causal", KEY_BOOL, SIZE_END, false},
    {0},
};

/* The values of llama.cpp's enum llama_pooling_type. */
static const struct key mean_pooling_keys[] = {{"pooling_type", KEY_U32, SIZE_END, 1}, {0}};
static const struct key rank_pooling_keys[] = {{"pooling_type", KEY_U32, SIZE_END, 4}, {0}};

/* ---- Tensors ---- */

static const struct tensor_rule embedding[] = {
    {"token_embd.weight", {SIZE_EMBD, SIZE_VOCAB}, FILL_EMBEDDING},
    {0},
};

static const struct tensor_rule tied_embedding[] = {
    {"token_embd.weight", {SIZE_EMBD, SIZE_VOCAB}, FILL_TIED_EMBEDDING},
    {0},
};

static const struct tensor_rule output_norm[] = {{"output_norm.weight", {SIZE_EMBD}, FILL_ONE}, {0}};

static const struct tensor_rule tied_output_norm[] = {{"output_norm.weight", {SIZE_EMBD}, FILL_LOUD}, {0}};

/* Without this tensor the output matrix is the embedding ("tied"). */
static const struct tensor_rule output[] = {{"output.weight", {SIZE_EMBD, SIZE_VOCAB}, FILL_OUTPUT}, {0}};

static const struct tensor_rule attn_norm[] = {{"attn_norm.weight", {SIZE_EMBD}, FILL_ONE}, {0}};

static const struct tensor_rule ffn_norm[] = {{"ffn_norm.weight", {SIZE_EMBD}, FILL_ONE}, {0}};

static const struct tensor_rule post_attn_norm[] = {{"post_attention_norm.weight", {SIZE_EMBD}, FILL_ONE}, {0}};

static const struct tensor_rule quiet_post_attn_norm[] = {{"post_attention_norm.weight", {SIZE_EMBD}, FILL_QUIET}, {0}};

static const struct tensor_rule post_ffn_norm[] = {{"post_ffw_norm.weight", {SIZE_EMBD}, FILL_ONE}, {0}};

static const struct tensor_rule attention[] = {
    {"attn_q.weight", {SIZE_EMBD, SIZE_Q}, FILL_QK},
    {"attn_k.weight", {SIZE_EMBD, SIZE_KV}, FILL_QK},
    {"attn_v.weight", {SIZE_EMBD, SIZE_KV}, FILL_MATRIX},
    {"attn_output.weight", {SIZE_Q, SIZE_EMBD}, FILL_ATTENTION},
    {0},
};

static const struct tensor_rule gated_attention[] = {
    {"attn_q.weight", {SIZE_EMBD, SIZE_Q_GATED}, FILL_QK},
    {"attn_k.weight", {SIZE_EMBD, SIZE_KV}, FILL_QK},
    {"attn_v.weight", {SIZE_EMBD, SIZE_KV}, FILL_MATRIX},
    {"attn_output.weight", {SIZE_Q, SIZE_EMBD}, FILL_ATTENTION},
    {0},
};

static const struct tensor_rule qk_norm[] = {
    {"attn_q_norm.weight", {SIZE_HEAD_DIM}, FILL_ONE},
    {"attn_k_norm.weight", {SIZE_HEAD_DIM}, FILL_ONE},
    {0},
};

static const struct tensor_rule qkv_bias[] = {
    {"attn_q.bias", {SIZE_Q}, FILL_BIAS},
    {"attn_k.bias", {SIZE_KV}, FILL_BIAS},
    {"attn_v.bias", {SIZE_KV}, FILL_BIAS},
    {0},
};

static const struct tensor_rule out_bias[] = {{"attn_output.bias", {SIZE_EMBD}, FILL_BIAS}, {0}};

static const struct tensor_rule sinks[] = {{"attn_sinks.weight", {SIZE_HEADS}, FILL_BIAS}, {0}};

static const struct tensor_rule ffn[] = {
    {"ffn_gate.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"ffn_up.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"ffn_down.weight", {SIZE_FF, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

static const struct tensor_rule experts[] = {
    {"ffn_gate_inp.weight", {SIZE_EMBD, SIZE_EXPERTS}, FILL_ROUTER},
    {"ffn_gate_exps.weight", {SIZE_EMBD, SIZE_FF, SIZE_EXPERTS}, FILL_MATRIX},
    {"ffn_up_exps.weight", {SIZE_EMBD, SIZE_FF, SIZE_EXPERTS}, FILL_MATRIX},
    {"ffn_down_exps.weight", {SIZE_FF, SIZE_EMBD, SIZE_EXPERTS}, FILL_MATRIX},
    {0},
};

static const struct tensor_rule experts_bias[] = {
    {"ffn_gate_inp.bias", {SIZE_EXPERTS}, FILL_BIAS},
    {"ffn_gate_exps.bias", {SIZE_FF, SIZE_EXPERTS}, FILL_BIAS},
    {"ffn_up_exps.bias", {SIZE_FF, SIZE_EXPERTS}, FILL_BIAS},
    {"ffn_down_exps.bias", {SIZE_EMBD, SIZE_EXPERTS}, FILL_BIAS},
    {0},
};

static const struct tensor_rule glm_experts[] = {
    {"exp_probs_b.bias", {SIZE_EXPERTS}, FILL_BIAS},
    {"ffn_gate_shexp.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"ffn_up_shexp.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"ffn_down_shexp.weight", {SIZE_FF, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

static const struct tensor_rule qwen35_experts[] = {
    {"ffn_gate_inp_shexp.weight", {SIZE_EMBD}, FILL_MATRIX},
    {"ffn_gate_shexp.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"ffn_up_shexp.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"ffn_down_shexp.weight", {SIZE_FF, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

/* Of the token and the hidden row that the head is given it takes mostly the token. */
static const struct tensor_rule mtp[] = {
    {"nextn.eh_proj.weight", {SIZE_EMBD_2, SIZE_EMBD}, FILL_FIRST_HALF},
    {"nextn.enorm.weight", {SIZE_EMBD}, FILL_ONE},
    {"nextn.hnorm.weight", {SIZE_EMBD}, FILL_ONE},
    {0},
};

static const struct tensor_rule eagle_model[] = {
    {"fc.weight", {SIZE_EMBD_3, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

static const struct tensor_rule eagle_layer[] = {
    {"attn_norm.weight", {SIZE_EMBD}, FILL_ONE},
    {"attn_norm_2.weight", {SIZE_EMBD}, FILL_ONE},
    {"attn_q.weight", {SIZE_EMBD_2, SIZE_Q}, FILL_QK},
    {"attn_k.weight", {SIZE_EMBD_2, SIZE_KV}, FILL_QK},
    {"attn_v.weight", {SIZE_EMBD_2, SIZE_KV}, FILL_MATRIX},
    {"attn_output.weight", {SIZE_Q, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

static const struct tensor_rule mamba2[] = {
    {"ssm_in.weight", {SIZE_EMBD, SIZE_SSM_IN}, FILL_MATRIX},
    {"ssm_conv1d.weight", {SIZE_KERNEL, SIZE_CONV}, FILL_CONV},
    {"ssm_conv1d.bias", {SIZE_CONV}, FILL_BIAS},
    {"ssm_dt.bias", {SIZE_SSM_HEADS}, FILL_STEP},
    {"ssm_a", {SIZE_ONE, SIZE_SSM_HEADS}, FILL_DECAY},
    {"ssm_d", {SIZE_ONE, SIZE_SSM_HEADS}, FILL_ONE},
    {"ssm_out.weight", {SIZE_INNER, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

static const struct tensor_rule mamba2_norm[] = {
    {"ssm_norm.weight", {SIZE_INNER_GROUP, SIZE_GROUPS}, FILL_ONE},
    {0},
};

static const struct tensor_rule delta_net[] = {
    {"attn_qkv.weight", {SIZE_EMBD, SIZE_CONV}, FILL_MATRIX},
    {"attn_gate.weight", {SIZE_EMBD, SIZE_INNER}, FILL_MATRIX},
    {"ssm_conv1d.weight", {SIZE_KERNEL, SIZE_CONV}, FILL_CONV},
    {"ssm_dt.bias", {SIZE_SSM_HEADS}, FILL_STEP},
    {"ssm_a", {SIZE_SSM_HEADS}, FILL_DECAY},
    {"ssm_beta.weight", {SIZE_EMBD, SIZE_SSM_HEADS}, FILL_MATRIX},
    {"ssm_alpha.weight", {SIZE_EMBD, SIZE_SSM_HEADS}, FILL_MATRIX},
    {"ssm_norm.weight", {SIZE_STATE}, FILL_ONE},
    {"ssm_out.weight", {SIZE_INNER, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

static const struct tensor_rule shortconv[] = {
    {"shortconv.conv.weight", {SIZE_KERNEL, SIZE_EMBD}, FILL_CONV},
    {"shortconv.in_proj.weight", {SIZE_EMBD, SIZE_EMBD_3}, FILL_MATRIX},
    {"shortconv.out_proj.weight", {SIZE_EMBD, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

/* llama.cpp's name for this one has no ".weight". */
static const struct tensor_rule falcon_ffn_norm[] = {{"ffn_norm", {SIZE_EMBD}, FILL_ONE}, {0}};

/* With normalised queries and keys and convolutions between, attention of the usual strength would have little effect.
 */
static const struct tensor_rule lfm2_attention[] = {
    {"attn_q.weight", {SIZE_EMBD, SIZE_Q}, FILL_QK},
    {"attn_k.weight", {SIZE_EMBD, SIZE_KV}, FILL_QK},
    {"attn_v.weight", {SIZE_EMBD, SIZE_KV}, FILL_MATRIX},
    {"attn_output.weight", {SIZE_Q, SIZE_EMBD}, FILL_MATRIX},
    {0},
};

/* llama.cpp's name for the norm before the output. */
static const struct tensor_rule lfm2_output_norm[] = {{"token_embd_norm.weight", {SIZE_EMBD}, FILL_LOUD}, {0}};

static const struct tensor_rule bert_embedding[] = {
    {"token_types.weight", {SIZE_EMBD, SIZE_TOKEN_TYPES}, FILL_POSITION},
    {"position_embd.weight", {SIZE_EMBD, SIZE_CTX}, FILL_POSITION},
    {"token_embd_norm.weight", {SIZE_EMBD}, FILL_ONE},
    {"token_embd_norm.bias", {SIZE_EMBD}, FILL_BIAS},
    {0},
};

static const struct tensor_rule bert_layer[] = {
    {"attn_output_norm.weight", {SIZE_EMBD}, FILL_ONE},
    {"attn_output_norm.bias", {SIZE_EMBD}, FILL_BIAS},
    {"ffn_up.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"ffn_up.bias", {SIZE_FF}, FILL_BIAS},
    {"ffn_down.weight", {SIZE_FF, SIZE_EMBD}, FILL_MATRIX},
    {"ffn_down.bias", {SIZE_EMBD}, FILL_BIAS},
    {"layer_output_norm.weight", {SIZE_EMBD}, FILL_ONE},
    {"layer_output_norm.bias", {SIZE_EMBD}, FILL_BIAS},
    {0},
};

static const struct tensor_rule rank_head[] = {
    {"cls.weight", {SIZE_EMBD, SIZE_EMBD}, FILL_MATRIX},
    {"cls.bias", {SIZE_EMBD}, FILL_BIAS},
    {"cls.output.weight", {SIZE_EMBD, SIZE_ONE}, FILL_MATRIX},
    {"cls.output.bias", {SIZE_ONE}, FILL_BIAS},
    {0},
};

/* ---- Architectures ---- */

#define SIZES(layers, embd, heads, kv_heads, head_dim, ff, ctx)                                                        \
    [SIZE_LAYERS] = (layers), [SIZE_EMBD] = (embd), [SIZE_HEADS] = (heads), [SIZE_KV_HEADS] = (kv_heads),              \
    [SIZE_HEAD_DIM] = (head_dim), [SIZE_FF] = (ff), [SIZE_CTX] = (ctx)

const struct arch arch_table[] = {
    {.name = "llama",
     .gguf = "llama",
     .about = "dense",
     .sizes = {SIZES(2, 64, 2, 1, SIZE_DERIVED, 128, 4096)},
     .rope_base = 500000,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, ffn_norm},
               {LAYERS_EVERY, ffn}}},
    {.name = "qwen3",
     .gguf = "qwen3",
     .about = "dense, queries and keys normalised",
     .sizes = {SIZES(2, 64, 4, 2, 32, 128, 4096)},
     .rope_base = 1e6,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, qk_norm},
               {LAYERS_EVERY, ffn_norm},
               {LAYERS_EVERY, ffn}}},
    {.name = "qwen3moe",
     .gguf = "qwen3moe",
     .about = "mixture of experts",
     .sizes = {SIZES(2, 64, 4, 2, 32, 64, 4096), [SIZE_EXPERTS] = 4},
     .rope_base = 1e6,
     .keys = {model_keys, rms_keys, ffn_keys, moe_keys, attention_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, qk_norm},
               {LAYERS_EVERY, ffn_norm},
               {LAYERS_EVERY, experts}}},
    {.name = "gemma3",
     .gguf = "gemma3",
     .about = "dense, sliding window in every other layer, tied output",
     .sizes = {SIZES(4, 64, 4, 2, 32, 128, 4096), [SIZE_SWA] = 32, [SIZE_PERIOD] = 2},
     .rope_base = 1e6,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys, window_keys},
     .parts = {{LAYERS_NONE, tied_embedding},
               {LAYERS_NONE, tied_output_norm},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, qk_norm},
               {LAYERS_EVERY, quiet_post_attn_norm},
               {LAYERS_EVERY, ffn_norm},
               {LAYERS_EVERY, ffn},
               {LAYERS_EVERY, post_ffn_norm}}},
    {.name = "gpt-oss",
     .gguf = "gpt-oss",
     .about = "mixture of experts, attention sinks, biases, sliding window in every other layer",
     .sizes = {SIZES(2, 64, 4, 2, 32, 64, 4096), [SIZE_EXPERTS] = 4, [SIZE_SWA] = 32, [SIZE_PERIOD] = 2},
     .rope_base = 150000,
     .keys = {model_keys, rms_keys, ffn_keys, moe_keys, attention_keys, window_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, qkv_bias},
               {LAYERS_EVERY, out_bias},
               {LAYERS_EVERY, sinks},
               {LAYERS_EVERY, post_attn_norm},
               {LAYERS_EVERY, experts},
               {LAYERS_EVERY, experts_bias}}},
    {.name = "qwen35",
     .gguf = "qwen35",
     .about = "hybrid: gated delta net, gated attention in every other layer, M-RoPE",
     .sizes = {SIZES(4, 64, 4, 2, 32, 128, 4096), [SIZE_PERIOD] = 2, [SIZE_ROTARY_PART] = 4, [SIZE_KERNEL] = 4,
               [SIZE_STATE] = 32, [SIZE_GROUPS] = 2},
     .rope_base = 1e7,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys, sections_keys, ssm_keys, delta_net_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_ATTENTION, gated_attention},
               {LAYERS_ATTENTION, qk_norm},
               {LAYERS_RECURRENT, delta_net},
               {LAYERS_EVERY, post_attn_norm},
               {LAYERS_EVERY, ffn}}},
    {.name = "qwen35-mtp",
     .gguf = "qwen35",
     .about = "the same with an MTP head",
     .sizes = {SIZES(4, 64, 4, 2, 32, 128, 4096), [SIZE_PERIOD] = 2, [SIZE_ROTARY_PART] = 4, [SIZE_KERNEL] = 4,
               [SIZE_STATE] = 32, [SIZE_GROUPS] = 2, [SIZE_MTP] = 1},
     .rope_base = 1e7,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys, sections_keys, ssm_keys, delta_net_keys, mtp_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_ATTENTION, gated_attention},
               {LAYERS_ATTENTION, qk_norm},
               {LAYERS_RECURRENT, delta_net},
               {LAYERS_EVERY, post_attn_norm},
               {LAYERS_EVERY, ffn},
               {LAYERS_MTP, mtp}}},
    {.name = "qwen35moe",
     .gguf = "qwen35moe",
     .about = "hybrid of experts: as qwen35, with an MTP head",
     .sizes = {SIZES(2, 64, 4, 2, 32, 64, 4096), [SIZE_EXPERTS] = 4, [SIZE_PERIOD] = 2, [SIZE_ROTARY_PART] = 4,
               [SIZE_KERNEL] = 4, [SIZE_STATE] = 32, [SIZE_GROUPS] = 2, [SIZE_MTP] = 1},
     .rope_base = 1e7,
     .keys = {model_keys, rms_keys, moe_keys, shared_expert_keys, attention_keys, sections_keys, ssm_keys,
              delta_net_keys, mtp_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_ATTENTION, gated_attention},
               {LAYERS_ATTENTION, qk_norm},
               {LAYERS_RECURRENT, delta_net},
               {LAYERS_EVERY, post_attn_norm},
               {LAYERS_EVERY, experts},
               {LAYERS_EVERY, qwen35_experts},
               {LAYERS_MTP, mtp}}},
    {.name = "glm4moe",
     .gguf = "glm4moe",
     .about = "mixture of experts, one of which all tokens share, with an MTP head",
     .sizes = {SIZES(2, 64, 4, 2, 32, 64, 4096), [SIZE_EXPERTS] = 4, [SIZE_MTP] = 1},
     .rope_base = 1e6,
     .keys = {model_keys, rms_keys, ffn_keys, moe_keys, attention_keys, glm_keys, mtp_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, qk_norm},
               {LAYERS_EVERY, post_attn_norm},
               {LAYERS_EVERY, experts},
               {LAYERS_EVERY, glm_experts},
               {LAYERS_MTP, mtp}}},
    {.name = "eagle3",
     .gguf = "eagle3",
     .about = "no model, but an EAGLE-3 head that guesses for llama",
     .sizes = {SIZES(1, 64, 4, 2, 32, 128, 4096)},
     .rope_base = 10000,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys, eagle_keys},
     .parts = {{LAYERS_NONE, eagle_model},
               {LAYERS_NONE, output_norm},
               {LAYERS_EVERY, eagle_layer},
               {LAYERS_EVERY, ffn_norm},
               {LAYERS_EVERY, ffn}}},
    {.name = "eagle3-own",
     .gguf = "eagle3",
     .about = "the same with an embedding and an output of its own",
     .sizes = {SIZES(1, 64, 4, 2, 32, 128, 4096)},
     .rope_base = 10000,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys, eagle_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, eagle_model},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, eagle_layer},
               {LAYERS_EVERY, ffn_norm},
               {LAYERS_EVERY, ffn}}},
    {.name = "falcon-h1",
     .gguf = "falcon-h1",
     .about = "hybrid: attention and Mamba-2 side by side in every layer",
     .sizes = {SIZES(2, 64, 4, 2, 32, 128, 4096), [SIZE_KERNEL] = 4, [SIZE_STATE] = 128, [SIZE_GROUPS] = 1},
     .rope_base = 1e11,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys, ssm_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, mamba2},
               {LAYERS_EVERY, falcon_ffn_norm},
               {LAYERS_EVERY, ffn}}},
    {.name = "lfm2",
     .gguf = "lfm2",
     .about = "hybrid: short convolutions, attention in every other layer, tied output",
     .sizes = {SIZES(4, 64, 2, 1, SIZE_DERIVED, 128, 4096), [SIZE_PERIOD] = 2, [SIZE_KERNEL] = 3},
     .square = true,
     .rope_base = 1e6,
     .keys = {model_keys, rms_keys, ffn_keys, lfm2_keys},
     .parts = {{LAYERS_NONE, tied_embedding},
               {LAYERS_NONE, lfm2_output_norm},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_ATTENTION, lfm2_attention},
               {LAYERS_ATTENTION, qk_norm},
               {LAYERS_RECURRENT, shortconv},
               {LAYERS_EVERY, ffn_norm},
               {LAYERS_EVERY, ffn}}},
    {.name = "mamba2",
     .gguf = "mamba2",
     .about = "recurrent, no attention",
     .sizes = {[SIZE_LAYERS] = 2,
               [SIZE_EMBD] = 64,
               [SIZE_CTX] = 4096,
               [SIZE_KERNEL] = 4,
               [SIZE_STATE] = 128,
               [SIZE_GROUPS] = 1},
     .keys = {model_keys, rms_keys, ssm_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, mamba2},
               {LAYERS_EVERY, mamba2_norm}}},
    {.name = "qwen2vl",
     .gguf = "qwen2vl",
     .about = "dense, M-RoPE (the text part of a vision model)",
     .sizes = {SIZES(2, 64, 2, 1, SIZE_DERIVED, 128, 4096)},
     .square = true,
     .rope_base = 1e6,
     .keys = {model_keys, rms_keys, ffn_keys, attention_keys, sections_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, output_norm},
               {LAYERS_NONE, output},
               {LAYERS_EVERY, attn_norm},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, qkv_bias},
               {LAYERS_EVERY, ffn_norm},
               {LAYERS_EVERY, ffn}}},
    {.name = "bert",
     .gguf = "bert",
     .about = "encoder: embeddings, the mean over the tokens",
     .sizes = {SIZES(2, 64, 2, SIZE_DERIVED, SIZE_DERIVED, 128, 512), [SIZE_TOKEN_TYPES] = 2},
     .square = true,
     .keys = {model_keys, ffn_keys, encoder_keys, mean_pooling_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, bert_embedding},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, qkv_bias},
               {LAYERS_EVERY, out_bias},
               {LAYERS_EVERY, bert_layer}}},
    {.name = "reranker",
     .gguf = "bert",
     .about = "encoder: bert with a head that gives one score for a query and a document",
     .sizes = {SIZES(2, 64, 2, SIZE_DERIVED, SIZE_DERIVED, 128, 512), [SIZE_TOKEN_TYPES] = 2},
     .square = true,
     .keys = {model_keys, ffn_keys, encoder_keys, rank_pooling_keys},
     .parts = {{LAYERS_NONE, embedding},
               {LAYERS_NONE, bert_embedding},
               {LAYERS_NONE, rank_head},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, qkv_bias},
               {LAYERS_EVERY, out_bias},
               {LAYERS_EVERY, bert_layer}}},
    {0},
};

/* ---- Lookup and sizes ---- */

const struct arch *arch_find(const char *name)
{
    for (const struct arch *arch = arch_table; arch->name != NULL; arch++) {
        if (!strcmp(arch->name, name)) return arch;
    }
    return NULL;
}

bool arch_layer_attends(const int64_t sizes[SIZE_COUNT], int64_t layer)
{
    bool is_head = layer >= sizes[SIZE_LAYERS];
    return is_head || sizes[SIZE_PERIOD] == 0 || (layer + 1) % sizes[SIZE_PERIOD] == 0;
}

/* Sizes from the options and the row, before anything is computed from them. */
static int take_defaults(const struct arch *arch, int64_t sizes[SIZE_COUNT], hearth_error *error)
{
    static const char *const options[SIZE_VOCAB] = {
        [SIZE_HEADS] = "heads", [SIZE_KV_HEADS] = "kv-heads", [SIZE_HEAD_DIM] = "head-dim",
        [SIZE_FF] = "ff",       [SIZE_EXPERTS] = "experts",   [SIZE_SWA] = "swa",
    };
    for (int i = 0; i < SIZE_VOCAB; i++) {
        if (sizes[i] != 0 && arch->sizes[i] == 0) {
            return error_at(error, HEARTH_INVALID, options[i], "%s has nothing that --%s could set: leave it out",
                            arch->name, options[i]);
        }
        if (sizes[i] == 0) sizes[i] = arch->sizes[i];
    }
    if (sizes[SIZE_KV_HEADS] == SIZE_DERIVED) sizes[SIZE_KV_HEADS] = sizes[SIZE_HEADS];
    if (sizes[SIZE_HEAD_DIM] == SIZE_DERIVED) sizes[SIZE_HEAD_DIM] = sizes[SIZE_EMBD] / sizes[SIZE_HEADS];
    return 0;
}

static int check_attention(const struct arch *arch, const int64_t sizes[SIZE_COUNT], hearth_error *error)
{
    int64_t heads = sizes[SIZE_HEADS], kv_heads = sizes[SIZE_KV_HEADS], head_dim = sizes[SIZE_HEAD_DIM];
    if (heads == 0) return 0;
    if (heads % kv_heads != 0) {
        return error_at(error, HEARTH_INVALID, "kv-heads", "--heads %lld is not a multiple of --kv-heads %lld",
                        (long long)heads, (long long)kv_heads);
    }
    if (head_dim < 8 || head_dim % 8 != 0) {
        return error_at(error, HEARTH_INVALID, "head-dim", "a head of %lld is no multiple of 8: change --head-dim",
                        (long long)head_dim);
    }
    if (arch->square && heads * head_dim != sizes[SIZE_EMBD]) {
        return error_at(error, HEARTH_INVALID, "head-dim", "%s needs --embd to be --heads x --head-dim", arch->name);
    }
    return 0;
}

static int check(const struct arch *arch, const int64_t sizes[SIZE_COUNT], hearth_error *error)
{
    if (sizes[SIZE_EMBD] % 32 != 0) {
        return error_at(error, HEARTH_INVALID, "embd", "--embd must be a multiple of 32");
    }
    if (sizes[SIZE_LAYERS] < sizes[SIZE_PERIOD]) {
        return error_at(error, HEARTH_INVALID, "layers", "%s needs --layers %lld or more to have both of its kinds",
                        arch->name, (long long)sizes[SIZE_PERIOD]);
    }
    return check_attention(arch, sizes, error);
}

int arch_resolve(const struct arch *arch, int64_t sizes[SIZE_COUNT], hearth_error *error)
{
    int code = take_defaults(arch, sizes, error);
    if (code == 0) code = check(arch, sizes, error);
    if (code != 0) return code;

    int64_t embd = sizes[SIZE_EMBD], head_dim = sizes[SIZE_HEAD_DIM];
    int64_t part = sizes[SIZE_ROTARY_PART] == 0 ? 1 : sizes[SIZE_ROTARY_PART];
    sizes[SIZE_ONE] = 1;
    sizes[SIZE_Q] = sizes[SIZE_HEADS] * head_dim;
    sizes[SIZE_Q_GATED] = 2 * sizes[SIZE_Q];
    sizes[SIZE_KV] = sizes[SIZE_KV_HEADS] * head_dim;
    sizes[SIZE_EXPERTS_USED] = sizes[SIZE_EXPERTS] < 2 ? sizes[SIZE_EXPERTS] : 2;
    sizes[SIZE_ROTARY] = head_dim / part;
    sizes[SIZE_BLOCKS] = sizes[SIZE_LAYERS] + sizes[SIZE_MTP];
    sizes[SIZE_EMBD_2] = 2 * embd;
    sizes[SIZE_EMBD_3] = 3 * embd;

    /* The inner width is twice the embedding's, as in the published models, in heads of 32. */
    int64_t both_bc = 2 * sizes[SIZE_GROUPS] * sizes[SIZE_STATE];
    sizes[SIZE_INNER] = 2 * embd;
    sizes[SIZE_SSM_HEADS] = sizes[SIZE_INNER] / 32;
    sizes[SIZE_INNER_GROUP] = sizes[SIZE_GROUPS] == 0 ? 0 : sizes[SIZE_INNER] / sizes[SIZE_GROUPS];
    sizes[SIZE_CONV] = sizes[SIZE_INNER] + both_bc;
    sizes[SIZE_SSM_IN] = sizes[SIZE_INNER] + sizes[SIZE_CONV] + sizes[SIZE_SSM_HEADS];
    return 0;
}
