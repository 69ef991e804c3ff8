// Presets: names for a model with a system message and parameters of their own, made through Ollama's API and its official
// client, used through all APIs, kept in the models folder.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ollama } from 'ollama';
import { plainEnvironment } from './lib/mirror.js';
import { run, serve, temporaryFolder } from './lib/server.js';

const folder = temporaryFolder();
const env = { ...plainEnvironment, HEARTH_MODELS: folder };
const start = (more = {}) => serve({ models: { n_seq_max: 2, context_window: 1024, cache_min_tokens: 0 }, env, ...more });
let server;
let ollama;

before(async () => {
  server = await start();
  ollama = new Ollama({ host: server.url });
});
after(() => server.stop());

const system = 'You are a pirate and say so.';
const question = [{ role: 'user', content: 'Who are you?' }];
const greedy = { temperature: 0, num_predict: 12 };
const file = (name) => join(folder, `${name}.preset.json`);
const names = async () => (await ollama.list()).models.map(({ name }) => name);

test('what is made is listed, shown and used, by every API, as if the client had said it', async () => {
  const stream = await ollama.create({ model: 'pirate', from: 'demo', system, parameters: { temperature: 0, num_predict: 12, stop: ['zzz'] }, stream: true });
  const lines = [];
  for await (const { status } of stream) lines.push(status);
  assert.equal(lines.at(-1), 'success');
  assert.deepEqual(await names(), ['demo:latest', 'pirate:latest']);
  const shown = await ollama.show({ model: 'pirate' });
  assert.equal(shown.system, system);
  assert.equal(shown.details.parent_model, 'demo');
  assert.match(shown.parameters, /^temperature +0$/m);
  assert.equal((await server.client.get('/v1/models')).json.data.length, 2);
  assert.equal((await server.client.get('/v1/models/pirate')).json.id, 'pirate');

  const messages = [{ role: 'system', content: system }, ...question];
  const said = await ollama.chat({ model: 'demo', messages, options: greedy });
  for (const model of ['pirate', 'pirate:latest']) {
    const seen = await ollama.chat({ model, messages: question });
    assert.equal(seen.message.content, said.message.content);
    assert.equal(seen.prompt_eval_count, said.prompt_eval_count);
    assert.equal(seen.model, model);
  }
  const chat = await server.client.chat({ model: 'pirate', messages: question });
  assert.equal(chat.choices[0].message.content, said.message.content);
  assert.equal(chat.model, 'pirate');
  assert.equal(chat.usage.prompt_tokens, said.prompt_eval_count);
  assert.ok(chat.usage.prompt_tokens_details.cached_tokens >= chat.usage.prompt_tokens - 1, 'it is the same prompt');
  const message = await server.client.ask('/v1/messages', { model: 'pirate', max_tokens: 12, messages: question });
  assert.equal(message.content[0].text, said.message.content);
  const response = await server.client.ask('/v1/responses', { model: 'pirate', input: 'Who are you?' });
  assert.equal(response.output[0].content[0].text, said.message.content);
  const counted = await server.client.ask('/v1/messages/count_tokens', { model: 'pirate', messages: question });
  assert.equal(counted.input_tokens, said.prompt_eval_count);
  const own = await ollama.chat({ model: 'pirate', messages: [{ role: 'system', content: 'Be brief.' }, ...question] });
  const brief = await ollama.chat({ model: 'demo', messages: [{ role: 'system', content: 'Be brief.' }, ...question], options: greedy });
  assert.equal(own.prompt_eval_count, brief.prompt_eval_count, "the client's own system message stands alone");
  assert.equal((await ollama.generate({ model: 'pirate', prompt: 'Who are you?', options: { num_predict: 3 } })).eval_count, 3);
});

