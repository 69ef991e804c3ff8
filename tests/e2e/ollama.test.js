// Ollama's API as its clients use it: the official `ollama` package and LangChain's ChatOllama, on the listener that is
// for them.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import net from 'node:net';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ollama } from 'ollama';
import { ChatOllama, OllamaEmbeddings } from '@langchain/ollama';
import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { tool as langTool } from '@langchain/core/tools';
import { z } from 'zod';
import { Client } from './lib/client.js';
import { demo, smallModel } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { until } from './lib/wait.js';

let server;
let ollama;
let url; // of Ollama's clients

const encoder = { vocab: 'bert-bge', layers: 2, embd: 64, heads: 2, 'kv-heads': 2, ctx: 512, ff: 128 };
const thinking = `{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'assistant' and message.reasoning_content -%}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}{%- endif -%}
{{- message.content + '<|im_end|>\\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- else -%}{{- '<think>\\n' -}}{%- endif -%}
{%- endif -%}`;

before(async () => {
  const folder = temporaryFolder();
  const template = join(folder, 'thinking.jinja');
  writeFileSync(template, thinking);
  const models = {
    demo: { path: demo, context_window: 2048, n_seq_max: 2, cache_min_tokens: 0 },
    thinker: { path: smallModel('llama'), jinja_file: template, context_window: 512 },
    bert: { path: smallModel('bert', encoder) },
    ranker: { path: smallModel('reranker', encoder) },
  };
  const lines = Object.entries(models).map(([name, keys]) => `  ${name}: ${JSON.stringify({ threads: 1, ...keys })}\n`);
  const config = join(folder, 'hearth.yaml');
  writeFileSync(config, `models:\n${lines.join('')}`);
  server = await serve({ args: ['--config', config], set: { 'server.ollama': true, 'server.ollama_listen': '127.0.0.1:0' } });
  [, url] = await until('both addresses are printed', () => {
    const found = [...server.log.matchAll(/listens on (http:\/\/\S+)/g)].map(([, address]) => address);
    return found.length === 2 && found;
  });
  ollama = new Ollama({ host: url });
});

after(() => server.stop());

const user = (content) => ({ role: 'user', content });
const greedy = { temperature: 0 };
const question = [user('What is the weather in Lisbon?')];
const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Weather of a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const chat = (more) => ollama.chat({ model: 'demo', messages: [user('Who are you?')], options: greedy, ...more });
const collect = async (stream) => {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
};
const joined = (parts, member) => parts.map((part) => part.message?.[member] ?? part[member] ?? '').join('');

test('Ollama is what its clients are told is running, by GET and HEAD', async () => {
  for (const method of ['GET', 'HEAD']) {
    const reply = await fetch(`${url}/`, { method });
    assert.equal(reply.status, 200);
    assert.equal(await reply.text(), method === 'GET' ? 'Ollama is running' : '');
  }
  assert.equal(await (await fetch(`${server.url}/`)).text(), 'hearth is running\n');
  const { version } = await ollama.version();
  assert.match(version, /^\d+\.\d+\.\d+$/);
  assert.equal((await new Ollama({ host: server.url }).version()).version, version, 'the routes are on every address');
  assert.equal((await fetch(`${url}/api/tags`, { method: 'HEAD' })).status, 200);
});

test('models are listed, shown and running', async () => {
  const { models } = await ollama.list();
  assert.deepEqual(models.map((model) => model.name), ['demo:latest', 'thinker:latest', 'bert:latest']);
  for (const model of models) {
    assert.ok(model.size > 0);
    assert.match(model.digest, /^[0-9a-f]{64}$/);
    assert.ok(Math.abs(Date.now() - new Date(model.modified_at)) < 3600e3);
    assert.equal(model.details.format, 'gguf');
    assert.match(model.details.parameter_size, /^[\d.]+[KMB]$/);
    assert.match(model.details.quantization_level, /^(F32|F16|BF16|Q8_0)$/);
  }
  const shown = await ollama.show({ model: 'demo:latest' });
  assert.deepEqual(shown.capabilities, ['completion', 'tools']);
  assert.equal(shown.model_info[`${shown.model_info['general.architecture']}.context_length`], 2048);
  assert.match(shown.template, /im_start/);
  assert.match(shown.parameters, /^num_ctx +2048$/m);
  assert.deepEqual((await ollama.show({ model: 'thinker' })).capabilities, ['completion', 'thinking']);
  assert.deepEqual((await ollama.show({ model: 'bert' })).capabilities, ['embedding']);
  const running = (await ollama.ps()).models;
  assert.deepEqual(running.map((model) => model.name), models.map((model) => model.name));
  assert.ok(new Date(running[0].expires_at) > Date.now());
});

