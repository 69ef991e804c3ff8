// Clients that read slowly, or leave in the middle, on the routes that have streams and events of their own: Messages,
// Responses, tool calls; and on embeddings. The server goes on, others get what is theirs, and nothing stays behind.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { largeModel, smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { until, within } from './lib/wait.js';

const hello = [{ role: 'user', content: 'Hello' }];
const long = { type: 'object', properties: { text: { type: 'string', minLength: 1800 } }, required: ['text'], additionalProperties: false };
const tool = { type: 'function', function: { name: 'write', parameters: long } };
const forever = { temperature: 0, ignore_eos: true };

// Streams that would go on for thousands of tokens: what is asked for, and which of their events say that text comes.
const streams = {
  'a stream of Messages': ['/v1/messages', { messages: hello, max_tokens: 6000, ...forever }, (e) => e.type === 'content_block_delta'],
  'a stream of Responses': ['/v1/responses', { input: hello, max_output_tokens: 6000, ...forever }, (e) => e.type === 'response.output_text.delta'],
  'a chat': ['/v1/chat/completions', { messages: hello, max_tokens: 6000, ...forever }, (e) => e.choices?.[0]?.delta.content],
  'a stream of a tool call': ['/v1/chat/completions', { messages: hello, max_tokens: 6000, tools: [tool], tool_choice: 'required', temperature: 0 },
    (e) => e.choices?.[0]?.delta.tool_calls?.[0].function?.arguments],
  'a tool call of Messages': ['/v1/messages', {
    messages: hello, max_tokens: 6000, tools: [{ name: 'write', input_schema: long }], tool_choice: { type: 'any' }, temperature: 0,
  }, (e) => e.delta?.type === 'input_json_delta' && e.delta.partial_json],
  'a function call of Responses': ['/v1/responses', {
    input: hello, max_output_tokens: 6000, temperature: 0, tool_choice: 'required',
    tools: [{ type: 'function', name: 'write', parameters: long, strict: true }],
  }, (e) => e.type === 'response.function_call_arguments.delta'],
};

describe('a client that leaves', () => {
  let server;
  let client;
  let alone;
  const short = { prompt: 'Once', max_tokens: 5, temperature: 0, ignore_eos: true, cache_prompt: false };
  before(async () => {
    server = await serve({ model: largeModel(), models: { n_seq_max: 2, context_window: 8192 } });
    client = server.client;
    alone = (await client.complete(short)).choices[0].text;
  });
  after(() => server.stop());

  for (const [name, [path, body, isText]] of Object.entries(streams)) {
    test(`in the middle of ${name}: its slot is idle again, its neighbour goes on`, async () => {
      const neighbour = client.streamed('/v1/completions', { ...short, max_tokens: 60 });
      const stream = await client.stream(path, body);
      assert.equal(stream.status, 200);
      let seen = 0;
      for await (const event of stream.events()) {
        if (isText(event) && ++seen === 5) break; // which destroys the connection
      }
      assert.equal(seen, 5);
      stream.abort();
      await within(30, 'the neighbour has its reply', neighbour);
      await client.idle(10);
      assert.equal((await client.complete(short)).choices[0].text, alone);
    });

    test(`before ${name} has begun, and while it is not a stream`, async () => {
      const abort = new AbortController();
      const reply = client.post(path, body, { signal: abort.signal });
      reply.catch(() => {}); // looked at below
      await client.busy();
      abort.abort();
      await assert.rejects(reply);
      await client.idle(10);
      assert.equal((await client.complete(short)).choices[0].text, alone);
    });
  }

  test('many of all kinds at once: nothing is left', async () => {
    const rows = [...Object.values(streams), ...Object.values(streams)];
    await Promise.all(rows.slice(0, 4).map(async ([path, body, isText], i) => {
      const stream = await client.stream(path, body);
      let seen = 0;
      for await (const event of stream.events()) if (isText(event) && ++seen > i) break;
      stream.abort();
    }));
    const aborts = rows.map(([path, body], i) => {
      const abort = new AbortController();
      client.post(path, { ...body, stream: i % 2 === 0 }, { signal: abort.signal }).catch(() => {}); // they all leave
      return abort;
    });
    await client.busy(2);
    aborts.forEach((abort) => abort.abort());
    await client.idle(20);
    await until('nobody waits', async () => await client.waiting() === 0);
    assert.equal((await client.complete(short)).choices[0].text, alone);
  });
});

