// POST /api/pull and DELETE /api/delete of a running server, with the official client of Ollama and with raw requests,
// against a source that is slow, broken or hostile.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ollama } from 'ollama';
import { Mirror, sha256 } from './lib/mirror.js';
import { demo, smallModel } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { until, within } from './lib/wait.js';

const MIB = 1 << 20;
const PIECE = 8 * MIB; // what a journal enters at once
const model = readFileSync(demo);

// A whole model file of this size: bytes after the last tensor do no harm. Another seed is another file.
function modelOf(size, seed = 1) {
  const bytes = Buffer.alloc(size);
  model.copy(bytes);
  createHash('sha256').update(`${seed}`).digest().copy(bytes, size - 32);
  return bytes;
}

// A server that pulls from the mirror into a folder of its own: {server, into, ollama}.
async function serving(t, mirror, { into = join(temporaryFolder(), 'models'), env = {}, ...options } = {}) {
  const server = await serve({ t, env: mirror.environment(into, env), ...options });
  return { server, into, ollama: new Ollama({ host: server.url, headers: server.access ? { Authorization: `Bearer ${server.access.key}` } : {} }) };
}

// All lines of a pull.
async function pulling(server, body, options) {
  const [, response] = await server.client.send('POST', '/api/pull', { body, ...options });
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk;
  const lines = text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
  return { status: response.statusCode, lines, last: lines.at(-1) };
}

const pulled = async (server, ref) => {
  const { last } = await pulling(server, { model: ref });
  assert.equal(last.status, 'success', JSON.stringify(last));
  return last.model;
};

const remove = (server, name, options) => server.client.fetch('DELETE', '/api/delete', { body: { model: name }, ...options });
const tags = async (server) => (await server.client.get('/api/tags')).json.models.map(({ name }) => name).sort();
const ids = async (server) => (await server.client.get('/v1/models')).json.data.map(({ id }) => id).sort();
const hello = [{ role: 'user', content: 'My name is Ottilie.' }];

// What is there of a model, but for its lock.
const files = (into, name) => (existsSync(join(into, name)) ? readdirSync(join(into, name)).filter((file) => file !== 'lock').sort() : []);
const onlyHalves = (into, name) => assert.deepEqual(files(into, name).filter((file) => !/\.(part|journal)$/.test(file)), []);

// Holds back the bytes of files: `held()` waits for a request for them, `release()` answers all.
function hold(mirror, { after = 0 } = {}) {
  const waiting = [];
  let open = false, sent = 0;
  mirror.faults.answer = (request, response, file) => {
    if (open || request.headers.range === 'bytes=0-0' || sent++ < after) return false;
    waiting.push(() => mirror.send(request, response, file));
    request.socket.on('close', () => { waiting.gone = true; });
    return true;
  };
  return {
    held: () => until('bytes are asked for', () => waiting.length > 0),
    gone: () => until('the connection to the source is closed', () => waiting.gone),
    release: () => { open = true; waiting.forEach((go) => go()); },
  };
}

