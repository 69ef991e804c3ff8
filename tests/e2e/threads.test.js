// Threads that the system does not give: the server says so in one line and does not start, whichever thread it is; and a
// model that is loaded later fails its requests, not the server.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { hearth } from './lib/models.js';
import { serve, shim, temporaryFolder } from './lib/server.js';
import { within } from './lib/wait.js';

// ThreadSanitizer's runtime is part of the program and takes pthread_create() before a preloaded library can.
const skip = hearth.includes('/tsan/') && 'no library can be preloaded under ThreadSanitizer';
const threads = skip ? null : shim('threads');
const hello = { messages: [{ role: 'user', content: 'Who are you?' }], max_tokens: 3 };

// A server whose nth thread is not to be had: {ready} or how it ended.
async function start(t, nth) {
  const child = spawn(hearth, ['serve', '--port', '0', '--set', `cache.tiers.disk.path=${temporaryFolder()}`,
    '--set', 'models.demo.threads=1'], {
    stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, HOME: temporaryFolder(), LD_PRELOAD: threads, THREADS_FAIL: String(nth) },
  });
  t.after(() => child.kill('SIGKILL'));
  const result = { stdout: '', stderr: '' };
  const ended = new Promise((resolve) => {
    child.on('close', (code, signal) => resolve({ ...result, code, signal }));
  });
  const ready = new Promise((resolve) => {
    for (const name of ['stdout', 'stderr']) {
      child[name].setEncoding('utf8');
      child[name].on('data', (text) => {
        result[name] += text;
        if (/^ready$/m.test(result.stdout)) resolve({ ready: true });
      });
    }
  });
  const outcome = await within(60, `the server without its thread ${nth} starts or ends`, Promise.race([ended, ready]));
  if (outcome.ready) {
    child.kill('SIGTERM');
    assert.equal((await within(30, 'the server ends', ended)).code, 0);
  }
  return outcome;
}

test('a server that lacks any of its threads does not start, and says what to do', { skip }, async (t) => {
  let n = 0;
  for (;;) {
    const outcome = await start(t, n + 1);
    if (outcome.ready) break;
    n += 1;
    assert.deepEqual({ code: outcome.code, signal: outcome.signal }, { code: 1, signal: null }, outcome.stderr);
    const last = outcome.stderr.trim().split('\n').at(-1);
    assert.match(last, /^hearth serve: .*cannot start the thread that .*raise the limit of threads/);
  }
  assert.ok(n >= 10, `${n} threads were missed`); // of the log, the store, the server, the model, the model manager
});

test('a model that is loaded later fails the request, and works with the next', { skip }, async (t) => {
  let failures = 0;
  const count = await serve({ t, set: { 'models.demo.load': 'demand' } });
  await count.client.chat(hello);
  await count.stop();
  for (let nth = 1; nth < 40; nth++) {
    const server = await serve({
      t, set: { 'models.demo.load': 'demand' }, env: { LD_PRELOAD: threads, THREADS_FAIL: String(nth) },
    }).catch(() => null);
    if (server === null) continue; // missed at the start
    const reply = await server.client.post('/v1/chat/completions', hello);
    if (reply.status !== 200) {
      failures += 1;
      assert.equal(reply.status, 500);
      assert.match(reply.json.error.message, /model 'demo' could not be loaded: .*cannot start the thread that/);
      assert.equal((await server.client.get('/health')).status, 200);
      await server.client.chat(hello);
    }
    await server.stop();
    if (reply.status === 200) break;
  }
  assert.ok(failures >= 3, `${failures} loads failed`); // the file's reader, the engine's, those that prepare
});
