// API keys: who gets in, what the others are told, reloading, owners that share no cached state, and limits.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { chmodSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI, { AuthenticationError, PermissionDeniedError, RateLimitError } from 'openai';
import { largeModel } from './lib/models.js';
import { run, serve, shim, temporaryFolder } from './lib/server.js';
import { tokens, until, within } from './lib/wait.js';

const admin = 'admin-key-0123456789abcdefghij';
const alice = 'alice-key-0123456789abcdefghij';
const bob = 'bob-key-0123456789abcdefghijkl';
const lines = `# for tests\n${admin} admin\n${alice} alice chat,completions,cache\n${bob} bob chat,completions,cache\n`;

function keysFile(text) {
  const path = join(temporaryFolder(), 'keys');
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}

const short = { prompt: 'Once', max_tokens: 4 };

describe('keys', () => {
  let server;
  let path;
  before(async () => {
    path = keysFile(lines);
    server = await serve({
      set: { 'server.api_keys_file': path, 'server.max_body_bytes': 100000, 'server.any_model_name': false }, access: { key: admin },
    });
  });
  after(() => server.stop());

  test('each refusal has its status, and none says more than it must', async () => {
    const none = server.client.withKey();
    const [wrong, chatter] = ['not-a-key', alice].map((key) => server.client.withKey(key));
    const [large, big] = [90000, 200000].map((size) => 'x'.repeat(size));
    const rows = [
      [401, none, '/v1/completions', short], [401, wrong, '/v1/completions', short], [401, none, '/nothing', short],
      [401, wrong, '/v1/completions', large], [404, server.client, '/nothing', short],
      [405, server.client, '/metrics', short], [413, server.client, '/v1/completions', big],
      [400, server.client, '/v1/completions', '{'], [404, server.client, '/v1/completions', { ...short, model: 'no' }],
    ];
    for (const [status, client, route, body] of rows) {
      const error = await client.refused(status, route, body);
      assert.doesNotMatch(JSON.stringify(error), /not-a-key|-key-0|\/home|\/tmp|\.c:\d/);
    }
    const reply = await chatter.get('/metrics');
    assert.equal(reply.status, 403);
    assert.match(reply.json.error.message, /'status'/);
    assert.equal((await none.get('/v1/models')).headers['www-authenticate'], 'Bearer');
    for (const route of ['/health', '/v1/health', '/v1/liveness', '/v1/readiness'])
      assert.equal((await none.get(route)).status, 200, route);
    assert.equal((await none.fetch('OPTIONS', '/v1/chat/completions')).status, 204);
  });

  test('how long a model stays, and what presets there are, is for the administrator to say', async () => {
    const chatter = server.client.withKey(alice);
    const ask = (client, keep_alive) => client.ask('/api/chat', { model: 'demo', messages: [{ role: 'user', content: 'Hi' }], stream: false, options: { num_predict: 2 }, keep_alive });
    const expires = async () => (await server.client.get('/api/ps')).json.models[0].expires_at;
    const always = await expires();
    await ask(chatter, '5m');
    await ask(chatter, 0); // the second has the first one's behind it
    assert.equal(await expires(), always);
    await ask(server.client, '5m');
    await until('the model leaves some time', async () => await expires() !== always);
    await ask(server.client, -1);
    await until('it stays', async () => await expires() === always);
    for (const [route, body] of [['/api/create', { model: 'p', from: 'demo' }], ['/api/copy', { source: 'demo', destination: 'p' }]])
      assert.equal((await chatter.post(route, body)).status, 403);
    assert.equal((await chatter.fetch('DELETE', '/api/delete', { body: { model: 'demo' } })).status, 403);
  });

  test('the official client gets in with its key, and is told why not without', async () => {
    const client = (apiKey) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
    const ask = (openai) => openai.chat.completions.create({
      model: 'demo', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4,
    });
    assert.ok((await ask(client(alice))).choices[0].message.content.length > 0);
    await assert.rejects(ask(client('wrong')), AuthenticationError);
    await assert.rejects(client(alice).models.list(), PermissionDeniedError);
  });

  test('the log names the key of each request and shows none', async () => {
    await server.client.withKey(bob).complete(short);
    await until('the request is logged', () => /status=200.* key=bob/.test(server.log));
    for (const key of [admin, alice, bob]) assert.ok(!server.log.includes(key));
  });

  test('SIGHUP reads the file again; one with a fault changes nothing', async () => {
    const carol = 'carol-key-0123456789abcdefghij';
    const status = async (key) => (await server.client.withKey(key).get('/v1/models')).status;
    writeFileSync(path, `${lines}${carol} carol models\n${bob} bob\n`);
    server.signal('SIGHUP');
    await until('the fault is logged', () => /not reloaded.*keys:6: this key stands on an earlier line/.test(server.log));
    assert.deepEqual([await status(admin), await status(carol)], [200, 401]);
    writeFileSync(path, `${admin} admin\n${carol} carol models\n`);
    const stream = await server.client.withKey(alice).stream('/v1/completions', {
      prompt: tokens(8, 1), max_tokens: 500, ignore_eos: true,
    });
    server.signal('SIGHUP');
    await until('the new key works', async () => await status(carol) === 200);
    assert.equal(await status(alice), 401);
    const { done, finish } = await stream.collect();
    assert.deepEqual([done, finish[0]], [true, 'length'], 'a request that was let in ends as it would have');
    writeFileSync(path, lines);
    server.signal('SIGHUP');
    await until('the old keys are back', async () => await status(carol) === 401);
  });
});

