// Requests that a browser sends for web pages: whose page may ask, by which name of the server, with which body. Each
// table has a row a request: origin, host, content type, and the answer.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run, serve, temporaryFolder } from './lib/server.js';

const key = 'page-key-0123456789abcdefghij';
const json = 'application/json';
const body = JSON.stringify({ prompt: 'Once', max_tokens: 1 });

function keysFile() {
  const path = join(temporaryFolder(), 'keys');
  writeFileSync(path, `${key} page\n`, { mode: 0o600 });
  return path;
}

// Sends a row as it stands, without anything that an HTTP client would add.
async function ask(server, [origin, host, type], headers = '') {
  const connection = server.client.connect();
  const lines = ['POST /v1/completions HTTP/1.1', `Host: ${host}`, 'Connection: close', `Content-Length: ${body.length}`];
  if (origin !== null) lines.push(`Origin: ${origin}`);
  if (type !== null) lines.push(`Content-Type: ${type}`);
  connection.write(`${lines.join('\r\n')}\r\n${headers}\r\n${body}`);
  assert.ok(await connection.settled(30), 'an answer comes');
  const { status, head, body: text } = connection.response();
  await connection.destroy();
  return { status, allowed: /^access-control-allow-origin: (.*)$/mi.exec(head)?.[1] ?? null, json: JSON.parse(text) };
}

async function check(server, rows, headers) {
  for (const row of rows) {
    const [origin, host, type, status, says] = row;
    const reply = await ask(server, row, headers);
    const what = `${origin} asks ${host} with ${type}: ${JSON.stringify(reply)}`;
    assert.equal(reply.status, status, what);
    if (status === 200) assert.equal(reply.allowed, origin, what);
    else assert.match(JSON.stringify(reply.json.error), says, what);
    if (says === foreign) assert.equal(reply.allowed, null, what);
  }
}

const foreign = /server\.allowed_origins.*origin_not_allowed/;
const renamed = /server\.allowed_hosts.*host_not_allowed/;
const untyped = /application\/json.*unsupported_media_type/;

