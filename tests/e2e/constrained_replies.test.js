// What a constraint lets through is what the parser takes and the schema allows: random schemas, as the reply's and as
// tools' with every chat template that llama.cpp has; random replies that keep to the constraint, drawn by
// tests/property/constrained_replies.c; ajv judges. HEARTH_CASES=100000 tries more, HEARTH_SEED= others.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import Ajv from 'ajv/dist/2020.js';
import { build, demo } from './lib/models.js';
import { isInPart } from './lib/part.js';
import { serve } from './lib/server.js';
import { cases as casesOf } from './lib/wait.js';
import { between, generator, pick } from './lib/random.js';
import { anySchema, objectSchema } from './lib/random_schemas.js';

const seed = Number(process.env.HEARTH_SEED ?? 43);
const cases = Number(process.env.HEARTH_CASES ?? casesOf(2000, 250));
const folder = join(process.env.HEARTH_LLAMA_SOURCE ?? join(process.env.LLAMA_SERVER ?? '', '..', '..', '..', 'source'), 'models', 'templates');
const templates = readdirSync(folder).filter((name) => name.endsWith('.jinja'));

// ---- Cases ----

// How far a reply follows the words of its format, and how soon it ends.
const biases = [
  { keeps_words: 0.95, begins_words: 0.9, ends: 0.9 }, { keeps_words: 0.9, begins_words: 0.5, ends: 0.5 },
  { keeps_words: 0.7, begins_words: 0.3, ends: 0.2 }, { keeps_words: 0.98, begins_words: 0.98, ends: 0.1 },
];

function tool(random, name) {
  return { type: 'function', function: { name, description: 'It acts', parameters: objectSchema(random, between(random, 0, 2)) } };
}

function makeCase(index) {
  const random = generator(seed * 1000003 + index);
  const wanted = pick(random, ['schema', 'required', 'required', 'auto']);
  const asked = { template: templates[index % templates.length], seed: index, limit: random() < 0.15 ? between(random, 1, 40) : 200, ...pick(random, biases) };
  if (wanted === 'schema') return { ...asked, schema: pick(random, [anySchema, objectSchema])(random, between(random, 0, 3)) };
  const tools = ['act', 'look_up'].slice(0, between(random, 1, 2)).map((name) => tool(random, name));
  return { ...asked, tools, choice: wanted, parallel: random() < 0.5 };
}

// The answers to the cases, in their order.
async function* answersOf(list) {
  const child = spawn(join(build, 'bin', 'constrained-replies'), [demo, folder], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'close');
  (async () => {
    for (const one of list) if (!child.stdin.write(`${JSON.stringify(one)}\n`)) await once(child.stdin, 'drain');
    child.stdin.end();
  })();
  for await (const line of createInterface({ input: child.stdout })) yield JSON.parse(line);
  assert.equal((await ended)[0], 0, 'the program that draws replies has failed');
}

// The same from two programs at once, each with half of the templates: [case, answer].
async function* answers(list) {
  const ready = [0, 1].map(async (half) => {
    const part = list.filter((one) => templates.indexOf(one.template) % 2 === half);
    const answered = [];
    for await (const answer of answersOf(part)) answered.push([part[answered.length], answer]);
    return answered;
  });
  for (const part of await Promise.all(ready)) yield* part;
}

// ---- Judgement ----

// llama.cpp's handlers of these read arguments as tags or literals of their own, and its grammars for them want neither
// all that is required nor what the schemas of all values say: a call has a tool's name and an object (docs/schemas.md).
const loose = /^(LFM2|google-gemma-4|muse-glimmer|openbmb-MiniCPM5|inclusionai-ling-3|MiniMax-M3)/;

const shapes = {
  date: /^\d{4}-\d\d-\d\d$/, time: /^\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/,
  'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/, uuid: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
};

// Formats with a tag for each argument write strings as they are, whatever their schema says (docs/schemas.md).
const tagged = /^(GLM|Qwen3-Coder|Qwen3\.5|NVIDIA-Nemotron-3|StepFun|ByteDance-Seed|MiniMax-M2|deepseek-ai-DeepSeek-V(3\.2|4)|tencent|Spark|poolside|Kimi-K3)/;

const mayBeText = (schema) => schema.$ref !== undefined || [schema.type ?? 'string'].flat().includes('string');

function withoutTexts(schema) {
  const properties = Object.entries(schema.properties ?? {}).map(([name, one]) => [name, mayBeText(one) ? {} : one]);
  return { ...schema, properties: Object.fromEntries(properties), ...(schema.additionalProperties?.type ? { additionalProperties: true } : {}) };
}

function promised(template, schema) {
  if (loose.test(template)) return { type: 'object' };
  return tagged.test(template) ? withoutTexts(schema) : schema;
}

function parsed(text) {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return null;
  }
}

