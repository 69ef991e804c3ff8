// Whose states are whose: other weights, other kinds of cells and other salts share nothing, whatever lies in the same
// folder. And models whose cells cannot be cut at any place, over a restart.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { noAttention, smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { Talk, cacheOf, counted, intact, killed, lettersOnly, saved, slabsIn } from './lib/store.js';
import { tokens } from './lib/wait.js';

const window = { context_window: 1024, n_seq_max: 2, cache_min_tokens: 0 };
const llama = smallModel('llama');

describe('one folder, many models', () => {
  const prompt = tokens(400, 1);

  // What a server finds of the prompt, which it then stores; and its reply.
  async function visit(t, disk, { model = llama, models = {}, set = {}, body = {} }) {
    const server = await serve({
      t, model, set: { 'cache.tiers.disk.path': disk, ...set }, models: { ...window, ...models },
    });
    const reply = await server.client.complete({ prompt, max_tokens: 12, ...lettersOnly, ...body });
    await server.stop();
    assert.doesNotMatch(server.log, / error |damaged=[1-9]/);
    return { cached: reply.timings.cache_n, text: reply.choices[0].text };
  }

  const others = {
    'other weights': { model: smallModel('llama', { seed: 8 }) },
    'weights of another type': { model: smallModel('llama', { type: 'f16' }) },
    'another type of keys': { models: { cache_type_k: 'q8_0' } },
    'another type of values': { models: { cache_type_v: 'f32' } },
    'other frequencies of positions': { models: { rope_freq_base: 50000 } },
    'a scaled window': { models: { rope_scaling: 'yarn', rope_freq_scale: 0.5 } },
    'deterministic replies': { models: { deterministic: true } },
    'a salt': { body: { cache_salt: 'red' } },
    'another salt': { body: { cache_salt: 'blue' } },
  };

  test('none finds what another one stored, and each finds its own', async (t) => {
    const disk = temporaryFolder();
    const first = await visit(t, disk, {});
    assert.equal(first.cached, 0);
    const own = slabsIn(disk).length;
    for (const [name, options] of Object.entries(others)) {
      assert.equal((await visit(t, disk, options)).cached, 0, `${name} finds nothing`);
    }
    assert.equal(slabsIn(disk).length, own * (1 + Object.keys(others).length));
    for (const [name, options] of Object.entries(others)) {
      const least = name === 'deterministic replies' ? 384 : 399;
      assert.equal((await visit(t, disk, options)).cached, least, `${name} finds its own`);
    }
    assert.deepEqual(await visit(t, disk, {}), { cached: 399, text: first.text });
    await intact(disk);
  });

  test('what does not change the cells is shared', async (t) => {
    const disk = temporaryFolder();
    const copy = join(temporaryFolder(), 'renamed.gguf');
    copyFileSync(llama, copy);
    const first = await visit(t, disk, { models: { kv_unified: true } });
    for (const [name, options] of Object.entries({
      'a stream for each slot': { models: { kv_unified: false } },
      'one pool': { models: { kv_unified: true } },
      'the same weights in another file': { model: copy },
      'another window': { models: { context_window: 2048 } },
      'more slots': { models: { n_seq_max: 4 } },
      'smaller batches': { models: { n_batch: 256, n_ubatch: 64 } },
      'more threads': { models: { threads: 2 } },
      'another stride': { set: { 'cache.boundary_align_tokens': 100 } },
      'another length that is worth it': { models: { cache_min_tokens: 100 } },
    })) {
      assert.deepEqual(await visit(t, disk, options), { cached: 399, text: first.text }, name);
    }
    assert.deepEqual(slabsIn(disk).length, 2, 'nothing was stored twice');
  });

  test('salts hold over a restart, for prompts and for whoever knows a key', async (t) => {
    const disk = temporaryFolder();
    const options = { t, model: llama, set: { 'cache.tiers.disk.path': disk }, models: window };
    const first = await serve(options);
    const talks = ['', 'red', 'blue'].map((cache_salt) => new Talk(cache_salt ? { cache_salt } : {}));
    const [open, red, blue] = talks;
    const replies = [];
    for (const talk of talks) replies.push((await talk.say(first, 300, { seed: 4 })).text);
    assert.equal(new Set(replies).size, 1, 'a salt changes no reply');
    await first.stop();
    const second = await serve(options);
    const { key } = await second.client.ask('/cache/lookup', { prompt: [...red.tokens, 5], cache_salt: 'red' });
    for (const cache_salt of [undefined, 'blue', 'Red', 'red ']) {
      const mine = await second.client.complete({ prompt: [...red.tokens, ...tokens(30, 9)], max_tokens: 1, cache_salt,
        parent_key: key });
      const own = cache_salt === undefined || cache_salt === 'blue';
      assert.equal(mine.timings.cache_n, own ? red.tokens.length - 1 : 0, `salt ${cache_salt}`);
    }
    const { hits_resume } = await cacheOf(second);
    assert.equal(hits_resume, 0, 'the key of one with another salt leads nowhere');
    for (const talk of [open, red, blue]) await talk.say(second, 20);
    await second.stop();
  });
});

