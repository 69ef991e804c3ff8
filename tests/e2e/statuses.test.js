// Statuses: every kind of refusal on every API, in that API's own form, and nothing is harmed by it.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { errorMembers } from './lib/client.js';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { largeModel, smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { tokens, until, within } from './lib/wait.js';

const hello = [{ role: 'user', content: 'Hello' }];

// The routes that compute something: a sound body, and one with a field that is wrong.
const routes = {
  '/v1/chat/completions': { good: { messages: hello, max_tokens: 2 }, wrong: { messages: hello, temperature: 'hot' }, param: 'temperature' },
  '/v1/completions': { good: { prompt: 'Once', max_tokens: 2 }, wrong: { prompt: 'Once', top_p: 7 }, param: 'top_p' },
  '/v1/messages': { good: { messages: hello, max_tokens: 2 }, wrong: { messages: hello, max_tokens: 2, stop_sequences: 'x' }, param: 'stop_sequences' },
  '/v1/responses': { good: { input: 'Hello', max_output_tokens: 2 }, wrong: { input: 'Hello', max_output_tokens: 'x' }, param: 'max_output_tokens' },
  '/completion': { good: { prompt: 'Once', n_predict: 2 }, wrong: { prompt: 'Once', n_probs: 'x' }, param: 'n_probs' },
  '/v1/embeddings': { good: { input: 'Once' }, wrong: { input: 'Once', encoding_format: 'words' }, param: 'encoding_format' },
  '/v1/rerank': { good: { query: 'a', documents: ['b'] }, wrong: { query: 'a', documents: ['b'], top_n: 'x' }, param: 'top_n' },
  '/v1/messages/count_tokens': { good: { messages: hello }, wrong: { messages: 'x' }, param: 'messages' },
  '/v1/chat/completions/render': { good: { messages: hello }, wrong: { messages: 'x' }, param: 'messages' },
  '/v1/completions/render': { good: { prompt: 'Once' }, wrong: { prompt: 7 }, param: 'prompt' },
  '/tokenize': { good: { content: 'a' }, wrong: { content: 7 }, param: 'content' },
  '/apply-template': { good: { messages: hello }, wrong: { messages: 7 }, param: 'messages' },
};
const all = Object.keys(routes);
const generating = all.slice(0, 5);
const granted = ['/tokenize', '/apply-template']; // to whoever has a key
const isMessages = (path) => path.startsWith('/v1/messages');

const types = {
  400: 'invalid_request_error', 401: 'authentication_error', 403: 'permission_error', 404: 'not_found_error',
  405: 'invalid_request_error', 413: 'invalid_request_error', 415: 'invalid_request_error', 429: 'rate_limit_error',
  503: 'unavailable_error',
};
// Those of Anthropic's API that have other names there.
const messagesTypes = { ...types, 413: 'request_too_large', 503: 'overloaded_error' };

// A reply that has to be a refusal with this status, in the form of its route: its error.
function refusal(reply, status, path) {
  const what = `${path} ${status}: ${reply.text}`;
  assert.equal(reply.status, status, what);
  assert.match(reply.headers['content-type'], /^application\/json/);
  const { error } = reply.json;
  if (isMessages(path)) {
    assert.deepEqual(Object.keys(reply.json).sort(), ['error', 'request_id', 'type'], what);
    assert.equal(reply.json.type, 'error');
    assert.deepEqual(Object.keys(error).sort(), ['message', 'type'], what);
    assert.equal(error.type, messagesTypes[status], what);
  } else {
    assert.deepEqual(Object.keys(reply.json), ['error'], what);
    assert.deepEqual(Object.keys(error).sort(), errorMembers(error), what);
    if (error.type !== 'exceed_context_size_error') assert.equal(error.type, types[status], what);
    assert.match(error.code, /^[a-z_]+$/, what);
  }
  assert.ok(error.message && !error.message.includes('\n'), what);
  assert.doesNotMatch(reply.text, /\/tmp|\/home|\/root|\.c:\d/, what);
  return error;
}

const admin = 'admin-key-0123456789abcdefghij';
const narrow = 'narrow-key-0123456789abcdefghij';

