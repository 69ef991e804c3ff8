// llama-server's native routes: what its clients are told by hearth, beside what llama-server itself tells them of the
// same models.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { serve } from './lib/server.js';
import { peer } from './lib/peer.js';
import { demo, smallModel } from './lib/models.js';
import { until } from './lib/wait.js';

const coder = smallModel('llama', { vocab: 'refact', layers: 2 }); // a vocabulary with tokens for gaps

let server;
let gaps;
let llama;
let llamaGaps;
const ends = [];

before(async () => {
  const later = { after: (end) => ends.push(end) };
  server = await serve({ models: { n_seq_max: 2, context_window: 2048, aliases: '[other]', tags: '[small, fast]' } });
  gaps = await serve({ model: coder, models: { context_window: 1024, n_batch: 256, n_ubatch: 256, n_seq_max: 1 } });
  llama = await peer(later, demo, ['-c', '2048', '-np', '1', '--alias', 'demo,other', '--tags', 'small,fast']);
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

// What a stream's chunks say of one choice, with the members that differ from token to token left out.
const deltasOf = ({ chunks }) => chunks.flatMap(({ choices }) => choices.map((choice) => choice.delta ?? { text: choice.text }));

test('a stream begins and ends as with llama-server, and has no empty text', async () => {
  const body = { messages: chat, max_tokens: 8, temperature: 0, stream_options: { include_usage: true } };
  for (const more of [{}, { timings_per_token: true }, { logprobs: true, top_logprobs: 2 }, { return_progress: true }, { stop: ['meet'] }]) {
    const [ours, theirs] = await Promise.all([server.client, llama].map((client) => client.streamed('/v1/chat/completions', { ...body, ...more })));
    const [deltas, others] = [deltasOf(ours), deltasOf(theirs)];
    assert.deepEqual([deltas[0], deltas.at(-1)], [others[0], others.at(-1)]);
    assert.deepEqual(deltas[0], { role: 'assistant', content: null });
    for (const { role, content } of deltas.slice(1)) assert.ok(role === undefined && content !== '' && content !== null);
    assert.equal(ours.text, theirs.text);
    assert.equal(ours.chunks[0].timings, undefined);
  }
});

test('progress and timings count as with llama-server', async () => {
  const text = 'word '.repeat(700);
  const fixed = { temperature: 0, return_progress: true, timings_per_token: true };
  for (const [path, body] of [
    ['/completion', { prompt: `One ${text}`, n_predict: 3 }],
    ['/v1/completions', { prompt: `Two ${text}`, max_tokens: 3 }],
    ['/v1/chat/completions', { messages: [{ role: 'system', content: `Three ${text}` }, { role: 'user', content: 'Hi' }], max_tokens: 3 }],
  ]) {
    for (const cached of [false, true]) {
      const [ours, theirs] = await Promise.all([server.client, llama].map(async (client) => {
        const { chunks } = await client.streamed(path, { ...fixed, ...body });
        return { progress: chunks.filter((chunk) => chunk.prompt_progress), tokens: chunks.filter((chunk) => chunk.timings && !chunk.prompt_progress) };
      }));
      for (const { progress, tokens } of [ours, theirs]) {
        const told = progress.map((chunk) => chunk.prompt_progress);
        assert.deepEqual(Object.keys(told[0]).sort(), ['cache', 'processed', 'time_ms', 'total']);
        assert.equal(told[0].processed, told[0].cache);
        assert.equal(told.at(-1).processed, told[0].total);
        for (let i = 1; i < told.length; i++) {
          assert.deepEqual([told[i].total, told[i].cache], [told[0].total, told[0].cache]);
          assert.ok(told[i].processed > told[i - 1].processed && told[i].time_ms >= told[i - 1].time_ms);
        }
        assert.deepEqual([progress[0].timings.prompt_n, progress[0].timings.prompt_ms, progress[0].timings.predicted_n, progress[0].timings.predicted_ms], [0, 0, 0, 0]);
        progress.forEach(({ timings }, i) => assert.deepEqual([timings.cache_n, timings.prompt_n], [told[i].cache, told[i].processed - told[i].cache]));
        for (const { timings } of tokens) assert.equal(timings.cache_n + timings.prompt_n, told[0].total);
        assert.deepEqual([...new Set(tokens.map(({ timings }) => timings.predicted_n))].slice(0, 2), [1, 2]);
        const { timings } = tokens.at(-1);
        assert.ok(Math.abs(timings.predicted_per_second - (1000 / timings.predicted_ms) * (timings.predicted_n - 1)) < timings.predicted_per_second / 100);
      }
      const [mine, other] = [ours, theirs].map(({ progress }) => progress[0].prompt_progress);
      assert.equal(mine.total, other.total);
      for (const { cache, total } of [mine, other]) assert.ok(cached ? cache > total - 5 : cache < 10, `${cache} of ${total}`);
    }
  }
});

test('streams of Responses have progress and timings as with llama-server', async () => {
  const body = { input: `Five ${'word '.repeat(700)}`, max_output_tokens: 4, temperature: 0, stream: true, timings_per_token: true, return_progress: true };
  for (const client of [server.client, llama]) {
    const { chunks } = await client.streamed('/v1/responses', body);
    const progress = chunks.filter((event) => event.prompt_progress);
    const told = progress.map((event) => event.prompt_progress);
    assert.ok(progress.length > 1 && progress.slice(1).every(({ type }) => type === 'response.in_progress'));
    assert.deepEqual([told[0].processed, told.at(-1).processed], [told[0].cache, told[0].total]);
    assert.ok(chunks.some(({ type, timings }) => type === 'response.output_text.delta' && timings.predicted_n > 0));
    const last = chunks.at(-1);
    assert.match(last.type, /^response\.(completed|incomplete)$/);
    assert.equal(last.timings.predicted_n, last.response.usage.output_tokens);
  }
});

test('what ignore_eos forbids is among the biases', async () => {
  for (const more of [{ ignore_eos: true }, { ignore_eos: false }, { ignore_eos: true, logit_bias: [[300, 1.5], [301, false]] }]) {
    const body = { prompt: who, n_predict: 2, temperature: 0, ...more };
    const [ours, theirs] = await Promise.all([server.client.ask('/completion', body), llama.ask('/completion', body)]);
    assert.deepEqual(ours.generation_settings.logit_bias, theirs.generation_settings.logit_bias);
    assert.equal(ours.generation_settings.logit_bias.length > 0, more.ignore_eos);
  }
});

test('a prompt that is too long has llama-server\'s type and numbers, and OpenAI\'s code', async () => {
  const long = 'word '.repeat(3000);
  for (const [path, body] of [['/completion', { prompt: long }], ['/v1/chat/completions', { messages: [{ role: 'user', content: long }] }]]) {
    for (const stream of [false, true]) {
      const [ours, theirs] = await Promise.all([server.client, llama].map(async (client) => (await client.post(path, { ...body, stream })).json.error));
      for (const name of ['type', 'n_prompt_tokens', 'n_ctx']) assert.equal(ours[name], theirs[name], name);
      assert.equal(ours.code, 'context_length_exceeded');
      const [words] = /request \(\d+ tokens\) exceeds the available context size \(\d+ tokens\)/.exec(theirs.message);
      assert.ok(ours.message.startsWith(words), ours.message);
      assert.match(ours.message, /This model's maximum context length is 2048 tokens/);
    }
  }
});

test('an empty conversation is answered in Messages', async () => {
  for (const more of [{}, { system: 'Be brief.' }]) {
    for (const client of [server.client, llama]) {
      const reply = await client.ask('/v1/messages', { model: 'demo', max_tokens: 4, messages: [], ...more });
      assert.deepEqual([reply.type, reply.role], ['message', 'assistant']);
    }
  }
});

test('metrics count what was computed and what was cached apart, as the timings do', async () => {
  const read = async () => {
    const { text } = await server.client.get('/metrics');
    return ['prompt_tokens', 'cached_tokens', 'generated_tokens'].map((name) => Number(new RegExp(`^hearth_${name}_total{model="demo"} (\\d+)`, 'm').exec(text)[1]));
  };
  const before = await read();
  const sums = [0, 0, 0];
  for (const n_predict of [1, 4, 16]) {
    const { timings } = await server.client.ask('/completion', { prompt: `${who} ${'the quick brown fox '.repeat(4)}`, n_predict });
    [timings.prompt_n, timings.cache_n, timings.predicted_n].forEach((n, i) => { sums[i] += n; });
    if (n_predict === 1) assert.deepEqual([timings.predicted_per_second, timings.predicted_per_token_ms], [0, 0]);
  }
  assert.ok(sums[1] > 0);
  assert.deepEqual((await read()).map((n, i) => n - before[i]), sums);
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
  const { content: back } = await both('/detokenize', { tokens }, ['content']);
  assert.equal(back, content);
  await both('/detokenize', {}, ['content']);
  await both('/apply-template', { messages: chat });
  await both('/chat/completions/input_tokens', { messages: chat });
});

test('vLLM\'s form of these has the same tokens', async () => {
  const prompt = 'Hällo <|im_end|> 🤗\n';
  for (const add of [true, false]) {
    const { tokens, count } = await server.client.ask('/tokenize', { prompt, add_special_tokens: add });
    assert.deepEqual(tokens, (await server.client.ask('/tokenize', { content: prompt, add_special: add })).tokens);
    assert.equal(count, tokens.length);
    if (!add) assert.equal((await server.client.ask('/detokenize', { tokens })).prompt, prompt);
  }
  const refused = await server.client.refused(400, '/tokenize', { messages: chat });
  assert.equal(refused.param, 'messages');
  const about = (await server.client.get('/tokenizer_info')).json, props = (await server.client.get('/props')).json;
  for (const name of ['bos_token', 'eos_token', 'chat_template']) assert.equal(about[name], props[name]);
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
  const [model, other] = await Promise.all([server.client, llama].map(async (client) => (await client.get('/v1/models')).json.data[0]));
  assert.deepEqual([model.tags.toSorted(), new Set([model.id, ...model.aliases])], [other.tags, new Set([other.id, ...other.aliases])]);
  await server.client.ask('/completion', { model: 'other', prompt: 'Once', n_predict: 1 });
  assert.equal(ours.default_generation_settings.n_ctx, 2048);
  assert.equal(ours.total_slots, 2);
  assert.equal(ours.model_path, 'demo.gguf');
});

test('a model that was unloaded sleeps until the next request', async () => {
  const sleeps = async () => (await server.client.get('/props')).json.is_sleeping;
  for (const [path, body] of [
    ['/completion', { prompt: 'Hello', n_predict: 1 }], ['/tokenize', { content: 'Hello' }], ['/apply-template', { messages: chat }],
    ['/chat/completions/input_tokens', { messages: chat }], ['/v1/responses/input_tokens', { input: 'Hello' }],
    ['/v1/messages/count_tokens', { messages: chat }],
  ]) {
    assert.equal(await sleeps(), false);
    assert.equal((await server.client.post('/models/unload', { model: 'demo' })).status, 200);
    await until('the model is unloaded', sleeps);
    for (const looked of ['/v1/models', '/health', '/metrics', '/slots', '/props']) assert.equal((await server.client.get(looked)).status, 200, looked);
    assert.equal(await sleeps(), true, 'looking does not wake it');
    await server.client.ask(path, body);
  }
  assert.equal(await sleeps(), false);
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
  const call = { type: 'function_call', call_id: 'c', name: '', arguments: '{}' };
  const rows = [
    ['/detokenize', { tokens: [999999] }, 'tokens'],
    ['/tokenize', { content: [999999] }, 'content'],
    ['/responses/input_tokens', { input: [{ role: 'user', content: 'hi' }, call] }, 'input[1]'],
    ['/responses', { input: [{ role: 'user', content: 'hi' }, call] }, 'input[1]'],
  ];
  for (const [path, body, param] of rows) {
    const error = await server.client.refused(400, path, body);
    assert.equal(error.param, param, path);
    assert.doesNotMatch(error.message, /messages|prompt/, path);
  }
});

test('a bias of a text is one of each of its tokens, as with llama-server', async () => {
  const fixed = { prompt: who, n_predict: 8, temperature: 0, cache_prompt: false };
  const plain = await both('/completion', fixed, ['content']);
  const word = plain.content.trim().split(' ')[0];
  for (const logit_bias of [[[word, false]], [[word, -100], [`${word} `, -100]], { [word]: false }, { [` ${word}`]: -50, 5: 20 },
    [['<|im_end|>', 50]], [['12', 40], ['', 3]], []]) {
    const ours = await both('/completion', { ...fixed, logit_bias }, ['content']);
    const tokens = [];
    for (const [of] of Array.isArray(logit_bias) ? logit_bias : Object.entries(logit_bias)) {
      if (of === '5') tokens.push(5);
      else tokens.push(...(await server.client.ask('/tokenize', { content: of, parse_special: false })).tokens);
    }
    // jansson keeps the order of members, JavaScript puts numbers first.
    assert.deepEqual(ours.generation_settings.logit_bias.map((bias) => bias.token).sort(), tokens.sort());
  }
  await server.client.refused(400, '/completion', { ...fixed, logit_bias: [['x'.repeat(70000), 1]] });
});

test('slots say what llama-server says of them', async () => {
  const [slot] = await server.client.slots();
  assert.equal(slot.n_ctx, 2048);
  assert.equal(slot.is_processing, false);
  assert.deepEqual(slot.next_token, [{ has_next_token: false, n_remain: -1, n_decoded: 0 }]);
  assert.equal((await server.client.get('/slots?fail_on_no_slot=1')).status, 200);
});