test('two models of one server have one folder, and each its own conversations', async (t) => {
  const folder = temporaryFolder();
  const config = join(folder, 'hearth.yaml');
  const names = { small: llama, other: smallModel('qwen3') };
  writeFileSync(config, `cache: {tiers: {disk: {path: ${folder}/kv}}}\nmodels:\n` + Object.entries(names)
    .map(([name, path]) => `  ${name}: {path: ${path}, context_window: 1024, n_seq_max: 2, threads: 1}\n`).join(''));
  const options = { t, args: ['--config', config], set: { 'cache.tiers.disk.path': join(folder, 'kv') } };
  const talks = Object.keys(names).map((name) => new Talk({ model: name }));
  for (let turn = 0; turn < 3; turn++) {
    const server = await serve(options);
    const turns = await Promise.all(talks.map((talk) => talk.say(server, 200)));
    for (const { computed } of turns) assert.equal(computed, turn === 0 ? 200 : 201);
    await server.stop();
  }
  await intact(join(folder, 'kv'));
});

test('deterministic replies are those of a server that never ended, to the last bit', async (t) => {
  const disk = temporaryFolder();
  const options = { t, model: llama, set: { 'cache.tiers.disk.path': disk },
    models: { ...window, deterministic: true, n_batch: 512, n_ubatch: 128 } };
  // Sampled hot, so that a small difference of the logits soon shows.
  const body = { prompt: tokens(777, 6), temperature: 1.2, top_p: 1, seed: 5, max_tokens: 100, ignore_eos: true };
  const first = await serve(options);
  const cold = await first.client.complete({ ...body, cache_prompt: false });
  assert.equal((await first.client.complete({ ...body, max_tokens: 1 })).timings.cache_n, 0);
  await saved(first);
  await killed(first);
  const second = await serve(options);
  const warm = await second.client.complete(body);
  assert.equal(warm.timings.cache_n, 768, 'whole pieces');
  assert.equal(warm.choices[0].text, cold.choices[0].text);
  await second.stop();
});

// The reply is the same letters whatever the model thinks, so that what it thinks can be compared at each of them. A
// greedy reply of its own would also hang on the last bits of two letters that are nearly as likely, and these differ
// with the processor.
const dictated = { grammar: 'root ::= "storedandfetched"', logprobs: 1 };

// The largest difference between two replies' log probabilities: 2e-4 for gemma3, whose GELU llama.cpp reads from a table,
// 2e-5 and less for the others. One wrong token changes them by 0.1 and more.
const difference = (a, b) => Math.max(...a.map((value, i) => Math.abs(value - b[i])));

// Attention over a window, recurrent layers, both beside whole attention.
for (const arch of ['qwen35', 'falcon-h1', 'lfm2', 'mamba2', 'gemma3', 'gpt-oss']) {
  describe(`${arch} over a restart`, () => {
    const model = smallModel(arch, arch === 'mamba2' ? noAttention : {});
    // The windows of gemma3 and gpt-oss are much shorter than this.
    const words = [400, 40, 40];
    let unbroken = null;

    for (const layout of ['one pool', 'a stream each']) {
      test(`${layout}: only new words are computed, and the reply is the same`, async (t) => {
        const disk = temporaryFolder();
        const options = { t, model, models: { ...window, kv_unified: layout === 'one pool' },
          set: { 'cache.tiers.disk.path': disk } };
        if (unbroken === null) {
          const server = await serve(options);
          const talk = new Talk();
          unbroken = [];
          for (const count of words) {
            unbroken.push((await talk.say(server, count, { cache_salt: 'unbroken', ...dictated })).logprobs);
          }
          await server.stop();
        }
        const talk = new Talk();
        for (const [turn, count] of words.entries()) {
          const server = await serve(options);
          const { logprobs, computed } = await talk.say(server, count, dictated);
          assert.equal(computed, turn === 0 ? count : count + 1, `computed in turn ${turn + 1}`);
          assert.equal(logprobs.length, 16);
          const differs = difference(logprobs, unbroken[turn]);
          assert.ok(differs < (arch === 'gemma3' ? 0.02 : 0.001), `reply of turn ${turn + 1}: log probabilities differ by ${differs}`);
          if (turn === 1) {
            await saved(server);
            await killed(server);
          } else {
            await server.stop();
          }
        }
        await intact(disk);
      });
    }

    test('a prompt that parts from a stored one goes on from the nearest place', async (t) => {
      const disk = temporaryFolder();
      const options = { t, model, models: window, set: { 'cache.tiers.disk.path': disk } };
      const prompt = tokens(400, 3);
      const first = await serve(options);
      await first.client.complete({ prompt, max_tokens: 8, ignore_eos: true });
      await counted(first, 'saves_finish', 1);
      await killed(first);
      const second = await serve(options);
      const parted = [...prompt.slice(0, 360), ...tokens(40, 4)];
      const { timings } = await second.client.complete({ prompt: parted, max_tokens: 1 });
      assert.ok(timings.prompt_n <= 64, `${timings.prompt_n} computed`);
      await second.stop();
    });
  });
}