test('a chat has the fields of the API, whole and streamed', async () => {
  const whole = await chat();
  assert.equal(whole.model, 'demo');
  assert.ok(Math.abs(Date.now() - new Date(whole.created_at)) < 60e3);
  assert.equal(whole.message.role, 'assistant');
  assert.ok(whole.message.content.length > 5);
  assert.equal(whole.done, true);
  assert.equal(whole.done_reason, 'stop');
  for (const count of ['prompt_eval_count', 'eval_count', 'total_duration', 'prompt_eval_duration', 'eval_duration']) {
    assert.ok(Number.isInteger(whole[count]) && whole[count] > 0, `${count} is ${whole[count]}`);
  }
  assert.ok(whole.total_duration >= whole.prompt_eval_duration + whole.eval_duration);
  const parts = await collect(await chat({ stream: true }));
  assert.ok(parts.length > 2);
  assert.equal(joined(parts, 'content'), whole.message.content);
  assert.deepEqual(parts.map((part) => part.done), [...parts.slice(1).map(() => false), true]);
  assert.equal(parts.at(-1).prompt_eval_count, whole.prompt_eval_count);
  const byDefault = await fetch(`${url}/api/chat`, { method: 'POST', body: JSON.stringify({ model: 'demo', messages: [user('Hi')] }) });
  assert.equal(byDefault.headers.get('content-type'), 'application/x-ndjson');
  const lines = (await byDefault.text()).trim().split('\n').map((line) => JSON.parse(line));
  assert.equal(lines.at(-1).done, true);
});

test('options say how the reply is sampled and where it ends', async () => {
  const long = { messages: [user('Tell me a story.')] };
  const cut = await chat({ ...long, options: { ...greedy, num_predict: 3 } });
  assert.equal(cut.eval_count, 3);
  assert.equal(cut.done_reason, 'length');
  const whole = await chat(long);
  const [first] = whole.message.content.split(' ');
  const stopped = await chat({ ...long, options: { ...greedy, stop: [' '], num_ctx: 99999, num_predict: -1, frobnicate: 1 } });
  assert.equal(stopped.message.content, first);
  await server.says(/num_ctx is above the context window.* model=demo num_ctx=99999 context_window=2048/);
  const window = async (num_ctx) => {
    const answer = await server.client.post('/api/chat', { model: 'demo', messages: question, stream: false, options: { num_ctx, num_predict: 1 } });
    return answer.headers['x-hearth-context-window'];
  };
  assert.equal(await window(2049), '2048');
  assert.equal(await window(2048), undefined);
  await server.says(/frobnicate/);
  const seeded = () => chat({ ...long, options: { temperature: 1.5, seed: 7, num_predict: 20 } });
  assert.equal((await seeded()).message.content, (await seeded()).message.content);
});

test('tools are called with arguments as objects, and their results go on', async () => {
  const messages = [...question];
  const { message } = await chat({ messages, tools: [weather] });
  assert.equal(message.tool_calls.length, 1);
  assert.deepEqual(message.tool_calls[0].function, { index: 0, name: 'get_weather', arguments: { city: 'Lisbon' } });
  const parts = await collect(await chat({ messages, tools: [weather], stream: true }));
  const calls = parts.flatMap((part) => part.message.tool_calls ?? []);
  assert.deepEqual(calls.map((call) => call.function), message.tool_calls.map((call) => call.function));
  messages.push(message, { role: 'tool', tool_name: 'get_weather', content: '{"weather":"sunny"}' });
  const answer = await chat({ messages, tools: [weather] });
  assert.ok(answer.message.content.length > 3);
  assert.equal(answer.message.tool_calls, undefined);
});

