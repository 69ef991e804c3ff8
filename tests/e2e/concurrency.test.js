// Several clients at once: batching must change no reply, and waiting must be fair and bounded.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { largeModel, smallModel } from './lib/models.js';
import { serve } from './lib/server.js';
import { Random, tokens, until, within } from './lib/wait.js';

// Sums of floats depend on how many rows are computed together, in their last digits. Where the two likeliest tokens of
// a step are as close as that, batching may rightly change a greedy reply. So the tests take prompts whose replies stay
// the same when the logits are shifted by a thousand times as much: half of the vocabulary up, another half each time.
async function steadyPrompt(ask, length, seed) {
  const random = new Random(seed);
  for (;;) {
    const prompt = tokens(length, random.below(1e6));
    const reply = await ask(prompt, { cache_prompt: false });
    let steady = true;
    for (let i = 0; steady && i < 8; i++) {
      const raised = Array.from({ length: 1280 }, (_, token) => token).filter(() => random.below(2));
      const logit_bias = Object.fromEntries(raised.map((token) => [token, 0.002]));
      const shifted = await ask(prompt, { cache_prompt: false, logit_bias });
      steady = shifted.choices[0].text === reply.choices[0].text;
    }
    if (steady) return prompt;
  }
}

for (const arch of ['llama', 'qwen3']) {
  describe(`four clients on four slots, ${arch}`, () => {
    let server;
    let prompts;
    before(async () => {
      server = await serve({ model: smallModel(arch), models: { n_seq_max: 4, context_window: 1024 } });
      prompts = [];
      for (const length of [30, 77, 141, 200]) prompts.push(await steadyPrompt(ask, length, length));
    });
    after(() => server.stop());

    const ask = (prompt, more) => server.client.complete({ prompt, max_tokens: 48, ...more });
    const reply = ({ choices: [{ text, finish_reason }], usage }) => ({
      text, finish_reason, prompt: usage.prompt_tokens, completion: usage.completion_tokens,
    });

    test('each gets what it gets alone, in shared decode calls', async () => {
      const alone = [];
      for (const prompt of prompts) alone.push(reply(await ask(prompt, { cache_prompt: false })));
      assert.equal(new Set(alone.map((one) => one.text)).size, 4, 'the prompts lead to different replies');
      assert.ok(alone.every((one) => one.text.length > 20));

      for (const cache_prompt of [false, true, true]) {
        const calls = await server.client.metric('hearth_decode_calls_total');
        const generated = await server.client.metric('hearth_generated_tokens_total');
        const together = await Promise.all(prompts.map((prompt) => ask(prompt, { cache_prompt })));
        assert.deepEqual(together.map(reply), alone);
        const rows = await server.client.metric('hearth_generated_tokens_total') - generated;
        const shared = rows / (await server.client.metric('hearth_decode_calls_total') - calls);
        assert.ok(shared > 1, `${shared.toFixed(2)} generated tokens a decode call`);
        assert.equal(rows, alone.reduce((sum, one) => sum + one.completion, 0), 'every generated token is counted');
      }
    });

    test('streams that start and end at different times do not disturb each other', async () => {
      const alone = [];
      for (const prompt of prompts) alone.push((await ask(prompt, { cache_prompt: false })).choices[0].text);
      // Eight on four slots: the later four start whenever one of the first has ended.
      const list = [...prompts, ...prompts].map((prompt) => server.client.streamed('/v1/completions', {
        prompt, max_tokens: 48, cache_prompt: false,
      }));
      const texts = (await Promise.all(list)).map((one) => one.text);
      assert.deepEqual(texts, [...alone, ...alone]);
    });
  });
}

