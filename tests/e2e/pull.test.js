// hearth pull, models, rm and run, against a server that does what servers do when they are slow, broken or hostile.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, symlinkSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { certificate } from './lib/certificates.js';
import { Mirror, plainEnvironment, sha256 } from './lib/mirror.js';
import { demo, hearth, projectorFor, smallModel } from './lib/models.js';
import { run, serve, shim, temporaryFolder } from './lib/server.js';
import { Terminal } from './lib/terminal.js';
import { until, within } from './lib/wait.js';

const MIB = 1 << 20;
const PIECE = 8 * MIB; // what a journal enters at once
const model = readFileSync(demo);

// A whole model file of this size, at least the model's: bytes after the last tensor do no harm. Another seed is another file.
function modelOf(size, seed = 1) {
  const bytes = Buffer.alloc(size);
  model.copy(bytes);
  let block = createHash('sha256').update(`${seed}`).digest();
  for (let at = model.length; at < size; at += 4096) {
    block = createHash('sha256').update(block).digest();
    block.copy(bytes, at, 0, Math.min(32, size - at));
  }
  return bytes;
}

const folder = () => join(temporaryFolder(), 'models');
const quick = ['--retries', '2', '--stall', '2'];

// Pulls from the mirror into the folder: {code, stdout, stderr}.
const pull = (mirror, into, ref, args = [], env = {}) => run(['pull', ref, ...quick, ...args], { env: mirror.environment(into, env), seconds: 120 });

const pulled = async (...args) => {
  const result = await pull(...args);
  assert.equal(result.code, 0, result.stderr);
  return result;
};

const refused = async (pattern, ...args) => {
  const result = await pull(...args);
  assert.notEqual(result.code, 0, result.stdout);
  assert.match(result.stderr, pattern);
  return result;
};

// Nothing is there under a final name: no model, and no file that could be taken for one.
const nothingThere = (into, name) => {
  const path = join(into, name);
  const names = existsSync(path) ? readdirSync(path) : [];
  assert.deepEqual(names.filter((file) => !/\.(part|journal)$/.test(file) && file !== 'lock'), []);
};

const content = (into, name, file) => readFileSync(join(into, name, file));
const listed = async (into) => JSON.parse((await run(['models', '--json'], { env: { ...plainEnvironment, HEARTH_MODELS: into } })).stdout);

test('SSL_CERT_FILE names the authorities that are trusted', async (t) => {
  const { cert, key, ca } = certificate('mirror');
  const mirror = await Mirror.open(t, { 'owner/repo/model-Q8_0.gguf': model }, { tls: { key: readFileSync(key), cert: ca } });
  const into = folder();
  await refused(/certificate/, mirror, into, 'hf:owner/repo:Q8_0');
  await pulled(mirror, into, 'hf:owner/repo:Q8_0', [], { SSL_CERT_FILE: cert });
});

