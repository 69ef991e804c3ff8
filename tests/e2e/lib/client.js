// A plain HTTP client over node:http (or node:https, given a certificate to trust): every request has its own connection unless an agent is given, and nothing is
// retried or hidden, so that a test sees what the server did.

import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import assert from 'node:assert/strict';
import { until } from './wait.js';

// Strict: bytes that are no UTF-8 make the test fail.
const decode = (chunks) => new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));

// Members of an error of OpenAI's routes: of a prompt that is too long llama-server's type, with both numbers.
export function errorMembers(error) {
  const lengths = error.type === 'exceed_context_size_error' ? ['n_ctx', 'n_prompt_tokens'] : [];
  return ['code', 'message', ...lengths, 'param', 'type'];
}

// A response whose body comes as server-sent events.
class Stream {
  constructor(request, response) {
    this.request = request;
    this.response = response;
    this.status = response.statusCode;
    this.headers = response.headers;
    this.comments = 0;
    this.done = false; // [DONE] has been seen
  }

  // The JSON of every data line, one after the other. Ends with the response; an aborted one throws.
  async *events() {
    let rest = Buffer.alloc(0);
    for await (const chunk of this.response) {
      rest = Buffer.concat([rest, chunk]);
      for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
        const line = decode([rest.subarray(0, end)]).replace(/\r$/, '');
        rest = rest.subarray(end + 1);
        if (line.startsWith(':')) this.comments++;
        if (!line.startsWith('data:')) continue;
        const data = line.slice(5).trim();
        assert.equal(this.done, false, 'nothing follows [DONE]');
        if (data === '[DONE]') this.done = true;
        else yield JSON.parse(data);
      }
    }
    assert.equal(rest.length, 0, `the stream ends with a whole line, not ${JSON.stringify(rest.toString())}`);
  }

  // Reads to the end: the choices' texts by index, their finish reasons, the chunks.
  async collect(onChunk = () => {}) {
    const result = { chunks: [], texts: [], finish: [], usage: null, timings: null, error: null };
    for await (const chunk of this.events()) {
      result.chunks.push(chunk);
      if (chunk.error) result.error = chunk.error;
      if (chunk.usage) result.usage = chunk.usage;
      if (chunk.timings) result.timings = chunk.timings;
      for (const choice of chunk.choices ?? []) {
        const text = choice.delta?.content ?? choice.text ?? '';
        result.texts[choice.index] = (result.texts[choice.index] ?? '') + text;
        if (choice.finish_reason) result.finish[choice.index] = choice.finish_reason;
      }
      onChunk(chunk, result);
    }
    result.text = result.texts[0] ?? '';
    result.done = this.done;
    return result;
  }

  abort() {
    this.request.destroy();
  }
}

export class Client {
  // `ca` is the certificate of a server that speaks TLS, `key` the API key that every request carries.
  constructor(port, { ca, key } = {}) {
    this.port = port;
    this.ca = ca;
    this.keyed = key === undefined ? {} : { Authorization: `Bearer ${key}` };
  }

  // The same client with another key, or with none.
  withKey(key) {
    return new Client(this.port, { ca: this.ca, key });
  }

  // Sends a request and gives [request, response] once the head of the response is there.
  send(method, path, { body, headers = {}, agent = false, signal } = {}) {
    const text = body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    const fields = { ...(text === undefined ? {} : {
      'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text),
    }), ...this.keyed, ...headers };
    return new Promise((resolve, reject) => {
      const request = (this.ca ? https : http).request({
        host: '127.0.0.1', port: this.port, method, path, headers: fields, agent, signal, ca: this.ca,
      }, (response) => resolve([request, response]));
      request.on('error', reject);
      request.end(text);
    });
  }

  // A whole exchange: {status, headers, text, json}; json is undefined where the body is none.
  async fetch(method, path, options) {
    const [, response] = await this.send(method, path, options);
    const chunks = [];
    for await (const chunk of response) chunks.push(chunk);
    const text = decode(chunks);
    let json;
    if (text && /json/.test(response.headers['content-type'] ?? '')) json = JSON.parse(text);
    return { status: response.statusCode, headers: response.headers, text, json };
  }

  get(path, options) {
    return this.fetch('GET', path, options);
  }

  post(path, body, options) {
    return this.fetch('POST', path, { body, ...options });
  }

  // A request that has to succeed: its JSON.
  async ask(path, body, options) {
    const reply = await this.post(path, body, options);
    assert.equal(reply.status, 200, reply.text);
    return reply.json;
  }

  complete(body, options) {
    return this.ask('/v1/completions', { temperature: 0, ...body }, options);
  }

  chat(body, options) {
    return this.ask('/v1/chat/completions', { temperature: 0, ...body }, options);
  }

