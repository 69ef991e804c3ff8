// The official Anthropic client against the demo model: what a program written for Anthropic's API sees of hearth.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import Anthropic, { APIError, BadRequestError, NotFoundError } from '@anthropic-ai/sdk';
import { serve } from './lib/server.js';

let server;
let anthropic;

before(async () => {
  server = await serve({ set: { 'server.any_model_name': false }, models: { n_seq_max: 4, context_window: 2048 } });
  anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
});

after(() => server.stop());

const user = (content) => ({ role: 'user', content });
const weather = {
  name: 'get_weather',
  description: 'Weather of a city',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};
const question = [user('What is the weather in Lisbon?')];
const body = (more) => ({ model: 'demo', max_tokens: 100, temperature: 0, messages: [user('Who are you?')], ...more });
const ask = (more) => anthropic.messages.create(body(more));
const prompt = (usage) => usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens;
const text = (message) => message.content.map((block) => block.text ?? '').join('');

test('a message has the fields of the API', async () => {
  const { message, request_id: id } = await anthropic.messages.create(body()).withResponse()
    .then(({ data, request_id }) => ({ message: data, request_id }));
  assert.match(message.id, /^msg_/);
  assert.match(id, /^req-/);
  assert.equal(message.type, 'message');
  assert.equal(message.role, 'assistant');
  assert.equal(message.model, 'demo');
  assert.deepEqual(message.content.map((block) => block.type), ['text']);
  assert.ok(message.content[0].text.length > 5);
  assert.equal(message.stop_reason, 'end_turn');
  assert.equal(message.stop_sequence, null);
  assert.ok(message.usage.output_tokens > 1);
});

test('what was cached, and what was computed and is kept, is not counted as input', async () => {
  const messages = [user('Tell me about the harbour of Lisbon.')];
  const { input_tokens: length } = await anthropic.messages.countTokens({ model: 'demo', messages });
  const first = (await ask({ messages })).usage;
  const second = (await ask({ messages })).usage;
  assert.ok(second.cache_read_input_tokens > first.cache_read_input_tokens);
  assert.ok(first.cache_creation_input_tokens > 0);
  assert.equal(first.cache_creation_input_tokens + first.cache_read_input_tokens, second.cache_read_input_tokens,
    'what was created is what the next one reads');
  assert.deepEqual([second.input_tokens, second.cache_creation_input_tokens], [1, 0]);
  for (const usage of [first, second]) assert.equal(prompt(usage), length);
  const apart = (await ask({ messages, cache_prompt: false })).usage;
  assert.deepEqual([apart.input_tokens, apart.cache_creation_input_tokens, apart.cache_read_input_tokens], [length, 0, 0]);
});

test('a stream says the same as a whole message', async () => {
  for (const more of [{}, { messages: question, tools: [weather] }]) {
    const whole = await ask(more);
    const stream = anthropic.messages.stream(body(more));
    const final = await stream.finalMessage();
    const ids = (content) => content.map((block) => ({ ...block, id: undefined }));
    assert.deepEqual(ids(final.content), ids(whole.content));
    assert.equal(final.stop_reason, whole.stop_reason);
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
    assert.equal(prompt(final.usage), prompt(whole.usage));
  }
});

test('the events of a stream come in their order', async () => {
  const events = [];
  for await (const event of await ask({ stream: true })) events.push(event);
  assert.deepEqual(events.slice(0, 2).map((event) => event.type), ['message_start', 'content_block_start']);
  assert.deepEqual(events.slice(-3).map((event) => event.type),
    ['content_block_stop', 'message_delta', 'message_stop']);
  assert.ok(events.slice(2, -3).every((event) => event.type === 'content_block_delta' && event.index === 0));
  const { usage } = events[0].message;
  assert.ok(prompt(usage) > 5, 'the first event knows the length of the prompt');
});

test('max_tokens and stop_sequences end a message and say so', async () => {
  const cut = await ask({ max_tokens: 2 });
  assert.equal(cut.stop_reason, 'max_tokens');
  assert.equal(cut.usage.output_tokens, 2);
  const whole = text(await ask());
  const word = whole.split(' ')[1];
  const stopped = await ask({ stop_sequences: ['never said', word] });
  assert.equal(stopped.stop_reason, 'stop_sequence');
  assert.equal(stopped.stop_sequence, word);
  assert.equal(text(stopped), whole.slice(0, whole.indexOf(word)));
});

