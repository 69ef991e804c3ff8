// Starts and ends `hearth serve` for a test, and runs hearth's other commands.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from './client.js';
import { hearth } from './models.js';
import { until, within } from './wait.js';

const started = new Set();
const folders = [], servers = [];
process.on('exit', () => {
  servers.forEach(checkStalls);
  started.forEach((child) => child.kill('SIGKILL'));
  folders.forEach((folder) => rmSync(folder, { recursive: true, force: true }));
});

// Nothing that one client sends may hold up the others: a test program fails if a server's watchdog says so. The watchdog
// counts from 5 ms on; here the kernel's work for other connections, which it does within a call that sends, and threads
// that a busy machine does not run for a while are allowed for. Sanitizers make everything slower.
const slower = ['ASAN_OPTIONS', 'TSAN_OPTIONS'].some((name) => name in process.env) ? 20 : 1;
function checkStalls(server) {
  for (const [line, took, busy] of server.log.matchAll(/.*all connections were held up.*took_ms=([\d.]+) busy_ms=([\d.]+).*/g)) {
    if (Number(busy) <= 50 * slower && Number(took) <= 500 * slower) continue;
    console.error(`the HTTP thread was held up: ${line}`);
    process.exitCode = 1;
  }
}

// A folder that goes with the test program.
export function temporaryFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'hearth-e2e-'));
  folders.push(folder);
  return folder;
}

// Nothing is stored where the user's own programs store.
const home = temporaryFolder();
const env = { ...process.env, HOME: home, XDG_CACHE_HOME: '' };

// Characters of a log that are kept: what runs for half an hour under attack writes more than a string can have.
const logMost = 64 << 20;

// A running server. `log` is all it has written so far, or the end of that; `client` speaks HTTP to it.
class Server {
  constructor(child, access) {
    this.child = child;
    this.access = access; // what its client needs: {ca, key}
    this.log = '';
    this.ended = new Promise((resolve) => {
      child.on('close', (code, signal) => {
        started.delete(child);
        resolve({ code, signal });
      });
    });
    for (const stream of [child.stdout, child.stderr].filter(Boolean)) {
      stream.setEncoding('utf8');
      stream.on('data', (text) => { this.log = (this.log.length > logMost ? this.log.slice(-logMost / 2) : this.log) + text; });
    }
  }

  get pid() {
    return this.child.pid;
  }

  // Polls as until() does, but not on when the server has ended.
  async whileAlive(what, condition, seconds) {
    let how = null;
    this.ended.then((result) => { how = result; });
    const value = await until(what, async () => how !== null || condition(), { seconds });
    assert.equal(how, null, `the server has ended: ${this.log}`);
    return value;
  }

  // Waits for the address in the output; it may come before or after the model has been loaded.
  async address() {
    const found = await this.whileAlive('the server prints its address',
      () => /(https?):\/\/127\.0\.0\.1:(\d+)/.exec(this.log), 60);
    this.port = Number(found[2]);
    this.url = `${found[1]}://127.0.0.1:${this.port}`;
    this.client = new Client(this.port, this.access);
  }

  ready() {
    return this.whileAlive('/health answers 200', async () => (await this.client.get('/health')).status === 200, 120);
  }

  // The log is written by a thread of its own: a line may come after the answer to what it tells of.
  says(line) {
    return until(`the log says ${line}`, () => line.test(this.log));
  }

  signal(name = 'SIGTERM') {
    this.child.kill(name);
  }

  // Asks the server to end and insists that it does so in good order.
  async stop() {
    this.signal('SIGTERM');
    const { code, signal } = await within(60, 'the server ends after SIGTERM', this.ended);
    if (code !== 0) started.forEach((child) => child.kill('SIGKILL')); // nobody stops the others after a failure here
    assert.deepEqual({ code, signal }, { code: 0, signal: null }, `the server did not end well: ${this.log}`);
  }
}

