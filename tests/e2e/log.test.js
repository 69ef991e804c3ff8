// The log's place takes nothing any more: a pipe that nobody reads, a disk that hangs. Nobody waits for it; what is lost is
// counted, and said when it goes on. And nothing that a client sends can write lines of its own.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, constants, createReadStream, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { serve, shim, temporaryFolder } from './lib/server.js';
import { tokens, until, within } from './lib/wait.js';

const hang = shim('hang');
const long = `/${'x'.repeat(8000)}`;
const endless = { prompt: tokens(8, 1), max_tokens: 1000, ignore_eos: true };

// A pipe that nobody reads before read() is called; `fd` is for the server.
class Pipe {
  constructor(t) {
    this.path = join(temporaryFolder(), 'pipe');
    execFileSync('mkfifo', [this.path]);
    this.fd = openSync(this.path, constants.O_RDWR);
    this.text = '';
    t.after(() => this.close());
  }

  read() {
    const stream = createReadStream(this.path, { encoding: 'utf8' });
    stream.on('data', (text) => { this.text += text; });
    this.ended = new Promise((resolve) => { stream.on('close', resolve); });
  }

  // The server has its own by then.
  close() {
    if (this.fd !== null) closeSync(this.fd);
    this.fd = null;
  }
}

const dropped = (server) => server.client.metric('hearth_log_lines_dropped_total');

// Requests until lines are dropped. Each takes some 8 kB of the log.
async function overflow(server) {
  await until('lines are dropped', async () => {
    for (let i = 0; i < 20; i++) assert.equal((await server.client.get(long)).status, 404);
    return await dropped(server) > 0;
  }, { seconds: 60, every: 0 });
}

test('a server whose stderr nobody reads serves on, and says how many lines were lost', async (t) => {
  const pipe = new Pipe(t);
  const server = await serve({ t, stderr: pipe.fd, models: { n_seq_max: 2 } });
  const stream = await server.client.stream('/v1/completions', endless);
  const whole = stream.collect();
  await within(60, 'requests are answered', overflow(server));
  assert.equal((await within(5, '/health answers', server.client.get('/health'))).status, 200);
  const reply = await within(60, 'the stream ends', whole);
  assert.equal(reply.finish[0], 'length');
  assert.ok(reply.done);
  const lost = await dropped(server); // of this request, too
  pipe.read();
  const said = await until('the number is said', () => /^\S+ warn  log: lines dropped lines=(\d+)$/m.exec(pipe.text));
  assert.ok(Number(said[1]) >= lost && Number(said[1]) <= lost + 2, `${said[1]} lines, and ${lost} by /metrics`);
  await server.client.get('/after');
  await until('the log goes on', () => pipe.text.includes('path=/after'));
  await server.stop();
  pipe.close();
  await pipe.ended;
  for (const line of pipe.text.trim().split('\n')) assert.match(line, /^\d{4}-\d\d-\d\dT/);
  assert.equal(pipe.text.match(/lines dropped/g).length, 1);
});

test('it ends in its time although nobody reads its stderr', async (t) => {
  const pipe = new Pipe(t);
  const server = await serve({ t, stderr: pipe.fd, set: { 'server.drain_timeout': 1 } });
  await overflow(server);
  const began = performance.now();
  server.signal('SIGTERM');
  const { code } = await within(30, 'the end', server.ended);
  assert.equal(code, 0);
  assert.ok(performance.now() - began < 6000);
});

test('a crash loses no line that can still be written', async (t) => {
  const pipe = new Pipe(t);
  const server = await serve({ t, stderr: pipe.fd });
  for (let i = 0; i < 20; i++) await server.client.get(long); // more than the pipe holds
  await server.client.get('/last-words');
  server.signal('SIGABRT');
  pipe.read();
  const { signal } = await within(30, 'the end', server.ended);
  assert.equal(signal, 'SIGABRT');
  pipe.close();
  await pipe.ended;
  assert.match(pipe.text, /path=\/last-words /);
});

