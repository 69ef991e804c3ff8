// What the tests of the store have in common: conversations whose every token is known, and looks into its folders.

import assert from 'node:assert/strict';
import { lstatSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './server.js';
import { tokens, until, within } from './wait.js';

// ---- Conversations ----

// In the demo model's vocabulary the tokens of ASCII letters are their codes. Replies of nothing but letters have
// known tokens, and still depend on all that came before.
const letters = Array.from({ length: 20 }, (_, i) => 97 + i);
const onlyLetters = Object.fromEntries(letters.map((token) => [token, 100]));

export const letterTokens = (text) => [...text].map((letter) => letter.charCodeAt(0));
export const lettersOnly = { logit_bias: onlyLetters, temperature: 0 };

// A conversation in tokens, as a client keeps it who sends all of it each time.
export class Talk {
  constructor(body = {}) {
    this.tokens = [];
    this.body = body;
  }

  // Says `words` more tokens and takes the reply in. Of the conversation before, the last token was never computed.
  async say(server, words, { seed = 1, reply = 16, ...more } = {}) {
    const prompt = [...this.tokens, ...tokens(words, seed * 1000 + this.tokens.length)];
    const answer = await server.client.complete({ prompt, max_tokens: reply, ...lettersOnly, ...this.body, ...more });
    const { text } = answer.choices[0];
    assert.equal(text.length, reply, `${text} has ${reply} letters`);
    assert.equal(answer.timings.cache_n + answer.timings.prompt_n, prompt.length);
    this.tokens = [...prompt, ...letterTokens(text)];
    return {
      text, cached: answer.timings.cache_n, computed: answer.timings.prompt_n,
      logprobs: answer.choices[0].logprobs?.token_logprobs,
    };
  }

  copy() {
    const copy = new Talk(this.body);
    copy.tokens = [...this.tokens];
    return copy;
  }
}

// The next turn without the cache, then with it: the reply is the same, and at least so many tokens were cached.
export async function sayTwice(server, talk, words, least) {
  const cold = await talk.copy().say(server, words, { cache_prompt: false });
  const warm = await talk.say(server, words);
  assert.ok(warm.cached >= least, `${warm.cached} of ${talk.tokens.length}`);
  assert.equal(warm.text, cold.text);
}

// ---- What the server says ----

export async function cacheOf(server) {
  const reply = await server.client.get('/cache');
  assert.equal(reply.status, 200, reply.text);
  return reply.json;
}

// Waits until a counter of GET /cache is at least so high.
export const counted = (server, name, least) => until(`${name} is ${least}`, async () => {
  const value = (await cacheOf(server))[name];
  if (value >= least) return true;
  throw new Error(`it is ${value}`);
});

// No save is queued or being carried out: what is in the cells of idle slots is durable. Looks twice, since between the
// end of a reply and its save there is a moment.
export async function saved(server) {
  let last = null;
  await server.client.idle();
  await until('everything is saved', async () => {
    const backlog = await server.client.metric('hearth_cache_backlog_bytes');
    const now = JSON.stringify(await cacheOf(server));
    const quiet = backlog === 0 && now === last;
    last = now;
    return quiet;
  }, { every: 30 });
}

export async function killed(server) {
  server.signal('SIGKILL');
  await within(30, 'the server is gone', server.ended);
}

// ---- What lies in a folder ----

const slabName = /^[0-9a-f]{64}\.(rows|state)$/;

// The slabs: [{name, path, size}].
export function slabsIn(folder) {
  return readdirSync(folder).filter((name) => slabName.test(name)).sort()
    .map((name) => ({ name, path: join(folder, name), size: lstatSync(join(folder, name)).size }));
}

// All files of a folder but its index file, known digests and the names of models, half-written ones and those set aside too: [[path, size]]. Files come and go meanwhile, and
// one that is being published has two names for a moment: as `du` does, it is counted once.
export function filesIn(folder) {
  const files = new Map();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath ?? entry.path, entry.name);
    if (/^(index|digests)(\.new)?$|\.name$/.test(entry.name)) continue;
    try {
      const { ino, size } = lstatSync(path);
      if (entry.isFile()) files.set(ino, [path, size]);
    } catch (error) {
      if (error.code !== 'ENOENT') throw error;
    }
  }
  return [...files.values()];
}

export const bytesIn = (folder) => filesIn(folder).reduce((sum, [, size]) => sum + size, 0);

// Changes a byte of the file: at a part of its length, 0 its first, 1 its last.
export function flip(path, place) {
  const bytes = readFileSync(path);
  bytes[Math.min(bytes.length - 1, Math.floor(bytes.length * place))] ^= 0x10;
  writeFileSync(path, bytes);
}

// A folder on a file system in memory that goes with the test `t`.
export function folderInMemory(t) {
  const folder = mkdtempSync('/dev/shm/hearth-e2e-');
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

// `hearth kv` for a disk folder.
export const kv = (folder, ...args) => run(['kv', ...args, '--set', `cache.tiers.disk.path=${folder}`]);

// Every file there is whole, and hangs on others that are. Returns what `kv verify` printed.
export async function intact(folder) {
  const { code, stdout, stderr } = await kv(folder, 'verify');
  assert.deepEqual({ code, stderr }, { code: 0, stderr: '' }, stdout);
  return stdout;
}
