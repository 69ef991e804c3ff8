// Where the tensors of a model go: devices by name, experts and other tensors in the machine's memory, and how weights are
// read. The devices are RPC servers on loopback, which count what they are sent. Replies are the same wherever it is. And
// on which CPUs its threads are.

import { before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { demo, smallModel } from './lib/models.js';
import { rpcServer } from './lib/rpc.js';
import { run, serve, temporaryFolder } from './lib/server.js';

const name = (path) => path.replace(/^.*\/|\.gguf$/g, '');
const keys = { context_window: 512, cache_min_tokens: 0, 'draft.sources': '[]' };
const reply = async (server) => {
  const { choices } = await server.client.complete({ prompt: 'the time of the year', max_tokens: 40, temperature: 0, ignore_eos: true });
  return choices[0].text;
};

// The reply with such placement, and what each device was sent meanwhile.
async function placed(t, model, remotes, more) {
  const before = remotes.map((remote) => remote.counts());
  const rpc = `[${remotes.map(({ endpoint }) => endpoint).join()}]`;
  const server = await serve({ t, model, models: { ...keys, ...remotes.length > 0 && { rpc }, ...more } });
  const text = await reply(server);
  await server.stop();
  const sent = remotes.map((remote, i) => {
    const after = remote.counts();
    return Object.fromEntries(Object.keys(after).map((kind) => [kind, after[kind] - (before[i][kind] ?? 0)]));
  });
  return { text, sent };
}

async function refused(model, more, message) {
  const set = Object.entries(more).flatMap(([key, value]) => ['--set', `models.${name(model)}.${key}=${value}`]);
  const { code, stderr } = await run(['serve', '--port', '0', '--model', model, ...set]);
  assert.notEqual(code, 0, stderr);
  assert.match(stderr, message);
}

describe('experts in the machine\'s memory', () => {
  // Its experts are most of it.
  const model = smallModel('qwen3moe', { type: 'f32', experts: 16, layers: 4 });
  let plain;
  before(async () => {
    const server = await serve({ model, models: keys });
    plain = await reply(server);
    await server.stop();
  });

  test('fewer layers\' experts are sent, and fewer still, and none', async (t) => {
    const remote = await rpcServer(t);
    const bytes = [];
    for (const more of [{}, { n_cpu_moe: 2 }, { n_cpu_moe: 4 }, { cpu_moe: true }, { override_tensors: '["ffn_.*_exps=CPU"]' }]) {
      const { text, sent: [sent] } = await placed(t, model, [remote], more);
      assert.equal(text, plain, JSON.stringify(more));
      assert.ok(sent.compute > 0, 'nothing was computed there');
      bytes.push(sent.bytes);
    }
    t.diagnostic(`bytes sent: ${bytes.join(', ')}`);
    const [all, half, none, none2, none3] = bytes;
    assert.ok(half < all * 0.75 && none < all * 0.45, bytes.join());
    for (const other of [none2, none3]) assert.ok(Math.abs(other - none) < none * 0.05, bytes.join());
  });

  test('the first pattern that matches counts, before n_cpu_moe', async (t) => {
    const remote = await rpcServer(t);
    const { text, sent: [all] } = await placed(t, model, [remote], {});
    const { text: other, sent: [kept] } = await placed(t, model, [remote], { cpu_moe: true, override_tensors: `["blk\\\\..*exps=RPC0[${remote.endpoint}]"]` });
    assert.equal(text, plain);
    assert.equal(other, plain);
    assert.ok(Math.abs(kept.bytes - all.bytes) < all.bytes * 0.05, `${kept.bytes}, ${all.bytes}`);
  });

  test('what is no pattern, and names no buffers, is refused by its key', async () => {
    await refused(model, { override_tensors: '["exps"]' }, /override_tensors: 'exps' is not PATTERN=BUFFERS, such as exps=CPU/);
    await refused(model, { override_tensors: '["exps=GPU7"]' }, /override_tensors: no buffers have the name 'GPU7'; there are: .*CPU/);
    await refused(model, { override_tensors: '["exps(=CPU"]' }, /override_tensors: 'exps\(' is no regular expression/);
  });
});

describe('devices by name', () => {
  const model = smallModel('llama');

  test('those that are named take the layers, in that order; [none] leaves all to the CPU', async (t) => {
    const remotes = [await rpcServer(t), await rpcServer(t)];
    const plain = (await placed(t, model, [], {})).text;
    // A process numbers the devices of its servers from 0 on.
    const rows = [[{}, [true, true]], [{ devices: '[RPC1]' }, [false, true]], [{ devices: '[RPC0]' }, [true, false]], [{ devices: '[none]' }, [false, false]],
      [{ devices: '[RPC1,RPC0]', tensor_split: '[1,0]' }, [false, true]]];
    for (const [more, computes] of rows) {
      const { text, sent } = await placed(t, model, remotes, more);
      assert.equal(text, plain, JSON.stringify(more));
      assert.deepEqual(sent.map(({ compute }) => compute > 0), computes, JSON.stringify([more, sent]));
    }
  });

  test('main_gpu takes all with split_mode none', async (t) => {
    const remotes = [await rpcServer(t), await rpcServer(t)];
    for (const [main_gpu, computes] of [[0, [true, false]], [1, [false, true]]]) {
      const { sent } = await placed(t, model, remotes, { split_mode: 'none', main_gpu });
      assert.deepEqual(sent.map(({ compute }) => compute > 0), computes, JSON.stringify(sent));
    }
  });

  test('a device that is not there is named, with those that are', async (t) => {
    const remote = await rpcServer(t);
    await refused(model, { rpc: remote.endpoint, devices: '[CUDA7]' }, /devices: there is no device CUDA7; there are: RPC0 \(/);
    await refused(model, { devices: '[CUDA7]' }, /devices: there is no device CUDA7; there are: none/);
    await refused(model, { rpc: remote.endpoint, split_mode: 'none', main_gpu: 3 }, /main_gpu: 3 is none of the 1 devices, counted from 0: RPC0/);
  });
});

test('weights that are read in each way answer the same', async (t) => {
  const texts = new Set();
  for (const load_mode of ['auto', 'none', 'mmap', 'mlock', 'mmap+mlock', 'dio']) texts.add((await placed(t, demo, [], { load_mode })).text);
  assert.equal(texts.size, 1);
});

describe('threads', () => {
  const allowed = readFileSync('/proc/self/status', 'utf8').match(/Cpus_allowed_list:\s*(\S+)/)[1];
  const [first] = allowed.match(/\d+/);
  const affinities = (pid) => readdirSync(`/proc/${pid}/task`).flatMap((task) => {
    try {
      return [readFileSync(`/proc/${pid}/task/${task}/status`, 'utf8').match(/Cpus_allowed_list:\s*(\S+)/)[1]];
    } catch {
      return []; // it has ended meanwhile
    }
  });

  // Of one thread each, so that the engine's is all that computes. A store, whose cells are tried when a model is loaded, and
  // a draft model have calls of their own.
  for (const more of [{}, { cpu_strict: true }, { cpu_strict: true, 'draft.path': demo, 'draft.sources': '[model]' }]) {
    test(`only the thread that computes keeps to the CPUs of the model: ${Object.keys(more)}`, async (t) => {
      const server = await serve({ t, model: demo, models: { ...keys, cpus: first, ...more } });
      await reply(server);
      const all = affinities(server.pid);
      if (allowed !== first) assert.deepEqual(all.filter((list) => list !== allowed), [first], all.join(' '));
    });
  }

  test('models have CPUs of their own, one after the other', async (t) => {
    const all = allowed.split(',').flatMap((range) => { const [from, to = from] = range.split('-').map(Number); return Array.from({ length: to - from + 1 }, (_, i) => from + i); });
    const last = String(all.at(-1)), small = smallModel('llama'), other = name(small);
    const server = await serve({ t, model: demo, models: { ...keys, cpus: first, cpu_strict: true }, args: ['--model', small,
      ...Object.entries({ ...keys, cpus: last, cpu_strict: true, threads: 1 }).flatMap(([key, value]) => ['--set', `models.${other}.${key}=${value}`])] });
    for (const model of [name(demo), other]) assert.ok((await server.client.complete({ model, prompt: 'the time', max_tokens: 4 })).choices[0].text.length >= 0);
    if (allowed !== first) assert.deepEqual(affinities(server.pid).filter((list) => list !== allowed).sort(), [first, last].sort());
  });

  test('CPUs that are not there are named, with those that are', () =>
    refused(demo, { cpus: '500' }, new RegExp(`models\\.${name(demo)}\\.cpus: CPU 500 is not there.* it has ${allowed}`)));
  test('what is no list is refused', () => refused(demo, { cpus: 'all' }, /cpus: 'all' is no list of CPUs/));
  test('cpus beside NUMA are refused', async () => {
    const { code, stderr } = await run(['serve', '--port', '0', '--model', demo, '--set', `models.${name(demo)}.cpus=0`, '--set', 'server.numa=isolate']);
    assert.notEqual(code, 0, stderr);
    assert.match(stderr, /server\.numa is isolate, which chooses the CPUs itself/);
  });
  test('a server with NUMA answers', async (t) => {
    const server = await serve({ t, model: demo, models: keys, set: { 'server.numa': 'distribute' } });
    assert.ok((await reply(server)).length > 0);
  });
});

// A layer rounds otherwise on another device. What is stored is good for both, but where every bit has to be the same.
describe('what is stored, after a restart with another placement', () => {
  const model = smallModel('qwen3moe', { type: 'f32', experts: 16, layers: 4 });
  const asked = { prompt: 'It was the time of the year. '.repeat(20), max_tokens: 4, temperature: 0 };
  const rows = [ // keys, whether a deterministic model reuses what was stored without them
    [{ threads: 1, load_mode: 'none' }, true],
    [{ thread_priority: 'low', cpu_strict: true }, true],
    [{ n_cpu_moe: 2 }, false],
    [{ cpu_moe: true }, false],
    [{ override_tensors: '["exps=CPU"]' }, false],
    [{ op_offload: false }, false],
  ];
  for (const deterministic of [true, false]) {
    test(deterministic ? 'is not reused with deterministic' : 'is reused', async (t) => {
      const set = { 'cache.tiers.disk.path': temporaryFolder() };
      const cached = async (more) => {
        const server = await serve({ t, model, set, models: { ...keys, deterministic, ...more } });
        const { timings } = await server.client.complete(asked);
        await server.stop();
        return timings.cache_n;
      };
      assert.equal(await cached({}), 0);
      assert.ok(await cached({}) > 50, 'the same placement');
      for (const [more, same] of rows) {
        const n = await cached(more);
        assert.equal(n > 50, same || !deterministic, `${JSON.stringify(more)}: ${n} tokens`);
      }
    });
  }
});
