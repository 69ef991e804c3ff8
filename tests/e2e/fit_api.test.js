// POST /models/fit: whether a model that is not here yet fits, from the headers of its files alone, as `hearth fit` says
// it of the whole file.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, readSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Mirror, sha256 } from './lib/mirror.js';
import { demo, mkmodel, projectorFor, smallModel } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { until } from './lib/wait.js';

const MIB = 2 ** 20, GIB = 2 ** 30;
const folder = temporaryFolder();
const model = readFileSync(demo);

const shapes = {
  // Of published models, without numbers.
  eight: '--arch qwen3 --layers 36 --embd 4096 --heads 32 --kv-heads 8 --head-dim 128 --ff 12288',
  huge: '--arch qwen3moe --layers 94 --embd 4096 --heads 64 --kv-heads 4 --head-dim 128 --ff 1536 --experts 128',
};
const path = (name) => join(folder, `${name}.gguf`);

before(() => {
  for (const [name, options] of Object.entries(shapes))
    execFileSync(mkmodel, [...options.split(' '), '--vocab', demo, '--ctx', '40960', '--type', 'q8_0', '--hollow', '-o', path(name)], { stdio: 'ignore' });
});
after(() => rmSync(folder, { recursive: true }));

// A file that is too large for memory.
function large(name) {
  return {
    length: statSync(path(name)).size, digest: sha256(name),
    subarray(first, end) {
      const bytes = Buffer.alloc(Math.min(end, this.length) - first), file = openSync(path(name));
      readSync(file, bytes, 0, bytes.length, first);
      closeSync(file);
      return bytes;
    },
  };
}

async function serving(t, mirror, { env = {}, ...options } = {}) {
  const into = join(temporaryFolder(), 'models'), temporary = join(temporaryFolder(), 'temporary');
  mkdirSync(temporary);
  const server = await serve({ t, env: mirror.environment(into, { TMPDIR: temporary, ...env }), ...options });
  const left = () => readdirSync(temporary).filter((name) => name.startsWith('hearth-preview'));
  return { server, into, left, fit: (body, ...rest) => server.client.post('/models/fit', body, ...rest) };
}

describe('a model that is not here yet', () => {
  for (const name of Object.keys(shapes))
    test(`${name}: it is as hearth fit says, and only its header is fetched`, async (t) => {
      const mirror = await Mirror.open(t, { [`a/b/${name}.gguf`]: large(name) });
      const { server, into, left, fit } = await serving(t, mirror);
      const { status, json, text } = await fit({ model: 'hf:a/b' });
      assert.equal(status, 200, text);
      const size = statSync(path(name)).size;
      assert.deepEqual([json.model, json.size_bytes, json.files], [name, size, [{ name: `${name}.gguf`, size_bytes: size }]]);
      const { stdout } = await run(['fit', path(name), '--json', '--memory', `${json.free_bytes / GIB}`]);
      const told = JSON.parse(stdout), choice = told.recommended ?? told.choices.at(-1);
      assert.deepEqual([json.fits, json.reason], [told.recommended !== null, told.reason]);
      assert.deepEqual([json.context_window, json.n_seq_max, json.memory_bytes], [choice.context_window, choice.n_seq_max, choice.memory_bytes]);
      if (name === 'huge' && json.free_bytes < 200 * GIB) assert.match(json.reason, /weights/);
      assert.ok(mirror.sent <= 4 * MIB + 1, `${mirror.sent} bytes were sent`);
      assert.deepEqual([left(), existsSync(into)], [[], false]);
      await server.stop();
    });

  test('small, with a projector: the sizes of both are told', async (t) => {
    const weights = readFileSync(smallModel('llama')), projector = readFileSync(projectorFor(smallModel('llama'), 'gemma3'));
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': weights, 'a/b/mmproj-m.gguf': projector });
    const { server, fit } = await serving(t, mirror);
    const { json } = await fit({ model: 'hf:a/b' });
    assert.deepEqual(json.files, [{ name: 'm.gguf', size_bytes: weights.length }, { name: 'mmproj-m.gguf', size_bytes: projector.length }]);
    assert.equal(json.size_bytes, weights.length + projector.length);
    assert.equal(json.fits, true);
    assert.deepEqual(mirror.fetched.filter(({ path: of, range }) => /mmproj/.test(of) && range !== 'bytes=0-0'), []);
    await server.stop();
  });

  test('by a short name, from a source without ranges', async (t) => {
    const mirror = await Mirror.open(t, { 'tiny.gguf': model });
    mirror.faults.answer = (request, response, file) => { delete request.headers.range; mirror.send(request, response, file); return true; };
    const names = join(temporaryFolder(), 'names');
    writeFileSync(names, `tiny ${mirror.url}/files/tiny.gguf\n`);
    const { server, left, fit } = await serving(t, mirror, { env: { HEARTH_NAMES: names } });
    const { status, json, text } = await fit({ model: 'tiny' });
    assert.equal(status, 200, text);
    assert.deepEqual([json.fits, json.size_bytes], [true, model.length]);
    assert.deepEqual(left(), []);
    await server.stop();
  });
});

