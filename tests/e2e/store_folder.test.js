// Keeping house: quotas, the order in which things make room, and `hearth kv` for people.

import { before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { smallModel } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { Talk, bytesIn, cacheOf, filesIn, flip, folderInMemory, intact, kv, saved, slabsIn } from './lib/store.js';
import { tokens } from './lib/wait.js';

const model = smallModel('llama');
const start = (t, disk, { set } = {}) => serve({
  t, model, set: { 'cache.tiers.disk.path': disk, ...set }, models: { context_window: 2048 },
});

describe('quotas', () => {
  for (const tier of ['disk', 'ram_file']) {
    test(`${tier}: ten times the quota is written, and never more than the quota lies there`, async (t) => {
      const folder = tier === 'disk' ? temporaryFolder() : folderInMemory(t);
      const keys = `cache.tiers.${tier}`;
      const set = { 'cache.save_tier': tier, [`${keys}.path`]: folder, [`${keys}.quota_mb`]: 1 };
      const quota = 2 ** 20;
      const server = await serve({ t, model, set, models: { context_window: 600, n_seq_max: 2 } });
      let most = 0;
      let looks = 0;
      let running = true;
      // Files come and go while they are added up: what counts is a sum that two looks agree on, file by file.
      const watch = (async () => {
        for (let last = null; running; await new Promise(setImmediate)) {
          const files = filesIn(folder);
          const now = JSON.stringify(files);
          if (now === last) {
            most = Math.max(most, files.reduce((sum, [, size]) => sum + size, 0));
            looks++;
          }
          last = now;
        }
      })();
      const kept = new Talk();
      let written = 0;
      for (let i = 0; written < 10 * quota; i++) {
        assert.ok(i < 100, `${written} bytes written by ${i} rounds`);
        await Promise.all([1, 2].map((seed) => server.client.complete({
          prompt: tokens(330, i * 10 + seed), max_tokens: 2, cache_salt: String(seed) })));
        const cache = await cacheOf(server);
        assert.ok(cache.tiers[tier].bytes <= quota, `${cache.tiers[tier].bytes} bytes`);
        written = cache.written_bytes;
      }
      await kept.say(server, 300, { seed: 77 });
      await saved(server);
      running = false;
      await watch;
      const cache = await cacheOf(server);
      t.diagnostic(`${(written / quota).toFixed(1)} times the quota written, at most ${most} bytes in ${looks} looks`);
      assert.ok(looks > 100, `${looks} looks`);
      assert.ok(most <= quota, `${most} bytes in the folder`);
      assert.ok(most > quota / 2, `${most} bytes: the quota is used`);
      assert.ok(cache.tiers[tier].evictions > 0);
      assert.equal(cache.tiers[tier].bytes, bytesIn(folder));
      await server.stop();

      const next = await serve({ t, model, set, models: { context_window: 600 } });
      assert.equal((await kept.say(next, 20)).computed, 21, 'what was used last is there');
      await next.stop();
    });
  }

  test('a quota that has become smaller: the oldest go at the start', async (t) => {
    const disk = temporaryFolder();
    const first = await start(t, disk);
    const talks = Array.from({ length: 8 }, () => new Talk());
    for (const [i, talk] of talks.entries()) await talk.say(first, 240, { seed: 80 + i });
    await first.stop();
    assert.ok(bytesIn(disk) > 2 * 2 ** 20 * 0.9, `${bytesIn(disk)} bytes`);
    const second = await start(t, disk, { set: { 'cache.tiers.disk.quota_mb': 1 } });
    await second.client.complete({ prompt: [5], max_tokens: 1 });
    await saved(second);
    assert.ok(bytesIn(disk) <= 2 ** 20);
    assert.equal((await talks[7].copy().say(second, 20)).computed, 21);
    assert.ok((await talks[0].copy().say(second, 20)).computed > 200);
    await second.stop();
  });

  test('what was used last stays longest, over a restart too', async (t) => {
    const disk = temporaryFolder();
    const set = { 'cache.tiers.disk.quota_mb': 1 };
    const first = await start(t, disk, { set });
    const talks = [1, 2, 3].map(() => new Talk());
    for (const [i, talk] of talks.entries()) await talk.say(first, 240, { seed: 90 + i });
    await first.stop();
    const second = await start(t, disk, { set });
    const { timings } = await second.client.complete({ prompt: talks[0].tokens.slice(0, 250), max_tokens: 1 });
    assert.equal(timings.cache_n, 249, 'the oldest is used');
    await saved(second);
    assert.equal((await cacheOf(second)).written_bytes, 0);
    await second.stop();
    const third = await start(t, disk, { set });
    for (const seed of [95, 96, 97]) await new Talk().say(third, 220, { seed }); // two have to make way
    await saved(third);
    await third.stop();
    const fourth = await start(t, disk, { set });
    const there = [];
    for (const talk of talks) {
      there.push((await fourth.client.ask('/cache/lookup', { prompt: talk.tokens })).disk > 200);
    }
    await fourth.stop();
    assert.deepEqual(there, [true, false, false]);
  });
});

describe('hearth kv', () => {
  const talks = [1, 2, 3].map(() => new Talk());
  let disk;
  let listed;
  before(async () => {
    disk = temporaryFolder();
    const server = await start(undefined, disk);
    for (const [i, talk] of talks.entries()) await talk.say(server, i === 2 ? 900 : 240, { seed: i });
    await server.stop();
    listed = (await kv(disk, 'ls')).stdout;
  });

  // How much of each conversation a server finds.
  async function found(t, folder) {
    const server = await start(t, folder);
    const cached = [];
    for (const talk of talks) cached.push((await talk.copy().say(server, 20)).cached);
    await server.stop();
    return cached;
  }
  const whole = () => talks.map((talk) => talk.tokens.length - 1);

  const copied = () => {
    const folder = temporaryFolder();
    for (const { path, name } of slabsIn(disk)) copyFileSync(path, join(folder, name));
    return folder;
  };

  test('ls names every slab; with a server running as well', async (t) => {
    const slabs = slabsIn(disk);
    const lines = listed.trim().split('\n');
    assert.equal(lines.length, slabs.length + 2, 'a head, and a sum');
    for (const { name, size } of slabs) {
      assert.ok(lines.some((line) => line.includes(name.slice(0, 16)) && line.includes(` ${size} `)), name);
    }
    assert.ok(lines.at(-1).startsWith(`${slabs.length} entries, ${bytesIn(disk)} bytes`), lines.at(-1));
    const server = await start(t, disk);
    assert.ok(lines.slice(1, -1).every((line) => line.endsWith(`  ${server.model}`)), 'models by their names');
    assert.equal((await kv(disk, 'ls')).stdout, listed);
    await intact(disk);
    await server.stop();
  });

  test('ls as JSON has the same entries, with whole keys', async () => {
    const { code, stdout } = await kv(disk, 'ls', '--json');
    assert.equal(code, 0);
    const { entries } = JSON.parse(stdout);
    assert.equal(entries.length, slabsIn(disk).length);
    assert.equal(entries.reduce((sum, { bytes }) => sum + bytes, 0), bytesIn(disk));
    for (const { key, tier, start, end, used_ms: used } of entries) {
      assert.match(key, /^[0-9a-f]{64}$/);
      assert.equal(tier, 'disk');
      assert.ok(start >= 0 && end > start && used > 1.6e12, key);
      assert.ok(listed.includes(key.slice(0, 16)));
    }
    assert.deepEqual(JSON.parse((await kv(temporaryFolder(), 'ls', '--json')).stdout), { entries: [] });
  });

  test('show tells of one', async () => {
    const { name } = slabsIn(disk)[0];
    const { code, stdout } = await kv(disk, 'show', name.slice(0, 64));
    assert.equal(code, 0);
    assert.ok(stdout.includes(name.slice(0, 64)));
    assert.equal((await kv(disk, 'show', 'f'.repeat(64))).code, 1);
    assert.equal((await kv(disk, 'show', 'xyz')).code, 2);
  });

  test('gc and clear leave the folder of a running server alone', async (t) => {
    const folder = copied();
    const server = await start(t, folder);
    const files = slabsIn(folder);
    for (const command of ['gc', 'clear']) {
      const { code, stderr } = await kv(folder, command);
      assert.equal(code, 1);
      assert.match(stderr, /server/);
      assert.equal(stderr.trim().split('\n').length, 1);
    }
    assert.deepEqual(slabsIn(folder), files);
    await server.stop();
    assert.deepEqual(await found(t, folder), whole());
  });

  test('gc removes what is of no use, and keeps to the quota', async (t) => {
    const folder = copied();
    writeFileSync(join(folder, `${'a'.repeat(64)}.rows.3.tmp`), 'half');
    writeFileSync(join(folder, 'mine.txt'), 'mine');
    mkdirSync(join(folder, 'quarantine'), { mode: 0o700 });
    writeFileSync(join(folder, 'quarantine', `1-${'b'.repeat(64)}.rows`), 'bad');
    const files = slabsIn(folder);
    const { code, stdout } = await kv(folder, 'gc');
    assert.equal(code, 0);
    assert.match(stdout, /removed 2 files, 7 bytes/);
    assert.deepEqual(slabsIn(folder), files);
    assert.equal(readFileSync(join(folder, 'mine.txt'), 'utf8'), 'mine');
    assert.equal((await kv(folder, 'gc', '--set', 'cache.tiers.disk.quota_mb=1')).code, 0);
    assert.ok(slabsIn(folder).reduce((sum, { size }) => sum + size, 0) <= 2 ** 20);
    await intact(folder);
    assert.equal((await found(t, folder)).filter((n, i) => n === whole()[i]).length, 1, 'what was used last is whole');
  });

  test('verify finds each damaged file, and touches none', async () => {
    const folder = copied();
    const files = slabsIn(folder);
    flip(files[1].path, 0.4);
    const before = files.map(({ path }) => readFileSync(path));
    const { code, stdout, stderr } = await kv(folder, 'verify');
    assert.equal(code, 1);
    assert.ok(stdout.includes(files[1].name.slice(0, 16)));
    assert.match(stderr, /1 damaged/);
    assert.deepEqual(files.map(({ path }) => readFileSync(path)), before);
  });

  test('clear removes all that is the store\'s', async (t) => {
    const folder = copied();
    writeFileSync(join(folder, 'mine.txt'), 'mine');
    const { code, stdout } = await kv(folder, 'clear');
    assert.equal(code, 0);
    assert.match(stdout, new RegExp(`removed ${slabsIn(disk).length} files`));
    assert.deepEqual(readdirSync(folder).filter((name) => name !== 'quarantine'), ['mine.txt']);
    assert.deepEqual(await found(t, folder), [0, 0, 0]);
  });

  test('a folder that is not there, and wrong usage', async () => {
    const missing = join(temporaryFolder(), 'missing');
    for (const command of ['ls', 'verify', 'gc', 'clear']) {
      const { code, stderr } = await kv(missing, command);
      assert.ok(code === 0 || stderr.trim().split('\n').length === 1, `${command}: ${code} ${stderr}`);
    }
    assert.equal(existsSync(missing), false, 'looking makes no folder');
    for (const args of [['kv', 'frob'], ['kv', 'ls', '--nope'], ['kv', 'show']]) {
      assert.equal((await run(args)).code, 2, args.join(' '));
    }
  });
});
