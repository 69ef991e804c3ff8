// Files of a model that change while it is loaded: they are mapped, so that whoever writes to them changes what is
// computed. Nothing that was computed of other bytes is reused, now or by a later server, and nothing that was stored
// before is lost.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, readFileSync, renameSync, rmSync, statSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { demo, mkmodel, projectorFor, smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { cacheOf, lettersOnly, saved } from './lib/store.js';
import { tokens, until, within } from './lib/wait.js';

const prompts = { before: tokens(180, 1), after: tokens(180, 2) };

// Writes into the file that is there: its inode stays.
const overwrite = (path, bytes) => writeFileSync(path, bytes, { flag: 'r+' });

const changes = {
  'overwritten in place': (path, other) => overwrite(path, other),
  'overwritten in place, with its former time': (path, other) => {
    const { atime, mtime, size } = statSync(path);
    overwrite(path, other);
    utimesSync(path, atime, mtime);
    assert.equal(statSync(path).size, size);
  },
  'replaced': (path, other) => {
    writeFileSync(`${path}.new`, other);
    renameSync(`${path}.new`, path);
  },
  'replaced by one of the same size and time': (path, other) => {
    const { atime, mtime } = statSync(path);
    writeFileSync(`${path}.new`, other);
    utimesSync(`${path}.new`, atime, mtime);
    renameSync(`${path}.new`, path);
  },
  'touched': (path) => utimesSync(path, new Date(), new Date()),
  'made readable to its owner alone': (path) => chmodSync(path, 0o600),
  'removed': (path) => rmSync(path),
};

const start = (t, model, disk, models = {}) => serve({
  t, model, set: { 'cache.tiers.disk.path': disk },
  models: { context_window: 1024, n_seq_max: 2, cache_min_tokens: 0, ...models },
});

async function ask({ client }, prompt, body = {}) {
  const { choices: [{ text }], timings } = await client.complete({ prompt, max_tokens: 12, ...lettersOnly, ...body });
  return { text, cached: timings.cache_n };
}

// What the model replies where nothing changes.
async function referenceOf(t, model) {
  const server = await start(t, model, temporaryFolder());
  const replies = {};
  for (const [name, prompt] of Object.entries(prompts)) replies[name] = (await ask(server, prompt, { cache_prompt: false })).text;
  await server.stop();
  return replies;
}

async function saysThatItIsOff(server, path) {
  const { not_stored: off } = await cacheOf(server);
  assert.deepEqual(off.map(({ model }) => model), [server.model]);
  assert.match(off[0].reason, /^\[path\] was (changed|removed) while it was in use: load the model again$/);
  await server.says(new RegExp(`off for this model .*${path} was (changed|removed)`));
}

// `stored`: how many tokens of the first prompt can be.
async function isReusedByNobody(t, [right, other], [how, change], stored = 179) {
  const path = join(temporaryFolder(), 'model.gguf'), disk = temporaryFolder();
  const expected = await (references[right] ??= referenceOf(t, right));
  copyFileSync(right, path);
  const server = await start(t, path, disk);
  assert.deepEqual(await ask(server, prompts.before), { text: expected.before, cached: 0 });
  await saved(server);
  const { not_stored: off, tiers: { disk: { entries } } } = await cacheOf(server);
  assert.deepEqual(off, []);
  change(path, readFileSync(other));
  assert.equal((await ask(server, prompts.before)).cached, 0, `${how}: what was in the cells is of the bytes before`);
  await saysThatItIsOff(server, path);
  await ask(server, prompts.after);
  putBack(path, right);
  assert.equal((await ask(server, prompts.after)).cached, 0, `${how}: what was in the cells is of the bytes in between`);
  await server.stop();
  const next = await start(t, path, disk);
  assert.equal((await cacheOf(next)).tiers.disk.entries, entries, `${how}: nothing was stored`);
  assert.deepEqual(await ask(next, prompts.after), { text: expected.after, cached: 0 }, how);
  assert.deepEqual(await ask(next, prompts.before), { text: expected.before, cached: stored }, `${how}: nothing was lost`);
  await next.stop();
}

const references = {};

// The file's own bytes, in the inode that is there.
function putBack(path, right) {
  writeFileSync(path, readFileSync(right), { flag: existsSync(path) ? 'r+' : 'w' });
}

describe('weights that change while they are mapped', () => {
  const both = (arch) => [7, 8].map((seed) => smallModel(arch, { layers: 2, seed }));
  const [llama] = both('llama');
  for (const [how, change] of Object.entries(changes)) {
    test(`${how}: never a token from other bytes`, (t) => isReusedByNobody(t, both('llama'), [how, change]));
  }

  test('nor where cells cannot be cut', async (t) => {
    await isReusedByNobody(t, both('qwen35'), Object.entries(changes)[0], 164);
  });

  test('cut short: the server ends, and the next one finds all that was stored', async (t) => {
    const path = join(temporaryFolder(), 'model.gguf'), disk = temporaryFolder();
    copyFileSync(llama, path);
    const server = await start(t, path, disk);
    const { text } = await ask(server, prompts.before);
    await saved(server);
    truncateSync(path, 4096);
    await assert.rejects(ask(server, prompts.after));
    const { signal } = await within(30, 'the server is gone', server.ended);
    assert.equal(signal, 'SIGBUS');
    putBack(path, llama);
    const next = await start(t, path, disk);
    assert.deepEqual(await ask(next, prompts.before), { text, cached: 179 });
    await next.stop();
  });

  test('what is computed of other bytes is still reused while they stay as they are, in memory alone', async (t) => {
    const path = join(temporaryFolder(), 'model.gguf'), disk = temporaryFolder();
    copyFileSync(llama, path);
    const server = await start(t, path, disk);
    await ask(server, prompts.before);
    await saved(server);
    const { tiers: { disk: { entries } } } = await cacheOf(server);
    changes.touched(path);
    const first = await ask(server, prompts.before);
    assert.equal(first.cached, 0);
    await until('the change has become old', async () => (await ask(server, prompts.before)).cached === 179);
    assert.equal((await ask(server, prompts.before)).text, first.text);
    assert.equal((await cacheOf(server)).tiers.disk.entries, entries);
    await server.client.ask('/models/unload', { model: server.model });
    await until('it is unloaded', async () => (await cacheOf(server)).resident.length === 0);
    assert.deepEqual(await ask(server, prompts.before), { text: first.text, cached: 179 }, 'it is stored again once it is loaded again');
    assert.deepEqual((await cacheOf(server)).not_stored, []);
    await server.stop();
  });
});

test('adapters and projectors are watched as well', async (t) => {
  const own = temporaryFolder();
  const [model, lora, mmproj] = ['model', 'lora', 'mmproj'].map((name) => join(own, `${name}.gguf`));
  copyFileSync(demo, model);
  execFileSync(mkmodel, ['--lora-for', model, '--rank', '4', '-o', lora], { stdio: 'ignore' });
  copyFileSync(projectorFor(demo, 'llava'), mmproj);
  for (const path of [lora, mmproj]) {
    const server = await start(t, model, temporaryFolder(), { mmproj, lora: JSON.stringify([{ path: lora, scale: 0 }]) });
    await ask(server, prompts.before);
    assert.deepEqual((await cacheOf(server)).not_stored, []);
    changes.touched(path);
    assert.equal((await ask(server, prompts.before)).cached, 0);
    await saysThatItIsOff(server, path);
    await server.stop();
  }
});