  // A request that has to be refused: its error object, after the form of it has been checked.
  async refused(status, path, body, options) {
    const reply = await this.post(path, body, options);
    assert.equal(reply.status, status, reply.text);
    const { error } = reply.json;
    assert.deepEqual(Object.keys(error).sort(), errorMembers(error));
    assert.ok(error.message.length > 0 && !error.message.includes('\n'), 'the message is one line');
    return error;
  }

  // A streamed request, as soon as its first bytes are there.
  async stream(path, body, options) {
    const whole = { temperature: 0, ...body, stream: true };
    const [request, response] = await this.send('POST', path, { body: whole, ...options });
    const stream = new Stream(request, response);
    if (stream.status === 200) assert.match(stream.headers['content-type'], /^text\/event-stream/);
    return stream;
  }

  async streamed(path, body, options) {
    const stream = await this.stream(path, body, options);
    assert.equal(stream.status, 200);
    return stream.collect();
  }

  async slots() {
    const reply = await this.get('/slots');
    assert.equal(reply.status, 200, reply.text);
    return reply.json;
  }

  // All slots idle and nobody waiting.
  idle(seconds = 30) {
    return until('all slots are idle', async () => (await this.slots()).every((slot) => slot.state === 'idle'),
      { seconds });
  }

  busy(count = 1, seconds = 30) {
    return until(`${count} slots are at work`,
      async () => (await this.slots()).filter((slot) => slot.state !== 'idle').length >= count, { seconds });
  }

  // The samples of /metrics: a Map from name, labels included, to number.
  async metrics() {
    const reply = await this.get('/metrics');
    assert.equal(reply.status, 200);
    const samples = new Map();
    for (const line of reply.text.split('\n')) {
      const sample = /^([a-zA-Z_:][\w:]*(?:\{.*\})?) (\S+)$/.exec(line);
      if (sample) samples.set(sample[1], Number(sample[2]));
    }
    return samples;
  }

  // The sum of the metrics of these names over all their labels.
  async metric(...names) {
    const samples = await this.metrics();
    let sum = 0;
    for (const name of names) {
      const own = [...samples].filter(([key]) => key.replace(/\{.*/, '') === name);
      assert.ok(own.length > 0, `/metrics has ${name}`);
      for (const [, value] of own) sum += value;
    }
    return sum;
  }

  // Requests that have no slot yet: those with a place in the queue and those that wait for one.
  waiting() {
    return this.metric('hearth_requests_waiting', 'hearth_admission_waiting');
  }

  // A TCP connection, for what no HTTP client would send.
  connect() {
    return new Connection(this.port);
  }
}

// A raw connection: `received` is all that came so far (nothing is read while paused), `gone` settles at its end.
export class Connection {
  constructor(port) {
    this.received = Buffer.alloc(0);
    this.closed = false;
    this.socket = net.connect({ host: '127.0.0.1', port, allowHalfOpen: true });
    this.socket.on('error', () => {}); // a reset is one way for the server to close
    this.socket.on('data', (chunk) => {
      this.received = Buffer.concat([this.received, chunk]);
      this.changed?.();
    });
    this.socket.on('end', () => {
      this.closed = true;
      this.socket.end();
      this.changed?.();
    });
    this.gone = new Promise((resolve) => {
      this.socket.on('close', () => {
        this.closed = true;
        this.changed?.();
        resolve();
      });
    });
  }

  write(bytes) {
    if (!this.closed && this.socket.writable) this.socket.write(bytes);
  }

  // Says that nothing more will be sent; what the server still answers is read.
  finish() {
    if (this.socket.writable) this.socket.end();
  }

  destroy() {
    this.socket.destroy();
    return this.gone;
  }

  // The first whole response in `received`: {status, head, body, length}; null while there is none.
  response() {
    const text = this.received.toString('latin1');
    const end = text.indexOf('\r\n\r\n');
    if (end < 0) return null;
    const head = text.slice(0, end);
    const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1] ?? NaN);
    const start = end + 4;
    let length = start;
    if (/^transfer-encoding: *chunked/mi.test(head)) {
      const last = /(^|\r\n)0\r\n\r\n/.exec(text.slice(start));
      if (!last) return null;
      length = start + last.index + last[0].length;
    } else {
      length += Number(/^content-length: *(\d+)/mi.exec(head)?.[1] ?? 0);
      if (text.length < length) return null;
    }
    return { status, head, body: text.slice(start, length), length };
  }

  // Waits for a whole response or the end, at most `seconds`; true if one of them came.
  async settled(seconds) {
    const deadline = performance.now() + seconds * 1000;
    while (!this.closed && !this.response()) {
      const left = deadline - performance.now();
      if (left <= 0) return false;
      await new Promise((resolve) => {
        // The condition is that bytes come or the end does; the timer is only the limit of waiting for it.
        const timer = setTimeout(resolve, left);
        this.changed = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    return true;
  }
}
