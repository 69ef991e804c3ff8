// Servers that benchmarks start one after another, and what they answer over HTTP.

import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import http from 'node:http';
import { createServer } from 'node:net';

export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
export const median = (values) => {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length === 0 ? NaN : (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
};

// ---- Processes ----

// A process and its children, as the kernel counts them.
function family(pid) {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((task) => {
    try {
      return readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
    } catch {
      return [];
    }
  });
  return [pid, ...children.flatMap((child) => { try { return family(child); } catch { return []; } })];
}

const sumOf = (pid, value) => family(pid).reduce((sum, one) => { try { return sum + value(one); } catch { return sum; } }, 0);
export const cpuSeconds = (pid) => sumOf(pid, (one) => {
  const fields = readFileSync(`/proc/${one}/stat`, 'utf8').replace(/^.*\) /, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
});
export const memoryMiB = (pid) => sumOf(pid, (one) => Number(/^Pss: +(\d+)/m.exec(readFileSync(`/proc/${one}/smaps_rollup`, 'utf8'))[1])) / 1024;

export const freePort = () => new Promise((resolve) => {
  const socket = createServer().listen(0, '127.0.0.1', () => { const { port } = socket.address(); socket.close(() => resolve(port)); });
});

// ---- HTTP ----

export function post(port, path, body, { signal, onData = () => {} } = {}) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host: '127.0.0.1', port, path, method: 'POST', headers: { 'Content-Type': 'application/json' }, agent: false, signal });
    request.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (data) => { text += data; onData(data); });
      response.on('end', () => resolve({ status: response.statusCode, text }));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(JSON.stringify(body));
  });
}

const answers = (port, path) => new Promise((resolve) => {
  http.get({ host: '127.0.0.1', port, path, agent: false }, (response) => { response.resume(); resolve(response.statusCode === 200); }).on('error', () => resolve(false));
});

// ---- Servers ----

export async function started(command, args, { port, env = {}, path = '/health', name, model: called = 'model', computed }) {
  const begin = performance.now();
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  const server = { name, port, pid: child.pid, model: called, log: '' };
  const ended = new Promise((resolve) => { child.on('close', resolve); });
  let running = true;
  ended.then(() => { running = false; });
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { server.log += text; });
  while (!await answers(port, path)) {
    if (!running) throw new Error(`${name} has ended: ${server.log.slice(-2000)}`);
    await sleep(5);
  }
  server.ready = performance.now() - begin;
  // Prompt tokens computed since the start, of what is in its log; where answers say it, they do.
  server.computed = computed && (() => computed(server.log));
  server.kill = async () => {
    for (const pid of family(child.pid).reverse()) { try { process.kill(pid, 'SIGKILL'); } catch { /* it has ended */ } }
    await ended;
  };
  return server;
}
