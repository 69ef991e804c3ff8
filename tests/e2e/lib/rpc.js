// Starts llama.cpp's RPC server, a device of another machine, and counts what is asked of it: scripts/llama.sh --server
// builds it beside llama-server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { freePort } from './peer.js';
import { until } from './wait.js';

// Messages of the protocol: the number of a command (1 byte), the length of what follows (8 bytes), and that.
const commands = { 6: 'set', 7: 'set', 8: 'get', 9: 'copy', 10: 'compute', 16: 'compute' };

class Counter {
  constructor() {
    this.rest = Buffer.alloc(0);
    this.skip = 0;
    this.counts = {};
  }

  take(bytes) {
    let at = Math.min(this.skip, bytes.length);
    this.skip -= at;
    this.rest = Buffer.concat([this.rest, bytes.subarray(at)]);
    for (at = 0; this.rest.length - at >= 9;) {
      const name = commands[this.rest[at]] ?? 'other';
      const length = Number(this.rest.readBigUInt64LE(at + 1));
      this.counts[name] = (this.counts[name] ?? 0) + 1;
      this.counts.bytes = (this.counts.bytes ?? 0) + length;
      const end = at + 9 + length;
      this.skip = Math.max(0, end - this.rest.length);
      at = Math.min(end, this.rest.length);
      if (this.skip > 0) break;
    }
    this.rest = this.rest.subarray(at);
  }
}

// On a free port, unless one is named. {endpoint, direct, counts(), running(), end()}: `counts` are messages so far, by kind, and their bytes, of whom came by `endpoint`, which
// stands between hearth and the server.
export async function rpcServer(t, port) {
  assert.ok(process.env.LLAMA_SERVER, 'LLAMA_SERVER names llama-server: scripts/llama.sh --server builds it');
  port ??= await freePort();
  const child = spawn(join(dirname(process.env.LLAMA_SERVER), 'ggml-rpc-server'),
    ['-H', '127.0.0.1', '-p', String(port), '-t', '1', '-d', 'CPU'], { stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => { log += text; });
  t.after(() => child.kill('SIGKILL'));
  const counters = [];
  const sockets = new Set();
  const proxy = createServer((client) => {
    const server = connect(port, '127.0.0.1');
    const counter = new Counter();
    counters.push(counter);
    client.setNoDelay(true);
    server.setNoDelay(true);
    client.on('data', (bytes) => { counter.take(bytes); server.write(bytes); });
    server.on('data', (bytes) => client.write(bytes));
    for (const [one, other] of [[client, server], [server, client]]) {
      sockets.add(one);
      one.on('error', () => {});
      one.on('close', () => { sockets.delete(one); other.destroy(); });
    }
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  t.after(() => { sockets.forEach((socket) => socket.destroy()); proxy.close(); });
  await until('the RPC server listens', () => {
    assert.equal(child.exitCode, null, log);
    return new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true); });
      socket.on('error', () => resolve(false));
    });
  });
  return {
    endpoint: `127.0.0.1:${proxy.address().port}`,
    direct: `127.0.0.1:${port}`, // nothing is counted there
    running: () => child.exitCode === null && child.signalCode === null,
    counts: () => {
      const sums = { set: 0, get: 0, copy: 0, compute: 0 };
      for (const { counts } of counters) for (const name of Object.keys(counts)) sums[name] = (sums[name] ?? 0) + counts[name];
      return sums;
    },
    end: async () => { child.kill('SIGKILL'); await once(child, 'exit'); },
  };
}