test('a file of keys on a disk that hangs stops nobody at SIGHUP, nor the end', async (t) => {
  const path = keysFile(lines);
  const flag = join(temporaryFolder(), 'hangs');
  const carol = 'carol-key-0123456789abcdefghij';
  t.after(() => rmSync(flag, { force: true }));
  const server = await serve({
    t, set: { 'server.api_keys_file': path, 'server.drain_timeout': 1 }, access: { key: admin },
    env: { LD_PRELOAD: shim('hang'), HANG_FOLDER: dirname(path), HANG_WHILE: flag },
  });
  const status = async (key) => (await within(10, 'an answer', server.client.withKey(key).post('/v1/completions', short))).status;
  writeFileSync(path, `${admin} admin\n${carol} carol completions\n`);
  writeFileSync(flag, '');
  server.signal('SIGHUP');
  server.signal('SIGHUP');
  for (let i = 0; i < 5; i++) assert.deepEqual([await status(alice), await status(carol)], [200, 401]);
  rmSync(flag);
  await until('the new key works', async () => await status(carol) === 200);
  assert.equal(await status(alice), 401);
  writeFileSync(flag, '');
  server.signal('SIGHUP');
  assert.equal(await status(carol), 200);
  server.signal('SIGTERM');
  const { code } = await within(10, 'the end', server.ended);
  assert.equal(code, 0);
});

test('a server that is full says so to those with a key only', async (t) => {
  const server = await serve({
    t, model: largeModel(), models: { n_seq_max: 1, queue_depth: 1, context_window: 2048, admission_timeout: 1 },
    set: { 'server.api_keys_file': keysFile(lines) }, access: { key: admin },
  });
  const stream = await server.client.stream('/v1/completions', {
    prompt: tokens(8, 1), max_tokens: 2000, ignore_eos: true,
  });
  stream.collect().catch(() => {});
  await server.client.busy();
  const reply = await server.client.withKey(alice).post('/v1/completions', short);
  assert.equal(reply.status, 429, reply.text);
  assert.match(reply.headers['retry-after'], /^\d+$/);
  assert.equal((await server.client.withKey('wrong').post('/v1/completions', short)).status, 401);
  stream.abort();
  await server.stop();
});

