// How much is stored and how often, what hints and counters say, where things are, and that nobody is held up by it.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { smallModel } from './lib/models.js';
import { modelName, serve, temporaryFolder } from './lib/server.js';
import { Talk, bytesIn, cacheOf, counted, intact, killed, saved, slabsIn } from './lib/store.js';
import { tokens, until } from './lib/wait.js';

const model = smallModel('llama');
const start = (t, disk, { set, models } = {}) => serve({
  t, model, set: { 'cache.tiers.disk.path': disk, ...set }, models: { context_window: 4096, ...models },
});

describe('what is stored, and how often', () => {
  // 8 layers x 4 heads x 64 x (keys and values) x 2 bytes. Tokens are dear to compute, so that it is cheaper to read
  // their rows back even from a store that a sanitizer makes ten times as slow.
  const rowBytes = 8 * 4 * 64 * 2 * 2;
  const broad = smallModel('llama', {
    layers: 8, embd: 64, heads: 4, 'kv-heads': 4, 'head-dim': 64, ff: 4096, type: 'f16',
  });

  test('six agents, one system prompt, 20 turns: nothing twice, and little beside the rows', async (t) => {
    const disk = temporaryFolder();
    // Fewer cells than the six need in the end, so that they push each other out.
    const models = { context_window: 2048, n_seq_max: 2, queue_depth: 3 };
    const server = await serve({ t, model: broad, set: { 'cache.tiers.disk.path': disk }, models });
    const system = tokens(500, 1);
    const agents = Array.from({ length: 6 }, () => new Talk());
    agents.forEach((agent) => { agent.tokens = [...system]; });
    let computed = 0;
    for (let turn = 0; turn < 20; turn++) {
      const turns = await Promise.all(agents.map((agent, i) => agent.say(server, 40, { seed: 50 + i, reply: 12 })));
      for (const one of turns) computed += one.computed;
    }
    await saved(server);
    const cache = await cacheOf(server);
    // The last token of a reply has no row.
    const distinct = system.length + agents.reduce((sum, { tokens: all }) => sum + all.length - system.length - 1, 0);
    const ratio = cache.written_bytes / (distinct * rowBytes);
    t.diagnostic(`${distinct} distinct tokens, ${cache.tiers.disk.entries} slabs, ratio ${ratio.toFixed(4)}, `
      + `${computed} prompt tokens computed, ${cache.saves_evict} saved because they made way`);
    assert.ok(ratio >= 1 && ratio <= 1.05, `${ratio.toFixed(4)} bytes written for one of distinct rows`);
    assert.equal(cache.saves_dropped, 0);
    assert.ok(cache.hits_longest_prefix + cache.hits_exact > 20, 'many turns began with what had to be read back');
    // A turn computes its 40 words and the last token of the reply before; whoever was pushed out, no more.
    assert.ok(computed <= system.length + 6 * 20 * (40 + 1) + 6 * 16, `${computed} prompt tokens computed`);
    assert.equal(cache.tiers.disk.bytes, cache.written_bytes);
    await server.stop();
    assert.equal(bytesIn(disk), cache.written_bytes);
    await intact(disk);
  });

  test('a growing chat without any hint, a new server at each turn: new tokens and a stride', async (t) => {
    const disk = temporaryFolder();
    const stride = 32;
    const messages = [{ role: 'system', content: 'You are a helpful assistant. The secret code is QX7B2. '.repeat(4) }];
    let total = 0;
    for (let turn = 1; turn <= 6; turn++) {
      messages.push({ role: 'user', content: `This is question ${turn}. My name is Ottilie, and I like the number `
        + `${turn * 7}. What is the secret code?` });
      const server = await serve({ t, set: { 'cache.tiers.disk.path': disk, 'cache.boundary_align_tokens': stride },
        models: { cache_min_tokens: 1, context_window: 2048 } });
      const reply = await server.client.chat({ messages, max_tokens: 40 });
      const { cache_n, prompt_n } = reply.timings;
      const fresh = cache_n + prompt_n - total;
      assert.ok(fresh > 20, `${fresh} new tokens`);
      assert.ok(prompt_n <= fresh + stride, `turn ${turn}: ${prompt_n} computed, ${fresh} new`);
      total += fresh;
      messages.push(reply.choices[0].message);
      if (turn % 2) {
        await counted(server, 'saves_finish', 1);
        await killed(server);
      } else {
        await server.stop();
      }
    }
    assert.ok(total > 400, `${total} tokens in the end`);
  });

  test('private prompts are neither read nor stored', async (t) => {
    const disk = temporaryFolder();
    const server = await start(t, disk);
    const prompt = tokens(400, 8);
    await server.client.complete({ prompt, max_tokens: 4, cache_prompt: false });
    await saved(server);
    assert.deepEqual(slabsIn(disk), []);
    await server.client.complete({ prompt, max_tokens: 4 });
    await server.stop();
    const second = await start(t, disk);
    const { timings } = await second.client.complete({ prompt, max_tokens: 4, cache_prompt: false });
    assert.equal(timings.cache_n, 0);
    await second.stop();
  });

  test('what is too short to be worth it is not stored', async (t) => {
    const disk = temporaryFolder();
    const server = await start(t, disk, { models: { cache_min_tokens: 100 } });
    await server.client.complete({ prompt: tokens(60, 9), max_tokens: 30, ignore_eos: true });
    await server.stop();
    assert.deepEqual(slabsIn(disk), []);
  });
});

