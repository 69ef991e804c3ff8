// Replies with drafts and without, beside llama-server with its own and without: milliseconds a token, by what is asked and by
// how many ask at once. `make drafts` runs it with a real model.
//
//   node bench/drafts.mjs MODEL [RUNS]     3 runs if they are not given
//
// HEARTH and LLAMA_SERVER name the programs. Both have 8 slots, a window of 4,096 tokens a slot and two threads, and are started
// anew for each run of a task; the order is turned from run to run. hearth's two rows are of one process, in turn.
// TASKS="edit chat" and CLIENTS="1 4" choose.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { prose } from '../tests/real/lib/text.js';
import { freePort, median, post, started } from './servers.mjs';

const [model, runs = 3] = [process.argv[2], Number(process.argv[3] ?? 3)];
const slots = 8, window = 4096, threads = 2;
const paragraphs = prose.split('\n\n');
const user = (content) => ({ role: 'user', content });
const assistant = (content) => ({ role: 'assistant', content });

// ---- What is asked ----

// Files as they were before a commit of this repository's own that changed them, and the commit's change of them.
const edits = (() => {
  const git = (...args) => execFileSync('git', args, { encoding: 'utf8', maxBuffer: 1 << 26 });
  const found = [];
  for (const commit of git('log', '--format=%h', '-n', '400', '--no-merges', '--', 'src').split('\n').filter(Boolean)) {
    for (const path of git('diff-tree', '--no-commit-id', '--name-only', '--diff-filter=M', '-r', commit, '--', 'src').split('\n').filter((name) => name.endsWith('.c'))) {
      const before = git('show', `${commit}^:${path}`), change = git('show', '--format=', '-U1', commit, '--', path);
      const lines = before.split('\n').length;
      if (lines >= 200 && lines <= 260 && change.split('\n').length <= 30 && before.length <= 8500) found.push({ before, change });
      if (found.length === slots) return found;
    }
  }
  throw new Error('the history has too few small changes: a whole clone is needed');
})();

const listing = (seed) => JSON.stringify(Array.from({ length: 24 }, (_, i) => ({ path: `src/part${(i * 7 + seed) % 31}/file${i}.c`, lines: (i * 97 + seed * 13) % 700, changed: `2026-0${1 + (i % 9)}-1${(i + seed) % 10}` })));
const people = { type: 'object', additionalProperties: false, required: ['people'], properties: { people: { type: 'array', minItems: 6, maxItems: 6, items: {
  type: 'object', additionalProperties: false, required: ['first_name', 'last_name', 'favourite_colour', 'age_in_years'],
  properties: { first_name: { type: 'string', maxLength: 12 }, last_name: { type: 'string', maxLength: 12 }, favourite_colour: { enum: ['red', 'green', 'blue'] }, age_in_years: { type: 'integer', minimum: 1, maximum: 99 } } } } } };
const words = (seed) => Array.from({ length: 120 }, (_, i) => `w${(i * i * 31 + seed * 101 + i) % 997}`).join(' ');

// Each: the body of client i's request. `again`: it is sent once before it is measured.
const tasks = {
  edit: { body: (i) => ({ max_tokens: 600, messages: [user(`This is a file:\n\n\`\`\`c\n${edits[i].before}\n\`\`\`\n\nMake this change to it:\n\n${edits[i].change}\n\nWrite the whole file with the change.`)] }) },
  agent: { body: (i) => ({ max_tokens: 192, messages: [user('List the files of the repository.'), assistant('{"name": "list_files", "arguments": {"folder": "src"}}'), user(`Result of the tool:\n${listing(i)}`),
    assistant(listing(i).slice(0, 300)), user('Write the whole result once more, as JSON, without changing anything.')] }) },
  repeat: { again: true, body: (i) => ({ max_tokens: 192, temperature: 0, messages: [user(`Tell me a story about a lighthouse keeper with ${i + 2} children.`)] }) },
  retold: { again: true, body: (i) => ({ max_tokens: 192, temperature: 0.7, seed: 5 + i, messages: [user(`Tell me a story about a lighthouse keeper with ${i + 2} children.`)] }) },
  schema: { body: (i) => ({ max_tokens: 300, messages: [user(`Give me six people who live in house number ${i + 1}, as JSON.`)], response_format: { type: 'json_schema', json_schema: { name: 'people', schema: people } } }) },
  chat: { body: (i) => ({ max_tokens: 192, messages: [user(`Explain in five paragraphs how ${['a bicycle', 'a kettle', 'a piano', 'a lock', 'a clock', 'a sail', 'a bridge', 'a kite'][i]} works.`)] }) },
  prose: { body: (i) => ({ max_tokens: 192, temperature: 0.8, seed: 9 + i, messages: [user(`${paragraphs[(i * 5) % paragraphs.length]}\n\nGo on with this novel.`)] }) },
  random: { body: (i) => ({ max_tokens: 192, temperature: 1.5, seed: 3 + i, ignore_eos: true, messages: [user(words(i))] }) },
};

// ---- Who is asked ----

