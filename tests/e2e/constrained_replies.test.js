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
import { between, generator, pick } from './lib/random.js';
import { anySchema, objectSchema } from './lib/random_schemas.js';

const seed = Number(process.env.HEARTH_SEED ?? 43);
const cases = Number(process.env.HEARTH_CASES ?? 2000);
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
  const asked = { template: templates[index % templates.length], seed: index, limit: random() < 0.15 ? between(random, 1, 40) : 400, ...pick(random, biases) };
  if (wanted === 'schema') return { ...asked, schema: pick(random, [anySchema, objectSchema])(random, between(random, 0, 3)) };
  const tools = ['act', 'look_up'].slice(0, between(random, 1, 2)).map((name) => tool(random, name));
  return { ...asked, tools, choice: wanted, parallel: random() < 0.5 };
}

// The answers to the cases, in their order.
async function* answers(list) {
  const child = spawn(join(build, 'bin', 'constrained-replies'), [demo, folder], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'close');
  (async () => {
    for (const one of list) if (!child.stdin.write(`${JSON.stringify(one)}\n`)) await once(child.stdin, 'drain');
    child.stdin.end();
  })();
  for await (const line of createInterface({ input: child.stdout })) yield JSON.parse(line);
  assert.equal((await ended)[0], 0, 'the program that draws replies has failed');
}

// ---- Judgement ----

const shapes = {
  date: /^\d{4}-\d\d-\d\d$/, time: /^\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/,
  'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/, uuid: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
};

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
  if (!complete && !parsed(call.arguments)) return null; // a prefix
  const wrong = fault(known.function.parameters, call.arguments);
  return wrong && complete ? wrong : null;
}

function replyFault(asked, answer) {
  const complete = answer.end === 'stop';
  if (!complete && answer.end !== 'length') return `it ends by ${answer.end}`;
  if (asked.schema) return complete ? fault(asked.schema, answer.content) : null;
  if (complete && asked.choice === 'required' && !answer.calls.length) return 'no call';
  if (!asked.parallel && answer.calls.length > 1) return 'several calls';
  return answer.calls.map((call) => callFault(asked, call, complete)).find(Boolean) ?? null;
}

test(`constrained replies are what was asked for: ${cases} of seed ${seed}`, async (t) => {
  assert.ok(templates.length > 60, folder);
  const list = Array.from({ length: cases }, (_, i) => makeCase(i));
  const counts = {};
  const faults = [];
  let index = 0;
  for await (const answer of answers(list)) {
    const asked = list[index++];
    const how = answer.refused ? 'refused' : answer.end;
    counts[how] = (counts[how] ?? 0) + 1;
    const wrong = answer.refused ?? (answer.end === 'free' ? null : replyFault(asked, answer));
    if (wrong && !/has no form of calls/.test(wrong)) faults.push({ index: index - 1, wrong, asked, answer });
  }
  t.diagnostic(`${cases} cases of seed ${seed}: ${JSON.stringify(counts)}`);
  const told = faults.slice(0, Number(process.env.HEARTH_FAULTS ?? 5)).map((one) => JSON.stringify(one));
  assert.equal(index, cases);
  assert.equal(faults.length, 0, `${faults.length} of ${cases}:\n${told.join('\n')}`);
});
