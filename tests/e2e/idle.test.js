// Idle conversations that leave the KV cells because others are computed: they come back from the store, and say what
// they would have said had they stayed.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { serve } from './lib/server.js';
import { Talk } from './lib/store.js';
import { until } from './lib/wait.js';

const left = (server) => server.client.metric('hearth_idle_evictions_total');
const hits = (server) => server.client.metric('hearth_cache_hits_longest_prefix_total');

const resident = async (server) => (await server.client.get('/cache')).json.resident;

async function twoTurns(t, idle) {
  const server = await serve({ t, models: { idle_conversations: idle, n_seq_max: 2 } });
  const talk = new Talk();
  const first = await talk.say(server, 300);
  await until('it is resident and idle', async () => {
    const [{ state, slot_id, tokens, own_tokens }] = await resident(server);
    assert.deepEqual({ state, slot_id, tokens, own_tokens }, { state: 'idle', slot_id: -1, tokens: 315, own_tokens: 315 });
    return true;
  });
  for (let seed = 2; idle === 'leave' && await left(server) === 0; seed += 1) { // once it is stored, and others compute
    assert.ok(seed < 200, 'the conversation does not leave');
    await new Talk({ cache_prompt: false }).say(server, 20, { seed });
  }
  const second = await talk.say(server, 20);
  const seen = { said: [first.text, second.text], cached: second.cached, hits: await hits(server), evictions: await left(server) };
  await server.stop();
  return seen;
}

test('a conversation that left comes back from the store and says the same', async (t) => {
  const stayed = await twoTurns(t, 'stay');
  assert.deepEqual([stayed.cached, stayed.hits, stayed.evictions], [315, 0, 0]); // all but the last token
  assert.deepEqual(await twoTurns(t, 'leave'), { ...stayed, hits: 1, evictions: 1 });
});

test('by default nothing leaves a user who is alone', async (t) => {
  const server = await serve({ t, models: { idle_conversations: 'auto' } });
  const talk = new Talk();
  for (let turn = 0; turn < 6; turn += 1) await talk.say(server, 100);
  assert.deepEqual([await left(server), await hits(server)], [0, 0]);
  await server.stop();
});
