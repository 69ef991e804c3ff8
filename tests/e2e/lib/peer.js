// Starts llama-server, built from the same llama.cpp, beside hearth: what it answers is what hearth is compared with.
// LLAMA_SERVER names the program; scripts/llama.sh --server builds it and prints the path.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { Client } from './client.js';
import { until } from './wait.js';

export const freePort = () => new Promise((resolve, reject) => {
  const socket = createServer();
  socket.on('error', reject);
  socket.listen(0, '127.0.0.1', () => {
    const { port } = socket.address();
    socket.close(() => resolve(port));
  });
});

// `t` is the test's context, or anything else with after(): the server ends with it, or with the client's
// end(). `env` is added to the environment.
export async function peer(t, model, args = [], env = {}) {
  assert.ok(process.env.LLAMA_SERVER, 'LLAMA_SERVER names llama-server: scripts/llama.sh --server builds it');
  const port = await freePort();
  const child = spawn(process.env.LLAMA_SERVER, [
    '-m', model, '--host', '127.0.0.1', '--port', String(port), '-t', '1', '-ngl', '0', '--jinja', ...args,
  ], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let log = '';
  let ended = false;
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => { log += text; });
  child.on('close', () => { ended = true; });
  t.after(() => child.kill('SIGKILL'));
  const client = new Client(port);
  client.end = () => new Promise((resolve) => { if (ended) resolve(); child.on('close', resolve); child.kill('SIGKILL'); });
  await until('llama-server is ready', async () => {
    assert.ok(!ended, log);
    return (await client.get('/health').catch(() => ({}))).status === 200;
  }, { seconds: 60 });
  return client;
}
