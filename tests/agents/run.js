// Runs five coding agents, as npm has them, on a dense and a hybrid model: three turns of a conversation, and a question in
// each of two more folders. Prints what their prompts cost on hearth, and on llama-server where LLAMA_SERVER names it.
// Fails where hearth answers any request of theirs with a status of 400 or more, and where, on the dense model, the first
// question in another folder reuses less than nine tenths of what its prompts have in common, from the start, with
// earlier ones. (A hybrid model can be cut at checkpoints alone.)
//
// The weights are random and replies capped: what counts is which requests are understood and which tokens computed.

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hearth, smallModel } from '../e2e/lib/models.js';
import { peer } from '../e2e/lib/peer.js';
import { modelName, serve } from '../e2e/lib/server.js';
import { proxy } from './proxy.js';

const here = dirname(fileURLToPath(import.meta.url));
const window = 65536;
const slots = 4;
const secondsEach = 180;

const shape = { vocab: 'gpt-2', layers: 2, embd: 64, heads: 2, 'kv-heads': 1, 'head-dim': 32, ff: 128, ctx: window };
const template = (name) => join(process.env.LLAMA_SOURCE, 'models', 'templates', name);
const models = {
  dense: () => smallModel('qwen3', { ...shape, template: template('Qwen3-Coder.jinja') }),
  hybrid: () => smallModel('qwen35', { ...shape, layers: 4, template: template('Qwen3.5-4B.jinja') }),
};

// The words of a conversation's first question and of one that goes on with it.
const agents = {
  claude: [(text) => ['-p', text], (text) => ['-p', '--continue', text]],
  codex: [(text) => ['exec', '--skip-git-repo-check', text], (text) => ['exec', '--skip-git-repo-check', 'resume', '--last', text]],
  opencode: [(text) => ['run', text], (text) => ['run', '--continue', text]],
  qwen: [(text) => ['-p', text], (text) => ['--continue', '-p', text]],
  pi: [(text) => ['-p', text], (text) => ['-p', '--continue', text]],
};

// ---- An agent at work ----

function launch(agent, words, { url, home, folder }) {
  const env = { ...process.env, HOME: home, XDG_DATA_HOME: join(home, 'data'), XDG_CONFIG_HOME: join(home, 'config'),
    XDG_CACHE_HOME: join(home, 'cache'), PATH: `${join(here, 'node_modules', '.bin')}:${dirname(process.execPath)}:${process.env.PATH}` };
  const child = spawn(hearth, ['launch', agent, '--url', url, '--', ...words], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => { output += text; });
  const end = () => { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* it has ended */ } };
  const timer = setTimeout(end, secondsEach * 1000); // it is its end that is waited for; some never come to it
  return new Promise((resolve) => {
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      end();
      resolve({ code, signal, output });
    });
  });
}

const steps = [['one', 0, 'Say hello.'], ['one', 1, 'What is two and two?'], ['one', 1, 'Name a colour.'],
  ['two', 0, 'What is in this folder?'], ['three', 0, 'Which language is this?']];

// One row for each step: what the requests that it made cost together.
async function work(agent, server) {
  const rows = [];
  const requests = [];
  const between = await proxy(server.url, requests, { looksUp: server.looksUp });
  const base = mkdtempSync(join(tmpdir(), 'hearth-agents-'));
  for (const [name, goesOn, text] of steps) {
    const folder = join(base, name);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `${name}.txt`), `${name}\n`);
    const { code, signal, output } = await launch(agent, agents[agent][goesOn](text), { url: between.url, home: base, folder });
    const made = requests.splice(0);
    rows.push({ step: `${name}${goesOn ? ', next turn' : ''}`, code: code ?? signal, output, requests: made });
  }
  between.close();
  rmSync(base, { recursive: true, force: true });
  return rows;
}

// ---- The servers ----

const ends = [];
const context = { after: (end) => ends.push(end) };
const sides = {
  hearth: async (path) => {
    const server = await serve({ t: context, model: path, models: { n_seq_max: slots, context_window: window } });
    return { url: server.url, looksUp: true, end: () => server.stop() };
  },
  'llama-server': async (path) => {
    const client = await peer(context, path, ['-c', String(window * slots), '-np', String(slots), '-a', modelName(path)]);
    return { url: `http://127.0.0.1:${client.port}`, end: async () => ends.splice(0).forEach((end) => end()) };
  },
};

// ---- The table ----

const goal = 0.9;
const sum = (requests, member) => requests.reduce((total, request) => total + (request[member] ?? 0), 0);
const cells = ({ requests }) => [requests.filter(({ prompt }) => prompt).length, sum(requests, 'prompt'), requests.some(({ common }) => common !== undefined) ? sum(requests, 'common') : '', sum(requests, 'cached'),
  sum(requests, 'prompt') - sum(requests, 'cached'), [...new Set(requests.map(({ status }) => status))].sort().join(' ')];

function print(table) {
  const head = ['model', 'agent', 'folder', ...Object.keys(table[0].sides).flatMap((side) => [`${side}: requests`, 'prompt', 'in common', 'cached', 'computed', 'status'])];
  const lines = table.map((row) => [row.model, row.agent, row.step, ...Object.values(row.sides).flatMap(cells)].map(String));
  console.log(`| ${head.join(' | ')} |\n|${head.map(() => ' --- |').join('')}`);
  for (const line of lines) console.log(`| ${line.join(' | ')} |`);
}

// ---- All of it ----

const only = process.argv.slice(2);
const table = [];
let failures = 0;
for (const [model, make] of Object.entries(models)) {
  const path = make();
  for (const [side, start] of Object.entries(sides)) {
    if (side !== 'hearth' && !process.env.LLAMA_SERVER) continue;
    const server = await start(path);
    for (const agent of Object.keys(agents).filter((name) => only.length === 0 || only.includes(name))) {
      for (const { step, ...result } of await work(agent, server)) {
        const at = table.find((row) => row.model === model && row.agent === agent && row.step === step && !row.sides[side])
          ?? table[table.push({ model, agent, step, sides: {} }) - 1];
        at.sides[side] = result;
        const refused = result.requests.filter(({ status }) => status >= 400);
        const idle = !result.requests.some(({ prompt }) => prompt);
        console.error(`${model} ${side} ${agent} ${step}: ${cells(result).join(' ')}`);
        for (const { path: route, status, text } of refused) console.error(`  ${status} ${route} ${text.slice(0, 300)}`);
        if (idle) console.error(`  it asked nothing and ended with ${result.code}: ${result.output.slice(-2000)}`);
        const elsewhere = model === 'dense' && (step === 'two' || step === 'three');
        const missed = side === 'hearth' && elsewhere && sum(result.requests, 'cached') < goal * sum(result.requests, 'common');
        if (missed) console.error('  less than nine tenths of what is in common was reused');
        if (side === 'hearth') failures += refused.length + idle + missed;
      }
    }
    await server.end();
  }
}
print(table);
console.log(failures === 0 ? 'no request was refused, and what is in common was reused' : `${failures} requests were refused, never made, or reused too little`);
process.exitCode = failures === 0 ? 0 : 1;
