// Requests made to hold up others: every route, every field that takes a list or an object, with 10 to a million entries
// or levels, schemas that grow when they are converted, many choices, clients that leave or send half of a body. Beside
// them somebody asks /health and somebody reads a stream: neither notices. Then the server is stopped under them.
// HEARTH_HOSTILE_S=1800 goes on for half an hour; HEARTH_SEED= chooses others.
// Measures time: what is beside it must be held up by nothing else.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import http from 'node:http';
import { Gaps } from './lib/gaps.js';
import { Health } from './lib/health.js';
import { smallModel } from './lib/models.js';
import { between, generator, pick } from './lib/random.js';
import { serve } from './lib/server.js';
import { cases, until, within } from './lib/wait.js';

const seconds = Number(process.env.HEARTH_HOSTILE_S ?? cases(60, 12));
const seed = Number(process.env.HEARTH_SEED ?? 44);
const slower = ['ASAN_OPTIONS', 'TSAN_OPTIONS'].some((name) => name in process.env) ? 20 : 1;
const decodeGapMs = 250; // models.*.max_decode_gap_ms
const atOnce = 6;
const longest = 4 << 20; // bytes of a body
const tiny = { layers: 1, embd: 32, heads: 1, 'kv-heads': 1, 'head-dim': 32, ff: 32, ctx: 4096 };

// ---- What is sent ----

const user = '{"role":"user","content":"Hi"}';
const messages = `"messages":[${user}]`;
const tool = (parameters) => `{"type":"function","function":{"name":"act","parameters":${parameters}}}`;

// Routes, with a body that they take, less its last brace.
const bodies = {
  '/v1/chat/completions': `{${messages},"max_tokens":2`,
  '/v1/chat/completions/input_tokens': `{${messages}`,
  '/v1/chat/completions/render': `{${messages}`,
  '/v1/completions': '{"prompt":"Hi","max_tokens":2',
  '/v1/completions/render': '{"prompt":"Hi"',
  '/v1/responses': '{"input":"Hi","max_output_tokens":2',
  '/v1/responses/input_tokens': '{"input":"Hi"',
  '/v1/responses/compact': '{"input":"Hi","max_output_tokens":2',
  '/v1/conversations': '{"items":[]',
  '/v1/messages': `{${messages},"max_tokens":2`,
  '/v1/messages/count_tokens': `{${messages}`,
  '/v1/embeddings': '{"input":"Hi"',
  '/embeddings': '{"content":"Hi"',
  '/v1/rerank': '{"query":"Hi","documents":["a"]',
  '/completion': '{"prompt":"Hi","n_predict":2',
  '/infill': '{"input_prefix":"a","input_suffix":"b","n_predict":2',
  '/tokenize': '{"content":"Hi"',
  '/detokenize': '{"tokens":[1]',
  '/apply-template': `{${messages}`,
  '/api/chat': `{${messages},"options":{"num_predict":2}`,
  '/api/generate': '{"prompt":"Hi","options":{"num_predict":2}',
  '/api/embed': '{"input":"Hi"',
  '/api/embeddings': '{"prompt":"Hi"',
  '/api/show': '{"model":"demo"',
  '/cache/lookup': `{${messages}`,
  '/cache/stored': '{"action":"keep","id":"a"',
  '/cache/resident': '{"orders":[]',
  '/lora-adapters': '[',
  '/slots/0?action=erase': '{',
};

