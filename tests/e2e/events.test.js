// Cache events: a router that reads nothing else knows what POST /cache/lookup says, over thousands of requests, lost
// messages, restarts of the server and of itself, with salts and adapters.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { mkmodel, smallModel } from './lib/models.js';
import { Router, freeEndpoint } from './lib/router.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { killed, saved } from './lib/store.js';
import { Random, tokens, until } from './lib/wait.js';

const tiny = smallModel('llama', { layers: 1, embd: 64, heads: 2, 'kv-heads': 1, 'head-dim': 32, ff: 64 });

// A server that publishes, with its endpoints; `model` etc. as serve() takes them.
async function publishing({ t, set, models, ...more }) {
  const [events, replay] = [await freeEndpoint(), await freeEndpoint()];
  const options = {
    t, model: tiny, ...more,
    models: { context_window: 2048, n_seq_max: 2, cache_min_tokens: 0, ...models },
    set: { 'cache.tiers.disk.path': temporaryFolder(), 'server.kv_events': events, 'server.kv_events_replay': replay, ...set },
  };
  return { server: await serve(options), options, events, replay };
}

// A router that reads the events of an endpoint until the test ends, well or not.
function follow(t, events, replay) {
  const router = new Router(events, replay);
  t.after(() => router.close());
  return router;
}

// Prompts that have much in common, drawn at random; some salted.
class Prompts {
  constructor(seed, longest) {
    this.random = new Random(seed);
    this.longest = longest;
    this.known = [];
  }

  draw() {
    const { random } = this;
    const base = this.known.length > 0 && random.below(5) > 0 ? random.pick(this.known) : { prompt: [] };
    const salt = base.salt ?? (base.prompt.length === 0 && random.below(4) === 0 ? `salt ${random.below(3)}` : undefined);
    const kept = base.prompt.slice(0, random.between(0, base.prompt.length));
    const more = random.between(1, Math.max(1, Math.min(120, this.longest - kept.length)));
    const drawn = { prompt: [...kept, ...tokens(more, 1 + random.below(1 << 30))].slice(0, this.longest), salt };
    this.known.push(drawn);
    if (this.known.length > 300) this.known.shift();
    return drawn;
  }
}

const say = ({ prompt, salt }) => ({ prompt, max_tokens: 1, temperature: 0, ...(salt ? { cache_salt: salt } : {}) });

// What a lookup says of each tier, and what the router knows of its medium, in whole blocks. The last token of a prompt
// is computed in any case.
async function differences(server, router, asked) {
  const wrong = [];
  for (const { prompt, salt } of asked) {
    const found = await server.client.ask('/cache/lookup', say({ prompt, salt }));
    const known = router.tokens(prompt.slice(0, -1), { model: server.model, salt, medium: 'DISK' });
    if (known !== found.disk - found.disk % 16) wrong.push({ n: prompt.length, salt, found: found.disk, known });
  }
  return wrong;
}

// The router has read all that there is to read.
async function agree(server, router, asked) {
  await saved(server);
  await until('the router knows what is stored', async () => {
    const wrong = await differences(server, router, asked);
    if (wrong.length === 0) return true;
    throw new Error(JSON.stringify(wrong.slice(0, 5)));
  }, { every: 100 });
}

test('thousands of requests, of which the store keeps some: the router knows which', async (t) => {
  const { server, events, replay } = await publishing({ t, set: { 'cache.tiers.disk.quota_mb': 8 } });
  const router = follow(t, events, replay);
  const prompts = new Prompts(1, 600);
  let asked = 0;
  for (let round = 0; round < 10; round++) {
    for (let i = 0; i < 100; i++, asked += 2)
      await Promise.all([1, 2].map(() => server.client.complete(say(prompts.draw()))));
    await agree(server, router, Array.from({ length: 40 }, () => prompts.random.pick(prompts.known)));
  }
  assert.equal(asked, 2000);
  assert.ok(router.removed > 500, `${router.removed} blocks were removed`);
  assert.equal(router.forgotten, 0);
  assert.deepEqual([...router.topics], [`kv@127.0.0.1:${server.port}@${server.model}`]);
  await server.stop();
});

test('messages that are lost: the router gets them again, or everything', async (t) => {
  const { server, events, replay } = await publishing({ t });
  const router = follow(t, events, replay), forgetful = follow(t, events);
  const prompts = new Prompts(2, 400);
  let lost = 0;
  router.lose = (seq) => seq % 7n === 3n && ++lost > 0;
  for (let i = 0; i < 150; i++) {
    await server.client.complete(say(prompts.draw()));
    if (i % 10 === 9) await saved(server); // so that there are many messages
  }
  router.lose = () => false;
  await server.client.complete(say(prompts.draw()));
  await agree(server, router, prompts.known);
  assert.ok(lost > 2 && router.replayed >= lost, `${lost} were lost, ${router.replayed} came again`);
  assert.equal(router.forgotten, 0);

  forgetful.lose = (seq) => seq === forgetful.next;
  await server.client.complete(say(prompts.draw()));
  await until('a message is lost', async () => {
    await server.client.complete(say(prompts.draw()));
    return forgetful.forgotten > 0;
  });
  forgetful.lose = () => false;
  assert.ok((await differences(server, forgetful, prompts.known)).length > 0);
  forgetful.subscriber.unsubscribe('kv@'); // it comes back
  forgetful.subscriber.subscribe('kv@');
  await agree(server, forgetful, prompts.known);
  await agree(server, router, prompts.known);
  await server.stop();
});

