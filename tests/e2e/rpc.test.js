// A model whose layers and cells are on a device of another machine (llama.cpp's RPC server, on loopback): what is cached
// is what would be computed, in the store as well; how many messages saving and fetching take; and what happens when the
// device is not there, or goes.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { smallModel } from './lib/models.js';
import { freePort } from './lib/peer.js';
import { rpcServer } from './lib/rpc.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { Talk, saved, sayTwice } from './lib/store.js';

const start = (t, arch, rpc, disk, more) => serve({
  t, model: smallModel(arch), set: { 'cache.tiers.disk.path': disk }, models: { context_window: 2048, n_seq_max: 2, cache_min_tokens: 0, ...rpc && { rpc }, ...more },
});

// What a piece of work cost: messages by kind.
async function counting(remote, work) {
  const before = remote.counts();
  const result = await work();
  const after = remote.counts();
  return [result, Object.fromEntries(Object.keys(after).map((kind) => [kind, after[kind] - (before[kind] ?? 0)]))];
}

describe('a model on another machine', () => {
  for (const arch of ['llama', 'gemma3', 'qwen35']) {
    test(`${arch}: turns, a branch and a restart answer as without a cache`, async (t) => {
      const remote = await rpcServer(t);
      const disk = temporaryFolder();
      let server = await start(t, arch, remote.endpoint, disk);
      const talk = new Talk();
      await sayTwice(server, talk, 600, 0);
      const first = talk.copy();
      await sayTwice(server, talk, 40, 600);
      const [, saving] = await counting(remote, () => saved(server));
      await server.stop();

      server = await start(t, arch, remote.endpoint, disk);
      const cold = await talk.copy().say(server, 40, { cache_prompt: false });
      const [warm, fetching] = await counting(remote, () => talk.say(server, 40, { reply: 16 }));
      assert.equal(warm.text, cold.text);
      assert.ok(warm.cached >= 640, `${warm.cached}`);
      // Neither takes more than a message for each tensor, each run of cells and each slab.
      const [, inCells] = await counting(remote, () => talk.copy().say(server, 40, { reply: 16 }));
      const writes = fetching.set - inCells.set;
      assert.ok(saving.get <= 4 * 8, JSON.stringify(saving));
      assert.ok(writes <= 4 * 8 * 3, `${writes} writes`);
      const branch = await first.say(server, 30, { seed: 7 });
      assert.ok(branch.cached >= 256, `${branch.cached}`);
      t.diagnostic(`${arch}: saving ${JSON.stringify(saving)}, a turn that fetches ${warm.cached} tokens ${JSON.stringify(fetching)}, ${writes} writes more than one that does not`);
      await server.stop();
    });
  }

  test('deterministic runs here and there share nothing', async (t) => {
    const remote = await rpcServer(t);
    const disk = temporaryFolder();
    const talk = new Talk();
    const cached = [];
    for (const endpoint of [undefined, remote.endpoint, undefined]) {
      const server = await start(t, 'llama', endpoint, disk, { deterministic: true });
      cached.push((await talk.copy().say(server, 600)).cached);
      await server.stop();
    }
    assert.deepEqual(cached.map((n) => n > 0), [false, false, true], cached.join(' '));
  });

  test('it answers as one that is here', async (t) => {
    const remote = await rpcServer(t);
    const undrafted = { 'draft.sources': '[]' }; // a message for each token
    const here = await start(t, 'llama', undefined, temporaryFolder(), undrafted);
    const there = await start(t, 'llama', remote.endpoint, temporaryFolder(), undrafted);
    const [one, other] = [new Talk(), new Talk()];
    const [, messages] = await counting(remote, async () => assert.deepEqual(await other.say(there, 300), await one.say(here, 300)));
    assert.ok(messages.compute >= 16, JSON.stringify(messages));
    await here.stop();
    await there.stop();
  });

  test('when the device goes the server ends, and a conversation goes on where it was', async (t) => {
    const disk = temporaryFolder();
    let remote = await rpcServer(t);
    let server = await start(t, 'llama', remote.endpoint, disk);
    const talk = new Talk();
    await talk.say(server, 600);
    await saved(server);
    await remote.end();
    await assert.rejects(talk.copy().say(server, 40));
    const { signal } = await server.ended;
    assert.equal(signal, 'SIGABRT', server.log);

    remote = await rpcServer(t);
    server = await start(t, 'llama', remote.endpoint, disk);
    const { cached } = await talk.say(server, 40);
    assert.ok(cached >= 600, `${cached}`);
    await server.stop();
  });

  test('tensor_split says which part of the layers each of two servers takes', async (t) => {
    const [one, other] = [await rpcServer(t), await rpcServer(t)];
    const rpc = `[${one.endpoint},${other.endpoint}]`;
    const computed = async (split) => {
      const before = [one, other].map((remote) => remote.counts().compute);
      const server = await start(t, 'llama', rpc, temporaryFolder(), split && { tensor_split: split });
      await new Talk().say(server, 40);
      await server.stop();
      return [one, other].map((remote, i) => remote.counts().compute > before[i]);
    };
    assert.deepEqual(await computed('[1,0]'), [true, false]);
    assert.deepEqual(await computed('[0,1]'), [false, true]);
    assert.deepEqual(await computed('[1,1]'), [true, true]);
    assert.deepEqual(await computed(undefined), [true, true], 'by their free memory');
    const path = smallModel('llama');
    const { code, stderr } = await run(['serve', '--port', '0', '--model', path, '--set', `rpc=${rpc}`, '--set', 'tensor_split=[1,2,3]']);
    assert.notEqual(code, 0);
    assert.match(stderr, /tensor_split: 3 numbers for 2 devices/);
  });

  test('a model that is loaded on demand: 503 while its server is away, and it is loaded once that is back', async (t) => {
    const port = await freePort();
    const path = smallModel('llama');
    const name = path.replace(/^.*\/|\.gguf$/g, '');
    const server = await serve({ t, model: path, models: { rpc: `127.0.0.1:${port}`, load: 'demand' } });
    const ask = () => server.client.post('/v1/completions', { model: name, prompt: 'the time of the year', max_tokens: 4 });
    for (let i = 0; i < 2; i++) {
      const { status, text } = await ask();
      assert.equal(status, 503, text);
      assert.match(text, /rpc: 127\.0\.0\.1:\d+ cannot be reached/);
    }
    const remote = await rpcServer(t, port);
    const { status, text } = await ask();
    assert.equal(status, 200, text);
    assert.ok(remote.running());
    await server.stop();
  });

  test('two models have their layers on one server, and neither counts in the budget of memory', async (t) => {
    const remote = await rpcServer(t);
    const paths = ['llama', 'gemma3'].map((arch) => smallModel(arch));
    const [one, other] = paths.map((path) => path.replace(/^.*\/|\.gguf$/g, ''));
    const server = await serve({
      t, model: paths[0], models: { rpc: remote.direct },
      args: ['--model', paths[1], '--set', `models.${other}.rpc=${remote.direct}`, '--set', `models.${other}.threads=1`],
      set: { 'server.memory_budget_mb': 1 },
    });
    for (const model of [one, other]) {
      const { status, json } = await server.client.post('/v1/completions', { model, prompt: 'the time of the year', max_tokens: 4 });
      assert.equal(status, 200, JSON.stringify(json));
    }
    await server.stop();
    assert.ok(remote.running());
  });

  test('a server that is busy with another process is named, and outlives the asking', async (t) => {
    const remote = await rpcServer(t);
    const path = smallModel('llama');
    const name = path.replace(/^.*\/|\.gguf$/g, '');
    const first = await start(t, 'llama', remote.direct, temporaryFolder());
    const { code, stderr } = await run(['serve', '--port', '0', '--model', path, '--set', `models.${name}.rpc=${remote.direct}`]);
    assert.notEqual(code, 0);
    assert.match(stderr, /does not answer as an RPC server/);
    await first.stop();
    const second = await start(t, 'llama', remote.direct, temporaryFolder());
    await new Talk().say(second, 40);
    assert.ok(remote.running());
    await second.stop();
  });

  test('hearth model vram measures on the server', async (t) => {
    const remote = await rpcServer(t);
    const path = smallModel('llama');
    const before = remote.counts();
    const { code, stdout, stderr } = await run(['model', 'vram', path, '--set', `models.${path.replace(/^.*\/|\.gguf$/g, '')}.rpc=${remote.endpoint}`]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /allocated by llama\.cpp/);
    assert.ok(remote.counts().set > before.set, JSON.stringify(remote.counts()));
  });

  test('a device that cannot hold rows is named at the start', async (t) => {
    const remote = await rpcServer(t);
    const path = smallModel('llama'), name = path.replace(/^.*\/|\.gguf$/g, '');
    const { code, stderr } = await run(['serve', '--port', '0', '--model', path, '--set', `models.${name}.rpc=${remote.endpoint}`, '--set', `models.${name}.split_mode=row`]);
    assert.notEqual(code, 0);
    assert.match(stderr, /split_mode: RPC\S* \(.*\) cannot hold rows of a tensor in llama\.cpp [\d.]+: use layer, or none for one device/);
  });

  test('a server that is not there, or is none, is named at the start', async (t) => {
    const silent = createServer((socket) => socket.on('error', () => {}).end('HTTP/1.1 400 Bad Request\r\n\r\n')).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    t.after(() => silent.close());
    const rows = [
      [`127.0.0.1:${await freePort()}`, /rpc: 127\.0\.0\.1:\d+ cannot be reached: start llama\.cpp's ggml-rpc-server there/],
      [`127.0.0.1:${silent.address().port}`, /does not answer as an RPC server/],
      ['127.0.0.1', /rpc: '127\.0\.0\.1' is not host:port/],
    ];
    for (const [endpoint, says] of rows) {
      const path = smallModel('llama');
      const { code, stderr } = await run(['serve', '--port', '0', '--model', path, '--set', `models.${path.replace(/^.*\/|\.gguf$/g, '')}.rpc=${endpoint}`]);
      assert.notEqual(code, 0);
      assert.match(stderr, says);
    }
  });
});