describe('a model that is pulled over the API', () => {
  test('is listed and served without a restart, and goes when it is deleted', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m-Q4_K_M.gguf': modelOf(20 * MIB) });
    const { server, into, ollama } = await serving(t, mirror);
    assert.deepEqual(await tags(server), ['demo:latest']);
    const parts = [];
    for await (const part of await ollama.pull({ model: 'hf.co/a/b:Q4_K_M', stream: true })) parts.push(part);
    const digest = sha256(mirror.files['a/b/m-Q4_K_M.gguf']);
    assert.deepEqual(parts[0], { status: 'pulling manifest' });
    assert.deepEqual(parts.find(({ completed }) => completed === 20 * MIB),
      { status: `pulling ${digest.slice(0, 12)}`, digest: `sha256:${digest}`, total: 20 * MIB, completed: 20 * MIB, file: 'm-Q4_K_M.gguf' });
    assert.deepEqual(parts.slice(-3).map(({ status }) => status), ['verifying sha256 digest', 'writing manifest', 'success']);
    assert.equal(parts.at(-1).model, 'm-Q4_K_M');
    assert.deepEqual(await tags(server), ['demo:latest', 'm-Q4_K_M:latest']);
    const { json: { data } } = await server.client.get('/v1/models');
    assert.deepEqual(data.map(({ id, status }) => [id, status.value]), [['demo', 'loaded'], ['m-Q4_K_M', 'unloaded']]);
    const reply = await ollama.chat({ model: 'm-Q4_K_M', messages: hello, options: { temperature: 0 } });
    assert.equal(reply.message.content, 'Nice to meet you, Ottilie.');
    await server.says(/loaded model=m-Q4_K_M/);
    assert.match((await server.client.get('/metrics')).text, /hearth_model_loads_total\{model="m-Q4_K_M"\} 1/);

    mirror.forget();
    assert.deepEqual((await pulling(server, { model: 'hf:a/b' })).lines.map(({ status }) => status), ['pulling manifest', 'writing manifest', 'success']);
    assert.deepEqual(mirror.fetched, [], 'it is there');
    assert.ok((await ollama.ps()).models.some(({ name }) => name === 'm-Q4_K_M:latest'), 'and stays loaded');

    await ollama.delete({ model: 'm-Q4_K_M:latest' });
    assert.deepEqual([await tags(server), await ids(server), existsSync(join(into, 'm-Q4_K_M'))], [['demo:latest'], ['demo'], false]);
    assert.doesNotMatch((await server.client.get('/metrics')).text, /m-Q4_K_M/);
    await server.says(/unloading model=m-Q4_K_M reason=removed/);
    const { status, json } = await remove(server, 'm-Q4_K_M');
    assert.deepEqual([status, json], [404, { error: "model 'm-Q4_K_M' not found" }]);
    assert.equal(await pulled(server, 'hf:a/b'), 'm-Q4_K_M');
    assert.equal((await server.client.chat({ model: 'm-Q4_K_M', max_tokens: 4, messages: hello })).model, 'm-Q4_K_M');
    await server.stop();

    const { server: again } = await serving(t, mirror, { into });
    assert.deepEqual(await ids(again), ['demo', 'm-Q4_K_M'], 'the next server has it as well');
    await again.client.chat({ model: 'm-Q4_K_M', max_tokens: 4, messages: hello });
    assert.equal((await remove(again, 'm-Q4_K_M')).status, 200);
    assert.deepEqual([await ids(again), existsSync(join(into, 'm-Q4_K_M'))], [['demo'], false]);
    await again.stop();
  });

  test('has the short name that it was pulled by, and is answered once at the end where no stream is wanted', async (t) => {
    const mirror = await Mirror.open(t, { 'tiny.gguf': modelOf(4 * MIB) });
    const names = join(temporaryFolder(), 'names');
    writeFileSync(names, `tiny:1b ${mirror.url}/files/tiny.gguf\nlocal ${demo}\n`);
    const { server, into, ollama } = await serving(t, mirror, { env: { HEARTH_NAMES: names } });
    assert.deepEqual(await ollama.pull({ model: 'tiny:1b' }), { status: 'success', model: 'tiny:1b' });
    assert.deepEqual(files(into, 'tiny:1b'), ['manifest.json', 'tiny.gguf']);
    assert.deepEqual(await tags(server), ['demo:latest', 'tiny:1b']);
    assert.equal((await ollama.chat({ model: 'tiny:1b', messages: hello, options: { temperature: 0 } })).message.content, 'Nice to meet you, Ottilie.');
    await assert.rejects(() => ollama.pull({ model: 'local' }), /files of this machine are not pulled by requests/);
    await assert.rejects(() => ollama.pull({ model: 'nobody' }), (error) => error.status_code === 404 && /nobody is not known/.test(error.message));
    await server.stop();
  });

  test('is served anew where its file has changed at the source', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': readFileSync(smallModel('llama')) });
    const { server, into } = await serving(t, mirror);
    await pulled(server, 'hf:a/b');
    const size = async () => (await server.client.get('/v1/models/m')).json.meta.n_params;
    const before = await size();
    await server.client.chat({ model: 'm', max_tokens: 2, messages: hello });
    mirror.files['a/b/m.gguf'] = model;
    const stream = await server.client.stream('/v1/chat/completions', { model: 'm', messages: hello, ignore_eos: true, max_tokens: 200000 });
    const busy = await pulling(server, { model: 'hf:a/b' });
    assert.match(busy.last.error, /the former ones are served until it is pulled once more.* in use by 1 request/);
    stream.abort();
    await server.client.idle();
    await until('the request has let go of it', async () => (await pulling(server, { model: 'hf:a/b' })).last.status === 'success');
    assert.notEqual(await size(), before);
    assert.deepEqual(await ids(server), ['demo', 'm']);
    assert.ok(readFileSync(join(into, 'm', 'm.gguf')).equals(model));
    assert.equal((await server.client.chat({ model: 'm', max_tokens: 20, messages: hello })).choices[0].message.content, 'Nice to meet you, Ottilie.');
    await server.stop();
  });

  test('that llama.cpp does not read is an error, and is not listed', async (t) => {
    const bytes = Buffer.from(model);
    bytes.write('qwenX', bytes.indexOf('general.architecture') + 32, 'latin1');
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': bytes });
    const { server } = await serving(t, mirror);
    const { last } = await pulling(server, { model: 'hf:a/b' });
    assert.equal(typeof last.error, 'string', JSON.stringify(last));
    assert.deepEqual(await ids(server), ['demo']);
    assert.equal((await remove(server, 'm')).status, 200, 'its files can be removed');
    await server.stop();
  });
});

