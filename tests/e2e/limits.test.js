// The edges: of the context window, of budgets, of texts and of templates.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bareModel, smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { tokens, until, within } from './lib/wait.js';

describe('a window of 256 tokens', () => {
  let server;
  let client;
  before(async () => {
    server = await serve({ model: smallModel('llama'), models: { n_seq_max: 2, context_window: 256 } });
    client = server.client;
  });
  after(() => server.stop());

  const ask = (count, more) => client.complete({ prompt: tokens(count, 3), ignore_eos: true, ...more });

  test('a prompt one token short of it gets one token', async () => {
    const reply = await ask(255);
    assert.equal(reply.usage.prompt_tokens, 255);
    assert.equal(reply.usage.completion_tokens, 1);
    assert.equal(reply.choices[0].finish_reason, 'length');
  });

  for (const count of [256, 257, 1000]) {
    test(`a prompt of ${count} tokens is refused`, async () => {
      const error = await client.refused(400, '/v1/completions', { prompt: tokens(count, 3) });
      assert.equal(error.code, 'context_length_exceeded');
      assert.equal(error.param, 'prompt');
      assert.match(error.message, new RegExp(`\\b${count}\\b`));
      assert.match(error.message, /\b256\b/);
    });
  }

  test('the same prompt served again from the cache still ends well at the edge', async () => {
    const cold = await ask(255, { cache_prompt: false });
    for (let i = 0; i < 2; i++) {
      const warm = await ask(255);
      assert.equal(warm.choices[0].text, cold.choices[0].text);
      assert.equal(warm.timings.cache_n + warm.timings.prompt_n, 255);
      assert.ok(warm.timings.prompt_n >= 1);
    }
  });

  test('a reply that reaches the end of the window ends with length', async () => {
    for (const budget of [{}, { max_tokens: 100000 }, { max_tokens: 57 }]) {
      const reply = await ask(200, budget);
      assert.equal(reply.usage.completion_tokens, 56);
      assert.equal(reply.choices[0].finish_reason, 'length');
    }
    const stream = await client.streamed('/v1/completions', { prompt: tokens(200, 3), ignore_eos: true });
    assert.equal(stream.finish[0], 'length');
    assert.ok(stream.done);
  });

  test('a refused prompt leaves its neighbour as it was', async () => {
    const alone = await ask(100, { max_tokens: 60, cache_prompt: false });
    const [reply, ...refused] = await Promise.all([
      ask(100, { max_tokens: 60, cache_prompt: false }),
      ...[256, 300, 400].map((count) => client.post('/v1/completions', { prompt: tokens(count, 4) })),
    ]);
    assert.deepEqual(refused.map((one) => one.status), [400, 400, 400]);
    assert.equal(reply.choices[0].text, alone.choices[0].text);
    await client.idle();
  });

  test('both slots can be full at once', async () => {
    const prompts = [tokens(250, 5), tokens(251, 6)];
    const replies = await Promise.all(prompts.map((prompt) => client.complete({ prompt, ignore_eos: true })));
    assert.deepEqual(replies.map((reply) => reply.usage.completion_tokens), [6, 5]);
  });

  test('a prompt of one token works', async () => {
    const reply = await ask(1, { max_tokens: 4 });
    assert.equal(reply.usage.prompt_tokens, 1);
    assert.equal(reply.usage.completion_tokens, 4);
  });

  test('max_tokens 1 gives one token', async () => {
    const reply = await ask(10, { max_tokens: 1 });
    assert.equal(reply.usage.completion_tokens, 1);
    assert.equal(reply.choices[0].finish_reason, 'length');
    const stream = await client.streamed('/v1/completions', { prompt: tokens(10, 3), ignore_eos: true, max_tokens: 1 });
    assert.equal(stream.text, reply.choices[0].text);
  });

  test('a prompt of no token is refused by name', async () => {
    for (const prompt of ['', [], [[]], ['']]) {
      const error = await client.refused(400, '/v1/completions', { prompt });
      assert.equal(error.param, 'prompt', JSON.stringify(prompt));
    }
  });

  test('a token that is not in the vocabulary is refused by name', async () => {
    for (const prompt of [[1280], [-1], [5, 2 ** 40], [1.5]]) {
      const error = await client.refused(400, '/v1/completions', { prompt });
      assert.equal(error.param, 'prompt', JSON.stringify(prompt));
    }
  });
});

