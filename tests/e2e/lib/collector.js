// A collector of traces: takes OTLP over HTTP, in JSON, and is strict about it. `answer` is what it does with a request:
// a status, or 'stall' for never; the spans of requests that it answers with 200 are kept. `headers` and `body` are those of
// its answers, `times` when requests came.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';

const only = (object, ...members) => assert.deepEqual(Object.keys(object).sort(), [...members].sort());

function checkId(id, digits) {
  assert.match(id, new RegExp(`^[0-9a-f]{${digits}}$`));
  assert.doesNotMatch(id, /^0+$/);
}

// A value has exactly one type, and numbers of 64 bits are strings.
function valueOf(value) {
  assert.equal(Object.keys(value).length, 1, JSON.stringify(value));
  if ('stringValue' in value) {
    assert.equal(typeof value.stringValue, 'string');
    return value.stringValue;
  }
  if ('intValue' in value) {
    assert.match(value.intValue, /^-?(0|[1-9]\d*)$/);
    return Number(value.intValue);
  }
  only(value, 'arrayValue');
  only(value.arrayValue, 'values');
  return value.arrayValue.values.map(valueOf);
}

function attributesOf(list) {
  const attributes = {};
  for (const attribute of list) {
    only(attribute, 'key', 'value');
    assert.match(attribute.key, /^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$/);
    assert.ok(!(attribute.key in attributes), `${attribute.key} is there once`);
    attributes[attribute.key] = valueOf(attribute.value);
  }
  return attributes;
}

function spanOf(span) {
  only(span, 'traceId', 'spanId', 'name', 'kind', 'flags', 'startTimeUnixNano', 'endTimeUnixNano', 'attributes', 'status',
    ...'parentSpanId' in span ? ['parentSpanId'] : []);
  checkId(span.traceId, 32);
  checkId(span.spanId, 16);
  if ('parentSpanId' in span) checkId(span.parentSpanId, 16);
  assert.ok([1, 2].includes(span.kind));
  assert.equal(span.flags & 0x101, 0x101, 'sampled, and it is known where the parent is');
  for (const time of [span.startTimeUnixNano, span.endTimeUnixNano]) assert.match(time, /^[1-9]\d{18}$/);
  const [start, end] = [BigInt(span.startTimeUnixNano), BigInt(span.endTimeUnixNano)];
  assert.ok(start <= end, `${span.name} ends after it began`);
  assert.ok(Math.abs(Number(end / 1000000n) - Date.now()) < 3600e3, 'times are since 1970');
  only(span.status, 'code');
  return { ...span, start, end, attributes: attributesOf(span.attributes) };
}

// The spans of a request's body.
function spansOf(body) {
  only(body, 'resourceSpans');
  assert.equal(body.resourceSpans.length, 1);
  const [resource] = body.resourceSpans;
  only(resource, 'resource', 'scopeSpans');
  only(resource.resource, 'attributes');
  const about = attributesOf(resource.resource.attributes);
  only(about, 'service.name', 'service.version', 'service.instance.id', 'host.name');
  assert.equal(about['service.name'], 'hearth');
  assert.equal(resource.scopeSpans.length, 1);
  only(resource.scopeSpans[0], 'scope', 'spans');
  assert.deepEqual(resource.scopeSpans[0].scope, { name: 'hearth' });
  assert.ok(resource.scopeSpans[0].spans.length > 0);
  return resource.scopeSpans[0].spans.map(spanOf);
}

export class Collector {
  static async open(t, answer = 200) {
    const collector = new Collector();
    Object.assign(collector, { answer, headers: {}, body: {}, spans: [], requests: 0, times: [], faults: [] });
    collector.server = createServer((request, response) => collector.take(request, response).catch((error) => {
      collector.faults.push(error);
      response.writeHead(400).end();
    }));
    collector.server.listen(0, '127.0.0.1');
    await once(collector.server, 'listening');
    collector.url = `http://127.0.0.1:${collector.server.address().port}`;
    t.after(() => collector.close());
    return collector;
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async take(request, response) {
    this.requests++;
    this.times.push(performance.now());
    if (this.answer === 'stall') return;
    assert.equal(`${request.method} ${request.url}`, 'POST /v1/traces');
    assert.equal(request.headers['content-type'], 'application/json');
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const spans = spansOf(JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks))));
    if (this.answer === 200) this.spans.push(...spans);
    response.writeHead(this.answer, { 'Content-Type': 'application/json', ...this.headers }).end(JSON.stringify(this.body));
  }

  // The traces so far, each as {server, stages}: one span of the server, and inside it those below it, one after the other
  // in each choice.
  traces() {
    if (this.faults.length > 0) throw this.faults[0];
    assert.equal(new Set(this.spans.map(({ spanId }) => spanId)).size, this.spans.length, 'ids of spans differ');
    return this.spans.filter(({ kind }) => kind === 2).map((server) => {
      const stages = this.spans.filter(({ kind, parentSpanId }) => kind === 1 && parentSpanId === server.spanId);
      const ends = {};
      for (const stage of stages) {
        const choice = stage.attributes['hearth.choice'] ?? 0;
        assert.equal(stage.traceId, server.traceId);
        assert.ok(stage.start >= server.start && stage.end <= server.end, `${stage.name} is inside its parent`);
        assert.ok(stage.start >= (ends[choice] ?? 0n), `${stage.name} begins after the stage before`);
        ends[choice] = stage.end;
      }
      return { server, stages, names: stages.map(({ name }) => name) };
    });
  }
}
