// LoRA adapters over HTTP: whatever was computed under one set of adapters before, beside or after, a reply is that of a
// server that never saw anything but the request.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { mkmodel, smallModel } from './lib/models.js';
import { peer } from './lib/peer.js';
import { serve, temporaryFolder } from './lib/server.js';
import { tokens } from './lib/wait.js';

const model = smallModel('llama');
const folder = temporaryFolder();
const adapters = [1, 2].map((seed) => {
  const path = join(folder, `adapter-${seed}.gguf`);
  execFileSync(mkmodel, ['--lora-for', model, '--rank', '8', '--seed', String(seed), '-o', path], { stdio: 'ignore' });
  return path;
});
const configured = (first, second) => `[{path: ${adapters[0]}, scale: ${first}}, {path: ${adapters[1]}, scale: ${second}}]`;

// Sets of adapters as requests name them.
const sets = {
  none: [],
  first: [{ id: 0, scale: 1 }],
  second: [{ id: 1, scale: 1 }],
  both: [{ id: 0, scale: 1 }, { id: 1, scale: 0.5 }],
};
const names = Object.keys(sets);
// Two prompts that share more than half.
const shared = tokens(130, 40);
const prompts = [[...shared, ...tokens(60, 41)], [...shared, ...tokens(90, 42)]];

const start = (more, t) => serve({ t, model, models: { context_window: 512, lora: configured(0, 0), ...more } });
const body = (set, which) => ({ prompt: prompts[which], lora: sets[set], max_tokens: 12, ignore_eos: true, temperature: 0 });
const textOf = (reply) => reply.choices[0].text;
const cachedOf = (reply) => reply.usage.prompt_tokens_details.cached_tokens;

// What a server says that has been asked nothing else: {set: [text of each prompt]}.
async function cold(more) {
  const texts = {};
  for (const set of names) {
    texts[set] = [];
    for (const which of [0, 1]) {
      const server = await start(more);
      texts[set].push(textOf(await server.client.complete(body(set, which))));
      await server.stop();
    }
  }
  return texts;
}

for (const [how, more] of [['as usual', {}], ['deterministic', { deterministic: true }]]) {
  describe(`each set of adapters by itself, ${how}`, () => {
    let alone;
    before(async () => { alone = await cold(more); });

    test('each set says something else', () => {
      for (const which of [0, 1]) assert.equal(new Set(names.map((set) => alone[set][which])).size, names.length);
    });

    for (const slots of [1, 4]) {
      test(`requests that take turns on ${slots} slots are what they are alone, and find what is theirs`, async (t) => {
        const server = await start({ ...more, n_seq_max: slots }, t);
        for (let round = 0; round < 3; round++) {
          for (const which of [0, 1]) {
            for (const set of names) {
              const reply = await server.client.complete(body(set, which));
              assert.equal(textOf(reply), alone[set][which], `prompt ${which} under ${set}, round ${round}`);
              const cached = cachedOf(reply);
              assert.equal(cached, reply.timings.cache_n);
              if (round === 0 && which === 0) assert.equal(cached, 0, `nothing is there for ${set}`);
              else assert.ok(cached > 0, `${set} has been there before, prompt ${which}, round ${round}`);
            }
          }
        }
        await server.stop();
      });

      test(`requests at once on ${slots} slots are what they are alone`, async (t) => {
        const server = await start({ ...more, n_seq_max: slots, queue_depth: 16 }, t);
        const rows = [0, 1, 2].flatMap(() => [0, 1].flatMap((which) => names.map((set) => [set, which])));
        const replies = await Promise.all(rows.map(([set, which]) => server.client.complete(body(set, which))));
        replies.forEach((reply, i) => {
          const [set, which] = rows[i];
          assert.equal(textOf(reply), alone[set][which], `prompt ${which} under ${set}`);
        });
        await server.stop();
      });
    }

    test('what is stored under a set is found again after a restart by that set alone', async (t) => {
      const disk = { 'cache.tiers.disk.path': temporaryFolder() };
      const again = () => serve({ t, model, set: disk, models: { context_window: 512, lora: configured(0, 0), ...more } });
      let server = await again();
      await server.client.complete(body('first', 0));
      await server.stop();
      server = await again();
      for (const set of ['none', 'second', 'both', 'first']) {
        const reply = await server.client.complete(body(set, 0));
        assert.equal(textOf(reply), alone[set][0], set);
        if (set === 'first') assert.ok(cachedOf(reply) > 0, 'stored under it');
        else assert.equal(cachedOf(reply), 0, `nothing of another set's for ${set}`);
      }
      await server.stop();
    });
  });
}

