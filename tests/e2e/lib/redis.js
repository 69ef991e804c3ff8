// A redis-server of a test's own, on a unix socket in a folder of its own. Its options may begin with a redis.conf. Or a
// cluster of three.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { temporaryFolder } from './server.js';
import { until } from './wait.js';

const started = new Set();
process.on('exit', () => started.forEach((child) => child.kill('SIGKILL')));

export class Redis {
  constructor(options) {
    this.folder = temporaryFolder();
    this.socket = join(this.folder, 'redis');
    this.url = `unix:${this.socket}`;
    this.options = options;
  }

  async start() {
    const [file, more] = this.options[0]?.startsWith('-') === false ? [this.options.slice(0, 1), this.options.slice(1)] : [[], this.options];
    const save = file.length ? [] : ['--save', '']; // the file says
    const options = [...file, '--port', '0', '--unixsocket', this.socket, ...save, '--dir', this.folder, ...more];
    this.child = spawn('redis-server', options, { stdio: ['ignore', 'pipe', 'inherit'] });
    started.add(this.child);
    let log = '';
    this.child.stdout.setEncoding('utf8').on('data', (text) => { log += text; });
    await until('redis-server serves', async () => /ready to accept connections/i.test(log));
  }

  // What redis-cli prints.
  ask(...words) {
    return execFileSync('redis-cli', ['--raw', '-s', this.socket, ...words], { encoding: 'utf8' }).trimEnd();
  }

  keys() {
    return this.ask('KEYS', '*').split('\n').filter((key) => key !== '').sort();
  }

  async kill() {
    const ended = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await ended;
    started.delete(this.child);
  }

  stall(on) {
    assert.ok(this.child.kill(on ? 'SIGSTOP' : 'SIGCONT'));
  }
}

export async function startRedis(t, ...options) {
  const redis = new Redis(options);
  t.after(() => redis.child.kill('SIGKILL'));
  await redis.start();
  return redis;
}

let given = process.pid * 31;

// Below those that the system gives to clients, who would take it before the server has it; each process begins elsewhere.
async function freePort() {
  for (;;) {
    const port = 20000 + given++ % 12000;
    const server = createServer().listen(port, '127.0.0.1');
    const free = await new Promise((resolve) => server.once('listening', () => resolve(true)).once('error', () => resolve(false)));
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return String(port);
  }
}

// Its url is that of one node, which leads to the others.
export async function startRedisCluster(t) {
  const nodes = [];
  for (let i = 0; i < 3; i++) {
    const [port, bus] = [await freePort(), await freePort()];
    const node = await startRedis(t, '--port', port, '--bind', '127.0.0.1', '--cluster-enabled', 'yes', '--cluster-port', bus,
      '--cluster-node-timeout', '2000');
    node.ask('CLUSTER', 'ADDSLOTSRANGE', Math.floor(16384 * i / 3), Math.floor(16384 * (i + 1) / 3) - 1);
    if (i > 0) nodes[0].ask('CLUSTER', 'MEET', '127.0.0.1', port, bus);
    nodes.push(Object.assign(node, { port }));
  }
  const serves = () => nodes.every((node) => /cluster_state:ok[^]*cluster_known_nodes:3/.test(node.ask('CLUSTER', 'INFO')));
  await until('the cluster serves', async () => serves());
  return { nodes, url: `redis://127.0.0.1:${nodes[0].port}`, serves };
}
