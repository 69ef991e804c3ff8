// How likely a text is to a model: all at once, computed cold, and token by token over what is cached of it.

import assert from 'node:assert/strict';

export const tokensOf = async (client, content) => (await client.ask('/tokenize', { content, add_special: true })).tokens;

export const perplexityOf = (logprobs) => Math.exp(-logprobs.reduce((sum, one) => sum + one, 0) / logprobs.length);

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

// Computed in calls of the same shape: equal to three digits, and that is generous.
export function sameToThreeDigits(a, b) {
  assert.equal(perplexityOf(a).toPrecision(3), perplexityOf(b).toPrecision(3));
}

// Computed in calls of other shapes. llama.cpp rounds activations to 8 bits where weights are quantized: the last bits of a
// sum decide how, and a token's logprob differs by 0.1 from one shape to another, cold ones from each other as well. Of
// many tokens that cancels out. A cell that is lost or misplaced does not.
export function alike(a, b) {
  assert.equal(a.length, b.length);
  const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
  const between = Math.abs(mean(a) - mean(b));
  const each = Math.sqrt(mean(a.map((one, i) => (one - b[i]) ** 2)));
  assert.ok(between < 0.06 && each < 0.25, `perplexity ${perplexityOf(a)} and ${perplexityOf(b)}, ${each} a token`);
  return each;
}
