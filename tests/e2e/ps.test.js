// hearth ps and hearth stop: what a running server does, and having it unload a model.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { demo, smallModel } from './lib/models.js';
import { freePort } from './lib/peer.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { tokens, until, within } from './lib/wait.js';

const ps = async (server, ...more) => {
  const result = await run(['ps', '--server', server.url, ...more]);
  assert.deepEqual([result.code, result.stderr], [0, '']);
  return result.stdout;
};
const stop = (server, name, options) => run(['stop', name, '--server', server.url], options);

describe('a server with two models', () => {
  let server;
  before(async () => {
    const config = join(temporaryFolder(), 'hearth.yaml');
    const common = { threads: 1, n_seq_max: 1, idle_conversations: 'stay' };
    writeFileSync(config, `models:\n  one: ${JSON.stringify({ path: demo, ...common })}\n  endless: ${JSON.stringify({ path: smallModel('qwen3'), context_window: 4096, ...common })}\n`);
    server = await serve({ args: ['--config', config] });
  });
  after(() => server.stop());

  const begin = async (model) => {
    const stream = await server.client.stream('/v1/completions', { model, prompt: tokens(8, 1), max_tokens: 4000, ignore_eos: true });
    stream.whole = stream.collect();
    stream.whole.catch(() => {});
    return stream;
  };

  test('ps shows models, slots, the queue and the tiers, in 80 columns', async () => {
    const running = await begin('endless');
    await server.client.busy();
    const second = server.client.post('/v1/completions', { model: 'endless', prompt: tokens(8, 2), max_tokens: 1 });
    await until('one waits for its slot', async () => await server.client.metric('hearth_requests_waiting') === 1); // not for admission, which it leaves
    const shown = await ps(server);
    assert.match(shown, new RegExp(`^${server.url}: ok\n\nmodel +state +type +window +slots +busy +waiting\none +loaded +chat +\\d+ +1 +0 +0\nendless +loaded +chat +4096 +1 +1 +1\n`));
    assert.match(shown, /\nslot +model +state +prompt +cached +generated\n +0 +one +idle +- +\d+ +-\n +0 +endless +generate +8 +\d+ +\d+\n/);
    assert.match(shown, /\ntier +entries +used +quota +evicted\n/);
    assert.match(shown, /\ndisk +\d+ +[\d.]+ [kM]?B +[\d.]+ [MG]B +\d+\n/);
    for (const line of shown.split('\n')) assert.ok(line.length <= 80, line);
    const all = JSON.parse(await ps(server, '--json'));
    assert.deepEqual(Object.keys(all), ['health', 'models', 'slots', 'tiers', 'waiting']);
    assert.deepEqual([all.health.status, all.models.map((m) => m.id), all.slots.length, all.waiting], ['ok', ['one', 'endless'], 2, { one: 0, endless: 1 }]);
    assert.equal(all.tiers.disk.on, true);
    running.abort();
    assert.equal((await second).status, 200);
    await server.client.idle();
  });

  test('stop refuses a model in use, and says that it is', async () => {
    const running = await begin('endless');
    await server.client.busy();
    const { code, stdout, stderr } = await stop(server, 'endless');
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /^hearth stop: endless stays loaded while it has requests: .*active-streams\[1\]/);
    running.abort();
    await server.client.idle();
  });

  test('stop returns when the model is unloaded; a request loads it again', async () => {
    await until('the request has ended', async () => !/endless +\w+ +chat +\d+ +\d+ +1/.test(await ps(server)));
    let result;
    await until('nothing uses it', async () => { result = await stop(server, 'endless'); return result.code === 0; });
    assert.deepEqual([result.stdout, result.stderr], ['endless is unloaded\n', '']);
    assert.match(await ps(server), /\nendless +unloaded /);
    assert.doesNotMatch(await ps(server), /0 +endless +idle/);
    const again = await stop(server, 'endless');
    assert.deepEqual([again.code, again.stdout], [0, 'endless is not loaded\n']);
    await server.client.complete({ model: 'endless', prompt: tokens(8, 3), max_tokens: 1 });
    assert.match(await ps(server), /\nendless +loaded /);
  });

  test('stop names the models that there are', async () => {
    const { code, stderr } = await stop(server, 'endles');
    assert.equal(code, 1);
    assert.match(stderr, /^hearth stop: there is no model 'endles'; did you mean 'endless'\?; there is: one, endless\n$/);
  });
});

test('a key that may not see it all is told which grant it lacks', async (t) => {
  const keys = join(temporaryFolder(), 'keys');
  const [all, some] = ['all-of-it-0123456789', 'some-of-it-0123456789'];
  writeFileSync(keys, `${all} all\n${some} some models,status\n`, { mode: 0o600 });
  const server = await serve({ t, set: { 'server.api_keys_file': keys }, models: { n_seq_max: 1 }, access: { key: all } });
  const say = (command, key) => run([...command, '--server', server.url], { env: { HEARTH_API_KEY: key } });
  const without = await say(['ps'], undefined);
  assert.equal(without.code, 1);
  assert.match(without.stderr, /status 401.*HEARTH_API_KEY/);
  const lacks = await say(['ps'], some);
  assert.equal(lacks.code, 1);
  assert.match(lacks.stderr, /^hearth ps: \S+\/cache answers with status 403: .*'cache'/);
  const refused = await say(['stop', 'demo'], some);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /status 403: .*'admin'/);
  assert.equal((await say(['ps'], all)).code, 0);
  assert.deepEqual((await say(['stop', 'demo'], all)).stdout, 'demo is unloaded\n');
  await server.stop();
});

test('where no hearth answers, both say so', async (t) => {
  const url = `http://127.0.0.1:${await freePort()}`;
  const other = createServer((request, response) => { response.writeHead(404); response.end('no'); });
  other.listen(0, '127.0.0.1');
  await once(other, 'listening');
  t.after(() => other.close());
  for (const command of [['ps'], ['stop', 'demo']]) {
    const none = await within(30, 'it ends', run([...command, '--server', url]));
    assert.deepEqual([none.code, none.stdout], [1, '']);
    assert.match(none.stderr, /no server answers at http:\S+ \(.*\): start one with hearth serve, or name it with --server URL/);
    const wrong = await run([...command, '--server', `http://127.0.0.1:${other.address().port}`]);
    assert.equal(wrong.code, 1);
    assert.match(wrong.stderr, /answers with status 404/);
  }
});