test('a format is kept', async () => {
  const format = { type: 'object', properties: { city: { type: 'string', maxLength: 10 }, degrees: { type: 'integer', minimum: -50, maximum: 60 } }, required: ['city', 'degrees'] };
  const { message } = await chat({ messages: question, format });
  const value = JSON.parse(message.content);
  assert.deepEqual(Object.keys(value).sort(), ['city', 'degrees']);
  const any = await chat({ messages: question, format: 'json', options: { ...greedy, num_predict: 200 } });
  assert.equal(any.message.content.trimStart()[0], '{');
});

test('thoughts are apart, and are not had where nobody wants them', async () => {
  const thought = 'Lead is heavy.';
  const grammar = `root ::= "${thought}" "\\n</think>\\n\\n" "Neither."`;
  const ask = (more) => ollama.chat({ model: 'thinker', messages: [user('What is heavier?')], grammar, options: greedy, ...more });
  for (const think of [true, 'high', undefined]) {
    const { message } = await ask({ think });
    assert.equal(message.thinking.trim(), thought);
    assert.equal(message.content, 'Neither.');
  }
  const parts = await collect(await ask({ think: true, stream: true }));
  assert.equal(joined(parts, 'thinking').trim(), thought);
  assert.equal(joined(parts, 'content'), 'Neither.');
  const quiet = await ask({ think: false, grammar: 'root ::= "Neither."' });
  assert.equal(quiet.message.thinking, undefined);
  assert.equal(quiet.message.content, 'Neither.');
  const generated = await ollama.generate({ model: 'thinker', prompt: 'What is heavier?', think: true, grammar, options: greedy });
  assert.equal(generated.thinking.trim(), thought);
  assert.equal(generated.response, 'Neither.');
});

test('a prompt alone is answered as a chat, or raw as it is', async () => {
  const { message } = await chat();
  const generated = await ollama.generate({ model: 'demo', prompt: 'Who are you?', options: greedy });
  assert.equal(generated.response, message.content);
  const parts = await collect(await ollama.generate({ model: 'demo', prompt: 'Who are you?', stream: true, options: greedy }));
  assert.equal(joined(parts, 'response'), message.content);
  const raw = '<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n';
  assert.equal((await ollama.generate({ model: 'demo', prompt: raw, raw: true, options: greedy })).response, message.content);
  const told = await ollama.generate({ model: 'demo', system: 'The secret code is QX7B2.', prompt: 'What is the secret code?', options: greedy });
  assert.match(told.response, /QX7B2/);
});

test('tokens have their logprobs', async () => {
  const { logprobs, message, eval_count: n } = await chat({ logprobs: true, top_logprobs: 2 });
  assert.ok(logprobs.length === n || logprobs.length === n - 1);
  assert.equal(logprobs.map((one) => one.token).join('').trim(), message.content.trim());
  assert.ok(logprobs.every((one) => one.logprob <= 0 && one.top_logprobs.length === 2));
  const parts = await collect(await chat({ logprobs: true, stream: true }));
  assert.deepEqual(parts.flatMap((part) => part.logprobs ?? []).map((one) => one.token), logprobs.map((one) => one.token));
});

test('texts become vectors', async () => {
  const { embeddings, prompt_eval_count: n, total_duration: took } = await ollama.embed({ model: 'bert', input: ['a river', 'a harbour'] });
  assert.equal(embeddings.length, 2);
  assert.ok(n > 2 && took > 0);
  for (const vector of embeddings) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-3);
  const { embedding } = await ollama.embeddings({ model: 'bert', prompt: 'a river' });
  assert.equal(embedding.length, embeddings[0].length);
  const scale = Math.hypot(...embedding);
  embedding.forEach((x, i) => assert.ok(Math.abs(x / scale - embeddings[0][i]) < 1e-4));
  const long = 'river '.repeat(2000);
  assert.equal((await ollama.embed({ model: 'bert', input: long })).embeddings.length, 1, 'what is too long is cut');
  await assert.rejects(ollama.embed({ model: 'bert', input: long, truncate: false }), { status_code: 400 });
  assert.deepEqual((await ollama.embed({ model: 'bert', input: [] })).embeddings, []);
});

