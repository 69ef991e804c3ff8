// hearth beside other servers of the same GGUF file: llama-server, Ollama and Kronk, each started anew for each run, one after
// another, the order turned from run to run. `make peers` runs it, and says which programs it found.
//
//   node bench/peers.mjs MODEL FOLDER [RUNS]     3 runs if they are not given
//
// HEARTH, LLAMA_SERVER, OLLAMA and KRONK_BIN name the programs; what is not named is left out. Everything goes through
// POST /v1/chat/completions, which all of them have. Each has 4 slots, a window of 8,192 tokens a slot and one thread.
// Prints a table of medians; writes peers.json and peers.svg into the folder.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync, cpSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { prose } from '../tests/real/lib/text.js';
import { cpuSeconds, freePort, median, memoryMiB, post, sleep, started } from './servers.mjs';

const [model, folder, runs = 3] = [process.argv[2], process.argv[3], Number(process.argv[4] ?? 3)];
const slots = 4, window = 8192;

// ---- HTTP ----

// A streamed chat: {text, first, end, gaps} in ms, {prompt, reply} in tokens, and `computed` where the server says it.
async function chat(server, messages, { maxTokens = 32, signal, onText = () => {} } = {}) {
  const begin = performance.now();
  let first = NaN, last = begin, text = '', rest = '', usage = {}, timings = {};
  const gaps = [];
  const take = (line) => {
    if (!line.startsWith('data: ') || line === 'data: [DONE]') return;
    const chunk = JSON.parse(line.slice(6));
    usage = chunk.usage ?? usage;
    timings = chunk.timings ?? timings;
    const delta = chunk.choices?.[0]?.delta?.content;
    if (!delta) return;
    const now = performance.now();
    if (Number.isNaN(first)) first = now - begin;
    else gaps.push(now - last);
    last = now;
    text += delta;
    onText(text);
  };
  const body = { model: server.model, messages, max_tokens: maxTokens, temperature: 0, seed: 1, stream: true, stream_options: { include_usage: true } };
  const { status, text: all } = await post(server.port, '/v1/chat/completions', body, { signal, onData: (data) => {
    const lines = (rest + data).split('\n');
    rest = lines.pop();
    lines.forEach(take);
  } });
  if (status !== 200) throw new Error(`status ${status}: ${all}`);
  return { text, first, end: performance.now() - begin, gaps, prompt: usage.prompt_tokens, reply: usage.completion_tokens, computed: timings.prompt_n };
}

// ---- Servers ----

const kinds = {
  hearth: process.env.HEARTH && {
    how: `hearth serve --model FILE --set n_seq_max=${slots} --set context_window=${window} --set threads=1`,
    start: async (state) => {
      const port = await freePort();
      return started(process.env.HEARTH, ['serve', '--host', '127.0.0.1', '--port', port, '--model', model, '--set', `n_seq_max=${slots}`,
        '--set', `context_window=${window}`, '--set', 'threads=1', '--set', `cache.tiers.disk.path=${state}`], { name: 'hearth', port });
    },
  },
  'llama-server': process.env.LLAMA_SERVER && {
    how: `llama-server -m FILE -np ${slots} -c ${slots * window} -t 1 --jinja`,
    start: async () => {
      const port = await freePort();
      return started(process.env.LLAMA_SERVER, ['-m', model, '--host', '127.0.0.1', '--port', port, '-np', slots, '-c', slots * window, '-t', '1', '-ngl', '0', '--jinja'],
        { name: 'llama-server', port });
    },
  },
  Ollama: process.env.OLLAMA && {
    how: `OLLAMA_NUM_PARALLEL=${slots} OLLAMA_CONTEXT_LENGTH=${window} ollama serve, PARAMETER num_thread 1`,
    start: async (state) => {
      const port = await freePort();
      const env = { OLLAMA_HOST: `127.0.0.1:${port}`, OLLAMA_MODELS: join(state, 'models'), OLLAMA_NUM_PARALLEL: String(slots), OLLAMA_CONTEXT_LENGTH: String(window),
        OLLAMA_KEEP_ALIVE: '-1', OLLAMA_NO_CLOUD: '1', OLLAMA_DEBUG: '1', HOME: state };
      const server = await started(process.env.OLLAMA, ['serve'], { name: 'Ollama', port, env, path: '/api/version',
        computed: (log) => [...log.matchAll(/prompt eval time = .*?\/ +(\d+) tokens/g)].reduce((sum, [, n]) => sum + Number(n), 0) });
      const listed = await new Promise((resolve) => { http.get({ host: '127.0.0.1', port, path: '/api/tags' }, (response) => { let text = ''; response.on('data', (data) => { text += data; }); response.on('end', () => resolve(text)); }); });
      if (!listed.includes('"model:latest"')) {
        const file = join(state, 'Modelfile');
        writeFileSync(file, `FROM ${model}\nPARAMETER num_thread 1\n`);
        const create = spawn(process.env.OLLAMA, ['create', 'model', '-f', file], { env: { ...process.env, ...env }, stdio: 'ignore' });
        const code = await new Promise((resolve) => { create.on('close', resolve); });
        if (code !== 0) throw new Error(`ollama create: ${server.log.slice(-2000)}`);
      }
      const loading = performance.now();
      await chat(server, [{ role: 'user', content: 'Hi' }], { maxTokens: 1 }); // loads the model
      server.ready += performance.now() - loading;
      return server;
    },
  },
  Kronk: process.env.KRONK_BIN && {
    how: 'KRONK_BIN server start, as its manual has it',
    start: async (state) => {
      const port = await freePort();
      const config = join(state, 'models.yaml');
      writeFileSync(config, `model:\n  n-seq-max: ${slots}\n  context-window: ${window}\n  nthreads: 1\n  incremental-cache: true\n`);
      cpSync(model, join(state, 'models', 'model.gguf'), { recursive: true });
      return started(process.env.KRONK_BIN, ['server', 'start'], { name: 'Kronk', port, path: '/v1/models',
        env: { KRONK_WEB_API_HOST: `127.0.0.1:${port}`, KRONK_BASE_PATH: state, KRONK_PROCESSOR: 'cpu', KRONK_POOL_MODEL_CONFIG_FILE: config, KRONK_SKIP_NETWORK_CHECK: '1' } });
    },
  },
};