// The name of a model that is given by its path is the file's without the ending.
export const modelName = (path) => path.replace(/^.*\//, '').replace(/\.gguf$/, '');

// Starts a server and returns it once it listens; with `loaded` (the default) once its models are ready.
// `model` is a path; the keys of `set` are the configuration's, those of `models` the one model's. One thread computes,
// unless a test says otherwise: the small models are no slower with it, and a machine that is busy with other things
// does not hold it up at every layer, as it does several threads that wait for each other. And what is in the cells does
// not depend on times that are measured: tests count what comes from there and what from the store.
// Each server stores in a folder of its own, unless the test gives it one.
// `access` is what its client needs to get in: {ca, key}; `env` is added to the environment.
// `stderr` is where its log goes, in place of `log`: a file descriptor. `files` is its limit of open files.
// `passed` is a descriptor that it gets as its third, as systemd passes a socket; `when` a promise: the server, which has
// that descriptor at once, begins only then. `command` starts the server in place of all that; `under` is what it runs under.
// A test that has a server of its own gives its context `t`, so that no failure leaves the server running.
export async function serve({ t, model, set = {}, models = {}, args = [], loaded = true, access, env: more, stderr = 'pipe', files, passed, when, command, under = [] } = {}) {
  const name = model ? modelName(model) : 'demo';
  const small = model ? {} : { n_seq_max: 4, cache_min_tokens: 0 }; // as `make run` serves the demo model
  const steady = { threads: 1, idle_conversations: 'stay' };
  const own = args.includes('--config') ? models : { ...steady, ...args.includes('--model') ? {} : small, ...models };
  const keys = { 'cache.tiers.disk.path': temporaryFolder(), ...set, ...Object.fromEntries(Object.entries(own).map(([k, v]) => [`models.${name}.${k}`, v])) };
  const list = ['serve', '--host', '127.0.0.1', '--port', '0', ...(model ? ['--model', model] : [])];
  for (const [key, value] of Object.entries(keys)) list.push('--set', `${key}=${value}`);
  const first = files ? `ulimit -n ${files} && exec "$0" "$@"` : passed ? 'read -r _ && LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"' : null;
  command ??= [...under, ...first ? ['sh', '-c', first] : [], hearth, ...list, ...args];
  const stdio = [passed ? 'pipe' : 'ignore', 'pipe', stderr, ...passed ? [passed] : []];
  const child = spawn(command[0], command.slice(1), { stdio, env: { ...env, ...more } });
  started.add(child);
  t?.after(() => child.kill('SIGKILL'));
  const server = new Server(child, access);
  servers.push(server);
  server.model = name;
  if (passed) {
    await when;
    child.stdin.end('begin\n');
  }
  await server.address();
  if (loaded) await server.ready();
  return server;
}

// Compiles a file of this folder into a library for LD_PRELOAD, and returns its path.
export function shim(name) {
  const path = join(temporaryFolder(), `${name}.so`);
  execFileSync('cc', ['-shared', '-fPIC', '-O1', '-o', path, fileURLToPath(new URL(`${name}.c`, import.meta.url)), '-ldl']);
  return path;
}

// Runs a command of hearth to its end: {code, stdout, stderr}. `env` is added to the environment.
export async function run(args, { input = '', seconds = 60, cwd, env: more } = {}) {
  const child = spawn(hearth, args, { stdio: ['pipe', 'pipe', 'pipe'], cwd, env: { ...env, ...more } });
  started.add(child);
  const result = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) {
    child[name].setEncoding('utf8');
    child[name].on('data', (text) => { result[name] += text; });
  }
  child.stdin.on('error', () => {}); // a command that fails early does not read its input
  child.stdin.end(input);
  const ended = new Promise((resolve) => { child.on('close', (code, signal) => resolve({ code, signal })); });
  try {
    return { ...result, ...await within(seconds, `hearth ${args.join(' ')} ends`, ended), ...result };
  } finally {
    child.kill('SIGKILL');
    started.delete(child);
  }
}
