// hearth fit on machines with several devices: what it counts is what llama.cpp would allocate. RPC servers stand for GPUs;
// their memory is given, so that the machines are those that people have. The models have the shapes of published ones and
// no numbers.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { demo, mkmodel } from './lib/models.js';
import { rpcServer } from './lib/rpc.js';
import { run, temporaryFolder } from './lib/server.js';

const GIB = 2 ** 30;
const shapes = {
  'dense 8B': '--arch qwen3 --layers 36 --embd 4096 --heads 32 --kv-heads 8 --head-dim 128 --ff 12288',
  '30B-A3B': '--arch qwen3moe --layers 48 --embd 2048 --heads 32 --kv-heads 4 --head-dim 128 --ff 768 --experts 128',
  '235B-A22B': '--arch qwen3moe --layers 94 --embd 4096 --heads 64 --kv-heads 4 --head-dim 128 --ff 1536 --experts 128',
  'tied, sliding windows': '--arch gemma3 --layers 34 --embd 2560 --heads 8 --kv-heads 4 --head-dim 256 --ff 10240 --swa 1024',
};
const folder = temporaryFolder();
const files = {};

before(() => {
  for (const [name, options] of Object.entries(shapes)) {
    files[name] = join(folder, `${name.replace(/\W/g, '-')}.gguf`);
    execFileSync(mkmodel, [...options.split(' '), '--vocab', demo, '--ctx', '40960', '--type', 'q8_0', '--hollow', '-o', files[name]], { stdio: 'ignore' });
  }
});
after(() => rmSync(folder, { recursive: true }));

async function fit(name, ...args) {
  const { stdout, stderr } = await run(['fit', files[name], '--json', ...args]);
  assert.ok(stdout, stderr);
  return JSON.parse(stdout);
}

// A part of what is planned, or as many bytes.
const within = (counted, planned, part, bytes, what) => assert.ok(Math.abs(counted - planned) <= Math.max(part * planned, bytes), `${what}: ${counted} counted, ${planned} planned`);

// What is counted for the choice that is recommended or suggested, against what llama.cpp plans for it. Returns the choice.
function compare(told, what) {
  const choice = told.recommended ?? told.suggested;
  if (choice === null) return null;
  told.devices.forEach(({ name, planned_bytes: planned, budget }, i) => {
    if (planned > 0) within(choice.device_bytes[i], planned, 0.03, 0, `${what}, ${name}`);
    assert.ok(choice.device_bytes[i] <= budget && planned <= budget, `${what}, ${name}: more than its budget`);
  });
  within(choice.memory_bytes, told.planned_memory_bytes, 0.03, 2 ** 26, `${what}, memory`);
  assert.ok(told.planned_memory_bytes <= told.memory_budget, `${what}: more than the memory's budget`);
  return choice;
}

