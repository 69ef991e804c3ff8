// Drafts: calls that compute several tokens of a reply. The text is the one without, they can be turned off, and what
// others were answered is no source under another salt or adapter, nor once it was dropped.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { bareModel, demo, mkmodel, noAttention, smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { saved } from './lib/store.js';

let server;

before(async () => {
  server = await serve({ model: demo, models: { n_seq_max: 2, cache_min_tokens: 0 } });
});
after(() => server.stop());

const question = 'Write a list of ten animals, and say of each where it lives.';
const ask = (more) => server.client.chat({ messages: [{ role: 'user', content: question }], max_tokens: 150, temperature: 0, ignore_eos: true, ...more });
const drafted = async (source, { client } = server) => {
  const { text } = await client.fetch('GET', '/metrics');
  return Number(new RegExp(`^hearth_drafted_tokens_${source}_total\\{[^}]*\\} (\\d+)`, 'm').exec(text)[1]);
};

test('a reply that is given again is drafted, and is the same', async () => {
  const plain = await ask({ 'speculative.n_max': 0 });
  assert.equal(plain.timings.draft_n, undefined);
  let accepted = 0;
  for (let i = 0; i < 8; i++) {
    const reply = await ask();
    assert.equal(reply.choices[0].message.content, plain.choices[0].message.content);
    assert.equal(reply.usage.completion_tokens, plain.usage.completion_tokens);
    assert.ok((reply.timings.draft_n_accepted ?? 0) <= (reply.timings.draft_n ?? 0));
    accepted += reply.timings.draft_n_accepted ?? 0;
  }
  assert.ok(accepted > 0, 'no draft was right');
  assert.ok((await drafted('store')) > 0);
});

test('the slots say whether there are drafts', async (t) => {
  const without = await serve({ t, model: demo, models: { 'draft.sources': '[]' } });
  for (const [{ client }, drafts] of [[server, true], [without, false]]) {
    const { json } = await client.get('/slots');
    assert.ok(json.length > 0 && json.every(({ speculative }) => speculative === drafts), JSON.stringify(json));
  }
});

// States that cannot be cut go back to a copy; windows are cut.
for (const [arch, options] of [['qwen35'], ['qwen35-mtp'], ['qwen35moe'], ['glm4moe'], ['falcon-h1'], ['lfm2'], ['mamba2', noAttention], ['gemma3'], ['qwen3moe']]) {
  test(`a reply of ${arch} that is given again is drafted, and is the same`, async (t) => {
    const model = smallModel(arch, options);
    const other = await serve({ t, model, models: { context_window: 512, n_seq_max: 2, cache_min_tokens: 0 } });
    const complete = (more) => other.client.complete({ prompt: 'Once upon a time', max_tokens: 200, temperature: 0, ignore_eos: true, ...more });
    const plain = await complete({ 'speculative.n_max': 0 });
    let accepted = 0;
    for (let i = 0; i < 8; i++) {
      const reply = await complete();
      assert.equal(reply.choices[0].text, plain.choices[0].text);
      accepted += reply.timings.draft_n_accepted ?? 0;
    }
    assert.ok(accepted > 0, 'no draft was right');
    await other.stop();
  });
}

test('a draft model writes ahead, also behind a prompt from the cache, and is told of', async (t) => {
  const model = smallModel('llama');
  const other = await serve({ t, model, models: { context_window: 2048, cache_min_tokens: 0, 'draft.path': model, 'draft.sources': '[model]', 'draft.n_gpu_layers': '-1' } });
  const prompt = Array.from({ length: 80 }, (_, i) => `word ${i}`).join(' ');
  const complete = (more) => other.client.complete({ prompt, max_tokens: 300, temperature: 0, ignore_eos: true, ...more });
  const plain = await complete({ 'speculative.n_max': 0 });
  for (let i = 0; i < 4; i++) assert.equal((await complete()).choices[0].text, plain.choices[0].text);
  // Whether its guesses pay is measured, so that not one may be computed.
  const { text } = await other.client.fetch('GET', '/metrics');
  assert.ok(Number(/^hearth_draft_model_calls_total\{[^}]*\} (\d+)/m.exec(text)[1]) > 0);
  assert.equal(await drafted('store', other), 0);
});

