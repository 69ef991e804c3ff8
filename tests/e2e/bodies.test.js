// Bodies made to cost far more than they weigh. Whatever a body of up to max_body_bytes holds, it takes at most four
// times its size and 64 MiB, and streams beside it go on. Prints the table of what each took.
// Measures time: streams beside what is measured must be held up by nothing else.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { Gaps } from './lib/gaps.js';
import { setTimeout as pause } from 'node:timers/promises';
import { join } from 'node:path';
import { wav } from './lib/media.js';
import { smallModel } from './lib/models.js';
import { isInPart } from './lib/part.js';
import { serve, temporaryFolder } from './lib/server.js';
import { tokens, within } from './lib/wait.js';

const MiB = 1 << 20;
const decodeGapMs = 250; // models.*.max_decode_gap_ms
const table = [];

// What a process has in memory now, and had at most since reset(); bytes.
const status = (pid, name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm')
  .exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const reset = (pid) => writeFileSync(`/proc/${pid}/clear_refs`, '5');

// ---- Making bodies: of about `size` bytes, as a Buffer ----

// `head`, as many of `item` as there is room for, with commas between them, `tail`. `item` may be a function of the
// index.
function list(size, head, item, tail) {
  if (typeof item === 'string') return fill(size, head, `${item},`, item + tail);
  const parts = [head];
  for (let i = 0, left = size - head.length - tail.length; left > 0; i++) {
    const one = (i > 0 ? ',' : '') + item(i);
    left -= one.length;
    if (left >= 0) parts.push(one);
  }
  return Buffer.from(parts.join('') + tail);
}

// `head`, `unit` repeated, `tail`.
function fill(size, head, unit, tail) {
  const bytes = Buffer.isBuffer(unit) ? unit : Buffer.from(unit);
  const n = Math.floor((size - head.length - tail.length) / bytes.length);
  return Buffer.concat([Buffer.from(head), Buffer.alloc(n * bytes.length, bytes), Buffer.from(tail)]);
}

const chat = '/v1/chat/completions';
const message = (content) => `{"messages":[{"role":"user","content":"${content}"}]`;
const short = `${message('Hi')},"max_tokens":1`;
const say = (size, unit, more = '') => fill(size, '{"max_tokens":1,"messages":[{"role":"user","content":"', unit,
  `"}]${more}}`);
const tool = (i, more = '') => `{"type":"function","function":{"name":"f${i}","parameters":{"type":"object"}${more}}}`;
// Text of which every part begins like every other, in a tool and in the message.
const alike = (n) => JSON.stringify({
  messages: [{ role: 'user', content: '<'.repeat(n) }], max_tokens: 1,
  tools: [{ type: 'function', function: { name: 'f', description: `${'<'.repeat(n)}|`, parameters: {} } }],
});
const big = 30 * MiB;
const transcriptions = '/v1/audio/transcriptions';
const form = 'multipart/form-data; boundary=b';
const file = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n';
const sound = Buffer.concat([Buffer.from(file), Buffer.from(wav(), 'base64')]);

// [what, route, body, status, more]: `status` of the answer; `send` sends the body in a way of
// its own, `type` is its Content-Type if it is not JSON.
const rows = [
  ['empty objects', chat, () => list(big, '{"messages":[', '{}', ']}'), 413],
  ['empty objects', chat, () => list(3 * MiB, '{"messages":[', '{}', ']}'), 413],
  ['empty objects, few enough to be read', chat, () => list(MiB / 8, '{"messages":[', '{}', ']}'), 400],
  ['empty lists', '/v1/completions', () => list(big, '{"prompt":[', '[]', ']}'), 413],
  ['empty strings', '/v1/completions', () => list(big, '{"prompt":[', '""', ']}'), 413],
  ['numbers of one digit', '/v1/completions', () => list(big, '{"prompt":[', '1', ']}'), 413],
  ['numbers of one digit', '/v1/completions', () => list(MiB, '{"prompt":[', '1', ']}'), 400],
  ['128 choices with large tools', chat, () => fill(10 * MiB,
    `${short},"n":128,"tools":[{"type":"function","function":{"name":"f","description":"`, 'large ', '"}}]}'), 400],
  ['128 choices with large arguments', chat, () => fill(MiB, `${short},"n":128,"chat_template_kwargs":{"x":"`, 'large ',
    '"}}'), 200],
  ['128 prompts with a large grammar', '/v1/completions', () => fill(big,
    `{"prompt":[${Array(128).fill('"a"').join(',')}],"max_tokens":1,"grammar":"`, 'root ::= [a-z]+\\n', '"}'), 400],
  ['text to tokenise', '/tokenize', () => fill(24 * MiB, '{"content":"', 'a b', '"}'), 400],
  ['text to tokenise, of one word', '/tokenize', () => fill(4 * MiB, '{"content":"', 'xyzzy', '"}'), 400],
  ['text to tokenise, of short words', '/tokenize', () => fill(4 * MiB - 1000, '{"content":"', 'a 1 ', '"}'), 400],
  ['text to tokenise, with pieces', '/tokenize', () => fill(MiB / 5, '{"with_pieces":true,"content":"', 'q7 ', '"}'), 200],
  ['tokens to turn into text', '/detokenize', () => list(8 * MiB, '{"tokens":[', '300', ']}'), 413],
  ['a template to apply', '/apply-template', () => say(big, 'a b '), 400],
  ['tokens of a chat to count', '/v1/messages/count_tokens', () => say(big, 'a b '), 400],
  ['tokens of a chat to count', '/v1/messages/count_tokens', () => say(3 * MiB, 'a b '), 200],
  ['words alike in tool and message', chat, () => alike(150000), 400],
  ['words alike, long', chat, () => alike(1900000), 400],
  ['lists in lists', chat, () => fill(big, '{"messages":', '[', '}'), 400],
  ['objects in objects', chat, () => fill(big, '{"messages":', '{"a":', '}'), 400],
  ['many keys', chat, () => list(8 * MiB, `${short},`, (i) => `"k${i}":1`, '}'), 413],
  ['one key again and again', chat, () => list(big, `${short},`, '"k":1', '}'), 413],
  ['one long string of escapes', chat, () => say(big, '\\u0001'), 400],
  ['a string of escapes, below the limit', chat, () => say(3 * MiB, '\\n'), 400],
  ['quotes in a string', chat, () => say(3 * MiB, '\\"'), 400],
  ['many messages', chat, () => list(big, '{"messages":[', '{"role":"user","content":""}', ']}'), 413],
  ['many messages', chat, () => list(3 * MiB, '{"messages":[', '{"role":"user","content":""}', ']}'), 413],
  ['many parts of a message', chat, () => list(3 * MiB, '{"messages":[{"role":"user","content":[',
    '{"type":"text","text":"a"}', ']}]}'), 413],
  ['many tools', chat, () => list(16 * MiB, `${short},"tools":[`, (i) => tool(i), ']}'), 413],
  ['many tools', chat, () => list(2 * MiB, `${short},"tools":[`, (i) => tool(i), ']}'), 413],
  ['messages, as many as may be', '/apply-template', () => list(400000, '{"messages":[',
    '{"role":"user","content":"a b c"}', ']}'), 200],
  ['messages of roles that nobody knows', '/apply-template', () => list(400000, '{"messages":[',
    (i) => `{"role":"role${i}","content":"a b c"}`, ']}'), 400],
  ['system messages everywhere', '/apply-template', () => list(400000, '{"messages":[',
    '{"role":"user","content":"a"},{"role":"system","content":"b"}', ']}'), 200],
  ['tools, as many as may be', chat, () => list(300000, `${short},"tools":[`, (i) => tool(i), ']}'), 400],
  ['a large schema', chat, () => list(3 * MiB, `${short},"json_schema":{"type":"object","properties":{`,
    (i) => `"p${i}":{"type":"string"}`, '}}}'), 413],
  ['a large list of values in a schema', chat, () => list(2 * MiB, `${short},"json_schema":{"enum":[`, (i) => `"v${i}"`,
    ']}}'), 413],
  ['a schema of as many values as may be', chat, () => list(MiB / 2, `${short},"json_schema":{"enum":[`, (i) => `"v${i}"`,
    ']}}'), 400],
  ['a large grammar', '/v1/completions', () => fill(big, '{"prompt":"a","max_tokens":1,"grammar":"',
    'root ::= \\"a\\" | root\\n', '"}'), 400],
  ['a large grammar of one rule', '/v1/completions', () => fill(MiB - 1000,
    '{"prompt":"a","max_tokens":1,"grammar":"root ::= [a-z]+ ', '| [a-z] ', '"}'), 400],
  ['too many stop strings', chat, () => list(big, `${short},"stop":[`, '"stop"', ']}'), 413],
  ['long stop strings', chat, () => Buffer.from(`${short},"stop":[${Array(16).fill(`"${'s'.repeat(MiB)}"`).join(',')}]}`),
    400],
  ['many biases', '/v1/completions', () => list(big, '{"prompt":"a","max_tokens":1,"logit_bias":[', '[5,1]', ']}'), 413],
  ['many biases', '/v1/completions', () => list(MiB / 2, '{"prompt":"a","max_tokens":1,"logit_bias":[', '[5,1]', ']}'),
    200],
  ['many biases by name', '/v1/completions', () => list(8 * MiB, '{"prompt":"a","max_tokens":1,"logit_bias":{',
    (i) => `"${i % 1000}":1`, '}}'), 413],
  ['a large salt', chat, () => fill(big, `${short},"n":128,"cache_salt":"`, 'salt', '"}'), 400],
  ['a number of many digits', chat, () => fill(big, `${short},"temperature":0.`, '1', '}'), 200],
  ['a whole number of many digits', chat, () => fill(big, `${short},"seed":`, '1', '}'), 200],
  ['numbers with exponents', '/v1/completions', () => list(8 * MiB, '{"prompt":"a","x":[', '1e-300', ']}'), 413],
  ['bytes that are no UTF-8', chat, () => say(big, Buffer.from([0xff])), 400],
  ['a character that breaks off, at the end', chat, () => fill(big, message(''), ' ', '\xe2'), 400],
  ['blanks', chat, () => fill(big, `${short}`, ' ', '}'), 200],
  ['an image in base64', chat, () => fill(big,
    '{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,',
    'iVBORw0K', '"}}]}]}'), 200],
  ['an image in base64, below the limit', '/v1/messages', () => fill(3 * MiB,
    '{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"',
    'iVBORw0K', '"}}]}]}'), 200],
  ['items of a response', '/v1/responses', () => list(3 * MiB, '{"input":[', '{"role":"user","content":"a"}', ']}'), 413],
  ['fields nobody knows', chat, () => fill(big, `${short},"x":"`, 'x', '"}'), 200],
  ['one byte a chunk', chat, () => say(MiB / 2, 'a b '), 400, { send: 'trickle' }],
  ['a form with a file that is no sound', transcriptions, () => fill(big, file, 'file', '\r\n--b--'), 400, { type: form }],
  ['a form with a sound', transcriptions, () => fill(big, sound, '\0\0', '\r\n--b--'), 400, { type: form }],
  ['a form that almost ends, again and again', transcriptions, () => fill(big, file, '\r\n--', ''), 400, { type: form }],
  ['a form of small parts', transcriptions, () => fill(big, '', '--b\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n', '--b--'),
    400, { type: form }],
  ['a form with a large text', transcriptions, () => fill(big,
    Buffer.concat([sound, Buffer.from('\r\n--b\r\nContent-Disposition: form-data; name=prompt\r\n\r\n')]), 'word ', '\r\n--b--'), 400, { type: form }],
  ['a form with a long header', transcriptions, () => fill(big, '--b\r\nX: ', 'x', ''), 400, { type: form }],
  ['inputs of an embedding', '/v1/embeddings', () => list(big, '{"input":[', `"${'word '.repeat(2900)}"`, ']}'), 400],
  ['one long input, to be cut', '/v1/embeddings', () => fill(big, '{"truncate":true,"input":"', 'word ', '"}'), 200],
  ['one input below the limit, to be cut', '/v1/embeddings', () => fill(3 * MiB, '{"truncate":true,"input":"', 'word ',
    '"}'), 200],
  ['inputs of tokens', '/v1/embeddings', () => list(big, '{"input":[[', '7', ']]}'), 413],
  ['too many inputs', '/v1/embeddings', () => list(big, '{"input":[', '"a"', ']}'), 413],
];

// ---- Measuring ----

async function trickle(client, path, body) {
  const connection = client.connect();
  connection.write(`POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`
    + 'Transfer-Encoding: chunked\r\n\r\n');
  for (let from = 0; from < body.length; from += 65536) {
    const part = body.subarray(from, from + 65536);
    connection.write(Buffer.concat([...part].map((byte) => Buffer.from([0x31, 13, 10, byte, 13, 10]))));
    await new Promise((resolve) => { setImmediate(resolve); });
  }
  connection.write('0\r\n\r\n');
  assert.ok(await connection.settled(120));
  const reply = connection.response();
  await connection.destroy();
  return reply.status;
}

async function measure([what, path, make, expected, { send, type } = {}]) {
  const body = make();
  await gaps.mark();
  reset(server.pid);
  const before = status(server.pid, 'VmRSS');
  const from = performance.now();
  const got = await within(120, `${what} is answered`, send === 'trickle' ? trickle(server.client, path, body)
    : server.client.post(path, body, type && { headers: { 'Content-Type': type } }).then((reply) => reply.status));
  const row = { what, path, size: body.length, status: got, expected, took: performance.now() - from };
  row.gap = await gaps.largest();
  row.peak = status(server.pid, 'VmHWM') - before;
  table.push(row);
  return row;
}

const mib = (bytes) => (bytes / MiB).toFixed(1);

function print() {
  const head = ['body', 'route', 'MiB', 'status', 'peak MiB', 'allowed', 'seconds', 'gap ms'];
  const lines = table.map((row) => [row.what, row.path, mib(row.size), String(row.status), mib(row.peak),
    mib(4 * row.size + 64 * MiB), (row.took / 1000).toFixed(2), row.gap.toFixed(0)]);
  const widths = head.map((_, i) => Math.max(...[head, ...lines].map((line) => line[i].length)));
  for (const line of [head, ...lines]) {
    console.log(line.map((cell, i) => (i < 2 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join('  '));
  }
}

// ---- The server ----

const window = 131072;
const tiny = { layers: 1, embd: 32, heads: 1, 'kv-heads': 1, 'head-dim': 32, ff: 32, ctx: window };
const encoder = { vocab: 'bert-bge', layers: 1, embd: 32, heads: 1, 'kv-heads': 1, 'head-dim': 32, ff: 32, ctx: 512 };
const models = () => ({
  chat: { path: smallModel('llama', tiny), n_seq_max: 4, queue_depth: 64, context_window: window },
  vectors: { path: smallModel('bert', encoder) },
  ranks: { path: smallModel('reranker', encoder) },
});
const beside = { prompt: tokens(8, 3), max_tokens: window - 1000, ignore_eos: true, temperature: 0, stream: true };
let server;
let gaps;
// A sanitizer keeps memory of its own for each byte and allocation, and what was freed.
const isSanitized = ['ASAN_OPTIONS', 'TSAN_OPTIONS'].some((name) => name in process.env);
let quiet; // the largest gap while nothing else is asked for

before(async () => {
  const config = join(temporaryFolder(), 'hearth.yaml');
  const lines = Object.entries(models()).map(([name, keys]) => `  ${name}: ${JSON.stringify({ threads: 1, ...keys })}\n`);
  writeFileSync(config, `models:\n${lines.join('')}`);
  // What is freed goes back to the system, so that no row is measured in what another has left.
  const env = { MALLOC_MMAP_THRESHOLD_: String(MiB / 2), MALLOC_TRIM_THRESHOLD_: String(MiB) };
  server = await serve({ args: ['--config', config], set: { 'server.max_body_bytes': 32 * MiB }, env });
  gaps = await Gaps.open(server.port, beside);
  await server.client.post(chat, `${short}}`);
  await gaps.mark();
  await pause(3000);
  quiet = await gaps.largest();
});

after(async () => {
  print();
  await gaps?.end();
  await server.stop();
});

for (const row of rows.filter((_, i) => isInPart(i))) {
  test(`${row[0]}, ${row[1]}`, async () => {
    const { what, size, peak, gap, status: got, expected } = await measure(row);
    assert.equal(got, expected, `${what}: ${got}`);
    assert.ok(isSanitized || peak <= 4 * size + 64 * MiB, `${what}: ${mib(size)} MiB took ${mib(peak)} MiB`);
    assert.ok(gap <= 2 * decodeGapMs + 2 * quiet, `${what}: a gap of ${gap.toFixed(0)} ms, ${quiet.toFixed(0)} ms when quiet`);
  });
}

test('the server still answers, and has given the memory back', async () => {
  const reply = await server.client.ask(chat, `${short}}`);
  assert.equal(reply.choices.length, 1);
});
