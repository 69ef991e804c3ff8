// The official OpenAI client's Responses against the demo model.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import OpenAI, { BadRequestError, NotFoundError } from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { serve } from './lib/server.js';

let server;
let openai;

before(async () => {
  server = await serve({ set: { 'server.any_model_name': false }, models: { n_seq_max: 4, context_window: 2048 } });
  openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});

after(() => server.stop());

const weather = {
  type: 'function',
  name: 'get_weather',
  description: 'Weather of a city',
  strict: true,
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
};
const question = [{ role: 'user', content: 'What is the weather in Lisbon?' }];
const body = (more) => ({ model: 'demo', temperature: 0, max_output_tokens: 200, input: 'Who are you?', ...more });
const ask = (more) => openai.responses.create(body(more));

test('a conversation is compacted: the user\'s messages and a summary stand for it', async () => {
  const first = await ask({ input: 'My name is Ottilie.' });
  const compacted = await openai.responses.compact({ model: 'demo', previous_response_id: first.id, input: 'Who are you?' });
  assert.match(compacted.id, /^resp_/);
  assert.equal(compacted.object, 'response.compaction');
  assert.deepEqual(compacted.output.map((item) => item.type), ['message', 'message', 'compaction']);
  assert.deepEqual(compacted.output.slice(0, 2).map((item) => [item.role, item.content[0].text]),
    [['user', 'My name is Ottilie.'], ['user', 'Who are you?']]);
  assert.ok(compacted.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens, 'the conversation is in the cache');
  const next = [{ role: 'user', content: 'What is my name?' }];
  const { usage: whole, status } = await ask({ input: [...compacted.output, ...next] });
  assert.equal(status, 'completed');
  const { usage: without } = await ask({ input: [...compacted.output.slice(0, 2), ...next] });
  assert.ok(whole.input_tokens > without.input_tokens, 'the summary is in the prompt');
  await assert.rejects(openai.responses.compact({ model: 'demo' }), (e) => e instanceof BadRequestError && e.param === 'input');
});

test('a response has the fields of the API', async () => {
  const response = await ask({ instructions: 'Be brief.', metadata: { of: 'test' } });
  assert.match(response.id, /^resp_/);
  assert.equal(response.object, 'response');
  assert.equal(response.status, 'completed');
  assert.equal(response.model, 'demo');
  assert.ok(Math.abs(response.created_at - Date.now() / 1000) < 600);
  assert.equal(response.error, null);
  assert.equal(response.incomplete_details, null);
  assert.equal(response.instructions, 'Be brief.');
  assert.deepEqual(response.metadata, { of: 'test' });
  assert.equal(response.temperature, 0);
  assert.deepEqual(response.output.map((item) => item.type), ['message']);
  assert.deepEqual(response.output[0].content.map((part) => part.type), ['output_text']);
  assert.ok(response.output_text.length > 5);
  const { usage } = response;
  assert.ok(usage.input_tokens > 5 && usage.output_tokens > 1);
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
});

test('the conversation goes on with the items of the last response, from the cache', async () => {
  const input = [{ role: 'user', content: 'My name is Ottilie.' }];
  const first = await ask({ input });
  input.push(...first.output, { role: 'user', content: [{ type: 'input_text', text: 'What is my name?' }] });
  const second = await ask({ input });
  assert.match(second.output_text, /Ottilie/);
  assert.ok(second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens);
});

test('a stream says the same as a whole response, and its events fit each other', async () => {
  for (const more of [{}, { input: question, tools: [weather] }]) {
    const whole = await ask(more);
    const stream = openai.responses.stream(body(more));
    const events = [];
    for await (const event of stream) events.push(event);
    const final = await stream.finalResponse();
    assert.deepEqual(events.slice(0, 3).map((event) => event.type),
      ['response.created', 'response.in_progress', 'response.output_item.added']);
    assert.equal(events.at(-1).type, 'response.completed');
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
    const deltas = events.filter((event) => event.type.endsWith('.delta')).map((event) => event.delta).join('');
    assert.equal(final.output_text, whole.output_text);
    assert.equal(deltas, final.output_text || final.output[0].arguments);
    const items = events.filter((event) => event.type === 'response.output_item.done').map((event) => event.item);
    assert.deepEqual(items, events.at(-1).response.output);
    const bare = ({ type, name, content, arguments: args, status }) => ({ type, name, text: content?.[0].text, args, status });
    assert.deepEqual(items.map(bare), whole.output.map(bare));
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
  }
});

test('max_output_tokens leaves a response incomplete', async () => {
  const response = await ask({ max_output_tokens: 2 });
  assert.equal(response.status, 'incomplete');
  assert.equal(response.incomplete_details.reason, 'max_output_tokens');
  assert.equal(response.usage.output_tokens, 2);
  const stream = openai.responses.stream(body({ max_output_tokens: 2 }));
  assert.equal((await stream.finalResponse()).status, 'incomplete');
});