const eagle = (arch = 'eagle3') => smallModel(arch, { layers: 1 });
for (const [arch, head] of [['qwen35-mtp'], ['qwen35moe'], ['glm4moe'], ['llama', eagle], ['qwen3', eagle], ['qwen3moe', eagle], ['gpt-oss', eagle], ['llama', () => eagle('eagle3-own')]]) {
  test(`the ${head ? 'EAGLE-3 head for' : 'MTP head of'} ${arch} is asked, also behind a prompt from the cache, and changes no reply`, async (t) => {
    const models = { context_window: 2048, n_seq_max: 2, cache_min_tokens: 0, 'draft.sources': '[model]', ...(head && { 'draft.path': head() }) };
    const other = await serve({ t, model: smallModel(arch), models });
    const prompt = Array.from({ length: 80 }, (_, i) => `word ${i}`).join(' ');
    const complete = (more) => other.client.complete({ prompt, max_tokens: 300, temperature: 0, ignore_eos: true, ...more });
    const plain = await complete({ 'speculative.n_max': 0 });
    for (let i = 0; i < 4; i++) {
      const replies = await Promise.all([complete(), complete({ prompt: `${prompt} ${i}` })]);
      assert.equal(replies[0].choices[0].text, plain.choices[0].text);
    }
    const { text } = await other.client.fetch('GET', '/metrics');
    assert.ok(Number(/^hearth_draft_model_calls_total\{[^}]*\} (\d+)/m.exec(text)[1]) > 0);
    await other.stop();
  });
}

test('a draft model with another vocabulary, or that cannot be cut, ends the start with the name of its key', async () => {
  await assert.rejects(serve({ model: demo, models: { 'draft.path': bareModel() } }), /models\.demo\.draft\.path: its (vocabulary|tokenizer)/);
  const states = smallModel('mamba2', noAttention);
  await assert.rejects(serve({ model: states, models: { 'draft.path': states } }), /draft\.path: .* cannot draft: its states cannot be cut/);
  await assert.rejects(serve({ model: demo, models: { 'draft.sources': '[model]' } }), /draft\.sources: model needs models\.demo\.draft\.path/);
});

test('an EAGLE-3 head for another model, or that cannot have its rows, ends the start with the reason', async () => {
  const model = smallModel('llama');
  const rejected = (reason, more, options) => assert.rejects(serve({ model: smallModel(...options ?? ['llama']), models: { 'draft.path': eagle(), ...more } }), reason);
  await rejected(/draft\.path: .*embedding of 128, and this one has 64/, {}, ['llama', { embd: 64, heads: 2, 'kv-heads': 1 }]);
  await rejected(/draft\.path: .*input of layer 3, and the model has 2 layers/, {}, ['llama', { layers: 2 }]);
  await rejected(/draft\.path: .*cannot read the layers of gemma3 models/, {}, ['gemma3']);
  await rejected(/draft\.path: .*one pool of cells: leave kv_unified/, { kv_unified: false });
  await assert.rejects(serve({ model: eagle() }), /eagle3/);
  const other = await serve({ model, models: { 'draft.path': eagle(), deterministic: true } });
  await other.client.complete({ prompt: 'Once', max_tokens: 5 });
  await other.stop();
});

test('under another salt nothing is drafted from it', async () => {
  const before = await drafted('store');
  for (let i = 0; i < 4; i++) await ask({ cache_salt: `salt ${i}` });
  for (let i = 0; i < 4; i++) await ask({ cache_prompt: false });
  assert.equal(await drafted('store'), before);
});

