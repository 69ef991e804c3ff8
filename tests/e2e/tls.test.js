// HTTPS: real clients, streams, certificates that change, and clients that mean no good.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import tls from 'node:tls';
import { join } from 'node:path';
import OpenAI from 'openai';
import { certificate } from './lib/certificates.js';
import { smallModel } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { Random, tokens, until, within } from './lib/wait.js';

const first = certificate('first');
const options = ({ cert, key }) => ({ 'server.tls_cert': cert, 'server.tls_key': key });

// A fetch for clients that bring none, by node:https: whole bodies in, streams out.
const fetchOver = (agent) => (url, { method, headers, body, signal } = {}) => new Promise((resolve, reject) => {
  const request = https.request(url, { method, headers: Object.fromEntries(new Headers(headers)), agent, signal },
    (response) => resolve(new Response(ReadableStream.from(response), {
      status: response.statusCode, headers: response.headers,
    })));
  request.on('error', reject);
  request.end(body);
});

// A TLS connection once the handshake is done.
const shake = (port, more) => new Promise((resolve, reject) => {
  const socket = tls.connect({ host: '127.0.0.1', port, ca: first.ca, ...more }, () => resolve(socket));
  socket.on('error', reject);
});

describe('https', () => {
  let server;
  before(async () => {
    server = await serve({
      model: smallModel('llama', { layers: 1, embd: 32, heads: 1, 'kv-heads': 1, ff: 32 }),
      models: { n_seq_max: 4, context_window: 8192 },
      set: options(first), args: ['--log-level', 'debug'], access: { ca: first.ca },
    });
  });
  after(() => server.stop());
  const healthy = async () => assert.equal((await server.client.get('/health')).status, 200);

  test('the official client streams over it', async () => {
    const agent = new https.Agent({ ca: first.ca, keepAlive: true });
    const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, fetch: fetchOver(agent) });
    const stream = await openai.chat.completions.create({
      model: server.model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 50, stream: true,
    });
    let chunks = 0;
    let finish = null;
    for await (const chunk of stream) {
      chunks++;
      finish = chunk.choices[0]?.finish_reason ?? finish;
    }
    assert.ok(chunks > 2);
    assert.ok(['length', 'stop'].includes(finish));
    agent.destroy();
  });

  test('what is agreed on is TLS 1.2 or newer, and HTTP/1.1', async () => {
    const socket = await shake(server.port, { ALPNProtocols: ['h2', 'http/1.1'] });
    assert.equal(socket.alpnProtocol, 'http/1.1');
    assert.match(socket.getProtocol(), /^TLSv1\.[23]$/);
    socket.destroy();
    await assert.rejects(shake(server.port, { ALPNProtocols: ['h2'] }));
    await assert.rejects(shake(server.port, { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'ALL@SECLEVEL=0' }));
    await healthy();
  });

  test('a client that speaks plain HTTP is closed', async () => {
    await assert.rejects(new Promise((resolve, reject) => {
      http.get({ host: '127.0.0.1', port: server.port, path: '/health' }, resolve).on('error', reject);
    }));
    await until('it is logged', () => /debug http: TLS handshake failed reason="http request"/.test(server.log));
    await healthy();
  });

  test('a client that reads too slowly is cut off, and holds nobody up', async () => {
    const socket = await shake(server.port);
    socket.pause();
    const body = JSON.stringify({ prompt: tokens(8, 1), n: 16, max_tokens: 8000, ignore_eos: true, stream: true });
    socket.write(`POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await server.client.busy(1);
    await until('it is cut off', () => /client reads too slowly, request cancelled/.test(server.log), { seconds: 120 });
    await server.client.idle();
    socket.destroy();
    await healthy();
  });

  test('a client that leaves in mid stream frees its slot', async () => {
    const stream = await server.client.stream('/v1/completions', {
      prompt: tokens(8, 2), max_tokens: 8000, ignore_eos: true,
    });
    for await (const event of stream.events()) if (event) break;
    stream.abort();
    await server.client.idle();
  });

  test('garbage, half a handshake, clients that vanish: 200 at once, and half of them well-behaved', async () => {
    const random = new Random(11);
    const bad = (bytes) => new Promise((resolve) => {
      const socket = net.connect(server.port, '127.0.0.1', () => {
        socket.write(bytes, () => (random.below(2) ? socket.destroy() : socket.end()));
      });
      socket.on('error', () => {});
      socket.on('data', () => {});
      socket.on('close', resolve);
    });
    const record = Buffer.from([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]); // the beginning of a ClientHello
    const noise = () => Buffer.from(Array.from({ length: random.between(1, 3000) }, () => random.below(256)));
    const ways = [
      () => bad(noise()), () => bad(record.subarray(0, random.between(1, record.length))),
      () => bad(Buffer.concat([record, noise()])), () => bad('GET / HTTP/1.1\r\n\r\n'),
      async () => { (await shake(server.port)).destroy(); },
      async () => { const socket = await shake(server.port); socket.on('error', () => {}); socket.end(noise()); },
    ];
    const well = () => server.client.complete({ prompt: tokens(8, 3), max_tokens: 2 });
    await within(120, 'all have ended', Promise.all(
      Array.from({ length: 200 }, (_, i) => (i % 2 ? well() : random.pick(ways)())),
    ));
    await healthy();
    await until('all connections are gone', async () => await server.client.metric('hearth_http_connections') <= 1);
  });
});

test('SIGHUP takes a new certificate, and keeps the old one where the new one has a fault', async (t) => {
  const second = certificate('second');
  const folder = temporaryFolder();
  const live = { cert: join(folder, 'cert.pem'), key: join(folder, 'key.pem') };
  const install = ({ cert, key }) => { copyFileSync(cert, live.cert); copyFileSync(key, live.key); };
  install(first);
  const server = await serve({ t, set: options(live), access: { ca: [first.ca, second.ca] } });
  const shown = async () => {
    const socket = await shake(server.port, { ca: [first.ca, second.ca] });
    const { CN } = socket.getPeerCertificate().subject;
    socket.destroy();
    return CN;
  };
  const stream = await server.client.stream('/v1/completions', {
    prompt: tokens(8, 1), max_tokens: 500, ignore_eos: true,
  });
  copyFileSync(second.cert, live.cert); // without its key
  server.signal('SIGHUP');
  await until('the fault is logged', () => /not reloaded.*server\.tls_key: .*does not belong/.test(server.log));
  assert.equal(await shown(), 'first');
  install(second);
  server.signal('SIGHUP');
  await until('the new certificate is shown', async () => await shown() === 'second');
  assert.ok((await stream.collect()).done, 'a stream under the old one goes on');
  await server.stop();
});

test('a unix socket beside it stays plain', async (t) => {
  const path = join(temporaryFolder(), 'socket');
  const server = await serve({
    t, args: ['--set', `server.listen=[127.0.0.1:0, "unix:${path}"]`, '--set', `server.tls_cert=${first.cert}`,
      '--set', `server.tls_key=${first.key}`], access: { ca: first.ca },
  });
  await until('the socket is there', () => existsSync(path));
  const status = await new Promise((resolve, reject) => {
    http.get({ socketPath: path, path: '/health' }, (response) => resolve(response.statusCode)).on('error', reject);
  });
  assert.equal(status, 200);
  await server.stop();
});

test('certificates that cannot be served are refused at start and by config check, naming the key', async () => {
  const other = certificate('other');
  const rows = [
    [{ cert: first.cert, key: other.key }, /server\.tls_key: .*does not belong/],
    [{ cert: first.key, key: first.key }, /server\.tls_cert: .*cannot use the certificate/],
    [{ cert: '/nowhere/cert.pem', key: first.key }, /server\.tls_cert: .*cannot read/],
    [{ cert: first.cert, key: 'null' }, /server\.tls_cert: needs server\.tls_key/],
  ];
  for (const [pair, message] of rows) {
    const sets = Object.entries(options(pair)).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
    const started = await run(['serve', '--port', '0', ...sets]);
    assert.ok([1, 2].includes(started.code), started.stderr);
    assert.match(started.stderr, message);
    const file = join(temporaryFolder(), 'hearth.yaml');
    writeFileSync(file, `server: {tls_cert: ${pair.cert}, tls_key: ${pair.key}}\n`);
    const checked = await run(['config', 'check', file]);
    assert.equal(checked.code, 2, checked.stderr);
    assert.match(checked.stderr, message);
  }
});
