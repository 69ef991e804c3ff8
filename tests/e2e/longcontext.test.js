// Windows longer than the model was trained for: with stretched positions they are served to their end, without they are
// lowered to what it was trained for.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { smallModel } from './lib/models.js';
import { peer } from './lib/peer.js';
import { modelName, serve, temporaryFolder } from './lib/server.js';
import { tokens } from './lib/wait.js';

const trained = 256;
const window = 4 * trained;
const model = smallModel('llama', { ctx: trained });
const name = modelName(model);
const body = (count, more) => ({ prompt: tokens(count, 120), max_tokens: 8, ignore_eos: true, temperature: 0, ...more });
const textOf = (reply) => reply.choices[0].text;

test('a larger window without stretching is lowered to the trained one, and the log says so', async (t) => {
  const server = await serve({ t, model, models: { context_window: 1024 } });
  await server.says(new RegExp(`warn +model: context_window lowered to .*rope_scaling.* model=${name} context_window=1024 trained=256`));
  const { data: [told] } = (await server.client.get('/v1/models')).json;
  assert.equal(told.context_window, trained);
  const error = await server.client.refused(400, '/v1/completions', body(trained));
  assert.match(error.message, /256.*the model was trained for no more/);
  await server.stop();
});

test('up to the trained window nothing is needed', async (t) => {
  const server = await serve({ t, model, models: { context_window: trained } });
  assert.equal((await server.client.complete(body(trained - 1))).usage.completion_tokens, 1);
  await server.stop();
});

for (const [how, keys] of Object.entries({
  yarn: { rope_scaling: 'yarn' },
  linear: { rope_scaling: 'linear' },
  'yarn, all of its numbers given': {
    rope_scaling: 'yarn', rope_freq_base: 10000, rope_freq_scale: 0.25, yarn_ext_factor: 1, yarn_attn_factor: 1, yarn_beta_fast: 32,
    yarn_beta_slow: 1, yarn_orig_ctx: trained,
  },
})) {
  describe(how, () => {
    let server;
    let client;
    const disk = temporaryFolder();
    const start = () => serve({
      model, set: { 'cache.tiers.disk.path': disk }, models: { context_window: window, n_seq_max: 2, deterministic: true, ...keys },
    });
    before(async () => {
      server = await start();
      client = server.client;
    });
    after(() => server.stop());

    test('/v1/models, /props and /slots tell the window, and for how much it was trained', async () => {
      const { data: [told] } = (await client.get('/v1/models')).json;
      assert.equal(told.context_window, window);
      assert.deepEqual([told.meta.n_ctx, told.meta.n_ctx_train], [window, trained]);
      assert.equal((await client.get('/props')).json.default_generation_settings.n_ctx, window);
      assert.ok((await client.slots()).every((slot) => slot.n_ctx === window));
    });

    test('prompts beyond the trained window are served, to the end of the window', async () => {
      for (const count of [trained, trained + 1, window - 9, window - 1]) {
        const reply = await client.complete(body(count));
        assert.equal(reply.usage.prompt_tokens, count);
        assert.equal(reply.usage.completion_tokens, Math.min(8, window - count));
        assert.equal(reply.choices[0].finish_reason, 'length');
      }
      const error = await client.refused(400, '/v1/completions', body(window));
      assert.equal(error.code, 'context_length_exceeded');
      assert.match(error.message, /\b1024\b/);
    });

    test('a reply grows across the trained window', async () => {
      const reply = await client.complete(body(trained - 20, { max_tokens: 300 }));
      assert.equal(reply.usage.completion_tokens, 300);
    });

    test('two long prompts at once are what they are alone', async () => {
      const rows = [body(900, { cache_prompt: false }), body(700, { prompt: tokens(700, 121), cache_prompt: false })];
      const alone = [];
      for (const row of rows) alone.push(textOf(await client.complete(row)));
      const together = await Promise.all(rows.map((row) => client.complete(row)));
      assert.deepEqual(together.map(textOf), alone);
    });

    test('what was computed beyond it is found again, also after a restart', async () => {
      const long = body(800, { prompt: tokens(800, 122) });
      const cold = await client.complete({ ...long, cache_prompt: false });
      await client.complete(long);
      const warm = await client.complete(long);
      assert.ok(warm.timings.cache_n >= 700, `${warm.timings.cache_n} cached`);
      assert.equal(textOf(warm), textOf(cold));
      await server.stop();
      server = await start();
      client = server.client;
      const restored = await client.complete(long);
      assert.ok(restored.timings.cache_n >= 700, `${restored.timings.cache_n} restored`);
      assert.equal(textOf(restored), textOf(cold));
    });
  });
}

test('each stretch says something else, and none takes over what another has stored', async (t) => {
  const disk = { 'cache.tiers.disk.path': temporaryFolder() };
  const texts = new Set();
  const prompt = tokens(200, 124);
  const ways = [{ context_window: trained }, { context_window: window, rope_scaling: 'yarn' }, { context_window: 512, rope_scaling: 'yarn' },
    { context_window: window, rope_scaling: 'linear' }, { context_window: window, rope_scaling: 'yarn', yarn_ext_factor: 0, yarn_attn_factor: 2 }];
  for (const models of ways) {
    const server = await serve({ t, model, set: disk, models });
    const reply = await server.client.complete(body(200, { prompt }));
    assert.equal(reply.timings.cache_n, 0, JSON.stringify(models));
    texts.add(textOf(reply));
    await server.stop();
  }
  assert.equal(texts.size, ways.length);
});

test('the text is that of llama-server with the same stretch', async (t) => {
  const server = await serve({ t, model, models: { context_window: window, rope_scaling: 'yarn' } });
  const other = await peer(t, model, ['-c', String(window), '-np', '1', '--rope-scaling', 'yarn', '--rope-scale', '4', '--yarn-orig-ctx', String(trained)]);
  for (const count of [100, 500, 1000]) {
    const request = { prompt: tokens(count, 124), n_predict: 12, temperature: 0, ignore_eos: true, return_tokens: true };
    const [ours, theirs] = [await server.client.ask('/completion', request), await other.ask('/completion', request)];
    assert.deepEqual(ours.tokens, theirs.tokens, `${count} tokens`);
  }
  await server.stop();
});