describe('what is refused', () => {
  test('files of this machine, addresses that are not public, and bodies that name nothing', async (t) => {
    const mirror = await Mirror.open(t, { 'm.gguf': model, 'a/b/m.gguf': model });
    const { server, into } = await serving(t, mirror);
    const port = new URL(mirror.url).port;
    const refused = [
      [demo, 400, /files of this machine/], ['./demo.gguf', 400, /files of this machine/], ['demo.gguf', 400, /files of this machine/],
      [`file://${demo}`, 400, /files of this machine/], ['../../etc/passwd', 400, /files of this machine/],
      [`http://127.0.0.1:${port}/files/m.gguf`, 400, /not public/], [`http://localhost:${port}/files/m.gguf`, 400, /not public/],
      [`http://0.0.0.0:${port}/files/m.gguf`, 400, /not public/], [`http://[::1]:${port}/files/m.gguf`, 400, /not public/],
      [`https://127.0.0.1:${port}/files/m.gguf`, 400, /not public/], [`http://2130706433:${port}/files/m.gguf`, 400, /not public|not encrypted/],
      ['http://169.254.169.254/latest/m.gguf', 400, /not encrypted/], ['ftp://127.0.0.1/m.gguf', 400, /files of this machine/],
      ['http://user:secret@127.0.0.1/m.gguf', 400, /user's name/], ['hf:a', 400, /names no repository/], ['nothing', 404, /is not known/],
      ['x'.repeat(5000), 400, /1 to 4096 bytes/],
    ];
    for (const [ref, status, says] of refused) {
      const reply = await server.client.post('/api/pull', { model: ref, stream: false, insecure: false });
      assert.equal(reply.status, status, `${ref}: ${reply.text}`);
      assert.match(reply.json.error, says, ref);
      assert.match((await pulling(server, { model: ref })).last.error, says, ref);
    }
    const far = await pulling(server, { model: 'http://169.254.169.254/latest/m.gguf', insecure: true });
    assert.match(far.last.error, /not public/);
    for (const body of [{}, { model: '' }, { model: 7 }, { model: 'hf:a/b', stream: 'yes' }, { model: 'hf:a/b', insecure: 1 }, '[']) {
      assert.equal((await server.client.post('/api/pull', body)).status, 400);
    }
    assert.deepEqual(mirror.requests, [], 'the mirror was asked for nothing');
    assert.deepEqual(existsSync(into) ? readdirSync(into) : [], []);
    const none = await pulling(server, { model: 'hf:c/d' });
    assert.deepEqual([none.status, none.lines[0]], [200, { status: 'pulling manifest' }]);
    assert.match(none.last.error, /may not be read, or is not there \(401\)/);
    assert.match((await server.client.post('/api/pull', { model: 'hf:c/d', stream: false })).json.error, /may not be read/);
    await server.stop();
  });

  test('a key without the grant admin; and everything where pulled models are not served', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(4 * MIB) });
    const admin = 'admin-0123456789abcdef0123456789abcdef', user = 'user-0123456789abcdef0123456789abcdef';
    const keys = join(temporaryFolder(), 'keys');
    writeFileSync(keys, `${admin} chief\n${user} user chat,completions,embeddings,models,status,cache\n`, { mode: 0o600 });
    const { server, into } = await serving(t, mirror, { set: { 'server.api_keys_file': keys }, access: { key: admin } });
    const other = server.client.withKey(user);
    for (const [method, path] of [['POST', '/api/pull'], ['DELETE', '/api/delete']]) {
      const { status, json } = await other.fetch(method, path, { body: { model: 'hf:a/b' } });
      assert.equal(status, 403);
      assert.match(json.error, /admin/);
      assert.equal((await server.client.withKey(undefined).fetch(method, path, { body: { model: 'hf:a/b' } })).status, 401);
    }
    assert.deepEqual(mirror.requests, []);
    await pulled(server, 'hf:a/b');
    assert.deepEqual((await other.get('/api/tags')).json.models.map(({ name }) => name), ['demo:latest', 'm:latest']);
    assert.equal((await remove(server, 'm')).status, 200);
    await server.stop();
    const { server: closed } = await serving(t, mirror, { into, set: { 'server.serve_pulled': false } });
    assert.match((await closed.client.post('/api/pull', { model: 'hf:a/b' })).json.error, /server\.serve_pulled is false/);
    assert.match((await remove(closed, 'm')).json.error, /server\.serve_pulled is false/);
    await closed.stop();
  });

  test('removing what the configuration names, or what one of its models uses', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/own.gguf': modelOf(4 * MIB), 'a/b/used.gguf': modelOf(4 * MIB, 2), 'a/b/section.gguf': modelOf(4 * MIB, 3) });
    const { server: first, into } = await serving(t, mirror);
    for (const name of ['own', 'used', 'section']) assert.equal(await pulled(first, `hf:a/b:${name}.gguf`), name);
    await first.stop();
    const link = join(temporaryFolder(), 'link.gguf');
    symlinkSync(join(into, 'used', 'used.gguf'), link);
    const config = join(temporaryFolder(), 'hearth.yaml');
    writeFileSync(config, `models:\n  own: {path: ${demo}, load: demand, aliases: [nick]}\n  other: {path: ${link}, load: demand}\n  section: {load: demand}\n`);
    const { server } = await serving(t, mirror, { into, args: ['--config', config] });
    for (const [name, says] of [['own', /'own' is the configuration's/], ['own:latest', /'own' is the configuration's/], ['other', /'other' is the configuration's/],
      ['section', /'section' is the configuration's/], ['used', /models\.other\.path of the configuration is a file of it/]]) {
      const { status, json } = await remove(server, name);
      assert.equal(status, 400, JSON.stringify(json));
      assert.match(json.error, says);
    }
    for (const name of ['../models/used', 'used/', '.', '..', 'nick', 'nobody']) assert.ok([400, 404].includes((await remove(server, name)).status), name);
    for (const name of ['own', 'used', 'section']) assert.deepEqual(files(into, name), ['manifest.json', `${name}.gguf`]);
    mirror.forget();
    for (const name of ['own', 'section']) assert.match((await pulling(server, { model: `hf:a/b:${name}.gguf` })).last.error, /is the configuration's/);
    assert.deepEqual(mirror.fetched, [], 'it is known before anything is fetched');
    assert.deepEqual(await ids(server), ['other', 'own', 'section', 'used']);
    await server.stop();
  });

  test('a name that is an alias: before anything is fetched, and at the next start', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/nick.gguf': modelOf(4 * MIB) });
    const into = join(temporaryFolder(), 'models'), config = join(temporaryFolder(), 'hearth.yaml');
    writeFileSync(config, `models:\n  own: {path: ${demo}, load: demand, aliases: [other, nick]}\n`);
    const { server } = await serving(t, mirror, { into, args: ['--config', config] });
    assert.match((await pulling(server, { model: 'hf:a/b' })).last.error, /'nick' is an alias of the configuration's model 'own' \(models\.own\.aliases\)/);
    assert.deepEqual(mirror.fetched, []);
    await server.stop();
    assert.equal((await run(['pull', 'hf:a/b'], { env: mirror.environment(into) })).code, 0);
    const { server: again } = await serving(t, mirror, { into, args: ['--config', config] });
    assert.deepEqual(await ids(again), ['own']);
    await again.says(/left out: it was pulled, and its name is another model's alias model=nick alias_of=own/);
    await again.stop();
  });

  test('removing a model while it is pulled anew', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(4 * MIB) });
    const { server, into } = await serving(t, mirror);
    await pulled(server, 'hf:a/b');
    mirror.files['a/b/m.gguf'] = modelOf(4 * MIB, 2);
    const holding = hold(mirror);
    const pull = pulled(server, 'hf:a/b');
    await holding.held();
    const { status, json } = await remove(server, 'm');
    assert.deepEqual([status, /model 'm' is being pulled or removed/.test(json.error)], [429, true], json.error);
    assert.deepEqual(await ids(server), ['demo', 'm']);
    holding.release();
    await pull;
    assert.ok(readFileSync(join(into, 'm', 'm.gguf')).equals(mirror.files['a/b/m.gguf']));
    assert.equal((await remove(server, 'm')).status, 200);
    await server.stop();
  });

  test('one model more than can be added: the former one of its name is served on', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': readFileSync(smallModel('llama')) });
    const { server, into } = await serving(t, mirror);
    await pulled(server, 'hf:a/b');
    // Its files are younger than whatever was read: each pull takes it anew.
    const manifest = join(into, 'm', 'manifest.json');
    writeFileSync(manifest, JSON.stringify({ ...JSON.parse(readFileSync(manifest, 'utf8')), pulled_ms: 1e15 }));
    for (let n = 1; n < 256; n++) await pulled(server, 'hf:a/b');
    assert.match((await pulling(server, { model: 'hf:a/b' })).last.error, /the former ones are served until hearth is started anew: 256 models were added already/);
    assert.deepEqual(await ids(server), ['demo', 'm']);
    await server.client.chat({ model: 'm', max_tokens: 2, messages: hello });
    await server.stop();
  });

  test('removing a model while it is in use', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(4 * MIB) });
    const { server, into } = await serving(t, mirror);
    await pulled(server, 'hf:a/b');
    const stream = await server.client.stream('/v1/chat/completions', { model: 'm', messages: hello, ignore_eos: true, max_tokens: 200000 });
    const { status, json } = await remove(server, 'm');
    assert.deepEqual([status, /model 'm' is in use by 1 request/.test(json.error)], [429, true], json.error);
    assert.deepEqual(files(into, 'm'), ['m.gguf', 'manifest.json']);
    stream.abort();
    await until('it can be removed', async () => (await remove(server, 'm')).status === 200);
    assert.deepEqual([await ids(server), existsSync(join(into, 'm'))], [['demo'], false]);
    await server.stop();
  });

  test('more pulls at once than there may be', async (t) => {
    const names = ['a', 'b', 'c', 'd', 'e'];
    const mirror = await Mirror.open(t, Object.fromEntries(names.map((name, i) => [`a/${name}/${name}.gguf`, modelOf(4 * MIB, i)])));
    const { server } = await serving(t, mirror);
    const holding = hold(mirror);
    const four = names.slice(0, 4).map((name) => pulling(server, { model: `hf:a/${name}` }));
    await until('four are under way', () => new Set(mirror.fetched.filter(({ range }) => range !== 'bytes=0-0').map(({ path }) => path)).size === 4);
    const fifth = await server.client.post('/api/pull', { model: 'hf:a/e' });
    assert.deepEqual([fifth.status, fifth.headers['retry-after']], [429, '1']);
    assert.match(fifth.json.error, /4 models are being pulled/);
    holding.release();
    for (const { last } of await Promise.all(four)) assert.equal(last.status, 'success');
    await pulled(server, 'hf:a/e');
    assert.deepEqual(await ids(server), ['a', 'b', 'c', 'd', 'demo', 'e']);
    await server.stop();
  });
});

