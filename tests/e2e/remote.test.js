// A Redis server between several hearths: a conversation begun at one goes on at another with nothing computed but what
// is new, and whatever happens to the server, replies are what one hearth alone would say.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { png } from './lib/media.js';
import { demo, noAttention, projectorFor, smallModel } from './lib/models.js';
import { startRedis, startRedisCluster } from './lib/redis.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { Talk, cacheOf, counted, killed, lettersOnly, saved } from './lib/store.js';
import { tokens, until } from './lib/wait.js';

const stride = 32;

// Tokens are dear to compute, so that fetching pays even beside everything else that a test machine does.
const dearShape = { layers: 4, embd: 64, heads: 4, 'kv-heads': 4, 'head-dim': 64, ff: 8192, type: 'f16' };
const dear = smallModel('llama', dearShape);

const start = (t, redis, { set = {}, models = {}, of = dear, ...more } = {}) => serve({
  t,
  model: of,
  set: {
    'cache.tiers.remote.url': redis.url,
    'cache.tiers.remote.timeout_ms': 2000,
    'cache.boundary_align_tokens': stride,
    ...set,
  },
  models: { context_window: 4096, n_seq_max: 2, cache_min_tokens: 1, ...models },
  ...more,
});

// Everything is saved, on the server as well.
async function uploaded(server) {
  await saved(server);
  const cache = await cacheOf(server);
  assert.equal(cache.uploads_dropped, 0, JSON.stringify(cache));
}

const whole = (n) => n - n % stride;

describe('two hearths with one Redis', () => {
  test('a conversation goes from one to the other and back', async (t) => {
    const redis = await startRedis(t);
    const one = await start(t, redis), other = await start(t, redis);
    const alone = await serve({ t, model: dear, models: { context_window: 4096, cache_min_tokens: 1 } });
    const talk = new Talk(), told = new Talk();
    const servers = [one, one, other, other, one, other];
    for (let turn = 0; turn < servers.length; turn++) {
      const known = talk.tokens.length;
      const moved = turn > 0 && servers[turn] !== servers[turn - 1];
      const { text, computed } = await talk.say(servers[turn], 70, { seed: 1 });
      const { text: expected } = await told.say(alone, 70, { seed: 1 });
      assert.equal(text, expected, `turn ${turn}`);
      await uploaded(servers[turn]);
      if (moved) assert.equal(computed, known - whole(known - 1) + 70, `turn ${turn}: what is new, and less than a block`);
      if (!moved && turn > 0) assert.equal(computed, 71);
    }
    const lookup = await other.client.post('/cache/lookup', { prompt: talk.tokens });
    assert.equal(lookup.json.remote, whole(talk.tokens.length - 1), lookup.text);
    const { tiers, ...counters } = await cacheOf(other);
    assert.ok(tiers.remote.on && tiers.remote.entries === whole(talk.tokens.length - 1) / stride, JSON.stringify(tiers));
    assert.ok(counters.probes > 0 && counters.probes_failed === 0 && counters.uploaded_bytes > 0);
    const metrics = await other.client.metrics();
    assert.equal(metrics.get('hearth_cache_entries{tier="remote"}'), tiers.remote.entries);
    assert.equal(metrics.get('hearth_cache_uploaded_bytes_total'), counters.uploaded_bytes);
    const { conversations } = (await other.client.get('/cache/stored')).json;
    const { key } = conversations.find(({ tier }) => tier === 'remote');
    const order = await other.client.post('/cache/stored', { tier: 'remote', key, order: 'drop' });
    assert.deepEqual([order.status, order.json.error?.param], [400, 'tier'], order.text);
  });

  test('a cluster: its nodes share what is stored; one that is away costs its time-out, and is used again', async (t) => {
    const cluster = await startRedisCluster(t);
    const one = await start(t, cluster), other = await start(t, cluster);
    // Enough to be worth fetching wherever this runs, beside what a server has in its own cells.
    const moves = async (talk) => {
      for (const [server, n] of [[other, 500], [one, 100]]) {
        const known = talk.tokens.length;
        assert.equal((await talk.say(server, n)).computed, known - whole(known - 1) + n);
        await saved(server);
      }
    };
    const talk = new Talk(), later = new Talk();
    await talk.say(one, 500);
    await uploaded(one);
    await moves(talk);
    for (const node of cluster.nodes) {
      assert.ok(node.keys().length > 0, 'each node has some of it');
      assert.ok(!/errorstat_MOVED/.test(node.ask('INFO', 'errorstats')), 'and was asked for nothing else');
    }
    await cluster.nodes[1].kill();
    await talk.say(other, 20); // whatever it finds
    await until('the tier is off', async () => (await cacheOf(other)).tiers.remote.on === false);
    await cluster.nodes[1].start();
    await until('the cluster serves', async () => cluster.serves());
    await until('the tier is on', async () => (await cacheOf(other)).tiers.remote.on && (await cacheOf(one)).tiers.remote.on);
    await later.say(one, 300, { seed: 2 });
    await uploaded(one);
    await moves(later);
  });

  test('kill -9 of a hearth: the other goes on where it was', async (t) => {
    const redis = await startRedis(t);
    const one = await start(t, redis), other = await start(t, redis);
    const talk = new Talk();
    await talk.say(one, 300);
    await uploaded(one);
    // In the middle of another request, whose blocks are on their way.
    const cut = one.client.complete({ prompt: tokens(2000, 9), max_tokens: 200 }).catch(() => null);
    await until('it computes', async () => (await one.client.get('/slots')).json.some((slot) => slot.is_processing));
    await killed(one);
    await cut;
    const known = talk.tokens.length;
    assert.equal((await talk.say(other, 50)).computed, known - whole(known - 1) + 50);
    const again = await start(t, redis);
    await uploaded(other);
    const then = talk.tokens.length;
    assert.equal((await talk.say(again, 50)).computed, then - whole(then - 1) + 50);
  });

  test('other models, other cells, other salts and other keys share nothing', async (t) => {
    const redis = await startRedis(t);
    const prompt = tokens(400, 1);
    const key = join(temporaryFolder(), 'key');
    writeFileSync(key, '0123456789abcdef0123456789abcdef');
    const variants = [
      { of: dear },
      { of: smallModel('llama', { ...dearShape, seed: 8 }) },
      { of: dear, models: { cache_type_k: 'q8_0' } },
      { of: dear, models: { deterministic: true } },
      { of: dear, body: { cache_salt: 'red' } },
      { of: dear, set: { 'cache.boundary_align_tokens': 64 } },
      { of: dear, set: { 'cache.tiers.remote.key_file': key } },
      { of: dear, set: { 'cache.tiers.remote.key_file': key, 'cache.tiers.remote.encrypt': true } },
    ];
    const ask = async ({ body, ...options }) => {
      const server = await start(t, redis, options);
      const lookup = await server.client.post('/cache/lookup', { prompt, ...body });
      const reply = await server.client.complete({ prompt, max_tokens: 12, ...lettersOnly, ...body });
      await uploaded(server);
      await server.stop();
      return { remote: lookup.json.remote, text: reply.choices[0].text };
    };
    const first = [];
    for (const variant of variants) {
      const was = redis.keys().length;
      first.push(await ask(variant));
      assert.equal(first.at(-1).remote, 0, JSON.stringify(variant));
      assert.ok(redis.keys().length > was, JSON.stringify(variant));
    }
    for (let i = 0; i < variants.length; i++) {
      const again = await ask(variants[i]);
      assert.ok(again.remote >= 320, `${JSON.stringify(variants[i])} finds its own: ${again.remote}`);
      assert.equal(again.text, first[i].text);
    }
  });
});