test('one is made of another, copied, replaced and removed, each for itself', async () => {
  await ollama.create({ model: 'parrot', from: 'pirate', parameters: { num_predict: 5 } });
  await ollama.copy({ source: 'parrot:latest', destination: 'polly' });
  await ollama.copy({ source: 'demo', destination: 'plain' });
  await ollama.delete({ model: 'parrot' });
  assert.ok(!existsSync(file('parrot')));
  const polly = await ollama.chat({ model: 'polly', messages: question });
  assert.equal(polly.eval_count, 5);
  assert.equal((await ollama.show({ model: 'polly' })).system, system);
  assert.equal((await ollama.show({ model: 'plain' })).system, undefined);
  assert.deepEqual(JSON.parse(readFileSync(file('polly'), 'utf8')), { from: 'demo', system, parameters: { temperature: 0, num_predict: 5, stop: ['zzz'] } });
  await ollama.create({ model: 'polly', from: 'demo', system: 'You are a parrot.' });
  assert.equal((await ollama.show({ model: 'polly' })).system, 'You are a parrot.');
  await assert.rejects(ollama.delete({ model: 'parrot' }), { status_code: 404 });
});

test('a template of its own is rendered in place of the model\'s, and another preset has the model\'s', async () => {
  const template = "{%- for m in messages -%}{{- '[' + m.role + '] ' + m.content -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- '[assistant]' -}}{%- endif -%}";
  await ollama.create({ model: 'square', from: 'demo', system: 'Hm.', template });
  const shown = async (model) => (await server.client.ask('/apply-template', { model, messages: question })).prompt;
  assert.equal(await shown('square'), '[system] Hm.[user] Who are you?[assistant]');
  assert.match(await shown('pirate'), /<\|im_start\|>/);
  assert.equal((await ollama.show({ model: 'square' })).template, template);
  assert.ok((await ollama.chat({ model: 'square', messages: question, options: greedy })).eval_count > 0);
  await ollama.create({ model: 'round', from: 'square', template: template.replaceAll("'['", "'('") });
  assert.equal(await shown('round'), '(system] Hm.(user] Who are you?[assistant]');
  assert.equal(await shown('square'), '[system] Hm.[user] Who are you?[assistant]');
  await assert.rejects(ollama.create({ model: 'bad', from: 'demo', template: '{% for %}' }), /'template' cannot be used: /);
  await ollama.delete({ model: 'round' });
  await ollama.delete({ model: 'square' });
});

test('what cannot be made is refused with the field, and changes nothing', async () => {
  const rows = [
    [{ model: 'x' }, 400, /'from' is missing/],
    [{ model: 'x', from: 'nobody' }, 404, /nobody/],
    [{ model: 'demo', from: 'demo' }, 400, /'demo' is a model/],
    [{ model: 'a/../b', from: 'demo' }, 400, /name/],
    [{ model: 'x', from: 'demo', template: '{{ .Prompt }}' }, 400, /'template' must be in Jinja/],
    [{ model: 'x', from: 'demo', parameters: { temperature: 'hot' } }, 400, /'parameters\.temperature' must be a number/],
    [{ model: 'x', from: 'demo', parameters: [] }, 400, /'parameters' must be an object/],
    [{ model: 'x', from: 'demo', parameters: { top_p: 7 } }, 400, /top_p/],
    [{ model: 'x', from: 'demo', adapters: { a: 'b' } }, 400, /'adapters' is not supported/],
  ];
  for (const [body, status, why] of rows) {
    const answer = await server.client.post('/api/create', { stream: false, ...body });
    assert.equal(answer.status, status, `${JSON.stringify(body)}: ${answer.text}`);
    assert.match(answer.json.error, why);
  }
  assert.ok(!(await names()).includes('x:latest'));
  assert.ok(!existsSync(file('x')));
  assert.equal((await server.client.post('/api/copy', { source: 'nobody', destination: 'y' })).status, 404);
  assert.equal((await server.client.post('/api/copy', { source: 'demo' })).status, 400);
});

