// Drafts: calls that compute several tokens of a reply. The text is the one without, they can be turned off, and what
// others were answered is no source under another salt.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { demo } from './lib/models.js';
import { serve } from './lib/server.js';

let server;

before(async () => {
  server = await serve({ model: demo, models: { n_seq_max: 2, cache_min_tokens: 0 } });
});
after(() => server.stop());

const question = 'Write a list of ten animals, and say of each where it lives.';
const ask = (more) => server.client.chat({ messages: [{ role: 'user', content: question }], max_tokens: 150, temperature: 0, ignore_eos: true, ...more });
const drafted = async (source) => {
  const { text } = await server.client.fetch('GET', '/metrics');
  return Number(new RegExp(`^hearth_drafted_tokens_${source}_total\\{[^}]*\\} (\\d+)`, 'm').exec(text)[1]);
};

test('a reply that is given again is drafted, and is the same', async () => {
  const plain = await ask({ 'speculative.n_max': 0 });
  assert.equal(plain.timings.draft_n, undefined);
  let accepted = 0;
  for (let i = 0; i < 8; i++) {
    const reply = await ask();
    assert.equal(reply.choices[0].message.content, plain.choices[0].message.content);
    assert.equal(reply.usage.completion_tokens, plain.usage.completion_tokens);
    assert.ok((reply.timings.draft_n_accepted ?? 0) <= (reply.timings.draft_n ?? 0));
    accepted += reply.timings.draft_n_accepted ?? 0;
  }
  assert.ok(accepted > 0, 'no draft was right');
  assert.ok((await drafted('store')) > 0);
});

test('under another salt nothing is drafted from it', async () => {
  const before = await drafted('store');
  for (let i = 0; i < 4; i++) await ask({ cache_salt: `salt ${i}` });
  for (let i = 0; i < 4; i++) await ask({ cache_prompt: false });
  assert.equal(await drafted('store'), before);
});

test('a field of the wrong type is refused by its name', async () => {
  const error = await server.client.refused(400, '/v1/chat/completions', {
    messages: [{ role: 'user', content: question }], 'speculative.n_max': 'many',
  });
  assert.match(error.message, /speculative\.n_max/);
});

test('a source that there is not ends the start with the name of its key', async () => {
  await assert.rejects(
    serve({ model: demo, models: { 'draft.sources': '[oracle]' } }),
    /draft\.sources: 'oracle' is none of/,
  );
});