describe('devices that are there', () => {
  test('a model without numbers takes no room on the disk', () => {
    const { size, blocks } = statSync(files['235B-A22B']);
    assert.ok(size > 200 * GIB, `${size}`);
    assert.ok(blocks * 512 < 2 ** 26, `${blocks} blocks`);
  });

  for (const name of Object.keys(shapes)) {
    test(`${name}: what is counted is what llama.cpp plans, on one device and on two`, async (t) => {
      const servers = [await rpcServer(t), await rpcServer(t)].map(({ endpoint }) => endpoint);
      let compared = 0;
      for (const [gpus, n] of [['8', 1], ['12', 1], ['24', 1], ['24,8', 2], ['12,12', 2], ['8,24', 2]]) {
        for (const memory of [16, 64, 400]) {
          const what = `${name}, ${gpus} GB, ${memory} GB of RAM`;
          const told = await fit(name, '--memory', `${memory}`, '--gpus', gpus, '--set', `rpc=[${servers.slice(0, n)}]`);
          const choice = compare(told, what);
          compared += choice !== null;
          const on = told.devices.map((d, i) => `${((choice?.device_bytes[i] ?? 0) / GIB).toFixed(2)} of ${(d.budget / GIB).toFixed(2)}, planned ${(d.planned_bytes / GIB).toFixed(2)}`).join('; ');
          t.diagnostic(`${what}: ${on}; memory ${((choice?.memory_bytes ?? 0) / GIB).toFixed(2)}, planned ${(told.planned_memory_bytes / GIB).toFixed(2)}; n_gpu_layers ${told.n_gpu_layers}, n_cpu_moe ${told.n_cpu_moe}, tensor_split ${JSON.stringify(told.tensor_split)}, ${choice?.context_window} x ${choice?.n_seq_max}`);
        }
      }
      assert.ok(compared >= (name === '235B-A22B' ? 6 : 12), `${compared} choices were compared`);
    });
  }

  test('tensor_split and override_tensors are counted as llama.cpp takes them', async (t) => {
    const rpc = `rpc=[${[await rpcServer(t), await rpcServer(t)].map(({ endpoint }) => endpoint)}]`;
    const wide = ['--memory', '400', '--gpus', '400,400', '--set', rpc];
    const bytes = [];
    for (const split of ['[1, 1]', '[3, 1]', '[1, 0]']) {
      const told = await fit('dense 8B', ...wide, '--set', `tensor_split=${split}`);
      bytes.push(compare(told, split).device_bytes);
    }
    assert.ok(bytes[1][0] > 1.4 * bytes[0][0] && bytes[2][1] === 0, JSON.stringify(bytes));
    const whole = await fit('30B-A3B', ...wide);
    const told = await fit('30B-A3B', ...wide, '--set', 'override_tensors=["blk\\\\.1[0-9]\\\\..*exps=CPU"]');
    const moved = compare(told, 'override').memory_bytes - compare(whole, 'none').memory_bytes;
    assert.ok(moved > 5 * GIB && moved < 8 * GIB, `${moved} bytes`);
  });
});

describe('devices that are not there', () => {
  test('a larger machine never has a worse choice', async () => {
    let last = Infinity;
    for (const gpus of ['9', '12', '24', '48', '80']) {
      const { choices, recommended, devices } = await fit('dense 8B', '--memory', '64', '--gpus', gpus);
      assert.deepEqual(devices.map(({ name, planned_bytes: planned }) => [name, planned]), [['GPU0', 0]]);
      const place = recommended === null ? choices.length : choices.findIndex((one) => JSON.stringify(one) === JSON.stringify(recommended));
      assert.ok(place <= last, gpus);
      last = place;
    }
    assert.equal(last, 0);
  });

  test('what lies on a GPU that is not there needs no memory of this machine', async () => {
    const { recommended, planned_memory_bytes: planned, read_rate: rate } = await fit('dense 8B', '--memory', '12', '--gpus', '24');
    assert.ok(recommended.context_window * recommended.n_seq_max >= 32768, JSON.stringify(recommended));
    assert.deepEqual([planned, rate], [0, 0], 'neither is planned or measured here');
  });

  test('two cards between which layers are divided badly are told how they fit', async () => {
    const told = [];
    for (const gpus of ['2.5,8.6', '3,8', '4,7', '5,5.9']) {
      const { recommended, suggested, tensor_split: split, reason } = await fit('dense 8B', '--memory', '64', '--gpus', gpus);
      if (split !== null) told.push(split);
      assert.ok(recommended ?? suggested, `${gpus}: ${reason}`);
      if (split !== null) assert.match(reason, new RegExp(`tensor_split=\\[${split.join()}\\]`));
    }
    for (const split of told) assert.equal(split.reduce((a, b) => a + b), 37);
  });

  test('patterns of tensors are not counted on devices that are not there', async () => {
    const { code, stderr } = await run(['fit', files['dense 8B'], '--gpus', '8', '--set', 'override_tensors=["ffn=CPU"]']);
    assert.equal(code, 1);
    assert.match(stderr, /override_tensors, which are counted by llama\.cpp, on devices that are there/);
  });

  test('numbers that are none are refused', async () => {
    for (const args of [['--memory', 'much'], ['--gpus', '8,'], ['--gpus', '0'], ['--gpus', Array(17).fill(8).join()]]) {
      const { code, stderr } = await run(['fit', demo, ...args]);
      assert.equal(code, 2, args.join(' '));
      assert.match(stderr, /--memory is a number of GiB, --gpus one for each GPU/);
    }
  });
});
