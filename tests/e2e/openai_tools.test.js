// The official OpenAI client: tools, structured output, reasoning, logprobs. The demo model knows tools; where it
// must do what it was not trained for, tool_choice and schemas steer it.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import OpenAI, { BadRequestError } from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { serve } from './lib/server.js';

let server;
let openai;

before(async () => {
  server = await serve({ models: { n_seq_max: 4, context_window: 2048 } });
  openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});

after(() => server.stop());

const user = (content) => ({ role: 'user', content });
const weather = {
  type: 'function',
  function: {
    name: 'get_weather', description: 'Weather of a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const clock = {
  type: 'function',
  function: {
    name: 'get_time', description: 'Time in a zone',
    parameters: { type: 'object', properties: { zone: { enum: ['UTC', 'CET'] } }, required: ['zone'], additionalProperties: false },
  },
};
const ask = (body) => openai.chat.completions.create({ model: 'demo', temperature: 0, max_tokens: 200, ...body });
const question = [user('What is the weather in Lisbon?')];

test('the model calls a tool, is given its result and uses it', async () => {
  const first = await ask({ messages: question, tools: [weather] });
  const [choice] = first.choices;
  assert.equal(choice.finish_reason, 'tool_calls');
  assert.equal(choice.message.content, null);
  const [call] = choice.message.tool_calls;
  assert.equal(call.type, 'function');
  assert.ok(call.id.length > 8);
  assert.equal(call.function.name, 'get_weather');
  assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Lisbon' });

  const second = await ask({
    messages: [...question, choice.message, { role: 'tool', tool_call_id: call.id, content: '{"weather":"snow"}' }],
    tools: [weather],
  });
  assert.equal(second.choices[0].finish_reason, 'stop');
  assert.match(second.choices[0].message.content, /\S/);
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens,
    'the call, as the template writes it, is what the model wrote');
});

test('a streamed call comes in deltas with its index, its name once, and the same arguments', async () => {
  const stream = openai.chat.completions.stream({ model: 'demo', temperature: 0, messages: question, tools: [weather] });
  const names = [];
  for await (const chunk of stream) {
    for (const call of chunk.choices[0]?.delta.tool_calls ?? []) {
      assert.equal(call.index, 0);
      if (call.function.name) names.push([call.id.length > 8, call.type, call.function.name]);
    }
    assert.ok(!/tool_call/.test(chunk.choices[0]?.delta.content ?? ''), 'no marker shows in the content');
  }
  assert.deepEqual(names, [[true, 'function', 'get_weather']]);
  const final = await stream.finalChatCompletion();
  assert.deepEqual(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments), { city: 'Lisbon' });
  assert.equal(final.choices[0].finish_reason, 'tool_calls');
});

test('tool_choice decides whether and which', async () => {
  const none = await ask({ messages: question, tools: [weather], tool_choice: 'none' });
  assert.equal(none.choices[0].message.tool_calls, undefined);
  const required = await ask({ messages: question, tools: [weather, clock], tool_choice: 'required' });
  assert.ok(required.choices[0].message.tool_calls.length >= 1);
  const named = await ask({
    messages: question, tools: [weather, clock], tool_choice: { type: 'function', function: { name: 'get_time' } },
  });
  assert.equal(named.choices[0].message.tool_calls[0].function.name, 'get_time');
  assert.ok(['UTC', 'CET'].includes(JSON.parse(named.choices[0].message.tool_calls[0].function.arguments).zone));
});

const shell = { type: 'custom', custom: { name: 'shell', description: 'Runs a command' } };
const digits = { type: 'custom', custom: { name: 'digits', format: { type: 'grammar', grammar: { syntax: 'regex', definition: '[0-9]{3}' } } } };

test('a custom tool is called with a text, whole and streamed, and the conversation goes on behind it', async () => {
  const forced = { messages: question, tools: [weather, digits, shell], tool_choice: { type: 'custom', custom: { name: 'digits' } } };
  const first = await ask(forced);
  const [call] = first.choices[0].message.tool_calls;
  assert.equal(first.choices[0].finish_reason, 'tool_calls');
  assert.equal(call.type, 'custom');
  assert.equal(call.custom.name, 'digits');
  assert.match(call.custom.input, /^[0-9]{3}$/);

  const stream = await ask({ ...forced, stream: true }); // the library's stream() knows functions alone
  const seen = { name: '', input: '' };
  for await (const chunk of stream) {
    for (const delta of chunk.choices[0]?.delta.tool_calls ?? []) {
      seen.name += delta.custom.name ?? '';
      seen.input += delta.custom.input ?? '';
    }
  }
  assert.deepEqual(seen, { name: 'digits', input: call.custom.input });

  const second = await ask({
    messages: [...question, first.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'fine' }],
    tools: forced.tools, tool_choice: 'none',
  });
  assert.match(second.choices[0].message.content, /\S/);
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens);
  const free = await ask({ messages: question, tools: [shell], tool_choice: 'required', max_tokens: 60 });
  assert.equal(free.choices[0].message.tool_calls[0].custom.name, 'shell');
  await assert.rejects(ask({ messages: question, tools: [{ type: 'custom', custom: {} }] }),
    (error) => error instanceof BadRequestError && error.param === 'tools[0].custom.name');
});