describe('a server with keys and models of each type', () => {
  let server;
  let client;
  before(async () => {
    const encoder = { vocab: 'bert-bge', layers: 2, embd: 64, heads: 2, 'kv-heads': 2, ctx: 512, ff: 128 };
    const models = {
      writer: { path: smallModel('llama'), context_window: 256 },
      vectors: { path: smallModel('bert', encoder) },
      ranker: { path: smallModel('reranker', encoder) },
    };
    const folder = temporaryFolder();
    const keys = join(folder, 'keys');
    writeFileSync(keys, `${admin} admin\n${narrow} narrow cache\n`, { mode: 0o600 });
    const config = join(folder, 'hearth.yaml');
    const lines = Object.entries(models).map(([name, value]) => `  ${name}: ${JSON.stringify({ threads: 1, ...value })}\n`);
    writeFileSync(config, `server: {api_keys_file: ${keys}, max_body_bytes: 50000, any_model_name: false}\nmodels:\n${lines.join('')}`);
    server = await serve({ args: ['--config', config], access: { key: admin } });
    client = server.client;
  });
  after(() => server.stop());

  const sound = () => Promise.all(all.map(async (path) => {
    const reply = await client.post(path, routes[path].good);
    assert.equal(reply.status, 200, `${path}: ${reply.text}`);
  }));

  for (const path of all) {
    const { good, wrong, param } = routes[path];
    test(`${path}: every status has the form of its API`, async () => {
      const error = refusal(await client.post(path, wrong), 400, path);
      if (!isMessages(path)) assert.equal(error.param, param);
      assert.match(error.message, new RegExp(param));
      for (const body of ['{', '[]', '"x"', '', '{"a":1}}', '\u0000', '7']) refusal(await client.post(path, body), 400, path);

      const stranger = client.withKey();
      refusal(await stranger.post(path, good), 401, path);
      assert.equal((await stranger.post(path, good)).headers['www-authenticate'], 'Bearer');
      refusal(await client.withKey('wrong-key').post(path, good), 401, path);
      if (!granted.includes(path)) refusal(await client.withKey(narrow).post(path, good), 403, path);

      const unknown = refusal(await client.post(path, { ...good, model: 'nobody' }), 404, path);
      assert.match(unknown.message, /nobody/);
      if (!isMessages(path)) assert.deepEqual([unknown.param, unknown.code], ['model', 'model_not_found']);

      for (const method of ['GET', 'PUT', 'DELETE', 'PATCH']) {
        const reply = await client.fetch(method, path);
        refusal(reply, 405, path);
        assert.match(reply.headers.allow, /POST/);
      }
      refusal(await client.post(path, { ...good, padding: 'x'.repeat(60000) }), 413, path);
    });
  }

  test('a model of another type is 400', async () => {
    for (const path of generating) refusal(await client.post(path, { ...routes[path].good, model: 'vectors' }), 400, path);
    for (const path of ['/v1/embeddings', '/v1/rerank']) {
      const error = refusal(await client.post(path, { ...routes[path].good, model: 'writer' }), 400, path);
      assert.deepEqual([error.param, error.code], ['model', 'not_supported']);
    }
  });

  test('what this version cannot do is 400 and names the field: official clients repeat what 5xx answers', async () => {
    const rows = [
      ['/v1/chat/completions', { messages: [{ role: 'user', content: 'a' }], modalities: ['audio'] }, /^modalities$/],
      ['/completion', { prompt: { prompt_string: 'a', multimodal_data: ['AA=='] } }, /^prompt/],
      ['/v1/responses', { input: 'a', background: true }, /^background$/],
      ['/v1/completions', { prompt: 'a', best_of: 3 }, /^best_of$/],
      ['/props', { a: 1 }, null], ['/slots/0?action=erase', {}, null],
    ];
    for (const [path, body, param] of rows) {
      const error = refusal(await client.post(path, body), 400, path);
      assert.equal(error.code, 'not_supported');
      if (param) assert.match(error.param, param, path);
    }
    refusal(await client.post('/v1/messages', { max_tokens: 2, messages: [{ role: 'user', content: 'a' }], container: 'c' }), 400, '/v1/messages');
  });

  test('a prompt that is too long is 400 with its code, its length and the window', async () => {
    const long = 'word '.repeat(900);
    for (const [path, body, param] of [
      ['/v1/chat/completions', { messages: [{ role: 'user', content: long }] }, 'messages'], ['/v1/completions', { prompt: long }, 'prompt'],
      ['/completion', { prompt: long }, 'prompt'], ['/v1/responses', { input: long }, 'input'],
      ['/v1/messages', { messages: [{ role: 'user', content: long }], max_tokens: 4 }, null],
      ['/v1/embeddings', { input: long }, 'input'],
    ]) {
      for (const stream of path.includes('embeddings') ? [false] : [false, true]) {
        const error = refusal(await client.post(path, { ...body, stream }), 400, path);
        assert.match(error.message, /\d+ tokens/, path);
        assert.match(error.message, path === '/v1/embeddings' ? /\b512\b/ : /\b256\b/, path);
        if (!param) continue;
        assert.deepEqual([error.type, error.code, error.param], ['exceed_context_size_error', 'context_length_exceeded', param], path);
        assert.ok(error.n_prompt_tokens > error.n_ctx && [256, 512].includes(error.n_ctx), path);
      }
    }
  });

  // A refusal of each kind, of one route, to a page of this machine.
  const page = { headers: { Origin: 'http://localhost:3000' } };
  const kinds = (path) => ({
    400: () => client.post(path, routes[path].wrong, page),
    401: () => client.withKey().post(path, routes[path].good, page),
    403: () => client.withKey(narrow).post(path, routes[path].good, page),
    404: () => client.post(path, { ...routes[path].good, model: 'nobody' }, page),
    405: () => client.get(path, page),
    413: () => client.post(path, { padding: 'x'.repeat(60000) }, page),
    415: () => client.post(path, routes[path].good, { headers: { ...page.headers, 'Content-Type': 'text/plain' } }),
  });

  for (const status of [400, 401, 403, 404, 405, 413, 415]) {
    test(`${status} carries the request's id, and the page that asked may read it`, async () => {
      for (const path of ['/v1/chat/completions', '/v1/messages', '/v1/embeddings']) {
        const reply = await kinds(path)[status]();
        assert.equal(reply.status, status);
        assert.match(reply.headers['x-request-id'] ?? 'none', /^req-/, path);
        assert.equal(reply.headers['access-control-allow-origin'], page.headers.Origin, path);
      }
    });

    test(`${status} of Messages has the id where clients of that API look for it`, async () => {
      const reply = await kinds('/v1/messages')[status]();
      assert.match(reply.headers['request-id'] ?? 'none', /^req-/);
      assert.equal(reply.json.request_id, reply.headers['request-id'], 'in the body too');
    });
  }

  test('an unknown route is 404, with a key; a model that is not there too', async () => {
    for (const path of ['/v1/nothing', '/nothing', '/v1']) {
      assert.equal(refusal(await client.post(path, {}), 404, path).code, 'route_not_found');
    }
    refusal(await client.get('/v1/models/nobody'), 404, '/v1/models/nobody');
  });

  test('after all that every route answers', sound);
});