describe('a server without keys', () => {
  let server;
  before(async () => { server = await serve(); });
  after(() => server.stop());

  test('answers programs and the pages of this machine, and nobody else', async () => {
    const rows = [
      // origin, host, content type, status, what the refusal says
      [null, 'localhost', json, 200],
      [null, '127.0.0.1:8080', null, 200],
      [null, '[::1]:8080', 'application/x-www-form-urlencoded', 200],
      ['http://localhost:3000', 'localhost:8080', json, 200],
      ['https://127.0.0.1', '127.0.0.1:8080', 'application/json; charset=utf-8', 200],
      ['http://[::1]:5173', 'LOCALHOST', json, 200],
      ['vscode-webview://1f2e', 'localhost', json, 200],
      ['tauri://localhost', 'localhost', json, 200],
      ['app://obsidian.md', 'localhost', json, 200],
      ['file://', 'localhost', json, 200],
      ['http://localhost:3000', 'localhost', 'text/plain', 415, untyped],
      ['http://localhost:3000', 'localhost', 'application/x-www-form-urlencoded', 415, untyped],
      ['http://localhost:3000', 'localhost', 'multipart/form-data; boundary=x', 415, untyped],
      ['http://localhost:3000', 'localhost', null, 415, untyped],
      ['https://evil.example', 'localhost', json, 403, foreign],
      ['https://evil.example', '127.0.0.1:8080', 'text/plain', 403, foreign],
      ['http://localhost.evil.example', 'localhost', json, 403, foreign],
      ['null', 'localhost', json, 403, foreign],
      ['null', 'localhost', 'application/x-www-form-urlencoded', 403, foreign],
      ['http://localhost, https://evil.example', 'localhost', json, 403, foreign],
      ['http://evil.example:8080', 'evil.example:8080', json, 403, renamed], // DNS rebinding
      ['http://localhost', 'evil.example', json, 403, renamed],
      [null, 'evil.example', json, 403, renamed],
      [null, 'localhost@evil.example', json, 403, renamed],
      [null, '127.0.0.1.evil.example', json, 403, renamed],
      [null, '192.168.1.5', json, 403, renamed],
    ];
    await check(server, rows);
    await server.says(/warn +http: a web page was refused: server\.allowed_origins.* origin="?https:\/\/evil\.example/);
  });

  test('refuses every route to a foreign page, whatever its method', async () => {
    const headers = { Origin: 'https://evil.example' };
    for (const [method, path] of [['GET', '/health'], ['GET', '/v1/models'], ['HEAD', '/metrics'], ['GET', '/slots'],
      ['OPTIONS', '/v1/completions'], ['POST', '/v1/messages'], ['POST', '/tokenize'], ['GET', '/nothing'],
      ['DELETE', '/v1/models']]) {
      const reply = await server.client.fetch(method, path, { headers });
      assert.equal(reply.status, 403, `${method} ${path}`);
      assert.equal(reply.headers['access-control-allow-origin'], undefined);
    }
  });

  // What the official clients send from a page; the browser asks for each name before it sends one.
  test('lets pages send what official clients send, and read what those look for', async () => {
    const named = ['authorization', 'content-type', 'x-api-key', 'anthropic-version', 'anthropic-beta',
      'anthropic-dangerous-direct-browser-access', 'openai-organization', 'openai-project', 'x-stainless-arch',
      'x-stainless-helper', 'x-stainless-helper-method', 'x-stainless-lang', 'x-stainless-os', 'x-stainless-package-version', 'x-stainless-retry-count',
      'x-stainless-runtime', 'x-stainless-runtime-version', 'x-stainless-timeout', 'x-of-this-page'];
    for (const [method, path] of [['POST', '/v1/chat/completions'], ['POST', '/v1/messages'], ['DELETE', '/v1/responses/resp_1'],
      ['GET', '/v1/models'], ['POST', '/v1/conversations']]) {
      const reply = await server.client.fetch('OPTIONS', path, { headers: {
        Origin: 'http://localhost:3000', 'Access-Control-Request-Method': method,
        'Access-Control-Request-Headers': 'x-of-this-page', 'Access-Control-Request-Private-Network': 'true',
      } });
      assert.equal(reply.status, 204, path);
      const list = (name) => reply.headers[name].toLowerCase().split(/, */);
      assert.ok(list('access-control-allow-methods').includes(method.toLowerCase()), path);
      for (const name of named) assert.ok(list('access-control-allow-headers').includes(name), `${path}: ${name}`);
      assert.equal(reply.headers['access-control-allow-origin'], 'http://localhost:3000');
      assert.equal(reply.headers['access-control-allow-private-network'], 'true');
      assert.match(reply.headers.vary, /Origin/);
    }
    const reply = await server.client.fetch('GET', '/v1/models', { headers: { Origin: 'http://localhost:3000' } });
    const shown = reply.headers['access-control-expose-headers'].toLowerCase().split(/, */);
    for (const name of ['x-request-id', 'request-id', 'retry-after']) assert.ok(shown.includes(name), name);
  });

  test('judges a whole URL as a target by its host too', async () => {
    for (const [target, host, status] of [['http://localhost/health', 'localhost', 200],
      ['http://evil.example/health', 'localhost', 403], ['http://localhost/health', 'evil.example', 403]]) {
      const connection = server.client.connect();
      connection.write(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      assert.ok(await connection.settled(30));
      assert.equal(connection.response().status, status, `${target} of ${host}`);
      await connection.destroy();
    }
  });

  test('does not warn of anything as long as it listens on this machine alone', () => {
    assert.doesNotMatch(server.log, /whoever reaches this server/);
  });
});

test('what the configuration allows may ask as well', async (t) => {
  const server = await serve({ t, set: {
    'server.allowed_origins': '[https://chat.example, "chrome-extension://*"]', 'server.allowed_hosts': 'box.example',
  } });
  await check(server, [
    ['https://chat.example', 'localhost', json, 200],
    ['chrome-extension://abcdef', 'localhost', json, 200],
    ['http://box.example:8080', 'box.example:8080', json, 200], // its own page
    ['https://chat.example', 'box.example', json, 200],
    ['https://chat.example', 'localhost', 'text/plain', 415, untyped],
    ['https://other.example', 'localhost', json, 403, foreign],
    ['https://chat.example', 'other.example', json, 403, renamed],
  ]);
  await server.stop();
});

test('with keys any name will do, and foreign pages are refused all the same', async (t) => {
  const server = await serve({ t, set: { 'server.api_keys_file': keysFile() }, access: { key } });
  const keyed = `Authorization: Bearer ${key}\r\n`;
  await check(server, [
    [null, 'box.example', json, 200],
    ['https://box.example', 'box.example', json, 200],
    ['https://evil.example', 'box.example', json, 403, foreign],
  ], keyed);
  await check(server, [['https://box.example', 'box.example', json, 401, /invalid_api_key/]]);
  await server.stop();
});

// 192.0.2.1 is nobody's address: the server warns, and then cannot listen there.
test('a server that others would reach without a key warns once, in one line', async () => {
  const start = (...more) => run(['serve', ...more.flatMap((set) => ['--set', set])]);
  const warned = /warn +http: whoever reaches this server may use all of it: set server\.api_keys_file.*/g;
  const open = await start('server.listen=[192.0.2.1:0, "192.0.2.2:0"]');
  assert.equal(open.code, 1);
  assert.equal(open.stderr.match(warned)?.length, 1, open.stderr);
  assert.match(open.stderr, /listen="?192\.0\.2\.1:0/);
  const keyed = await start('server.listen=192.0.2.1:0', `server.api_keys_file=${keysFile()}`);
  assert.equal(keyed.code, 1);
  assert.doesNotMatch(keyed.stderr, warned);
});

test('config check finds what is no origin and no host', async () => {
  const file = join(temporaryFolder(), 'hearth.yaml');
  writeFileSync(file, 'server:\n  allowed_origins: [chat.example, "https://chat.example/"]\n  allowed_hosts: ["http://box"]\n');
  const { code, stderr } = await run(['config', 'check', file]);
  assert.equal(code, 2);
  assert.match(stderr, /2: server\.allowed_origins: chat\.example is no origin/);
  assert.match(stderr, /2: server\.allowed_origins: https:\/\/chat\.example\/ has more than scheme, host and port/);
  assert.match(stderr, /3: server\.allowed_hosts: http:\/\/box is no host name/);
});