test('under another adapter nothing is drafted from it', async (t) => {
  const model = smallModel('llama');
  const lora = [1, 2].map((seed) => join(temporaryFolder(), `adapter-${seed}.gguf`));
  lora.forEach((path, i) => execFileSync(mkmodel, ['--lora-for', model, '--rank', '8', '--seed', `${i + 1}`, '-o', path], { stdio: 'ignore' }));
  const adapted = await serve({ t, model, models: { context_window: 512, cache_min_tokens: 0, lora: `[{path: ${lora[0]}, scale: 0}, {path: ${lora[1]}, scale: 0}]` } });
  const under = (id) => adapted.client.complete({ prompt: 'The same prompt', lora: [{ id, scale: 1 }], max_tokens: 200, temperature: 0, ignore_eos: true });
  await under(0);
  await under(1);
  assert.equal(await drafted('store', adapted), 0);
  await under(0);
  await under(0);
  assert.ok((await drafted('store', adapted)) > 0, 'nor is anything drafted under the same one');
});

test('what was dropped from the store is no source any more', async (t) => {
  const draftedFromDisk = async (drop) => {
    const disk = temporaryFolder();
    const start = () => serve({ t, model: demo, set: { 'cache.tiers.disk.path': disk, 'cache.boundary_align_tokens': 16 }, models: { cache_min_tokens: 0 } });
    const say = ({ client }) => client.chat({ messages: [{ role: 'user', content: question }], max_tokens: 150, temperature: 0, ignore_eos: true });
    const before = await start();
    await say(before);
    await saved(before);
    await before.stop();
    const after = await start();
    const { json: { conversations } } = await after.client.get('/cache/stored');
    assert.ok(conversations.length > 0);
    if (drop) for (const { tier, key } of conversations) await after.client.ask('/cache/stored', { tier, key, order: 'drop' });
    await say(after);
    const n = await drafted('store', after);
    await after.stop();
    return n;
  };
  assert.ok((await draftedFromDisk(false)) > 0, 'nothing is drafted from what is there');
  assert.equal(await draftedFromDisk(true), 0);
});

test('a stream in even pieces does not show how many tokens came at once', async (t) => {
  const even = await serve({ t, model: demo, set: { 'server.stream_tokens': '8' }, models: { cache_min_tokens: 0 } });
  // How many pieces of text there were after each read; it leaves when `most` reads have brought something.
  const counts = async (tokens, most = Infinity) => {
    const body = JSON.stringify({ prompt: 'Once', max_tokens: tokens, temperature: 0, ignore_eos: true, stream: true });
    const response = await fetch(`${even.url}/v1/completions`, { method: 'POST', body });
    const seen = [];
    let text = '';
    for await (const bytes of response.body) {
      text += Buffer.from(bytes).toString();
      const n = (text.match(/"text":"[^"]/g) ?? []).length;
      if (n !== (seen.at(-1) ?? 0)) seen.push(n);
      if (seen.length === most) break;
    }
    return seen;
  };
  const seen = await counts(60);
  const all = seen.at(-1);
  assert.ok(all > 40, `${all} pieces of text`);
  for (const n of seen) assert.ok(n % 8 === 0 || n === all, `after a read there were ${n} of ${all}`);
  // A short reply may come in one read where the machine is busy, one of seconds cannot.
  assert.equal((await counts(3000, 4)).length, 4, 'it is no stream');
});

test('a field of the wrong type is refused by its name', async () => {
  const error = await server.client.refused(400, '/v1/chat/completions', {
    messages: [{ role: 'user', content: question }], 'speculative.n_max': 'many',
  });
  assert.match(error.message, /speculative\.n_max/);
});

test('a source that there is not ends the start with the name of its key', async () => {
  await assert.rejects(
    serve({ model: demo, models: { 'draft.sources': '[oracle]' } }),
    /draft\.sources: 'oracle' is none of/,
  );
});
