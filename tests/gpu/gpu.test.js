// A model whose layers and cells are on a GPU, whose memory is not the machine's: what is cached is what would be computed,
// also from the store; how fast cells come from there; and a device of another machine beside it. `make gpu-check` runs it.

import { before as prepare, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { smallModel } from '../e2e/lib/models.js';
import { rpcServer } from '../e2e/lib/rpc.js';
import { run, serve, temporaryFolder } from '../e2e/lib/server.js';
import { Talk, saved, sayTwice } from '../e2e/lib/store.js';

const start = (t, model, disk, more) => serve({
  t, model, set: { 'cache.tiers.disk.path': disk }, models: { context_window: 2048, n_seq_max: 2, cache_min_tokens: 0, ...more },
});

// Mesa's lavapipe takes a minute for some hundred tokens, and Debian 12's ends the process in models of other kinds.
const lavapipe = process.env.LAVAPIPE === '1';
const archs = lavapipe ? ['llama', 'qwen3moe'] : ['llama', 'qwen3moe', 'gemma3', 'qwen35', 'mamba2'];
const first = lavapipe ? 280 : 600; // tokens of a first turn

let card; // the name of a device that is no processor

prepare(async () => {
  const { stdout } = await run(['version']);
  assert.match(stdout, /^backend (?!cpu|rpc)\S+: loaded, [1-9]/m, stdout);
  const { stderr } = await run(['serve', '--port', '0', '--model', smallModel('llama'), '--set', 'devices=nothing']);
  card = stderr.match(/\b(?:Vulkan|CUDA|ROCm)\d+/)?.[0];
  assert.ok(card, stderr);
});

describe('a model on a GPU', () => {
  for (const arch of archs) {
    test(`${arch}: turns, a branch and a restart answer as without a cache`, async (t) => {
      const disk = temporaryFolder(), model = smallModel(arch, arch === 'mamba2' ? { heads: undefined, 'kv-heads': undefined, 'head-dim': undefined, ff: undefined } : undefined);
      let server = await start(t, model, disk, { devices: card });
      const talk = new Talk();
      await sayTwice(server, talk, first, 0);
      const before = talk.copy();
      await sayTwice(server, talk, 40, first);
      await saved(server);
      await server.stop();

      server = await start(t, model, disk, { devices: card });
      const cold = await talk.copy().say(server, 40, { cache_prompt: false });
      const began = performance.now();
      const warm = await talk.say(server, 40, { reply: 16 });
      t.diagnostic(`${arch}: ${warm.cached} tokens from the store and ${warm.computed} computed in ${Math.round(performance.now() - began)} ms`);
      assert.equal(warm.text, cold.text);
      assert.ok(warm.cached >= first, `${warm.cached}`);
      const branch = await before.copy().say(server, 30, { seed: 7 });
      const alone = await before.say(server, 30, { seed: 7, cache_prompt: false });
      assert.ok(branch.cached >= 256, `${branch.cached}`);
      assert.equal(branch.text, alone.text);
      await server.stop();
    });
  }

  test('what was stored on the GPU continues on the processor, and the other way round', async (t) => {
    const disk = temporaryFolder(), model = smallModel('llama'), talk = new Talk();
    for (const [devices, least] of [[card, 0], ['none', first], [card, first + 40]]) {
      const server = await start(t, model, disk, { devices });
      await sayTwice(server, talk, talk.tokens.length > 0 ? 40 : first, least);
      await saved(server);
      await server.stop();
    }
  });

  test('deterministic runs on the GPU and on the processor share nothing', async (t) => {
    const disk = temporaryFolder(), talk = new Talk(), cached = [];
    for (const devices of [card, 'none', card]) {
      const server = await start(t, smallModel('llama'), disk, { deterministic: true, devices });
      cached.push((await talk.copy().say(server, first)).cached);
      await saved(server);
      await server.stop();
    }
    assert.deepEqual(cached.map((n) => n > 0), [false, false, true], cached.join(' '));
  });

  test('experts in memory answer as those on the GPU', async (t) => {
    const model = smallModel('qwen3moe'), texts = [];
    for (const more of [{}, { cpu_moe: true }, { override_tensors: 'ffn_down=CPU' }]) {
      const server = await start(t, model, temporaryFolder(), { devices: card, 'draft.sources': '[]', ...more });
      texts.push((await new Talk().say(server, lavapipe ? 100 : 300)).text);
      await server.stop();
    }
    assert.deepEqual(texts, [texts[0], texts[0], texts[0]]);
  });

  test('a device of another machine takes layers beside it', async (t) => {
    const remote = await rpcServer(t), talk = new Talk();
    const server = await start(t, smallModel('llama'), temporaryFolder(), { rpc: remote.endpoint, devices: `[RPC0,${card}]`, tensor_split: '[1,1]' });
    const cold = await talk.copy().say(server, 300, { cache_prompt: false });
    const warm = await talk.say(server, 300);
    assert.equal(warm.text, cold.text);
    assert.ok(remote.counts().compute > 0);
    const next = await talk.say(server, 40);
    assert.ok(next.cached >= 300, `${next.cached}`);
    await server.stop();
  });
});