describe('clients that come and go', () => {
  test('two that want the same share one pull; one that leaves costs the other nothing', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(4 * MIB) });
    const { server } = await serving(t, mirror);
    const holding = hold(mirror);
    const leaving = new AbortController();
    const first = pulling(server, { model: 'hf:a/b' }, { signal: leaving.signal }).catch((error) => error);
    await holding.held();
    const once = pulling(server, { model: 'hf:a/b', stream: false });
    // News are repeated after five seconds in which there are none: the third hears of what it has joined.
    const [, streamed] = await server.client.send('POST', '/api/pull', { body: { model: 'hf:a/b' } });
    leaving.abort();
    assert.ok((await first) instanceof Error);
    await until('the log says that it has left', () => /path=\/api\/pull status=499/.test(server.log));
    holding.release();
    assert.equal((await once).last.status, 'success');
    let text = '';
    for await (const chunk of streamed) text += chunk;
    assert.match(text, /^\{"status":"pulling .*\n\{"status":"success","model":"m"\}\n$/s);
    assert.equal(mirror.fetched.filter(({ range }) => range !== 'bytes=0-0').length, 1, 'it was fetched once');
    await server.stop();
  });

  test('the last one that leaves ends the pull, and the next goes on where it was', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(40 * MIB) });
    const { server, into } = await serving(t, mirror);
    // The first range comes but for its end, the others not at all.
    mirror.faults.answer = (request, response, file) => {
      if (request.headers.range === 'bytes=0-0') return false;
      mirror.send(request, response, file, { hang: request.headers.range.startsWith('bytes=0-') ? PIECE + MIB : 0 });
      return true;
    };
    const leaving = new AbortController();
    const first = pulling(server, { model: 'hf:a/b' }, { signal: leaving.signal }).catch((error) => error);
    await until('a piece is entered', () => files(into, 'm').includes('m.gguf.journal') && /done 0/.test(readFileSync(join(into, 'm', 'm.gguf.journal'), 'utf8')));
    leaving.abort();
    await first;
    // Somebody who comes at once, while it is still ending, is served as well.
    mirror.faults.answer = undefined;
    mirror.forget();
    assert.equal(await pulled(server, 'hf:a/b'), 'm');
    assert.ok(mirror.sent <= 32 * MIB + 1, `${mirror.sent} bytes were sent again`);
    assert.ok(readFileSync(join(into, 'm', 'm.gguf')).equals(mirror.files['a/b/m.gguf']));
    await server.stop();
  });

  test('what is left of a pull can be removed, and no connection to the source stays open', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(20 * MIB) });
    const { server, into } = await serving(t, mirror);
    const holding = hold(mirror);
    const leaving = new AbortController();
    const first = pulling(server, { model: 'hf:a/b' }, { signal: leaving.signal }).catch((error) => error);
    await holding.held();
    assert.match((await remove(server, 'm')).json.error, /is being pulled or removed/);
    leaving.abort();
    await first;
    await holding.gone();
    onlyHalves(into, 'm');
    await until('it can be removed', async () => (await remove(server, 'm')).status === 200);
    assert.equal(existsSync(join(into, 'm')), false);
    await server.stop();
  });
});

