// A disk that hangs, for reads and writes alike: nobody's stream stops, requests are answered, the server ends in its
// time, and when the disk works again all is there that was there before.
// Measures time: the largest gap of a stream.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { smallModel } from './lib/models.js';
import { serve, shim, temporaryFolder } from './lib/server.js';
import { Talk, cacheOf, intact, killed, lettersOnly, saved } from './lib/store.js';
import { tokens, until, within } from './lib/wait.js';

const model = smallModel('llama');
const GAP_MS = 250;
const SAVE_MS = 2000;
const FETCH_MS = 1000;

const hang = shim('hang');

// A disk of its own with a switch, and a server on it whose cells hold little more than one conversation.
class Disk {
  constructor() {
    this.folder = temporaryFolder();
    this.flag = join(temporaryFolder(), 'hangs');
  }

  hang() { writeFileSync(this.flag, ''); }

  work() { rmSync(this.flag, { force: true }); }

  serve(t, more = {}) {
    t.after(() => this.work());
    return serve({
      t, model,
      env: { LD_PRELOAD: hang, HANG_FOLDER: this.folder, HANG_WHILE: this.flag },
      models: { context_window: 600, n_seq_max: 2, max_decode_gap_ms: GAP_MS, ...more.models },
      set: {
        'cache.tiers.disk.path': this.folder, 'cache.evict_save_timeout_ms': SAVE_MS,
        'cache.fetch_timeout_ms': FETCH_MS, 'server.drain_timeout': 1, ...more.set,
      },
    });
  }
}

// The largest time between two pieces of a stream, in milliseconds, until `over` is done.
async function largestGap(server, prompt, max_tokens, during) {
  let last = null, largest = 0, n = 0;
  const events = server.client.stream('/v1/completions', { prompt, max_tokens, ...lettersOnly });
  let beside;
  for await (const event of (await events).events()) {
    assert.ok(!event.error, JSON.stringify(event));
    const now = performance.now();
    if (last !== null) largest = Math.max(largest, now - last);
    last = now;
    n += 1;
    if (n === 3) beside = during();
  }
  await beside;
  return { largest, n };
}

test('streams go on and requests are computed while the disk hangs; nothing that was stored is lost', async (t) => {
  const disk = new Disk();
  let server = await disk.serve(t);
  const talks = [1, 2, 3].map(() => new Talk());
  for (const [i, talk] of talks.entries()) await talk.say(server, 240, { seed: i + 1 });
  await saved(server);
  disk.hang();
  // Each of these has to have cells that others are in and whose replies are not stored yet; and the first comes back
  // to what is on the disk alone.
  const answers = [];
  const { largest, n } = await largestGap(server, tokens(40, 9), 500, async () => {
    for (const [i, talk] of talks.entries()) answers.push(await within(60, 'an answer', talk.copy().say(server, 20, { seed: 20 + i })));
  });
  assert.ok(n > 100, `${n} pieces`);
  assert.equal(answers.length, 3);
  assert.ok(largest <= 2 * GAP_MS, `the largest gap was ${largest.toFixed(0)} ms`);
  const { tiers } = await cacheOf(server);
  assert.match(tiers.disk.trouble ?? '', /does not answer|^$/);
  disk.work();
  await until('the disk is used again', async () => (await cacheOf(server)).tiers.disk.on);
  await killed(server);

  server = await disk.serve(t);
  for (const [i, talk] of talks.entries()) {
    const before = talk.tokens.length;
    const { cached } = await talk.say(server, 5, { seed: 40 + i });
    assert.ok(cached >= before - 1, `${cached} of ${before} tokens were found`);
  }
  await server.stop();
  await intact(disk.folder);
});

// What the server wants to write while the tier is set aside it does not queue: it is stored when the tier is back.
test('a reply that ended while the disk hung is stored when the disk works', async (t) => {
  const disk = new Disk();
  let server = await disk.serve(t);
  const [queued, late] = [new Talk(), new Talk()];
  disk.hang();
  await queued.say(server, 100, { seed: 1 });
  await until('the disk is set aside', async () => !(await cacheOf(server)).tiers.disk.on, { seconds: 60 });
  await late.say(server, 100, { seed: 2 });
  disk.work();
  await until('the disk is used again', async () => (await cacheOf(server)).tiers.disk.on);
  await until('both are stored', async () => (await cacheOf(server)).saves_finish >= 2);
  await saved(server);
  await killed(server);

  server = await disk.serve(t);
  for (const [i, talk] of [queued, late].entries()) {
    const before = talk.tokens.length;
    const { cached } = await talk.say(server, 5, { seed: 40 + i });
    assert.ok(cached >= before - 1, `${cached} of ${before} tokens were found`);
  }
  await server.stop();
});

test('the server ends in its time while the disk hangs', async (t) => {
  const disk = new Disk();
  const server = await disk.serve(t);
  const talk = new Talk();
  await talk.say(server, 100);
  await saved(server);
  disk.hang();
  await talk.say(server, 50);
  const began = performance.now();
  server.signal('SIGTERM');
  const { code } = await within(30, 'the end', server.ended);
  const took = performance.now() - began;
  assert.equal(code, 0, server.log);
  assert.ok(took < 1000 + 2 * SAVE_MS + 2000, `it took ${took.toFixed(0)} ms`);
});

test('a server starts and answers on a disk that hangs, and uses it when it works', async (t) => {
  const disk = new Disk();
  let server = await disk.serve(t);
  const talk = new Talk();
  await talk.say(server, 100);
  await saved(server);
  await server.stop();
  disk.hang();
  server = await disk.serve(t);
  await within(20, 'an answer', new Talk().say(server, 50, { seed: 7 }));
  disk.work();
  await until('the disk is used', async () => (await cacheOf(server)).tiers.disk.entries > 0);
  const { cached } = await talk.say(server, 5, { seed: 8 });
  assert.ok(cached > 100, `${cached} tokens were found`);
  await server.stop();
});