describe('what is pulled', () => {
  test('a quantisation with all its parts and its projector, which is then listed, and removed', async (t) => {
    const files = {
      'some/repo/m-Q8_0-00001-of-00002.gguf': modelOf(4 * MIB, 1), 'some/repo/m-Q8_0-00002-of-00002.gguf': modelOf(4 * MIB, 2),
      'some/repo/m-Q4_K_M.gguf': modelOf(4 * MIB, 3), 'some/repo/mmproj-m-F16.gguf': modelOf(4 * MIB, 4), 'some/repo/README.md': Buffer.from('read'),
    };
    const mirror = await Mirror.open(t, files);
    mirror.pages = 2;
    const into = folder();
    const { stdout } = await pulled(mirror, into, 'hf:some/repo:q8_0');
    assert.match(stdout, /^m-Q8_0: 3 files, 12\.6 MB\n/);
    for (const name of ['m-Q8_0-00001-of-00002.gguf', 'm-Q8_0-00002-of-00002.gguf', 'mmproj-m-F16.gguf'])
      assert.ok(content(into, 'm-Q8_0', name).equals(files[`some/repo/${name}`]), name);
    assert.deepEqual(readdirSync(join(into, 'm-Q8_0')).sort(),
      ['lock', 'm-Q8_0-00001-of-00002.gguf', 'm-Q8_0-00002-of-00002.gguf', 'manifest.json', 'mmproj-m-F16.gguf']);
    const [entry, ...others] = await listed(into);
    assert.deepEqual(others, []);
    assert.equal(entry.reference, 'hf:some/repo:q8_0');
    assert.deepEqual(entry.files.map(({ sha256: sha, projector }) => [sha, projector]),
      [['some/repo/m-Q8_0-00001-of-00002.gguf', false], ['some/repo/m-Q8_0-00002-of-00002.gguf', false], ['some/repo/mmproj-m-F16.gguf', true]]
        .map(([name, projector]) => [sha256(files[name]), projector]));
    const env = { ...plainEnvironment, HEARTH_MODELS: into };
    assert.match((await run(['models'], { env })).stdout, /^m-Q8_0 +12\.6 MB +\d{4}-\d\d-\d\d +hf:some\/repo:q8_0$/m);
    assert.deepEqual((await run(['rm', 'm-Q8_0'], { env })).stdout, 'removed m-Q8_0\n');
    assert.equal(existsSync(join(into, 'm-Q8_0')), false);
    assert.equal((await run(['rm', 'm-Q8_0'], { env })).code, 1);
  });

  test('without a quantisation the usual one; a second pull fetches nothing, another one what has changed', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m-Q4_K_M.gguf': modelOf(4 * MIB), 'a/b/m-F16.gguf': modelOf(5 * MIB) });
    const into = folder();
    await pulled(mirror, into, 'hf:a/b');
    assert.ok(content(into, 'm-Q4_K_M', 'm-Q4_K_M.gguf').equals(mirror.files['a/b/m-Q4_K_M.gguf']));
    mirror.forget();
    await pulled(mirror, into, 'hf:a/b:Q4_K_M');
    assert.deepEqual(mirror.fetched, []);
    mirror.files['a/b/m-Q4_K_M.gguf'] = modelOf(4 * MIB, 2);
    await pulled(mirror, into, 'hf:a/b');
    assert.ok(content(into, 'm-Q4_K_M', 'm-Q4_K_M.gguf').equals(mirror.files['a/b/m-Q4_K_M.gguf']));
  });

  test('all parts take the place of the former ones at once, when all have come', async (t) => {
    const [first, second] = ['a/b/m-00001-of-00002.gguf', 'a/b/m-00002-of-00002.gguf'];
    const mirror = await Mirror.open(t, { [first]: modelOf(12 * MIB, 1), [second]: modelOf(12 * MIB, 2) });
    const into = folder();
    const has = (name) => content(into, 'm', name.slice(4)).equals(mirror.files[name]);
    await pulled(mirror, into, 'hf:a/b');
    assert.ok(has(first) && has(second));
    const former = [first, second, 'a/b/manifest.json'].map((name) => content(into, 'm', name.slice(4)));
    mirror.files[first] = modelOf(12 * MIB, 3);
    mirror.files[second] = modelOf(12 * MIB, 4);
    mirror.faults.answer = (request, response, { name }) => {
      if (name === first || request.headers.range === 'bytes=0-0') return false;
      response.writeHead(404).end();
      return true;
    };
    await refused(/404/, mirror, into, 'hf:a/b');
    const left = [first, second, 'a/b/manifest.json'].map((name) => content(into, 'm', name.slice(4)));
    assert.ok(left.every((bytes, i) => bytes.equals(former[i])));
    mirror.faults = {};
    mirror.forget();
    await pulled(mirror, into, 'hf:a/b');
    assert.ok(has(first) && has(second));
    const again = mirror.fetched.filter(({ path, range }) => path.includes('00001-of') && range !== 'bytes=0-0');
    assert.deepEqual(again, [], 'what had come is not fetched again');
    assert.deepEqual(readdirSync(join(into, 'm')).sort(), ['lock', 'm-00001-of-00002.gguf', 'm-00002-of-00002.gguf', 'manifest.json']);
  });

  // The files are all there: some with their names, some still without, and the manifest last.
  test('a pull that was ended while it gave the files their names fetches nothing of them again', async (t) => {
    const [first, second] = ['a/b/m-00001-of-00002.gguf', 'a/b/m-00002-of-00002.gguf'];
    const mirror = await Mirror.open(t, { [first]: modelOf(4 * MIB, 1), [second]: modelOf(4 * MIB, 2) });
    const into = folder();
    const at = (name) => join(into, 'm', name);
    await pulled(mirror, into, 'hf:a/b');
    renameSync(at('manifest.json'), at('manifest.json.part'));
    mirror.forget();
    await pulled(mirror, into, 'hf:a/b');
    assert.deepEqual(mirror.fetched, []);
    assert.ok(existsSync(at('manifest.json')));
    renameSync(at('manifest.json'), at('manifest.json.part'));
    writeFileSync(at('m-00002-of-00002.gguf'), Buffer.alloc(4 * MIB)); // the former one, of the same size
    writeFileSync(at('m-00002-of-00002.gguf.part'), mirror.files[second]);
    await pulled(mirror, into, 'hf:a/b');
    assert.ok([first, second].every((name) => content(into, 'm', name.slice(4)).equals(mirror.files[name])));
  });

  test('a URL with all parts, a file, and a short name', async (t) => {
    const mirror = await Mirror.open(t, { 't-00001-of-00002.gguf': modelOf(4 * MIB, 1), 't-00002-of-00002.gguf': modelOf(4 * MIB, 2), 'a/b/m.gguf': modelOf(4 * MIB) });
    const into = folder();
    await pulled(mirror, into, `${mirror.url}/files/t-00001-of-00002.gguf?signature=secret`);
    assert.ok(content(into, 't', 't-00002-of-00002.gguf').equals(mirror.files['t-00002-of-00002.gguf']));
    assert.ok(mirror.fetched.every(({ path }) => path.endsWith('?signature=secret')));
    await pulled(mirror, into, demo, ['--name', 'mine']);
    assert.ok(content(into, 'mine', 'demo.gguf').equals(model));
    const names = join(temporaryFolder(), 'names');
    writeFileSync(names, '# mine\ntiny:1b hf:a/b\n');
    await pulled(mirror, into, 'tiny:1b', ['--name', 'tiny'], { HEARTH_NAMES: names });
    assert.deepEqual((await listed(into)).map(({ name, reference }) => [name, reference]),
      [['mine', demo], ['t', `${mirror.url}/files/t-00001-of-00002.gguf`], ['tiny', 'hf:a/b']]);
    await refused(/is not known: a line 'none REFERENCE' in .*names/, mirror, into, 'none', [], { HEARTH_NAMES: names });
  });

  test('a projector beside a URL and a file, and not beside one that comes with its model', async (t) => {
    const projector = modelOf(4 * MIB, 9);
    const mirror = await Mirror.open(t, { 'm.gguf': modelOf(4 * MIB), 'eye.gguf': projector, 'a/b/m.gguf': modelOf(4 * MIB), 'a/b/mmproj-m.gguf': projector });
    const into = folder();
    await pulled(mirror, into, `${mirror.url}/files/m.gguf`, ['--mmproj', `${mirror.url}/files/eye.gguf?signature=secret`]);
    const eye = join(temporaryFolder(), 'eye.gguf');
    writeFileSync(eye, projector);
    await pulled(mirror, into, demo, ['--name', 'mine', '--mmproj', eye]);
    for (const name of ['m', 'mine']) assert.ok(content(into, name, 'eye.gguf').equals(projector));
    assert.deepEqual((await listed(into)).map(({ files }) => files.map(({ projector: is }) => is)), [[false, true], [false, true]]);
    await refused(/--mmproj: the model comes with its projector, mmproj-m\.gguf/, mirror, into, 'hf:a/b', ['--name', 'both', '--mmproj', eye]);
    await refused(/--mmproj hf:a\/b: a repository's projector comes with its model; write a URL or a file/, mirror, into, demo, ['--name', 'other', '--mmproj', 'hf:a/b']);
    nothingThere(into, 'both');
  });

  test('a name that another model has is refused', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(4 * MIB, 1), 'c/d/m.gguf': modelOf(4 * MIB, 2) });
    const into = folder();
    await pulled(mirror, into, 'hf:a/b');
    const { code } = await refused(/there is a model m already, pulled from hf:a\/b: choose another name with --name/, mirror, into, 'hf:c/d');
    assert.equal(code, 2);
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['a/b/m.gguf']));
    await pulled(mirror, into, 'hf:c/d', ['--name', 'n']);
  });

  test('a repository may have a folder for each quantisation, whose files have one name: none replaces another', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/Q4_K_M/m.gguf': modelOf(4 * MIB, 1), 'a/b/Q8_0/m.gguf': modelOf(4 * MIB, 2) });
    const into = folder();
    await pulled(mirror, into, 'hf:a/b:Q4_K_M');
    await refused(/there is a model m already, pulled from hf:a\/b:Q4_K_M: choose another name with --name/, mirror, into, 'hf:a/b:Q8_0');
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['a/b/Q4_K_M/m.gguf']));
    await pulled(mirror, into, 'hf:a/b:Q8_0', ['--name', 'n']);
    await refused(/there is a model n already, pulled from hf:a\/b:Q8_0/, mirror, into, 'hf:a/b', ['--name', 'n']);
    mirror.forget();
    await pulled(mirror, into, 'hf:a/b:Q4_K_M/m.gguf'); // the same file by another word
    assert.deepEqual(mirror.fetched, []);
  });

  test('a link has its own name, whatever what it leads to is called', async () => {
    const blobs = temporaryFolder(), snapshot = temporaryFolder(), into = folder();
    const env = { ...plainEnvironment, HEARTH_MODELS: into };
    for (const n of [1, 2]) {
      writeFileSync(join(blobs, `${n}`.repeat(64)), modelOf(4 * MIB, n));
      symlinkSync(join(blobs, `${n}`.repeat(64)), join(snapshot, `m-0000${n}-of-00002.gguf`));
    }
    const { code, stderr } = await run(['pull', join(snapshot, 'm-00001-of-00002.gguf')], { env });
    assert.equal(code, 0, stderr);
    for (const n of [1, 2]) assert.ok(content(into, 'm', `m-0000${n}-of-00002.gguf`).equals(modelOf(4 * MIB, n)));
  });

  test('ranges of a large file are fetched at once, and progress is told in lines', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(64 * MIB) });
    let open = 0, most = 0;
    const waiting = [];
    // Nothing is answered until four ranges are asked for: with fewer at once this would not end.
    mirror.faults.answer = (request, response, file) => {
      if (request.headers.range === 'bytes=0-0' || most >= 4) return false;
      waiting.push(() => mirror.send(request, response, file));
      most = Math.max(most, ++open);
      if (most >= 4) waiting.forEach((go) => go());
      return true;
    };
    const into = folder();
    const { stderr } = await pulled(mirror, into, 'hf:a/b', ['--stall', '60']);
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['a/b/m.gguf']));
    assert.match(stderr, /^m\.gguf: \d+ % of 67\.1 MB/m);
    assert.ok(!stderr.includes('\r') && !stderr.includes('\u001b'), stderr);
  });

  test('on a terminal progress is one line that changes, and goes', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(20 * MIB) });
    let release;
    const free = new Promise((resolve) => { release = resolve; });
    mirror.faults.answer = (request, response, file) => {
      if (!/=0-\d{3,}/.test(request.headers.range)) return false;
      response.writeHead(206, { ETag: file.etag, 'Content-Range': `bytes 0-${PIECE - 1}/${file.bytes.length}`, 'Content-Length': PIECE });
      response.write(file.bytes.subarray(0, MIB));
      free.then(() => response.end(file.bytes.subarray(MIB, PIECE)));
      return true;
    };
    const into = folder();
    const terminal = await Terminal.open(t, ['pull', 'hf:a/b'], { env: mirror.environment(into) });
    await terminal.shows(/^m\.gguf: 65 % of 21\.0 MB(, .* left)?$/m); // 12 MiB of the other ranges, and one
    release();
    await terminal.shows(/^m: 1 file, 21\.0 MB\n  hearth chat --model m\n  hearth serve\nexit 0/m);
    assert.ok(!/%/.test(terminal.shown()), terminal.shown());
  });

  test('through a proxy, where the environment names one', async (t) => {
    const proxy = await Mirror.open(t, { 'm.gguf': modelOf(4 * MIB) });
    const into = folder();
    await pulled(proxy, into, 'http://127.0.0.2:9/files/m.gguf', [], { http_proxy: proxy.url, no_proxy: '', NO_PROXY: '' });
    assert.ok(content(into, 'm', 'm.gguf').equals(proxy.files['m.gguf']));
    assert.ok(proxy.requests.every(({ path }) => path === 'http://127.0.0.2:9/files/m.gguf'));
  });
});

