// JSON schemas: a hundred generated ones and more; whatever the model draws, the reply validates. Schemas that cannot be
// kept are refused with the reason.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import Ajv from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { serve } from './lib/server.js';
import { generator } from './lib/random.js';
import { definitions, nodes, numbers } from './lib/schemas.js';
import { cases } from './lib/wait.js';

let server;

before(async () => { server = await serve({ models: { n_seq_max: 4, context_window: 2048 } }); });
after(() => server.stop());

// ---- Schemas ----

const count = cases(300, 100);

function schemas() {
  const random = generator(300);
  return Array.from({ length: count }, () => {
    const made = { ...nodes.object(random, 3), ...definitions };
    if (random() < 0.3) made.properties.share = numbers(random);
    return made;
  });
}

// ---- Replies ----

async function reply(wanted, seed, max_tokens = 1500) {
  const json = await server.client.ask('/v1/chat/completions', {
    messages: [{ role: 'user', content: 'Who are you?' }], temperature: 1.5, seed, max_tokens,
    response_format: { type: 'json_schema', json_schema: { name: 'it', schema: wanted } },
  });
  return json.choices[0];
}

function fault(wanted, choice) {
  if (choice.finish_reason !== 'stop') return `it ends by ${choice.finish_reason}`;
  const ajv = new Ajv({ strict: false, validateFormats: false });
  const validate = ajv.compile(wanted);
  return validate(JSON.parse(choice.message.content)) ? null : ajv.errorsText(validate.errors);
}

