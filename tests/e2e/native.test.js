// llama-server's native routes: what its clients are told by hearth, beside what llama-server itself tells them of the
// same models.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { serve } from './lib/server.js';
import { peer } from './lib/peer.js';
import { demo, smallModel } from './lib/models.js';

const coder = smallModel('llama', { vocab: 'refact', layers: 2 }); // a vocabulary with tokens for gaps

let server;
let gaps;
let llama;
let llamaGaps;
const ends = [];

before(async () => {
  const later = { after: (end) => ends.push(end) };
  server = await serve({ models: { n_seq_max: 2, context_window: 2048 } });
  gaps = await serve({ model: coder, models: { context_window: 1024, n_batch: 256, n_ubatch: 256, n_seq_max: 1 } });
  llama = await peer(later, demo, ['-c', '2048', '-np', '1']);
  llamaGaps = await peer(later, coder, ['-c', '1024', '-b', '256', '-np', '1']);
});

after(async () => {
  ends.forEach((end) => end());
  await server.stop();
  await gaps.stop();
});

const who = '<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n';
const chat = [{ role: 'user', content: 'My name is Ottilie.' }];

// The same question to both; what is asked for has to be the same.
async function both(path, body, members) {
  const [ours, theirs] = await Promise.all([server.client.ask(path, body), llama.ask(path, body)]);
  const picked = (reply) => (members ? Object.fromEntries(members.map((name) => [name, reply[name]])) : reply);
  assert.deepEqual(picked(ours), picked(theirs));
  return ours;
}

test('a completion has the members of llama-server, with the same values', async () => {
  const members = ['index', 'content', 'tokens', 'stop', 'tokens_predicted', 'tokens_evaluated', 'prompt',
    'has_new_line', 'truncated', 'stop_type', 'stopping_word', 'tokens_cached'];
  const fixed = { temperature: 0, top_k: 1, cache_prompt: false };
  for (const body of [
    { prompt: who, n_predict: 12, return_tokens: true },
    { prompt: who, n_predict: 12 },
    { prompt: who },
    { prompt: who, stop: ['demo'] },
    { prompt: [300, 'Hi', 301], n_predict: 4, return_tokens: true, ignore_eos: true },
    { prompt: [300, 301, 302], n_predict: 4, return_tokens: true, ignore_eos: true },
    { prompt: { prompt_string: 'Once' }, n_predict: 4 },
  ]) await both('/completion', { ...fixed, ...body }, members);
  const ours = await server.client.ask('/completion', { prompt: who, n_predict: 3, seed: 5 });
  const theirs = await llama.ask('/completion', { prompt: who, n_predict: 3, seed: 5 });
  assert.deepEqual(Object.keys(ours).sort(), Object.keys(theirs).sort());
  assert.equal(ours.generation_settings.seed, 5);
  assert.equal(ours.generation_settings.n_predict, 3);
  for (const name of Object.keys(theirs.timings)) assert.equal(typeof ours.timings[name], 'number', name);
});

test('settings and logprobs are the same', async () => {
  const body = {
    prompt: who, n_predict: 6, temperature: 0, seed: 5, top_k: 20, top_p: 0.9, min_p: 0.1, n_probs: 3,
    cache_prompt: false, stop: ['zzz'], logit_bias: [[300, 1.5]],
  };
  for (const more of [{}, { temperature: 0.7, post_sampling_probs: true, top_k: 3, top_p: 1, min_p: 0 }]) {
    const request = { ...body, ...more };
    const [ours, theirs] = await Promise.all([server.client.ask('/completion', request), llama.ask('/completion', request)]);
    assert.deepEqual(Object.keys(ours.generation_settings).sort(), Object.keys(theirs.generation_settings).sort());
    for (const name of ['seed', 'top_k', 'n_predict', 'n_probs', 'stop', 'logit_bias', 'stream', 'post_sampling_probs']) {
      assert.deepEqual(ours.generation_settings[name], theirs.generation_settings[name], name);
    }
    assert.equal(ours.completion_probabilities.length, theirs.completion_probabilities.length);
    ours.completion_probabilities.forEach((token, i) => {
      const other = theirs.completion_probabilities[i];
      const top = more.post_sampling_probs ? 'top_probs' : 'top_logprobs';
      assert.deepEqual(Object.keys(token).sort(), Object.keys(other).sort());
      assert.deepEqual([token.id, token.token, token.bytes], [other.id, other.token, other.bytes]);
      assert.equal(token[top][0].id, other[top][0].id);
      if (!more.post_sampling_probs) assert.ok(Math.abs(token.logprob - other.logprob) < 0.01);
    });
  }
});