describe('a pull that is interrupted', () => {
  // Starts a pull that gets so many bytes of its first ranges, and kills it once the journal has entered pieces.
  const interrupt = async (t, mirror, into, ref, name) => {
    mirror.faults.answer = (request, response, file) => {
      if (request.headers.range === 'bytes=0-0') return false;
      mirror.send(request, response, file, { hang: PIECE + MIB });
      return true;
    };
    const child = spawn(hearth, ['pull', ref, '--connections', '2'], { stdio: 'ignore', env: { ...process.env, ...mirror.environment(into) } });
    t.after(() => child.kill('SIGKILL'));
    const ended = new Promise((resolve) => { child.on('close', resolve); });
    const journal = join(into, name, `${name}.gguf.journal`);
    await until('two pieces are entered', () => readFileSync(journal, 'utf8').match(/^done \d+$/gm)?.length === 2);
    child.kill('SIGKILL');
    await within(30, 'it is gone', ended);
    nothingThere(into, name);
    mirror.faults = {};
    mirror.forget();
  };

  test('goes on where it was, and fetches only what is missing', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(40 * MIB) });
    const into = folder();
    await interrupt(t, mirror, into, 'hf:a/b', 'm');
    await pulled(mirror, into, 'hf:a/b');
    assert.equal(mirror.sent, 40 * MIB - 2 * PIECE + 1); // one byte: the probe's
    assert.ok(mirror.fetched.filter(({ range }) => range !== 'bytes=0-0').every(({ headers }) => headers['if-range']));
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['a/b/m.gguf']));
    assert.equal(existsSync(join(into, 'm', 'm.gguf.journal')), false);
  });

  test('begins anew where the file is another one by then', async (t) => {
    const mirror = await Mirror.open(t, { 'm.gguf': modelOf(40 * MIB, 1) });
    const into = folder();
    await interrupt(t, mirror, into, `${mirror.url}/files/m.gguf`, 'm');
    mirror.files['m.gguf'] = modelOf(40 * MIB, 2);
    await pulled(mirror, into, `${mirror.url}/files/m.gguf`);
    assert.equal(mirror.sent, 40 * MIB + 1);
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['m.gguf']));
  });

  test('can be removed', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(40 * MIB) });
    const into = folder();
    await interrupt(t, mirror, into, 'hf:a/b', 'm');
    assert.equal((await run(['rm', 'm'], { env: mirror.environment(into) })).code, 0);
    assert.equal(existsSync(join(into, 'm')), false);
  });

  test('can be removed where its files were being named, as can one whose removal was interrupted', async (t) => {
    const [first, second] = ['a/b/m-00001-of-00002.gguf', 'a/b/m-00002-of-00002.gguf'];
    const mirror = await Mirror.open(t, { [first]: modelOf(4 * MIB, 1), [second]: modelOf(4 * MIB, 2) });
    const into = folder();
    const at = (name) => join(into, 'm', name);
    const remove = () => run(['rm', 'm'], { env: mirror.environment(into) });
    await pulled(mirror, into, 'hf:a/b');
    renameSync(at('manifest.json'), at('manifest.json.part'));
    renameSync(at('m-00002-of-00002.gguf'), at('m-00002-of-00002.gguf.part'));
    assert.match((await run(['models'], { env: mirror.environment(into) })).stderr, /its pull or its removal was interrupted: pull it again, or remove it/);
    assert.equal((await remove()).code, 0);
    assert.equal(existsSync(join(into, 'm')), false);
    await pulled(mirror, into, 'hf:a/b');
    unlinkSync(at('m-00001-of-00002.gguf'));
    mkdirSync(at('m-00001-of-00002.gguf')); // cannot be removed, as a file
    assert.match((await remove()).stderr, /cannot remove .*m-00001-of-00002\.gguf/);
    assert.deepEqual(await listed(into), []);
    renameSync(at('m-00001-of-00002.gguf'), join(temporaryFolder(), 'away'));
    assert.equal((await remove()).code, 0);
    assert.equal(existsSync(join(into, 'm')), false);
  });

  test('keeps its lock while it runs: neither a second pull nor a removal disturbs it', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(20 * MIB) });
    const into = folder();
    let release;
    const free = new Promise((resolve) => { release = resolve; });
    mirror.faults.answer = (request, response, file) => { free.then(() => mirror.send(request, response, file)); return true; };
    const first = pull(mirror, into, 'hf:a/b', ['--stall', '60']);
    await until('it has the lock and asks', () => mirror.fetched.length > 0);
    const second = await refused(/model 'm' is being pulled or removed by another process/, mirror, into, 'hf:a/b');
    assert.equal(second.code, 1);
    assert.match((await run(['rm', 'm'], { env: mirror.environment(into) })).stderr, /by another process/);
    release();
    assert.equal((await first).code, 0);
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['a/b/m.gguf']));
  });
});