describe('isolation', () => {
  const prompt = tokens(600, 7);
  const asked = async (server, key, more) => {
    const reply = await server.client.withKey(key).complete({ prompt, max_tokens: 2, ...more });
    return reply.timings.cache_n;
  };
  const warm = async (server, key, more) => {
    const reply = await server.client.withKey(key).post('/cache/lookup', { prompt, ...more });
    assert.equal(reply.status, 200, reply.text);
    return reply.json.tokens;
  };
  const start = (t, isolate_keys) => serve({
    t, models: { n_seq_max: 2, context_window: 1024 }, access: { key: admin },
    set: { 'server.api_keys_file': keysFile(`${lines}`), 'server.isolate_keys': isolate_keys },
  });

  test('two owners have it where nobody says otherwise', async (t) => {
    const server = await start(t, 'auto');
    assert.equal(await asked(server, alice), 0);
    assert.equal(await warm(server, bob), 0);
    assert.ok(await warm(server, alice) > 500);
    await server.stop();
  });

  test('without it, all keys share what is cached', async (t) => {
    const server = await start(t, false);
    assert.equal(await asked(server, alice), 0);
    assert.ok(await asked(server, bob) > 500);
    await server.stop();
  });

  test('with it, nobody finds, or learns of, what another owner has cached', async (t) => {
    const server = await start(t, true);
    assert.equal(await asked(server, alice), 0);
    assert.ok(await warm(server, alice) > 500);
    assert.equal(await warm(server, bob), 0);
    for (const cache_salt of ['name alice\n', 'alice', 'name alice']) {
      assert.equal(await warm(server, bob, { cache_salt }), 0);
      assert.equal(await asked(server, bob, { cache_salt }), 0);
    }
    assert.equal(await asked(server, bob), 0);
    assert.ok(await asked(server, alice) > 500);
    assert.ok(await asked(server, bob) > 500);
    assert.equal(await asked(server, alice, { cache_salt: 'own' }), 0, 'salts of her own keep working');
    await server.stop();
  });

  test('a system prompt is assumed for other owners only where they share', async (t) => {
    const question = { role: 'user', content: 'What is the secret code?' };
    const code = { role: 'system', content: 'The secret code is QX7B2.' };
    for (const isolate_keys of [false, true]) {
      const server = await serve({
        t, models: { system_prompt_cache: true, system_prompt_assumed: true, cache_min_tokens: 0 }, access: { key: admin },
        set: { 'server.api_keys_file': keysFile(lines), 'server.isolate_keys': isolate_keys },
      });
      const said = async (key, messages) => {
        const { choices, usage } = await server.client.withKey(key).chat({ messages, max_tokens: 20 });
        return { knows: choices[0].message.content.includes('QX7B2'), length: usage.prompt_tokens };
      };
      const whole = await said(alice, [code, question]);
      assert.ok(whole.knows);
      for (const key of [bob, admin]) {
        const { knows, length } = await said(key, [question]);
        assert.equal(knows, !isolate_keys);
        assert.equal(length === whole.length, !isolate_keys);
      }
      await server.stop();
    }
  });
});

