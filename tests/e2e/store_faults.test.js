// Damaged files, folders that go away, disks that take no more, a second server, kill -9: replies are right whatever
// happens to what is stored, and nothing is lost but time.

import { before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, copyFileSync, existsSync, lstatSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync,
  symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { Talk, bytesIn, cacheOf, counted, filesIn, flip, folderInMemory, intact, killed, kv, lettersOnly, saved, slabsIn }
  from './lib/store.js';
import { Random, tokens, until } from './lib/wait.js';

const model = smallModel('llama');
const start = (t, disk, { set, models } = {}) => serve({
  t, model, set: { 'cache.tiers.disk.path': disk, ...set }, models: { context_window: 2048, ...models },
});
// One conversation fills the cells, so that another one has to be read back.
const narrow = { models: { context_window: 600, n_seq_max: 1 } };

const quarantined = (folder) => {
  const path = join(folder, 'quarantine');
  return existsSync(path) ? readdirSync(path) : [];
};

// What the conversations that the tests damage are, and what they reply when all is computed.
const prompts = [1, 2, 3, 4].map((seed) => tokens(seed === 4 ? 900 : 240, 40 + seed));
const ask = async (server, prompt) => {
  const { choices: [{ text }], timings } = await server.client.complete({ prompt, max_tokens: 8, ...lettersOnly });
  return { text, cached: timings.cache_n };
};
let replies;
before(async () => {
  const server = await serve({ model, models: { context_window: 2048 }, set: { 'cache.tiers.disk.quota_mb': 0 } });
  replies = [];
  for (const prompt of prompts) replies.push((await ask(server, prompt)).text);
  await server.stop();
});

// A folder where the conversations are stored.
async function filled(t) {
  const disk = temporaryFolder();
  const server = await start(t, disk);
  for (const prompt of prompts) await ask(server, prompt);
  await server.stop();
  return disk;
}

async function allRight(server) {
  const cached = [];
  for (const [i, prompt] of prompts.entries()) {
    const reply = await ask(server, prompt);
    assert.equal(reply.text, replies[i], `reply ${i + 1}`);
    cached.push(reply.cached);
  }
  return cached;
}

const whole = prompts.map((prompt) => prompt.length - 1);
const none = prompts.map(() => 0);

// Damage is met when a slab is used, one of a conversation after the other: each is stored again, and after as many
// starts as a conversation has slabs all is found.
async function healed(t, disk) {
  let cached = none;
  for (let starts = 0; starts < 5 && cached.some((n, i) => n !== whole[i]); starts += 1) {
    const server = await start(t, disk);
    cached = await allRight(server);
    await saved(server);
    await server.stop();
  }
  assert.deepEqual(cached, whole);
  await intact(disk);
}

describe('damage while no server runs', () => {
  for (const [name, place] of [['first', 0], ['identity', 60 / 250000], ['payload', 0.5], ['last', 1]]) {
    test(`a byte of every file is another one (${name}): all is computed, counted and set aside`, async (t) => {
      const disk = await filled(t);
      const slabs = slabsIn(disk);
      for (const slab of slabs) flip(slab.path, place);
      const { code, stdout } = await kv(disk, 'verify');
      assert.equal(code, 1);
      assert.ok(stdout.split('\n').length > slabs.length, stdout);

      const server = await start(t, disk);
      assert.deepEqual(await allRight(server), none);
      await saved(server);
      const cache = await cacheOf(server);
      // Of a conversation of several slabs the first is met, and perhaps those that are read ahead.
      assert.ok(cache.corrupt_files >= prompts.length, `${cache.corrupt_files} counted`);
      assert.ok(quarantined(disk).length >= prompts.length, `${quarantined(disk)}`);
      assert.equal(cache.tiers.disk.entries, slabs.length, 'all of it is stored again');
      await server.stop();
      await healed(t, disk);
    });
  }

  const ways = {
    'cut to nothing': (path) => truncateSync(path, 0),
    'cut within the header': (path) => truncateSync(path, 47),
    'cut in the middle': (path) => truncateSync(path, Math.floor(lstatSync(path).size / 2)),
    'a byte short': (path) => truncateSync(path, lstatSync(path).size - 1),
    'a byte too long': (path) => appendFileSync(path, 'x'),
    'zeros': (path) => writeFileSync(path, Buffer.alloc(lstatSync(path).size)),
    'a folder in its place': (path) => {
      rmSync(path);
      mkdirSync(path);
    },
    'a symbolic link in its place': (path) => {
      renameSync(path, `${path}.moved`);
      symlinkSync(`${path}.moved`, path);
    },
  };
  for (const [name, damage] of Object.entries(ways)) {
    test(`every file is ${name}`, async (t) => {
      const disk = await filled(t);
      for (const slab of slabsIn(disk)) damage(slab.path);
      const server = await start(t, disk);
      assert.deepEqual(await allRight(server), none);
      assert.ok((await cacheOf(server)).corrupt_files >= prompts.length);
      await server.stop();
      await healed(t, disk);
    });
  }

  test('a file under the name of another: neither is believed', async (t) => {
    const disk = await filled(t);
    const [first, second] = slabsIn(disk).filter(({ size }) => size < 260000);
    copyFileSync(first.path, second.path);
    const server = await start(t, disk);
    const cached = await allRight(server);
    assert.equal(cached.filter((n, i) => n === whole[i]).length, prompts.length - 1);
    assert.ok((await cacheOf(server)).corrupt_files >= 1);
    await server.stop();
  });

  test('files missing from the middle of a conversation: what comes before them is used', async (t) => {
    const disk = await filled(t);
    const listed = (await kv(disk, 'ls')).stdout;
    const middle = /^disk +([0-9a-f]{16}) .* 256 +512 /m.exec(listed)[1];
    rmSync(slabsIn(disk).find(({ name }) => name.startsWith(middle)).path);
    const server = await start(t, disk);
    assert.deepEqual(await allRight(server), [...whole.slice(0, 3), 256]);
    await server.stop();
    await intact(disk);
  });

  test('what is not the store\'s own stays, and what it left half written goes', async (t) => {
    const disk = await filled(t);
    const name = slabsIn(disk)[0].name;
    const foreign = ['notes.txt', `${'0'.repeat(64)}.other`, `${name}.bak`, 'x.tmp', `${'A'.repeat(64)}.state`];
    for (const file of foreign) writeFileSync(join(disk, file), 'mine');
    mkdirSync(join(disk, 'folder'));
    for (const half of [`${name}.0.tmp`, `${'a'.repeat(64)}.state.17.tmp`]) writeFileSync(join(disk, half), 'half');
    const server = await start(t, disk);
    assert.deepEqual(await allRight(server), whole);
    assert.equal((await cacheOf(server)).corrupt_files, 0);
    await server.stop();
    assert.deepEqual(readdirSync(disk).filter((file) => !/^[0-9a-f]{64}\.(rows|name)$|^quarantine$|^index$|^digests$/.test(file)).sort(),
      [...foreign, 'folder'].sort());
  });

  test('a file of a newer version is left alone', async (t) => {
    const disk = await filled(t);
    const newer = slabsIn(disk)[0];
    const bytes = readFileSync(newer.path);
    bytes[4] = 200;
    writeFileSync(newer.path, bytes);
    rmSync(join(disk, 'index')); // that of a newer version says nothing to this one
    const server = await start(t, disk);
    await allRight(server);
    await server.stop();
    assert.deepEqual(readFileSync(newer.path), bytes);
  });
});

test('hearth kv gc removes nothing that hangs on a file which it does not know', async (t) => {
  const disk = await filled(t);
  const listed = (await kv(disk, 'ls')).stdout;
  const root = /^disk +([0-9a-f]{16}) .* 0 +256 /m.exec(listed)[1];
  const newer = slabsIn(disk).find(({ name }) => name.startsWith(root));
  const bytes = readFileSync(newer.path);
  bytes[4] = 200;
  writeFileSync(newer.path, bytes);
  const before = slabsIn(disk);
  const { code } = await kv(disk, 'gc');
  assert.equal(code, 0);
  assert.deepEqual(slabsIn(disk), before);
  bytes[4] = 1;
  writeFileSync(newer.path, bytes);
  await intact(disk);
});

describe('damage while a server runs', () => {
  const cases = {
    'a byte of every file is another one': (slabs) => slabs.forEach(({ path }) => flip(path, 0.5)),
    'every file is cut': (slabs) => slabs.forEach(({ path, size }) => truncateSync(path, size - 100)),
    'every file is gone': (slabs) => slabs.forEach(({ path }) => rmSync(path)),
  };
  for (const [name, damage] of Object.entries(cases)) {
    test(`${name}: computed, and stored again`, async (t) => {
      const disk = temporaryFolder();
      const server = await start(t, disk, narrow);
      const [a, b] = [tokens(400, 1), tokens(400, 2)];
      const first = await ask(server, a);
      await ask(server, b);
      await saved(server);
      const slabs = slabsIn(disk);
      damage(slabs);
      assert.deepEqual(await ask(server, a), { text: first.text, cached: 0 });
      // Where computing was measured to be cheaper nothing is read, and damage not found: then it is the next time.
      await until('everything is stored again', async () => {
        await ask(server, b);
        await ask(server, a);
        await saved(server);
        return slabsIn(disk).length === slabs.length && (await kv(disk, 'verify')).code === 0;
      }, { seconds: 60 });
      await ask(server, b);
      assert.equal((await ask(server, a)).cached, 399, 'stored again');
      const cache = await cacheOf(server);
      if (name !== 'every file is gone') assert.ok(cache.corrupt_files >= 2, `${cache.corrupt_files} counted`);
      assert.equal(cache.tiers.disk.bytes, slabsIn(disk).reduce((sum, { size }) => sum + size, 0));
      await server.stop();
      await intact(disk);
    });
  }
});

describe('trouble with a folder', () => {
  const prompt = (i) => tokens(300, 500 + i);
  const told = (server) => until('the trouble is told', async () => (await cacheOf(server)).tiers.disk.trouble);

  // Requests are answered as if nothing were stored, and what lies in the cells is still used: of a state that cannot
  // be cut, all but 16 tokens at least.
  async function servesOn(server) {
    for (let i = 0; i < 3; i++) {
      const body = { prompt: prompt(i), max_tokens: 4, ...lettersOnly };
      const first = await server.client.complete(body);
      const second = await server.client.complete(body);
      assert.ok(second.timings.cache_n >= 300 - 16, `${second.timings.cache_n} cached`);
      assert.equal(second.choices[0].text, first.choices[0].text);
    }
  }

  const ways = {
    'removed, and made anew': [(disk) => rmSync(disk, { recursive: true }), async (server, disk) => {
      await until('the tier is back', async () => (await cacheOf(server)).tiers.disk.on);
      assert.ok(existsSync(disk));
    }],
    'replaced by a file': [(disk) => {
      rmSync(disk, { recursive: true });
      writeFileSync(disk, 'no folder');
    }, async (server) => {
      assert.match(await told(server), /Not a directory/);
      assert.ok((await cacheOf(server)).saves_dropped > 0);
      assert.equal((await cacheOf(server)).tiers.disk.on, false);
    }],
  };
  for (const [name, [spoil, check]] of Object.entries(ways)) {
    test(`the folder is ${name}, while the server runs: it says so and goes on; the other tier works`, async (t) => {
      const disk = join(temporaryFolder(), 'kv');
      const memory = folderInMemory(t);
      const set = { 'cache.tiers.ram_file.path': memory, 'cache.tiers.ram_file.quota_mb': 16 };
      const earlier = await start(t, disk, { set: { ...set, 'cache.save_tier': 'ram_file' } });
      const talk = new Talk();
      await talk.say(earlier, 300);
      await earlier.stop();

      const server = await start(t, disk, { set });
      await server.client.complete({ prompt: prompt(9), max_tokens: 1 });
      await saved(server);
      spoil(disk);
      await servesOn(server);
      await until('it says so', () => /warn +store: a tier was lost tier=disk/.test(server.log));
      await check(server, disk);
      assert.equal((await talk.say(server, 20)).computed, 21, 'read from the other tier');
      const cache = await cacheOf(server);
      assert.ok(cache.tiers.ram_file.on && !cache.tiers.ram_file.trouble);
      await server.stop();

      rmSync(disk, { recursive: true, force: true });
      const next = await start(t, disk, { set });
      await servesOn(next);
      await next.stop();
      await intact(disk);
    });
  }

  // Files of the server's may grow to so many bytes from now on: what is beyond is an error of write().
  const limitFiles = (server, bytes) => execFileSync('prlimit', [`--fsize=${bytes}:`, '--pid', String(server.pid)]);

  for (const arch of ['llama', 'qwen35']) {
    test(`writing fails for a while, ${arch}: nothing is lost that is still in the cells`, async (t) => {
      const disk = temporaryFolder();
      const options = { t, model: smallModel(arch), set: { 'cache.tiers.disk.path': disk },
        models: { context_window: 2048, n_seq_max: 2, n_seq_spare: 8 } }; // all stay in the cells
      const server = await serve(options);
      const [before, left, gone_on] = [1, 2, 3].map(() => new Talk());
      await before.say(server, 300, { seed: 1 });
      await saved(server);
      const files = slabsIn(disk);
      limitFiles(server, 1000);
      await left.say(server, 300, { seed: 2 });
      await gone_on.say(server, 300, { seed: 3 });
      await servesOn(server);
      assert.match(await told(server), /too large/i);
      await saved(server);
      assert.deepEqual(slabsIn(disk), files);
      assert.deepEqual(filesIn(disk).length, files.length, 'nothing half written stays');
      assert.ok((await cacheOf(server)).saves_dropped > 0);

      limitFiles(server, 'unlimited');
      await gone_on.say(server, 40);
      await saved(server);
      assert.equal((await cacheOf(server)).tiers.disk.trouble, undefined, 'the trouble is over');
      await server.says(/info +store: saves succeed again tier=disk/);
      await server.stop();
      await intact(disk);

      const next = await serve(options);
      const computed = {};
      for (const [name, talk] of Object.entries({ before, gone_on, left })) {
        computed[name] = (await talk.say(next, 20)).computed;
      }
      assert.deepEqual(computed, { before: 21, gone_on: 21, left: 21 });
      await next.stop();
    });
  }

  test('a folder that cannot be had when the server starts: the tier is off, and says why', async (t) => {
    const file = join(temporaryFolder(), 'file');
    writeFileSync(file, '');
    for (const disk of [file, join(file, 'kv'), '/proc/hearth/kv']) {
      const server = await start(t, disk);
      await servesOn(server);
      const { disk: tier } = (await cacheOf(server)).tiers;
      assert.equal(tier.on, false);
      assert.match(tier.trouble, /\[path\]/);
      assert.ok(!tier.trouble.includes(disk), tier.trouble);
      await server.says(/error +store: a tier is off tier=disk/);
      await server.stop();
    }
  });

  test('a slab that is larger than the quota: refused, told, and nothing else is lost', async (t) => {
    const disk = temporaryFolder();
    const broad = smallModel('llama', { layers: 8, embd: 64, heads: 4, 'kv-heads': 4, 'head-dim': 64, ff: 64 });
    const server = await serve({ t, model: broad, models: { context_window: 2048 },
      set: { 'cache.tiers.disk.path': disk, 'cache.tiers.disk.quota_mb': 1 } });
    await servesOn(server); // 300 tokens of 8 KiB: the first block alone is 2 MiB
    assert.match(await told(server), /quota/);
    await counted(server, 'saves_dropped', 1);
    assert.equal((await cacheOf(server)).tiers.disk.bytes, 0);
    // What is smaller is stored all the same.
    await server.client.complete({ prompt: tokens(110, 3), max_tokens: 1 });
    await saved(server);
    assert.equal((await cacheOf(server)).tiers.disk.entries, 1);
    assert.equal((await cacheOf(server)).tiers.disk.trouble, undefined, 'the trouble is over');
    await server.stop();
  });

  test('a second server on the same folder reads it, and says who has it; the folder stays whole', async (t) => {
    const disk = await filled(t);
    const first = await start(t, disk);
    const second = await start(t, disk);
    assert.deepEqual(await allRight(second), whole);
    await servesOn(second);
    const { disk: tier } = (await cacheOf(second)).tiers;
    assert.equal(tier.on, true);
    assert.match(tier.trouble, /another process/);
    await second.says(/another process uses the cache folder/);
    assert.deepEqual(await allRight(first), whole);
    await second.stop();
    assert.deepEqual(await allRight(first), whole);
    await killed(first);
    await intact(disk);
    const third = await start(t, disk);
    assert.deepEqual(await allRight(third), whole);
    await third.stop();
  });
});

test('kill -9 at any moment, again and again: replies are right, and every file is whole', async (t) => {
  const disk = temporaryFolder();
  const random = new Random(20261121);
  const set = { 'cache.tiers.disk.quota_mb': 2, 'cache.boundary_align_tokens': 64, 'cache.continued_interval': 64 };
  const models = { context_window: 1024, n_seq_max: 2 };
  let read = 0;
  for (let round = 0; round < 12; round++) {
    const server = await start(t, disk, { set, models });
    let alive = true;
    const clients = [0, 1].map(async () => {
      while (alive) {
        const i = random.below(prompts.length);
        const reply = await ask(server, prompts[i]).catch((error) => {
          if (alive || error instanceof assert.AssertionError) throw error;
          return null; // it was killed
        });
        if (reply === null) return;
        assert.equal(reply.text, replies[i], `round ${round}, prompt ${i}`);
        if (reply.cached > 0) read++;
        await new Talk().say(server, random.between(100, 400), { seed: random.below(1000) }).catch((error) => {
          if (alive) throw error;
        });
      }
    });
    await pause(random.between(5, 250)); // the moment that is meant
    alive = false;
    await killed(server);
    await Promise.all(clients);
    await intact(disk);
  }
  assert.ok(read > 0, 'something was read back');
  const server = await start(t, disk, { set, models });
  const cache = await cacheOf(server);
  assert.equal(cache.corrupt_files, 0);
  assert.ok(bytesIn(disk) <= 2 * 2 ** 20);
  assert.equal(cache.tiers.disk.bytes, bytesIn(disk));
  await server.stop();
});