describe('a server that fails now and then', () => {
  // Every connection fails once in some way, the second one is good.
  const once = (how) => {
    const seen = new Set();
    return (request, response, file) => {
      const key = `${request.url} ${request.headers.range}`;
      if (seen.has(key)) return false;
      seen.add(key);
      return how(request, response, file);
    };
  };
  const whole = async (t, answer, args) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(20 * MIB) });
    mirror.faults.answer = once((request, response, file) => answer(mirror, request, response, file));
    const into = folder();
    await pulled(mirror, into, 'hf:a/b', args);
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['a/b/m.gguf']));
    return mirror;
  };

  test('503 is asked again', (t) => whole(t, (mirror, request, response) => { response.writeHead(503).end('later'); return true; }));

  test('a connection that breaks off goes on where it was', async (t) => {
    const mirror = await whole(t, (mirror_, request, response, file) => { mirror_.send(request, response, file, { cut: 2 * MIB }); return true; });
    assert.ok(mirror.sent <= 20 * MIB + 2, `${mirror.sent}`);
  });

  test('a connection that stalls is given up', (t) => whole(t, (mirror, request, response, file) => { mirror.send(request, response, file, { hang: 3 * MIB }); return true; }));

  test('one that keeps failing ends the pull, and leaves what there is for the next', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(20 * MIB) });
    mirror.faults.answer = (request, response, file) => {
      if (request.headers.range === 'bytes=0-0') return false;
      mirror.send(request, response, file, { cut: 1000 });
      return true;
    };
    const into = folder();
    await refused(/cannot be read|ends the file early/, mirror, into, 'hf:a/b', ['--retries', '1']);
    nothingThere(into, 'm');
    mirror.faults = {};
    await pulled(mirror, into, 'hf:a/b');
  });
});