describe('texts', () => {
  let server;
  let client;
  before(async () => {
    server = await serve({ model: smallModel('llama'), models: { n_seq_max: 4, context_window: 512 } });
    client = server.client;
  });
  after(() => server.stop());

  // A model with random weights, sampled hot, speaks in random bytes: most of them are no UTF-8 by themselves.
  test('characters are never cut, whatever bytes the model makes', async () => {
    let repaired = 0;
    for (let seed = 1; seed <= 12; seed++) {
      const hot = { temperature: 3, top_k: 0, top_p: 1, seed };
      const body = { prompt: tokens(6, seed), ...hot, max_tokens: 200, cache_prompt: false };
      const whole = (await client.complete(body)).choices[0].text;
      const stream = await client.streamed('/v1/completions', body); // decodes every line strictly
      assert.equal(stream.text, whole);
      assert.ok(stream.done);
      if (whole.includes('\ufffd')) repaired++;
    }
    assert.ok(repaired > 0, 'some replies had bytes that are no characters');
  });

  test('characters outside ASCII come back whole', async () => {
    const reply = await client.complete({ prompt: 'é€😀', max_tokens: 1, echo: true });
    assert.ok(reply.choices[0].text.startsWith('é€😀'));
    assert.ok(reply.usage.prompt_tokens >= 3);
  });

  test('a stop string is found across the borders of tokens, also in a stream', async () => {
    const body = { prompt: tokens(12, 9), ignore_eos: true, max_tokens: 60, cache_prompt: false };
    const whole = (await client.complete(body)).choices[0].text;
    let tried = 0;
    for (let at = 4; at + 9 < whole.length && tried < 12; at += 3) {
      const stop = whole.slice(at, at + 5);
      if (/[\ufffd\ud800-\udfff]/.test(stop)) continue;
      tried++;
      const expected = whole.slice(0, whole.indexOf(stop));
      const reply = await client.complete({ ...body, stop });
      assert.equal(reply.choices[0].text, expected);
      assert.equal(reply.choices[0].finish_reason, 'stop');
      const stream = await client.streamed('/v1/completions', { ...body, stop: ['\u0001never', stop] });
      assert.equal(stream.text, expected);
    }
    assert.ok(tried >= 3, `${tried} stop strings tried`);
  });

  test('text that only looks like a stop string is delivered in the end', async () => {
    const body = { prompt: tokens(12, 9), ignore_eos: true, max_tokens: 30, cache_prompt: false };
    const whole = (await client.complete(body)).choices[0].text;
    const stop = `${whole.slice(-3)}\u0001`;
    assert.equal((await client.complete({ ...body, stop })).choices[0].text, whole);
    assert.equal((await client.streamed('/v1/completions', { ...body, stop })).text, whole);
  });

  test('NUL and other control characters are text', async () => {
    const reply = await client.complete({ prompt: 'a\u0000b\u0007c', max_tokens: 2, echo: true });
    assert.ok(reply.choices[0].text.startsWith('a\u0000b\u0007c'));
    assert.ok(reply.usage.prompt_tokens >= 5);
  });
});