test('verbose answers of the OpenAI routes hold the native one as well', async () => {
  const body = { messages: chat, max_tokens: 8, temperature: 0, seed: 5, verbose: true };
  const [ours, theirs] = await Promise.all([server.client, llama].map((client) => client.ask('/v1/chat/completions', body)));
  assert.deepEqual(Object.keys(ours.__verbose).sort(), Object.keys(theirs.__verbose).sort());
  for (const name of ['index', 'prompt', 'content', 'tokens_predicted', 'tokens_evaluated', 'stop_type']) {
    assert.deepEqual(ours.__verbose[name], theirs.__verbose[name], name);
  }
  assert.equal(ours.__verbose.generation_settings.seed, 5);
  const stream = await server.client.streamed('/v1/chat/completions', body);
  assert.deepEqual(stream.chunks.filter((chunk) => chunk.__verbose).map((chunk) => chunk.__verbose.prompt), [ours.__verbose.prompt]);
  const several = await server.client.ask('/v1/completions', { prompt: who, max_tokens: 2, n: 2, verbose: true });
  assert.deepEqual(several.__verbose.map((one) => one.prompt), [who, who]);
  const quiet = await server.client.ask('/v1/chat/completions', { ...body, verbose: false });
  assert.equal(quiet.__verbose, undefined);
});

test('a stream reports progress and logprobs where asked', async () => {
  const body = { prompt: `${who}${'word '.repeat(300)}`, n_predict: 3, n_probs: 1, return_progress: true, timings_per_token: true };
  const { chunks } = await server.client.streamed('/completion', body);
  const progress = chunks.filter((chunk) => chunk.prompt_progress).map((chunk) => chunk.prompt_progress);
  assert.ok(progress.length > 0);
  assert.equal(progress.at(-1).processed, progress.at(-1).total);
  const tokens = chunks.filter((chunk) => !chunk.stop && !chunk.prompt_progress);
  assert.deepEqual(tokens.map((chunk) => chunk.tokens_predicted), [1, 2, 3]);
  assert.ok(tokens.every((chunk) => chunk.completion_probabilities.length === 1 && chunk.timings.predicted_n > 0));
  assert.ok(tokens.every((chunk) => chunk.tokens_evaluated === progress[0].total));
});

test('several prompts are answered with a list, in their order', async () => {
  const body = { prompt: [who, 'Once', [300, 'x']], n_predict: 4, temperature: 0, response_fields: ['index', 'content'] };
  const list = await server.client.ask('/completions', body);
  assert.deepEqual(list.map((answer) => answer.index), [0, 1, 2]);
  assert.deepEqual(Object.keys(list[0]), ['index', 'content']);
  const alone = await server.client.ask('/completion', { ...body, prompt: who });
  assert.equal(alone.content, list[0].content);
});

test('a stream says the same as a whole answer and ends with all but its text', async () => {
  const body = { prompt: who, n_predict: 12, temperature: 0, return_tokens: true };
  const whole = await server.client.ask('/completion', body);
  const { chunks, done } = await server.client.streamed('/completion', body);
  const last = chunks.pop();
  assert.equal(done, false, 'no [DONE]');
  assert.ok(chunks.every((chunk) => chunk.stop === false && chunk.tokens.length === 1));
  assert.equal(chunks.map((chunk) => chunk.content).join(''), whole.content);
  assert.deepEqual(chunks.flatMap((chunk) => chunk.tokens), whole.tokens);
  assert.equal(last.stop, true);
  assert.equal(last.content, '');
  assert.equal(last.prompt, who);
  assert.equal(last.tokens_predicted, whole.tokens_predicted);
});

test('tokens, text and templates are the same', async () => {
  const content = 'Hällo <|im_end|> 🤗\n';
  for (const more of [{}, { add_special: true }, { parse_special: false }, { with_pieces: true }]) {
    await both('/tokenize', { content, ...more });
  }
  await both('/tokenize', { content: [300, 'Hi', 5] });
  await both('/tokenize', {});
  const { tokens } = await server.client.ask('/v1/tokenize', { content });
  const { content: back } = await both('/detokenize', { tokens });
  assert.equal(back, content);
  await both('/detokenize', {});
  await both('/apply-template', { messages: chat });
  await both('/chat/completions/input_tokens', { messages: chat });
});

