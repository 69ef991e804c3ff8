// Conversations outlive the server: what was computed once is read back, from every tier, and only what is new is
// computed. Replies are those of a server that never ended.
// Measures time: how long a start takes.

import { before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { lstatSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { Talk, cacheOf, counted, folderInMemory, intact, killed, kv, letterTokens, lettersOnly, saved, slabsIn }
  from './lib/store.js';
import { tokens, until } from './lib/wait.js';

const model = smallModel('llama');
const start = (t, disk, { set, models } = {}) => serve({
  t, model, set: { 'cache.tiers.disk.path': disk, ...set }, models: { context_window: 4096, ...models },
});

describe('a conversation over a restart', () => {
  const words = [300, 150, 90, 60];

  // The replies of one server that goes on.
  let unbroken;
  before(async () => {
    const server = await serve({ model, models: { context_window: 4096 } });
    const talk = new Talk();
    unbroken = [];
    for (const count of words) unbroken.push((await talk.say(server, count)).text);
    assert.equal(new Set(unbroken).size, words.length);
    await server.stop();
  });

  const ends = {
    'SIGTERM, as soon as the reply is there': (server) => server.stop(),
    'kill -9, once it is saved': async (server, turns) => {
      await counted(server, 'saves_finish', turns);
      await killed(server);
    },
  };
  for (const [name, end] of Object.entries(ends)) {
    test(`${name}: only new words are computed`, async (t) => {
      const disk = temporaryFolder();
      const talk = new Talk();
      for (const [turn, count] of words.entries()) {
        const server = await start(t, disk);
        const before = talk.tokens.length;
        const { text, cached } = await talk.say(server, count);
        assert.equal(text, unbroken[turn]);
        assert.equal(cached, Math.max(0, before - 1), `cached in turn ${turn + 1}`);
        const { hits_exact, hits_resume, hits_longest_prefix, misses } = await cacheOf(server);
        assert.deepEqual({ hits: hits_exact + hits_resume + hits_longest_prefix, misses },
          turn === 0 ? { hits: 0, misses: 1 } : { hits: 1, misses: 0 });
        await end(server, 1);
        await intact(disk);
      }
    });
  }

  test('SIGTERM, with what nobody continues for a while: several conversations are saved at once', async (t) => {
    const disk = temporaryFolder();
    const talks = [1, 2, 3, 4].map(() => new Talk());
    const first = await start(t, disk, { models: { n_seq_max: 4 } });
    await Promise.all(talks.map((talk, i) => talk.say(first, 200 + 50 * i, { seed: 10 + i })));
    const begin = performance.now();
    await first.stop();
    const took = performance.now() - begin;
    assert.ok(took < 5000, `the server ended after ${took.toFixed(0)} ms`);
    const second = await start(t, disk, { models: { n_seq_max: 4 } });
    const turns = await Promise.all(talks.map((talk) => talk.say(second, 20)));
    assert.deepEqual(turns.map(({ computed }) => computed), [21, 21, 21, 21], 'read back side by side');
    await second.stop();
  });

  test('two clients go on with one conversation at once: it is read back for both', async (t) => {
    const disk = temporaryFolder();
    const talk = new Talk();
    const first = await start(t, disk);
    await talk.say(first, 2000);
    await first.stop();
    const second = await start(t, disk, { models: { n_seq_max: 2 } });
    const turns = await Promise.all([1, 2].map((seed) => talk.copy().say(second, 20, { seed })));
    for (const { computed } of turns) assert.ok(computed <= 21, `${computed} computed`);
    const { read_bytes, tiers } = await cacheOf(second);
    assert.ok(read_bytes <= tiers.disk.bytes, `${read_bytes} bytes read of ${tiers.disk.bytes}`);
    await second.stop();
  });

  test('a stream says how much was read back', async (t) => {
    const disk = temporaryFolder();
    const prompt = tokens(500, 2);
    const first = await start(t, disk);
    await first.client.complete({ prompt, max_tokens: 1 });
    await first.stop();
    const second = await start(t, disk);
    const reply = await second.client.streamed('/v1/completions', { prompt, max_tokens: 3, ignore_eos: true,
      stream_options: { include_usage: true } });
    assert.equal(reply.timings.cache_n, 499);
    assert.equal(reply.timings.prompt_n, 1);
    const { restore_ms, prompt_ms } = reply.timings;
    assert.ok(restore_ms > 0 && restore_ms <= prompt_ms, `${restore_ms} of ${prompt_ms} ms`);
    assert.equal(reply.usage.prompt_tokens_details.cached_tokens, 499);
    await second.says(/store: restored .*tokens=499 of_tokens=499 tier=disk/);
    await second.stop();
  });

  test('system prompts alone are kept: over a restart as well', async (t) => {
    const disk = temporaryFolder();
    const options = { t, set: { 'cache.tiers.disk.path': disk, 'cache.boundary_align_tokens': 32 },
      models: { cache_min_tokens: 10, system_prompt_cache: true, incremental_cache: false } };
    const messages = [{ role: 'system', content: 'The secret code is QX7B2. '.repeat(6) },
      { role: 'user', content: 'What is the secret code?' }];
    const first = await serve(options);
    const cold = await first.client.chat({ messages, max_tokens: 30 });
    assert.match(cold.choices[0].message.content, /QX7B2/);
    await saved(first);
    await killed(first);
    const second = await serve(options);
    const warm = await second.client.chat({ messages, max_tokens: 30 });
    assert.equal(warm.choices[0].message.content, cold.choices[0].message.content);
    assert.ok(warm.timings.cache_n >= 60, `${warm.timings.cache_n} cached`);
    assert.ok(warm.timings.prompt_n < 40, `${warm.timings.prompt_n} computed`);
    await second.stop();
  });

  test('SIGTERM in mid-generation, without time to drain: what was streamed is there', async (t) => {
    const disk = temporaryFolder();
    const first = await start(t, disk, { set: { 'server.drain_timeout': 0 } });
    const prompt = tokens(300, 3);
    const stream = await first.client.stream('/v1/completions', { prompt, max_tokens: 3000, ...lettersOnly });
    let text;
    const ended = stream.collect((_, result) => { [text] = result.texts; }).catch(() => {});
    await until('100 letters have come', () => text?.length >= 100);
    await first.stop();
    await ended;
    const second = await start(t, disk);
    const whole = [...prompt, ...letterTokens(text), 5];
    const reply = await second.client.complete({ prompt: whole, max_tokens: 1 });
    assert.ok(reply.timings.prompt_n <= 2, `${reply.timings.prompt_n} of ${whole.length} tokens computed`);
    await second.stop();
  });

  test('several thousand tokens, kill -9: at most one block is computed again', async (t) => {
    const disk = temporaryFolder();
    const talk = new Talk();
    const first = await start(t, disk);
    await talk.say(first, 3500);
    await counted(first, 'saves_finish', 1);
    await killed(first);
    const second = await start(t, disk);
    const { computed, cached } = await talk.say(second, 30);
    assert.ok(computed <= 30 + 256, `${computed} computed, ${cached} cached`);
    await second.stop();
  });

  test('a prompt that is computed, kill -9 before its reply ends: its end alone is computed again', async (t) => {
    const disk = temporaryFolder();
    const first = await start(t, disk);
    const prompt = tokens(3000, 4);
    const stream = await first.client.stream('/v1/completions', { prompt, max_tokens: 900, ignore_eos: true });
    const ended = stream.collect().catch(() => {});
    await counted(first, 'saves_cold', 1);
    await killed(first);
    await ended;
    const second = await start(t, disk);
    const reply = await second.client.complete({ prompt, max_tokens: 1 });
    // A block, and the words at the end that prompts differ in.
    assert.ok(reply.timings.prompt_n <= 256 + 32, `${reply.timings.prompt_n} computed`);
    await second.stop();
  });

  test('killed in mid-generation: goes on from the last save on the way', async (t) => {
    const disk = temporaryFolder();
    const set = { 'cache.continued_interval': 128, 'cache.boundary_align_tokens': 64 };
    const body = { prompt: tokens(300, 5), max_tokens: 900, ...lettersOnly };
    const first = await start(t, disk, { set });
    const whole = (await first.client.complete({ ...body, cache_prompt: false })).choices[0].text;
    assert.equal((await cacheOf(first)).tiers.disk.entries, 0, 'nothing is kept of a private prompt');

    const stream = await first.client.stream('/v1/completions', body);
    let text;
    const ended = stream.collect((_, result) => { [text] = result.texts; }).catch(() => {});
    await counted(first, 'saves_continued', 4);
    await until('the stream is as far', () => text?.length >= 4 * 128);
    const { saves_continued } = await cacheOf(first);
    await killed(first);
    await ended;
    assert.ok(text.length < 900, 'it was killed in the middle');
    assert.ok(whole.startsWith(text), 'the broken stream was right so far');

    const second = await start(t, disk, { set });
    const prompt = [...body.prompt, ...letterTokens(text)];
    const reply = await second.client.complete({ ...body, prompt, max_tokens: 900 - text.length });
    // The prompt's save is at (300 - 32) / 64 x 64 = 256; each that follows is 128 further.
    const least = Math.min(256 + 128 * saves_continued, prompt.length - 1);
    assert.ok(reply.timings.cache_n >= least, `${reply.timings.cache_n} of ${least} cached`);
    assert.equal(text + reply.choices[0].text, whole);
    await second.stop();
  });

  test('saves on the way are as far apart as configured', async (t) => {
    const disk = temporaryFolder();
    const set = { 'cache.continued_interval': 128, 'cache.boundary_align_tokens': 64 };
    const server = await start(t, disk, { set });
    await server.client.complete({ prompt: tokens(300, 6), max_tokens: 3 * 128 + 1, ...lettersOnly });
    await saved(server);
    const { saves_cold, saves_continued, saves_finish, saves_dropped } = await cacheOf(server);
    assert.deepEqual({ saves_cold, saves_continued, saves_finish, saves_dropped },
      { saves_cold: 1, saves_continued: 3, saves_finish: 1, saves_dropped: 0 });
    const rows = (await kv(disk, 'ls')).stdout.matchAll(/rows +(\w+) +(\d+) +(\d+) /g);
    const reasons = [...rows].map(([, reason, from, to]) => [Number(from), Number(to), reason]);
    reasons.sort((a, b) => a[0] - b[0]);
    const expected = [];
    for (let at = 0; at < 684; at += 64) {
      expected.push([at, Math.min(at + 64, 684), at < 256 ? 'cold' : at < 640 ? 'continued' : 'finish']);
    }
    assert.deepEqual(reasons, expected);
    await server.stop();
  });
});

describe('tiers', () => {
  // The last conversation alone fits into the cells, so that others have to be read back.
  const narrow = { context_window: 600, n_seq_max: 1 };
  const quotas = { 'cache.tiers.ram.quota_mb': 16, 'cache.tiers.ram_file.quota_mb': 16 };

  for (const tier of ['ram', 'ram_file', 'disk']) {
    const end = tier === 'ram' ? 'lost' : 'kept';
    test(`${tier}: saved there and nowhere else, read back, and ${end} at a restart`, async (t) => {
      const folders = { ram_file: join(folderInMemory(t), 'a', 'b'), disk: join(temporaryFolder(), 'c', 'd') };
      const set = { ...quotas, 'cache.save_tier': tier, 'cache.tiers.ram_file.path': folders.ram_file };
      const first = await start(t, folders.disk, { set, models: narrow });
      const a = new Talk();
      const b = new Talk();
      await a.say(first, 400, { seed: 1 });
      await b.say(first, 400, { seed: 2 });
      await saved(first);
      assert.equal((await a.say(first, 30)).computed, 31, 'read back after another one took its cells');
      const { hits_longest_prefix, hits_exact, tiers } = await cacheOf(first);
      assert.equal(hits_longest_prefix + hits_exact, 1);
      for (const [name, { on, entries, bytes, quota_bytes }] of Object.entries(tiers)) {
        if (name === 'ram' && tier !== 'ram') continue; // it serves states then, and nothing is saved to it
        if (name === 'remote') { // remote.test.js
          assert.ok(!on, name);
          continue;
        }
        assert.ok(on, name);
        assert.ok(quota_bytes > 0 && bytes <= quota_bytes, name);
        assert.equal(entries > 0, name === tier, `entries in ${name}`);
        assert.equal(bytes > 0, name === tier, `bytes in ${name}`);
      }
      await first.stop();
      for (const [name, folder] of Object.entries(folders)) {
        const slabs = slabsIn(folder);
        assert.equal(slabs.length > 0, name === tier, `${slabs.length} files in ${name}`);
        for (const slab of slabs) assert.equal(lstatSync(slab.path).mode & 0o7777, 0o600, slab.name);
        for (const path of [folder, join(folder, '..')]) {
          assert.equal(lstatSync(path).mode & 0o7777, 0o700, `mode of ${path}`);
        }
        assert.deepEqual(readdirSync(folder).filter((file) => file.includes('.tmp')), []);
      }

      const second = await start(t, folders.disk, { set, models: narrow });
      const { cached } = await a.say(second, 20);
      assert.equal(cached, tier === 'ram' ? 0 : a.tokens.length - 16 - 20 - 1);
      await second.stop();
    });
  }

  test('a hit moves nothing: it leaves every tier as it was', async (t) => {
    const folders = { ram_file: folderInMemory(t), disk: temporaryFolder() };
    const set = { ...quotas, 'cache.tiers.ram_file.path': folders.ram_file };
    const prompts = [tokens(500, 71), tokens(500, 72)];
    const ask = (server, i) => server.client.complete({ prompt: prompts[i % 2], max_tokens: 4, ...lettersOnly });
    for (const tier of ['disk', 'ram_file']) {
      const first = await start(t, folders.disk, { set: { ...set, 'cache.save_tier': tier }, models: narrow });
      for (const i of [0, 1]) await ask(first, i);
      await first.stop();
      const files = Object.values(folders).map(slabsIn);

      const second = await start(t, folders.disk, { set: { ...set, 'cache.save_tier': tier }, models: narrow });
      const before = (await cacheOf(second)).tiers;
      for (let i = 0; i < 20; i++) {
        assert.equal((await ask(second, i)).timings.cache_n, 499, `request ${i + 1}, ${tier}`);
      }
      await saved(second);
      const cache = await cacheOf(second);
      assert.equal(cache.hits_longest_prefix + cache.hits_exact, 20);
      assert.deepEqual({ tiers: cache.tiers, written: cache.written_bytes }, { tiers: before, written: 0 });
      await second.stop();
      assert.deepEqual(Object.values(folders).map(slabsIn), files);
      for (const { path } of files.flat().filter((file) => file.path.includes(folders.disk))) rmSync(path);
    }
  });

  test('a tier that is off, and no tier at all', async (t) => {
    const disk = temporaryFolder();
    const server = await start(t, disk, { set: { 'cache.tiers.disk.quota_mb': 0 } });
    const talk = new Talk();
    await talk.say(server, 300);
    assert.equal((await talk.say(server, 20)).computed, 21, 'cells serve as ever');
    const cache = await cacheOf(server);
    assert.equal(cache.tiers.disk.on, false);
    assert.equal(cache.written_bytes, 0);
    await server.stop();
    assert.deepEqual(readdirSync(disk), []);
  });
});