describe('a server that knows no ranges', () => {
  const unranged = (mirror, options) => (request, response, { bytes, etag }) => {
    const { cut, length = bytes.length, chunked, more = Buffer.alloc(0) } = options(request) ?? {};
    response.writeHead(200, { ETag: etag, ...chunked ? {} : { 'Content-Length': length } });
    mirror.write(response, Buffer.concat([bytes, more]), { cut });
    return true;
  };

  test('sends all in one piece, from the beginning after a failure', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': modelOf(6 * MIB) });
    let n = 0;
    mirror.faults.answer = unranged(mirror, () => ({ cut: ++n === 2 ? MIB : undefined }));
    const into = folder();
    await pulled(mirror, into, 'hf:a/b');
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['a/b/m.gguf']));
    assert.equal(mirror.fetched.length, 3); // the probe, a failure, all of it
  });

  test('may not say how long the file is if it sends chunks', async (t) => {
    const mirror = await Mirror.open(t, { 'm.gguf': modelOf(6 * MIB) });
    mirror.faults.answer = unranged(mirror, () => ({ chunked: true }));
    const into = folder();
    await pulled(mirror, into, `${mirror.url}/files/m.gguf`);
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['m.gguf']));
  });

  test('a file of unknown length leaves the disk some room, and nothing stays of it', async (t) => {
    const mirror = await Mirror.open(t, { 'm.gguf': model });
    mirror.faults.answer = (request, response) => {
      const block = Buffer.alloc(MIB);
      let sent = 0;
      response.writeHead(200);
      const more = () => { while (!response.destroyed && sent++ < 128 && response.write(block)); };
      response.on('drain', more);
      more();
      return true;
    };
    const into = folder();
    const env = { LD_PRELOAD: shim('full_disk'), FREE_BYTES: `${60 * MIB}` };
    await refused(/the disk of the models folder has 0\.06 GB free, and 0\.07 GB are needed/, mirror, into, `${mirror.url}/files/m.gguf`, [], env);
    assert.equal(existsSync(join(into, 'm')), false);
  });

  test('a file of unknown length that ends before its tensors is refused, of every part', async (t) => {
    const mirror = await Mirror.open(t, { 'm-00001-of-00002.gguf': model, 'm-00002-of-00002.gguf': model.subarray(0, model.length - 1000) });
    mirror.faults.answer = unranged(mirror, () => ({ chunked: true }));
    const into = folder();
    await refused(/m-00002-of-00002\.gguf is no whole model: .* is truncated/, mirror, into, `${mirror.url}/files/m-00001-of-00002.gguf`);
    assert.equal(existsSync(join(into, 'm', 'm-00002-of-00002.gguf')), false);
    assert.deepEqual(await listed(into), []);
  });

  test('without chunks a length that is not said is refused: nobody could tell whether all came', async (t) => {
    const mirror = await Mirror.open(t, { 'm.gguf': model });
    mirror.faults.answer = (request, response, { bytes }) => {
      response.socket.end(Buffer.concat([Buffer.from('HTTP/1.0 200 OK\r\n\r\n'), bytes]));
      return true;
    };
    await refused(/neither how long the file is nor where it ends/, mirror, folder(), `${mirror.url}/files/m.gguf`);
  });
});