// What is wrong with a whole text; null: nothing.
function fault(schema, text) {
  const json = parsed(text);
  if (!json) return `no JSON: ${text}`;
  const ajv = new Ajv({ strict: false, formats: shapes });
  const validate = ajv.compile(schema);
  return validate(json.value) ? null : `${ajv.errorsText(validate.errors)}: ${text}`;
}

function callFault(asked, call, complete) {
  const known = asked.tools.find((one) => one.function.name === call.name);
  if (!known) return `no such tool: ${call.name}`;
  if (!complete) return null; // a prefix
  return fault(promised(asked.template, known.function.parameters), call.arguments);
}

function replyFault(asked, answer) {
  const complete = answer.end === 'stop';
  if (answer.end === 'stop string' && asked.choice === 'auto' && !answer.calls.length) return null; // a text's own end
  if (!complete && answer.end !== 'length') return `it ends by ${answer.end}`;
  if (asked.schema) return complete ? fault(asked.schema, answer.content) : null;
  if (complete && asked.choice === 'required' && !answer.calls.length) return 'no call';
  if (!asked.parallel && answer.calls.length > 1) return 'several calls';
  return answer.calls.map((call) => callFault(asked, call, complete)).find(Boolean) ?? null;
}

// Some templates fail at what a schema may hold; a call cannot be required of others. Both are 400 with the reason.
const refusals = /has no form of calls|^the chat template failed/;

test(`constrained replies are what was asked for: ${cases} of seed ${seed}`, async (t) => {
  assert.ok(templates.length > 60, folder);
  const counts = { calls: 0 };
  const faults = [];
  let n = 0;
  for await (const [asked, answer] of answers(Array.from({ length: cases }, (_, i) => makeCase(i)))) {
    const how = answer.refused ? 'refused' : answer.end;
    counts[how] = (counts[how] ?? 0) + 1;
    n++;
    const wrong = answer.refused ?? (answer.end === 'free' ? null : replyFault(asked, answer));
    if (how === 'stop') counts.calls += answer.calls.length;
    if (wrong && !(answer.refused && refusals.test(wrong))) faults.push({ index: asked.seed, wrong, asked, answer });
  }
  t.diagnostic(`${cases} cases of seed ${seed}: ${JSON.stringify(counts)}`);
  const told = faults.slice(0, Number(process.env.HEARTH_FAULTS ?? 5)).map((one) => JSON.stringify(one));
  assert.equal(n, cases);
  assert.equal(faults.length, 0, `${faults.length} of ${cases}:\n${told.join('\n')}`);
  assert.ok(counts.stop > cases / 3 && counts.calls > cases / 8 && (counts.refused ?? 0) < cases / 8, JSON.stringify(counts));
});

// ---- Over HTTP ----

const messages = [{ role: 'user', content: 'Who are you?' }];
const action = (schema) => ({ name: 'act', description: 'It acts', parameters: schema });

// How each API is asked for a schema, and what of its answer is whole: its text, or null where it was cut off.
const routes = {
  '/v1/chat/completions': [
    (schema) => ({ messages, max_tokens: 400, response_format: { type: 'json_schema', json_schema: { name: 'it', schema } } }),
    ({ choices: [one] }) => one.finish_reason === 'stop' ? one.message.content : null],
  '/v1/chat/completions, tool': [
    (schema) => ({ messages, max_tokens: 400, tools: [{ type: 'function', function: action(schema) }], tool_choice: 'required' }),
    ({ choices: [one] }) => one.finish_reason === 'tool_calls' ? one.message.tool_calls[0].function.arguments : null],
  '/v1/completions': [
    (schema) => ({ prompt: 'x', max_tokens: 400, json_schema: schema }), ({ choices: [one] }) => one.finish_reason === 'stop' ? one.text : null],
  '/completion': [
    (schema) => ({ prompt: 'x', n_predict: 400, json_schema: schema }), (json) => json.stop_type === 'eos' ? json.content : null],
  '/api/chat': [
    (schema) => ({ messages, stream: false, format: schema, options: { num_predict: 400 } }), (json) => json.done_reason === 'stop' ? json.message.content : null],
  '/api/generate': [
    (schema) => ({ prompt: 'x', stream: false, format: schema, options: { num_predict: 400 } }), (json) => json.done_reason === 'stop' ? json.response : null],
  '/v1/responses': [
    (schema) => ({ input: 'x', max_output_tokens: 400, text: { format: { type: 'json_schema', name: 'it', schema } } }),
    (json) => json.status === 'completed' ? json.output.at(-1).content[0].text : null],
  '/v1/messages': [
    (schema) => ({ messages, max_tokens: 400, tools: [{ name: 'act', description: 'It acts', input_schema: schema }], tool_choice: { type: 'any' } }),
    (json) => json.stop_reason === 'tool_use' ? JSON.stringify(json.content.find((block) => block.type === 'tool_use').input) : null],
};

