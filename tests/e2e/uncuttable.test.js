// Models whose cells cannot be cut at any place, recurrent states and sliding windows: a prompt that parts from an earlier
// one goes on from the nearest place that is remembered, never from zero.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { tokens } from './lib/wait.js';

const length = 200;
// How far before the end the later prompt parts from the first (80: they share 120 of 200), and how many tokens of it may
// be computed. A prompt without messages is remembered 16 and 64 tokens before its end, and in its middle.
const partings = [[2, 16], [10, 16], [50, 64], [80, 100], [100, 100]];

const noAttention = { heads: undefined, 'kv-heads': undefined, 'head-dim': undefined, ff: undefined };

for (const arch of ['qwen35', 'falcon-h1', 'lfm2', 'mamba2', 'gemma3', 'gpt-oss']) {
  for (const layout of ['one pool', 'a stream each']) {
    describe(`${arch}, ${layout}`, () => {
      let server;
      before(async () => {
        const models = {
          n_seq_max: 2, context_window: 512, cache_min_tokens: 0, kv_unified: layout === 'one pool',
        };
        server = await serve({ model: smallModel(arch, arch === 'mamba2' ? noAttention : {}), models });
      });
      after(() => server.stop());

      const ask = async (prompt) => {
        const reply = await server.client.complete({ prompt, temperature: 0, max_tokens: 8, ignore_eos: true });
        assert.equal(reply.timings.cache_n + reply.timings.prompt_n, prompt.length);
        return reply.timings.prompt_n;
      };

      test('tokens computed by where two prompts part', async (t) => {
        const computed = [];
        for (const [beforeEnd, most] of partings) {
          const first = tokens(length, 100 + beforeEnd);
          assert.equal(await ask(first), length);
          const n = await ask([...first.slice(0, length - beforeEnd), ...tokens(beforeEnd, 7)]);
          assert.ok(n >= beforeEnd && n <= most, `${n} tokens computed, parting ${beforeEnd} before the end`);
          computed.push(`${beforeEnd} before the end: ${n}`);
        }
        t.diagnostic(`${arch}, ${layout}, computed of ${length} when parting ${computed.join(', ')}`);
      });

      test('the turn after a reply that the template writes otherwise', async (t) => {
        const first = tokens(length, 5);
        await ask(first);
        const n = await ask([...first, ...tokens(20, 6)]);
        assert.ok(n <= 20 + 16, `${n} tokens computed`);
        t.diagnostic(`${arch}, ${layout}, computed of ${length + 20} in the next turn: ${n}`);
      });
    });
  }
}

describe('gemma3, where the cells are full of earlier conversations', () => {
  let server;
  before(async () => {
    server = await serve({ model: smallModel('gemma3'), models: { n_seq_max: 1, context_window: 2048, kv_unified: true } });
  });
  after(() => server.stop());

  test('one prompt takes one cut, which is one restore at most', async () => {
    const restored = () => server.client.metric('hearth_states_restored_total');
    for (let i = 0; i < 4; i++) {
      const before = await restored();
      await server.client.complete({ prompt: tokens(1500, i), temperature: 0, max_tokens: 1 });
      const n = await restored() - before;
      assert.ok(n <= 1, `prompt ${i}: ${n} restores`);
    }
  });
});