test('a model is loaded and unloaded without a word', async () => {
  const loaded = await ollama.chat({ model: 'thinker', messages: [] });
  assert.equal(loaded.done_reason, 'load');
  const unloaded = await ollama.generate({ model: 'thinker', prompt: '', keep_alive: 0 });
  assert.equal(unloaded.done_reason, 'unload');
  const names = async () => (await ollama.ps()).models.map((model) => model.name);
  await until('the model has left', async () => !(await names()).includes('thinker:latest'));
  const again = await ollama.generate({ model: 'thinker', prompt: '' });
  assert.equal(again.done_reason, 'load');
  assert.ok((await names()).includes('thinker:latest'), 'who is told that it is loaded finds it there');
});

test('a model stays as long as keep_alive says', async () => {
  const expires = async () => {
    const model = (await ollama.ps()).models.find(({ name }) => name === 'thinker:latest');
    return model && (new Date(model.expires_at) - Date.now()) / 1000;
  };
  const ask = (keep) => ollama.chat({ model: 'thinker', messages: [user('Hi')], options: { num_predict: 2 }, ...keep });
  // Holds from the end of the request, which may be just after its reply.
  const stays = (what, from, to) => until(`${what}: ${from} to ${to} s`, async () => { const left = await expires(); return left > from && left <= to + 0.5; });
  const always = [1e9, Infinity];
  await ask({});
  await stays('as the configuration says', ...always);
  for (const [keep, from, to] of [['5m', 290, 300], [120, 110, 120], ['1h30m', 5390, 5400], ['1m0.5s', 50, 60.5]]) {
    await ask({ keep_alive: keep });
    await stays(keep, from, to);
  }
  await ask({});
  await stays('as the last request said', 50, 60.5);
  for (const keep of [-1, '-1s', '-5m']) {
    await ask({ keep_alive: '5m' });
    await ask({ keep_alive: keep });
    await stays(keep, ...always);
  }
  await ask({ keep_alive: '1s' });
  await until('the model has left', async () => await expires() === undefined);
  await ask({});
  await stays('loaded anew', ...always);
  await ask({ keep_alive: 0 });
  await until('the model has left after its reply', async () => await expires() === undefined);
  for (const bad of ['soon', '5', '5 minutes', '', true, {}]) await assert.rejects(ask({ keep_alive: bad }), { status_code: 400 }, `${bad}`);
});

test('a note stands for an image', async () => {
  const note = '[image left out: this model takes text only]';
  const seen = await chat({ messages: [{ ...user('What is this?'), images: ['aGk='] }] });
  const said = await chat({ messages: [user(`${note}\nWhat is this?`)] });
  assert.equal(seen.prompt_eval_count, said.prompt_eval_count);
  assert.equal(seen.message.content, said.message.content);
  const alone = await ollama.generate({ model: 'demo', prompt: 'What is this?', images: ['aGk='], options: { temperature: 0 } });
  assert.equal(alone.prompt_eval_count, said.prompt_eval_count);
});