// What cannot be cut: recurrent states, without rows (mamba2) and beside them, and sliding windows.
for (const arch of ['qwen35', 'falcon-h1', 'mamba2', 'gemma3']) {
  for (const layout of ['one pool', 'a stream each']) {
    test(`${arch}, ${layout}: a conversation goes from one hearth to the other, with its states`, async (t) => {
      const redis = await startRedis(t);
      const of = smallModel(arch, arch === 'mamba2' ? noAttention : {});
      const options = { of, models: { kv_unified: layout === 'one pool' } };
      const servers = [await start(t, redis, options), await start(t, redis, options)];
      const alone = await serve({ t, model: of, models: { context_window: 4096, n_seq_max: 2, cache_min_tokens: 1, ...options.models } });
      const talk = new Talk(), told = new Talk();
      for (let turn = 0; turn < 4; turn++) {
        const { text, computed } = await talk.say(servers[turn % 2], turn === 0 ? 300 : 41);
        assert.equal(text, (await told.say(alone, turn === 0 ? 300 : 41)).text, `turn ${turn}`);
        assert.equal(computed, turn === 0 ? 300 : 42, `turn ${turn}: the new words, and the last token of the reply`);
        await uploaded(servers[turn % 2]);
      }
    });
  }
}

test('an image that one hearth has encoded is not encoded by the other', async (t) => {
  const redis = await startRedis(t);
  const options = { of: null, models: { context_window: 2048, cache_min_tokens: 0, mmproj: projectorFor(demo, 'llava') } };
  const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${png(7)}` } };
  const ask = (server, text) => server.client.chat({
    messages: [{ role: 'user', content: [{ type: 'text', text }, image] }], max_tokens: 8, temperature: 0,
  });
  const one = await start(t, redis, options);
  const { choices: [{ message }] } = await ask(one, 'What is this?');
  assert.equal(await one.client.metric('hearth_media_encoded_total'), 1);
  await uploaded(one);
  const other = await start(t, redis, options);
  await ask(other, 'A text of another length before it. What is this?');
  assert.equal(await other.client.metric('hearth_media_encoded_total'), 0);
  assert.equal(await other.client.metric('hearth_media_encodings_fetched_total'), 1);
  assert.equal((await ask(other, 'What is this?')).choices[0].message.content, message.content);
});

describe('a Redis that fails', () => {
  test('kill -9 in the middle: nobody notices, and it is used again', async (t) => {
    const redis = await startRedis(t);
    const one = await start(t, redis), other = await start(t, redis);
    const talk = new Talk();
    await talk.say(one, 300);
    await uploaded(one);
    const running = talk.copy().say(one, 900, { reply: 40 });
    await redis.kill();
    await running;
    const { computed } = await talk.say(other, 50);
    assert.equal(computed, talk.tokens.length - 16, 'all of the prompt');
    await other.says(/a tier was lost tier=remote/);
    assert.equal((await cacheOf(other)).tiers.remote.on, false);
    await redis.start();
    for (const server of [one, other]) {
      await until('it is back', async () => {
        if ((await cacheOf(server)).tiers.remote.on) return true;
        await server.client.complete({ prompt: tokens(64, 7), max_tokens: 1 }); // somebody has to notice
        return false;
      });
    }
    const fresh = new Talk();
    await fresh.say(other, 300, { seed: 5 });
    await saved(other);
    const known = fresh.tokens.length;
    assert.equal((await fresh.say(one, 50)).computed, known - whole(known - 1) + 50);
  });

  test('SIGSTOP: one time-out, then nothing but its hits', async (t) => {
    const redis = await startRedis(t);
    const timeout = 1000;
    const server = await start(t, redis, { set: { 'cache.tiers.remote.timeout_ms': timeout } });
    await server.client.complete({ prompt: tokens(200, 1), max_tokens: 4 });
    await uploaded(server);
    redis.stall(true);
    const timed = async (seed) => {
      const began = performance.now();
      await server.client.complete({ prompt: tokens(40, seed), max_tokens: 1 });
      return performance.now() - began;
    };
    const first = await timed(2);
    assert.ok(first >= timeout, `${first} ms`);
    await counted(server, 'probes_failed', 1);
    for (let seed = 3; seed < 8; seed++) {
      const took = await timed(seed);
      assert.ok(took < timeout, `${took} ms`);
    }
    const { tiers, probes_failed: failed } = await cacheOf(server);
    assert.match(tiers.remote.trouble, /does not answer/);
    assert.equal(failed, 1);
    redis.stall(false);
    await server.says(/a tier is back tier=remote/);
    await server.stop();
  });

  test('a stalled server does not hold up the shutdown', async (t) => {
    const redis = await startRedis(t);
    const server = await start(t, redis);
    await server.client.complete({ prompt: tokens(200, 1), max_tokens: 4 });
    redis.stall(true);
    await server.client.complete({ prompt: tokens(600, 2), max_tokens: 4 });
    const began = performance.now();
    await server.stop();
    assert.ok(performance.now() - began < 20000);
    redis.stall(false);
  });

  test('maxmemory: parts are evicted, and replies stay right', async (t) => {
    // 4 layers x 4 heads x 64 x (keys and values) x 2 bytes a token: a block of 2,048 has three parts.
    const redis = await startRedis(t, '--maxmemory', '32mb', '--maxmemory-policy', 'allkeys-lru', '--maxmemory-samples', '10');
    const options = { set: { 'cache.boundary_align_tokens': 2048 } };
    const one = await start(t, redis, options);
    const texts = [];
    const ask = async (server, seed) => {
      const reply = await server.client.complete({ prompt: tokens(2060, seed), max_tokens: 8, ...lettersOnly });
      return { text: reply.choices[0].text, cached: reply.timings.cache_n };
    };
    for (let seed = 1; seed <= 5; seed++) texts.push((await ask(one, seed)).text);
    await saved(one);
    assert.ok(Number(/evicted_keys:(\d+)/.exec(redis.ask('INFO', 'stats'))[1]) > 0, 'parts were evicted');
    const other = await start(t, redis, options);
    let found = 0;
    for (let seed = 5; seed >= 1; seed--) {
      const { text, cached } = await ask(other, seed);
      assert.equal(text, texts[seed - 1], `prompt ${seed}`);
      found += cached > 0;
    }
    assert.ok(found >= 1 && found < 5, `${found} of 5 are whole`);
    assert.equal((await cacheOf(other)).corrupt_files, 0);
  });

  test('changed values: a wrong MAC is noticed, and all of it computed', async (t) => {
    const redis = await startRedis(t);
    const one = await start(t, redis), other = await start(t, redis);
    const prompt = tokens(400, 3);
    const ask = (server) => server.client.complete({ prompt, max_tokens: 12, ...lettersOnly });
    const expected = (await ask(one)).choices[0].text;
    await uploaded(one);
    const keys = redis.keys();
    assert.equal(keys.length, 12);
    for (const key of keys) redis.ask('SETRANGE', key, '3000', 'changed');
    const reply = await ask(other);
    assert.equal(reply.choices[0].text, expected);
    assert.equal(reply.timings.cache_n, 0);
    await counted(other, 'corrupt_files', 1);
    await other.says(/a slab cannot be used tier=remote .*MAC/);
    await saved(other);
    // What was found damaged was removed and stored anew; what was not read yet is still there.
    const third = await start(t, redis);
    assert.equal((await ask(third)).choices[0].text, expected);
  });
});

describe('what a server sees, and who may be one', () => {
  test('encrypted entries show no tokens, and are shared by those with the key', async (t) => {
    const redis = await startRedis(t);
    const key = join(temporaryFolder(), 'key');
    writeFileSync(key, execFileSync('openssl', ['rand', '-hex', '32']));
    const prompt = [...'a secret of the person who asks, repeated: '.repeat(10)].map((letter) => letter.charCodeAt(0));
    const words = Buffer.from(new Int32Array(prompt.slice(0, 16)).buffer);
    const has = () => redis.keys().some((name) => execFileSync('redis-cli', ['--raw', '-s', redis.socket, 'GET', name],
      { maxBuffer: 1 << 26 }).includes(words));
    const set = { 'cache.tiers.remote.key_file': key };
    const clear = await start(t, redis, { set });
    await clear.client.complete({ prompt, max_tokens: 1 });
    await uploaded(clear);
    assert.ok(has(), 'in clear they can be read');
    redis.ask('FLUSHALL');
    set['cache.tiers.remote.encrypt'] = true;
    const one = await start(t, redis, { set }), other = await start(t, redis, { set });
    await one.client.complete({ prompt, max_tokens: 1 });
    await uploaded(one);
    assert.ok(redis.keys().length >= 10);
    assert.ok(!has(), 'encrypted they cannot');
    const reply = await other.client.complete({ prompt, max_tokens: 1 });
    assert.equal(reply.timings.cache_n, whole(prompt.length - 1));
  });

  test('configurations that would not do are refused', async () => {
    const cases = [
      [['cache.tiers.remote.url=redis://cache.example:6379'], /cache\.tiers\.remote\.key_file: is missing: .*openssl rand/],
      [['cache.tiers.remote.url=redis://localhost', 'cache.tiers.remote.ca_file=/etc/passwd'], /ca_file: is for rediss/],
      [['cache.tiers.remote.url=unix:/tmp/redis', 'cache.tiers.remote.certificate_file=/etc/passwd'], /certificate_file: is for rediss/],
      [['cache.tiers.remote.url=rediss://localhost', 'cache.tiers.remote.certificate_key_file=/etc/passwd'], /certificate_key_file: is the key of certificate_file/],
      [['cache.tiers.remote.url=localhost:6379'], /begins with none of redis:\/\/, rediss:\/\/ and unix:/],
      [['cache.tiers.remote.url=redis://localhost', 'cache.tiers.remote.encrypt=true'], /encrypt: needs key_file/],
      [['cache.tiers.remote.url=redis://localhost', 'cache.tiers.remote.password_file=/nowhere'], /password_file: cannot read/],
      [['cache.save_tier=remote'], /cache\.save_tier/],
    ];
    const path = join(temporaryFolder(), 'hearth.yaml');
    for (const [set, says] of cases) {
      const tier = {}, cache = { tiers: { remote: tier } };
      for (const one of set) {
        const [key, value] = one.split('=');
        (key.startsWith('cache.tiers') ? tier : cache)[key.split('.').at(-1)] = value === 'true' ? true : value;
      }
      writeFileSync(path, JSON.stringify({ cache }));
      const result = await run(['config', 'check', path]);
      assert.notEqual(result.code, 0, set.join(' '));
      assert.match(result.stdout + result.stderr, says);
    }
  });
});