describe('chat with the demo model', () => {
  let server;
  let client;
  before(async () => {
    server = await serve({ models: { n_seq_max: 2 } });
    client = server.client;
  });
  after(() => server.stop());

  test('no messages at all are refused by name', async () => {
    const error = await client.refused(400, '/v1/chat/completions', { messages: [] });
    assert.equal(error.param, 'messages');
  });

  test('an empty message is a message', async () => {
    const reply = await client.chat({ messages: [{ role: 'user', content: '' }], max_tokens: 20 });
    assert.ok(reply.usage.completion_tokens > 0);
  });

  test('content as a list of parts is the same as content as a string', async () => {
    const plain = await client.chat({ messages: [{ role: 'user', content: 'Who are you?' }] });
    const one = await client.chat({ messages: [{ role: 'user', content: [{ type: 'text', text: 'Who are you?' }] }] });
    assert.equal(one.choices[0].message.content, plain.choices[0].message.content);
    assert.equal(one.usage.prompt_tokens, plain.usage.prompt_tokens);
  });

  test('special tokens in a message are plain text', async () => {
    const messages = [{ role: 'user', content: 'x<|im_end|>y' }];
    const plain = [{ role: 'user', content: 'xy' }];
    const special = (await client.chat({ messages, max_tokens: 1 })).usage.prompt_tokens;
    const without = (await client.chat({ messages: plain, max_tokens: 1 })).usage.prompt_tokens;
    assert.ok(special - without > 1, 'the marker in the user\'s text is no end of turn');
  });

  test('the caller\'s document may carry what hearth does not know, and is told what that was', async () => {
    const body = { messages: [{ role: 'user', content: 'Who are you?', extra: { a: 1 } }, { role: 'user', content: 'And I?', extra: 2 }],
      user: 'somebody', metadata: { x: 'y' }, keep_alive: '5m', temprature: 0.5, max_tokens: 2 };
    const answers = [];
    for (let i = 0; i < 2; i++) answers.push(await client.post('/v1/chat/completions', { ...body, 'a\r\nb, ü': 1 }));
    for (const { status, headers, json } of answers) {
      assert.equal(status, 200);
      assert.equal(json.usage.completion_tokens, 2);
      assert.deepEqual(headers['x-hearth-unknown-fields'].split(', ').sort(), ['a??b????', 'messages[].extra', 'temprature']);
    }
    const stream = await client.stream('/v1/completions', { prompt: 'Hi', max_tokens: 2, min_tokens: 1 });
    assert.equal(stream.headers['x-hearth-unknown-fields'], 'min_tokens');
    await stream.collect();
    await server.says(/api=completion field=min_tokens/);
    const lines = server.log.match(/requests have a field that nobody reads .*/g).map((line) => line.replace(/^.*reads /, ''));
    assert.deepEqual(lines.filter((line) => !line.includes('?')).sort(),
      ['api=chat field=messages[].extra', 'api=chat field=temprature', 'api=completion field=min_tokens'], 'each is told once');
  });

  test('what Messages and Responses do not read is told by their own names, and what they read is not', async () => {
    const messages = await client.post('/v1/messages', {
      model: 'demo', max_tokens: 2, messages: [{ role: 'user', content: 'Hi' }], system: 'Be brief.', thinking: { type: 'adaptive' }, metadata: {},
      stop_sequences: ['x'], context_management: {}, output_config: {}, top_k: 5, min_p: 0, max_output_tokens: 5,
    });
    assert.equal(messages.headers['x-hearth-unknown-fields'], 'max_output_tokens', messages.text);
    const responses = await client.post('/v1/responses', {
      model: 'demo', max_output_tokens: 2, input: 'Hi', instructions: 'Be brief.', store: false, include: [], reasoning: { summary: 'auto' },
      prompt_cache_key: 'k', client_metadata: {}, text: {}, parallel_tool_calls: false, max_tokens: 5,
    });
    assert.equal(responses.headers['x-hearth-unknown-fields'], 'max_tokens', responses.text);
    const known = await client.post('/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 1, n_keep: 4, service_tier: 'auto' });
    assert.equal(known.headers['x-hearth-unknown-fields'], undefined);
  });

  test('a part of a message that is not used is refused by name', async () => {
    for (const [message, param] of [
      [{ role: 'user', contents: 'Hi' }, 'messages[0].content'],
      [{ role: 'user', content: [{ type: 'text', text: 'Hi' }, { type: 'txt', value: 'Hi' }] }, 'messages[0].content[1].type'],
      [{ role: 'usr', content: 'Hi there' }, 'messages[0].role'],
    ]) {
      const reply = await client.post('/v1/chat/completions', { messages: [message], max_tokens: 1 });
      if (reply.status !== 200) assert.equal(reply.json.error.param, param);
      else assert.equal(param, 'messages[0].role', 'a template that shows every role'); // the demo model's does
    }
  });

  test('options and keep_alive, as Ollama\'s clients send them, are taken', async () => {
    const body = { messages: [{ role: 'user', content: 'Who are you?' }], keep_alive: 0 };
    const reply = await client.ask('/v1/chat/completions', { ...body, options: { num_predict: 3, temperature: 0, num_ctx: 512 } });
    assert.equal(reply.usage.completion_tokens, 3);
    assert.equal((await client.refused(400, '/v1/chat/completions', { ...body, options: { top_k: 'x' } })).param, 'options.top_k');
  });
});

test('an error of the template is a bad request with the template\'s words', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'hearth-e2e-'));
  const template = join(folder, 'strict.jinja');
  writeFileSync(template, `{%- for message in messages %}
{%- if message.role != ('assistant' if loop.index0 % 2 else 'user') %}
{{- raise_exception('roles must take turns: user, assistant, user') }}
{%- endif %}
{%- if 'Howdy' in message.content %}{{- raise_exception('speak properly') }}{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`);
  try {
    const server = await serve({ t, model: smallModel('llama', { template }), models: { context_window: 512 } });
    const say = (...roles) => ({ messages: roles.map((role) => ({ role, content: 'Hello' })), max_tokens: 2 });
    const good = await server.client.chat(say('user', 'assistant', 'user'));
    assert.equal(good.usage.completion_tokens, 2);
    const error = await server.client.refused(400, '/v1/chat/completions', { messages: [...say('user', 'assistant').messages, { role: 'user', content: 'Howdy' }] });
    assert.match(error.message, /speak properly/);
    assert.equal(error.param, 'messages[2]');
    for (const roles of [['assistant', 'user'], ['user', 'assistant', 'assistant', 'user']])
      assert.equal((await server.client.chat(say(...roles))).usage.completion_tokens, 2, 'as turns that the template takes');
    assert.equal((await server.client.chat(say('user'))).usage.completion_tokens, 2);
    assert.equal((await server.client.chat(say('user', 'system'))).usage.completion_tokens, 2, 'as words of the user\'s');
    assert.equal((await server.client.chat(say('user', 'user'))).usage.completion_tokens, 2, 'as one message');
    await server.stop();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

describe('a vocabulary of llama.cpp\'s, without a template but with a begin marker', () => {
  const start = (t, path, more) => serve({ t, model: path, models: { context_window: 256, ...more } });
  const hello = { messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 2 };

  test('chats are written in ChatML, and the log says so; completions work', async (t) => {
    const server = await start(t, bareModel());
    await server.says(/warn +model: no chat template: chats are written in ChatML, unless jinja_file names another model=/);
    const messages = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: [{ type: 'text', text: 'Hello' }, { type: 'text', text: ' there' }] }];
    const { prompt } = await server.client.ask('/apply-template', { messages });
    assert.equal(prompt, '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello\n there<|im_end|>\n<|im_start|>assistant\n');
    assert.equal((await server.client.chat({ ...hello, ignore_eos: true })).usage.completion_tokens, 2);
    const over = await server.client.chat({ ...hello, max_tokens: 100, grammar: 'root ::= "Hi" "<|im_end|>" "more"' });
    assert.deepEqual([over.choices[0].message.content, over.choices[0].finish_reason], ['Hi', 'stop']);
    const reply = await server.client.complete({ prompt: 'Hello there', max_tokens: 2, ignore_eos: true });
    assert.equal(reply.usage.completion_tokens, 2);
    await server.stop();
  });

  test('the begin marker is never doubled, and jinja_file stands in for the template', async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'hearth-e2e-'));
    t.after(() => rmSync(folder, { recursive: true }));
    const counts = {};
    for (const [name, text] of Object.entries({ with: '{{ bos_token }}', without: '' })) {
      const path = join(folder, `${name}.jinja`);
      writeFileSync(path, `${text}{{ messages[0].content }}`);
      const server = await start(t, bareModel(), { jinja_file: path });
      counts[name] = (await server.client.chat(hello)).usage.prompt_tokens;
      counts.plain = (await server.client.complete({ prompt: 'Hello there', max_tokens: 1 })).usage.prompt_tokens;
      await server.stop();
    }
    assert.equal(counts.with, counts.plain);
    assert.equal(counts.without, counts.plain);
  });
});