describe('a server that lies', () => {
  const lying = async (t, pattern, answer, { listed: says, ref = 'hf:a/b', files } = {}) => {
    const mirror = await Mirror.open(t, files ?? { 'a/b/m.gguf': modelOf(20 * MIB), 'm.gguf': modelOf(20 * MIB) });
    if (says) mirror.listed = { 'a/b/m.gguf': says };
    if (answer) mirror.faults.answer = (request, response, file) => answer(mirror, request, response, file);
    const into = folder();
    const result = await refused(pattern, mirror, into, ref.replace('MIRROR', mirror.url));
    nothingThere(into, 'm');
    return { mirror, into, result };
  };
  const ranged = (request) => request.headers.range !== 'bytes=0-0';

  test('another SHA-256 than its list has: nothing is kept of it', async (t) => {
    const { into } = await lying(t, /has another SHA-256 than its source says/, null, { listed: { oid: sha256(Buffer.from('x')) } });
    assert.deepEqual(existsSync(join(into, 'm')) ? readdirSync(join(into, 'm')) : [], []);
  });

  test('another size than its list has', (t) => lying(t, /contradicts itself: m\.gguf has 5 bytes in its list, and 20971520/, null, { listed: { size: 5 } }));

  test('more bytes than any model has, in several parts, whose sum would overflow', (t) => lying(t, /says that m-00001-of-00002\.gguf has 5000000000000000000 bytes: no model has so many/, (mirror, request, response, { etag }) => {
    response.writeHead(206, { ETag: etag, 'Content-Range': 'bytes 0-0/5000000000000000000', 'Content-Length': 1 });
    return response.end('G');
  }, { ref: 'MIRROR/files/m-00001-of-00002.gguf', files: { 'm-00001-of-00002.gguf': model, 'm-00002-of-00002.gguf': model } }));

  test('another range than was asked for', (t) => lying(t, /sends another range than it was asked for/, (mirror, request, response, { bytes, etag }) => {
    if (!ranged(request)) return false;
    response.writeHead(206, { ETag: etag, 'Content-Range': `bytes 1-${bytes.length - 1}/${bytes.length}`, 'Content-Length': bytes.length - 1 });
    return response.end(bytes.subarray(1));
  }));

  test('more bytes than the range has', (t) => lying(t, /sends more bytes than it has said|contradicts itself about the length/, (mirror, request, response, { bytes, etag }) => {
    const [, first, last] = /=(\d+)-(\d+)/.exec(request.headers.range);
    if (!ranged(request)) return false;
    response.writeHead(206, { ETag: etag, 'Content-Range': `bytes ${first}-${last}/${bytes.length}` });
    return response.end(Buffer.concat([bytes.subarray(Number(first), Number(last) + 1), Buffer.alloc(100)]));
  }));

  test('fewer bytes than the range has, each time', (t) => lying(t, /ends the file early/, (mirror, request, response, { bytes, etag }) => {
    const [, first, last] = /=(\d+)-(\d+)/.exec(request.headers.range);
    if (!ranged(request)) return false;
    response.writeHead(206, { ETag: etag, 'Content-Range': `bytes ${first}-${last}/${bytes.length}` });
    return response.end(bytes.subarray(Number(first), Number(first) + 10));
  }));

  test('a page in place of the model', (t) => lying(t, /is no whole model: .*is not a GGUF file/, null,
    { ref: 'MIRROR/files/m.gguf', files: { 'm.gguf': Buffer.from('<html>Please log in.</html>') } }));

  test('an empty file', (t) => lying(t, /sends an empty file|is empty/, null, { ref: 'MIRROR/files/m.gguf', files: { 'm.gguf': Buffer.alloc(0) } }));

  test('a file that changes in between is begun anew', async (t) => {
    const mirror = await Mirror.open(t, { 'm.gguf': modelOf(20 * MIB, 1) });
    let changed = false;
    mirror.faults.answer = (request, response) => {
      if (!ranged(request) || changed) return false;
      changed = true;
      mirror.files['m.gguf'] = modelOf(24 * MIB, 2);
      return mirror.answer(request, response) ?? true;
    };
    const into = folder();
    await pulled(mirror, into, `${mirror.url}/files/m.gguf`);
    assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['m.gguf']));
  });

  test('so is one of which ranges are sent whatever it is by then', async (t) => {
    for (const size of [20 * MIB, 24 * MIB]) {
      const mirror = await Mirror.open(t, { 'm.gguf': modelOf(20 * MIB, 1) });
      let n = 0;
      mirror.faults.answer = (request, response) => {
        if (!ranged(request)) return false;
        if (++n === 2) mirror.files['m.gguf'] = modelOf(size, 2);
        delete request.headers['if-range'];
        mirror.send(request, response, mirror.file('m.gguf'));
        return true;
      };
      const into = folder();
      await pulled(mirror, into, `${mirror.url}/files/m.gguf`);
      assert.ok(n > 2, 'it has changed between two ranges');
      assert.ok(content(into, 'm', 'm.gguf').equals(mirror.files['m.gguf']), `${size}`);
    }
  });

  test('one that changes all the time is given up', async (t) => {
    let n = 0;
    await lying(t, /changes at its source while it is pulled/, (mirror, request, response, file) => {
      mirror.send(request, response, { ...file, etag: `"${n++}"` });
      return true;
    }, { ref: 'MIRROR/files/m.gguf' });
  });

  test('names that lead out of the folder, or into a terminal', async (t) => {
    for (const name of ['..%2f..%2fevil.gguf', '%2e%2e%2fevil.gguf', '.hidden.gguf', 'a%0a.gguf', 'a%1b%5b2J.gguf', `${'x'.repeat(201)}.gguf`]) {
      const mirror = await Mirror.open(t, {});
      const into = folder();
      const { stderr, code } = await refused(/is refused: /, mirror, into, `${mirror.url}/files/${name}`);
      assert.equal(code, 2);
      assert.ok(!stderr.includes('\u001b'), JSON.stringify(stderr));
      assert.equal(existsSync(into), false);
    }
    const mirror = await Mirror.open(t, { 'a/b/..\u001b.gguf': model });
    await refused(/is refused: /, mirror, folder(), 'hf:a/b');
  });

  test('a list that goes on elsewhere is not followed there', async (t) => {
    const other = await Mirror.open(t, {}, { host: '127.0.0.2' });
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': model });
    mirror.next = `${other.url}/api/models/a/b/tree/main?cursor=1`;
    await pulled(mirror, folder(), 'hf:a/b', [], { HF_TOKEN: 'hf_secret' });
    assert.deepEqual(other.requests, []);
  });
});

