// How likely a text is to a model: all at once, computed cold, and token by token over what is cached of it.

import assert from 'node:assert/strict';

export const tokensOf = async (client, content) => (await client.ask('/tokenize', { content, add_special: true })).tokens;

const perplexityOf = (logprobs) => Math.exp(-logprobs.reduce((sum, one) => sum + one, 0) / logprobs.length);

// Of the tokens from `from` on; vLLM's prompt_logprobs take nothing from the cache.
export async function coldPerplexity(client, tokens, from) {
  const { choices: [choice], timings } = await client.complete({ prompt: tokens, max_tokens: 1, prompt_logprobs: 0, cache_prompt: false });
  assert.equal(timings.cache_n, 0);
  assert.equal(choice.prompt_logprobs.length, tokens.length);
  return perplexityOf(choice.prompt_logprobs.slice(from).map((place, i) => place[tokens[from + i]].logprob));
}

// The same of prompts that grow by a token each. The reply is made to be the next token, so that each goes on from
// the one before. `cached` are the numbers of tokens that each found.
export async function grownPerplexity(client, tokens, from) {
  const logprobs = [], cached = [];
  for (let at = from; at < tokens.length; at++) {
    const { choices: [choice], timings } = await client.complete({
      prompt: tokens.slice(0, at), max_tokens: 1, logprobs: 0, logit_bias: { [tokens[at]]: 100 }, ignore_eos: true,
    });
    logprobs.push(choice.logprobs.token_logprobs[0]);
    cached.push(timings.cache_n);
  }
  return { perplexity: perplexityOf(logprobs), cached };
}

// Equal to three digits. Sums of the two come in other orders, which changes the last bits of logits.
export function sameToThreeDigits(a, b) {
  assert.ok(Math.abs(a - b) < 0.0005 * Math.min(a, b) || a.toPrecision(3) === b.toPrecision(3), `perplexity ${a} and ${b}`);
}