test('the server is killed and started again: what is on its disk is told, salts once a request brings them', async (t) => {
  const { server, options, events } = await publishing({ t });
  const router = follow(t, events);
  const prompts = new Prompts(3, 400);
  for (let i = 0; i < 100; i++) await server.client.complete(say(prompts.draw()));
  await agree(server, router, prompts.known);
  const stored = router.blocks.size;
  await killed(server);
  const again = await serve({ ...options, args: ['--port', String(server.port)] });
  const plain = prompts.known.filter(({ salt }) => !salt);
  await until('the router has begun anew', () => router.forgotten > 0); // until then it knows what was there before
  await agree(again, router, plain);
  assert.equal(router.forgotten, 1);
  assert.ok(router.blocks.size > 0 && router.blocks.size < stored);
  await agree(again, router, prompts.known); // a lookup brings a salt as well
  assert.equal(router.blocks.size, stored);

  const late = follow(t, events);
  await agree(again, late, prompts.known);
  await again.stop();
});

test('adapters: each set has a name of its own', async (t) => {
  const folder = temporaryFolder();
  const model = smallModel('llama');
  const adapters = ['one', 'two'].map((name, i) => {
    const path = join(folder, `${name}.gguf`);
    execFileSync(mkmodel, ['--lora-for', model, '--rank', '8', '--seed', String(i + 1), '-o', path], { stdio: 'ignore' });
    return path;
  });
  const lora = `[{path: ${adapters[0]}, scale: 1}, {path: ${adapters[1]}, scale: 0}]`;
  const { server, events } = await publishing({ t, model, models: { lora } });
  const router = follow(t, events);
  const prompt = tokens(100, 5);
  const sets = [[undefined, undefined], [[], undefined], [[{ id: 1, scale: 1 }], 'two'],
    [[{ id: 0, scale: 0.5 }, { id: 1, scale: 1 }], 'one:0.5+two']];
  for (const [i, [set]] of sets.entries())
    await server.client.complete({ prompt: [...prompt, ...tokens(20, 6 + i)], max_tokens: 1, lora: set });
  await saved(server);
  const known = (i, name) => router.tokens([...prompt, ...tokens(20, 6 + i)], { model: server.model, lora: name });
  await until('all are known', () => sets.every(([, name], i) => known(i, name) === 112));
  assert.equal(known(2, undefined), 96, 'the others share the prompt alone');
  await server.stop();
});

test('a model whose state cannot be cut: what is stored up to a state is known', async (t) => {
  const model = smallModel('qwen35');
  const { server, events } = await publishing({ t, model });
  const router = follow(t, events);
  const prompt = tokens(300, 9);
  await server.client.complete({ prompt, max_tokens: 4, ignore_eos: true });
  await saved(server);
  await until('it is known', () => router.tokens(prompt, { model: server.model }) === 288);
  const { disk } = await server.client.ask('/cache/lookup', { prompt: [...prompt, ...tokens(40, 3)] });
  assert.ok(disk > 0 && disk <= 304, `${disk} are stored`);
  await server.stop();
});

test('a chat: its rendered tokens lead to the server that has it', async (t) => {
  const { server, events } = await publishing({ t, model: undefined });
  const router = follow(t, events);
  const chat = { messages: [{ role: 'user', content: 'Who are you? '.repeat(20) }] };
  const { token_ids: prompt } = await server.client.ask('/v1/chat/completions/render', chat);
  const { prompt: text } = await server.client.ask('/apply-template', chat);
  const { tokens: same } = await server.client.ask('/tokenize', { content: text });
  assert.deepEqual(prompt, same);
  const rendered = await server.client.ask('/v1/completions/render', { prompt: ['Who?', prompt] });
  assert.equal(rendered.length, 2);
  assert.deepEqual(rendered[1], { token_ids: prompt });
  assert.equal(router.tokens(prompt, { model: 'demo' }), 0);
  await server.client.chat({ ...chat, max_tokens: 2 });
  await saved(server);
  await until('it is known', () => router.tokens(prompt, { model: 'demo' }) === prompt.length - prompt.length % 16);
  await server.stop();
});

test('each address that other machines reach is warned of', async (t) => {
  const port = (endpoint) => endpoint.split(':').at(-1);
  const [events, replay] = [await freeEndpoint(), `tcp://*:${port(await freeEndpoint())}`];
  const { server } = await publishing({ t, set: { 'server.kv_events': events, 'server.kv_events_replay': replay } });
  const warned = [...server.log.matchAll(/warn +events: whoever reaches this address reads the tokens of all prompts address=(\S+)/g)];
  assert.deepEqual(warned.map(([, address]) => address.replaceAll('"', '')), [replay]);
  await server.stop();
});

test('an address that is taken, and one that nobody may use', async (t) => {
  const { server, events } = await publishing({ t });
  const ends = async (...set) => run(['serve', '--model', tiny, '--port', '0', ...set.flatMap((s) => ['--set', s])]);
  const taken = await ends(`server.kv_events=${events}`);
  assert.notEqual(taken.code, 0);
  assert.match(taken.stderr, new RegExp(`server.kv_events: cannot listen on ${events}: Address already in use`));
  const nothing = await ends(`server.kv_events=${await freeEndpoint()}`, 'cache.tiers.disk.quota_mb=0');
  assert.notEqual(nothing.code, 0);
  assert.match(nothing.stderr, /server.kv_events: nothing is stored/);
  await server.stop();
});
