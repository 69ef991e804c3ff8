// Clients that vanish, that do not read, and that speak no HTTP: they cost the others nothing.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { malformed, mutate, sound } from './lib/malformed.js';
import { smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { Random, tokens, until, within } from './lib/wait.js';

const bodyLimit = 200000;
let server;
let client;

before(async () => {
  server = await serve({
    set: { 'server.max_body_bytes': bodyLimit },
    models: { n_seq_max: 4, context_window: 2048, admission_timeout: 120 },
  });
  client = server.client;
});

after(() => server.stop());

const json = (value) => JSON.stringify(value);
const head = (path, length, more = '') => `POST ${path} HTTP/1.1\r\nHost: localhost\r\n`
  + `Content-Type: application/json\r\nContent-Length: ${length}\r\n${more}\r\n`;
const whole = (path, value) => head(path, Buffer.byteLength(json(value))) + json(value);

// The server still does its work, and nothing is left over.
async function healthy() {
  await client.idle(60);
  assert.equal((await client.get('/health')).status, 200);
  const reply = await client.chat({ messages: [{ role: 'system', content: 'The secret code is QX7B2.' },
    { role: 'user', content: 'What is the secret code?' }] });
  assert.match(reply.choices[0].message.content, /QX7B2/);
}

test('200 connections, half of which go away at random moments', async () => {
  const names = ['Ottilie', 'Leopold', 'Wilhelmina', 'Konrad', 'Agathe', 'Ludwig', 'Rosalind', 'Edgar'];
  const question = (name) => ({
    messages: [{ role: 'user', content: `My name is ${name}.` }, { role: 'assistant', content: `Hello, ${name}.` },
      { role: 'user', content: 'What is my name?' }],
    temperature: 0,
  });
  const expected = new Map();
  for (const name of names) {
    const text = (await client.chat(question(name))).choices[0].message.content;
    assert.match(text, new RegExp(name));
    expected.set(name, text);
  }

  const random = new Random(20260101);
  const long = (stream) => ({ prompt: tokens(random.between(200, 1500), random.below(1000)), max_tokens: 400, stream,
    ignore_eos: true });

  // Each way to go away ends with the connection destroyed.
  const ways = {
    async beforeTheBodyIsWhole(connection) {
      const request = whole('/v1/completions', long(true));
      connection.write(request.slice(0, random.between(1, request.length - 1)));
      await pause(random.below(30));
    },
    async soonAfterTheRequest(connection) {
      connection.write(whole('/v1/completions', long(random.below(2) === 0)));
      await pause(random.below(50));
    },
    async whileWaitingOrComputing(connection) {
      connection.write(whole('/v1/completions', long(false)));
      await pause(random.below(1500));
    },
    async inMidStream(connection) {
      connection.write(whole('/v1/completions', long(true)));
      const bytes = random.between(1, 20000);
      await until('the stream has begun', () => connection.closed || connection.received.length >= bytes,
        { seconds: 120 });
    },
  };

  const goAway = async () => {
    const way = ways[random.pick(Object.keys(ways))];
    const connection = client.connect();
    await way(connection);
    await connection.destroy();
  };
  const stay = async () => {
    const name = random.pick(names);
    if (random.below(2)) {
      const reply = await client.streamed('/v1/chat/completions', question(name));
      assert.equal(reply.text, expected.get(name));
      assert.equal(reply.finish[0], 'stop');
      assert.ok(reply.done);
    } else {
      assert.equal((await client.chat(question(name))).choices[0].message.content, expected.get(name));
    }
  };
  const clients = Array.from({ length: 200 }, (_, i) => (i % 2 ? stay() : goAway()));
  await within(150, 'all 200 have ended', Promise.all(clients));
  await healthy();
});

// A stream of 8,000 tokens is some megabytes: more than what the kernel likes to take in for a connection on which
// nothing is read. The model is about the quickest that there can be.
test('clients that never read do not slow another, even one on every slot', async (t) => {
  const own = await serve({
    t,
    model: smallModel('llama', { layers: 1, embd: 32, heads: 1, 'kv-heads': 1, ff: 32 }),
    models: { n_seq_max: 2, context_window: 8192 },
  });
  const deaf = [1, 2].map((seed) => {
    const connection = own.client.connect();
    t.after(() => connection.destroy());
    connection.socket.pause();
    connection.write(whole('/v1/completions', { prompt: tokens(8, seed), max_tokens: 8000, stream: true,
      ignore_eos: true }));
    return connection;
  });
  await own.client.busy(2);
  const reply = await within(120, 'the stream of one who reads is complete', own.client.streamed('/v1/completions', {
    prompt: tokens(8, 5), max_tokens: 100, ignore_eos: true,
  }));
  assert.ok(reply.done);
  assert.equal(reply.finish[0], 'length');
  for (const connection of deaf) await connection.destroy();
  await own.client.idle(60);
  await own.stop();
});

test('a client that sends its request byte by byte is served, and holds nobody up', async () => {
  const slow = client.connect();
  const request = whole('/v1/completions', { prompt: 'My name is', max_tokens: 3, temperature: 0 });
  for (const [i, byte] of [...Buffer.from(request)].entries()) {
    slow.write(Buffer.of(byte));
    if (i % 40 === 0) assert.equal((await client.get('/health')).status, 200);
  }
  assert.ok(await slow.settled(30));
  assert.equal(slow.response().status, 200);
  await slow.destroy();
});

describe('bodies', () => {
  const refused = (text, status = 400, path = '/v1/completions') => client.refused(status, path, text);

  test('a body over the limit is 413, told from its head alone', async () => {
    const connection = client.connect();
    connection.write(head('/v1/completions', bodyLimit + 1));
    assert.ok(await connection.settled(30), 'answered before the body is sent');
    assert.equal(connection.response().status, 413);
    const { message } = JSON.parse(connection.response().body).error;
    assert.match(message, new RegExp(`server\\.max_body_bytes allows ${bodyLimit} bytes`));
    await connection.destroy();
  });

  test('a chunked body over the limit is 413', async () => {
    const connection = client.connect();
    connection.write('POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
    const piece = ' '.repeat(10000);
    const chunk = `${piece.length.toString(16)}\r\n${piece}\r\n`;
    for (let i = 0; i * piece.length <= bodyLimit; i++) connection.write(chunk);
    assert.ok(await connection.settled(30));
    assert.equal(connection.response().status, 413);
    await connection.destroy();
  });

  test('a body of just the limit is read, chunked or not', async () => {
    const text = json({ prompt: 'My name is', max_tokens: 2 });
    const padded = text + ' '.repeat(bodyLimit - text.length);
    assert.equal((await client.post('/v1/completions', padded)).status, 200);
    const connection = client.connect();
    connection.write('POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
    connection.write(`${padded.length.toString(16)}\r\n${padded}\r\n0\r\n\r\n`);
    assert.ok(await connection.settled(30));
    assert.equal(connection.response().status, 200);
    await connection.destroy();
  });

  test('what is no JSON is a bad request', async () => {
    const text = json({ prompt: 'My name is', max_tokens: 2 });
    for (const bad of ['', ' ', '{', text.slice(0, -1), text.slice(0, 12), `${text}x`, `${text}${text}`, 'null', '[]',
      '"a"', '5', '{"prompt":"a",}', '{"prompt":\'a\'}', '{"prompt":NaN}', '{"prompt":"a\nb"}',
      '{"prompt":"\\x41"}', '\ufeff{', '{"prompt":"a"\u0000}']) {
      await refused(bad);
    }
  });

  test('half of a character, as JavaScript cuts them, is a character that is not known', async () => {
    for (const text of ['\\ud800', 'a\\udfff b'])
      assert.equal((await server.client.post('/v1/completions', `{"prompt":"${text}","max_tokens":1}`)).status, 200);
  });

  test('bytes that are no UTF-8 are a bad request', async () => {
    for (const bytes of [[0xff], [0xc3], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf5, 0x80, 0x80, 0x80], [0xe2, 0x82]]) {
      await refused(Buffer.concat([Buffer.from('{"prompt":"a'), Buffer.from(bytes), Buffer.from('b"}')]));
    }
  });

  test('deep nesting is refused or read, and never the end', async () => {
    for (const depth of [100, 5000, 90000]) {
      for (const [open, close] of [['[', ']'], ['{"a":', '}']]) {
        const times = Math.floor(depth / open.length);
        const nested = open.repeat(times) + '1' + close.repeat(times);
        for (const text of [nested, `{"prompt":${nested}}`, `{"prompt":"a","max_tokens":1,"metadata":${nested}}`,
          `{"messages":${nested}}`]) {
          const reply = await client.post('/v1/completions', text);
          assert.ok([200, 400, 413].includes(reply.status), reply.text);
        }
      }
    }
    const messages = `[{"role":"user","content":${'['.repeat(3000)}${']'.repeat(3000)}}]`;
    await refused(`{"messages":${messages}}`, 400, '/v1/chat/completions');
  });

  test('numbers past all bounds are refused by name', async () => {
    for (const [field, numbers] of Object.entries({
      max_tokens: ['1e400', '-2', '1.5', '99999999999999999999', '-9223372036854775809'],
      n: ['0', '-1', '1e9', '4294967297'],
      temperature: ['1e400', '-101'],
      top_p: ['1.5', '-0.5'],
      top_k: ['1e30', '99999999999'],
      seed: ['1e300', '1e400', '1.5'],
      frequency_penalty: ['1e300'],
    })) {
      for (const number of numbers) {
        const error = await refused(`{"prompt":"a","max_tokens":1,"${field}":${number}}`.replace(
          field === 'max_tokens' ? '"max_tokens":1,' : '\u0000', ''));
        assert.equal(error.param, field, `${field}: ${number}`);
      }
    }
  });

  const wrong = {
    model: [5, [], {}, true],
    prompt: [5, {}, true, [{}], [5, null], ['a', true], [null], [[['a']]]],
    max_tokens: ['5', [], {}, true],
    temperature: ['0', [], {}, true],
    top_p: ['1', [], {}],
    top_k: ['1', [], {}, 1.5],
    min_p: ['1', [], {}],
    n: ['1', [], {}, 1.5],
    seed: ['1', [], {}, 1.5],
    stream: ['yes', 1, [], {}],
    stream_options: ['yes', 1, [], true],
    stop: [5, {}, [5], [[]], true],
    logit_bias: [5, 'x', [5], { x: 'x' }, { 5: 'x' }, { 5: {} }],
    repeat_penalty: ['1', [], {}],
    frequency_penalty: ['1', [], {}],
    presence_penalty: ['1', [], {}],
    cache_prompt: ['yes', 5, [], {}],
    echo: ['yes', 5, [], {}],
    ignore_eos: ['yes', [], {}],
  };
  for (const [field, values] of Object.entries(wrong)) {
    test(`the wrong type for ${field} is refused by name`, async () => {
      for (const value of values) {
        const error = await refused({ prompt: 'a', max_tokens: 1, [field]: value });
        assert.ok(error.param === field || error.param?.startsWith(`${field}.`) || error.param?.startsWith(`${field}[`),
          `param is ${error.param} for ${field}: ${json(value)}`);
        assert.ok(error.message.includes(field), error.message);
      }
    });
  }

  test('wrong messages are refused by name', async () => {
    const good = { role: 'user', content: 'Hello' };
    for (const messages of [undefined, null, 5, 'Hello', {}, [], [5], ['Hello'], [null], [[]], [{}], [{ content: 'x' }],
      [{ role: 5, content: 'x' }], [{ role: 'user', content: 5 }], [{ role: 'user', content: {} }],
      [{ role: 'user', content: [5] }], [{ role: 'user', content: [{ type: 'text', text: 5 }] }],
      [{ role: 'user', content: [{ type: 'nonsense' }] }], [good, 7]]) {
      const error = await refused({ messages, max_tokens: 1 }, 400, '/v1/chat/completions');
      assert.match(error.param ?? '', /^messages/, json(messages));
    }
  });

  test('null is the same as not given', async () => {
    const nothing = Object.fromEntries(Object.keys(wrong).filter((field) => !['prompt', 'max_tokens'].includes(field))
      .map((field) => [field, null]));
    const reply = await client.post('/v1/completions', { prompt: 'My name is', max_tokens: 1, ...nothing });
    assert.equal(reply.status, 200, reply.text);
  });

  test('a prompt has to be given', async () => {
    assert.equal((await refused({ max_tokens: 1 })).param, 'prompt');
  });
});

describe('routes', () => {
  test('an unknown route is 404', async () => {
    for (const path of ['/nothing', '/v1', '/v1/chat', '/v1/completionsx', '/../etc/passwd', '//', '/v1/models/none']) {
      const reply = await client.get(path);
      assert.equal(reply.status, 404, path);
      assert.ok(reply.json.error.message);
    }
  });

  test('a known route with another method is 405', async () => {
    for (const [method, path] of [['GET', '/v1/chat/completions'], ['DELETE', '/v1/completions'], ['POST', '/health'],
      ['PUT', '/v1/models']]) {
      const reply = await client.fetch(method, path);
      assert.equal(reply.status, 405, `${method} ${path}`);
      assert.ok(reply.headers.allow, 'Allow names the methods');
    }
  });
});

describe('malformed requests', () => {
  // Every connection ends with an answer or is closed; 5xx would mean that the server took the blame.
  const check = (connection, what) => {
    const response = connection.response();
    assert.ok(response || connection.closed, `neither answer nor end: ${what}`);
    if (connection.received.length === 0) return;
    const start = connection.received.subarray(0, 9).toString('latin1');
    assert.ok('HTTP/1.1 '.startsWith(start) || start === 'HTTP/1.0 ', `no HTTP: ${start} for ${what}`);
    const blamed = response?.status >= 500 && response.status !== 505;
    assert.ok(!blamed, `${response?.status}: ${what}`);
  };

  test('written by hand: each is answered or closed', async () => {
    assert.ok(malformed.length >= 60, `${malformed.length} requests`);
    for (const [name, bytes, status] of malformed) {
      const connection = client.connect();
      connection.write(bytes);
      connection.finish();
      assert.ok(await connection.settled(30), `neither answer nor end: ${name}`);
      check(connection, name);
      if (status) {
        assert.ok([status].flat().includes(connection.response()?.status),
          `${name}: ${connection.received.toString('latin1', 0, 200) || 'closed'}`);
      }
      await connection.destroy();
    }
    await healthy();
  });

  test('10,000 mutations of sound requests', async () => {
    const random = new Random(4711);
    const inputs = Array.from({ length: 10000 }, () => mutate(random.pick(sound), random));
    const counts = { answered: 0, closed: 0 };
    const worker = async () => {
      let connection = null;
      for (let input = inputs.pop(); input; input = inputs.pop()) {
        if (!connection || connection.closed) {
          await connection?.destroy();
          connection = client.connect();
        }
        const shown = json(input.toString('latin1').slice(0, 2000));
        connection.write(input);
        // An incomplete request gets no answer as long as more of it may come: after a moment, say that none will.
        if (!await connection.settled(0.05)) connection.finish();
        assert.ok(await connection.settled(60), `neither answer nor end: ${shown}`);
        check(connection, shown);
        const response = connection.response();
        counts[response ? 'answered' : 'closed']++;
        // Go on with the same connection if it gave exactly one answer and stayed open.
        const more = response && connection.received.length > response.length;
        if (connection.closed || more || !response || connection.socket.writableEnded) {
          await connection.destroy();
          connection = null;
        } else {
          connection.received = Buffer.alloc(0);
        }
      }
      await connection?.destroy();
    };
    await within(200, 'all are answered', Promise.all(Array.from({ length: 50 }, worker)));
    assert.equal(counts.answered + counts.closed, 10000);
    assert.ok(counts.answered > 5000, json(counts));
    await healthy();
  });
});
