// Makes a GGUF file of all-MiniLM-L6-v2 as it is published: the weights as they are, 32 bits each, the vocabulary, and
// what config.json says. llama.cpp's own converter wants PyTorch; a file this simple needs nothing.
//
//   node minilm_gguf.js FOLDER FILE     FOLDER holds model.safetensors and vocab.txt

import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readSafetensors } from './safetensors.js';

export const shape = { layers: 6, embd: 384, heads: 12, ff: 1536, positions: 512, epsilon: 1e-12 };

// ---- The format ----

const u32 = (value) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const u64 = (value) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
const f32 = (value) => {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
};
const text = (value) => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);

// The numbers of the types are GGUF's.
const types = {
  u32: [4, u32],
  i32: [5, u32], // none is negative here
  f32: [6, f32],
  bool: [7, (value) => Buffer.from([value ? 1 : 0])],
  text: [8, text],
};
const value = (type, it) => {
  if (!Array.isArray(it)) return Buffer.concat([u32(types[type][0]), types[type][1](it)]);
  return Buffer.concat([u32(9), u32(types[type][0]), u64(it.length), ...it.map(types[type][1])]);
};

const alignment = 32;
const padded = (size) => Math.ceil(size / alignment) * alignment;

function writeGguf(path, keys, tensors) {
  const head = [Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(keys.length)];
  for (const [key, type, it] of keys) head.push(text(key), value(type, it));
  let offset = 0;
  for (const { name, shape: rows, values } of tensors) {
    const sizes = [...rows].reverse(); // the innermost first
    head.push(text(name), u32(sizes.length), ...sizes.map(u64), u32(0), u64(offset));
    offset += padded(values.byteLength);
  }
  const file = openSync(path, 'w');
  const put = (bytes) => {
    writeSync(file, bytes);
    writeSync(file, Buffer.alloc(padded(bytes.length) - bytes.length));
  };
  put(Buffer.concat(head));
  for (const { values } of tensors) put(Buffer.from(values.buffer, values.byteOffset, values.byteLength));
  closeSync(file);
}

// ---- The model ----

const special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'];
const control = 3, normal = 1;

// llama.cpp marks the beginning of a word, BERT's vocabulary that a piece goes on.
const piece = (word) => (special.includes(word) ? word : word.startsWith('##') ? word.slice(2) : `\u2581${word}`);

const parts = {
  'attention.self.query': 'attn_q',
  'attention.self.key': 'attn_k',
  'attention.self.value': 'attn_v',
  'attention.output.dense': 'attn_output',
  'attention.output.LayerNorm': 'attn_output_norm',
  'intermediate.dense': 'ffn_up',
  'output.dense': 'ffn_down',
  'output.LayerNorm': 'layer_output_norm',
};

// What each tensor of the file is called there, by its name in the weights.
function names() {
  const list = [
    ['embeddings.word_embeddings.weight', 'token_embd.weight'],
    ['embeddings.position_embeddings.weight', 'position_embd.weight'],
    ['embeddings.token_type_embeddings.weight', 'token_types.weight'],
    ['embeddings.LayerNorm.weight', 'token_embd_norm.weight'],
    ['embeddings.LayerNorm.bias', 'token_embd_norm.bias'],
  ];
  for (let layer = 0; layer < shape.layers; layer++) {
    for (const [from, to] of Object.entries(parts)) {
      for (const kind of ['weight', 'bias']) list.push([`encoder.layer.${layer}.${from}.${kind}`, `blk.${layer}.${to}.${kind}`]);
    }
  }
  return list;
}

export const readVocabulary = (folder) => readFileSync(join(folder, 'vocab.txt'), 'utf8').trimEnd().split('\n');

export function makeGguf(folder, path) {
  const weights = readSafetensors(join(folder, 'model.safetensors'));
  const words = readVocabulary(folder);
  const keys = [
    ['general.architecture', 'text', 'bert'],
    ['general.name', 'text', 'all-MiniLM-L6-v2'],
    ['general.file_type', 'u32', 0],
    ['bert.context_length', 'u32', shape.positions],
    ['bert.embedding_length', 'u32', shape.embd],
    ['bert.block_count', 'u32', shape.layers],
    ['bert.feed_forward_length', 'u32', shape.ff],
    ['bert.attention.head_count', 'u32', shape.heads],
    ['bert.attention.layer_norm_epsilon', 'f32', shape.epsilon],
    ['bert.attention.causal', 'bool', false],
    ['bert.pooling_type', 'u32', 1], // the mean
    ['tokenizer.ggml.model', 'text', 'bert'],
    ['tokenizer.ggml.pre', 'text', 'default'],
    ['tokenizer.ggml.token_type_count', 'u32', 2],
    ['tokenizer.ggml.tokens', 'text', words.map(piece)],
    ['tokenizer.ggml.token_type', 'i32', words.map((word) => (special.includes(word) ? control : normal))],
    ['tokenizer.ggml.bos_token_id', 'u32', words.indexOf('[CLS]')],
    ['tokenizer.ggml.seperator_token_id', 'u32', words.indexOf('[SEP]')], // spelt so
    ['tokenizer.ggml.unknown_token_id', 'u32', words.indexOf('[UNK]')],
    ['tokenizer.ggml.padding_token_id', 'u32', words.indexOf('[PAD]')],
    ['tokenizer.ggml.mask_token_id', 'u32', words.indexOf('[MASK]')],
  ];
  writeGguf(path, keys, names().map(([from, to]) => ({ name: to, ...weights.get(from) })));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) makeGguf(process.argv[2], process.argv[3]);