// ---- Workloads ----
// Each gets a server that has just started, and a way to start it again on the same state; and returns figures.

const paragraphs = prose.split('\n\n');
const longText = (seed, n) => Array.from({ length: n }, (_, i) => paragraphs[(seed * 7 + i * 5) % paragraphs.length]).join('\n\n');
const system = `You are agent of a team that reads this text:\n${longText(0, 14)}`;
const user = (content) => ({ role: 'user', content });
const assistant = (content) => ({ role: 'assistant', content });

// What one turn needs beyond what was there: the prompt less the prompt and reply before it, whose last token is in no cell.
async function agents(server) {
  const nAgents = 6, nTurns = 6;
  const talks = Array.from({ length: nAgents }, (_, i) => ({ messages: [{ role: 'system', content: system }, user(`Agent ${i}: ${paragraphs[i % paragraphs.length]} What is meant?`)], last: null }));
  const before = server.computed?.() ?? 0;
  let computed = 0, least = 0;
  const own = await chat(server, [{ role: 'system', content: system }, user('')], { maxTokens: 1 });
  computed += own.computed ?? 0;
  least += own.prompt;
  const begin = performance.now();
  for (let turn = 0; turn < nTurns; turn++) {
    await Promise.all(talks.map(async (talk) => {
      const reply = await chat(server, talk.messages, { maxTokens: 24 });
      computed += reply.computed ?? 0;
      least += reply.prompt - (talk.last ? talk.last.prompt + talk.last.reply - 1 : own.prompt - 4) // all begin "Agent ";
      talk.last = reply;
      talk.messages.push(assistant(reply.text), user(`And in other words, for the ${turn + 2}nd time?`));
    }));
  }
  if (server.computed) computed = server.computed() - before;
  return { 'agents: time, s': (performance.now() - begin) / 1000, 'agents: computed / least': computed > 0 ? computed / least : NaN };
}

async function restart(server, again) {
  const messages = [{ role: 'system', content: longText(1, 60) }, user('Who is Jane?')];
  const cold = await chat(server, messages, { maxTokens: 24 });
  messages.push(assistant(cold.text), user('And who is Lizzy?'));
  await sleep(3000); // as a person would wait before the machine goes down
  const next = await again();
  const back = await chat(next, messages, { maxTokens: 4 });
  return { 'after kill -9: first token / cold': back.first / cold.first };
}

async function gap(server) {
  const streamed = [];
  let begun;
  const begins = new Promise((resolve) => { begun = resolve; });
  let words = 0;
  const stop = new AbortController();
  const stream = chat(server, [user('Tell me a very long story.')], { maxTokens: 4000, signal: stop.signal, onText: () => { streamed.push(performance.now()); if (++words === 20) begun(); } }).catch(() => {});
  await Promise.race([begins, stream]);
  const from = performance.now();
  const long = chat(server, [{ role: 'system', content: longText(2, 60) }, user('Who is Jane?')], { maxTokens: 4 });
  await sleep(500);
  const short = await chat(server, [user('Hello!')], { maxTokens: 4 });
  const prompt = await long;
  const until = performance.now();
  stop.abort();
  await stream;
  const times = [...streamed.filter((at) => at >= from - 500 && at <= until), until];
  return { 'beside a long prompt: largest gap of a stream, s': Math.max(...times.slice(1).map((at, i) => at - times[i])) / 1000,
    'beside a long prompt: first token of a short one, s': short.first / 1000, 'the long prompt: first token, s': prompt.first / 1000 };
}