test('an answer that was begun is gone on with', async () => {
  const whole = text(await ask());
  const start = whole.split(' ').slice(0, 2).join(' ');
  const rest = text(await ask({ messages: [user('Who are you?'), { role: 'assistant', content: start }] }));
  assert.equal(start + rest, whole);
});

test('the model calls a tool, is given its result and uses it', async () => {
  const first = await ask({ messages: question, tools: [weather] });
  assert.equal(first.stop_reason, 'tool_use');
  const call = first.content.at(-1);
  assert.equal(call.type, 'tool_use');
  assert.equal(call.name, 'get_weather');
  assert.deepEqual(call.input, { city: 'Lisbon' });
  const second = await ask({
    messages: [...question, { role: 'assistant', content: first.content }, user([
      { type: 'tool_result', tool_use_id: call.id, content: [{ type: 'text', text: '{"weather":"snow"}' }] },
    ])],
    tools: [weather],
  });
  assert.equal(second.stop_reason, 'end_turn');
  assert.match(text(second), /\S/);
  assert.ok(second.usage.cache_read_input_tokens > 0);
});

test('tool_choice makes the model call a tool that fits its schema', async () => {
  const clock = {
    name: 'get_time',
    input_schema: { type: 'object', properties: { zone: { enum: ['UTC', 'CET'] } }, required: ['zone'], additionalProperties: false },
  };
  const any = await ask({ messages: [user('Say hello.')], tools: [weather, clock], tool_choice: { type: 'any' } });
  assert.ok(any.content.some((block) => block.type === 'tool_use'));
  const named = await ask({
    messages: question, tools: [weather, clock],
    tool_choice: { type: 'tool', name: 'get_time', disable_parallel_tool_use: true },
  });
  const calls = named.content.filter((block) => block.type === 'tool_use');
  assert.deepEqual(calls.map((block) => block.name), ['get_time']);
  assert.ok(['UTC', 'CET'].includes(calls[0].input.zone));
  const none = await ask({ messages: question, tools: [weather], tool_choice: { type: 'none' } });
  assert.ok(none.content.every((block) => block.type === 'text'));
});

test('a call that was cut off still has an object as its input', async () => {
  const message = await ask({ messages: question, tools: [weather], tool_choice: { type: 'any' }, max_tokens: 18 });
  assert.equal(message.stop_reason, 'max_tokens');
  for (const block of message.content) if (block.type === 'tool_use') assert.equal(typeof block.input, 'object');
});

test('an answer can be made to fit a schema', async () => {
  const schema = { type: 'object', properties: { n: { enum: [1, 2] } }, required: ['n'], additionalProperties: false };
  const message = await ask({ output_config: { format: { type: 'json_schema', schema } } });
  assert.ok([1, 2].includes(JSON.parse(text(message)).n));
});

test('a thread is refused in the words by which SDKs send the whole conversation instead', async () => {
  for (const thread of [{ type: 'create' }, { type: 'continue', previous_message_id: 'msg_1' }]) {
    const { status, json } = await server.client.post('/v1/messages', { model: 'demo', max_tokens: 8, messages: [{ role: 'user', content: 'Hi' }], thread });
    assert.equal(status, 400);
    assert.deepEqual(json.error.details, { error_code: 'thread_unsupported_request', unsupported: ['thread'] });
  }
});

test('tokens can be counted beforehand', async () => {
  const request = { model: 'demo', system: 'Be brief.', messages: question, tools: [weather] };
  const { input_tokens: counted } = await anthropic.messages.countTokens(request);
  const { usage } = await ask(request);
  assert.equal(counted, prompt(usage));
});

test('a coding agent\'s billing header, which changes with each conversation, does not break the prefix', async () => {
  const system = (version, stamp, rest) => [
    { type: 'text', text: `x-anthropic-billing-header: cc_version=2.1.197.${version}; cc_entrypoint=cli; cch=${stamp};` },
    { type: 'text', text: rest, cache_control: { type: 'ephemeral' } },
  ];
  const rest = 'You are an agent that writes programs. '.repeat(20);
  const first = await ask({ system: system('7a9', 'a5145', rest) });
  const second = await ask({ system: system('94d', '0f3e2', rest) });
  const length = prompt(first.usage);
  assert.equal(second.usage.cache_read_input_tokens, length - 1, 'all but the token that is always computed');
});