describe('tokens and redirects', () => {
  const token = 'hf_secret_token';
  const redirecting = (to) => (request, response, file) => {
    response.writeHead(302, { Location: `${to}/files/${file.name}?X-Signature=${token}2` }).end('moved');
    return true;
  };

  test('the token goes to its own origin, and to no other', async (t) => {
    const files = { 'a/b/m.gguf': modelOf(20 * MIB) };
    const store = await Mirror.open(t, files, { host: '127.0.0.2' }), mirror = await Mirror.open(t, files);
    mirror.faults.answer = redirecting(store.url);
    const into = folder();
    const result = await pulled(mirror, into, 'hf:a/b', [], { HF_TOKEN: token });
    assert.ok(content(into, 'm', 'm.gguf').equals(files['a/b/m.gguf']));
    assert.ok(mirror.requests.length > 1 && mirror.requests.every(({ headers }) => headers.authorization === `Bearer ${token}`));
    assert.ok(store.requests.length > 1);
    assert.ok(store.requests.every(({ headers }) => !JSON.stringify(headers).includes(token)), JSON.stringify(store.requests[0].headers));
    assert.ok(!(result.stdout + result.stderr + readFileSync(join(into, 'm', 'manifest.json'))).includes(token));
    // A URL of another origin gets none either.
    store.forget();
    await pulled(mirror, into, `${store.url}/files/a/b/m.gguf`, ['--name', 'other'], { HF_TOKEN: token });
    assert.ok(store.requests.every(({ headers }) => headers.authorization === undefined));
  });

  test('a message shows no query', async (t) => {
    const store = await Mirror.open(t, {}, { host: '127.0.0.2' }), mirror = await Mirror.open(t, { 'a/b/m.gguf': model });
    mirror.faults.answer = redirecting(store.url);
    const { stderr } = await refused(/127\.0\.0\.2:\d+\/files\/a\/b\/m\.gguf is not there \(404\)/, mirror, folder(), 'hf:a/b');
    assert.ok(!stderr.includes(token), stderr);
  });

  test('a repository that wants a token says so; one that is none is refused', async (t) => {
    const mirror = await Mirror.open(t, {});
    await refused(/no\/repo: .*may not be read, or is not there \(401\): it may want a token, HF_TOKEN/, mirror, folder(), 'hf:no/repo');
    await refused(/HF_TOKEN does not open it/, mirror, folder(), 'hf:no/repo', [], { HF_TOKEN: token });
    const { stderr } = await refused(/HF_TOKEN is no token/, mirror, folder(), 'hf:no/repo', [], { HF_TOKEN: `${token}\r\nX: y` });
    assert.ok(!stderr.includes(token), stderr);
  });

  test('redirects without end, to other schemes and to plain http elsewhere are not followed', async (t) => {
    const mirror = await Mirror.open(t, { 'm.gguf': model });
    const to = (location) => { mirror.faults.answer = (_, response) => { response.writeHead(302, { Location: location }).end(); return true; }; };
    const url = `${mirror.url}/files/m.gguf`;
    to(url);
    await refused(/redirects too often/, mirror, folder(), url);
    to('file:///etc/passwd');
    await refused(/is no http or https URL|redirects to nowhere/, mirror, folder(), url);
    to('http://192.0.2.1/m.gguf');
    await refused(/is not encrypted/, mirror, folder(), url);
    await refused(/is not encrypted: use https, or --http/, mirror, folder(), 'http://192.0.2.1/m.gguf');
  });
});

