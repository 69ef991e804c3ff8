// How a body is written: compressed with gzip, with a byte order mark before it. What cannot be decoded is refused in the
// API's own form.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { serve } from './lib/server.js';

const most = 1 << 20; // server.max_body_bytes
const chat = '/v1/chat/completions';
const hi = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 1 };
let server;

before(async () => { server = await serve({ set: { 'server.max_body_bytes': most } }); });
after(() => server.stop());

const post = (path, bytes, coding) => server.client.post(path, bytes, { headers: coding ? { 'Content-Encoding': coding } : {} });
const bodies = {
  [chat]: hi,
  '/v1/completions': { prompt: 'Hi', max_tokens: 1 },
  '/v1/messages': hi,
  '/v1/responses': { input: 'Hi', max_output_tokens: 1 },
  '/api/chat': { ...hi, stream: false },
  '/tokenize': { content: 'Hi' },
};

test('a body in gzip is read in every API, however it is called', async () => {
  for (const [path, body] of Object.entries(bodies)) {
    const reply = await post(path, gzipSync(JSON.stringify(body)), 'gzip');
    assert.equal(reply.status, 200, `${path}: ${reply.text}`);
  }
  for (const coding of ['x-gzip', 'GZIP']) assert.equal((await post(chat, gzipSync(JSON.stringify(hi)), coding)).status, 200);
  assert.equal((await post(chat, JSON.stringify(hi), 'identity')).status, 200);
});

test('a compressed body has as many bytes as another one, when it is decoded', async () => {
  const text = JSON.stringify({ ...hi, user: 'x'.repeat(most) });
  const fits = JSON.stringify({ ...hi, user: 'x'.repeat(most - 200) });
  assert.equal((await post(chat, gzipSync(fits), 'gzip')).status, 200);
  const { status, json } = await post(chat, gzipSync(text), 'gzip');
  assert.equal(status, 413);
  assert.match(json.error.message, /server\.max_body_bytes/);
});

test('what is not gzip, and what is something else, is refused in the form of the API', async () => {
  const text = JSON.stringify(hi);
  const whole = gzipSync(text);
  const broken = [whole.subarray(0, whole.length - 9), Buffer.from(text), Buffer.concat([whole, Buffer.from('junk')])];
  for (const bytes of broken) assert.equal((await server.client.refused(400, chat, bytes, { headers: { 'Content-Encoding': 'gzip' } })).code, 'invalid_value');
  for (const [coding, bytes] of Object.entries({ br: brotliCompressSync(text), deflate: deflateSync(text), zstd: text, 'gzip, gzip': gzipSync(whole) })) {
    const { status, json, headers } = await post(chat, bytes, coding);
    assert.equal(status, 415, coding);
    assert.ok(json.error.message.includes(coding), json.error.message);
    assert.equal(headers['accept-encoding'], 'gzip');
  }
  assert.equal((await post('/v1/messages', text, 'br')).json.type, 'error');
  assert.equal(typeof (await post('/api/chat', text, 'br')).json.error, 'string');
});

test('a byte order mark before the body is no part of it', async () => {
  for (const [path, body] of Object.entries(bodies)) {
    const reply = await post(path, `\uFEFF${JSON.stringify(body)}`);
    assert.equal(reply.status, 200, `${path}: ${reply.text}`);
  }
  await server.client.refused(400, chat, `\uFEFF\uFEFF${JSON.stringify(hi)}`);
});
