// Several models in one server that come and go: loaded with the first request for them, unloaded when they are idle,
// when there is no room and when they are told to; and never under a stream.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { copyFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { demo, smallModel } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { tokens, until, within } from './lib/wait.js';

const encoder = { vocab: 'bert-bge', layers: 2, embd: 64, heads: 2, 'kv-heads': 2, ctx: 512, ff: 128 };
const chat = (model, more) => ({ model, messages: [{ role: 'user', content: 'Who are you?' }], max_tokens: 4, temperature: 0, ...more });

// Two chat models and one for embeddings; none is there before it is wanted.
async function open(t, { server = {}, keys = {}, one = demo, aliases = [] } = {}) {
  const common = { threads: 1, load: 'demand', ...keys };
  const models = {
    one: { path: one, context_window: 1024, ...common },
    two: { path: smallModel('qwen3'), context_window: 1024, aliases, ...common },
    vectors: { path: smallModel('bert', encoder), ...common, context_window: 512 },
  };
  const config = join(temporaryFolder(), 'hearth.yaml');
  const lines = Object.entries(models).map(([name, its]) => `  ${name}: ${JSON.stringify(its)}\n`);
  writeFileSync(config, `server: ${JSON.stringify(server)}\nmodels:\n${lines.join('')}`);
  return serve({ t, args: ['--config', config] });
}

async function states(server) {
  const { data } = (await server.client.get('/v1/models')).json;
  return Object.fromEntries(data.map((model) => [model.id, model.status.value]));
}

const reaches = (server, model, state) => until(`${model} is ${state}`, async () => (await states(server))[model] === state, { seconds: 30 });

async function streaming(server, model, max_tokens = 900) {
  const body = { model, prompt: tokens(8, 1), max_tokens, ignore_eos: true };
  const stream = await server.client.stream('/v1/completions', body);
  let begun;
  const first = new Promise((resolve) => { begun = resolve; });
  stream.whole = stream.collect((chunk) => { if (chunk.choices?.length) begun(); });
  stream.whole.catch(() => {});
  await within(60, 'the stream begins', first);
  return stream;
}

async function post(server, path, body, status = 200) {
  const reply = await server.client.post(path, body);
  assert.equal(reply.status, status, reply.text);
  return reply.json;
}

describe('models on demand', () => {
  test('all are listed at once and loaded with their first request; counts and types stay when they leave', async (t) => {
    const server = await open(t);
    assert.deepEqual(await states(server), { one: 'unloaded', two: 'unloaded', vectors: 'unloaded' });
    assert.deepEqual((await server.client.get('/slots')).json, []);
    const [a, b, c] = await Promise.all([
      post(server, '/v1/chat/completions', chat('one')),
      post(server, '/v1/chat/completions', chat('two')),
      post(server, '/v1/embeddings', { model: 'vectors', input: 'hello' }),
    ]);
    assert.equal(a.model, 'one');
    assert.equal(b.model, 'two');
    assert.equal(c.data[0].embedding.length, 64);
    assert.deepEqual(await states(server), { one: 'loaded', two: 'loaded', vectors: 'loaded' });
    for (const model of ['one', 'two', 'vectors']) {
      assert.deepEqual(await post(server, '/models/unload', { model }), { success: true });
      await reaches(server, model, 'unloaded');
    }
    assert.deepEqual((await server.client.get('/slots')).json, []);
    const metrics = (await server.client.get('/metrics')).text;
    assert.match(metrics, /^hearth_models_loaded 0$/m);
    assert.match(metrics, /^hearth_requests_done_total\{model="one"\} 1$/m);
    assert.match(metrics, /^hearth_model_unloads_total\{model="vectors"\} 1$/m);
    const again = await post(server, '/v1/chat/completions', chat('one'));
    assert.equal(again.choices[0].message.content, a.choices[0].message.content);
    await server.stop();
  });

  test('names that are built into clients are answered by the only chat model, and by the one that has them as aliases', async (t) => {
    const one = await serve({ t });
    for (const name of ['gpt-4o-mini', 'demo:latest', ''])
      assert.match((await post(one, '/v1/chat/completions', chat(name))).choices[0].message.content, /./);
    assert.equal((await post(one, '/v1/embeddings', { model: 'text-embedding-3-small', input: 'a' }, 404)).error.param, 'model');
    await one.stop();
    const two = await open(t, { aliases: ['gpt-4o-mini'] });
    const twos = await post(two, '/v1/chat/completions', chat('two'));
    assert.deepEqual((await post(two, '/v1/chat/completions', chat('gpt-4o-mini'))).choices, twos.choices);
    const { json: { data } } = await two.client.get('/v1/models');
    assert.deepEqual(data.map(({ id, aliases }) => [id, aliases]), [['one', []], ['two', ['gpt-4o-mini']], ['vectors', []]]);
    assert.equal((await two.client.get('/v1/models/gpt-4o-mini')).json.id, 'two');
    const terminal = await run(['chat', '--server', two.url, '--model', 'gpt-4o-mini', 'Hello'], {});
    assert.equal(terminal.code, 0, terminal.stderr);
    await two.stop();
  });

  test('requests that name no model go to server.default_model, and their answers say so', async (t) => {
    const server = await open(t, { server: { default_model: 'two' }, keys: { cache_min_tokens: 0 } });
    const wanted = await post(server, '/v1/chat/completions', chat('two'));
    const given = await post(server, '/v1/chat/completions', chat(undefined));
    assert.deepEqual([given.model, given.choices], ['two', wanted.choices]);
    assert.equal((await post(server, '/v1/responses', { input: 'Who are you?' })).model, 'two');
    assert.equal((await post(server, '/v1/messages', { ...chat(undefined) })).model, 'two');
    const [{ model, seq_id, hash }] = await until('its conversation is idle', async () => {
      const { resident } = (await server.client.get('/cache')).json;
      return resident.length > 0 && resident.every(({ state }) => state === 'idle') && resident;
    });
    assert.equal(model, 'two');
    assert.deepEqual(await post(server, '/cache/resident', { seq_id, hash, order: 'keep' }), { success: true });
    assert.equal((await post(server, '/v1/chat/completions', chat('one'))).model, 'one');
    await server.stop();
  });

  test('a model that does not exist is 404 and names those there are, loaded or not', async (t) => {
    const server = await open(t);
    for (const [path, body] of [['/v1/chat/completions', chat('nobody')], ['/models/load', { model: 'nobody' }], ['/models/unload', { model: 'nobody' }]]) {
      const { error } = await post(server, path, body, 404);
      assert.match(error.message, /'nobody' does not exist; there is: one, two, vectors/);
    }
    await server.stop();
  });

  test('a file that is spoilt while the server runs is 503 without its path, and harms no other model', async (t) => {
    const path = join(temporaryFolder(), 'one.gguf');
    copyFileSync(demo, path);
    const server = await open(t, { one: path });
    writeFileSync(path, 'This is no model.');
    const { error } = await post(server, '/v1/chat/completions', chat('one'), 503);
    assert.match(error.message, /^model 'one' could not be loaded: /);
    assert.ok(!error.message.includes(path), error.message);
    assert.equal((await states(server)).one, 'failed');
    await post(server, '/v1/chat/completions', chat('two'));
    copyFileSync(demo, path);
    await post(server, '/v1/chat/completions', chat('one'));
    await server.stop();
  });
});