describe('hints, numbers, lookups', () => {
  const lookup = (server, body) => server.client.ask('/cache/lookup', body);

  // Five conversations, of which a new server knows nothing but the files.
  async function stored(t, disk) {
    const server = await start(t, disk);
    const talks = [1, 2, 3, 4, 5].map((seed) => new Talk(seed === 5 ? { cache_salt: 'other' } : {}));
    for (const [i, talk] of talks.entries()) await talk.say(server, 300, { seed: 20 + i });
    await server.stop();
    return talks;
  }

  test('parent_key: right, unknown, foreign, of another tenant', async (t) => {
    const disk = temporaryFolder();
    const talks = await stored(t, disk);
    // Nothing is being saved, so nobody has to wait for it.
    const server = await start(t, disk, { set: { 'cache.session_resume_wait_ms': 20000 } });
    const keys = [];
    for (const talk of talks) {
      const found = await lookup(server, { prompt: [...talk.tokens, 5], cache_salt: talk.body.cache_salt });
      assert.equal(found.disk, talk.tokens.length - 1);
      assert.match(found.key, /^[0-9a-f]{64}$/);
      keys.push(found.key);
    }
    assert.equal(new Set(keys).size, keys.length);

    const begin = performance.now();
    const say = async (i, parent_key) => {
      const { computed } = await talks[i].say(server, 30, { parent_key });
      assert.equal(computed, 31);
      return (await cacheOf(server)).hits_resume;
    };
    assert.equal(await say(0, keys[0]), 1, 'the right one');
    assert.equal(await say(1, 'f'.repeat(64)), 1, 'unknown');
    assert.equal(await say(2, keys[3]), 1, 'of another conversation');
    assert.ok(performance.now() - begin < 10000, 'nobody waits for what is not on its way');

    // Another tenant's key: nothing comes of it.
    const thief = await server.client.complete({ prompt: [...talks[4].tokens, 5], max_tokens: 1, parent_key: keys[4] });
    assert.equal(thief.timings.cache_n, 0);
    assert.equal((await cacheOf(server)).hits_resume, 1);
    assert.equal(await say(4, keys[4]), 2, 'its owner\'s');
    await server.stop();
  });

  test('parent_key: what is no key is refused by name', async (t) => {
    const server = await start(t, temporaryFolder());
    for (const parent_key of ['', 'x', 'f'.repeat(63), 'f'.repeat(65), 'F'.repeat(64), `${'f'.repeat(63)}g`, 5, [], {},
      true]) {
      for (const [path, body] of [['/v1/completions', { prompt: 'a' }],
        ['/v1/chat/completions', { messages: [{ role: 'user', content: 'a' }] }]]) {
        const error = await server.client.refused(400, path, { ...body, max_tokens: 1, parent_key });
        assert.equal(error.param, 'parent_key', JSON.stringify(parent_key));
      }
    }
    const { choices } = await server.client.complete({ prompt: 'a', max_tokens: 1, parent_key: null });
    assert.equal(choices.length, 1);
    await server.stop();
  });

  test('counters: one of four for each prompt that was looked for, and bytes are those of files', async (t) => {
    const disk = temporaryFolder();
    const talks = await stored(t, disk);
    const server = await start(t, disk);
    const { key } = await lookup(server, { prompt: [...talks[0].tokens, 5] });
    const lookedAt = await cacheOf(server);
    await talks[0].say(server, 20, { parent_key: key });
    await talks[1].say(server, 0); // the stored tokens, and the one whose logits are wanted
    await talks[2].say(server, 20);
    const edited = talks[3].tokens.slice(0, 200);
    assert.equal((await server.client.complete({ prompt: [...edited, 5, 6], max_tokens: 1 })).timings.cache_n, 200);
    for (const seed of [31, 32, 33]) await new Talk().say(server, 200, { seed });
    await saved(server);
    const cache = await cacheOf(server);
    const { hits_exact, hits_resume, hits_longest_prefix, misses } = cache;
    assert.deepEqual({ hits_exact, hits_resume, hits_longest_prefix, misses },
      { hits_exact: 1, hits_resume: 1, hits_longest_prefix: 2, misses: 3 });
    assert.ok(cache.longest_prefix_probes > lookedAt.longest_prefix_probes);
    assert.ok(cache.load_ns > 0 && cache.pack_ns > 0 && cache.read_bytes > 0);
    assert.equal(cache.corrupt_files, 0);

    const slabs = slabsIn(disk);
    assert.equal(cache.tiers.disk.entries, slabs.length);
    assert.equal(cache.tiers.disk.bytes, slabs.reduce((sum, { size }) => sum + size, 0));
    assert.equal(cache.tiers.disk.bytes - lookedAt.tiers.disk.bytes, cache.written_bytes);

    const metrics = await server.client.metrics();
    for (const name of ['hits_exact', 'hits_resume', 'hits_longest_prefix', 'misses', 'saves_cold', 'saves_continued',
      'saves_finish', 'saves_evict', 'saves_shutdown', 'saves_dropped', 'duplicate_dropped', 'corrupt_files',
      'longest_prefix_probes', 'written_bytes', 'read_bytes']) {
      assert.equal(metrics.get(`hearth_cache_${name}_total`), cache[name], name);
    }
    for (const name of ['entries', 'bytes', 'quota_bytes']) {
      assert.equal(metrics.get(`hearth_cache_${name}{tier="disk"}`), cache.tiers.disk[name], name);
    }
    await server.stop();
  });

  test('/cache/lookup tells where tokens are, and computes nothing', async (t) => {
    const disk = temporaryFolder();
    const talks = await stored(t, disk);
    const server = await start(t, disk);
    const numbers = async () => {
      const { longest_prefix_probes, ...cache } = await cacheOf(server);
      const names = ['hearth_prompt_tokens_total', 'hearth_cached_tokens_total'];
      return { ...cache, computed: await server.client.metric(...names) };
    };
    const before = await numbers();
    const prompt = [...talks[0].tokens, ...tokens(50, 3)];
    const there = talks[0].tokens.length - 1;
    const expected = { model: modelName(model), prompt_tokens: prompt.length, tokens: there, resident: 0, ram: 0,
      ram_file: 0, disk: there, remote: 0, computed: prompt.length - there };
    const { key, divergence, ...found } = await lookup(server, { prompt });
    assert.deepEqual(found, expected);
    assert.deepEqual([divergence.where, divergence.position, divergence.nearest], ['disk', there, '']);
    const salted = await lookup(server, { prompt, cache_salt: 'other' });
    assert.deepEqual({ tokens: salted.tokens, key: salted.key }, { tokens: 0, key: null });
    assert.deepEqual(await numbers(), before, 'nothing has been counted or computed');

    await talks[0].copy().say(server, 50);
    const after = await lookup(server, { prompt: [...talks[0].tokens, 5] });
    assert.equal(after.resident, talks[0].tokens.length);
    await server.client.refused(400, '/cache/lookup', {});
    await server.client.refused(400, '/cache/lookup', { prompt: 5 });
    assert.equal((await server.client.get('/cache/lookup')).status, 405);
    await server.stop();
  });

  test('/cache/lookup takes messages', async (t) => {
    const server = await serve({ t, set: { 'cache.boundary_align_tokens': 16 }, models: { cache_min_tokens: 1 } });
    const messages = [{ role: 'user', content: 'My name is Ottilie. What is my name?' }];
    assert.equal((await lookup(server, { messages })).tokens, 0);
    const reply = await server.client.chat({ messages, max_tokens: 10 });
    await saved(server);
    const found = await lookup(server, { messages });
    assert.equal(found.prompt_tokens, reply.usage.prompt_tokens);
    assert.equal(found.resident, found.prompt_tokens - 1);
    assert.equal(found.disk, found.prompt_tokens - 1);
    await server.stop();
  });
});