describe('pulled models', () => {
  const env = (into) => ({ ...plainEnvironment, HEARTH_MODELS: into });
  const names = async (server) => (await server.client.get('/v1/models')).json.data.map(({ id, status }) => [id, status?.value ?? status]).sort();
  const local = async (into, path, name) => {
    const result = await run(['pull', path, '--name', name], { env: env(into) });
    assert.equal(result.code, 0, result.stderr);
  };

  test('are served without a configuration, loaded with the first request', async (t) => {
    const into = folder();
    await local(into, smallModel('llama'), 'tiny');
    const server = await serve({ t, env: env(into) });
    assert.deepEqual((await names(server)).map(([id]) => id), ['demo', 'tiny']);
    assert.ok(!/loaded model=tiny/.test(server.log), server.log);
    const reply = await server.client.chat({ model: 'tiny', max_tokens: 4, messages: [{ role: 'user', content: 'Hello.' }] });
    assert.equal(reply.model, 'tiny');
    await server.says(/loaded model=tiny/);
    await server.stop();
  });

  test('that are broken are left out, and others go on', async (t) => {
    const into = folder();
    for (const name of ['good', 'damaged', 'short', 'gone']) await local(into, smallModel('llama'), name);
    const [{ files: [{ path }] }] = (await listed(into)).filter(({ name }) => name === 'damaged');
    const bytes = readFileSync(path);
    bytes.write('XXXX', 0, 'latin1');
    writeFileSync(path, bytes);
    truncateSync(path.replace('/damaged/', '/short/'), 100);
    unlinkSync(path.replace('/damaged/', '/gone/'));
    const server = await serve({ t, env: env(into) });
    assert.deepEqual((await names(server)).map(([id]) => id), ['demo', 'good']);
    await server.says(/left out: its file cannot be read model=damaged reason=".*is not a GGUF file/);
    assert.match(server.log, /left out: it was pulled, and is not whole model=short/);
    assert.match(server.log, /left out: it was pulled, and is not whole model=gone/);
    const { status } = await server.client.post('/v1/chat/completions', { model: 'good', max_tokens: 2, messages: [{ role: 'user', content: 'Hi' }] });
    assert.equal(status, 200);
    await server.stop();
  });

  test('of a folder that cannot be read are left out', async (t) => {
    const file = join(temporaryFolder(), 'models');
    writeFileSync(file, '');
    const server = await serve({ t, env: env(file) });
    assert.deepEqual((await names(server)).map(([id]) => id), ['demo']);
    assert.match(server.log, /pulled models are left out: the folder cannot be read/);
    await server.stop();
  });

  test('give way to those that are configured, take the settings of a section, and can be left away', async (t) => {
    const into = folder();
    await local(into, smallModel('llama'), 'tiny');
    await local(into, smallModel('llama'), 'own');
    const config = join(temporaryFolder(), 'hearth.yaml');
    writeFileSync(config, `models:\n  own: {path: ${demo}, load: demand}\n  tiny: {load: demand, context_window: 512}\n`);
    const server = await serve({ t, args: ['--config', config], env: env(into) });
    const { json: { data } } = await server.client.get('/v1/models');
    assert.deepEqual(data.map(({ id }) => id), ['own', 'tiny']);
    const { json: props } = await server.client.get('/props?model=own');
    assert.equal(props.model_path, 'demo.gguf');
    const { json: tiny } = await server.client.get('/props?model=tiny');
    assert.match(tiny.model_path, /^llama-\w+\.gguf$/);
    await server.stop();
    const without = await serve({ t, set: { 'server.serve_pulled': false }, env: env(into) });
    assert.deepEqual((await names(without)).map(([id]) => id), ['demo']);
    await without.stop();
    const alone = await serve({ t, model: 'tiny', env: env(into) });
    assert.deepEqual((await names(alone)).map(([id]) => id), ['tiny']);
    await alone.stop();
  });

  test('come with their projector', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': model, 'a/b/mmproj-m.gguf': readFileSync(projectorFor(demo, 'llava')) });
    const into = folder();
    await pulled(mirror, into, 'hf:a/b');
    const server = await serve({ t, model: 'm', env: env(into) });
    const { json: props } = await server.client.get('/props?model=m');
    assert.equal(props.modalities.vision, true);
    await server.stop();
  });
});

describe('hearth run', () => {
  test('pulls into an empty home, answers, and the next time asks nobody', async (t) => {
    const mirror = await Mirror.open(t, { 'a/b/m.gguf': model });
    const home = temporaryFolder();
    const env = { ...plainEnvironment, HF_ENDPOINT: mirror.url, HOME: home };
    const ask = (ref, ...args) => run(['run', ref, 'My name is Ottilie.', '--set', 'sampling.temperature=0', '--set', 'threads=1', ...args], { env });
    const first = await ask('hf:a/b');
    assert.equal(first.code, 0, first.stderr);
    assert.equal(first.stdout, 'Nice to meet you, Ottilie.\n');
    assert.ok(existsSync(join(home, '.local/share/hearth/models/m/m.gguf')));
    mirror.forget();
    for (const ref of ['hf:a/b', 'm']) {
      const again = await ask(ref);
      assert.deepEqual([again.code, again.stdout, again.stderr], [0, 'Nice to meet you, Ottilie.\n', '']);
    }
    assert.deepEqual(mirror.requests, []);
    const file = await ask(demo);
    assert.equal(file.stdout, 'Nice to meet you, Ottilie.\n');
    const piped = await run(['run', 'm', '--set', 'sampling.temperature=0', '--set', 'threads=1'], { env, input: 'My name is Ottilie.\n' });
    assert.equal(piped.stdout, 'Nice to meet you, Ottilie.\n');
  });

  test('says what is wrong with a reference', async () => {
    const env = { ...plainEnvironment, HEARTH_MODELS: folder() };
    for (const [ref, code, says] of [['nothing', 1, /is not known/], ['a/b', 2, /write hf:OWNER\/REPO/], ['/none/m.gguf', 1, /\/none\/m\.gguf/]]) {
      const result = await run(['run', ref], { env });
      assert.equal(result.code, code, result.stderr);
      assert.match(result.stderr, says);
    }
    const { code, stderr } = await run(['pull', 'hf:a/b', '--connections', '99'], { env });
    assert.equal(code, 2);
    assert.match(stderr, /--connections 99: write a whole number from 1 to 16/);
  });

  test('a folder that cannot be written is named', async () => {
    const into = join(temporaryFolder(), 'models');
    writeFileSync(into, 'a file');
    const { code, stderr } = await run(['pull', demo], { env: { ...plainEnvironment, HEARTH_MODELS: into } });
    assert.equal(code, 1);
    assert.ok(stderr.includes(into), stderr);
    mkdirSync(`${into}2`);
    assert.equal((await run(['models'], { env: { ...plainEnvironment, HEARTH_MODELS: `${into}2` } })).stdout, `no models in ${into}2: hearth pull REF fetches one\n`);
  });
});
