// Traces of requests: what a collector gets, which is strict about it, and what happens where it gets nothing.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Collector } from './lib/collector.js';
import { smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { saved } from './lib/store.js';
import { tokens, until } from './lib/wait.js';

const parent = { trace: '4bf92f3577b34da6a3ce929d0e0e4736', span: '00f067aa0ba902b7' };
const traceparent = (flags) => ({ traceparent: `00-${parent.trace}-${parent.span}-${flags}` });
const messages = [{ role: 'user', content: 'Who are you?' }];
const before = ['admission', 'tokenise', 'lookup', 'queue-wait'];

const tracing = (t, collector, { set, ...more } = {}) =>
  serve({ t, ...more, set: { 'server.otlp_endpoint': collector.url, ...set } });

// The collector's traces once there are so many, none more.
async function traces(collector, n) {
  await until(`${n} traces come`, () => collector.traces().length >= n);
  assert.equal(collector.traces().length, n);
  return collector.traces();
}

const dropped = (server) => server.client.metric('hearth_spans_dropped_total');

test('a chat with a parent: its stages, its tokens, its name in the response and in the log', async (t) => {
  const collector = await Collector.open(t);
  const server = await tracing(t, collector);
  const { headers, json } = await server.client.post('/v1/chat/completions',
    { messages, max_tokens: 8, temperature: 0 }, { headers: { ...traceparent('01'), 'X-Request-Id': 'mine' } });
  const [, trace, span, flags] = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(headers.traceparent);
  assert.deepEqual([trace, flags], [parent.trace, '01']);
  assert.notEqual(span, parent.span);
  const [{ server: own, names, stages }] = await traces(collector, 1);
  assert.deepEqual([own.traceId, own.spanId, own.parentSpanId, own.name, own.flags, own.status.code],
    [trace, span, parent.span, 'POST /v1/chat/completions', 0x301, 0]);
  assert.deepEqual(names, [...before, 'prefill', 'decode', 'save']);
  const { prompt_tokens: input, completion_tokens: output } = json.usage;
  const { 'gen_ai.response.finish_reasons': finish, ...attributes } = own.attributes;
  assert.deepEqual(finish, [json.choices[0].finish_reason]);
  assert.deepEqual(attributes, {
    'http.request.method': 'POST', 'http.route': '/v1/chat/completions', 'url.path': '/v1/chat/completions',
    'http.response.status_code': 200, 'hearth.request_id': 'mine', 'gen_ai.operation.name': 'chat',
    'gen_ai.provider.name': 'hearth', 'gen_ai.request.model': server.model, 'gen_ai.usage.input_tokens': input,
    'gen_ai.usage.output_tokens': output, 'gen_ai.usage.cache_read.input_tokens': json.timings.cache_n,
    'hearth.tokens.cached': json.timings.cache_n, 'hearth.tokens.computed': json.timings.prompt_n,
  });
  const ms = (name) => Number(stages.find((stage) => stage.name === name).end - stages.find((stage) => stage.name === name).start) / 1e6;
  assert.ok(Math.abs(ms('decode') - json.timings.predicted_ms) < 0.01);
  const queue = before.reduce((sum, name) => sum + ms(name), 0);
  assert.ok(Math.abs(queue - json.timings.queue_ms) < 0.01, `${queue} of ${json.timings.queue_ms} ms`);
  await server.says(new RegExp(`http: request method=POST .* request_id=mine trace_id=${parent.trace}`));
  await until('they are counted', async () => await server.client.metric('hearth_spans_sent_total') === 8);
  assert.equal(await dropped(server), 0);
  await server.stop();
});

test('streams, choices, other APIs, errors, clients that leave', async (t) => {
  const collector = await Collector.open(t);
  const server = await tracing(t, collector, { model: smallModel('llama'), models: { n_seq_max: 2, context_window: 4096 } });
  const { client } = server;
  await client.streamed('/v1/completions', { prompt: 'Once', max_tokens: 3, n: 2, ignore_eos: true });
  await client.ask('/v1/messages', { messages, max_tokens: 2, model: 'of a client' });
  await client.ask('/v1/chat/completions/input_tokens', { messages });
  await client.refused(400, '/v1/completions', { prompt: 'Once', max_tokens: 'many' });
  const left = await client.stream('/v1/completions', { prompt: 'Once', max_tokens: 4000, ignore_eos: true });
  for await (const chunk of left.events()) if (chunk) break;
  left.abort();
  await client.idle();
  await client.get('/health');
  await client.get('/v1/models');
  const found = await traces(collector, 5);
  const of = (route, status = 200) => found.find(({ server: own }) =>
    own.attributes['http.route'] === route && own.attributes['http.response.status_code'] === status);
  assert.ok(found.every(({ server: own }) => own.parentSpanId === undefined && own.status.code === 0));
  assert.equal(new Set(found.map(({ server: own }) => own.traceId)).size, 5);

  const both = of('/v1/completions');
  for (const choice of [0, 1]) {
    const names = both.stages.filter(({ attributes }) => attributes['hearth.choice'] === choice).map(({ name }) => name);
    assert.deepEqual(names.filter((name) => name !== 'restore'), [...before, 'prefill', 'decode', 'save']);
  }
  assert.equal(both.server.attributes['gen_ai.operation.name'], 'text_completion');
  assert.equal(both.server.attributes['gen_ai.usage.output_tokens'], 6);
  assert.deepEqual(both.server.attributes['gen_ai.response.finish_reasons'], ['length', 'length']);
  assert.equal(of('/v1/messages').server.attributes['gen_ai.request.model'], 'of a client');
  assert.deepEqual(of('/v1/chat/completions/input_tokens').names, ['admission', 'tokenise']);
  assert.equal(of('/v1/chat/completions/input_tokens').server.attributes['gen_ai.usage.input_tokens'], undefined);
  const wrong = of('/v1/completions', 400);
  assert.deepEqual(wrong.names, []);
  assert.equal(wrong.server.attributes['gen_ai.request.model'], undefined);
  const gone = of('/v1/completions', 499);
  assert.equal(gone.names.at(-1), 'decode');
  assert.ok(gone.server.end - gone.stages.at(-1).end < 1000000000n, 'it decoded until the client left');
  await server.stop();
});

test('what waits in vain for a permit has waited for admission', async (t) => {
  const collector = await Collector.open(t);
  const server = await tracing(t, collector, {
    model: smallModel('llama'),
    models: { n_seq_max: 1, queue_depth: 1, admission_timeout: 0.2, context_window: 4096 },
  });
  const busy = await server.client.stream('/v1/completions', { prompt: 'Once', max_tokens: 4000, ignore_eos: true });
  await server.client.busy();
  await server.client.refused(429, '/v1/completions', { prompt: 'Once' });
  busy.abort();
  const found = await traces(collector, 2);
  const refused = found.find(({ server: own }) => own.attributes['http.response.status_code'] === 429);
  assert.deepEqual(refused.names, ['admission']);
  assert.ok(refused.stages[0].end - refused.stages[0].start >= 200000000n);
  await server.stop();
});

test('a client that leaves before it has a slot has waited', async (t) => {
  const collector = await Collector.open(t);
  const server = await tracing(t, collector, {
    model: smallModel('llama'), models: { n_seq_max: 1, queue_depth: 1, context_window: 4096 },
  });
  const busy = await server.client.stream('/v1/completions', { prompt: 'Once', max_tokens: 4000, ignore_eos: true });
  await server.client.busy();
  const leaves = new AbortController();
  const reply = server.client.post('/v1/completions', { prompt: 'Once' }, { signal: leaves.signal });
  reply.catch(() => {}); // looked at below
  await until('it waits', async () => await server.client.waiting() === 1);
  leaves.abort();
  await assert.rejects(reply);
  const [{ server: own, names, stages }] = await traces(collector, 1);
  assert.equal(own.attributes['http.response.status_code'], 499);
  assert.deepEqual(names, ['waiting']);
  assert.ok(own.end - stages[0].end < 1000000000n, 'until it left');
  busy.abort();
  await server.stop();
});

test('what comes from the store is restored', async (t) => {
  const collector = await Collector.open(t);
  const options = {
    model: smallModel('llama'), models: { context_window: 4096, cache_min_tokens: 0 },
    set: { 'cache.tiers.disk.path': temporaryFolder() },
  };
  const prompt = tokens(1000, 1);
  const first = await tracing(t, collector, options);
  await first.client.complete({ prompt, max_tokens: 1 });
  await saved(first);
  await first.stop();
  const second = await tracing(t, collector, options);
  const { timings } = await second.client.complete({ prompt, max_tokens: 1 });
  const found = (await traces(collector, 2))[1], restore = found.stages.find(({ name }) => name === 'restore');
  assert.ok(timings.cache_n >= 512, JSON.stringify(timings));
  assert.equal(restore.attributes['hearth.tokens.cached'], timings.cache_n);
  assert.ok(Math.abs(Number(restore.end - restore.start) / 1e6 - timings.restore_ms) < 0.01);
  await second.stop();
});

// What a client gets that asks for OpenMetrics: {families: {name: type}, samples: [{name, labels, value, exemplar}]}.
async function openMetrics(server) {
  const { headers, text } = await server.client.get('/metrics',
    { headers: { Accept: 'application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2' } });
  assert.equal(headers['content-type'], 'application/openmetrics-text; version=1.0.0; charset=utf-8');
  assert.ok(text.endsWith('\n# EOF\n'));
  const families = {}, samples = [];
  const endings = { counter: ['_total'], gauge: [''], histogram: ['_bucket', '_sum', '_count'] };
  let family;
  for (const line of text.slice(0, -'# EOF\n'.length).trimEnd().split('\n')) {
    const help = /^# HELP (\S+) [^"]+$/.exec(line), type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line);
    if (help) [, family] = help;
    if (help) assert.ok(!(family in families), `${family} stands together`);
    if (type) assert.equal(type[1], family);
    if (type) [, , families[family]] = type;
    if (help || type) continue;
    const sample = /^([a-zA-Z_:][\w:]*)(\{(?:\w+="(?:[^"\\]|\\.)*",?)*\})? (\S+)(?: # \{trace_id="([0-9a-f]{32})"\} (\S+) (\d+\.\d{3}))?$/.exec(line);
    assert.ok(sample, line);
    const [, name, labels, value, id, own, when] = sample;
    assert.ok(endings[families[family]].some((ending) => name === family + ending), `${name} is of ${family}`);
    assert.ok(Number.isFinite(Number(value)), line);
    if (id) assert.ok(name.endsWith('_bucket') && Math.abs(Number(when) - Date.now() / 1000) < 3600, line);
    samples.push({ name, labels, value: Number(value), exemplar: id && { id, value: Number(own) } });
  }
  return { families, samples };
}

test('OpenMetrics: a bucket leads to the last trace that fell into it', async (t) => {
  const collector = await Collector.open(t);
  const server = await tracing(t, collector);
  const { json } = await server.client.post('/v1/chat/completions', { messages, max_tokens: 2 }, { headers: traceparent('01') });
  await openMetrics(server); // is counted, too, from now on
  const { families, samples } = await openMetrics(server);
  assert.equal(families.hearth_requests_done, 'counter');
  const plain = await server.client.metrics();
  assert.equal(plain.size, samples.length, 'there are the same samples');
  for (const { name, labels } of samples) assert.ok(plain.has(name + (labels ?? '')), name);
  const { queue_ms: queue, prompt_ms: prompt } = json.timings;
  for (const [metric, ms] of [['hearth_queue_wait_seconds', queue], ['hearth_time_to_first_token_seconds', queue + prompt]]) {
    const buckets = samples.filter(({ name }) => name === `${metric}_bucket`);
    const at = buckets.findIndex(({ exemplar }) => exemplar);
    assert.equal(buckets.filter(({ exemplar }) => exemplar).length, 1);
    assert.deepEqual([buckets[at].value, buckets[at - 1]?.value ?? 0], [1, 0], 'it is in the bucket that counted it');
    assert.equal(buckets[at].exemplar.id, parent.trace);
    assert.ok(Math.abs(buckets[at].exemplar.value * 1000 - ms) < 0.01);
  }
  const asked = await server.client.get('/metrics', { headers: { Accept: '*/*' } });
  assert.equal(asked.headers['content-type'], 'text/plain; version=0.0.4');
  assert.doesNotMatch(asked.text, /trace_id|EOF/);
  await server.stop();
});

test('several models: one that is called by its alias has exemplars, vectors have the attributes of a model', async (t) => {
  const collector = await Collector.open(t);
  const config = join(temporaryFolder(), 'hearth.yaml'), few = { context_window: 512, threads: 1 };
  const models = {
    one: { path: smallModel('llama'), ...few },
    two: { path: smallModel('llama'), aliases: ['gpt'], ...few },
    vectors: { path: smallModel('qwen3', { pooling: 'last' }), ...few },
  };
  writeFileSync(config, `models: ${JSON.stringify(models)}\n`);
  const server = await tracing(t, collector, { args: ['--config', config] });
  const { headers } = await server.client.post('/v1/completions', { model: 'gpt', prompt: 'Once', max_tokens: 1 });
  const { samples } = await openMetrics(server);
  const found = samples.filter(({ exemplar }) => exemplar);
  assert.deepEqual(new Set(found.map(({ exemplar }) => exemplar.id)), new Set([headers.traceparent.split('-')[1]]));
  assert.ok(found.every(({ labels }) => labels.includes('model="two"')));

  for (const model of ['vectors', undefined]) await server.client.ask('/v1/embeddings', { model, input: 'a' });
  const vectors = (await traces(collector, 3)).slice(1).map(({ server: { attributes } }) =>
    ['operation.name', 'provider.name', 'request.model'].map((name) => attributes[`gen_ai.${name}`]));
  assert.deepEqual(vectors, [['embeddings', 'hearth', 'vectors'], ['embeddings', 'hearth', undefined]]);
  await server.stop();
});

test('off, and where the client wants no trace: nothing is sent', async (t) => {
  const collector = await Collector.open(t);
  const off = await serve({ t });
  const { headers } = await off.client.post('/v1/chat/completions', { messages, max_tokens: 1 }, { headers: traceparent('01') });
  assert.equal(headers.traceparent, undefined);
  const metrics = await off.client.get('/metrics', { headers: { Accept: 'application/openmetrics-text' } });
  assert.equal(metrics.headers['content-type'], 'text/plain; version=0.0.4');
  await off.stop();
  assert.doesNotMatch(off.log, /trace/);

  const on = await tracing(t, collector);
  const unsampled = await on.client.post('/v1/chat/completions', { messages, max_tokens: 1 }, { headers: traceparent('00') });
  assert.match(unsampled.headers.traceparent, new RegExp(`^00-${parent.trace}-[0-9a-f]{16}-00$`));
  assert.ok(!unsampled.headers.traceparent.includes(parent.span));
  await on.says(new RegExp(`trace_id=${parent.trace}`));
  await on.stop(); // all that there was is sent by then
  assert.deepEqual([collector.requests, collector.traces().length], [0, 0]);
});

test('headers that are no traceparent: the request has a trace of its own', async (t) => {
  const collector = await Collector.open(t);
  const server = await tracing(t, collector);
  const good = traceparent('01').traceparent;
  const wrong = [`00-${parent.trace.toUpperCase()}-${parent.span}-01`, `ff-${parent.trace}-${parent.span}-01`, 'x', [good, good]];
  for (const header of wrong) {
    const { headers } = await server.client.post('/tokenize', { content: 'a' }, { headers: { traceparent: header } });
    assert.match(headers.traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    assert.ok(!headers.traceparent.includes(parent.trace));
  }
  for (const { server: own } of await traces(collector, wrong.length)) assert.equal(own.parentSpanId, undefined);
  await server.stop();
});

test('the end sends what is queued', async (t) => {
  const collector = await Collector.open(t);
  const server = await tracing(t, collector);
  for (let i = 0; i < 20; i++) await server.client.ask('/tokenize', { content: `${i}` });
  await server.stop();
  assert.equal(collector.traces().length, 20);
});

test('a collector that is busy gets it again, one that refuses does not', async (t) => {
  const collector = await Collector.open(t, 503);
  const server = await tracing(t, collector);
  await server.client.ask('/tokenize', { content: 'a' });
  await until('it was refused once', () => collector.requests > 0);
  collector.answer = 200;
  await traces(collector, 1);
  assert.equal(await dropped(server), 0);

  for (const answer of [500, 400]) {
    collector.answer = answer;
    const [asked, lost] = [collector.requests, await dropped(server)];
    await server.client.ask('/tokenize', { content: 'a' });
    await until('it is dropped', async () => await dropped(server) > lost);
    assert.equal(collector.requests, asked + 1);
    collector.answer = 200;
    await server.client.ask('/tokenize', { content: 'a' });
    await until('the next one comes', () => collector.requests > asked + 1);
  }
  assert.equal((await traces(collector, 3)).length, 3);
  await server.says(/tracing: spans cannot be sent, they are dropped url=\S+ error="the collector answered 500"/);
  await server.says(/tracing: spans are sent again/);
  await server.stop();
});

test('a collector that asks for a pause gets it, and what it rejects of a batch is dropped', async (t) => {
  const collector = await Collector.open(t, 503);
  const server = await tracing(t, collector);
  collector.headers = { 'Retry-After': '3' };
  await server.client.ask('/tokenize', { content: 'a' });
  await until('it was refused once', () => collector.requests > 0);
  collector.answer = 200;
  collector.body = { partialSuccess: { rejectedSpans: '1', errorMessage: 'too old' } };
  await until('it is dropped', async () => await dropped(server) === 1);
  assert.ok(collector.times[1] - collector.times[0] > 2900, `${collector.times}`);
  const sent = () => server.client.metric('hearth_spans_sent_total'), each = collector.spans.length;
  assert.equal(await sent(), each - 1);
  await server.says(/tracing: the collector rejects spans url=\S+ spans=1 error="too old"/);

  const answers = [{ partialSuccess: { rejectedSpans: 1e6 } }, { partialSuccess: { rejectedSpans: '-3' } }, { partialSuccess: {} }, 'x'];
  for (const [i, body] of answers.entries()) {
    collector.body = body;
    await server.client.ask('/tokenize', { content: 'a' });
    await until('it is counted', async () => await dropped(server) + await sent() === (i + 2) * each);
  }
  assert.equal(await dropped(server), 1 + each);
  await server.stop();
});

// A request that waited for the collector would wait for seconds. One that does not takes as long as without a collector,
// which is some milliseconds.
for (const [how, open] of [
  ['is away', async (t) => {
    const collector = await Collector.open(t);
    collector.close();
    return collector;
  }],
  ['never answers', (t) => Collector.open(t, 'stall')],
]) {
  test(`a collector that ${how} holds nobody up, neither requests nor the end`, async (t) => {
    const collector = await open(t);
    const server = await tracing(t, collector);
    await server.client.ask('/tokenize', { content: 'a' });
    if (collector.answer === 'stall') await until('the collector is asked', () => collector.requests > 0);
    const times = [];
    for (let i = 0; i < 200; i++) {
      const begun = performance.now();
      await server.client.ask('/tokenize', { content: 'a' });
      times.push(performance.now() - begun);
    }
    times.sort((a, b) => a - b);
    assert.ok(times[150] < 500, `three of four requests take less than half a second: ${times[150]} ms`);
    if (how === 'is away') await until('what is lost is counted', async () => await dropped(server) > 0);
    const begun = performance.now();
    await server.stop();
    assert.ok(performance.now() - begun < 20e3, 'it ends in time');
  });
}