test('errors are told in Ollama\'s form', async () => {
  const refused = [
    [() => ollama.chat({ model: 'nobody', messages: question }), 404, /nobody/],
    [() => ollama.show({ model: 'nobody' }), 404, /nobody/],
    [() => chat({ options: { temperature: 'hot' } }), 400, /'options\.temperature' must be a number/],
    [() => chat({ think: 3 }), 400, /'think'/],
    [() => ollama.generate({ model: 'demo', prompt: 'a', template: '{{ .Prompt }}' }), 400, /'template'/],
    [() => ollama.generate({ model: 'demo', prompt: 'a', context: [1] }), 400, /'context'.*\/api\/chat/],
    [() => ollama.pull({ model: 'llama3' }), 404, /llama3 is not known/],
    [() => ollama.push({ model: 'llama3' }), 400, /models\.NAME\.path/],
    [() => ollama.delete({ model: 'demo' }), 400, /'demo' is the configuration's/],
    [() => ollama.delete({ model: 'nobody' }), 404, /^model 'nobody' not found$/],
    [() => ollama.copy({ source: 'nobody', destination: 'other' }), 404, /'nobody' does not exist/],
    [() => chat({ messages: [user('word '.repeat(3000))] }), 400, /exceeds the available context size/],
  ];
  for (const [ask, status, text] of refused) {
    await assert.rejects(ask, (error) => {
      assert.equal(error.status_code, status, error.message);
      assert.match(error.message, text);
      return true;
    });
  }
});

test('a stream that is aborted frees its slot', async () => {
  const client = new Client(server.port);
  const stream = await chat({ messages: [user('Tell me a story.')], stream: true, ignore_eos: true });
  for await (const part of stream) {
    assert.equal(part.done, false);
    break;
  }
  stream.abort();
  await client.idle();
});

test('a conversation that was begun over another API is gone on with', async () => {
  const client = new Client(server.port);
  const messages = [{ role: 'system', content: `Keep these words: ${'amber basil cedar dune '.repeat(8)}` }, user('My name is Ottilie.')];
  const first = await client.chat({ model: 'demo', messages, max_tokens: 30 });
  messages.push({ role: 'assistant', content: first.choices[0].message.content }, user('What is my name?'));
  const next = await chat({ messages });
  const known = first.usage.prompt_tokens;
  assert.ok(next.timings.cache_n >= known, `${next.timings.cache_n} of ${next.prompt_eval_count} were cached, ${known} were known`);
  assert.equal(next.prompt_eval_count, next.timings.cache_n + next.timings.prompt_n, 'all of the prompt counts, as with Ollama');
  const back = await client.chat({ model: 'demo', messages: [...messages, next.message, user('Thank you.')], max_tokens: 5 });
  assert.ok(back.usage.prompt_tokens_details.cached_tokens >= next.prompt_eval_count, 'and back again');
});

test('langchain: ChatOllama answers, streams, calls tools and keeps to a schema', async () => {
  const llm = new ChatOllama({ baseUrl: url, model: 'demo', temperature: 0, checkOrPullModel: true });
  const secret = [new SystemMessage('The secret code is QX7B2.'), new HumanMessage('What is the secret code?')];
  const { content, usage_metadata: usage, response_metadata: told } = await llm.invoke(secret);
  assert.match(content, /QX7B2/);
  assert.ok(usage.input_tokens > 10 && usage.output_tokens > 1);
  assert.equal(told.done_reason, 'stop');
  let text = '';
  for await (const chunk of await llm.stream(secret)) text += chunk.content;
  assert.equal(text, content);

  const look = langTool(async () => 'sunny', { name: 'get_weather', description: 'Weather of a city', schema: z.object({ city: z.string() }) });
  const asked = new HumanMessage(question[0].content);
  const called = await llm.bindTools([look]).invoke([asked]);
  assert.deepEqual(called.tool_calls.map(({ name, args }) => ({ name, args })), [{ name: 'get_weather', args: { city: 'Lisbon' } }]);
  const [call] = called.tool_calls;
  const went = await llm.bindTools([look]).invoke([asked, new AIMessage({ content: '', tool_calls: [call] }), new ToolMessage({ content: 'sunny', tool_call_id: call.id })]);
  assert.ok(went.content.length > 3);

  const shaped = llm.withStructuredOutput(z.object({ code: z.string().max(8) }));
  assert.equal(typeof (await shaped.invoke('What is the secret code?')).code, 'string');
});

test('langchain: OllamaEmbeddings', async () => {
  const embeddings = new OllamaEmbeddings({ baseUrl: url, model: 'bert' });
  const [vector] = await embeddings.embedDocuments(['a river']);
  assert.deepEqual(await embeddings.embedQuery('a river'), vector);
  assert.ok(vector.length > 16);
});

test('an address that another server has is told with what to do', async () => {
  const other = net.createServer();
  await new Promise((resolve) => { other.listen(0, '127.0.0.1', resolve); });
  const address = `127.0.0.1:${other.address().port}`;
  const { code, stderr } = await run(['serve', '--port', '0', '--set', 'server.ollama=true', '--set', `server.ollama_listen=${address}`]);
  other.close();
  assert.notEqual(code, 0);
  assert.match(stderr, new RegExp(`server\\.ollama: cannot listen on ${address}: address already in use: end the server that has the address, perhaps Ollama, or set server\\.ollama_listen`));
});
