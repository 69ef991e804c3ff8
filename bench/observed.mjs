// What being observed costs the one who computes: two servers of a tiny model, whose decode calls are short, one of which
// publishes cache events and sends traces to a collector. They take turns with replies, and what a token takes is the
// engine's own figure.
//
//   node bench/observed.mjs [ROUNDS [TOKENS]]      40 and 1,000 if they are not given
//
// Wants `npm ci` in tests/e2e, whose collector and router listen.

import { Collector } from '../tests/e2e/lib/collector.js';
import { smallModel } from '../tests/e2e/lib/models.js';
import { Router, freeEndpoint } from '../tests/e2e/lib/router.js';
import { serve } from '../tests/e2e/lib/server.js';
import { saved } from '../tests/e2e/lib/store.js';
import { tokens } from '../tests/e2e/lib/wait.js';

const [rounds, length] = [40, 1000].map((otherwise, i) => Number(process.argv[2 + i] ?? otherwise));
const model = smallModel('llama');
const options = { model, models: { context_window: 4096, n_seq_max: 2, cache_min_tokens: 0 } };

const ends = [];
const t = { after: (end) => ends.push(end) };
const collector = await Collector.open(t);
const endpoint = await freeEndpoint();
const router = new Router(endpoint);
const observed = await serve({ ...options, set: { 'server.kv_events': endpoint, 'server.otlp_endpoint': collector.url } });
const alone = await serve(options);

async function tokenUs(server, seed) {
  const { timings } = await server.client.complete({ prompt: tokens(200, seed), max_tokens: length, ignore_eos: true });
  await saved(server);
  return timings.predicted_ms / timings.predicted_n * 1000;
}

// The one that goes first changes from round to round.
const runs = [];
for (let round = 0; round < rounds; round++) {
  const run = {};
  for (const server of round % 2 ? [observed, alone] : [alone, observed])
    run[server === alone ? 'alone' : 'observed'] = await tokenUs(server, round + 1);
  runs.push({ ...run, ratio: run.observed / run.alone });
}
const at = (name, part) => runs.map((run) => run[name]).sort((a, b) => a - b)[Math.floor((rounds - 1) * part)];
console.log(`${rounds} replies of ${length} tokens each; ${router.stored} blocks told, ${collector.traces().length} traces received\n`);
console.log('| a token | median | quartiles |');
console.log('| --- | ---: | ---: |');
for (const [name, unit] of [['alone', ' us'], ['observed', ' us'], ['ratio', '']])
  console.log(`| ${name} | ${at(name, 0.5).toFixed(3)}${unit} | ${at(name, 0.25).toFixed(3)} to ${at(name, 0.75).toFixed(3)} |`);
await Promise.all([observed.stop(), alone.stop(), router.close()]);
ends.forEach((end) => end());