test('what several order at once, and what cannot be written or read, leaves memory and disk of one mind', async () => {
  const systems = Array.from({ length: 4 }, (_, i) => `You are number ${i}. ${'x'.repeat(20000 * i)}`);
  const answers = await Promise.all(systems.map((text) => server.client.post('/api/create', { model: 'many', from: 'demo', system: text, stream: false })));
  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 200, 200]);
  assert.equal(JSON.parse(readFileSync(file('many'), 'utf8')).system, (await ollama.show({ model: 'many' })).system);

  const first = (await ollama.show({ model: 'many' })).system;
  rmSync(file('many'));
  mkdirSync(file('many'));
  await assert.rejects(ollama.create({ model: 'many', from: 'demo', system: 'Another.' }), /cannot write/);
  assert.equal((await ollama.show({ model: 'many' })).system, first, 'the former one is there still');
  await assert.rejects(ollama.copy({ source: 'many', destination: 'more' }), /cannot read/);
  assert.ok(!(await names()).includes('more:latest'));
  rmdirSync(file('many'));
  await assert.rejects(ollama.copy({ source: 'many', destination: 'more' }), { status_code: 404 });
  await ollama.delete({ model: 'many' });
  await assert.rejects(ollama.create({ model: 'many', from: 'demo', system: 'x'.repeat(4 << 20) }), /too large/i);
  assert.deepEqual(readdirSync(folder).filter((name) => name.endsWith('.part')), []);
});

test('what a request gives holds, also where it gives what is usual', async () => {
  await ollama.create({ model: 'short', from: 'demo', parameters: { num_predict: 2, seed: 7, stop: ['e'] } });
  const ask = (options) => ollama.chat({ model: 'short', messages: question, options: { temperature: 0, ...options } });
  assert.equal((await ask({ stop: [] })).eval_count, 2);
  assert.equal((await ask({ stop: [] })).done_reason, 'length');
  const free = await ask({ num_predict: -1, stop: [] });
  assert.ok(free.eval_count > 2 && free.message.content.includes('e'), free.message.content);
  assert.ok(!(await ask({ num_predict: -1 })).message.content.includes('e'));
  const seed = async (body) => (await server.client.ask('/completion', { model: 'short', prompt: 'Once', n_predict: 1, ...body })).generation_settings.seed;
  assert.equal(await seed({}), 7);
  assert.notEqual(await seed({ seed: -1 }), 7);
  await ollama.delete({ model: 'short' });
});

test('they outlive the server, are listed and removed on the command line, and a broken file is a line of the log', async () => {
  await server.stop();
  writeFileSync(file('broken'), '{"from": ');
  writeFileSync(file('orphan'), '{"from": "nobody"}');
  server = await start();
  ollama = new Ollama({ host: server.url });
  await server.says(/a preset cannot be used name=broken/);
  await server.says(/a preset cannot be used name=orphan/);
  assert.deepEqual(await names(), ['demo:latest', 'pirate:latest', 'plain:latest', 'polly:latest']);
  assert.equal((await ollama.show({ model: 'pirate' })).system, system);
  const listed = await run(['models'], { env });
  assert.match(listed.stdout, /^pirate +preset +demo$/m);
  const json = JSON.parse((await run(['models', '--json'], { env })).stdout);
  assert.equal(json.find(({ name }) => name === 'pirate').preset.system, system);
  assert.equal((await run(['rm', 'plain'], { env })).code, 0);
  assert.ok(!existsSync(file('plain')));
});

test('they are the administrator\'s to make, where the models folder is served', async (t) => {
  const other = await start({ t, set: { 'server.serve_pulled': false } });
  const refused = await other.client.post('/api/create', { model: 'x', from: 'demo', stream: false });
  assert.equal(refused.status, 400);
  assert.match(refused.json.error, /serve_pulled/);
  assert.deepEqual((await other.client.get('/v1/models')).json.data.map(({ id }) => id), ['demo']);
  await other.stop();
});