describe('SIGTERM', () => {
  for (const [when, fault] of [
    ['while bytes are awaited', (request) => request.headers.range !== 'bytes=0-0'],
    ['while the size is asked for', () => true],
  ])
    test(`${when}: the pull ends at once, its client hears of it, and it is resumed`, async (t) => {
      const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(20 * MIB) });
      const { server, into } = await serving(t, mirror);
      let asked = false;
      mirror.faults.answer = (request) => { asked = asked || fault(request); return fault(request); };
      const client = pulling(server, { model: 'hf:a/b' });
      await until('the source does not answer', () => asked);
      const begin = performance.now();
      await server.stop();
      assert.ok(performance.now() - begin < 8000, 'long before the connection would count as stalled');
      assert.match((await client).last.error, /the server is stopping: what was fetched stays/);
      onlyHalves(into, 'm');
      mirror.faults.answer = undefined;
      const { server: again } = await serving(t, mirror, { into });
      assert.deepEqual(await ids(again), ['demo']);
      await pulled(again, 'hf:a/b');
      assert.ok(readFileSync(join(into, 'm', 'm.gguf')).equals(mirror.files['a/b/m.gguf']));
      await again.stop();
    });

  test('after half of the file: the next server fetches the other half', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(40 * MIB) });
    const { server, into } = await serving(t, mirror);
    mirror.faults.answer = (request, response, file) => {
      if (request.headers.range === 'bytes=0-0') return false;
      mirror.send(request, response, file, { hang: request.headers.range.startsWith('bytes=0-') ? PIECE + MIB : 0 });
      return true;
    };
    const client = pulling(server, { model: 'hf:a/b', stream: false });
    await until('a piece is entered', () => files(into, 'm').includes('m.gguf.journal') && /done 0/.test(readFileSync(join(into, 'm', 'm.gguf.journal'), 'utf8')));
    await server.stop();
    assert.equal((await client).status, 503);
    onlyHalves(into, 'm');
    mirror.faults.answer = undefined;
    mirror.forget();
    const { server: again } = await serving(t, mirror, { into });
    await pulled(again, 'hf:a/b');
    assert.ok(mirror.sent <= 32 * MIB + 1, `${mirror.sent} bytes were sent again`);
    await again.stop();
  });
});