const llama = (name, ...more) => ({ name, start: async () => {
  const port = await freePort();
  return started(process.env.LLAMA_SERVER, ['-m', model, '--host', '127.0.0.1', '--port', port, '-np', slots, '-c', slots * window, '-t', threads, '-ngl', '0', '--jinja', ...more], { name, port });
} });
const hearth = { name: 'hearth', start: async (folder) => {
  const port = await freePort();
  return started(process.env.HEARTH, ['serve', '--host', '127.0.0.1', '--port', port, '--model', model, '--set', `n_seq_max=${slots}`, '--set', `context_window=${window}`, '--set', `threads=${threads}`, '--set', `cache.tiers.disk.path=${folder}`], { name: 'hearth', port });
} };
const servers = [
  { ...hearth, variants: { 'hearth without': { 'speculative.n_max': 0 }, hearth: {} } },
  { ...llama('llama-server'), variants: { 'llama-server': {} } },
  { ...llama('llama-server, ngram-mod', '--spec-type', 'ngram-mod', '--spec-ngram-mod-n-match', 8, '--spec-ngram-mod-n-min', 4, '--spec-ngram-mod-n-max', 24), variants: { 'llama-server, ngram-mod': {} } },
  { ...llama('llama-server, ngram-map-k', '--spec-type', 'ngram-map-k', '--spec-ngram-map-k-size-n', 8, '--spec-ngram-map-k-size-m', 16), variants: { 'llama-server, ngram-map-k': {} } },
];

// All clients' requests at once. Milliseconds a token of a reply, the median of the clients; tokens that were drafted, and accepted.
async function ask(server, task, clients, more) {
  const replies = await Promise.all(Array.from({ length: clients }, async (_, i) => {
    const { status, text } = await post(server.port, '/v1/chat/completions', { temperature: 0, seed: 1, cache_prompt: true, ...task.body(i), ...more });
    if (status !== 200) throw new Error(`${status}: ${text.slice(0, 300)}`);
    return JSON.parse(text).timings;
  }));
  const sum = (name) => replies.reduce((n, timings) => n + (timings[name] ?? 0), 0);
  return { ms: median(replies.map((t) => t.predicted_ms / Math.max(1, t.predicted_n - 1))), drafted: sum('draft_n'), accepted: sum('draft_n_accepted'), tokens: sum('predicted_n') };
}

const results = {}; // task, clients: {variant: [figures]}
const orderly = (list, run) => [...list.slice(run % list.length), ...list.slice(0, run % list.length)];

async function measure(server, key, task, clients, run) {
  const folder = mkdtempSync(join(tmpdir(), 'hearth-drafts-'));
  const running = await server.start(folder);
  try {
    for (const [variant, more] of orderly(Object.entries(server.variants), run)) {
      const salted = server.name === 'hearth' ? { ...more, cache_salt: variant } : more;
      // What a server learns while it runs it knows after a while: another request of the same kind, of other words. FRESH=1
      // asks for 64 tokens of a chat in its place, so that the figures have what it costs to learn.
      await (process.env.FRESH || clients === slots ? ask(running, { body: () => tasks.chat.body(slots - 1) }, 1, { ...salted, max_tokens: 64 }) : ask(running, { body: () => task.body(slots - 1) }, 1, salted));
      if (task.again) await ask(running, task, clients, salted);
      (results[key][variant] ??= []).push(await ask(running, task, clients, salted));
    }
  } finally {
    await running.kill();
    rmSync(folder, { recursive: true, force: true });
  }
}

const chosen = process.env.TASKS?.split(' ') ?? Object.keys(tasks);
const numbers = (process.env.CLIENTS ?? '1 2 4 8').split(' ').map(Number);
for (let run = 0; run < runs; run++) {
  for (const name of chosen) {
    for (const clients of numbers) {
      const key = `${name}, ${clients}`;
      results[key] ??= {};
      for (const server of orderly(servers, run)) {
        try {
          await measure(server, key, tasks[name], clients, run);
        } catch (error) {
          console.error(`${key}, ${server.name}: ${error.message}`);
        }
      }
      console.error(`run ${run + 1}: ${key}`);
    }
  }
}

// ---- What is shown ----

const names = servers.flatMap((server) => Object.keys(server.variants));
const of = (key, name) => median((results[key][name] ?? []).map(({ ms }) => ms));
const part = (figures) => {
  const drafted = figures.reduce((n, f) => n + f.drafted, 0), accepted = figures.reduce((n, f) => n + f.accepted, 0), tokens = figures.reduce((n, f) => n + f.tokens, 0);
  return drafted === 0 ? '–' : `${(accepted / drafted).toFixed(2)}, ${(tokens / Math.max(1, tokens - accepted)).toFixed(2)}`;
};
console.log(`| task, clients | ${names.map((name) => `${name}, ms a token`).join(' | ')} | with / without | best of llama-server's / hearth | accepted, tokens a call |\n| --- |${' ---: |'.repeat(names.length + 3)}`);
for (const key of Object.keys(results)) {
  const best = Math.min(...names.filter((name) => name.startsWith('llama')).map((name) => of(key, name)).filter(Number.isFinite));
  const pairs = (results[key]['hearth without'] ?? []).map(({ ms }, i) => ms / (results[key].hearth?.[i]?.ms ?? NaN));
  console.log(`| ${key} | ${names.map((name) => of(key, name).toFixed(2)).join(' | ')} | ${median(pairs).toFixed(2)} | ${(best / of(key, 'hearth')).toFixed(2)} | ${part(results[key].hearth ?? [])} |`);
}
console.log(`\nMedians of ${runs} runs; "with / without" is the median of the pairs.`);