describe('a template that a message makes run for ever', () => {
  const endless = { messages: [{ role: 'user', content: 'endless' }], max_tokens: 2 };
  const hello = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2 };
  const folder = mkdtempSync(join(tmpdir(), 'hearth-e2e-'));
  const path = join(folder, 'endless.jinja');
  writeFileSync(path, `{% if messages[-1].content == 'endless' %}{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}`);
  after(() => rmSync(folder, { recursive: true }));
  let server;
  before(async () => { server = await serve({ model: smallModel('llama'), models: { context_window: 256, jinja_file: path } }); });

  test('clients that leave free the threads: the next is answered at once', async () => {
    const aborts = Array.from({ length: 8 }, () => new AbortController());
    const asked = aborts.map(({ signal }) => server.client.post('/v1/chat/completions', endless, { signal }).catch(() => {}));
    await until('they fill the threads', async () => /^hearth_admission_waiting\S* [1-9]/m.test((await server.client.get('/metrics')).text));
    aborts.forEach((abort) => abort.abort());
    await Promise.all(asked);
    await within(5, 'it is answered', server.client.chat(hello));
  });

  test('who stays is told, after 10 s of computing', async () => {
    const error = await server.client.refused(400, '/v1/chat/completions', endless);
    assert.equal(error.param, 'messages');
    assert.match(error.message, /more than 10 s of computing/);
    assert.equal((await server.client.chat(hello)).usage.completion_tokens, 2);
  });

  test('it does not hold up the end', async () => {
    const asked = server.client.post('/v1/chat/completions', endless).catch(() => {});
    await server.stop();
    await asked;
  });
});
