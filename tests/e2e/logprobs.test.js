// Logprobs over HTTP: they are the model's own, the same in every API and in a stream, and nothing that steers the
// choice of a token changes them.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { tokens } from './lib/wait.js';

const near = (a, b, what, most = 1e-4) => assert.ok(Math.abs(a - b) <= most, `${what}: ${a} and ${b}`);

// Two lists of logprobs of the same tokens; where two are as likely as each other, rounding decides which comes first.
function same(list, other, what, sameLogprob = (a, b, name) => near(a, b, name, 1e-3)) {
  assert.equal(list.length, other.length, what);
  const found = new Map(other.map((one) => [one.id ?? one.token, one.logprob]));
  list.forEach((one) => {
    const twin = found.get(one.id ?? one.token) ?? other.at(-1).logprob;
    sameLogprob(one.logprob, twin, `${what}, ${JSON.stringify(one.token)}`);
  });
}

describe('a model with random weights', () => {
  let server;
  let client;
  before(async () => {
    server = await serve({ model: smallModel('llama'), models: { n_seq_max: 4, context_window: 512 } });
    client = server.client;
  });
  after(() => server.stop());

  const prompt = tokens(30, 60);
  const native = async (more) => {
    const body = { prompt, n_predict: 8, temperature: 0, ignore_eos: true, n_probs: 100, cache_prompt: false, ...more };
    return (await client.ask('/completion', body)).completion_probabilities;
  };

  test('probabilities are sorted, at most one, together at most one, and of different tokens', async () => {
    for (const token of await native()) {
      const { top_logprobs: top } = token;
      assert.equal(top.length, 100);
      assert.equal(new Set(top.map((one) => one.id)).size, 100);
      assert.ok(top.every((one) => one.logprob <= 0));
      assert.ok(top.every((one, i) => i === 0 || one.logprob <= top[i - 1].logprob), 'the likeliest first');
      const sum = top.reduce((total, one) => total + Math.exp(one.logprob), 0);
      assert.ok(sum > 0.05 && sum <= 1 + 1e-5, `sum ${sum}`);
      assert.equal(token.id, top[0].id, 'greedy');
      near(token.logprob, top[0].logprob, 'the token itself', 1e-6);
    }
  });

  // A bias makes any token the sampled one, and its logprob is reported. One request for each token gives the softmax of
  // the whole vocabulary. (Control tokens of a random model are too unlikely for any bias: they count as 0.)
  test('the probabilities of all tokens sum to one', async () => {
    const { json: { data: [{ meta: { n_vocab: n } }] } } = await client.get('/v1/models');
    const each = new Map();
    const forced = async (id) => {
      const [token] = await native({ n_predict: 1, n_probs: 1, logit_bias: [[id, 100]], cache_prompt: true });
      if (token.id === id) each.set(id, token.logprob);
    };
    for (let i = 0; i < n; i += 8) {
      await Promise.all(Array.from({ length: Math.min(8, n - i) }, (_, k) => forced(i + k)));
    }
    assert.ok(n - each.size <= 20, `${each.size} of ${n} tokens could be chosen`);
    near([...each.values()].reduce((sum, log) => sum + Math.exp(log), 0), 1, 'the sum', 2e-3);
    const [first] = await native({ n_predict: 1 });
    for (const one of first.top_logprobs) near(each.get(one.id), one.logprob, `token ${one.id}`, 0.03);
  });

  const [other] = tokens(1, 61);
  for (const [how, more] of Object.entries({
    'a bias': { logit_bias: [[other, 100]] },
    'a forbidden token': { logit_bias: [[other, -100], [other + 1, false]] },
    'a grammar': { grammar: 'root ::= [0-9]+' },
    'a schema': { json_schema: { type: 'integer' } },
    'a temperature': { temperature: 3, seed: 4 },
    'penalties': { repeat_penalty: 2, frequency_penalty: 2, presence_penalty: 2, repeat_last_n: -1 },
    'DRY': { dry_multiplier: 5, dry_allowed_length: 1, dry_penalty_last_n: -1 },
    'few candidates': { top_k: 1, top_p: 0.01, min_p: 0.9 },
    'XTC': { xtc_probability: 1, xtc_threshold: 0.0001, temperature: 1, seed: 5 },
    'Mirostat': { mirostat: 2, temperature: 2, seed: 6 },
  })) {
    test(`${how} does not change them`, async () => {
      const [[plain], [steered]] = await Promise.all([native({ n_predict: 1 }), native({ n_predict: 1, ...more })]);
      same(steered.top_logprobs, plain.top_logprobs, how);
      const own = plain.top_logprobs.find((one) => one.id === steered.id);
      if (own) near(steered.logprob, own.logprob, 'the token that was chosen', 1e-3);
      else assert.ok(steered.logprob <= plain.top_logprobs.at(-1).logprob + 1e-3, 'one that is not among the likeliest');
    });
  }

  test('what forces another token has been at work there', async () => {
    const [biased] = await native({ n_predict: 1, logit_bias: [[other, 100]] });
    assert.equal(biased.id, other);
    assert.ok(biased.logprob < -1, `not certain: ${biased.logprob}`);
    const [digit] = await native({ n_predict: 1, grammar: 'root ::= [0-9]+' });
    assert.match(digit.token, /^[0-9]/);
    assert.ok(digit.logprob < -1, `not certain: ${digit.logprob}`);
  });

  test('after the samplers they are those of what was left', async () => {
    const drawn = { post_sampling_probs: true, temperature: 1, top_k: 4, top_p: 1, min_p: 0, seed: 3 };
    const [plain] = await native({ n_predict: 1 });
    const [{ top_probs: top }] = await native({ n_predict: 1, ...drawn });
    assert.deepEqual(top.slice(0, 4).map((one) => one.id), plain.top_logprobs.slice(0, 4).map((one) => one.id));
    near(top.reduce((sum, one) => sum + one.prob, 0), 1, 'their sum');
    const weights = plain.top_logprobs.slice(0, 4).map((one) => Math.exp(one.logprob));
    const all = weights.reduce((sum, p) => sum + p, 0);
    weights.forEach((p, i) => near(top[i].prob, p / all, `candidate ${i}`, 1e-3));
  });

  test('a cached prompt gives the logprobs of a computed one', async () => {
    const cold = await native();
    for (let i = 0; i < 2; i++) {
      (await native({ cache_prompt: true })).forEach((token, k) => same(token.top_logprobs, cold[k].top_logprobs, `token ${k}`));
    }
  });

  test('every API says the same', async () => {
    const text = 'The quick brown fox';
    const fixed = { temperature: 0, ignore_eos: true, cache_prompt: false };
    const theirs = (await client.ask('/completion', { ...fixed, prompt: text, n_predict: 6, n_probs: 5 })).completion_probabilities;
    const { logprobs } = (await client.complete({ ...fixed, prompt: text, max_tokens: 6, logprobs: 5 })).choices[0];
    assert.equal(logprobs.tokens.length, 6);
    theirs.forEach((token, i) => {
      near(logprobs.token_logprobs[i], token.logprob, `token ${i}`, 1e-3);
      const best = Math.max(...Object.values(logprobs.top_logprobs[i]));
      near(best, token.top_logprobs[0].logprob, `the likeliest ${i}`, 1e-3);
    });
    const { prompt: rendered } = await client.ask('/apply-template', { messages: [{ role: 'user', content: text }] });
    const chat = await client.chat({ ...fixed, messages: [{ role: 'user', content: text }], max_tokens: 6, logprobs: true, top_logprobs: 5 });
    const same6 = (await client.ask('/completion', { ...fixed, prompt: rendered, n_predict: 6, n_probs: 5 })).completion_probabilities;
    chat.choices[0].logprobs.content.forEach((token, i) => {
      assert.deepEqual(token.bytes, same6[i].bytes);
      near(token.logprob, same6[i].logprob, `chat ${i}`, 1e-3);
      token.top_logprobs.forEach((one, k) => near(one.logprob, same6[i].top_logprobs[k].logprob, `chat ${i}, ${k}`, 1e-3));
    });
  });

  test('bytes of parts of characters come as they are, and join to the text', async () => {
    for (let seed = 1; seed <= 4; seed++) {
      const hot = { temperature: 3, top_k: 0, top_p: 1, seed, ignore_eos: true, max_tokens: 60, cache_prompt: false };
      const reply = await client.chat({ messages: [{ role: 'user', content: 'x' }], ...hot, logprobs: true, top_logprobs: 2 });
      const { content } = reply.choices[0].logprobs;
      assert.equal(content.length, reply.usage.completion_tokens);
      const text = Buffer.from(content.flatMap((token) => token.bytes)).toString();
      assert.equal(text.replaceAll('\ufffd', ''), reply.choices[0].message.content.replaceAll('\ufffd', ''));
    }
  });
});

