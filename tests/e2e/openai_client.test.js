// The official OpenAI client against the demo model: what a program written for OpenAI's API sees of hearth.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import OpenAI, { APIUserAbortError, BadRequestError, NotFoundError } from 'openai';
import { serve } from './lib/server.js';
import { tokens } from './lib/wait.js';

let server;
let openai;

before(async () => {
  server = await serve({ set: { 'server.any_model_name': false }, models: { n_seq_max: 4, context_window: 1024 } });
  openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});

after(() => server.stop());

const user = (content) => ({ role: 'user', content });
const system = (content) => ({ role: 'system', content });
const assistant = (content) => ({ role: 'assistant', content });
const chat = (messages, more) => openai.chat.completions.create({ model: 'demo', messages, temperature: 0, ...more });
const complete = (prompt, more) => openai.completions.create({ model: 'demo', prompt, temperature: 0, ...more });

const prompt = '<|im_start|>user\nMy name is Ottilie.<|im_end|>\n<|im_start|>assistant\n';

async function all(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

// A name told two turns ago.
async function introduced(name) {
  const hello = user(`My name is ${name}.`);
  const reply = await chat([hello]);
  return [hello, assistant(reply.choices[0].message.content), user('What is my name?')];
}

test('a note stands for images, sounds and files; media: refuse makes them an error', async (t) => {
  const parts = [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
    { type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } }, { type: 'file', file: { file_data: 'AA==', filename: 'a.pdf' } }];
  const names = ['image', 'audio', 'document'];
  for (const [i, part] of parts.entries()) {
    const say = (content) => ({ model: 'demo', temperature: 0, max_tokens: 8, messages: [{ role: 'user', content }] });
    const { data: seen, response } = await openai.chat.completions.create(say([part])).withResponse();
    assert.equal(response.headers.get('x-hearth-left-out'), 'messages[0].content[0]', names[i]);
    assert.equal(seen.usage.left_out, 1, names[i]);
    const said = await openai.chat.completions.create(say(`[${names[i]} left out: this model takes text only]`));
    assert.equal(said.usage.left_out, undefined, names[i]);
    const chunks = [];
    for await (const chunk of await openai.chat.completions.create({ ...say([part]), stream: true, stream_options: { include_usage: true } })) chunks.push(chunk);
    assert.equal(chunks.at(-1).usage.left_out, 1, names[i]);
    assert.equal(seen.usage.prompt_tokens, said.usage.prompt_tokens, names[i]);
    assert.equal(seen.choices[0].message.content, said.choices[0].message.content, names[i]);
  }
  const strict = await serve({ t, models: { media: 'refuse' } });
  const client = new OpenAI({ baseURL: `${strict.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const content = [{ type: 'text', text: 'What is this?' }, parts[0]];
  await assert.rejects(client.chat.completions.create({ model: 'demo', messages: [{ role: 'user', content }] }),
    (error) => error.status === 400 && error.param === 'messages[0].content[1].type' && error.code === 'not_supported');
  await assert.rejects(client.responses.create({ model: 'demo', input: [{ role: 'user', content: [{ type: 'input_image', image_url: parts[0].image_url.url }] }] }),
    (error) => error.status === 400 && error.param === 'input[0]');
  await strict.stop();
});

test('a chat reply has the fields of the API', async () => {
  const reply = await chat([user('Who are you?')]);
  assert.match(reply.id, /^chatcmpl-/);
  assert.equal(reply.object, 'chat.completion');
  assert.equal(reply.model, 'demo');
  assert.ok(Math.abs(reply.created - Date.now() / 1000) < 600);
  assert.equal(reply.choices.length, 1);
  const [choice] = reply.choices;
  assert.equal(choice.index, 0);
  assert.equal(choice.finish_reason, 'stop');
  assert.equal(choice.message.role, 'assistant');
  assert.ok(choice.message.content.length > 5);
  assert.ok(!choice.message.content.includes('<|im_end|>'));
  assert.ok(reply.usage.prompt_tokens > 5);
  assert.ok(reply.usage.completion_tokens > 1);
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
});

test('the model remembers a name over turns', async () => {
  const reply = await chat(await introduced('Ottilie'));
  assert.match(reply.choices[0].message.content, /Ottilie/);
});

test('the model finds the code of the system prompt', async () => {
  const reply = await chat([system('The secret code is QX7B2.'), user('What is the secret code?')]);
  assert.match(reply.choices[0].message.content, /QX7B2/);
});

test('a streamed chat says the same as a whole one, in deltas of the same form', async () => {
  const messages = await introduced('Leopold');
  const whole = await chat(messages);
  const chunks = await all(await chat(messages, { stream: true }));
  assert.equal(chunks[0].object, 'chat.completion.chunk');
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1, 'one id for all chunks');
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
  assert.equal(text, whole.choices[0].message.content);
  const finished = chunks.filter((chunk) => chunk.choices[0]?.finish_reason);
  assert.equal(finished.length, 1, 'finish_reason is null until the end');
  assert.equal(finished[0].choices[0].finish_reason, 'stop');
  assert.equal(finished[0].choices[0].delta.content ?? '', '', 'the last delta does not repeat the text');
  assert.ok(chunks.length > 3, 'the text comes in pieces');
});

test('the stream helper of the client puts a stream together', async () => {
  const runner = openai.chat.completions.stream({
    model: 'demo', temperature: 0, messages: [user('Who are you?')], stream_options: { include_usage: true },
  });
  const whole = await chat([user('Who are you?')]);
  assert.equal(await runner.finalContent(), whole.choices[0].message.content);
  assert.equal((await runner.totalUsage()).prompt_tokens, whole.usage.prompt_tokens);
});

test('a stream tells its usage only when asked to', async () => {
  const messages = [user('Who are you?')];
  const { usage } = await chat(messages);
  const plain = await all(await chat(messages, { stream: true }));
  assert.ok(plain.every((chunk) => !chunk.usage), 'no usage unless asked for');
  const chunks = await all(await chat(messages, { stream: true, stream_options: { include_usage: true } }));
  const last = chunks.at(-1);
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.prompt_tokens, usage.prompt_tokens);
  assert.equal(last.usage.completion_tokens, usage.completion_tokens);
  assert.equal(last.usage.total_tokens, usage.total_tokens);
  assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage == null), 'usage is null before the last chunk');
});

test('n asks for several replies', async () => {
  const reply = await chat([user('Who are you?')], { n: 3 });
  assert.deepEqual(reply.choices.map((choice) => choice.index), [0, 1, 2]);
  const texts = new Set(reply.choices.map((choice) => choice.message.content));
  assert.equal(texts.size, 1, 'greedy replies to one prompt are the same');
  const alone = await chat([user('Who are you?')]);
  assert.equal(reply.usage.prompt_tokens, alone.usage.prompt_tokens, 'the prompt counts once');
  assert.equal(reply.usage.completion_tokens, 3 * alone.usage.completion_tokens);
});

test('n works in a stream: chunks carry their choice', async () => {
  const alone = await chat([user('Who are you?')]);
  const chunks = await all(await chat([user('Who are you?')], { n: 2, stream: true }));
  for (const index of [0, 1]) {
    const own = chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.index === index);
    assert.equal(own.map((choice) => choice.delta.content ?? '').join(''), alone.choices[0].message.content);
    assert.equal(own.filter((choice) => choice.finish_reason).length, 1);
  }
});

test('with a temperature the replies of n differ', async () => {
  const reply = await complete('Once', { n: 4, temperature: 1.5, max_tokens: 24, seed: 11 });
  const texts = new Set(reply.choices.map((choice) => choice.text));
  assert.equal(texts.size, 4, 'one seed, but four choices, not four copies');
});

// Without `deterministic: true` only a request that is computed alone, from its start, is sure to be repeated.
test('a seed repeats a reply, another gives another', async () => {
  const ask = async (seed) => (await complete('Once', { temperature: 1.5, max_tokens: 24, seed, cache_prompt: false }))
    .choices[0].text;
  const first = await ask(11);
  assert.equal(await ask(11), first);
  assert.notEqual(await ask(12), first);
});

test('without a seed two replies differ', async () => {
  const texts = new Set();
  for (let i = 0; i < 3; i++) texts.add((await complete('Once', { temperature: 1.5, max_tokens: 32 })).choices[0].text);
  assert.ok(texts.size > 1);
});

test('a stop string ends the reply before itself', async () => {
  const messages = await introduced('Ottilie');
  const whole = (await chat(messages)).choices[0].message.content;
  for (const stop of ['Ottilie', ['nothing like it', 'Ott']]) {
    const reply = await chat(messages, { stop });
    const first = whole.indexOf(Array.isArray(stop) ? stop[1] : stop);
    assert.equal(reply.choices[0].message.content, whole.slice(0, first));
    assert.equal(reply.choices[0].finish_reason, 'stop');
    const chunks = await all(await chat(messages, { stop, stream: true }));
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''), whole.slice(0, first));
  }
});

test('max_tokens and max_completion_tokens bound the reply', async () => {
  for (const name of ['max_tokens', 'max_completion_tokens']) {
    const reply = await chat([user('Who are you?')], { [name]: 3 });
    assert.equal(reply.usage.completion_tokens, 3);
    assert.equal(reply.choices[0].finish_reason, 'length');
  }
});

test('a completion has the fields of the API, streamed and not', async () => {
  const reply = await complete(prompt);
  assert.match(reply.id, /^cmpl-/);
  assert.equal(reply.object, 'text_completion');
  assert.equal(reply.choices[0].finish_reason, 'stop');
  assert.match(reply.choices[0].text, /Ottilie|name|meet|Hello|Hi/);
  const chunks = await all(await complete(prompt, { stream: true, stream_options: { include_usage: true } }));
  assert.equal(chunks[0].object, 'text_completion');
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join(''), reply.choices[0].text);
  assert.equal(chunks.filter((chunk) => chunk.choices[0]?.finish_reason === 'stop').length, 1);
  assert.equal(chunks.at(-1).usage.completion_tokens, reply.usage.completion_tokens);
});

test('a completion takes the template text as the chat does', async () => {
  const reply = await chat([user('My name is Ottilie.')]);
  const same = await complete(prompt);
  assert.equal(same.usage.prompt_tokens, reply.usage.prompt_tokens);
  assert.equal(same.choices[0].text, reply.choices[0].message.content);
});

test('a prompt may be a list of tokens', async () => {
  const list = tokens(40, 1);
  const reply = await complete(list, { max_tokens: 8 });
  assert.equal(reply.usage.prompt_tokens, 40);
  const nested = await complete([list], { max_tokens: 8 });
  assert.equal(nested.choices[0].text, reply.choices[0].text);
});

test('a list of prompts gives a choice for each, in order', async () => {
  const prompts = ['Who', 'My name is', 'The secret code is'];
  const alone = [];
  for (const text of prompts) alone.push(await complete(text, { max_tokens: 8 }));
  const reply = await complete(prompts, { max_tokens: 8 });
  assert.deepEqual(reply.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.deepEqual(reply.choices.map((choice) => choice.text), alone.map((one) => one.choices[0].text));
  assert.equal(reply.usage.prompt_tokens, alone.reduce((sum, one) => sum + one.usage.prompt_tokens, 0));

  const lists = [tokens(20, 2), tokens(30, 3)];
  const both = await complete(lists, { max_tokens: 4 });
  assert.equal(both.usage.prompt_tokens, 50);
  assert.equal(both.choices.length, 2);
  const many = await complete(prompts.slice(0, 2), { max_tokens: 4, n: 2 });
  assert.deepEqual(many.choices.map((choice) => choice.index), [0, 1, 2, 3]);
  assert.equal(many.choices[0].text, many.choices[1].text, 'the choices of one prompt stand together');
});

test('echo puts the prompt before the reply', async () => {
  const plain = await complete('My name is Ottilie.', { max_tokens: 6 });
  const echoed = await complete('My name is Ottilie.', { max_tokens: 6, echo: true });
  assert.equal(echoed.choices[0].text, `My name is Ottilie.${plain.choices[0].text}`);
});

test('logit_bias forbids and forces tokens', async () => {
  const list = tokens(16, 4);
  const plain = await complete(list, { max_tokens: 1 });
  const forced = await complete(list, { max_tokens: 6, logit_bias: { 300: 100 } });
  const text = forced.choices[0].text;
  assert.notEqual(text, plain.choices[0].text);
  assert.equal(text, text.slice(0, text.length / 6).repeat(6), 'the same token six times');
  const forbidden = await complete(list, { max_tokens: 6, logit_bias: { 300: -100 } });
  assert.ok(!forbidden.choices[0].text.includes(text.slice(0, text.length / 6)));
});

test('the second turn of a chat finds the first in the cache', async () => {
  const name = 'Wilhelmina';
  const first = await chat([system('You are kind. '.repeat(20)), user(`My name is ${name}.`)]);
  const turns = [system('You are kind. '.repeat(20)), user(`My name is ${name}.`),
    assistant(first.choices[0].message.content), user('What is my name?')];
  const second = await chat(turns);
  const cached = second.usage.prompt_tokens_details.cached_tokens;
  assert.ok(cached >= first.usage.prompt_tokens - 8, `${cached} of ${first.usage.prompt_tokens} tokens cached`);
  assert.ok(cached < second.usage.prompt_tokens);
  assert.match(second.choices[0].message.content, new RegExp(name));
  assert.equal(second.timings.cache_n, cached);
  assert.equal(second.timings.cache_n + second.timings.prompt_n, second.usage.prompt_tokens);
});

test('cache_prompt false computes everything', async () => {
  const messages = [user('Who are you? '.repeat(10))];
  await chat(messages);
  const reply = await chat(messages, { cache_prompt: false });
  assert.equal(reply.usage.prompt_tokens_details.cached_tokens, 0);
  assert.equal(reply.timings.cache_n, 0);
  assert.equal(reply.timings.prompt_n, reply.usage.prompt_tokens);
});

test('timings are complete, in a stream in its last chunk', async () => {
  const names = ['cache_n', 'prompt_n', 'prompt_ms', 'predicted_n', 'predicted_ms', 'queue_ms', 'restore_ms'];
  const check = (timings, usage) => {
    for (const name of names) assert.ok(timings[name] >= 0, `timings.${name} is ${timings[name]}`);
    assert.equal(timings.cache_n + timings.prompt_n, usage.prompt_tokens);
    assert.equal(timings.predicted_n, usage.completion_tokens);
    assert.ok(timings.prompt_n >= 1, 'at least one token is computed for the logits');
  };
  const whole = await chat([user('Who are you?')]);
  check(whole.timings, whole.usage);
  const more = { stream: true, stream_options: { include_usage: true } };
  const chunks = await all(await chat([user('Who are you?')], more));
  check(chunks.at(-1).timings, whole.usage);
  const plain = await all(await chat([user('Who are you?')], { stream: true }));
  assert.ok(plain.at(-1).timings, 'also without include_usage');
});

test('aborting a stream frees its slot', async () => {
  const stream = await complete('Once', { stream: true, max_tokens: 900, logit_bias: { 300: 100 } });
  let seen = 0;
  for await (const chunk of stream) {
    assert.ok(chunk.choices[0]);
    if (++seen === 3) {
      await server.client.busy();
      stream.controller.abort();
    }
  }
  await server.client.idle();
});

test('aborting before the reply frees the slot', async () => {
  const controller = new AbortController();
  const reply = openai.completions.create({ model: 'demo', prompt: 'Once', max_tokens: 900, n: 4,
    logit_bias: { 300: 100 } }, { signal: controller.signal });
  reply.catch(() => {}); // looked at below, once the abort has been made
  await server.client.busy();
  controller.abort();
  await assert.rejects(reply, APIUserAbortError);
  await server.client.idle();
});

test('an unknown model is not found', async () => {
  await assert.rejects(chat([user('Hello')], { model: 'gpt-17' }), (error) => {
    assert.ok(error instanceof NotFoundError);
    assert.match(error.message, /gpt-17/);
    assert.equal(error.param, 'model');
    assert.ok(error.code);
    return true;
  });
  await assert.rejects(openai.models.retrieve('gpt-17'), NotFoundError);
});

test('a wrong field is a bad request that names it', async () => {
  for (const [field, value] of [['temperature', 'hot'], ['max_tokens', -5], ['top_p', 7], ['n', 0], ['stop', 5]]) {
    await assert.rejects(chat([user('Hello')], { [field]: value }), (error) => {
      assert.ok(error instanceof BadRequestError, `${field}: ${error}`);
      assert.equal(error.param, field);
      assert.match(error.message, new RegExp(field));
      return true;
    });
  }
  await assert.rejects(openai.chat.completions.create({ model: 'demo' }), (error) => error instanceof BadRequestError
    && error.param === 'messages');
});

test('a prompt longer than the window is refused by its code', async () => {
  await assert.rejects(complete(tokens(1500, 5)), (error) => {
    assert.ok(error instanceof BadRequestError);
    assert.equal(error.code, 'context_length_exceeded');
    assert.match(error.message, /1500/);
    assert.match(error.message, /1024/);
    return true;
  });
});

test('an error of a streamed request is a status, not a stream', async () => {
  await assert.rejects(complete(tokens(1500, 5), { stream: true }), BadRequestError);
  await assert.rejects(chat([user('Hello')], { model: 'gpt-17', stream: true }), NotFoundError);
});

test('models can be listed and retrieved', async () => {
  const list = await openai.models.list();
  assert.deepEqual(list.data.map((model) => model.id), ['demo']);
  const model = await openai.models.retrieve('demo');
  assert.equal(model.id, 'demo');
  assert.equal(model.object, 'model');
  assert.ok(model.created > 0);
  assert.equal(typeof model.owned_by, 'string');
});