describe('limits', () => {
  const asks = 'asks-key-0123456789abcdefghij';
  const talks = 'talks-key-0123456789abcdefghi';
  const holds = 'holds-key-0123456789abcdefghi';
  const limited = `${admin} admin\n${asks} asks * rpm=3\n${talks} talks * tpm=500\n${holds} holds * slots=1\n`;
  const question = { model: 'demo', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2 };
  const start = async (t, more = {}) => {
    const path = keysFile(limited);
    const server = await serve({ t, ...more, set: { 'server.api_keys_file': path }, access: { key: admin } });
    return { server, path, post: (key, body = short) => server.client.withKey(key).post('/v1/completions', body) };
  };

  test('requests a minute: the official clients are told when to try again, and nobody else is held up', async (t) => {
    const { server, path, post } = await start(t);
    for (const left of [2, 1, 0]) {
      const reply = await post(asks);
      assert.equal(reply.status, 200);
      assert.equal(reply.headers['x-ratelimit-limit-requests'], '3');
      assert.equal(reply.headers['x-ratelimit-remaining-requests'], `${left}`);
      assert.match(reply.headers['x-ratelimit-reset-requests'], /^(\d+m)?[\d.]+m?s$/);
    }
    const options = { apiKey: asks, maxRetries: 0 };
    const openai = new OpenAI({ baseURL: `${server.url}/v1`, ...options });
    await assert.rejects(openai.chat.completions.create(question), (error) => {
      assert.ok(error instanceof RateLimitError);
      assert.equal(error.code, 'rate_limit_exceeded');
      assert.ok(Number(error.headers.get('retry-after')) >= 1 && Number(error.headers.get('retry-after')) <= 20);
      return true;
    });
    const anthropic = new Anthropic({ baseURL: server.url, ...options });
    await assert.rejects(anthropic.messages.create(question), (error) => {
      assert.ok(error instanceof Anthropic.RateLimitError);
      assert.equal(error.error.error.type, 'rate_limit_error');
      assert.match(error.error.error.message, /limit of 3 requests a minute/);
      return true;
    });
    assert.equal((await post(talks)).status, 200);
    assert.equal((await server.client.withKey(asks).get('/v1/models')).status, 200);

    // What was used outlives a reload; a higher limit holds at once.
    writeFileSync(path, limited.replace('rpm=3', 'rpm=4'));
    server.signal('SIGHUP');
    await until('the file has been read', () => /reloaded.*server\.api_keys_file/.test(server.log));
    assert.equal((await post(asks)).status, 200);
    assert.equal((await post(asks)).status, 429);
    await server.stop();
  });

  test('tokens a minute: what was computed counts, and what was cached does not', async (t) => {
    const { server, post } = await start(t, { models: { context_window: 1024 } });
    const prompt = tokens(400, 3);
    const left = async (body) => {
      const reply = await post(talks, { temperature: 0, ...body });
      assert.equal(reply.status, 200, reply.text);
      return [Number(reply.headers['x-ratelimit-remaining-tokens']), reply.json.timings];
    };
    const [full, first] = await left({ prompt, max_tokens: 10 });
    assert.equal(full, 500);
    assert.equal(first.prompt_n, 400);
    const [rest, second] = await left({ prompt, max_tokens: 10 });
    const computed = first.prompt_n + first.predicted_n;
    assert.ok(rest >= 500 - computed && rest < 500, `${rest} are left after ${computed}`);
    assert.ok(second.prompt_n < 20, 'the prompt was cached');
    const [more] = await left({ prompt, max_tokens: 600, ignore_eos: true });
    assert.ok(more > rest - 50, `${more} of ${rest} are left: cached tokens cost nothing`);
    const reply = await post(talks);
    assert.equal(reply.status, 429, reply.text);
    assert.match(reply.json.error.message, /limit of 500 tokens a minute/);
    assert.ok(Number(reply.headers['retry-after']) >= 1);
    assert.equal((await post(asks)).status, 200);
    await server.stop();
  });

  test('slots: one key cannot take them all, and has its own back when its client leaves', async (t) => {
    const { server, post } = await start(t, { model: largeModel(), models: { n_seq_max: 2, context_window: 2048 } });
    const stream = await server.client.withKey(holds).stream('/v1/completions', {
      prompt: tokens(8, 1), max_tokens: 2000, ignore_eos: true,
    });
    stream.collect().catch(() => {});
    await server.client.busy();
    const reply = await post(holds);
    assert.equal(reply.status, 429, reply.text);
    assert.equal(reply.json.error.code, 'slot_limit_exceeded');
    assert.equal(reply.headers['retry-after'], '1');
    assert.equal((await post(asks)).status, 200);
    const never = await post(holds, { ...short, n: 2 });
    assert.equal(never.status, 400, never.text);
    assert.match(never.json.error.message, /needs 2 slots, and this API key may use 1 at once/);
    stream.abort();
    await until('the slot is free again', async () => (await post(holds)).status === 200);
    await server.stop();
  });
});

test('config check finds what is wrong with the files of keys', async () => {
  const check = async (text, more = '') => {
    const file = join(temporaryFolder(), 'hearth.yaml');
    writeFileSync(file, `server: {api_keys_file: ${keysFile(text)}${more}}\n`);
    return run(['config', 'check', file]);
  };
  const fine = await check(lines);
  assert.deepEqual([fine.code, fine.stderr], [0, ''], fine.stderr);
  const faulty = await check(`${admin} admin chta\n`);
  assert.equal(faulty.code, 2);
  assert.match(faulty.stderr, /server\.api_keys_file: .*\/keys:1: the grants/);
  assert.ok(!faulty.stderr.includes(admin));
  const started = await run(['serve', '--port', '0', '--set', `server.api_keys_file=${keysFile('')}`]);
  assert.equal(started.code, 1);
  assert.match(started.stderr, /server\.api_keys_file: .*holds no key/);
  const alone = join(temporaryFolder(), 'alone.yaml');
  writeFileSync(alone, 'server: {isolate_keys: true}\n');
  assert.match((await run(['config', 'check', alone])).stderr, /server\.isolate_keys: needs server\.api_keys_file/);
});

test('keys that others may read are served with a warning', async (t) => {
  const path = keysFile(lines);
  chmodSync(path, 0o644);
  const server = await serve({ t, set: { 'server.api_keys_file': path }, access: { key: admin } });
  await server.says(/warn +http: others than its owner may read the API keys/);
  await server.stop();
});
