// The life of the server and of its connections: loading, serving, resting, ending.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import http from 'node:http';
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { largeModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { tokens, until, within } from './lib/wait.js';

const endless = { prompt: tokens(8, 1), max_tokens: 8000, ignore_eos: true };

// A stream that has begun to generate; `whole` is what comes of it in the end.
async function streaming(server, body = endless) {
  const stream = await server.client.stream('/v1/completions', body);
  let begun;
  const first = new Promise((resolve) => { begun = resolve; });
  stream.whole = stream.collect((chunk) => { if (chunk.choices?.length) begun(); });
  stream.whole.catch(() => {});
  await within(60, 'the stream begins', first);
  return stream;
}

describe('loading', () => {
  test('/health tells the progress with 503, then 200; requests meanwhile are told to wait', async (t) => {
    const server = await serve({ t, model: largeModel(), models: { context_window: 2048 }, loaded: false });
    const seen = [];
    let refused = null;
    const listed = new Set();
    await server.whileAlive('/health answers 200', async () => {
      const reply = await server.client.get('/health');
      seen.push(reply);
      const { data } = (await server.client.get('/v1/models')).json;
      for (const { id, status } of data) listed.add(`${id} ${status.value}`);
      if (reply.status === 503 && !refused) refused = await server.client.post('/v1/completions', { prompt: 'a' });
      return reply.status === 200;
    }, 60);
    const loading = seen.filter((reply) => reply.status !== 200);
    for (const reply of loading) {
      assert.equal(reply.status, 503);
      assert.match(reply.text, /progress/);
      assert.match(reply.text, /\d/);
    }
    if (refused) assert.ok([200, 503].includes(refused.status), refused.text);
    assert.ok(loading.length > 0, 'loading was seen');
    assert.ok([...listed].some((one) => one.endsWith(' loading')), `a model is listed while it loads: ${[...listed]}`);
    assert.equal(new Set([...listed].map((one) => one.split(' ')[0])).size, 1, [...listed].join());
    await server.stop();
  });

  test('SIGTERM while loading ends the server', async (t) => {
    const server = await serve({ t, model: largeModel(), models: { context_window: 2048 }, loaded: false });
    await server.stop();
  });
});

describe('serving', () => {
  let server;
  let client;
  before(async () => {
    server = await serve({ models: { n_seq_max: 2, context_window: 1024, threads: 2 } });
    client = server.client;
  });
  after(() => server.stop());

  test('liveness and readiness', async () => {
    for (const path of ['/health', '/v1/liveness', '/v1/readiness']) {
      assert.equal((await client.get(path)).status, 200, path);
    }
  });

  test('a server at rest uses no CPU', async () => {
    await client.complete({ prompt: 'My name is', max_tokens: 50 });
    await client.idle();
    // utime and stime are fields 14 and 15, in ticks of 10 ms; the second field may hold spaces.
    const ticks = () => {
      const fields = readFileSync(`/proc/${server.pid}/stat`, 'utf8').replace(/^.*\) /s, '').split(' ');
      return Number(fields[11]) + Number(fields[12]);
    };
    // What follows a reply (worker threads that look for more work) may take a moment to end.
    let used;
    await until('two seconds pass with less than 20 ms of CPU time', async () => {
      const start = ticks();
      await pause(2000); // the span that is measured
      used = ticks() - start;
      return used < 2;
    }, { seconds: 5, every: 0 }).catch(() => assert.fail(`${used * 10} ms of CPU time in two seconds at rest`));
  });

  test('twenty requests go over one connection', async () => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    let sockets = 0;
    const create = agent.createConnection.bind(agent);
    agent.createConnection = (...args) => {
      sockets++;
      return create(...args);
    };
    for (let i = 0; i < 20; i++) {
      const asked = [
        () => client.get('/health', { agent }),
        () => client.post('/v1/completions', { prompt: 'a', max_tokens: 2 }, { agent }),
        () => client.post('/v1/completions', { prompt: 'a', max_tokens: 2, stream: true }, { agent }),
        () => client.post('/v1/completions', { prompt: 5 }, { agent }),
        () => client.get('/nothing', { agent }),
      ][i % 5];
      const reply = await asked();
      assert.equal(reply.status, [200, 200, 200, 400, 404][i % 5]);
    }
    assert.equal(sockets, 1);
    agent.destroy();
  });

  test('requests sent at once on one connection are answered in order', async () => {
    const connection = client.connect();
    const body = JSON.stringify({ prompt: 'My name is', max_tokens: 20 });
    connection.write(`POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`
      + 'GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
    await within(60, 'the connection ends', until('closed', () => connection.closed, { seconds: 50 }));
    const answers = connection.received.toString('latin1').matchAll(/HTTP\/1\.1 (\d{3})/g);
    const statuses = [...answers].map((match) => match[1]);
    assert.deepEqual(statuses, ['200', '404', '200']);
    await connection.destroy();
  });

  test('HTTP/1.0 and Connection: close end the connection after the answer', async () => {
    for (const rest of ['HTTP/1.0\r\n\r\n', 'HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n']) {
      const connection = client.connect();
      connection.write(`GET /health ${rest}`);
      await until('the connection is closed', () => connection.closed);
      assert.equal(connection.response().status, 200);
      await connection.destroy();
    }
  });

  test('HEAD gives the head alone', async () => {
    const reply = await client.fetch('HEAD', '/health');
    assert.ok([200, 405].includes(reply.status));
    assert.equal(reply.text, '');
  });

  test('a page of this machine may ask, and read every answer', async () => {
    const origin = 'http://localhost:3000';
    const preflight = await client.fetch('OPTIONS', '/v1/chat/completions', { headers: {
      Origin: origin, 'Access-Control-Request-Method': 'POST',
      'Access-Control-Request-Headers': 'authorization, content-type, x-session-id',
    } });
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers['access-control-allow-origin'], origin);
    assert.match(preflight.headers['access-control-allow-methods'], /POST/);
    assert.match(preflight.headers['access-control-allow-headers'], /authorization/i);
    assert.match(preflight.headers['access-control-allow-headers'], /content-type|\*/i);
    for (const reply of [await client.get('/v1/models', { headers: { Origin: origin } }),
      await client.post('/v1/completions', { prompt: 5 }, { headers: { Origin: origin } })]) {
      assert.equal(reply.headers['access-control-allow-origin'], origin, `with status ${reply.status}`);
      assert.equal(reply.headers.vary, 'Origin');
    }
    const body = { prompt: 'a', max_tokens: 1 };
    const stream = await client.stream('/v1/completions', body, { headers: { Origin: origin } });
    assert.equal(stream.headers['access-control-allow-origin'], origin);
    await stream.collect();
  });

  test('every answer has an X-Request-Id of its own, which /slots shows while it runs', async () => {
    const ids = new Set();
    for (const path of ['/health', '/v1/models', '/nothing']) {
      const id = (await client.get(path)).headers['x-request-id'];
      assert.match(id, /^[\w-]{4,}$/, path);
      ids.add(id);
    }
    assert.equal(ids.size, 3);
    const stream = await client.stream('/v1/completions', { prompt: 'a', max_tokens: 1000, ignore_eos: true, n: 2 });
    const id = stream.headers['x-request-id'];
    await until('a slot shows the id', async () => (await client.slots()).some((slot) => slot.request_id.includes(id)))
      .finally(() => stream.abort());
    await client.idle();
  });

  test('/slots has a row with all fields for each slot', async () => {
    await client.complete({ prompt: tokens(50, 3), max_tokens: 5 });
    await client.idle();
    const slots = await client.slots();
    assert.equal(slots.length, 2);
    for (const [i, slot] of slots.entries()) {
      for (const field of ['id', 'seq_id', 'model', 'state', 'request_id', 'cached_messages', 'cached_tokens', 'n_past',
        'hash', 'last_used']) {
        assert.ok(field in slot, field);
      }
      assert.equal(slot.id, i);
      assert.equal(slot.seq_id >= 0, slot.cached_tokens > 0);
      assert.equal(slot.model, 'demo');
      assert.equal(slot.state, 'idle');
    }
    const used = slots.reduce((a, b) => (a.last_used > b.last_used ? a : b));
    assert.ok(used.cached_tokens >= 50, `${used.cached_tokens} tokens lie ready`);
    assert.ok(Math.abs(used.last_used - Date.now()) < 600000);
  });

  test('/metrics is Prometheus text with counters that count', async () => {
    const reply = await client.get('/metrics');
    assert.match(reply.headers['content-type'], /^text\/plain; *version=0\.0\.4/);
    for (const line of reply.text.trim().split('\n')) {
      if (line.startsWith('#')) assert.match(line, /^# (HELP|TYPE) [a-zA-Z_:][\w:]* .+$/);
      else assert.match(line, /^[a-zA-Z_:][\w:]*(\{([a-z_]+="[^"]*",?)*\})? [-+\d.eInfNa]+$/);
    }
    const typed = new Map([...reply.text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map((match) => [match[1], match[2]]));
    for (const [name, type] of typed) {
      assert.match(name, /^hearth_/);
      if (type === 'counter') assert.match(name, /_total$/);
    }
    const buckets = [...typed].filter(([, type]) => type === 'histogram').map(([name]) => name);
    for (const about of [/queue|wait/, /tick/, /batch/]) {
      assert.ok(buckets.some((name) => about.test(name)), `a histogram about ${about}`);
    }

    const names = ['hearth_generated_tokens_total', 'hearth_prompt_tokens_total', 'hearth_cached_tokens_total',
      'hearth_requests_done_total'];
    const all = async () => Promise.all(names.map((name) => client.metric(name)));
    const before = await all();
    const list = tokens(60, 99);
    await client.complete({ prompt: list, max_tokens: 3, ignore_eos: true });
    const warm = await client.complete({ prompt: list, max_tokens: 3, ignore_eos: true });
    const difference = (await all()).map((value, i) => value - before[i]);
    assert.deepEqual(difference, [6, 120 - warm.timings.cache_n, warm.timings.cache_n, 2]);
  });
});

describe('a long prefill', () => {
  test('comments keep its stream alive, and going away stops it', async (t) => {
    const server = await serve({ t, model: largeModel(), models: { n_seq_max: 1, context_window: 16000 } });
    // As long a prompt as this machine needs some eight seconds for.
    const probe = await server.client.complete({ prompt: tokens(512, 1), max_tokens: 1 });
    const count = Math.min(15000, Math.ceil(8000 * 512 / probe.timings.prompt_ms));
    const stream = await server.client.stream('/v1/completions', { prompt: tokens(count, 2), max_tokens: 2 });
    const reply = await within(120, 'the stream ends', stream.collect());
    assert.ok(reply.done);
    assert.ok(reply.timings.prompt_ms > 6000, `a prefill of ${reply.timings.prompt_ms} ms is too short for this check`);
    assert.ok(stream.comments > 0, `no comment in ${reply.timings.prompt_ms} ms`);

    for (const stream of [true, false]) {
      const gone = server.client.connect();
      const body = JSON.stringify({ prompt: tokens(count, 3), max_tokens: 2, stream });
      gone.write(`POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      await server.client.busy();
      await gone.destroy();
      const begin = performance.now();
      await server.client.idle();
      const took = performance.now() - begin;
      assert.ok(took < reply.timings.prompt_ms / 2, `the slot was free after ${took.toFixed(0)} ms`);
    }
    await server.stop();
  });
});

describe('ending', () => {
  const start = (t, drain_timeout) => serve({
    t, model: largeModel(), set: { 'server.drain_timeout': drain_timeout },
    models: { n_seq_max: 1, queue_depth: 3, context_window: 8192, admission_timeout: 60 },
  });
  const ended = async (server, seconds) => {
    const how = await within(seconds, 'the server ends', server.ended);
    assert.deepEqual(how, { code: 0, signal: null }, server.log);
  };

  test('what runs may finish, what waits is told at once, new ones are not accepted', async (t) => {
    const server = await start(t, 60);
    const stream = await streaming(server, { ...endless, max_tokens: 60 });
    const order = [];
    stream.whole.then(() => order.push('stream'));
    const short = (seed) => ({ prompt: tokens(8, seed), max_tokens: 1 });
    const waiting = [2, 3, 4, 5].map((seed) => server.client.post('/v1/completions', short(seed)));
    waiting.forEach((one) => one.then(() => order.push('waiting'), () => order.push('waiting')));
    await until('all four wait', async () => await server.client.waiting() === 4);
    server.signal();
    for (const reply of await within(30, 'the waiting are answered', Promise.all(waiting))) {
      assert.equal(reply.status, 503, reply.text);
      assert.ok(reply.json.error.message);
    }
    const reply = await within(60, 'the stream ends', stream.whole);
    assert.equal(reply.usage ?? null, null);
    assert.equal(reply.finish[0], 'length');
    assert.ok(reply.done);
    assert.deepEqual(order, ['waiting', 'waiting', 'waiting', 'waiting', 'stream']);
    await ended(server, 30);
    await assert.rejects(server.client.get('/health'), /ECONNREFUSED|ECONNRESET/);
  });

  test('what runs for longer than drain_timeout is ended in good form', async (t) => {
    const server = await start(t, 1);
    const stream = await streaming(server);
    const begin = performance.now();
    server.signal();
    const reply = await within(20, 'the stream ends', stream.whole);
    const took = (performance.now() - begin) / 1000;
    assert.ok(took > 0.8 && took < 10, `after ${took.toFixed(1)} s`);
    assert.ok(reply.error?.message || reply.finish[0], 'the client is told that the reply is not whole');
    await ended(server, 20);
  });

  test('a second SIGTERM ends at once', async (t) => {
    const server = await start(t, 60);
    await streaming(server);
    server.signal();
    await until('the first is taken in', async () => {
      const reply = await server.client.get('/health').catch(() => null);
      return reply === null || reply.status === 503;
    });
    const begin = performance.now();
    server.signal();
    await within(20, 'the server ends', server.ended);
    const took = performance.now() - begin;
    assert.ok(took < 5000, `after ${took.toFixed(0)} ms`);
  });

  test('SIGINT with nothing to do ends at once', async (t) => {
    const server = await serve({ t });
    const open = server.client.connect(); // an idle connection does not hold the end up
    await until('connected', () => !open.socket.connecting);
    const begin = performance.now();
    server.signal('SIGINT');
    await ended(server, 30);
    assert.ok(performance.now() - begin < 5000);
    await open.destroy();
  });
});