async function clients(server) {
  const begin = performance.now();
  const replies = await Promise.all(Array.from({ length: 8 }, (_, i) => chat(server, [user(`${paragraphs[i % paragraphs.length]}\n\nGo on.`)], { maxTokens: 96 })));
  return { '8 clients: tokens of replies a second': replies.reduce((sum, { reply }) => sum + reply, 0) / (performance.now() - begin) * 1000, 'memory after that, MiB': memoryMiB(server.pid) };
}

// CPU time that is spent after the only client has left in the middle of its prompt.
async function leaving(server) {
  const stop = new AbortController();
  const left = chat(server, [{ role: 'system', content: longText(3, 60) }, user('Who is Jane?')], { maxTokens: 4, signal: stop.signal }).catch(() => {});
  await sleep(1500);
  stop.abort();
  await left;
  const at = cpuSeconds(server.pid);
  for (let before = at, quiet = 0, waited = 0; quiet < 3 && waited < 600; waited++) {
    await sleep(500);
    const now = cpuSeconds(server.pid);
    quiet = now - before < 0.1 ? quiet + 1 : 0;
    before = now;
  }
  return { 'a closed connection: work goes on for, s': cpuSeconds(server.pid) - at };
}

const workloads = { agents, restart, gap, clients, leaving };

// ---- Running ----

const known = Object.entries(kinds).filter(([, kind]) => kind);
const results = Object.fromEntries(known.map(([name]) => [name, {}]));
const note = (name, figures) => Object.entries(figures).forEach(([figure, value]) => { (results[name][figure] ??= []).push(value); });

async function measure(name, kind, workload) {
  const state = mkdtempSync(join(tmpdir(), 'hearth-peers-'));
  let server = await kind.start(state);
  try {
    if (workload === 'agents') note(name, { 'start to ready, s': server.ready / 1000 });
    const again = async () => { await server.kill(); server = await kind.start(state); return server; };
    note(name, await workloads[workload](server, again));
  } finally {
    await server.kill();
    rmSync(state, { recursive: true, force: true });
  }
}

for (let run = 0; run < runs; run++) {
  for (const workload of Object.keys(workloads)) {
    const order = [...known.slice(run % known.length), ...known.slice(0, run % known.length)];
    for (const [name, kind] of order) {
      const begin = performance.now();
      try {
        await measure(name, kind, workload);
      } catch (error) {
        note(name, { [`${workload}: could not be run`]: NaN });
        console.error(`${workload}, ${name}: ${error.message}`);
      }
      console.error(`run ${run + 1}, ${workload}, ${name}: ${((performance.now() - begin) / 1000).toFixed(0)} s`);
    }
  }
}

// ---- What is shown ----

const digits = (value) => (Number.isFinite(value) ? value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(2) : value.toFixed(3) : '–');
const figures = [...new Set(known.flatMap(([name]) => Object.keys(results[name])))];
const names = known.map(([name]) => name);
console.log(`| | ${names.join(' | ')} |\n| --- |${' ---: |'.repeat(names.length)}`);
for (const figure of figures) console.log(`| ${figure} | ${names.map((name) => digits(median(results[name][figure] ?? []))).join(' | ')} |`);
console.log(`\nMedians of ${runs} runs. ${known.map(([name, { how }]) => `${name}: \`${how}\``).join('; ')}.`);

// A row of bars for each figure, the longest as wide as all.
function plot() {
  const colours = ['#1f6f5c', '#b5651d', '#5a6acf', '#8a8a8a'], width = 720, bar = 14, left = 130;
  const escape = (text) => text.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`);
  let y = 10;
  const parts = [];
  for (const figure of figures) {
    const values = names.map((name) => median(results[name][figure] ?? []));
    const most = Math.max(...values.filter(Number.isFinite));
    parts.push(`<text x="10" y="${y + 14}" font-weight="bold">${escape(figure)}</text>`);
    y += 22;
    values.forEach((value, i) => {
      const length = Number.isFinite(value) ? Math.max(1, value / most * (width - left - 90)) : 0;
      parts.push(`<text x="10" y="${y + 11}">${escape(names[i])}</text><rect x="${left}" y="${y}" width="${length.toFixed(1)}" height="${bar}" fill="${colours[i % 4]}"/><text x="${left + length + 6}" y="${y + 11}">${digits(value)}</text>`);
      y += bar + 4;
    });
    y += 12;
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${y}" font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n${parts.join('\n')}\n</svg>\n`;
}
writeFileSync(join(folder, 'peers.json'), `${JSON.stringify({ model: model.replace(`${dirname(model)}/`, ''), runs, results }, null, 1)}\n`);
writeFileSync(join(folder, 'peers.svg'), plot());
