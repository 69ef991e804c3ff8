// What binds a reply beside a schema: tools and a schema together, a named tool, and the fields of vLLM and SGLang.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { smallModel } from './lib/models.js';
import { serve } from './lib/server.js';

let server;
let client;

before(async () => {
  server = await serve({ model: smallModel('llama'), models: { n_seq_max: 4, context_window: 4096 } });
  client = server.client;
});
after(() => server.stop());

const user = (content) => ({ role: 'user', content });
const messages = [user('How is the weather in Bonn?')];
const tool = (name) => ({
  type: 'function',
  function: { name, description: 'Looks.', parameters: { type: 'object', properties: { place: { enum: ['Bonn', 'Ulm'] } }, required: ['place'], additionalProperties: false } },
});
const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'], additionalProperties: false };
const format = { type: 'json_schema', json_schema: { name: 'it', schema, strict: true } };

const isText = (text) => typeof JSON.parse(text).ok === 'boolean';
const isCall = (call) => call.function.name === 'look' && ['Bonn', 'Ulm'].includes(JSON.parse(call.function.arguments).place);

describe('tools beside a schema', () => {
  test('a reply is a call or text of the schema, and both occur', async () => {
    const kinds = new Set();
    for (let seed = 1; seed <= 40; seed++) {
      const [choice] = (await client.chat({ messages, tools: [tool('look')], response_format: format, temperature: 1.5, seed, max_tokens: 400 })).choices;
      const { content, tool_calls: calls } = choice.message;
      kinds.add(calls ? 'call' : 'text');
      if (choice.finish_reason === 'length') continue; // this model likes long names
      if (calls) {
        assert.equal(choice.finish_reason, 'tool_calls', JSON.stringify(choice));
        assert.equal(content, null);
        assert.ok(calls.every(isCall), JSON.stringify(calls));
      } else {
        assert.equal(choice.finish_reason, 'stop', JSON.stringify(choice));
        assert.ok(isText(content), content);
      }
    }
    assert.deepEqual([...kinds].sort(), ['call', 'text']);
  });

  test('a stream has the same pieces', async () => {
    for (let seed = 1; seed <= 12; seed++) {
      const body = { messages, tools: [tool('look')], response_format: format, temperature: 1.5, seed, max_tokens: 400 };
      const [whole] = (await client.chat(body)).choices;
      const stream = await client.streamed('/v1/chat/completions', body);
      const deltas = stream.chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.delta);
      assert.equal(deltas.map((delta) => delta.content ?? '').join(''), whole.message.content ?? '');
      const args = deltas.flatMap((delta) => delta.tool_calls ?? []).map((call) => call.function.arguments ?? '').join('');
      assert.equal(args, (whole.message.tool_calls ?? []).map((call) => call.function.arguments).join(''));
    }
  });

  test('"required" and a named tool leave a call only; "none" leaves text only', async () => {
    for (const choice of ['required', { type: 'function', function: { name: 'look' } }]) {
      const json = await client.chat({ messages, tools: [tool('look'), tool('rest')], tool_choice: choice, response_format: format, max_tokens: 400 });
      const [{ message }] = json.choices;
      assert.ok(message.tool_calls?.length >= 1 && message.content === null, JSON.stringify(json));
    }
    const json = await client.chat({ messages, tools: [tool('look')], tool_choice: 'none', response_format: format, max_tokens: 400 });
    assert.ok(isText(json.choices[0].message.content));
  });

  test('the same through responses', async () => {
    const ask = (choice) => client.ask('/v1/responses', {
      input: 'How is the weather?', tools: [{ type: 'function', name: 'look', parameters: tool('look').function.parameters }], tool_choice: choice,
      text: { format: { type: 'json_schema', name: 'it', schema } }, max_output_tokens: 400, temperature: 1.5,
    });
    const required = await ask('required');
    assert.ok(required.output.some((item) => item.type === 'function_call'), JSON.stringify(required.output));
    const either = await ask('auto');
    const call = either.output.find((item) => item.type === 'function_call');
    if (!call) assert.ok(isText(either.output.find((item) => item.type === 'message').content[0].text));
  });
});