describe('a source that is broken', () => {
  test('is told of in the last line, and nothing of it is listed or kept under its name', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(20 * MIB) });
    const { server, into } = await serving(t, mirror);
    const lies = [
      [/another SHA-256 than its source says/, { listed: { oid: '0'.repeat(64) } }],
      [/contradicts itself: m\.gguf has 5 bytes/, { listed: { size: 5 } }],
      [/^what came from http:\/\/127\.0\.0\.1:\d+\/a\/b\/resolve\/main\/m\.gguf is no whole model: \[path\] is not a GGUF file/, { bytes: Buffer.from('<html>Not found</html>') }],
      [/the disk of the models folder has .* free, and .* are needed/, { listed: { size: 2 ** 50 },
        answer: (request, response, { etag }) => {
          response.writeHead(206, { ETag: etag, 'Content-Range': `bytes 0-0/${2 ** 50}`, 'Content-Length': 1 });
          response.end('G');
          return true;
        } }],
      [/sends another range than it was asked for/, { answer: (request, response, { bytes, etag }) => {
        if (request.headers.range === 'bytes=0-0') return false;
        response.writeHead(206, { ETag: etag, 'Content-Range': `bytes 1-2/${bytes.length}`, 'Content-Length': 2 });
        response.end('GG');
        return true;
      } }],
    ];
    const whole = mirror.files['a/b/m.gguf'];
    for (const [says, { listed, bytes, answer }] of lies) {
      mirror.listed = listed ? { 'a/b/m.gguf': listed } : {};
      mirror.files['a/b/m.gguf'] = bytes ?? whole;
      mirror.faults.answer = answer;
      const { last } = await pulling(server, { model: 'hf:a/b' });
      assert.match(last.error ?? last.status, says);
      onlyHalves(into, 'm');
      const once = await server.client.post('/api/pull', { model: 'hf:a/b', stream: false });
      assert.equal(once.status, /is no whole model/.test(once.json.error) ? 400 : 500, once.text);
      assert.match(once.json.error, says);
    }
    assert.deepEqual(await ids(server), ['demo']);
    Object.assign(mirror, { listed: {}, faults: {} });
    mirror.files['a/b/m.gguf'] = whole;
    await pulled(server, 'hf:a/b');
    await server.stop();
  });

  test('that breaks off now and then is asked again; other requests go on meanwhile', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(20 * MIB) });
    const { server, into } = await serving(t, mirror);
    let cuts = 0;
    mirror.faults.answer = (request, response, file) => {
      if (request.headers.range === 'bytes=0-0' || cuts++ >= 2) return false;
      mirror.send(request, response, file, { cut: MIB });
      return true;
    };
    const pull = pulled(server, 'hf:a/b');
    assert.equal((await server.client.chat({ model: 'demo', max_tokens: 20, messages: hello })).choices[0].message.content, 'Nice to meet you, Ottilie.');
    assert.equal(await pull, 'm');
    assert.ok(readFileSync(join(into, 'm', 'm.gguf')).equals(mirror.files['a/b/m.gguf']));
    await server.stop();
  });

  test('a models folder that cannot be written is named in the log\'s place, not in the answer', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(4 * MIB) });
    const into = join(temporaryFolder(), 'models');
    mkdirSync(into);
    const { server } = await serving(t, mirror, { into: join(into, 'file') });
    writeFileSync(join(into, 'file'), '');
    const { last } = await pulling(server, { model: 'hf:a/b' });
    assert.match(last.error, /cannot use \[path\]|cannot create the models folder \[path\]/);
    await server.stop();
  });
});

test('the command line and the server work on the same folder', async (t) => {
  const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(4 * MIB), 'c/d/n.gguf': modelOf(4 * MIB, 2) });
  const { server, into } = await serving(t, mirror);
  const env = mirror.environment(into);
  await pulled(server, 'hf:a/b');
  assert.match((await run(['models'], { env })).stdout, /^m +4\.19 MB .* hf:a\/b$/m);
  assert.equal((await run(['pull', 'hf:c/d'], { env })).code, 0);
  assert.deepEqual(await ids(server), ['demo', 'm'], 'a running server does not look for it');
  assert.equal(await pulled(server, 'hf:c/d'), 'n', 'until it is asked');
  assert.deepEqual(await ids(server), ['demo', 'm', 'n']);
  assert.equal((await remove(server, 'n')).status, 200);
  assert.equal((await run(['rm', 'm'], { env })).code, 0);
  assert.deepEqual([(await remove(server, 'm')).status, await ids(server)], [200, ['demo']], 'its files are gone already');
  assert.equal((await remove(server, 'm')).status, 404);
  await within(30, 'the server stops', server.stop());
});