// Fields that take a list, each with the text of an entry.
const lists = {
  messages: user, tools: tool('{}'), stop: '"x"', stop_sequences: '"x"', input: `{"type":"message",${user.slice(1)}`, prompt: '"a"', documents: '"a"',
  content: '"a"', tokens: '1', samplers: '"top_k"', dry_sequence_breakers: '"\\n"', response_fields: '"content"', lora: '{"id":0,"scale":1}', items: `{"type":"message",${user.slice(1)}`,
  logit_bias: '[1,-1]', input_extra: '{"filename":"a","text":"b"}', include: '"a"', system: '{"type":"text","text":"a"}', images: '"YQ=="', functions: '{"name":"a"}',
  grammar_triggers: '{"type":0,"value":"a"}', preserved_tokens: '"a"', allowed_tools: '"a"', context_management: '{"type":"a"}', orders: '{"id":"a"}',
};
// Those that take an object.
const objects = ['metadata', 'logit_bias', 'chat_template_kwargs', 'response_format', 'options', 'format', 'stream_options', 'json_schema', 'tool_choice', 'reasoning', 'text', 'thinking'];
// Schemas with as many parts as asked for.
const schemas = [
  (n) => `${'{"type":["object",""],"properties":{"a":'.repeat(n % 60 + 1)}{}${'}}'.repeat(n % 60 + 1)}`,
  (n) => `{"$defs":{${Array.from({ length: n % 200 + 1 }, (_, i) => `"d${i}":{"anyOf":[{"$ref":"#/$defs/d${i + 1}"},{"$ref":"#/$defs/d${i + 1}"}]}`)},"d${n % 200 + 1}":{}},"$ref":"#/$defs/d0"}`,
  (n) => `{"allOf":[${Array(n).fill('{"$ref":"#/$defs/a"}')}],"$defs":{"a":{"type":"object"}}}`,
  (n) => `{"type":"object","properties":{${Array.from({ length: n }, (_, i) => `"p${i}":{"type":"string","pattern":"^[a-z]{1,9}$"}`)}}}`,
  (n) => `{"enum":[${Array.from({ length: n }, (_, i) => i)}]}`,
  (n) => `{"type":"string","pattern":"^(${'a?'.repeat(n)})${'(b|c)*'.repeat(n % 50)}$"}`,
  (n) => `{"type":"array","prefixItems":[${Array(n).fill('{}')}],"minItems":${n}}`,
];
const places = [(schema) => `"response_format":{"type":"json_schema","json_schema":{"schema":${schema}}}`, (schema) => `"json_schema":${schema}`,
  (schema) => `"format":${schema}`, (schema) => `"tools":[${tool(schema)}]`, (schema) => `"text":{"format":{"type":"json_schema","name":"a","schema":${schema}}}`];

// As many as asked for, but no more than a body has room for.
const times = (n, text) => text.repeat(Math.max(1, Math.min(n, Math.floor(longest / text.length))));
const entries = (n, text) => `[${times(n - 1, `${text},`)}${text}]`;
const members = (n) => `{${Array.from({ length: Math.min(n, longest / 16) }, (_, i) => `"m${i}":1`)}}`;
const nested = (n, open, close) => times(Math.min(n, longest / 16), open) + '1' + times(Math.min(n, longest / 16), close);

function field(random) {
  const n = 10 ** between(random, 1, 6);
  const list = pick(random, Object.keys(lists));
  const object = pick(random, objects);
  return pick(random, [
    () => `"${list}":${entries(n, lists[list])}`,
    () => `"${list}":${nested(n, '[', ']')}`,
    () => `"${object}":${members(n)}`,
    () => `"${object}":${nested(n, '{"a":', '}')}`,
    () => pick(random, places)(pick(random, schemas)(Math.min(n, 20000))),
    () => `"n":128,"n_cmpl":128,"n_probs":100,"logprobs":true`,
    () => `"grammar":"root ::= ${times(Math.min(n, 1e5), '[a-z]? ')}"`,
  ])();
}

const request = (random) => {
  const path = pick(random, Object.keys(bodies));
  const more = field(random);
  return { path, body: bodies[path] === '[' ? entries(1e5, '{"id":0}') : `${bodies[path]}${bodies[path] === '{' ? '' : ','}${more}}`, what: `${path} ${more.slice(0, 60)}` };
};

// ---- Sending ----