test('a gap is filled in with the prompt that llama-server makes', async () => {
  const lines = Array.from({ length: 300 }, (_, i) => `int line_${i} = ${i};`).join('\n');
  for (const body of [
    { input_prefix: 'int main() {\n', input_suffix: '}\n', prompt: '  ret' },
    { input_prefix: 'a', input_suffix: '' },
    { input_prefix: 'a <fim_middle>', input_suffix: '<fim_prefix>', prompt: '<fim_suffix>' },
    { input_prefix: 'a', input_suffix: 'b', input_extra: [{ filename: 'x.h', text: 'int x;\n' }, { text: 'int y;' }] },
    { input_prefix: lines, input_suffix: lines, prompt: '  int' },
  ]) {
    const request = { ...body, n_predict: 6, temperature: 0, return_tokens: true, cache_prompt: false };
    const [ours, theirs] = await Promise.all([gaps.client.ask('/infill', request), llamaGaps.ask('/infill', request)]);
    assert.equal(ours.prompt, theirs.prompt);
    assert.equal(ours.tokens_evaluated, theirs.tokens_evaluated);
    assert.deepEqual(ours.tokens, theirs.tokens);
  }
  const snippets = { input_prefix: lines, input_suffix: lines, input_extra: [{ text: lines }], n_predict: 6 };
  const full = await gaps.client.ask('/infill', snippets);
  assert.ok(full.tokens_evaluated > 900 && full.tokens_evaluated + 6 < 1024, 'snippets are cut to what is left');
});

test("a completion's suffix is the same gap, and a model without tokens for it says so", async () => {
  const reply = await gaps.client.complete({ prompt: 'int main() {\n', suffix: '}\n', max_tokens: 6 });
  const infill = await gaps.client.ask('/infill', {
    input_prefix: 'int main() {\n', input_suffix: '}\n', n_predict: 6, temperature: 0,
  });
  assert.equal(reply.choices[0].text, infill.content);
  const error = await server.client.refused(400, '/v1/completions', { prompt: 'a', suffix: 'b' });
  assert.equal(error.param, 'suffix');
  assert.match(error.message, /'demo'/);
  const gap = await server.client.refused(400, '/infill', { input_prefix: 'a', input_suffix: 'b' });
  assert.equal(gap.param, 'input_suffix');
});

test('properties are those of the model, and tell no path', async () => {
  const ours = (await server.client.get('/props')).json;
  const theirs = (await llama.get('/props')).json;
  for (const name of ['bos_token', 'eos_token', 'modalities', 'is_sleeping', 'chat_template', 'chat_template_caps', 'model_ftype']) {
    assert.deepEqual(ours[name], theirs[name], name);
  }
  const [meta, theirMeta] = await Promise.all([server.client, llama].map(async (client) => (await client.get('/v1/models')).json.data[0].meta));
  for (const name of ['ftype', 'vocab_type', 'n_vocab', 'n_embd']) assert.equal(meta[name], theirMeta[name], name);
  assert.equal(ours.default_generation_settings.n_ctx, 2048);
  assert.equal(ours.total_slots, 2);
  assert.equal(ours.model_path, 'demo.gguf');
});

test('routes without /v1 are those with it, and what is not built says what to do', async () => {
  const body = { messages: chat, max_tokens: 8 };
  const [plain, v1] = [await server.client.ask('/chat/completions', { ...body, temperature: 0 }), await server.client.chat(body)];
  assert.equal(plain.choices[0].message.content, v1.choices[0].message.content);
  assert.equal((await server.client.get('/models')).json.data[0].id, 'demo');
  assert.equal((await server.client.get('/v1/health')).status, 200);
  const error = await server.client.refused(400, '/slots/0?action=save', { filename: 'x' });
  assert.match(error.message, /hearth kv/);
});

test('what only the library finds out is said with the route\'s own name of the field', async () => {
  const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: 'not json' };
  const rows = [
    ['/detokenize', { tokens: [999999] }, 'tokens'],
    ['/tokenize', { content: [999999] }, 'content'],
    ['/responses/input_tokens', { input: [{ role: 'user', content: 'hi' }, call] }, 'input'],
    ['/responses', { input: [{ role: 'user', content: 'hi' }, call] }, 'input'],
  ];
  for (const [path, body, param] of rows) {
    const error = await server.client.refused(400, path, body);
    assert.equal(error.param, param, path);
    assert.doesNotMatch(error.message, /messages|prompt/, path);
  }
});

test('slots say what llama-server says of them', async () => {
  const [slot] = await server.client.slots();
  assert.equal(slot.n_ctx, 2048);
  assert.equal(slot.is_processing, false);
  assert.equal(slot.next_token[0].has_next_token, false);
  assert.equal((await server.client.get('/slots?fail_on_no_slot=1')).status, 200);
});
