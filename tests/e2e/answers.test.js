// Large answers: they are made beside the HTTP thread and in pieces, so that whoever else asks is answered at once and
// little of them is in memory; and what comes is whole.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { Health } from './lib/health.js';
import { smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { Random, within } from './lib/wait.js';

const MiB = 1 << 20;
const isSanitized = ['ASAN_OPTIONS', 'TSAN_OPTIONS'].some((name) => name in process.env);
const tiny = { layers: 1, embd: 32, heads: 1, 'kv-heads': 1, 'head-dim': 32, ff: 32, ctx: 8192 };
const tokens = 200;
const choices = 8;
const native = { prompt: 'Once', n_predict: tokens, n_cmpl: choices, n_probs: 100, ignore_eos: true, temperature: 0, cache_prompt: false };
const random = new Random(44);
const text = Array.from({ length: 40000 }, () => String.fromCharCode(97 + random.below(26))).join(' ').repeat(2);

let server;
let health;
let quiet; // the slowest answer of /health while a plain request is answered

const status = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))[1]) * 1024;

before(async () => {
  server = await serve({ model: smallModel('llama', tiny), models: { n_seq_max: choices, queue_depth: 64, context_window: 8192 } });
  health = new Health(server.port);
  for (let i = 0; i < 3; i++) await server.client.complete({ prompt: 'Once', max_tokens: tokens, n: choices, ignore_eos: true });
  quiet = await health.slowest();
});

after(async () => {
  await health?.end();
  await server.stop();
});

// The answer of a request, which held up nobody else, and of which never much was in memory.
async function large(what, method, path, body, { bytes = 64 * MiB } = {}) {
  writeFileSync(`/proc/${server.pid}/clear_refs`, '5'); // the peak is that of now
  const before = status('VmRSS');
  await health.slowest();
  const reply = await within(120, what, server.client.fetch(method, path, { body }));
  const slowest = await health.slowest();
  const peak = status('VmHWM') - before;
  console.log(`${what}: ${(reply.text.length / MiB).toFixed(1)} MiB, ${(peak / MiB).toFixed(1)} MiB more memory, /health ${slowest.toFixed(0)} ms, ${quiet.toFixed(0)} ms when quiet`);
  assert.equal(reply.status, 200, reply.text.slice(0, 300));
  assert.ok(isSanitized || peak <= bytes, `${what} took ${(peak / MiB).toFixed(0)} MiB`);
  assert.ok(slowest <= 100 + 2 * quiet, `${what} held up /health for ${slowest.toFixed(0)} ms, ${quiet.toFixed(0)} ms when quiet`);
  return reply;
}

test('logprobs of many tokens, in the native form', async () => {
  const { json } = await large('native logprobs', 'POST', '/completion', native);
  assert.equal(json.length, choices);
  for (const choice of json) {
    assert.equal(choice.completion_probabilities.length, tokens);
    assert.ok(choice.completion_probabilities.every((one) => one.top_logprobs.length === 100));
  }
});

test('the same, with members that are selected', async () => {
  const paths = ['completion_probabilities', 'content', 'generation_settings/seed', 'tokens_predicted'];
  const { json } = await large('selected members', 'POST', '/completion', { ...native, response_fields: paths });
  for (const choice of json) {
    assert.deepEqual(Object.keys(choice), paths);
    assert.equal(choice.completion_probabilities.length, tokens);
  }
});

test('logprobs of a chat and of a completion with its prompt', async () => {
  const beside = { max_tokens: tokens, n: choices, ignore_eos: true, temperature: 0 };
  const chat = await large('a chat', 'POST', '/v1/chat/completions', { ...beside, messages: [{ role: 'user', content: 'Hi' }], logprobs: true, top_logprobs: 20 });
  assert.ok(chat.json.choices.every((choice) => choice.logprobs.content.length === tokens));
  const echo = await large('an echo', 'POST', '/v1/completions', { ...beside, prompt: text.slice(0, 4000), echo: true, logprobs: 20 });
  assert.ok(echo.json.choices.every((choice) => choice.logprobs.tokens.length === choice.logprobs.top_logprobs.length && choice.logprobs.tokens.length > 1000));
});

test('tokens and their text', async () => {
  const { json } = await large('tokens', 'POST', '/tokenize', { content: text, with_pieces: true });
  assert.equal(json.tokens.map((token) => token.piece).join('').trim(), text);
  const back = await large('text', 'POST', '/detokenize', { tokens: json.tokens.map((token) => token.id) });
  assert.equal(back.json.content.trim(), text);
});

test('settings of which an answer repeats much', async () => {
  const rules = Array.from({ length: 20000 }, (_, i) => `r${i} ::= "b"`).join('\n');
  const { json } = await large('a grammar', 'POST', '/completion', { prompt: 'Once', n_predict: 1, grammar: `root ::= "a"\n${rules}` });
  assert.equal(json.content, 'a');
});

test('conversations of many items', async () => {
  const items = Array.from({ length: 3000 }, () => ({ role: 'user', content: [{ type: 'input_text', text: 'z'.repeat(2000) }] }));
  const { client } = server;
  const { id } = (await client.post('/v1/conversations', {})).json;
  const path = `/v1/conversations/${id}`;
  const added = await large('items added', 'POST', `${path}/items`, { items });
  assert.equal(added.json.data.length, items.length);
  const page = await large('a page of items', 'GET', `${path}/items?limit=100`);
  assert.equal(page.json.data.length, 100);
  const [{ id: item }] = page.json.data;
  await large('an item', 'GET', `${path}/items/${item}`);
  await large('an item deleted', 'DELETE', `${path}/items/${item}`);
  assert.equal((await client.get(`${path}/items/${item}`)).status, 404);
  await large('the conversation deleted', 'DELETE', path);
});

test('more logprobs than an answer may hold end it with an error that says so', async () => {
  const many = { ...native, n_predict: 4000, n_cmpl: choices };
  const { status: got, json } = await server.client.post('/completion', many);
  assert.equal(got, 400);
  assert.match(json.error.message, /logprobs of the answer take more than 64 MiB.*stream/);
});