test('a function is called, its output given, and used', async () => {
  const first = await ask({ input: question, tools: [weather] });
  const [call] = first.output;
  assert.equal(call.type, 'function_call');
  assert.equal(call.name, 'get_weather');
  assert.match(call.id, /^fc_/);
  assert.deepEqual(JSON.parse(call.arguments), { city: 'Lisbon' });
  const output = { type: 'function_call_output', call_id: call.call_id, output: '{"weather":"snow"}' };
  const second = await ask({ input: [...question, ...first.output, output], tools: [weather] });
  assert.match(second.output_text, /\S/);
  assert.ok(second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens,
    'the call, as the template writes it, is what the model wrote');
});

test('tool_choice decides whether a function is called, and which', async () => {
  const clock = {
    type: 'function', name: 'get_time', strict: true,
    parameters: { type: 'object', properties: { zone: { enum: ['UTC', 'CET'] } }, required: ['zone'], additionalProperties: false },
  };
  const required = await ask({ input: 'Say hello.', tools: [weather, clock], tool_choice: 'required', parallel_tool_calls: false });
  assert.equal(required.output.filter((item) => item.type === 'function_call').length, 1);
  const named = await ask({ input: question, tools: [weather, clock], tool_choice: { type: 'function', name: 'get_time' } });
  const call = named.output.find((item) => item.type === 'function_call');
  assert.equal(call.name, 'get_time');
  assert.ok(['UTC', 'CET'].includes(JSON.parse(call.arguments).zone));
  const none = await ask({ input: question, tools: [weather], tool_choice: 'none' });
  assert.deepEqual(none.output.map((item) => item.type), ['message']);
});

test('parse() gives an object of the schema', async () => {
  const format = zodTextFormat(z.object({ n: z.union([z.literal(1), z.literal(2)]) }), 'answer');
  const response = await openai.responses.parse(body({ text: { format } }));
  assert.ok([1, 2].includes(response.output_parsed.n));
  const any = await ask({ text: { format: { type: 'json_object' } } });
  if (any.status === 'completed') assert.equal(typeof JSON.parse(any.output_text), 'object');
});

// Both ways to go on with a conversation, with the same words in it.
test('previous_response_id goes on from a stored response, with the same tokens and from the cache', async () => {
  const first = await ask({ input: 'My name is Ottilie.' });
  const next = { role: 'user', content: 'What is my name?' };
  const sent = [{ role: 'user', content: 'My name is Ottilie.' }, ...first.output, next];
  const { input_tokens: expected } = await openai.responses.inputTokens.count({ model: 'demo', input: sent });
  const { input_tokens: counted } = await openai.responses.inputTokens.count({ model: 'demo', input: [next], previous_response_id: first.id });
  assert.equal(counted, expected, 'the prompt is the conversation');
  const second = await ask({ input: [next], previous_response_id: first.id });
  assert.equal(second.previous_response_id, first.id);
  assert.equal(second.usage.input_tokens, expected);
  assert.match(second.output_text, /Ottilie/);
  const { cached_tokens: cached } = second.usage.input_tokens_details;
  assert.ok(cached >= first.usage.total_tokens - 2, `${cached} of what was computed are cached, ${first.usage.total_tokens} were`);
  const stream = openai.responses.stream(body({ input: 'And again: what is my name?', previous_response_id: second.id }));
  const third = await stream.finalResponse();
  assert.match(third.output_text, /Ottilie/);
  assert.ok(third.usage.input_tokens_details.cached_tokens >= second.usage.total_tokens - 2);
  const kept = await openai.responses.retrieve(third.id);
  assert.deepEqual(kept.output.map((item) => item.id), third.output.map((item) => item.id));
  const items = [];
  for await (const item of openai.responses.inputItems.list(third.id, { limit: 2, order: 'asc' })) items.push(item);
  assert.deepEqual(items.map((item) => item.role), ['user', 'assistant', 'user', 'assistant', 'user']);
});

test('instructions hold for their own response alone', async () => {
  const first = await ask({ input: 'Who are you?', instructions: 'You are a pirate. '.repeat(20) });
  const second = await ask({ input: 'Really?', previous_response_id: first.id });
  assert.equal(second.instructions, null);
  assert.ok(second.usage.input_tokens < first.usage.input_tokens);
});

test('a chain that is longer than the window is told so', async () => {
  const input = 'word '.repeat(800);
  const first = await ask({ input, max_output_tokens: 1 });
  await assert.rejects(ask({ input, previous_response_id: first.id, max_output_tokens: 1 }).then((second) => ask({ input, previous_response_id: second.id })),
    (error) => error instanceof BadRequestError && error.code === 'context_length_exceeded' && error.param === 'input');
});