describe('the configured scales', () => {
  let server;
  let alone;
  before(async () => {
    alone = await cold({});
    server = await start({ lora: configured(1, 0) });
  });
  after(() => server.stop());

  const unnamed = async () => {
    const { lora, ...rest } = body('none', 0);
    return server.client.complete(rest);
  };
  const listed = async () => {
    const { status, json } = await server.client.get('/lora-adapters');
    assert.equal(status, 200);
    return json.map(({ id, scale }) => ({ id, scale }));
  };

  test('hold for requests that name no adapters', async () => {
    assert.deepEqual(await listed(), [{ id: 0, scale: 1 }, { id: 1, scale: 0 }]);
    assert.equal(textOf(await unnamed()), alone.first[0]);
    const named = await server.client.complete(body('first', 0));
    assert.ok(cachedOf(named) > 0, 'the same set, named');
    assert.equal(textOf(await server.client.complete(body('none', 0))), alone.none[0], 'an empty list is without any');
  });

  test('are changed by POST /lora-adapters for requests to come', async () => {
    for (const set of ['second', 'both', 'none', 'first']) {
      assert.equal((await server.client.post('/lora-adapters', sets[set])).status, 200);
      const scales = await listed();
      for (const { id, scale } of scales) assert.equal(scale, sets[set].find((one) => one.id === id)?.scale ?? 0);
      for (let i = 0; i < 2; i++) assert.equal(textOf(await unnamed()), alone[set][0], `${set}, time ${i}`);
      assert.equal(textOf(await server.client.complete(body('second', 1))), alone.second[1], 'what is named counts more');
    }
  });

  test('are not changed by what is wrong', async () => {
    const before = await listed();
    for (const wrong of [[{ id: 2, scale: 1 }], [{ id: -1, scale: 1 }], [{ id: 0, scale: 'x' }], { id: 0, scale: 1 }, 'x',
      [{ scale: 1 }], [7]]) {
      await server.client.refused(400, '/lora-adapters', wrong);
    }
    assert.deepEqual(await listed(), before);
    for (const lora of [[{ id: 2, scale: 1 }], [{ id: 0, scale: 'x' }], 'first']) {
      const error = await server.client.refused(400, '/v1/completions', { prompt: 'a', lora });
      assert.match(error.param, /^lora/);
    }
  });

  test('a running request keeps the adapters that it began with', async () => {
    await server.client.ask('/lora-adapters', sets.first);
    const long = { ...body('none', 0), max_tokens: 200 };
    delete long.lora;
    const whole = textOf(await server.client.complete({ ...long, lora: sets.first, cache_prompt: false }));
    const stream = await server.client.stream('/v1/completions', { ...long, cache_prompt: false });
    let changed;
    const reply = await stream.collect((_, result) => {
      if (result.text) changed ??= server.client.ask('/lora-adapters', sets.second);
    });
    await changed;
    assert.equal(reply.text, whole);
  });
});

test('all routes take adapters: chat, Messages, Responses, native', async (t) => {
  const server = await start({}, t);
  const messages = [{ role: 'user', content: 'Tell me of the sea.' }];
  const routes = {
    '/v1/chat/completions': [{ messages, max_tokens: 12 }, (r) => r.choices[0].message.content],
    '/v1/messages': [{ messages, max_tokens: 12 }, (r) => r.content[0].text],
    '/v1/responses': [{ input: messages, max_output_tokens: 12 }, (r) => r.output[0].content[0].text],
    '/completion': [{ prompt: 'Tell me of the sea.', n_predict: 12 }, (r) => r.content],
  };
  for (const [path, [request, text]] of Object.entries(routes)) {
    const told = {};
    for (const round of [0, 1]) {
      for (const set of names) {
        const reply = text(await server.client.ask(path, { ...request, temperature: 0, lora: sets[set] }));
        if (round === 0) told[set] = reply;
        else assert.equal(reply, told[set], `${path} under ${set}`);
      }
    }
    assert.equal(new Set(Object.values(told)).size, names.length, path);
  }
  await server.stop();
});

// llama-server finds what it has computed by tokens alone, and goes on from another adapter's cells.
test('a prompt that was cached under another adapter: hearth is right where llama-server is not', async (t) => {
  const prompt = tokens(200, 50);
  const ask = (client, more) => client.ask('/completion', { prompt, n_predict: 12, temperature: 0, ignore_eos: true, ...more });
  const turns = async (client) => {
    await ask(client, { lora: sets.first });
    await ask(client, { prompt: tokens(200, 51), lora: sets.second });
    const warm = [await ask(client, { lora: sets.second }), await ask(client, {})];
    const right = [await ask(client, { lora: sets.second, cache_prompt: false }), await ask(client, { cache_prompt: false })];
    return { warm: warm.map((r) => r.content), right: right.map((r) => r.content) };
  };
  const server = await start({}, t);
  const ours = await turns(server.client);
  assert.deepEqual(ours.warm, ours.right);
  await server.stop();

  const other = await peer(t, model, ['-c', '512', '-np', '1', '--lora', adapters[0], '--lora', adapters[1],]);
  await other.ask('/lora-adapters', [{ id: 0, scale: 0 }, { id: 1, scale: 0 }]);
  const theirs = await turns(other);
  assert.deepEqual(ours.right, theirs.right, 'both compute the same');
  t.diagnostic(`llama-server differs in ${theirs.warm.filter((text, i) => text !== theirs.right[i]).length} of 2 replies`);
});
