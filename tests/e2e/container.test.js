// packaging/container: no image is built here, since that takes a daemon and registries. What its files say of each other
// is checked, what the image would hold is put together from this machine's packages and run as it would be, and the two
// hearths and the Redis server of compose.yaml run with their own configuration.

import { before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { accessSync, constants, cpSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { freePort } from './lib/peer.js';
import { build, smallModel } from './lib/models.js';
import { startRedis } from './lib/redis.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { Talk, cacheOf, saved } from './lib/store.js';

const top = fileURLToPath(new URL('../..', import.meta.url));
const folder = join(top, 'packaging/container');
const read = (name) => readFileSync(join(folder, name), 'utf8');

// [{word, rest}], lines that go on joined.
const instructions = (text) => text.replace(/^#.*\n/gm, '').replace(/\\\n/g, ' ').split('\n').filter((line) => line.trim() !== '')
  .map((line) => { const [, word, rest] = /^([A-Z]+) (.*)$/.exec(line); return { word, rest }; });

describe('Containerfile', () => {
  const file = instructions(read('Containerfile'));
  const all = (word) => file.filter((one) => one.word === word).map((one) => one.rest);

  test('what it copies and runs is there', () => {
    const copied = all('COPY').filter((rest) => !rest.startsWith('--from=')).flatMap((rest) => rest.split(' ').slice(0, -1));
    assert.ok(copied.includes('scripts/llama.sh') && copied.includes('.'), copied.join(' '));
    const ignored = readFileSync(join(top, '.dockerignore'), 'utf8').split('\n');
    for (const path of copied) {
      assert.ok(existsSync(join(top, path)), path);
      assert.ok(!ignored.includes(`/${path}`), path);
    }
    const runs = all('RUN');
    for (const line of runs) execFileSync('bash', ['-n', '-c', line]);
    const scripts = runs.flatMap((line) => line.match(/\b(scripts|packaging\/container)\/[a-z-]+\.sh/g) ?? []);
    assert.deepEqual(new Set(scripts), new Set(['scripts/packages.sh', 'scripts/llama.sh', 'scripts/page.sh', 'packaging/container/stage.sh']));
    for (const script of scripts) accessSync(join(top, script), constants.X_OK);
    const targets = runs.flatMap((line) => [...line.matchAll(/\bmake ([a-z-]+)/g)].map(([, target]) => target)).filter((target) => target !== 'curl');
    assert.deepEqual(targets, ['install']);
    execFileSync('make', ['-n', '-C', top, ...targets], { stdio: 'pipe' });
  });

  test('what it builds llama.cpp with before all else is copied is what make builds it with', () => {
    const flags = all('RUN').filter((line) => /llama\.sh|make install/.test(line)).map((line) => /^LLAMA_FLAGS="[^"]*"/.exec(line)[0]);
    assert.equal(flags.length, 2);
    assert.equal(flags[0], flags[1]);
    const script = readFileSync(join(top, 'scripts/llama.sh'), 'utf8');
    assert.ok(!/\$\(dirname "\$0"\)\/\.\.\/(?!patches)/.test(script), 'scripts/llama.sh reads nothing beside patches/');
  });
});

describe('the image', () => {
  const file = instructions(read('Containerfile'));
  const image = temporaryFolder(), root = join(image, 'root');
  const option = (word) => JSON.parse(file.findLast((one) => one.word === word).rest);
  before(() => {
    const installed = join(image, 'installed');
    execFileSync('cmake', ['--install', build, '--prefix', '/usr'], { env: { ...process.env, DESTDIR: installed }, stdio: 'pipe' });
    execFileSync(join(folder, 'stage.sh'), [installed, root]);
    // Debian's files: those of the listed packages, and no others.
    const packages = readFileSync(join(root, 'usr/share/doc/hearth/packages'), 'utf8').trim().split('\n');
    const paths = execFileSync('dpkg', ['-L', ...packages], { encoding: 'utf8' }).split('\n');
    for (const path of paths.filter((path) => /\.so(\.|$)/.test(path) && existsSync(path)))
      cpSync(path, join(root, path.replace(/^\/lib/, '/usr/lib')), { verbatimSymlinks: true, recursive: true });
    for (const name of ['lib', 'lib64']) execFileSync('ln', ['-s', `usr/${name}`, join(root, name)]);
    for (const path of ['proc', 'dev', 'sys', 'tmp', 'var/cache/hearth', 'var/lib/hearth']) mkdirSync(join(root, path), { recursive: true });
  });

  test('holds what the program needs, and runs without root on a root that cannot be written', async (t) => {
    const isRoot = process.getuid() === 0;
    const own = isRoot ? ['unshare', '--mount'] : ['unshare', '--map-root-user', '--mount'];
    if (spawnSync(own[0], [...own.slice(1), 'true']).status !== 0) return t.skip('this machine allows no mounts of its own: unshare fails');
    const user = isRoot ? file.findLast((one) => one.word === 'USER').rest : '0:0';
    const volumes = option('VOLUME');
    if (isRoot) for (const volume of volumes) execFileSync('chown', [user, join(root, volume)]);
    // Of sanitizers: the image does not hold their lists of what is known.
    const environment = [...file.findLast((one) => one.word === 'ENV').rest.split(' '), 'ASAN_OPTIONS=detect_leaks=0', 'TSAN_OPTIONS=report_bugs=0'];
    const command = [...option('ENTRYPOINT'), ...option('CMD')];
    const port = await freePort();
    const script = `set -e
      chroot=$(command -v chroot)
      cd '${root}'
      mount --bind . . && cd '${root}'
      for path in ${volumes.map((path) => path.slice(1)).join(' ')}; do mount --bind $path $path; done
      for path in proc dev sys; do mount --rbind /$path $path; done
      mount -o remount,bind,ro .
      exec env -i ${environment.join(' ')} "$chroot" --userspec=${user} . ${command.join(' ')} --set server.listen=127.0.0.1:${port}`;
    const server = await serve({ t, command: [...own, 'sh', '-c', script] });
    const { status, json } = await server.client.post('/v1/chat/completions', { messages: [{ role: 'user', content: 'Who are you? '.repeat(60) }], max_tokens: 4 });
    assert.equal(status, 200, JSON.stringify(json));
    await saved(server);
    await server.stop();
    assert.ok(readdirSync(join(root, 'var/cache/hearth/kv')).length > 1);
    assert.throws(() => readdirSync(join(root, 'var/lib/hearth/.cache')));
  });
});

describe('compose.yaml', () => {
  const compose = parse(read('compose.yaml'), { merge: true });
  const { redis, one, other } = compose.services;
  const mounts = (service) => Object.fromEntries(service.volumes.map((volume) => volume.split(':').slice(0, 2).reverse()));

  test('its parts fit together', () => {
    const file = instructions(read('Containerfile'));
    assert.equal(resolve(folder, one.build.context, one.build.dockerfile), join(folder, 'Containerfile'));
    assert.equal(resolve(folder, one.build.context), resolve(top));
    const config = parse(read('compose/hearth.yaml'));
    for (const service of [one, other]) {
      assert.equal(mounts(service)['/etc/hearth/hearth.yaml'], './compose/hearth.yaml');
      for (const volume of JSON.parse(file.findLast(({ word }) => word === 'VOLUME').rest)) assert.ok(mounts(service)[volume] in compose.volumes, volume);
      assert.match(service.ports[0], new RegExp(`^127\\.0\\.0\\.1:\\d+:${config.server.listen.split(':')[1]}$`));
      assert.ok(service.networks.some((name) => redis.networks.includes(name)));
    }
    assert.notEqual(one.ports[0], other.ports[0]);
    assert.notEqual(mounts(one)['/var/cache/hearth'], mounts(other)['/var/cache/hearth']);
    for (const name of redis.networks) assert.equal(compose.networks[name].internal, true);
    const { url, key_file: key } = config.cache.tiers.remote;
    assert.ok(new URL(url).hostname in compose.services, url);
    assert.equal(dirname(key), '/run/secrets');
    assert.ok(one.secrets.includes(basename(key)) && basename(key) in compose.secrets);
    assert.equal(mounts(redis)[redis.command.at(-1)], './compose/redis.conf');
  });

  test('its health check tells a server that is ready from one that is not', async (t) => {
    const [kind, ...check] = one.healthcheck.test;
    assert.equal(kind, 'CMD');
    const answers = { up: 200, starting: 503 };
    let now = 'up';
    const server = createServer((request, response) => { response.writeHead(request.url === '/health' ? answers[now] : 404).end(); });
    await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
    t.after(() => server.close());
    const port = server.address().port;
    const [program, ...words] = check.map((word) => word.replace('/8080', `/${port}`));
    const healthy = () => new Promise((done) => { execFile(program, words, (error) => done(error === null)); });
    assert.equal(await healthy(), true);
    now = 'starting';
    assert.equal(await healthy(), false);
    server.close();
    server.closeAllConnections();
    assert.equal(await healthy(), false);
  });

  test('a conversation goes from one hearth to the other, with the configuration as it is mounted', async (t) => {
    const port = await freePort();
    const server = await startRedis(t, join(folder, 'compose/redis.conf'), '--port', String(port), '--bind', '127.0.0.1');
    for (const [key, value] of [['maxmemory', String(4 * 2 ** 30)], ['maxmemory-policy', 'allkeys-lru'], ['lazyfree-lazy-eviction', 'yes'], ['save', ''], ['appendonly', 'no']])
      assert.equal(server.ask('CONFIG', 'GET', key).split('\n')[1] ?? '', value, key);
    const work = temporaryFolder(), key = join(work, 'redis-key'), config = join(work, 'hearth.yaml');
    writeFileSync(key, execFileSync('openssl', ['rand', '-hex', '32']));
    writeFileSync(config, read('compose/hearth.yaml').replace('redis://redis:6379', `redis://127.0.0.1:${port}`).replace('/run/secrets/redis-key', key));
    const { code, stdout, stderr } = await run(['config', 'check', config]);
    assert.equal(code, 0, stdout + stderr);

    // Tokens are dear to compute, so that fetching pays even beside everything else that a test machine does.
    const dear = smallModel('llama', { layers: 4, embd: 64, heads: 4, 'kv-heads': 4, 'head-dim': 64, ff: 8192, type: 'f16' });
    const models = { context_window: 4096, deterministic: true };
    const start = () => serve({ t, model: dear, models, args: ['--config', config] });
    const [first, second] = [await start(), await start()];
    const alone = await serve({ t, model: dear, models });
    const talk = new Talk(), told = new Talk();
    const stride = 256;
    for (const [turn, hearth] of [first, second, first].entries()) {
      const known = talk.tokens.length;
      const { text, computed } = await talk.say(hearth, 600, { seed: 1 });
      assert.equal(text, (await told.say(alone, 600, { seed: 1 })).text, `turn ${turn}`);
      await saved(hearth);
      assert.equal((await cacheOf(hearth)).uploads_dropped, 0);
      if (turn > 0) assert.equal(computed, known - (known - 1 - (known - 1) % stride) + 600, `turn ${turn}: what is new, and less than a block`);
    }
    assert.ok(server.keys().length > 0);
  });
});