test('a stored response is shown and deleted', async () => {
  const response = await ask({ metadata: { of: 'test' }, truncation: 'auto', prompt_cache_key: 'session-1' });
  assert.equal(response.store, true);
  assert.equal(response.truncation, 'disabled');
  assert.deepEqual(await openai.responses.retrieve(response.id), response);
  await assert.rejects(openai.responses.cancel(response.id), BadRequestError);
  await openai.responses.delete(response.id);
  await assert.rejects(openai.responses.retrieve(response.id), NotFoundError);
  await assert.rejects(openai.responses.delete(response.id), NotFoundError);
  await assert.rejects(ask({ previous_response_id: response.id }), (error) => error instanceof BadRequestError
    && error.code === 'previous_response_not_found' && error.param === 'previous_response_id');
  const unkept = await ask({ store: false });
  assert.equal(unkept.store, false);
  await assert.rejects(openai.responses.retrieve(unkept.id), NotFoundError);
});

test('a conversation grows by its responses', async () => {
  const conversation = await openai.conversations.create({ metadata: { of: 'test' } });
  assert.deepEqual((await openai.conversations.retrieve(conversation.id)).metadata, { of: 'test' });
  await ask({ input: 'My name is Ottilie.', conversation: conversation.id });
  const second = await ask({ input: 'What is my name?', conversation: { id: conversation.id }, store: false });
  assert.match(second.output_text, /Ottilie/);
  assert.equal(second.conversation.id, conversation.id);
  const items = [];
  for await (const item of openai.conversations.items.list(conversation.id, { order: 'asc' })) items.push(item);
  assert.deepEqual(items.map((item) => item.role), ['user', 'assistant', 'user', 'assistant']);
  await openai.conversations.items.delete(items[0].id, { conversation_id: conversation.id });
  await openai.conversations.items.create(conversation.id, { items: [{ type: 'message', role: 'user', content: 'Bye.' }] });
  assert.equal((await openai.conversations.items.list(conversation.id)).data.length, 4);
  assert.equal((await openai.conversations.delete(conversation.id)).deleted, true);
  await assert.rejects(ask({ conversation: conversation.id }), BadRequestError);
});

test('a note stands for an image, and a conversation with one goes on', async () => {
  const input = [{ role: 'user', content: [{ type: 'input_image', image_url: 'data:image/png;base64,AA==' }, { type: 'input_text', text: 'What is this?' }] }];
  const said = [{ role: 'user', content: [{ type: 'input_text', text: '[image left out: this model takes text only]' }, { type: 'input_text', text: 'What is this?' }] }];
  const count = async (items) => (await openai.responses.inputTokens.count({ model: 'demo', input: items })).input_tokens;
  assert.equal(await count(input), await count(said));
  const first = await ask({ input });
  assert.equal(first.status, 'completed');
  const second = await ask({ input: 'Are you sure?', previous_response_id: first.id });
  assert.ok(second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens);
  await server.says(/left out what the model cannot be shown.* paths=input\[0\] count=1/);
});

test('tools that OpenAI runs are left out', async () => {
  const input = 'Who are you?';
  const plain = await ask({ input, temperature: 0 });
  const response = await ask({ input, temperature: 0, tools: [{ type: 'web_search' }, { type: 'image_generation' }], tool_choice: { type: 'web_search' } });
  assert.equal(response.usage.input_tokens, plain.usage.input_tokens);
  assert.equal(response.output_text, plain.output_text);
});

test('what is wrong is named as the client names it', async () => {
  const rows = [
    [{ temperature: 'hot' }, BadRequestError, 'temperature'],
    [{ max_output_tokens: 0 }, BadRequestError, 'max_output_tokens'],
    [{ input: [] }, BadRequestError, 'input'],
    [{ input: [{ type: 'item_reference', id: 'msg_1' }] }, BadRequestError, 'input[0].id'],
    [{ text: { format: { type: 'json_schema', name: 'n' } } }, BadRequestError, 'text.format.schema'],
    [{ model: 'gpt-17' }, NotFoundError, 'model'],
    [{ previous_response_id: 'resp_1' }, BadRequestError, 'previous_response_id'],
    [{ conversation: 'conv_1' }, BadRequestError, 'conversation'],
    [{ background: true }, BadRequestError, 'background'],
    [{ tools: [{ name: 'a' }] }, BadRequestError, 'tools[0].type'],
    [{ input: [{ role: 'user', content: [{ type: 'input_smell' }] }] }, BadRequestError, 'input[0].content[0].type'],
  ];
  for (const [more, kind, param] of rows) {
    for (const stream of [false, true]) {
      await assert.rejects(ask({ ...more, stream }), (error) => {
        assert.ok(error instanceof kind, `${JSON.stringify(more)}: ${error}`);
        assert.equal(error.param, param);
        assert.ok(error.message.includes(param));
        return true;
      });
    }
  }
});