// The status of the answer; null where the client left before it came, or sent half of its body.
function send(port, random, { path, body }) {
  const bytes = Buffer.from(body);
  const how = pick(random, ['waits', 'waits', 'leaves', 'sends half']);
  const patience = how === 'waits' ? 60000 : between(random, 0, 500);
  return new Promise((resolve) => {
    const sent = http.request({ host: '127.0.0.1', port, method: 'POST', path, headers: { 'Content-Type': 'application/json', 'Content-Length': bytes.length } });
    const timer = setTimeout(() => { sent.destroy(); resolve(how === 'waits' ? 'no answer' : null); }, patience);
    sent.on('response', (response) => response.resume().on('close', () => { clearTimeout(timer); resolve(response.statusCode); }));
    sent.on('error', () => { clearTimeout(timer); resolve(null); });
    if (how === 'sends half') sent.write(bytes.subarray(0, bytes.length >> 1));
    else sent.end(bytes);
  });
}

// Sends until it is told to stop; calls `each` with what was sent and its status.
async function attack(port, random, goesOn, each) {
  while (goesOn()) {
    const one = request(random);
    each(one, await send(port, random, one));
  }
}

test(`hostile requests hold up nobody, for ${seconds} s of seed ${seed}`, async (t) => {
  const server = await serve({ t, model: smallModel('llama', tiny), set: { 'server.drain_timeout': 2 }, models: { n_seq_max: 4, queue_depth: 4, context_window: 4096, max_decode_gap_ms: decodeGapMs } });
  const health = new Health(server.port);
  const gaps = await Gaps.open(server.port, { prompt: 'Once', max_tokens: 4000, stream: true, ignore_eos: true });
  for (let i = 0; i < 3; i++) await server.client.complete({ prompt: 'Hi', max_tokens: 50, ignore_eos: true });
  const quiet = await health.slowest();
  await gaps.mark();

  const end = performance.now() + seconds * 1000;
  let goesOn = () => performance.now() < end;
  const counts = {};
  const slow = [];
  const note = (one, status) => {
    counts[status] = (counts[status] ?? 0) + 1;
    if (status === 'no answer' || status === 500) slow.push(`${status}: ${one.what}`);
  };
  const attackers = () => Array.from({ length: atOnce }, (_, i) => attack(server.port, generator(seed * 1000 + i), () => goesOn(), note));
  const beside = Promise.race([health.failed, gaps.failed]).catch((error) => {
    goesOn = () => false;
    throw new Error(`after ${(performance.now() - end + seconds * 1000).toFixed(0)} ms: ${error.message}; the server's log ends: ${server.log.slice(-2000)}`);
  });
  await Promise.race([Promise.all(attackers()), beside]);
  beside.catch(() => {}); // what comes later is asked for below
  const stall = await health.slowest();
  const gap = await gaps.largest();
  t.diagnostic(`${JSON.stringify(counts)}; /health ${stall.toFixed(0)} ms at most (${quiet.toFixed(0)} ms when quiet), largest gap ${gap.toFixed(0)} ms`);
  await health.end();
  await gaps.end();
  assert.deepEqual(slow, []);
  assert.ok(stall <= (100 + 2 * quiet) * slower, `/health took ${stall.toFixed(0)} ms, ${quiet.toFixed(0)} ms when quiet`);
  assert.ok(gap <= 2 * decodeGapMs * slower, `the stream had a gap of ${gap.toFixed(0)} ms`);

  let stopped = false;
  goesOn = () => !stopped;
  const before = Object.values(counts).reduce((a, b) => a + b);
  const under = attackers();
  await until('the attack goes on', () => Object.values(counts).reduce((a, b) => a + b) >= before + 2 * atOnce);
  const from = performance.now();
  await server.stop();
  stopped = true;
  const took = performance.now() - from;
  t.diagnostic(`stopped after ${took.toFixed(0)} ms`);
  assert.ok(took <= 10000 * slower, `the stop took ${took.toFixed(0)} ms`);
  await within(120, 'the attackers end', Promise.all(under));
});