// One slot that is held by a stream for as long as a test likes: the model is slow, the window long.
describe('the queue', () => {
  let model;
  before(() => { model = largeModel(); });

  const start = (t, queue_depth, admission_timeout) => serve({
    t, model, models: { n_seq_max: 1, queue_depth, context_window: 8192, admission_timeout },
  });
  const hold = async (server) => {
    const stream = await server.client.stream('/v1/completions', {
      prompt: tokens(8, 1), max_tokens: 8000, ignore_eos: true,
    });
    stream.reading = stream.collect().catch(() => 'aborted');
    await until('the slot generates', async () => (await server.client.slots())[0].state === 'generate');
    return stream;
  };
  const short = (seed) => ({ prompt: tokens(8, seed), max_tokens: 2, temperature: 0 });

  // Sends requests one by one, each not before the server has taken in the one before.
  const inOrder = async (server, seeds, ended) => {
    const sent = [];
    const before = await server.client.waiting();
    for (const seed of seeds) {
      const abort = new AbortController();
      const answer = server.client.post('/v1/completions', short(seed), { signal: abort.signal });
      sent.push({ seed, abort, answer: answer.then((reply) => { ended.push(seed); return reply; }, (error) => error) });
      // One that is on its way from the door to the engine is counted by neither.
      await until('the request waits', async () => await server.client.waiting() === before + sent.length);
    }
    return sent;
  };

  test('the request past the queue gets 429 when nothing frees in time', async (t) => {
    const server = await start(t, 2, 1);
    const first = await hold(server);
    const ended = [];
    const [second] = await inOrder(server, [2], ended);
    const begin = performance.now();
    const reply = await within(30, 'the third request is answered', server.client.post('/v1/completions', short(3)));
    const waited = (performance.now() - begin) / 1000;
    assert.equal(reply.status, 429, reply.text);
    assert.ok(waited > 0.9, `it waited for ${waited.toFixed(2)} s`);
    assert.match(reply.headers['retry-after'], /^[1-9]\d*$/);
    assert.match(reply.json.error.message, /busy/);
    assert.deepEqual(ended, [], 'the second still waits, since it has a place');
    first.abort();
    assert.equal((await within(30, 'the second is served', second.answer)).status, 200);
    assert.equal((await server.client.post('/v1/completions', short(3))).status, 200, 'the refused one may come again');
    await server.stop();
  });

  test('waiting requests are served in the order they came', async (t) => {
    const server = await start(t, 3, 60);
    const first = await hold(server);
    const ended = [];
    const sent = await inOrder(server, [2, 3, 4, 5, 6], ended);
    assert.deepEqual(ended, []);
    first.abort();
    for (const { answer } of sent) assert.equal((await within(60, 'a waiting request is served', answer)).status, 200);
    assert.deepEqual(ended, [2, 3, 4, 5, 6]);
    await server.stop();
  });

  test('a waiting client that goes away leaves no trace', async (t) => {
    const server = await start(t, 2, 60);
    const first = await hold(server);
    const ended = [];
    // 2 has a place in the queue; 3, 4 and 5 wait for one.
    const sent = await inOrder(server, [2, 3, 4, 5], ended);
    sent[0].abort.abort();
    sent[2].abort.abort();
    await until('two are gone', async () => await server.client.waiting() === 2);
    first.abort();
    for (const i of [1, 3]) assert.equal((await within(60, 'the others are served', sent[i].answer)).status, 200);
    assert.deepEqual(ended, [3, 5]);
    await server.client.idle();
    assert.equal(await server.client.waiting(), 0);
    // All places are free again: a full house can be had once more.
    const again = await hold(server);
    const [next] = await inOrder(server, [7], []);
    again.abort();
    assert.equal((await within(60, 'the next is served', next.answer)).status, 200);
    await server.client.idle();
    await server.stop();
  });
});

// llama.cpp's infill compares the text of each candidate with that of each other one, and does not look up meanwhile.
test('infill over a large vocabulary holds up nobody', async (t) => {
  const model = smallModel('llama', { vocab: 'gpt-2', embd: 32, heads: 1, 'kv-heads': 1 });
  const server = await serve({ t, model, models: { n_seq_max: 2, context_window: 512 } });
  const ask = (more) => within(20, 'a reply', server.client.complete({ prompt: tokens(8, 1), max_tokens: 4, ...more }));
  await Promise.all([ask({ samplers: ['infill'], ignore_eos: true, temperature: 1, top_k: 0 }), ask({})]);
  await server.stop();
});