test(`the reply to each of ${count} schemas validates`, async () => {
  const list = schemas();
  const faults = [];
  let next = 0;
  const work = async () => {
    for (let i = next++; i < list.length; i = next++) {
      const choice = await reply(list[i], i + 1);
      const wrong = fault(list[i], choice);
      if (wrong) faults.push(`${wrong}: ${JSON.stringify(list[i])} gave ${choice.message.content.slice(0, 400)}`);
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  assert.equal(faults.length, 0, `${faults.length} of ${count}:\n${faults.slice(0, 5).join('\n')}`);
});

test('a schema of a completion, of the older field and of a tool is kept as well', async () => {
  const wanted = { ...nodes.object(generator(7), 2), ...definitions };
  const ajv = new Ajv({ strict: false });
  const completion = await server.client.complete({ prompt: 'x', json_schema: wanted, max_tokens: 1000, temperature: 1, seed: 1 });
  assert.ok(ajv.validate(wanted, JSON.parse(completion.choices[0].text)));
  const json = await server.client.chat({ messages: [{ role: 'user', content: 'Hi' }], json_schema: wanted, max_tokens: 1000 });
  assert.ok(ajv.validate(wanted, JSON.parse(json.choices[0].message.content)));
  const tool = { type: 'function', function: { name: 'act', parameters: wanted } };
  const called = await server.client.chat({
    messages: [{ role: 'user', content: 'Hi' }], tools: [tool], tool_choice: 'required', max_tokens: 1000, temperature: 1, seed: 2,
  });
  assert.ok(ajv.validate(wanted, JSON.parse(called.choices[0].message.tool_calls[0].function.arguments)));
});

test('what is drawn of a format is of that format', async () => {
  const ajv = new Ajv({ strict: false });
  addFormats(ajv);
  for (const format of ['date', 'time', 'date-time', 'duration', 'email', 'ipv4', 'ipv6', 'uri', 'json-pointer', 'uuid']) {
    const wanted = { type: 'array', minItems: 12, maxItems: 12, items: { type: 'string', format } };
    for (const seed of [1, 2]) {
      const choice = await reply(wanted, seed, 600);
      if (choice.finish_reason !== 'stop') continue; // a random model may write an address without end
      const all = JSON.parse(choice.message.content);
      for (const text of all) assert.ok(ajv.validate(wanted.items, text), `${format}: ${text}`);
    }
  }
});

test('the answer names what nothing enforces of its schemas, however they are given', async () => {
  const named = async (path, body) => {
    const response = await server.client.post(path, { max_tokens: 8, ...body });
    assert.equal(response.status, 200, response.text);
    return response.headers['x-hearth-not-enforced'] ?? '';
  };
  const loose = { type: 'object', properties: { a: { type: 'number', multipleOf: 3, minimum: 1 }, b: { type: 'string', format: 'hostname' } } };
  const strict = { type: 'object', properties: { a: { type: 'integer', minimum: 1 }, b: { type: 'string', format: 'email' } } };
  const messages = [{ role: 'user', content: 'Hi' }];
  const form = (schema) => ({ type: 'json_schema', json_schema: { name: 'it', strict: true, schema } });
  const tool = (name, parameters) => ({ type: 'function', function: { name, parameters } });
  const all = 'format hostname, multipleOf', ofTools = 'format hostname, minimum of numbers, multipleOf';
  const chat = '/v1/chat/completions';
  for (const stream of [false, true]) {
    assert.equal(await named(chat, { messages, stream, response_format: form(loose) }), all);
    assert.equal(await named(chat, { messages, stream, response_format: form(strict) }), '');
    assert.equal(await named(chat, { messages, stream, tools: [tool('act', strict), tool('find', loose)] }), ofTools);
    assert.equal(await named('/v1/completions', { prompt: 'x', stream, json_schema: loose }), all);
    assert.equal(await named('/v1/responses', { input: 'Hi', max_output_tokens: 16, stream, text: { format: { type: 'json_schema', name: 'it', schema: loose } } }), all);
    assert.equal(await named('/v1/messages', { messages, stream, tools: [{ name: 'act', input_schema: loose }] }), ofTools);
  }
  const odd = { type: 'object', properties: { p: { pattern: '(?=a)b' } } };
  assert.equal(await named(chat, { messages, tools: [tool('act', odd)] }), 'act#/properties/p');
  // No call can be made, and no schema binds what is written beside a forced call.
  assert.equal(await named(chat, { messages, tools: [tool('act', odd)], tool_choice: 'none' }), '');
  assert.equal(await named(chat, { messages, tools: [tool('act', strict)], tool_choice: 'required', response_format: form(loose) }), '');
});

test("a tool's schema that cannot be kept does not refuse the request, and what can be is kept", async () => {
  const call = async (properties) => {
    const parameters = { type: 'object', properties, required: Object.keys(properties) };
    const json = await server.client.chat({
      messages: [{ role: 'user', content: 'Hi' }], max_tokens: 400, temperature: 1, seed: 5, tool_choice: 'required',
      tools: [{ type: 'function', function: { name: 'act', parameters } }],
    });
    const [choice] = json.choices;
    return choice.finish_reason === 'tool_calls' ? JSON.parse(choice.message.tool_calls[0].function.arguments) : null;
  };
  assert.match((await call({ p: { type: 'string', pattern: '^\\d{3}$' } })).p, /^\d{3}$/);
  assert.equal((await call({ enum: { type: 'string', pattern: '^"x"$' } })).enum, '"x"');
  for (const odd of [true, { type: 'colour' }, { $ref: '#/nowhere' }, { pattern: '(?=a)b' }, { type: 'array', maxItems: 1e6 }]) {
    const given = await call({ n: { type: 'integer', minimum: 100, maximum: 120 }, odd });
    if (given !== null) assert.ok(given.n >= 100 && given.n <= 120, JSON.stringify(given));
  }
});

test('a schema that cannot be kept is refused with the reason', async () => {
  const deep = {};
  for (let i = 0, at = deep; i < 400; i++) { at.type = 'array'; at.items = {}; at = at.items; }
  const refused = [
    { $ref: '#/$defs/missing' },
    { type: 'object', properties: { a: { $ref: '#/$defs/missing' } } },
    { type: 'strange' },
    { type: 'object', properties: 5 },
    { type: 'string', pattern: '^(?=a)b$' },
    { enum: 5 },
    { anyOf: {} },
    { type: 'array', maxItems: 1e6 },
    { properties: { a: false }, required: ['a'] },
    deep,
  ];
  for (const wanted of refused) {
    const response = await server.client.post('/v1/chat/completions', {
      messages: [{ role: 'user', content: 'Hi' }], max_tokens: 8,
      response_format: { type: 'json_schema', json_schema: { name: 'it', schema: wanted } },
    });
    const what = JSON.stringify(wanted).slice(0, 100);
    assert.equal(response.status, 400, `${what}: ${response.text.slice(0, 300)}`);
    assert.ok(response.json.error.message.length > 20, what);
    assert.match(response.json.error.param, /json_schema|response_format/, what);
  }
  assert.equal((await server.client.get('/health')).status, 200);
});

test('a grammar with a fault is refused, and a good one is kept', async () => {
  for (const grammar of ['root ::= missing', 'other ::= "a"', 'root ::= root "a"', '%llguidance {}']) {
    const response = await server.client.post('/v1/completions', { prompt: 'x', grammar, max_tokens: 4 });
    assert.equal(response.status, 400, `${grammar}: ${response.text}`);
    assert.equal(response.json.error.param, 'grammar');
  }
  const kept = await server.client.complete({ prompt: 'x', grammar: 'root ::= [0-9]{3} "-" ("a" | "b")', temperature: 2, seed: 9, max_tokens: 40 });
  assert.match(kept.choices[0].text, /^[0-9]{3}-[ab]$/);
  assert.equal(kept.choices[0].finish_reason, 'stop');
});
