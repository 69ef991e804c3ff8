// Rolling restarts: one server takes another's place on the same addresses and the same folder, while clients go on. No
// connection is refused or reset, and no token is computed twice.
// Measures time: a client that goes on must do so within the second for which its connection is kept.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import http from 'node:http';
import net from 'node:net';
import { openSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { largeModel, smallModel } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { Client } from './lib/client.js';
import { Talk, intact } from './lib/store.js';
import { until, within } from './lib/wait.js';

const model = smallModel('llama');
const models = { context_window: 4096, n_seq_max: 2 };

// A socket that listens, which this process has too until it is closed.
async function listening() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => { server.on('listening', resolve); });
  return server;
}

async function freePort() {
  const server = await listening();
  const { port } = server.address();
  await new Promise((resolve) => { server.close(resolve); });
  return port;
}

const endedWell = async (server) => assert.deepEqual(await within(60, 'the server ends', server.ended), { code: 0, signal: null }, server.log);

// Conversations that never stop, each on connections of one kind, and somebody who asks after the server's health.
class Clients {
  constructor(port, kinds) {
    this.port = port;
    this.client = new Client(port);
    this.stopped = false;
    this.turns = 0;
    this.said = []; // of each conversation that has ended, the replies
    this.loops = [...kinds.map((agent, i) => this.talk(agent, i)), this.watch()];
    this.loops.forEach((loop) => loop.catch(() => { this.failed = true; }));
  }

  async talk(agent, number) {
    const server = { client: { complete: (body) => this.client.complete(body, { agent }) } };
    for (let seed = number + 1; !this.stopped; seed += 10) {
      const talk = new Talk();
      const replies = [];
      while (!this.stopped && replies.length < 8) {
        const before = talk.tokens.length;
        const { text, cached } = await talk.say(server, replies.length === 0 ? 150 : 20, { seed, reply: 8 * (number + 1) });
        assert.equal(cached, Math.max(0, before - 1), `cached in turn ${replies.length + 1} of conversation ${seed}`);
        replies.push(text);
        this.turns++;
      }
      this.said.push({ seed, number, replies });
    }
    agent && agent.destroy();
  }

  async watch() {
    while (!this.stopped) assert.equal((await this.client.get('/health')).status, 200);
  }

  // Waits until so many more turns were answered.
  async more(turns) {
    const goal = this.turns + turns;
    await until(`${turns} more turns`, () => this.failed || this.turns >= goal, { seconds: 120 });
    if (this.failed) await Promise.all(this.loops);
  }

  async stop() {
    this.stopped = true;
    await within(60, 'the last turns end', Promise.all(this.loops));
  }

  // A server that is never started anew says the same.
  async compare(t) {
    const server = await serve({ t, model, models });
    for (const { seed, number, replies } of this.said) {
      const talk = new Talk();
      for (const [turn, reply] of replies.entries()) {
        const { text } = await talk.say(server, turn === 0 ? 150 : 20, { seed, reply: 8 * (number + 1) });
        assert.equal(text, reply, `turn ${turn + 1} of conversation ${seed}`);
      }
    }
    await server.stop();
  }
}