test('without parallel calls there is one', async () => {
  const reply = await ask({ messages: question, tools: [weather], tool_choice: 'required', parallel_tool_calls: false });
  assert.equal(reply.choices[0].message.tool_calls.length, 1);
});

test('the set of tools may be chosen from without losing the shared prefix', async () => {
  const messages = [user('What is the weather in Oslo?')];
  const first = await ask({ messages, tools: [weather, clock] });
  const second = await ask({
    messages, tools: [weather, clock], tool_choice: { type: 'function', function: { name: 'get_time' } },
  });
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 1);
});

test('some of the tools may be allowed, without losing the shared prefix either', async () => {
  const messages = [user('What is the weather in Bergen?')];
  const tools = [weather, clock];
  const choice = (mode, ...names) => ({
    type: 'allowed_tools', allowed_tools: { mode, tools: names.map((name) => ({ type: 'function', function: { name } })) },
  });
  const first = await ask({ messages, tools });
  const forced = await ask({ messages, tools, tool_choice: choice('required', 'get_time'), parallel_tool_calls: false });
  assert.ok(forced.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 1);
  assert.deepEqual(forced.choices[0].message.tool_calls.map((call) => call.function.name), ['get_time']);
  const free = await ask({ messages, tools, tool_choice: choice('auto', 'get_weather', 'get_time') });
  assert.deepEqual(free.choices[0].message.tool_calls?.map((call) => call.function), first.choices[0].message.tool_calls.map((call) => call.function));
  await assert.rejects(ask({ messages, tools, tool_choice: choice('auto', 'nothing') }), (e) => e.status === 400 && e.param === 'tool_choice');
});

test('functions are called as OpenAI had it before there were tools', async () => {
  const functions = [weather.function];
  const { choices: [first] } = await ask({ messages: question, functions });
  assert.equal(first.finish_reason, 'function_call');
  assert.equal(first.message.tool_calls, undefined);
  assert.equal(first.message.function_call.name, 'get_weather');
  assert.deepEqual(JSON.parse(first.message.function_call.arguments), { city: 'Lisbon' });

  const history = [...question, first.message, { role: 'function', name: 'get_weather', content: '{"weather": "rain"}' }];
  const second = await ask({ messages: history, functions });
  assert.equal(second.choices[0].finish_reason, 'stop');
  assert.match(second.choices[0].message.content, /rain/);

  const deltas = [];
  for await (const chunk of await ask({ messages: question, functions, stream: true })) deltas.push(...chunk.choices);
  const calls = deltas.map((choice) => choice.delta.function_call).filter((call) => call);
  assert.deepEqual(calls.map((call) => call.name).filter((name) => name), ['get_weather']);
  assert.equal(calls.map((call) => call.arguments).join(''), first.message.function_call.arguments);
  assert.equal(deltas.at(-1).finish_reason, 'function_call');

  const none = await ask({ messages: question, functions, function_call: 'none' });
  assert.equal(none.choices[0].message.function_call, undefined);
  const named = await ask({ messages: [user('Who are you?')], functions: [...functions, clock.function], function_call: { name: 'get_time' } });
  assert.equal(named.choices[0].message.function_call.name, 'get_time');
});

test('history takes content that is null, missing, a string or parts, and arguments as text or as an object', async () => {
  const call = (args) => [{ id: 'c1', type: 'function', function: { name: 'get_weather', arguments: args } }];
  const histories = [
    [{ role: 'assistant', content: null, tool_calls: call('{"city":"Lisbon"}') }, { role: 'tool', tool_call_id: 'c1', content: 'rain' }],
    [{ role: 'assistant', tool_calls: call({ city: 'Lisbon' }) }, { role: 'tool', tool_call_id: 'c1', content: [{ type: 'text', text: 'rain' }] }],
    [{ role: 'assistant', content: '', tool_calls: call('{}') }, { role: 'tool', tool_call_id: 'c1', content: null }],
    [{ role: 'assistant', content: [{ type: 'text', text: 'Let me see.' }], tool_calls: call('{"city":"Lisbon"}') },
      { role: 'tool', tool_call_id: 'c1' }],
  ];
  for (const history of histories) {
    const reply = await ask({ messages: [...question, ...history], tools: [weather], max_tokens: 8 });
    assert.ok(reply.choices[0].message.content?.length > 0 || reply.choices[0].message.tool_calls);
  }
});

