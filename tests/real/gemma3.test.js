// A real model with a sliding window (512 positions in five of six layers) and a vocabulary of 262,144 tokens: Gemma 3 270M,
// a base model without a chat template, so all is completions. Texts here are twice as long as the window.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { serve, temporaryFolder } from '../e2e/lib/server.js';
import { all, realModel } from './lib/models.js';
import { asLikelyCachedAsCold, tokensOf } from './lib/perplexity.js';
import { prose } from './lib/text.js';

const { path: model, skip } = realModel('gemma3');
const start = (t, { disk = temporaryFolder(), ...models } = {}) => serve({ t, model, set: { 'cache.tiers.disk.path': disk },
  models: { n_seq_max: 2, context_window: 4096, ...models } });

// Turns of a text that grows: each sends all that was there, reply included, in tokens, and some more.
async function turns(client, count, more) {
  let tokens = await tokensOf(client, prose);
  const found = [];
  for (let turn = 0; turn < count; turn++) {
    const before = turn === 0 ? 0 : tokens.length;
    if (turn > 0) tokens = [...tokens, ...(await client.ask('/tokenize', { content: `\n\n${prose.slice(turn * 300, turn * 300 + 200)}`, add_special: false })).tokens];
    const reply = await client.ask('/completion', { prompt: tokens, n_predict: 16, temperature: 0, return_tokens: true, ignore_eos: true, ...more });
    assert.equal(reply.tokens.length, 16);
    assert.equal(reply.timings.cache_n + reply.timings.prompt_n, tokens.length);
    found.push({ before, cached: reply.timings.cache_n, prompt: tokens.length });
    tokens = [...tokens, ...reply.tokens];
  }
  return found;
}

describe('Gemma 3', { skip }, () => {
  let server, client;
  before(async () => {
    server = await start();
    client = server.client;
  });
  after(() => server?.stop());

  test('knows the capital of France', async () => {
    const { choices: [{ text }] } = await client.complete({ prompt: 'The capital of Spain is Madrid. The capital of France is', max_tokens: 8 });
    assert.match(text, /^ Paris/);
  });

  test('of a text that grows only what is new is computed, past the window', async () => {
    for (const { before, cached } of await turns(client, all ? 8 : 3)) {
      // The last token of a reply was sampled and never computed.
      assert.ok(cached >= before - 2, `${cached} of ${before}`);
    }
  });

  test('JSON by a schema', async () => {
    const properties = { name: { type: 'string', maxLength: 20 }, age: { type: 'integer', minimum: 0, maximum: 150 } };
    const schema = { type: 'object', properties, required: ['name', 'age'], additionalProperties: false };
    const { content } = await client.ask('/completion', { prompt: 'Alice is 31 years old. As JSON: ', n_predict: 60, temperature: 0, json_schema: schema });
    assert.deepEqual(JSON.parse(content), { name: 'Alice', age: 31 });
  });

  test('a stream has the text that comes without one', async () => {
    const body = { prompt: 'The sea is', max_tokens: 60, cache_prompt: false };
    const { choices: [{ text }] } = await client.complete(body);
    const stream = await client.streamed('/v1/completions', body);
    assert.ok(text.length > 40, text);
    assert.equal(stream.text, text);
  });

  test('text in other scripts goes through the vocabulary and back', async () => {
    for (const content of ['Où est le café ? Çà et là.', '日本語の文章です。', 'Привет, мир!', 'नमस्ते दुनिया', '🙂👩‍👩‍👧 a\tb\n\n  c']) {
      const { tokens } = await client.ask('/tokenize', { content, add_special: false });
      assert.equal((await client.ask('/detokenize', { tokens })).content, content);
    }
  });
});

describe('Gemma 3, what is cached', { skip }, () => {
  test('a text is as likely cached, and read back after a restart, as it is cold', (t) => asLikelyCachedAsCold(t, start));

  test('deterministic: a text that grows finds most of what was there, and goes on the same cached and cold', async (t) => {
    const server = await start(t, { deterministic: true });
    for (const { before, cached } of await turns(server.client, 2)) assert.ok(cached >= 0.8 * before, `${cached} of ${before}`);
    const tokens = await tokensOf(server.client, prose);
    const ask = (more) => server.client.ask('/completion', { prompt: tokens, n_predict: 24, temperature: 1, seed: 3, n_probs: 3, ignore_eos: true, ...more });
    const cold = await ask({ cache_prompt: false });
    await ask({ prompt: tokens.slice(0, 600) });
    for (let round = 0; round < 2; round++) {
      const warm = await ask();
      assert.ok(warm.timings.cache_n >= (round === 0 ? 512 : 900), `${warm.timings.cache_n} of ${tokens.length}`);
      assert.equal(warm.content, cold.content);
      assert.deepEqual(warm.completion_probabilities, cold.completion_probabilities);
    }
    await server.stop();
  });
});
