// How likely hearth finds each next token, beside llama-server: both computed with real weights, cold, cached, and read back
// from disk. llama.cpp rounds what it multiplies with quantized weights to 8 bits, so that its own settings differ from each
// other; the reference is llama-server with cells of 32 bits and without flash attention, and hearth may be no further from
// it than llama-server's other settings are from one another.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { peer } from '../e2e/lib/peer.js';
import { saved } from '../e2e/lib/store.js';
import { serve, temporaryFolder } from '../e2e/lib/server.js';
import { all, realModel } from './lib/models.js';
import { tokensOf } from './lib/perplexity.js';
import { prose } from './lib/text.js';

const count = 20;
const asked = 100; // tokens whose logprobs are compared; all others count as one
const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;

// The beginnings of a text, each of which goes on from the one before.
const step = all ? 48 : 6;
const promptsOf = (tokens) => Array.from({ length: count }, (_, i) => tokens.slice(0, 24 + (i + 1) * step));

// [{id: logprob}] of the token behind each prompt.
async function next(client, prompts, more) {
  const found = [], cached = [];
  for (const prompt of prompts) {
    const { completion_probabilities: [{ top_logprobs: top }], timings } = await client.ask('/completion',
      { prompt, n_predict: 1, n_probs: asked, temperature: 0, ignore_eos: false, ...more });
    assert.equal(top.length, asked);
    found.push(new Map(top.map(({ id, logprob }) => [id, logprob])));
    cached.push(timings.cache_n);
  }
  return { found, cached };
}

// KL divergence of one from the reference, over the reference's tokens that both name, and one more for all others.
function divergence(reference, other) {
  let sum = 0, p = 1, q = 1;
  for (const [id, logprob] of reference) {
    if (!other.has(id)) continue;
    sum += Math.exp(logprob) * (logprob - other.get(id));
    p -= Math.exp(logprob);
    q -= Math.exp(other.get(id));
  }
  return p > 1e-9 && q > 1e-9 ? sum + p * Math.log(p / q) : sum;
}

const first = (map) => map.keys().next().value;
const compare = (reference, other) => ({
  kl: mean(reference.map((one, i) => divergence(one, other[i]))),
  agree: reference.filter((one, i) => first(one) === first(other[i])).length,
  most: Math.max(...reference.map((one, i) => Math.max(...[...one].slice(0, 20).map(([id, logprob]) => Math.abs(logprob - (other[i].get(id) ?? logprob)))))),
});

const settings = {
  'llama-server': [],
  'no flash attention': ['-fa', 'off'],
  'batches of 32': ['-b', '32', '-ub', '32'],
  ...all ? { 'cells of 32 bits': ['-ctk', 'f32', '-ctv', 'f32', '-fa', 'on'] } : {},
};

for (const name of ['smollm2', 'gemma3']) {
  const { path: model, skip } = realModel(name);
  describe(`${name}: the next token's likelihood`, { skip }, () => {
    test('hearth is as near to the reference as llama-server is', async (t) => {
      const base = await peer(t, model, ['-c', '4096', '-ctk', 'f32', '-ctv', 'f32', '-fa', 'off']);
      const prompts = promptsOf(await tokensOf(base, prose));
      const { found: reference } = await next(base, prompts, { cache_prompt: false });
      await base.end();
      const rows = {};
      for (const [what, args] of Object.entries(settings)) {
        const client = await peer(t, model, ['-c', '4096', ...args]);
        rows[what] = compare(reference, (await next(client, prompts, { cache_prompt: false })).found);
        await client.end();
      }
      const limit = { kl: Math.max(...Object.values(rows).map(({ kl }) => kl)), agree: Math.min(...Object.values(rows).map(({ agree }) => agree)) };

      const disk = temporaryFolder();
      const start = () => serve({ t, model, set: { 'cache.tiers.disk.path': disk }, models: { n_seq_max: 2, context_window: 4096, cache_min_tokens: 0 } });
      const server = await start();
      const cold = await next(server.client, prompts, { cache_prompt: false });
      const cached = await next(server.client, prompts);
      await saved(server);
      await server.stop();
      const again = await start();
      const stored = await next(again.client, prompts);
      await again.stop();
      assert.ok(cold.cached.every((n) => n === 0));
      assert.ok(cached.cached.slice(1).every((n, i) => n >= prompts[i].length - 1), `${cached.cached}`);
      assert.ok(stored.cached.every((n, i) => n >= (i > 0 ? prompts[i - 1].length : 1)), `${stored.cached}`); // a sliding window comes back where it was saved
      const own = { 'hearth, cold': cold, 'hearth, cached': cached, 'hearth, read back from disk': stored };
      for (const [what, { found }] of Object.entries(own)) rows[what] = compare(reference, found);
      for (const [what, { kl, agree, most }] of Object.entries(rows))
        t.diagnostic(`${what.padEnd(28)} mean KL ${kl.toExponential(2)}, ${agree} of ${count} first tokens the same, largest difference of the first 20: ${most.toFixed(3)}`);
      for (const what of Object.keys(own)) {
        assert.ok(rows[what].kl <= limit.kl * 1.5, `${what}: ${rows[what].kl}, llama-server's ${limit.kl}`);
        assert.ok(rows[what].agree >= limit.agree - 1, `${what}: ${rows[what].agree}, llama-server's ${limit.agree}`);
      }
    });
  });
}
