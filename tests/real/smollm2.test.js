// A real chat model, SmolLM2-135M-Instruct: it answers as it should, and does so whatever of the prompt is cached.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { serve, temporaryFolder } from '../e2e/lib/server.js';
import { all, realModel } from './lib/models.js';
import { asLikelyCachedAsCold, grown, scored, tokensOf } from './lib/perplexity.js';
import { prose } from './lib/text.js';

const { path: model, skip } = realModel('smollm2');
const user = (content) => ({ role: 'user', content });
const start = (t, { disk = temporaryFolder(), ...models } = {}) => serve({ t, model, set: { 'cache.tiers.disk.path': disk },
  models: { n_seq_max: 2, context_window: 4096, ...models } });

describe('SmolLM2', { skip }, () => {
  let server, client;
  before(async () => {
    server = await start();
    client = server.client;
  });
  after(() => server?.stop());

  // Asked without more, its two likeliest first words are 0.08 apart, and which one comes depends on the processor.
  test('knows the capital of France', async () => {
    const messages = [{ role: 'system', content: 'You answer in one short English sentence.' }, user('What is the capital of France?')];
    const { choices: [{ message, finish_reason }] } = await client.chat({ messages, max_tokens: 60 });
    assert.match(message.content, /Paris/);
    assert.equal(finish_reason, 'stop');
  });

  test('a second turn takes all that was said from the cache', async () => {
    const messages = [{ role: 'system', content: `You answer questions about this text:\n${prose}` }, user('Who is Lizzy?')];
    const first = await client.chat({ messages, max_tokens: 40 });
    assert.ok(first.usage.prompt_tokens > 1000, `${first.usage.prompt_tokens} tokens`);
    messages.push(first.choices[0].message, user('And who is Mr. Bingley?'));
    const second = await client.chat({ messages, max_tokens: 40 });
    const { cached_tokens: cached } = second.usage.prompt_tokens_details;
    // The last token of a reply is sampled but not yet computed; one whose end marker came has computed all before that.
    assert.ok(cached >= first.usage.total_tokens - 2, `${cached} of ${first.usage.total_tokens}`);
    assert.equal(cached, second.timings.cache_n);
    assert.equal(cached + second.timings.prompt_n, second.usage.prompt_tokens);
  });

  test('JSON mode gives JSON, and a schema what it says', async () => {
    const ask = async (response_format) => {
      const { choices: [{ message, finish_reason }] } = await client.chat({ response_format, max_tokens: 400,
        messages: [user('Give me the name, the capital and the population of France as a JSON object.')] });
      assert.equal(finish_reason, 'stop', message.content);
      return JSON.parse(message.content);
    };
    assert.equal(typeof await ask({ type: 'json_object' }), 'object');
    const properties = { name: { type: 'string', maxLength: 40 }, capital: { type: 'string', maxLength: 40 }, population: { type: 'integer', minimum: 0, maximum: 1e9 } };
    const schema = { type: 'object', properties, required: Object.keys(properties), additionalProperties: false };
    const country = await ask({ type: 'json_schema', json_schema: { name: 'country', strict: true, schema } });
    assert.deepEqual(Object.keys(country), Object.keys(properties));
    assert.match(country.capital, /Paris/);
    assert.ok(Number.isInteger(country.population));
  });

  test('a stream has the text that comes without one', async () => {
    const body = { messages: [user('Write two sentences about the sea.')], max_tokens: 80, cache_prompt: false };
    const { choices: [{ message, finish_reason }] } = await client.chat(body);
    const stream = await client.streamed('/v1/chat/completions', body);
    assert.ok(message.content.length > 40, message.content);
    assert.equal(stream.text, message.content);
    assert.equal(stream.finish[0], finish_reason);
  });
});

describe('SmolLM2, what is cached', { skip }, () => {
  test('deterministic: a reply is the same cached and cold', async (t) => {
    const server = await start(t, { deterministic: true });
    const { client } = server;
    const messages = [user(`${prose.slice(0, 1000)}\n\nHow does this story go on?`)];
    const ask = (more) => client.chat({ messages, temperature: 1, seed: 5, max_tokens: all ? 400 : 40, ...more });
    const cold = await ask();
    assert.equal(cold.timings.cache_n, 0);
    for (const more of [{}, { cache_prompt: false }, {}]) {
      const reply = await ask(more);
      assert.equal(reply.choices[0].message.content, cold.choices[0].message.content);
      if (more.cache_prompt === false) assert.equal(reply.timings.cache_n, 0);
      else assert.ok(reply.timings.cache_n >= cold.usage.prompt_tokens - 128, `${reply.timings.cache_n} of ${cold.usage.prompt_tokens}`);
    }

    await server.stop();
  });

  test('deterministic: every logprob is the same cold, cached, and read back after a restart', async (t) => {
    const disk = temporaryFolder();
    const first = await start(t, { disk, deterministic: true });
    const tokens = (await tokensOf(first.client, prose)).slice(0, all ? 1000 : 264);
    const from = tokens.length - (all ? 80 : 12); // past a multiple of 64, where pieces end
    const whole = await scored(first.client, tokens, 1);
    const each = await grown(first.client, tokens, from, { cache_prompt: false });
    assert.ok(each.cached.every((n) => n === 0));
    await first.client.complete({ prompt: tokens, max_tokens: 1 });
    const warm = await grown(first.client, tokens, from);
    assert.deepEqual(warm.logprobs, each.logprobs);
    assert.ok(warm.cached.every((n, i) => n >= from + i - 64), `${warm.cached}`);
    assert.deepEqual(await scored(first.client, tokens, 1), whole);
    await first.stop();

    const second = await start(t, { disk, deterministic: true });
    const read = await grown(second.client, tokens, from);
    assert.deepEqual(read.logprobs, each.logprobs);
    assert.ok(read.cached.every((n, i) => n >= from + i - 64), `${read.cached}`);
    await second.stop();
  });

  test('a text is as likely cached, and read back after a restart, as it is cold', (t) => asLikelyCachedAsCold(t, start));
});
