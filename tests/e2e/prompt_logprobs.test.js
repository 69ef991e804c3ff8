// Logprobs of prompts, as evaluation harnesses ask for them: "echo" with "logprobs" in completions, and vLLM's
// "prompt_logprobs". The oracle is naive: the logprob of a token is what a completion of all tokens before it says of it.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { bareModel, smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { tokens } from './lib/wait.js';

// Calls of other sizes round otherwise, by a part of the logits.
const near = (a, b, what, most = 1e-4) => assert.ok(Math.abs(a - b) <= most * (1 + Math.abs(b)), `${what}: ${a} and ${b}`);

// A bias makes the token the one that is chosen, and its logprob is the model's own.
async function oracle(client, prompt, at) {
  const body = { prompt: prompt.slice(0, at), max_tokens: 1, logprobs: 0, temperature: 0, logit_bias: { [prompt[at]]: 100 }, ignore_eos: true };
  const { choices: [{ logprobs }] } = await client.complete(body);
  return logprobs.token_logprobs[0];
}

for (const [arch, more, n, every, most] of [
  ['llama', {}, 150, 1],
  ['llama', { deterministic: true }, 150, 7],
  ['qwen35', {}, 150, 11],
  ['gemma3', {}, 150, 11, 1e-3],
]) {
  describe(`${arch} ${JSON.stringify(more)}`, () => {
    let server;
    let client;
    before(async () => {
      server = await serve({ model: smallModel(arch), models: { n_seq_max: 4, context_window: 1024, ...more } });
      client = server.client;
    });
    after(() => server.stop());
    const prompt = tokens(n, 17);
    const score = async (body) => (await client.complete({ prompt, max_tokens: 1, temperature: 0, ignore_eos: true, echo: true, logprobs: 1, ...body })).choices;

    test('each token of a prompt has the logprob that a completion of those before it gives', async () => {
      const [{ logprobs }] = await score({ cache_prompt: false });
      assert.equal(logprobs.tokens.length, n + 1);
      assert.equal(logprobs.token_logprobs[0], null);
      assert.equal(logprobs.top_logprobs[0], null);
      const checked = [];
      for (let at = 1; at < n; at += every) checked.push(at);
      for (const at of [...checked, n - 1]) near(logprobs.token_logprobs[at], await oracle(client, prompt, at), `token ${at}`, most);
      const { choices: [{ logprobs: reply }] } = await client.complete({ prompt, max_tokens: 1, temperature: 0, logprobs: 1, ignore_eos: true });
      near(logprobs.token_logprobs[n], reply.token_logprobs[0], 'the token of the reply', most);
    });

    test('they are the same with the prompt cached, in company, and without a reply', async () => {
      const [{ logprobs: cold }] = await score({ cache_prompt: false });
      await client.complete({ prompt, max_tokens: 1 });
      const answers = await Promise.all([score(), score({ max_tokens: 0 }), score({ n: 2 }), score({ prompt: [prompt, tokens(40, 3)] }),
        client.complete({ prompt: tokens(30, 99), max_tokens: 20 })]);
      for (const [i, choices] of answers.slice(0, 4).entries()) {
        assert.equal(choices.length, [1, 1, 2, 2][i]);
        const { logprobs } = choices[0];
        assert.equal(logprobs.tokens.length, n + (i === 1 ? 0 : 1));
        for (let at = 1; at < n; at++) near(logprobs.token_logprobs[at], cold.token_logprobs[at], `token ${at}`, 1e-3);
      }
      assert.equal(answers[3][1].logprobs.tokens.length, 41);
      assert.equal(answers[1][0].finish_reason, 'length');
    });

    test('what was computed for them is cached for others, and nothing is reused for them', async () => {
      const fresh = tokens(n, 51);
      const ask = (body) => client.complete({ prompt: fresh, max_tokens: 1, ...body });
      assert.equal((await ask({ echo: true, logprobs: 0 })).timings.cache_n, 0);
      assert.ok((await ask({})).timings.cache_n >= n - 65, 'the next one finds it');
      assert.equal((await ask({ echo: true, logprobs: 0 })).timings.cache_n, 0);
    });
  });
}