test('a named tool is called once, also where several calls are allowed', async () => {
  for (let seed = 1; seed <= 12; seed++) {
    const json = await client.chat({
      messages, tools: [tool('look'), tool('rest')], tool_choice: { type: 'function', function: { name: 'look' } }, parallel_tool_calls: true,
      temperature: 1.5, seed, max_tokens: 400,
    });
    const [{ message, finish_reason: reason }] = json.choices;
    assert.equal(message.tool_calls.length, 1, JSON.stringify(message));
    assert.equal(message.tool_calls[0].function.name, 'look');
    if (reason !== 'length') assert.ok(isCall(message.tool_calls[0]), JSON.stringify(message));
  }
});

describe("vLLM's and SGLang's fields", () => {
  const asks = {
    chat: async (fields) => (await client.chat({ messages, max_tokens: 200, temperature: 1.5, ...fields })).choices[0].message.content,
    completion: async (fields) => (await client.complete({ prompt: 'It is', max_tokens: 200, temperature: 1.5, ...fields })).choices[0].text,
  };
  const date = '\\d{4}-\\d{2}-\\d{2}';
  const isDate = (text) => /^\d{4}-\d{2}-\d{2}$/.test(text);
  const odd = ['yes?', 'no (never)', 'a"b\\c', '[x]{2}'];
  const gbnf = 'root ::= "up" | "down"';
  const cases = [
    ['structured_outputs.regex', { structured_outputs: { regex: date } }, isDate],
    ['structured_outputs.choice', { structured_outputs: { choice: odd } }, (text) => odd.includes(text)],
    ['structured_outputs.json', { structured_outputs: { json: schema } }, isText],
    ['structured_outputs.json as text', { structured_outputs: { json: JSON.stringify(schema) } }, isText],
    ['structured_outputs.grammar', { structured_outputs: { grammar: gbnf } }, (text) => ['up', 'down'].includes(text)],
    ['structured_outputs.json_object', { structured_outputs: { json_object: true } }, (text) => typeof JSON.parse(text) === 'object'],
    ['guided_regex', { guided_regex: `^${date}$` }, isDate],
    ['guided_regex with alternatives', { guided_regex: '(?:ab|c)+|\\n{2}|"[^"]{1,3}"' }, (text) => /^(?:(?:ab|c)+|\n{2}|"[^"]{1,3}")$/u.test(text)],
    ['guided_choice', { guided_choice: odd }, (text) => odd.includes(text)],
    ['guided_json', { guided_json: schema }, isText],
    ['guided_grammar', { guided_grammar: gbnf }, (text) => ['up', 'down'].includes(text)],
    ['regex', { regex: date }, isDate],
    ['ebnf', { ebnf: gbnf }, (text) => ['up', 'down'].includes(text)],
  ];
  for (const [name, fields, fits] of cases) {
    test(name, async () => {
      for (const [route, ask] of Object.entries(asks)) {
        for (let seed = 1; seed <= 3; seed++) {
          const text = await ask({ ...fields, seed });
          assert.ok(fits(text), `${route}: ${JSON.stringify(text)}`);
        }
      }
    });
  }

  const refused = [
    [{ guided_regex: '(a' }, 'guided_regex'],
    [{ guided_regex: '(a)\\1' }, 'guided_regex'],
    [{ guided_regex: 7 }, 'guided_regex'],
    [{ guided_choice: [] }, 'guided_choice'],
    [{ guided_choice: ['a', 7] }, 'guided_choice'],
    [{ guided_json: 'not JSON' }, 'guided_json'],
    [{ regex: `${'a'.repeat(70000)}` }, 'regex'],
    [{ structured_outputs: 'x' }, 'structured_outputs'],
    [{ structured_outputs: { regex: 'a', choice: ['b'] } }, 'structured_outputs'],
    [{ structured_outputs: { structural_tag: '{}' } }, 'structured_outputs.structural_tag'],
  ];
  for (const [fields, param] of refused) {
    test(`refused: ${JSON.stringify(fields).slice(0, 60)}`, async () => {
      const { status, json } = await client.post('/v1/chat/completions', { messages, max_tokens: 4, ...fields });
      assert.equal(status, 400);
      assert.equal(json.error.param, param, JSON.stringify(json));
    });
  }
});