describe('leaving', () => {
  test('a stream keeps its model: unload is refused with the number of streams, and the stream ends whole', async (t) => {
    const server = await open(t);
    const stream = await streaming(server, 'one');
    const { error } = await post(server, '/models/unload', { model: 'one' }, 429);
    assert.match(error.message, /unload: cannot unload, too many active-streams\[1\]/);
    await post(server, '/v1/chat/completions', chat('two'));
    assert.deepEqual(await post(server, '/models/unload', { model: 'two' }), { success: true });
    await reaches(server, 'two', 'unloaded');
    await within(60, 'the stream ends', stream.whole);
    await until('the model can be unloaded', async () => (await server.client.post('/models/unload', { model: 'one' })).status === 200, { seconds: 30 });
    await reaches(server, 'one', 'unloaded');
    await server.stop();
  });

  test('a model that nobody uses leaves after idle_unload, and the conversation goes on where it was', async (t) => {
    const server = await open(t, { keys: { idle_unload: 0.3, cache_min_tokens: 4 } });
    const body = chat('one', { messages: [{ role: 'system', content: `Be ${'very '.repeat(300)}brief.` }, { role: 'user', content: 'Who?' }] });
    const first = await post(server, '/v1/chat/completions', body);
    assert.equal(first.timings?.cache_n ?? first.usage.prompt_tokens_details.cached_tokens, 0);
    await reaches(server, 'one', 'unloaded');
    assert.equal((await server.client.get('/props?model=one')).json.is_sleeping, true);
    const second = await post(server, '/v1/chat/completions', body);
    assert.ok((second.timings?.cache_n ?? second.usage.prompt_tokens_details.cached_tokens) > 200, JSON.stringify(second));
    assert.equal(second.choices[0].message.content, first.choices[0].message.content);
    await server.stop();
  });

  test('with a budget the least recently used makes room; one in use does not', async (t) => {
    const mib = (path) => Math.ceil(statSync(path).size / (1 << 20));
    // Room for the larger chat model with its 8 MiB of cells, not for both.
    const one = smallModel('llama');
    const budget = Math.max(mib(one), mib(smallModel('qwen3'))) + 10;
    const keys = { admission_timeout: 4, context_window: 8192 };
    const server = await open(t, { server: { memory_budget_mb: budget }, keys, one });
    await post(server, '/v1/chat/completions', chat('one'));
    await post(server, '/v1/chat/completions', chat('two'));
    assert.deepEqual(await states(server), { one: 'unloaded', two: 'loaded', vectors: 'unloaded' });
    const stream = await streaming(server, 'two', 8000);
    const reply = await server.client.post('/v1/chat/completions', chat('one'));
    if (reply.status !== 200) { // else the stream was over that soon
      assert.equal(reply.status, 429, reply.text);
      assert.match(reply.text, /server\.memory_budget_mb/);
      assert.ok(reply.headers['retry-after']);
    }
    stream.abort();
    await post(server, '/v1/chat/completions', chat('one'));
    assert.equal((await states(server)).two, 'unloaded');
    await server.stop();
  });

  test('SIGTERM while a model is being loaded ends the server', async (t) => {
    const server = await open(t);
    const reply = server.client.post('/v1/chat/completions', chat('two')).catch(() => null);
    await server.stop();
    await reply;
  });
});