describe('a client that does not read', () => {
  let server;
  let client;
  before(async () => {
    server = await serve({ model: smallModel('llama'), models: { n_seq_max: 2, context_window: 8192, deterministic: true } });
    client = server.client;
  });
  after(() => server.stop());

  // Sends a streamed request on a connection that is not read from until it is told to.
  function deaf(path, body) {
    const text = JSON.stringify({ ...body, stream: true });
    const connection = client.connect();
    connection.socket.pause();
    connection.write(`POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n`
      + `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
    return connection;
  }

  // The data of an event stream in chunks, all of it strictly JSON but the [DONE].
  function events(response) {
    let body = '';
    for (let rest = response.body; ;) {
      const size = parseInt(rest, 16);
      if (!size) break;
      const start = rest.indexOf('\r\n') + 2;
      body += rest.slice(start, start + size);
      rest = rest.slice(start + size + 2);
    }
    return Buffer.from(body, 'latin1').toString().split('\n').filter((line) => line.startsWith('data:'))
      .map((line) => line.slice(5).trim()).filter((data) => data !== '[DONE]').map((data) => JSON.parse(data));
  }

  const joined = {
    '/v1/messages': (all) => all.map((e) => e.delta?.text ?? e.delta?.partial_json ?? '').join(''),
    '/v1/responses': (all) => all.filter((e) => e.type.endsWith('.delta')).map((e) => e.delta).join(''),
    '/v1/chat/completions': (all) => all.map((e) => e.choices?.[0]?.delta.content ?? e.choices?.[0]?.delta.tool_calls?.[0].function?.arguments ?? '').join(''),
  };

  for (const [name, [path, body]] of Object.entries(streams)) {
    test(`${name}: others are served meanwhile, and it finds all of it later`, async () => {
      const request = { ...body, ...('max_tokens' in body ? { max_tokens: 300 } : { max_output_tokens: 300 }) };
      const whole = await client.stream(path, request);
      const expected = [];
      for await (const event of whole.events()) expected.push(event);
      const connection = deaf(path, request);
      await client.busy(1);
      for (let i = 0; i < 3; i++) assert.equal((await client.complete({ prompt: 'Once', max_tokens: 3 })).usage.completion_tokens, 3);
      await client.idle(30); // the reply waits in its outbox; the slot does not wait for the reader
      connection.socket.resume();
      await within(20, 'the whole stream has come', connection.gone);
      const response = connection.response();
      assert.equal(response.status, 200);
      const found = events(response);
      assert.equal(joined[path](found), joined[path](expected));
      assert.ok(joined[path](found).length > 500);
    });
  }

  test('one that never reads and leaves: nothing stays behind', async () => {
    const connections = Object.values(streams).map(([path, body]) => deaf(path, body));
    await client.busy(2);
    await Promise.all(connections.map((connection) => connection.destroy()));
    await client.idle(20);
    await until('nobody waits', async () => await client.waiting() === 0);
  });
});

describe('embeddings', () => {
  let server;
  let client;
  before(async () => {
    const encoder = { vocab: 'bert-bge', layers: 6, embd: 384, heads: 6, 'kv-heads': 6, 'head-dim': 64, ctx: 512, ff: 1536 };
    server = await serve({ model: smallModel('bert', encoder), models: { n_seq_max: 1, queue_depth: 1, admission_timeout: 30 } });
    client = server.client;
  });
  after(() => server.stop());

  const many = { input: Array(2000).fill('word '.repeat(400)) }; // minutes
  const vector = async () => (await client.ask('/v1/embeddings', { input: 'hello' })).data[0].embedding;

  test('who leaves frees the place: the next is served at once, with its own vector', async () => {
    const before = await vector();
    for (let i = 0; i < 2; i++) {
      const abort = new AbortController();
      const reply = client.post('/v1/embeddings', many, { signal: abort.signal });
      reply.catch(() => {}); // looked at below
      await until('it is being computed', async () => await client.metric('hearth_embed_contexts_busy') > 0);
      abort.abort();
      await assert.rejects(reply);
      assert.deepEqual(await within(20, 'the next is served', vector()), before);
    }
  });

  test('who leaves while waiting is forgotten', async () => {
    const aborts = [0, 1, 2].map(() => new AbortController());
    const replies = aborts.map((abort) => client.post('/v1/embeddings', many, { signal: abort.signal }));
    replies.forEach((reply) => reply.catch(() => {})); // they all leave
    await until('they are computed in turn', async () => await client.metric('hearth_embed_contexts_busy') > 0);
    const later = Array.from({ length: 200 }, () => client.post('/v1/embeddings', { input: 'word '.repeat(40) }));
    await until('others wait', async () => await client.metric('hearth_admission_waiting') > 0);
    aborts.forEach((abort) => abort.abort());
    for (const { status } of await within(120, 'all others are served', Promise.all(later))) assert.equal(status, 200);
    await until('nobody waits', async () => await client.metric('hearth_admission_waiting') === 0);
    await within(20, 'the next is served', vector());
  });

  test('who does not read its vectors holds nobody up', async () => {
    const text = JSON.stringify({ input: Array(1500).fill('a') });
    const connection = client.connect();
    connection.socket.pause();
    connection.write(`POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
    await until('it has been computed', async () => await client.metric('hearth_embed_inputs_total') >= 1500);
    await within(20, 'the next is served', vector());
    connection.socket.resume();
    await within(20, 'all of it has come', connection.gone);
    assert.equal(JSON.parse(connection.response().body).data.length, 1500);
  });
});