test('models are listed as Anthropic lists them', async () => {
  const listed = [];
  for await (const model of anthropic.models.list()) listed.push(model);
  assert.deepEqual(listed.map(({ type, id, display_name: name }) => [type, id, name]), [['model', 'demo', 'demo']]);
  assert.deepEqual(await anthropic.models.retrieve('demo'), listed[0]);
  assert.ok(Math.abs(Date.parse(listed[0].created_at) - Date.now()) < 600_000);
});

test('the beta client, which adds a query and headers, is answered too', async () => {
  const message = await anthropic.beta.messages.create({ ...body(), betas: ['interleaved-thinking-2025-05-14'] });
  assert.equal(text(message), text(await ask()));
  const { input_tokens: counted } = await anthropic.beta.messages.countTokens({ model: 'demo', messages: question });
  assert.ok(counted > 5);
});

test('thoughts and marks of caching in the history are taken', async () => {
  const message = await ask({
    messages: [user([{ type: 'text', text: 'Hello', cache_control: { type: 'ephemeral' } }]), {
      role: 'assistant',
      content: [{ type: 'thinking', thinking: 'A greeting.', signature: '' }, { type: 'redacted_thinking', data: 'x' },
        { type: 'text', text: 'Hello!' }],
    }, user('Who are you?')],
    thinking: { type: 'enabled', budget_tokens: 1024 }, metadata: { user_id: 'u' },
  });
  assert.ok(message.usage.output_tokens > 1);
});

test('a note stands for an image in the history, and for one that a tool gave', async () => {
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } };
  const note = { type: 'text', text: '[image left out: this model takes text only]' };
  const conversation = (picture) => [user([picture, { type: 'text', text: 'What is this?' }]),
    { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name: 'look', input: {} }] },
    user([{ type: 'tool_result', tool_use_id: 't1', content: [{ type: 'text', text: 'here' }, picture] }])];
  const count = async (messages) => (await anthropic.messages.countTokens({ model: 'demo', messages })).input_tokens;
  assert.equal(await count(conversation(image)), await count(conversation(note)));
  const { data: first, response } = await anthropic.messages.create({ model: 'demo', max_tokens: 8, messages: conversation(image) }).withResponse();
  assert.ok(first.usage.output_tokens > 0);
  assert.equal(response.headers.get('x-hearth-left-out'), 'messages[0].content[0], messages[2].content[0].content[1]');
  assert.equal(first.usage.left_out, 2);
  const second = await ask({ messages: [...conversation(image), { role: 'assistant', content: first.content }, user('Well?')] });
  assert.ok(second.usage.cache_read_input_tokens >= prompt(first.usage) - 2);
});

test('tools of Anthropic\'s servers are left out, and the conversation goes on', async () => {
  const message = await ask({ tools: [{ type: 'web_search_20250305', name: 'web_search' }] });
  assert.deepEqual(message.content, (await ask()).content);
});

test('errors are the client\'s own classes and say which field is wrong', async () => {
  const rows = [
    [{ temperature: 'hot' }, BadRequestError, 'invalid_request_error', /temperature/],
    [{ stop_sequences: 'x' }, BadRequestError, 'invalid_request_error', /stop_sequences/],
    [{ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, BadRequestError, 'invalid_request_error', /messages\[0\]\.content\[0\]\.text/],
    [{ messages: [user('word '.repeat(3000))] }, BadRequestError, 'invalid_request_error', /2048/],
    [{ model: 'claude-17' }, NotFoundError, 'not_found_error', /claude-17/],
    [{ messages: [user([{ type: 'smell' }])] }, BadRequestError, 'invalid_request_error', /messages\[0\]\.content\[0\]\.type/],
    [{ container: 'c' }, BadRequestError, 'invalid_request_error', /container/],
  ];
  for (const [more, kind, type, message] of rows) {
    for (const stream of [false, true]) {
      await assert.rejects(ask({ ...more, stream }), (error) => {
        assert.ok(error instanceof kind && error instanceof APIError, `${JSON.stringify(more).slice(0, 80)}: ${error}`);
        assert.equal(error.error.type, 'error');
        assert.equal(error.type, type);
        assert.match(error.error.error.message, message);
        return true;
      });
    }
  }
});
