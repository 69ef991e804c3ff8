// Forty conversations with a trained model, each with a code of its own that only its prompt tells: from the cells, from the
// store after a restart, and with a prefix that slots share at once, it answers as it does without a cache. A wrong or
// lost part of a prompt shows as a wrong code, or as none.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { generator, pick } from './lib/random.js';
import { serve, temporaryFolder } from './lib/server.js';
import { saved } from './lib/store.js';

const N = 40;
const random = generator(40);
const codes = [...'x'.repeat(N)].map(() => Array.from({ length: 5 }, () => pick(random, [...'ABCDEFGHJKLMNPQRSTUVWXYZ23456789'])).join(''));
const question = { role: 'user', content: 'What is the secret code?' };

const ask = async (server, messages, more) => {
  const { choices: [{ message: { content } }], timings } = await server.client.chat({ messages, temperature: 0, max_tokens: 40, ...more });
  return { content, cached: timings.cache_n };
};
const uncached = { cache_prompt: false };

// All at once, as many at a time as the server has slots.
const each = async (list, work) => {
  const results = [];
  let next = 0;
  await Promise.all(Array.from({ length: 4 }, async () => {
    for (let i = next++; i < list.length; i = next++) results[i] = await work(list[i], i);
  }));
  return results;
};

const start = (t, disk) => serve({ t, set: { 'cache.tiers.disk.path': disk } });

// The answers with what was cached, beside those without a cache: the same, and most of them right.
function compare(cached, cold, least) {
  for (const [i, { content, cached: n }] of cached.entries()) {
    assert.equal(content, cold[i].content, codes[i]);
    assert.ok(n >= least, `${n} tokens of conversation ${i} were cached`);
  }
  const right = cached.filter(({ content }, i) => content.includes(codes[i])).length;
  assert.ok(right >= N - 1, `${right} of ${N} codes are right`);
}

test('from the cells, and after a restart from the store', async (t) => {
  const disk = temporaryFolder();
  let server = await start(t, disk);
  const begun = codes.map((code) => [{ role: 'system', content: `The secret code is ${code}.` }, { role: 'user', content: 'Hello.' }]);
  const talks = await each(begun, async (messages) => [...messages, { role: 'assistant', content: (await ask(server, messages)).content }, question]);
  compare(await each(talks, (talk) => ask(server, talk)), await each(talks, (talk) => ask(server, talk, uncached)), 20);
  await saved(server);
  await server.stop();
  server = await start(t, disk);
  compare(await each(talks, (talk) => ask(server, talk)), await each(talks, (talk) => ask(server, talk, uncached)), 20);
  await server.stop();
});

test('with a system prompt that slots share at once', async (t) => {
  const server = await start(t, temporaryFolder());
  const system = { role: 'system', content: 'You are a helpful assistant. Answer in a short sentence.' };
  const talks = codes.map((code) => [system, { role: 'user', content: `The secret code is ${code}.` }, { role: 'assistant', content: 'I will remember it.' }, question]);
  await ask(server, talks[0]);
  compare(await each(talks, (talk) => ask(server, talk)), await each(talks, (talk) => ask(server, talk, uncached)), 8);
  await server.stop();
});