test('a log file on a disk that hangs stops nobody, not even at SIGHUP', async (t) => {
  const folder = temporaryFolder();
  const flag = join(temporaryFolder(), 'hangs');
  const path = join(folder, 'log');
  t.after(() => rmSync(flag, { force: true }));
  const server = await serve({
    t, set: { 'server.log_file': path, 'server.drain_timeout': 1 },
    env: { LD_PRELOAD: hang, HANG_FOLDER: folder, HANG_WHILE: flag },
  });
  writeFileSync(flag, '');
  await server.client.get('/during');
  server.signal('SIGHUP');
  for (let i = 0; i < 5; i++) assert.equal((await within(5, '/health answers', server.client.get('/health'))).status, 200);
  await within(20, 'a reply', server.client.complete({ prompt: 'My name is', max_tokens: 5 }));
  rmSync(flag);
  await until('all of it is written', () => /path=\/v1\/completions /.test(readFileSync(path, 'utf8')));
  assert.match(readFileSync(path, 'utf8'), /path=\/during /);
  writeFileSync(flag, '');
  await server.client.get('/at-the-end');
  server.signal('SIGTERM');
  const { code } = await within(10, 'the end', server.ended);
  assert.equal(code, 0);
});

for (const format of ['text', 'json']) {
  test(`what a client sends cannot reach the terminal or begin a line of its own (${format})`, async (t) => {
    const server = await serve({ t, args: ['--log-format', format] });
    const evil = ['%1b[2J', '%0d%0afaked', '%7f', '%c2%9b31m', '%c2%85', '%e2%80%a8', '%e2%80%ae', '%ff', '%00x', '%22%5c'];
    for (const part of evil) {
      const reply = await server.client.get(`/a${part}`, { headers: { 'X-Request-Id': 'a\u00e9 "b' } });
      assert.ok([400, 404].includes(reply.status), `${part}: ${reply.status}`);
    }
    await server.client.get('/the-last');
    await until('all is logged', () => server.log.includes('/the-last'));
    await server.stop();
    const lines = server.log.split('\n');
    const logged = lines.filter((line) => line.includes('/a'));
    assert.ok(logged.length >= evil.length - 1);
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(server.log, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e]/);
    assert.ok(!lines.some((line) => line.startsWith('faked')));
  });
}

// eslint-disable-next-line no-control-regex
const raw = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/;
const loud = shim('loud');

for (const format of ['text', 'json']) {
  test(`what a library writes to stderr is a line of the log, escaped (${format})`, async (t) => {
    const server = await serve({ t, args: ['--log-format', format], env: { LD_PRELOAD: loud } });
    assert.equal((await server.client.post('/v1/completions', { prompt: 'LOUD', max_tokens: 1 })).status, 200);
    await until('all of it is logged', () => /a library says.*behind/.test(server.log));
    await server.stop();
    assert.doesNotMatch(server.log, raw);
    for (const line of server.log.split('\n')) assert.doesNotMatch(line, /^(careful|2026-01-01|behind)/);
    assert.match(server.log, /a library says.*careful\\u001b\[31m/);
    assert.match(server.log, /a library says.*serve: forged"/);
  });
}

test('a library that ends the process has its last words in the log, escaped', async (t) => {
  for (const set of [{}, { 'server.log_file': join(temporaryFolder(), 'log') }]) {
    const server = await serve({ t, set, env: { LD_PRELOAD: loud } });
    await assert.rejects(server.client.post('/v1/completions', { prompt: 'LOUD DEATH', max_tokens: 1 }));
    const { signal } = await within(30, 'the end', server.ended);
    assert.equal(signal, 'SIGABRT');
    const text = set['server.log_file'] ? readFileSync(set['server.log_file'], 'utf8') : server.log;
    assert.equal(text.match(/a library says text="it goes down, \d+"/g).length, 2000);
    assert.match(text, /a library says text="last words\\u001b\[0m"/);
    assert.doesNotMatch(text + server.log, raw);
  }
});
