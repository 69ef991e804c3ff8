// Models that are offered where somebody looks for one, the smallest first. To change the list change this file: `ref` is
// what `hearth pull` takes, `gb` what is fetched, in GB, and `memory` what a machine should have, in GB.

export const suggestions = [
  { name: 'Qwen3 0.6B', ref: 'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0', gb: 0.6, memory: 2, what: 'small answers, tools' },
  { name: 'Qwen3 1.7B', ref: 'hf:Qwen/Qwen3-1.7B-GGUF:Q8_0', gb: 1.8, memory: 4, what: 'chat, tools, reasoning' },
  { name: 'Gemma 3 4B', ref: 'hf:ggml-org/gemma-3-4b-it-GGUF:Q4_K_M', gb: 3.3, memory: 8, what: 'chat, images, many languages' },
  { name: 'Qwen3 4B', ref: 'hf:Qwen/Qwen3-4B-GGUF:Q4_K_M', gb: 2.5, memory: 8, what: 'chat, tools, reasoning' },
  { name: 'Qwen3 8B', ref: 'hf:Qwen/Qwen3-8B-GGUF:Q4_K_M', gb: 5.0, memory: 12, what: 'chat, tools, reasoning' },
  { name: 'Gemma 3 12B', ref: 'hf:ggml-org/gemma-3-12b-it-GGUF:Q4_K_M', gb: 8.2, memory: 16, what: 'chat, images, many languages' },
  { name: 'Qwen3 14B', ref: 'hf:Qwen/Qwen3-14B-GGUF:Q4_K_M', gb: 9.0, memory: 16, what: 'agents, code' },
  { name: 'gpt-oss 20B', ref: 'hf:ggml-org/gpt-oss-20b-GGUF', gb: 12.1, memory: 24, what: 'agents, reasoning; fast for its size' },
  { name: 'Qwen3 30B-A3B', ref: 'hf:Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M', gb: 18.6, memory: 32, what: 'agents, code; fast for its size' },
  { name: 'Gemma 3 27B', ref: 'hf:ggml-org/gemma-3-27b-it-GGUF:Q4_K_M', gb: 17.4, memory: 32, what: 'chat, images, many languages' },
  { name: 'Qwen3 32B', ref: 'hf:Qwen/Qwen3-32B-GGUF:Q4_K_M', gb: 19.8, memory: 32, what: 'agents, code' },
  { name: 'gpt-oss 120B', ref: 'hf:ggml-org/gpt-oss-120b-GGUF', gb: 63.4, memory: 96, what: 'agents, reasoning' },
];