describe('server.handover', () => {
  // What servers that follow each other have in common.
  async function place() {
    const folder = temporaryFolder();
    const port = await freePort();
    return {
      port, disk: join(folder, 'kv'), unix: join(folder, 'http'), path: join(folder, 'handover'),
      start(t, more) {
        return serve({
          t, model, models, loaded: false, ...more, set: {
            'server.drain_timeout': 60,
            'server.listen': `[127.0.0.1:${port}, "unix:${this.unix}"]`, 'server.handover': this.path, 'cache.tiers.disk.path': this.disk,
          },
        });
      },
    };
  }

  test('clients that never stop notice nothing of five restarts', async (t) => {
    const where = await place();
    let server = await where.start(t);
    await server.says(/^ready$/m);
    const agents = [
      new http.Agent({ keepAlive: true, maxSockets: 1 }), new http.Agent({ keepAlive: true, maxSockets: 1 }), false,
      false, new http.Agent({ socketPath: where.unix }),
    ];
    const clients = new Clients(where.port, agents);
    for (let restart = 0; restart < 5; restart++) {
      await clients.more(20);
      const next = await where.start(t);
      // The former one ends when the next is ready, or is told to before.
      if (restart % 2 === 1) server.signal();
      await endedWell(server);
      await next.says(/^ready$/m);
      server = next;
    }
    await clients.more(20);
    await clients.stop();
    await server.stop();
    assert.throws(() => statSync(where.unix), /ENOENT/);
    assert.throws(() => statSync(where.path), /ENOENT/);
    await intact(where.disk);
    await clients.compare(t);
  });

  test('what runs may finish, and the next one answers nobody before', async (t) => {
    const where = await place();
    const server = await where.start(t);
    await server.ready();
    const body = { prompt: [50, 60], max_tokens: 1000, ignore_eos: true };
    const stream = await server.client.stream('/v1/completions', body);
    const order = [];
    const whole = stream.collect().then((reply) => { order.push('stream'); return reply; });
    const next = await where.start(t);
    await next.says(/waiting for the end of the former process/);
    await server.says(/the next process is ready/);
    const asked = server.client.complete({ prompt: 'a', max_tokens: 1 }).then(() => order.push('next'));
    const reply = await whole;
    assert.equal(reply.finish[0], 'length');
    await asked;
    assert.deepEqual(order, ['stream', 'next']);
    await endedWell(server);
    await next.stop();
  });

  test('a next one that ends while it loads costs nothing', async (t) => {
    const where = await place();
    const server = await where.start(t);
    await server.ready();
    const large = { model: largeModel(), models: { context_window: 2048 } };
    const next = await where.start(t, large);
    await server.says(/passed the sockets on/);
    const third = await run(['serve', '--model', model, '--set', `server.handover=${where.path}`, '--set', `server.listen=127.0.0.1:${where.port}`]);
    assert.notEqual(third.code, 0);
    assert.match(third.stderr, /server\.handover: .* has passed its sockets to another process/);
    next.signal('SIGKILL');
    await server.says(/the next process has ended before it took over/);
    await server.client.complete({ prompt: 'a', max_tokens: 1 });
    const stopped = await where.start(t, large);
    await until('the sockets are passed on again', () => server.log.match(/passed the sockets on/g).length === 2);
    await stopped.stop();
    await server.client.complete({ prompt: 'a', max_tokens: 1 }, { agent: new http.Agent({ socketPath: where.unix }) });
    const another = await where.start(t);
    await endedWell(server);
    await another.ready();
    await another.stop();
  });

  test('a former one that is killed has its place taken', async (t) => {
    const where = await place();
    const server = await where.start(t);
    await server.ready();
    const next = await where.start(t);
    server.signal('SIGKILL');
    await next.ready();
    await next.says(/^ready$/m);
    await next.stop();
  });

  test('without it a second server does not share the address', async (t) => {
    const server = await serve({ t, model, models });
    for (const more of [[], ['--set', `server.handover=${join(temporaryFolder(), 'handover')}`]]) {
      const { code, stderr } = await run(['serve', '--model', model, '--set', `server.listen=127.0.0.1:${server.port}`, ...more]);
      assert.notEqual(code, 0);
      assert.match(stderr, new RegExp(`cannot listen on 127\\.0\\.0\\.1:${server.port}: address already in use`));
    }
    await server.stop();
  });
});

describe('sockets that a parent passes', () => {
  const listenOn = (port) => ({ 'server.listen': `127.0.0.1:${port}` });

  test('clients wait from the end of one server to the start of the next', async (t) => {
    const socket = await listening();
    const { port } = socket.address();
    const disk = temporaryFolder();
    const passed = socket._handle.fd;
    let begin;
    const when = new Promise((resolve) => { begin = resolve; });
    const set = { ...listenOn(port), 'cache.tiers.disk.path': disk };
    const starting = serve({ t, model, models, set, passed });
    const following = serve({ t, model, models, set, passed, when, loaded: false });
    socket.close(); // only the two have it
    const server = await starting;
    const clients = new Clients(port, [new http.Agent({ keepAlive: true, maxSockets: 1 }), false]);
    await clients.more(10);
    server.signal();
    await endedWell(server);
    const waiting = server.client.complete({ prompt: 'a', max_tokens: 1 });
    begin();
    const next = await following;
    await waiting;
    await clients.more(10);
    await clients.stop();
    await next.stop();
    await clients.compare(t);
  });

  test('those that are another process\'s are left alone', async (t) => {
    const server = await serve({ t, model, models, env: { LISTEN_PID: '1', LISTEN_FDS: '1' } });
    await server.stop();
  });

  test('what does not fit is refused', async (t) => {
    const socket = await listening();
    const { port } = socket.address();
    const other = await freePort();
    const file = openSync('/dev/null');
    for (const [passed, message] of [
      [socket._handle.fd, new RegExp(`server\\.listen does not name 127\\.0\\.0\\.1:${port}, which a socket that was passed`)],
      [file, /LISTEN_FDS: descriptor 3 is no socket that listens/],
    ]) {
      await assert.rejects(serve({ t, model, models, set: listenOn(other), passed }), message);
    }
    socket.close();
  });
});