describe('what cannot be told', () => {
  test('says why, and names the field', async (t) => {
    const mirror = await Mirror.open(t, { 'a/cut/m.gguf': model.subarray(0, model.length - 4096), 'a/page/m.gguf': Buffer.from('<!DOCTYPE html>'), 'a/part/m-00001-of-00002.gguf': model });
    const { server, left, fit } = await serving(t, mirror);
    for (const [ref, status, says] of [
      ['hf:a/cut', 500, /is no whole model: m\.gguf is truncated/], ['hf:a/page', 400, /m\.gguf is not a GGUF file/], ['hf:a/part', 404, /lacks part 2 of 2/],
      ['hf:a/nothing', 500, /may not be read, or is not there/], ['hf:a', 400, /names no repository/], [demo, 400, /files of this machine/],
      [`${mirror.url}/files/a/cut/m.gguf`, 400, /not public/], ['nobody', 404, /is not known/],
    ]) {
      const { status: got, json, text } = await fit({ model: ref });
      assert.match(json.error.message, says, text);
      assert.deepEqual([got, json.error.param], [status, 'model'], text);
    }
    assert.deepEqual(left(), []);
    await server.stop();
  });

  test('a key without the grant admin may not ask', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': model });
    const admin = 'admin-0123456789abcdef0123456789abcdef', user = 'user-0123456789abcdef0123456789abcdef';
    const keys = join(temporaryFolder(), 'keys');
    writeFileSync(keys, `${admin} chief\n${user} user chat,models\n`, { mode: 0o600 });
    const { server } = await serving(t, mirror, { set: { 'server.api_keys_file': keys }, access: { key: admin } });
    assert.equal((await server.client.withKey(user).post('/models/fit', { model: 'hf:a/b' })).status, 403);
    assert.deepEqual(mirror.requests, []);
    assert.equal((await server.client.post('/models/fit', { model: 'hf:a/b' })).status, 200);
    await server.stop();
  });
});

describe('a source that does not answer', () => {
  const silent = async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': model });
    const held = { asked: false, gone: false };
    mirror.faults.answer = (request) => {
      if (request.headers.range === 'bytes=0-0') return false;
      held.asked = true;
      request.socket.on('close', () => { held.gone = true; });
      return true;
    };
    return { mirror, held, ...await serving(t, mirror) };
  };

  test('keeps nobody else waiting, and is left when the client leaves', async (t) => {
    const { server, held, left } = await silent(t);
    const leaving = new AbortController();
    const asking = server.client.send('POST', '/models/fit', { body: { model: 'hf:a/b' }, signal: leaving.signal }).catch((error) => error);
    await until('it is asked', () => held.asked);
    assert.equal((await server.client.get('/health')).status, 200);
    const begin = performance.now();
    leaving.abort();
    assert.ok((await asking) instanceof Error);
    await until('the connection to it is closed', () => held.gone);
    assert.ok(performance.now() - begin < 15_000, 'long before it would count as stalled');
    await until('nothing is left', () => left().length === 0);
    await server.stop();
  });

  test('does not keep the server from stopping', async (t) => {
    const { server, held, left, fit } = await silent(t);
    const asking = fit({ model: 'hf:a/b' });
    await until('it is asked', () => held.asked);
    await server.stop();
    const { status, json } = await asking;
    assert.equal(status, 503);
    assert.equal(json.error.message, 'the server is stopping');
    assert.deepEqual(left(), []);
  });
});