// The demo model's activations are rounded to eight bits, after sums whose order hangs on the shape of a call: a logprob of
// −13 was seen to differ by 0.09, a probability by nothing. Only a deterministic server computes the same in the same way.
const alike = (a, b, what) => near(Math.exp(a), Math.exp(b), what, 0.01);
const rows = [['with drafts', {}, alike], ['deterministic', { deterministic: true }, near]];
for (const [how, keys, sameLogprob] of rows) describe(`the demo model and the official client, ${how}`, () => {
  let server;
  let openai;
  before(async () => {
    server = await serve({ models: { n_seq_max: 4, context_window: 2048, ...keys } });
    openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  after(() => server.stop());

  const messages = [{ role: 'user', content: 'Who are you?' }];
  const weather = {
    type: 'function',
    function: {
      name: 'get_weather', description: 'Weather of a city',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  };
  const ask = (more) => openai.chat.completions.create({ model: 'demo', temperature: 0, max_tokens: 60, messages, ...more });

  async function streamed(more) {
    const seen = { deltas: [], logprobs: [], finish: [], text: '' };
    for await (const chunk of await ask({ ...more, stream: true })) {
      for (const choice of chunk.choices) {
        seen.deltas.push(choice);
        seen.text += choice.delta.content ?? '';
        seen.logprobs.push(...choice.logprobs?.content ?? []);
        if (choice.finish_reason) seen.finish.push(choice.finish_reason);
      }
    }
    return seen;
  }

  test('without being asked for there are none; false says the same', async () => {
    for (const more of [{}, { logprobs: false }, { logprobs: null }]) {
      assert.equal((await ask(more)).choices[0].logprobs, null);
      assert.equal((await streamed(more)).logprobs.length, 0);
    }
  });

  test('top_logprobs are that many; above 0 it switches them on', async () => {
    for (const k of [0, 1, 5, 20, 100]) {
      const { content } = (await ask({ logprobs: true, top_logprobs: k, max_tokens: 3 })).choices[0].logprobs;
      assert.ok(content.every((token) => token.top_logprobs.length === k), `${k}`);
      const alone = (await ask({ top_logprobs: k, max_tokens: 3 })).choices[0].logprobs;
      if (k === 0) assert.equal(alone, null);
      else assert.deepEqual(alone.content.map((token) => token.top_logprobs.length), [k, k, k]);
    }
    for (const k of [-1, 1.5, 'two']) await assert.rejects(ask({ logprobs: true, top_logprobs: k }), (e) => e.status === 400 && e.param === 'top_logprobs');
    await assert.rejects(ask({ logprobs: 'yes' }), (e) => e.status === 400 && e.param === 'logprobs');
  });

  for (const [name, more] of Object.entries({
    'a text': {},
    'a text cut off': { max_tokens: 3 },
    'a text with a stop string': { stop: ['hearth'] },
    'a tool call': { messages: [{ role: 'user', content: 'What is the weather in Lisbon?' }], tools: [weather] },
    'a call that is required': { tools: [weather], tool_choice: 'required', parallel_tool_calls: false },
    'an object': { response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { enum: [10, 20] } } } },
  })) {
    test(`a stream reports the same logprobs as the whole: ${name}`, async () => {
      const whole = (await ask({ ...more, logprobs: true, top_logprobs: 2 })).choices[0];
      const stream = await streamed({ ...more, logprobs: true, top_logprobs: 2 });
      assert.deepEqual(stream.logprobs.map((token) => token.token), whole.logprobs.content.map((token) => token.token));
      stream.logprobs.forEach((token, i) => {
        sameLogprob(token.logprob, whole.logprobs.content[i].logprob, token.token);
        assert.deepEqual(token.bytes, whole.logprobs.content[i].bytes);
        assert.ok(token.logprob <= 0);
      });
      assert.deepEqual(stream.finish, [whole.finish_reason]);
      assert.equal(stream.deltas.at(-1).logprobs ?? null, null, 'the last chunk has none');
      assert.ok(stream.deltas.slice(0, -1).every((choice) => choice.finish_reason === null), 'null until the end');
      assert.ok(stream.deltas.every((choice) => !('message' in choice)), 'a delta alone');
      const calls = whole.message.tool_calls?.length ?? 0;
      assert.equal(whole.finish_reason, name === 'a text cut off' ? 'length' : calls ? 'tool_calls' : 'stop');
      if (!calls) assert.equal(stream.text, whole.message.content);
    });
  }

  test('where a call is required, the logprobs are those of a reply without', async () => {
    const body = { tools: [weather], max_tokens: 1, logprobs: true, top_logprobs: 5 };
    const [free] = (await ask(body)).choices[0].logprobs.content;
    const [forced] = (await ask({ ...body, tool_choice: 'required' })).choices[0].logprobs.content;
    same(forced.top_logprobs, free.top_logprobs, 'tool_choice', sameLogprob);
  });

  test('Responses tell them where they are included', async () => {
    const body = { model: 'demo', input: 'Who are you?', temperature: 0, max_output_tokens: 20 };
    const plain = await openai.responses.create(body);
    assert.deepEqual(plain.output[0].content[0].logprobs ?? [], []);
    const told = await openai.responses.create({ ...body, include: ['message.output_text.logprobs'], top_logprobs: 3 });
    const chat = (await ask({ max_tokens: 20, logprobs: true, top_logprobs: 3 })).choices[0].logprobs.content;
    const { text, logprobs } = told.output[0].content[0];
    assert.equal(logprobs.map((token) => token.token).join(''), text);
    logprobs.forEach((token, i) => {
      sameLogprob(token.logprob, chat[i].logprob, token.token);
      assert.equal(token.top_logprobs.length, 3);
    });
  });
});
