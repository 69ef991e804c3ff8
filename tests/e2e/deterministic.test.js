// `deterministic: true`: the reply depends on the prompt alone, not on what is cached or on who else is there.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { tokens } from './lib/wait.js';

for (const arch of ['llama', 'qwen3']) {
  describe(`deterministic replies, ${arch}`, () => {
    let server;
    before(async () => {
      server = await serve({
        model: smallModel(arch),
        models: { n_seq_max: 4, context_window: 2048, n_batch: 512, n_ubatch: 128, deterministic: true },
      });
    });
    after(() => server.stop());

    const prompt = tokens(1111, 31);
    // Sampled hot, so that a small difference of the logits soon shows.
    const body = { prompt, temperature: 1.2, top_p: 1, seed: 77, max_tokens: 120, ignore_eos: true };
    const ask = (more) => server.client.complete({ ...body, ...more });
    const check = (reply, expected) => {
      assert.equal(reply.choices[0].text, expected.choices[0].text);
      assert.equal(reply.choices[0].finish_reason, expected.choices[0].finish_reason);
      assert.equal(reply.usage.completion_tokens, 120);
      assert.equal(reply.timings.cache_n + reply.timings.prompt_n, prompt.length);
    };

    test('cold, warm, after a shorter prefix, and in company', async () => {
      const cold = await ask();
      assert.equal(cold.timings.cache_n, 0);
      check(cold, cold);

      const warm = await ask();
      assert.ok(warm.timings.cache_n > 0, 'the second run finds the prompt cached');
      check(warm, cold);

      check(await ask({ cache_prompt: false }), cold);

      // Leaves a slot that shares only a part, ending at an odd place.
      await ask({ prompt: [...prompt.slice(0, 777), ...tokens(50, 5)], max_tokens: 3 });
      check(await ask(), cold);

      let running = true;
      let turns = 0;
      const company = [41, 42, 43].map(async (seed) => {
        while (running) {
          await server.client.complete({ prompt: tokens(60 + seed * 5, seed + turns * 10), max_tokens: 20 });
          turns++;
        }
      });
      await server.client.busy(2);
      for (let i = 0; i < 3; i++) check(await ask({ cache_prompt: i > 0 }), cold);
      running = false;
      await Promise.all(company);
      assert.ok(turns >= 3, `${turns} other requests ran meanwhile`);
    });

    test('several choices with a seed, twice', async () => {
      const choices = async () => (await ask({ prompt: prompt.slice(0, 100), n: 4, max_tokens: 40 })).choices
        .map((choice) => choice.text);
      const first = await choices();
      assert.equal(new Set(first).size, 4, 'four choices are not four copies');
      assert.deepEqual(await choices(), first);
    });

    test('the growing turns of a conversation', async () => {
      const start = tokens(300, 51);
      const turns = [300, 420, 555, 701];
      const whole = [...start, ...tokens(500, 52)];
      const greedy = (count, cache_prompt) => server.client.complete({
        prompt: whole.slice(0, count), max_tokens: 40, ignore_eos: true, cache_prompt,
      });
      const cold = [];
      for (const count of turns) cold.push((await greedy(count, false)).choices[0].text);
      for (const [i, count] of turns.entries()) {
        const warm = await greedy(count, true);
        assert.equal(warm.choices[0].text, cold[i], `the turn at ${count} tokens`);
        if (i > 0) assert.ok(warm.timings.cache_n > 0);
      }
    });
  });
}
