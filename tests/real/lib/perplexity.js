// How likely a text is to a model: all at once, computed cold, and token by token over what is cached of it.

import assert from 'node:assert/strict';
import { temporaryFolder } from '../../e2e/lib/server.js';
import { prose } from './text.js';

export const tokensOf = async (client, content) => (await client.ask('/tokenize', { content, add_special: true })).tokens;

const perplexityOf = (logprobs) => Math.exp(-logprobs.reduce((sum, one) => sum + one, 0) / logprobs.length);

// Logprobs of the tokens from `from` on, as vLLM's prompt_logprobs: the prompt is computed whole, whatever is cached of it.
export async function scored(client, tokens, from) {
  const { choices: [choice], timings } = await client.complete({ prompt: tokens, max_tokens: 1, prompt_logprobs: 0 });
  assert.equal(timings.cache_n, 0);
  assert.equal(choice.prompt_logprobs.length, tokens.length);
  return choice.prompt_logprobs.slice(from).map((place, i) => place[tokens[from + i]].logprob);
}

// The same of prompts that grow by a token each. The reply is made to be the next token, so that each prompt goes on from
// the one before. `cached` are the numbers of tokens that each found.
export async function grown(client, tokens, from, more) {
  const logprobs = [], cached = [];
  for (let at = from; at < tokens.length; at++) {
    const { choices: [choice], timings } = await client.complete({
      prompt: tokens.slice(0, at), max_tokens: 1, logprobs: 0, logit_bias: { [tokens[at]]: 100 }, ignore_eos: true, ...more,
    });
    logprobs.push(choice.logprobs.token_logprobs[0]);
    cached.push(timings.cache_n);
  }
  return { logprobs, cached };
}

// Where calls have other shapes, or other cells are taken, the last bits of sums differ. llama.cpp rounds activations to 8 bits
// where weights are quantized, those bits decide how, and in the end a token's logprob differs by 0.1, that of one cold run
// from another's as well. Over many tokens that cancels out. A beginning that is lost does not (SmolLM2 without tokens 64 to
// 127: a perplexity of 4.9 in place of 1.6). Any other lost cell shows in deterministic mode, where logprobs are compared to
// the last bit.
function alike(a, b, what, most = 0.05) {
  assert.equal(a.length, b.length);
  const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
  const between = Math.abs(mean(a) - mean(b));
  const each = Math.sqrt(mean(a.map((one, i) => (one - b[i]) ** 2)));
  const found = `${what}: perplexity ${perplexityOf(a).toFixed(3)} and ${perplexityOf(b).toFixed(3)}, ${each.toFixed(3)} a token`;
  assert.ok(between < most && each < 0.2, found);
  return found;
}

// A text of more than 1,000 tokens that ends as it began, so that its end is likely to a model that has the beginning in its
// cells, and to no other: cold, cached, and read back from disk by another server. `start(t, options)` starts one.
export async function asLikelyCachedAsCold(t, start) {
  const alone = await start(t);
  const tokens = await tokensOf(alone.client, `${prose}\n\n${prose.slice(0, 440)}`);
  assert.ok(tokens.length > 1000, `${tokens.length} tokens`);
  const from = tokens.length - 60;
  const cold = await scored(alone.client, tokens, 1);
  const end = cold.slice(from - 1);
  const all = perplexityOf(cold);
  assert.ok(all > 5 && all < 30, `the model reads English: perplexity ${all}`);
  assert.ok(perplexityOf(end) < 2, `it has read the beginning: perplexity ${perplexityOf(end)}`);
  await alone.stop();

  const grow = async (server) => {
    const { logprobs, cached } = await grown(server.client, tokens, from);
    cached.forEach((n, i) => assert.ok(n >= from + i - 2, `${n} of ${from + i} tokens are reused`));
    return logprobs;
  };
  const begin = (server) => server.client.complete({ prompt: tokens.slice(0, from - 1), max_tokens: 1 });

  const unbroken = await start(t);
  await begin(unbroken);
  const found = [alike(await grow(unbroken), end, 'cached'),
    alike(await scored(unbroken.client, tokens, 1), cold, 'computed whole beside what is cached', 0.03)];
  await unbroken.stop();

  const disk = temporaryFolder();
  const first = await start(t, { disk });
  await begin(first);
  await first.stop();
  const second = await start(t, { disk });
  found.push(alike(await grow(second), end, 'read back from disk'));
  await second.stop();
  found.forEach((line) => t.diagnostic(line));
}
