// Servers that share what they computed through Redis: how fast it goes there and back, and what a conversation pays that
// moves from one server to another.
//
//   node bench/shared.mjs
//
// Wants Redis and `npm ci` in tests/e2e. Redis is on this machine, on a unix socket: a network adds what it takes. The
// model is that of `make bench-full`, 12 layers of 768.

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { build, smallModel } from '../tests/e2e/lib/models.js';
import { startRedis } from '../tests/e2e/lib/redis.js';
import { serve, temporaryFolder } from '../tests/e2e/lib/server.js';
import { saved } from '../tests/e2e/lib/store.js';
import { tokens } from '../tests/e2e/lib/wait.js';

const ends = [];
const t = { after: (end) => ends.push(end) };
const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];

// ---- Bytes a second ----

const part = 4 << 20; // what hearth cuts slabs into
const sizes = [
  { bytes: 256 << 10, slabs: 400 }, { bytes: 2 << 20, slabs: 50 }, { bytes: 16 << 20, slabs: 8 },
  { bytes: 2 << 20, slabs: 50, encrypts: true },
];
const pairs = 5;

function hearthBytes(redis, { bytes, slabs, encrypts }) {
  redis.ask('FLUSHALL');
  const args = ['--json', '--url', redis.url, '--bytes', bytes, '--slabs', slabs, ...encrypts ? ['--encrypts'] : []].map(String);
  const { figures } = JSON.parse(execFileSync(join(build, 'bin', 'hearth_bench_shared'), args, { encoding: 'utf8' }));
  return ['put', 'get'].map((name) => figures.find((figure) => figure.name === name).median);
}

// One client, as hearth's saver is one, with values of the same sizes, each under a key of its own as well: the server
// has to find memory for what is new, and what is read lies all over it.
function redisBytes(redis, { bytes, slabs }) {
  const value = Math.min(bytes, part), n = slabs * Math.ceil(bytes / part) * 5, kept = Math.ceil(n / 5);
  const measure = (test, keys) => {
    const args = ['-s', redis.socket, '-c', 1, '-n', n, '-d', value, '-t', test, '-r', keys, '--csv'].map(String);
    const [, rate] = new RegExp(`"${test.toUpperCase()}","([0-9.]+)"`).exec(execFileSync('redis-benchmark', args, { encoding: 'utf8' }));
    return Number(rate) * value / 1e6;
  };
  redis.ask('FLUSHALL');
  const set = measure('set', 1e9);
  redis.ask('FLUSHALL');
  redis.ask('EVAL', `for i = 0, ${kept - 1} do redis.call('SET', string.format('key:%012d', i), string.rep('x', ${value})) end`, '0');
  return [set, measure('get', kept)];
}

async function compareBytes() {
  const redis = await startRedis(t);
  console.log('| slabs of | to Redis: hearth, redis-benchmark, ratio | from Redis: hearth, redis-benchmark, ratio |');
  console.log('| ---: | ---: | ---: |');
  for (const size of sizes) {
    const runs = Array.from({ length: pairs }, () => [hearthBytes(redis, size), redisBytes(redis, size)]);
    const columns = [0, 1].map((way) => {
      const [ours, theirs, ratio] = [([one]) => one[way], ([, other]) => other[way], ([one, other]) => one[way] / other[way]]
        .map((figure) => median(runs.map(figure)));
      return `${ours.toFixed(0)}, ${theirs.toFixed(0)} MB/s, ${ratio.toFixed(2)}`;
    });
    console.log(`| ${size.bytes >> 10} KiB${size.encrypts ? ', encrypted' : ''} | ${columns.join(' | ')} |`);
  }
}

// ---- A conversation that moves ----

const model = smallModel('qwen3', { layers: 12, embd: 768, heads: 12, 'kv-heads': 4, 'head-dim': 64, ff: 2304, type: 'q8_0' });
const first = 4096, more = 50, rounds = 3;

const start = (redis, folder) => serve({
  model,
  models: { context_window: 8192, n_seq_max: 2, threads: 2 },
  set: { 'cache.tiers.disk.path': folder, ...redis ? { 'cache.tiers.remote.url': redis.url } : {} },
});

async function firstToken(server, prompt) {
  const begin = performance.now();
  const { timings } = await server.client.complete({ prompt, max_tokens: 1 });
  return { ms: performance.now() - begin, computed: timings.prompt_n };
}

// The next turn, asked of a server that has nothing, of one that was restarted, and of another one.
async function moveOnce(seed) {
  const redis = await startRedis(t), folder = temporaryFolder();
  const conversation = tokens(first, seed), next = [...conversation, ...tokens(more, seed + 100)];
  const warm = tokens(64, seed + 200);
  const ask = async (where, to) => {
    const server = await start(where, to);
    await firstToken(server, warm);
    const reply = await firstToken(server, next);
    await server.stop();
    return reply;
  };
  const cold = await ask(null, temporaryFolder());
  const begun = await start(redis, folder);
  await begun.client.complete({ prompt: conversation, max_tokens: 16 });
  await saved(begun);
  await begun.stop();
  const moved = await ask(redis, temporaryFolder());
  const restarted = await ask(null, folder);
  await redis.kill();
  return { cold, restarted, moved };
}

async function compareMoves() {
  const runs = [];
  for (let round = 1; round <= rounds; round++) runs.push(await moveOnce(round));
  console.log(`\n| the next turn of a conversation of ${first} tokens, ${more} of them new | first token | as a multiple of the cold one | tokens computed |`);
  console.log('| --- | ---: | ---: | ---: |');
  const names = { cold: 'a server that has nothing', restarted: 'the server after a restart, from its disk', moved: 'another server, from Redis' };
  for (const [way, name] of Object.entries(names)) {
    const ms = median(runs.map((run) => run[way].ms)), ratio = median(runs.map((run) => run[way].ms / run.cold.ms));
    console.log(`| ${name} | ${ms.toFixed(0)} ms | ${ratio.toFixed(3)} | ${median(runs.map((run) => run[way].computed))} |`);
  }
}

await compareBytes();
await compareMoves();
ends.forEach((end) => end());