describe('a server that is full', () => {
  const endless = { prompt: tokens(8, 1), max_tokens: 4000, ignore_eos: true };

  test('is busy: 429 with Retry-After, streamed or not, and 503 for those that wait when it stops', async (t) => {
    const server = await serve({
      t, model: largeModel(), set: { 'server.drain_timeout': 1 },
      models: { n_seq_max: 1, queue_depth: 1, context_window: 8192, admission_timeout: 1 },
    });
    const stream = await server.client.stream('/v1/completions', endless);
    const reading = stream.collect();
    await server.client.busy();
    const rows = generating.flatMap((path) => [false, true].map((stream) => [path, stream]));
    const replies = await within(30, 'all are told', Promise.all(rows.map(([path, stream]) => server.client.post(path, { ...routes[path].good, stream }))));
    replies.forEach((reply, i) => {
      const [path] = rows[i];
      const error = refusal(reply, 429, path);
      assert.match(reply.headers['retry-after'], /^[1-9]\d*$/);
      assert.match(error.message, /busy/);
    });
    const waiting = Promise.all(rows.map(([path, stream]) => server.client.post(path, { ...routes[path].good, stream })));
    await until('all wait', async () => await server.client.waiting() === rows.length);
    server.signal();
    (await within(30, 'all are told', waiting)).forEach((reply, i) => refusal(reply, 503, rows[i][0]));
    await reading;
    const how = await within(30, 'the server ends', server.ended);
    assert.deepEqual(how, { code: 0, signal: null }, server.log);
  });
});
