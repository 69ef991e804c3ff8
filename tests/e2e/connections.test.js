// Connections: those that say nothing, those that are slow, and more of them than there may be; and who may connect to a
// socket in the file system.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import http from 'node:http';
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { demo } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { until, within } from './lib/wait.js';

const hello = { messages: [{ role: 'user', content: 'Who are you?' }], max_tokens: 3 };

// A request whose body does not come.
const partial = 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 500\r\n\r\n';

// So many connections that have sent `text` each.
function crowd(t, server, count, text) {
  return Array.from({ length: count }, () => {
    const connection = server.client.connect();
    t.after(() => connection.destroy());
    if (text) connection.write(text);
    return connection;
  });
}

test('a connection that sends no request is closed after ten seconds, one that is kept alive is not', async (t) => {
  const server = await serve({ t });
  const began = performance.now();
  const [silent] = crowd(t, server, 1);
  const [used] = crowd(t, server, 1, 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n');
  assert.ok(await used.settled(10));
  await until('the silent one is closed', () => silent.closed, { seconds: 30 });
  const took = performance.now() - began;
  assert.ok(took > 9000 && took < 15000, `after ${took.toFixed(0)} ms`);
  assert.equal(silent.received.length, 0);
  assert.equal(used.closed, false);
  await server.stop();
});

test('the time is a key of the configuration', async (t) => {
  const server = await serve({ t, set: { 'server.first_request_timeout': 0.5 } });
  const began = performance.now();
  const [silent, slow] = [...crowd(t, server, 1), ...crowd(t, server, 1, 'GET /hea')];
  await until('both are closed', () => silent.closed && slow.closed, { seconds: 8 });
  assert.ok(performance.now() - began > 400);
  assert.match(slow.received.toString(), /^HTTP\/1.1 408 /);
  await server.stop();
});

test('/health answers and chats are served whatever number of connections say nothing', async (t) => {
  const server = await serve({ t, set: { 'server.max_connections': 8 } });
  crowd(t, server, 60);
  crowd(t, server, 60, 'GET /hea');
  for (let i = 0; i < 5; i++) {
    assert.equal((await within(5, '/health', server.client.get('/health'))).status, 200);
    await within(20, 'a reply', server.client.chat(hello));
  }
  await server.stop();
});

test('/health answers although every connection is taken by a slow request; others are told so', async (t) => {
  const server = await serve({ t, set: { 'server.max_connections': 8 } });
  const slow = [];
  while (slow.length < 8) { // one after the other: none goes for another before its head has been read
    const [one] = crowd(t, server, 1, partial);
    await until('its body is waited for, or there is no room yet', () => one.received.length > 0 || one.closed);
    const status = one.received.toString().slice(9, 12);
    assert.ok(['100', '503', ''].includes(status), one.received.toString());
    if (status === '100') slow.push(one);
  }
  const full = await server.client.post('/v1/chat/completions', hello);
  assert.equal(full.status, 503);
  assert.equal(full.headers['retry-after'], '1');
  assert.match(full.json.error.message, /all connections are taken/);
  crowd(t, server, 40);
  for (let i = 0; i < 5; i++) {
    for (const path of ['/health', '/v1/liveness']) {
      assert.equal((await within(5, path, server.client.get(path))).status, 200);
    }
    assert.equal((await server.client.get('/v1/models')).status, 503);
  }
  await slow[0].destroy();
  await until('there is room', async () => (await server.client.post('/v1/chat/completions', hello)).status === 200);
  await server.stop();
});

test('a machine whose limit of open files is low has fewer connections, and answers', async (t) => {
  const server = await serve({ t, set: { 'server.max_connections': 1000 }, files: 300 });
  await until('it says so', () => /fewer connections than server\.max_connections.* connections=(\d+)/.test(server.log));
  crowd(t, server, 400, partial);
  for (let i = 0; i < 5; i++) {
    assert.equal((await within(10, '/health', server.client.get('/health'))).status, 200);
  }
  await server.stop();
});

test('a unix socket has the mode and the group that the configuration says', async (t) => {
  const [gid, group] = process.getuid() === 0
    ? [1, execFileSync('getent', ['group', '1'], { encoding: 'utf8' }).split(':')[0]]
    : [process.getgid(), execFileSync('id', ['-gn'], { encoding: 'utf8' }).trim()];
  const path = join(temporaryFolder(), 'socket');
  const server = await serve({
    t, args: ['--set', `server.listen=[127.0.0.1:0, "unix:${path}"]`, '--set', 'server.socket_mode=0660',
      '--set', `server.socket_group=${group}`],
  });
  const file = statSync(path);
  assert.equal(file.mode & 0o777, 0o660);
  assert.equal(file.gid, gid);
  const status = await new Promise((resolve, reject) => {
    http.get({ socketPath: path, path: '/health' }, (response) => resolve(response.resume().statusCode)).on('error', reject);
  });
  assert.equal(status, 200);
  await server.stop();
});

test('a group that there is not is refused, with the key', async () => {
  const config = join(temporaryFolder(), 'hearth.yaml');
  writeFileSync(config, `server:\n  socket_group: no-such-group\nmodels: {demo: {path: ${demo}}}\n`);
  for (const args of [['serve', '--config', config], ['config', 'check', config]]) {
    const { code, stderr, stdout } = await run(args);
    assert.equal(code, 2, stderr + stdout);
    assert.match(stderr + stdout, /server\.socket_group: there is no group 'no-such-group'/);
  }
});