test('each API gives what its schema allows', async (t) => {
  const server = await serve({ t, models: { n_seq_max: 4, context_window: 2048 } });
  const list = Object.entries(routes).flatMap(([route, [body, whole]], k) => Array.from({ length: 12 }, (_, i) => ({ route, body, whole, i }))
    .filter(({ i }) => isInPart(i + k)));
  const counts = { whole: 0, cut: 0 };
  const faults = [];
  const work = async () => {
    for (let one = list.pop(); one; one = list.pop()) {
      const schema = objectSchema(generator(seed * 1000003 + one.i), one.i % 3);
      const json = await server.client.ask(one.route.split(',')[0], { ...one.body(schema), temperature: 1.2, seed: one.i + 1 });
      const text = one.whole(json);
      counts[text === null ? 'cut' : 'whole']++;
      const wrong = text === null ? null : fault(schema, text);
      if (wrong) faults.push(`${one.route}: ${wrong} ${JSON.stringify(schema)}`);
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  t.diagnostic(JSON.stringify(counts));
  assert.deepEqual(faults.slice(0, 5), []);
  assert.ok(counts.whole > counts.cut, JSON.stringify(counts));
});

// ---- Schemas that cost much ----

const twice = (key, n) => ({
  $ref: '#/$defs/d0', $defs: { ...Object.fromEntries(Array.from({ length: n }, (_, i) =>
    [`d${i}`, { [key]: [{ $ref: `#/$defs/d${i + 1}` }, { items: { $ref: `#/$defs/d${i + 1}` } }] }])), [`d${n}`]: { type: 'integer' } },
});
const nested = (type, n) => Array.from({ length: n }).reduce((inner) => ({ type, properties: { a: inner } }), {});
const many = (n, one) => Array.from({ length: n }, (_, i) => one(i));
const named = (n, one) => Object.fromEntries(many(n, (i) => [`p${i}`, one(i)]));
const costly = {
  types: nested(['object', ''], 24), 'types of null': nested([null, null], 24), 'types in lists': nested([['object'], ['object']], 24),
  'anyOf of the next twice': twice('anyOf', 60), 'allOf of the next twice': twice('allOf', 60),
  'allOf of references': { allOf: many(6000, () => ({ $ref: '#/$defs/a' })), $defs: { a: { type: 'object' } } },
  'long names': { anyOf: many(700, (i) => ({ $ref: `#/$defs/${'x'.repeat(200)}${i}` })), $defs: Object.fromEntries(many(700, (i) => [`${'x'.repeat(200)}${i}`, { const: i }])) },
  patterns: { anyOf: many(3000, (i) => ({ pattern: `^a${i}$` })) },
  'optional properties': { type: 'object', properties: named(900, () => ({ type: 'string' })) },
  'a repetition repeated': { type: 'string', pattern: `^a${'{2}'.repeat(3000)}$` },
};
// A limit of the field's, or one of the schema's with the part at fault; of a tool, that its text is too long.
const reasons = /JSON schema that cannot be used: #|has too many members/, prompt = /exceeds the available context/;
const isTool = (route) => /tool|messages$/.test(route);

test('a schema that costs much is refused with the part at fault or answered soon, over each API', async (t) => {
  const server = await serve({ t, models: { n_seq_max: 4, context_window: 2048 } });
  const timed = async (path, body) => {
    const began = performance.now();
    const reply = await server.client.post(path, body);
    return { status: reply.status, json: reply.json, ms: performance.now() - began };
  };
  const counts = { refused: 0, answered: 0 };
  const faults = [];
  for (const [route, [body]] of Object.entries(routes)) {
    const path = route.split(',')[0];
    const short = (schema) => JSON.parse(JSON.stringify({ ...body(schema), max_tokens: 4, n_predict: 4 }).replace('"num_predict":400', '"num_predict":4').replace('"max_output_tokens":400', '"max_output_tokens":16'));
    const plain = await timed(path, short({ type: 'object', properties: { a: { type: 'integer' } } }));
    assert.equal(plain.status, 200, `${route}: ${JSON.stringify(plain.json)}`);
    for (const [name, schema] of Object.entries(costly)) {
      const { status, json, ms } = await timed(path, short(schema));
      counts[status === 200 ? 'answered' : 'refused']++;
      const message = json.error?.message ?? json.error ?? '';
      const expected = status === 200 || (status === 400 && (isTool(route) ? prompt : reasons).test(message)); // a prompt has all of a tool
      if (!expected) faults.push(`${route}, ${name}: ${status} ${String(message).slice(0, 200)}`);
      if (ms > 3000 + 20 * plain.ms) faults.push(`${route}, ${name}: ${ms} ms, and ${plain.ms} ms for a plain one`);
    }
  }
  t.diagnostic(JSON.stringify(counts));
  assert.deepEqual(faults, []);
  assert.ok(counts.refused > 20 && counts.answered > 10, JSON.stringify(counts));
});