describe('streams go on', () => {
  test('while long conversations are read back and saved', async (t) => {
    const disk = temporaryFolder();
    const shape = { layers: 8, embd: 64, heads: 4, 'kv-heads': 4, 'head-dim': 128, ff: 64, type: 'f16', ctx: 16384 };
    const options = { model: smallModel('llama', shape), models: { context_window: 6000, n_seq_max: 2 },
      set: { 'cache.tiers.disk.path': disk } };
    const talks = [1, 2, 3].map(() => new Talk());
    const first = await serve({ t, ...options });
    for (const [i, talk] of talks.entries()) await talk.say(first, 2500, { seed: 60 + i, reply: 4 });
    await first.stop();

    const server = await serve({ t, ...options });
    await server.says(new RegExp(`cache +${disk}\\n`)); // after it is ready
    const stream = await server.client.stream('/v1/completions', {
      prompt: tokens(8, 1), max_tokens: 5900, ignore_eos: true,
    });
    let last = null;
    let widest = 0;
    const whole = stream.collect(() => {
      const now = performance.now();
      if (last !== null) widest = Math.max(widest, now - last);
      last = now;
    }).catch(() => {});
    await until('the stream has begun', () => last !== null);
    // 20 MiB each, back and forth: there is room for one of them beside the stream.
    for (const talk of talks) assert.equal((await talk.say(server, 20, { reply: 4 })).computed, 21);
    // Clients that go away while theirs is being read: at other moments each time.
    for (let i = 0; i < 12; i++) {
      const gone = server.client.connect();
      const body = JSON.stringify({ prompt: [...talks[i % 3].tokens, 5], max_tokens: 100, stream: true });
      gone.write(`POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      await pause(i * 4);
      await gone.destroy();
    }
    for (const talk of talks) {
      const { computed } = await talk.say(server, 20, { reply: 4 });
      assert.ok(computed <= 21, `${computed} computed: nothing is lost by it`);
    }
    const cache = await cacheOf(server);
    stream.abort();
    await whole;
    t.diagnostic(`the widest gap was ${widest.toFixed(0)} ms; ${(cache.read_bytes / 2 ** 20).toFixed(0)} MiB read`);
    assert.ok(cache.read_bytes > 3 * 2500 * 8192, `${cache.read_bytes} bytes read`);
    assert.ok(widest < 2000, `${widest.toFixed(0)} ms without a token`);
    await server.stop();
  });
});
