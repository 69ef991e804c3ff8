// all-MiniLM-L6-v2 computed naively, from the weights as they are published: what llama.cpp and hearth are compared with.
// The tokenizer is BERT's as its authors wrote it (lower case, no accents, longest piece first), the network its six
// layers, the vector the mean over all tokens, of length 1.

import { join } from 'node:path';
import { readVocabulary, shape } from './minilm_gguf.js';
import { readSafetensors } from './safetensors.js';

// ---- Tokens ----

const chinese = [[0x4e00, 0x9fff], [0x3400, 0x4dbf], [0x20000, 0x2a6df], [0x2a700, 0x2b73f], [0x2b740, 0x2b81f],
  [0x2b820, 0x2ceaf], [0xf900, 0xfaff], [0x2f800, 0x2fa1f]];
const isChinese = (character) => chinese.some(([from, to]) => character.codePointAt(0) >= from && character.codePointAt(0) <= to);
const isPunctuation = (character) => /[!-/:-@[-`{-~]|\p{P}/u.test(character);

function words(text) {
  const clean = [...text].filter((c) => c !== '\0' && c !== '\ufffd' && (/[\t\n\r]/.test(c) || !/\p{C}/u.test(c)))
    .map((c) => (/\s/u.test(c) ? ' ' : isChinese(c) ? ` ${c} ` : c)).join('');
  const bare = [...clean.normalize('NFD')].filter((c) => !/\p{Mn}/u.test(c)).map((c) => c.toLowerCase()).join('');
  return [...bare].map((c) => (isPunctuation(c) ? ` ${c} ` : c)).join('').split(/\s+/u).filter(Boolean);
}

function pieces(word, ids) {
  const characters = [...word];
  if (characters.length > 100) return null;
  const found = [];
  for (let from = 0; from < characters.length;) {
    let to = characters.length, id;
    for (; to > from; to--) {
      id = ids.get((from > 0 ? '##' : '') + characters.slice(from, to).join(''));
      if (id !== undefined) break;
    }
    if (to === from) return null;
    found.push(id);
    from = to;
  }
  return found;
}

// ---- Numbers ----

// The error function, to 1.2e-7.
function erf(x) {
  const t = 1 / (1 + 0.5 * Math.abs(x));
  const polynomial = [0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223]
    .reduce((sum, factor) => sum * t + factor, 0);
  const rest = t * Math.exp(-x * x + polynomial);
  return x >= 0 ? 1 - rest : rest - 1;
}
const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2));

function multiply({ values, shape: [rows, columns] }, { values: bias }, input) {
  const output = new Float64Array(rows);
  for (let row = 0, at = 0; row < rows; row++) {
    let sum = bias[row];
    for (let column = 0; column < columns; column++, at++) sum += values[at] * input[column];
    output[row] = sum;
  }
  return output;
}

function normalize({ values: weight }, { values: bias }, input) {
  const mean = input.reduce((sum, x) => sum + x, 0) / input.length;
  const variance = input.reduce((sum, x) => sum + (x - mean) ** 2, 0) / input.length;
  const scale = 1 / Math.sqrt(variance + shape.epsilon);
  return input.map((x, i) => (x - mean) * scale * weight[i] + bias[i]);
}

const add = (a, b) => a.map((x, i) => x + b[i]);

function attend(queries, keys, values) {
  const size = shape.embd / shape.heads;
  return queries.map((query) => {
    const output = new Float64Array(shape.embd);
    for (let head = 0; head < shape.embd; head += size) {
      const scores = keys.map((key) => {
        let sum = 0;
        for (let i = head; i < head + size; i++) sum += query[i] * key[i];
        return sum / Math.sqrt(size);
      });
      const most = Math.max(...scores);
      const shares = scores.map((score) => Math.exp(score - most));
      const total = shares.reduce((sum, share) => sum + share, 0);
      values.forEach((value, at) => {
        for (let i = head; i < head + size; i++) output[i] += value[i] * shares[at] / total;
      });
    }
    return output;
  });
}

// ---- The model ----

export class MiniLM {
  constructor(folder) {
    this.weights = readSafetensors(join(folder, 'model.safetensors'));
    this.ids = new Map(readVocabulary(folder).map((word, id) => [word, id]));
  }

  tokens(text) {
    const unknown = [this.ids.get('[UNK]')];
    return [this.ids.get('[CLS]'), ...words(text).flatMap((word) => pieces(word, this.ids) ?? unknown), this.ids.get('[SEP]')];
  }

  row(name, index) {
    return this.weights.get(name).values.subarray(index * shape.embd, (index + 1) * shape.embd);
  }

  embed(tokens) {
    const part = (name) => [this.weights.get(`${name}.weight`), this.weights.get(`${name}.bias`)];
    let states = tokens.map((token, at) => normalize(...part('embeddings.LayerNorm'), add(add(
      Float64Array.from(this.row('embeddings.word_embeddings.weight', token)),
      this.row('embeddings.position_embeddings.weight', at)), this.row('embeddings.token_type_embeddings.weight', 0))));
    for (let layer = 0; layer < shape.layers; layer++) {
      const own = (name) => part(`encoder.layer.${layer}.${name}`);
      const [queries, keys, values] = ['query', 'key', 'value'].map((name) => {
        const matrix = own(`attention.self.${name}`);
        return states.map((state) => multiply(...matrix, state));
      });
      const [out, first, up, down, second] = ['attention.output.dense', 'attention.output.LayerNorm', 'intermediate.dense', 'output.dense', 'output.LayerNorm'].map(own);
      states = attend(queries, keys, values).map((mixed, at) => {
        const middle = normalize(...first, add(multiply(...out, mixed), states[at]));
        return normalize(...second, add(multiply(...down, multiply(...up, middle).map(gelu)), middle));
      });
    }
    const mean = states.reduce(add).map((x) => x / states.length);
    const length = Math.hypot(...mean);
    return mean.map((x) => x / length);
  }
}