test('a wrong tool is a bad request that names it', async () => {
  const rows = [
    [{ tools: [{ type: 'function', function: {} }] }, /tools\[0\]\.function\.name/],
    [{ tools: [weather], tool_choice: { type: 'function', function: { name: 'nothing' } } }, /tool_choice/],
    [{ tools: [weather], tool_choice: 'perhaps' }, /tool_choice/],
  ];
  for (const [body, pattern] of rows) {
    await assert.rejects(ask({ messages: question, ...body }), (error) => {
      assert.ok(error instanceof BadRequestError, String(error));
      assert.match(error.message + error.param, pattern);
      return true;
    });
  }
});

const Person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(99), tags: z.array(z.enum(['a', 'b'])).max(2) });

test('structured output parses into the type it was asked for', async () => {
  const reply = await openai.chat.completions.parse({
    model: 'demo', messages: [user('Who are you?')], temperature: 0.8, seed: 3, max_tokens: 300,
    response_format: zodResponseFormat(Person, 'person'),
  });
  const { parsed } = reply.choices[0].message;
  assert.equal(reply.choices[0].finish_reason, 'stop');
  assert.ok(Person.safeParse(parsed).success, JSON.stringify(parsed));
});

test('a streamed structured output is the same kind of text', async () => {
  const stream = openai.chat.completions.stream({
    model: 'demo', messages: [user('Who are you?')], temperature: 0.8, seed: 4, max_tokens: 300,
    response_format: zodResponseFormat(Person, 'person'),
  });
  const final = await stream.finalChatCompletion();
  assert.ok(Person.safeParse(final.choices[0].message.parsed).success);
});

test('json_object is any object; text is text', async () => {
  const object = await ask({ messages: [user('Who are you?')], response_format: { type: 'json_object' }, temperature: 1, seed: 5, max_tokens: 400 });
  if (object.choices[0].finish_reason === 'stop') assert.equal(typeof JSON.parse(object.choices[0].message.content), 'object');
  else assert.match(object.choices[0].message.content, /^\s*\{/);
  const text = await ask({ messages: [user('Who are you?')], response_format: { type: 'text' } });
  assert.doesNotMatch(text.choices[0].message.content, /^\{/);
});

test('logprobs come with the whole reply, and with each delta but the last', async () => {
  const reply = await ask({ messages: [user('Who are you?')], logprobs: true, top_logprobs: 3, max_tokens: 12 });
  const { content } = reply.choices[0].logprobs;
  assert.equal(content.map((c) => c.token).join(''), reply.choices[0].message.content);
  for (const token of content) {
    assert.ok(token.logprob <= 0);
    assert.equal(Buffer.from(token.bytes).toString(), token.token);
    assert.equal(token.top_logprobs.length, 3);
    assert.ok(token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob);
    assert.equal(token.top_logprobs[0].token, token.token, 'greedy takes the likeliest');
    const sum = token.top_logprobs.reduce((total, top) => total + Math.exp(top.logprob), 0);
    assert.ok(sum <= 1 + 1e-6);
  }
  const streamed = [];
  let last;
  for await (const chunk of await ask({ messages: [user('Who are you?')], logprobs: true, max_tokens: 12, stream: true })) {
    if (!chunk.choices.length) continue;
    last = chunk.choices[0];
    streamed.push(...last.logprobs?.content ?? []);
  }
  assert.equal(last.logprobs, null);
  assert.deepEqual(streamed.map((c) => c.token), content.map((c) => c.token));
});

test('more than a hundred likeliest are refused', async () => {
  await assert.rejects(ask({ messages: question, logprobs: true, top_logprobs: 101 }), /top_logprobs/);
});

test('the last message of the assistant is gone on with', async () => {
  const whole = await ask({ messages: [user('Who are you?')] });
  const text = whole.choices[0].message.content;
  const start = text.split(' ').slice(0, 2).join(' ');
  const rest = await ask({ messages: [user('Who are you?'), { role: 'assistant', content: start }] });
  assert.equal(start + rest.choices[0].message.content, text);
});