describe('the forms', () => {
  let server;
  let client;
  before(async () => {
    server = await serve({ model: bareModel(), models: { n_seq_max: 4, context_window: 1024 } });
    client = server.client;
  });
  after(() => server.stop());
  const ask = (body) => client.complete({ max_tokens: 2, temperature: 0, ignore_eos: true, ...body });
  const text = 'Où est le café? 日本 x';

  test('the prompt comes before the reply, and offsets are those of the text', async () => {
    const { choices: [choice] } = await ask({ prompt: text, echo: true, logprobs: 2 });
    const { tokens: list, token_logprobs: logs, top_logprobs: top, text_offset: offsets } = choice.logprobs;
    assert.ok(choice.text.startsWith(text));
    assert.deepEqual([list.length, logs.length, top.length, offsets.length], Array(4).fill(list.length));
    assert.equal(list[0], '<s>', 'the vocabulary begins with it');
    assert.deepEqual([logs[0], top[0], offsets[0]], [null, null, 0]);
    const characters = [...choice.text];
    list.forEach((token, i) => {
      if (token.includes('\ufffd') || token.startsWith('<')) return;
      const there = characters.slice(offsets[i]).join('');
      assert.ok(there.startsWith(token.trimStart()) || there.startsWith(token), `${i}: ${JSON.stringify(token)} at ${offsets[i]}`);
    });
    assert.ok(offsets.every((offset, i) => i === 0 || offset >= offsets[i - 1]));
    assert.ok(offsets.at(-1) <= characters.length);
    logs.slice(1).forEach((log, i) => {
      assert.ok(log <= 0 && log > -9999);
      const best = Object.values(top[i + 1]);
      assert.ok(best.length >= 1 && best.length <= 2 && log <= Math.max(...best) + 1e-6);
    });
    const { choices: [plain] } = await ask({ prompt: text });
    assert.equal(choice.text, text + plain.text);
  });

  test('a prompt of tokens is echoed as their text', async () => {
    const { tokens: ids } = await client.ask('/tokenize', { content: text });
    for (const logprobs of [null, 1]) {
      const { choices: [choice] } = await ask({ prompt: ids, echo: true, logprobs });
      assert.ok(choice.text.includes(text), choice.text);
    }
  });

  test('a stream has it in one chunk, before the reply', async () => {
    const body = { prompt: text, max_tokens: 3, temperature: 0, ignore_eos: true, echo: true, logprobs: 1 };
    const { choices: [whole] } = await client.complete(body);
    const { chunks } = await client.streamed('/v1/completions', body);
    const choices = chunks.flatMap((chunk) => chunk.choices);
    assert.equal(choices[0].text, text);
    assert.equal(choices.map((choice) => choice.text).join(''), whole.text);
    for (const name of ['tokens', 'token_logprobs', 'top_logprobs', 'text_offset']) {
      const all = choices.flatMap((choice) => choice.logprobs?.[name] ?? []);
      assert.equal(all.length, whole.logprobs[name].length, name);
      if (name === 'tokens' || name === 'text_offset') assert.deepEqual(all, whole.logprobs[name]);
    }
    assert.equal(choices[0].logprobs.tokens.length, whole.logprobs.tokens.length - 3);
  });

  // lm-eval drops the last logprob as that of the one token it asked for: there must be one when the model ends at once.
  test('a reply that ends at once has the logprob of its end', async () => {
    const { json: props } = await client.get('/props');
    const { tokens: [eos] } = await client.ask('/tokenize', { content: props.eos_token, parse_special: true });
    const body = { prompt: [1, 300, 301, 302], max_tokens: 1, temperature: 0, logit_bias: { [eos]: 100 }, echo: true, logprobs: 1 };
    const { choices: [choice] } = await client.complete(body);
    assert.equal(choice.finish_reason, 'stop');
    assert.equal(choice.logprobs.tokens.length, 5);
    assert.equal(choice.logprobs.tokens.at(-1), props.eos_token);
    assert.ok(choice.logprobs.token_logprobs.at(-1) <= 0);
  });

  test("vLLM's prompt_logprobs: the same numbers by token id, with ranks", async () => {
    const ids = [1, 300, 4000, 77, 900];
    const { choices: [{ logprobs: echoed }] } = await ask({ prompt: ids, echo: true, logprobs: 3 });
    const { choices: [{ prompt_logprobs: scored }] } = await ask({ prompt: ids, prompt_logprobs: 3 });
    assert.equal(scored.length, ids.length);
    assert.equal(scored[0], null);
    for (let at = 1; at < ids.length; at++) {
      const all = Object.entries(scored[at]);
      const own = scored[at][ids[at]];
      near(own.logprob, echoed.token_logprobs[at], `token ${at}`);
      assert.equal(own.decoded_token, echoed.tokens[at]);
      assert.ok(own.rank >= 1);
      const others = all.filter(([id]) => Number(id) !== ids[at]);
      assert.equal(others.length, own.rank <= 3 ? 2 : 3);
      const ranks = [...others.map(([, one]) => one.rank), ...(own.rank <= 3 ? [own.rank] : [])].sort();
      assert.deepEqual(ranks, [1, 2, 3]);
      others.forEach(([, one]) => assert.ok(one.rank < own.rank ? one.logprob >= own.logprob : one.logprob <= own.logprob));
    }
  });

  test('in chats they are a member of the answer; 0 means the token alone', async () => {
    const messages = [{ role: 'user', content: 'Hi' }];
    const reply = await client.chat({ messages, max_tokens: 1, prompt_logprobs: 0 });
    assert.equal(reply.prompt_logprobs.length, reply.usage.prompt_tokens);
    assert.equal(reply.prompt_logprobs[0], null);
    assert.ok(reply.prompt_logprobs.slice(1).every((place) => Object.keys(place).length === 1));
    assert.ok(!('prompt_logprobs' in await client.chat({ messages, max_tokens: 1 })));
    const native = await client.ask('/completion', { prompt: [1, 300, 301], n_predict: 1, prompt_logprobs: 1 });
    assert.equal(native.prompt_logprobs.length, 3);
  });

  test('what cannot be is refused by name', async () => {
    const prompt = [1, 300, 301];
    for (const [route, body, param] of [
      ['/v1/completions', { prompt, prompt_logprobs: 21 }, 'prompt_logprobs'],
      ['/v1/completions', { prompt, prompt_logprobs: -1 }, 'prompt_logprobs'],
      ['/v1/completions', { prompt, prompt_logprobs: 1, stream: true }, 'prompt_logprobs'],
      ['/v1/completions', { prompt, echo: true, logprobs: 21 }, 'logprobs'],
      ['/v1/completions', { prompt, echo: true, logprobs: 1, prompt_logprobs: 2 }, 'prompt_logprobs'],
      ['/v1/completions', { prompt: 'a', suffix: 'b', echo: true, logprobs: 1 }, 'suffix'],
      ['/v1/chat/completions', { messages: [{ role: 'user', content: 'x' }], prompt_logprobs: 'x' }, 'prompt_logprobs'],
    ]) {
      assert.equal((await client.refused(400, route, body)).param, param, JSON.stringify(body));
    }
  });
});
