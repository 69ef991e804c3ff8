// hearth chat --server: the same chat with a model of a running hearth, and with servers that are none, or none that
// one would want.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { certificate } from './lib/certificates.js';
import { png } from './lib/media.js';
import { demo, hearth, projectorFor, smallModel } from './lib/models.js';
import { freePort } from './lib/peer.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { Terminal } from './lib/terminal.js';
import { until, within } from './lib/wait.js';

const steady = { 'sampling.temperature': 0 };
const chat = (server, words, options) => run(['chat', '--server', server.url, ...words], options);

describe('a running hearth', () => {
  let server;
  before(async () => { server = await serve({ models: { n_seq_max: 4, cache_min_tokens: 0, ...steady } }); });
  after(() => server.stop());

  test('a question, as an argument and through a pipe, is answered without decoration', async () => {
    const one = await chat(server, ['My name is Ottilie.']);
    assert.deepEqual([one.code, one.stdout, one.stderr], [0, 'Nice to meet you, Ottilie.\n', '']);
    const two = await chat({ url: `${server.url}/v1/` }, [], { input: 'My name is Ottilie.\nWhat is my name?\n' });
    assert.deepEqual([two.code, two.stdout, two.stderr], [0, 'Nice to meet you, Ottilie.\nYour name is Ottilie.\n', '']);
    const three = await chat(server, ['--system', 'Be kind.', 'My name is Ottilie.'], { input: 'I live here.' });
    assert.equal(three.code, 0, three.stderr);
  });

  test('a model that it has not is refused, with those that it has', async () => {
    const { code, stderr } = await chat(server, ['--model', 'demmo', 'Who are you?']);
    assert.equal(code, 1);
    assert.match(stderr, /^hearth chat: .* has no chat model 'demmo'; did you mean 'demo'\?; there is: demo\n$/);
    assert.equal((await chat(server, ['--model', 'demo', 'My name is Ottilie.'])).stdout, 'Nice to meet you, Ottilie.\n');
  });

  test('a prompt that is too long is refused by the server, in its words', async () => {
    const { code, stdout, stderr } = await chat(server, ['Count these.'], { input: 'hello '.repeat(5000) });
    assert.deepEqual([code, stdout], [1, '\n']);
    assert.match(stderr, /status 400: request \(\d{4,} tokens\) exceeds/);
  });

  test('on a terminal: figures, /cache, /stats and /model are the server\'s', async (t) => {
    const terminal = await Terminal.open(t, ['chat', '--server', server.url]);
    await terminal.asks();
    terminal.say('My name is Ottilie.');
    await terminal.shows(/Nice to meet you, Ottilie\.\n\d+ tokens, .*tokens\/s\n>$/);
    terminal.say('What is my name?');
    const [, cached, all] = await terminal.shows(/Your name is Ottilie\.\n\d+ tokens, (\d+) of (\d+) prompt tokens cached, .*\n>$/);
    assert.ok(Number(cached) >= 30 && Number(cached) < Number(all), `${cached} of ${all}`);
    terminal.say('/cache');
    const [, found, of] = await terminal.shows(/(\d+) of (\d+) tokens of this conversation are cached: \d+ in KV cells(?:.*\n)*?disk: \d+ entries, .* MB\n>$/);
    assert.ok(Number(found) > 40 && Number(found) >= Number(of) - 2, `${found} of ${of}`);
    terminal.say('/stats');
    await terminal.shows(/2 replies in \d+\.\d s: \d+ prompt tokens cached, \d+ computed, \d+ generated\n>$/);
    terminal.say('/model');
    await terminal.shows(/> \/model\n\* demo\n>$/);
    terminal.say('/model nobody');
    await terminal.shows(/hearth chat: .*nobody.*there is: demo/s);
    await terminal.asks();
    terminal.say('/undo');
    await terminal.shows(/taken back: What is my name\?\n>$/);
    terminal.say('/exit');
    await terminal.shows(/exit 0/);
  });

  test('a model in this process and its settings are for a chat without a server', async () => {
    for (const [name, value] of [['config', 'x.yaml'], ['mmproj', 'x.gguf'], ['set', 'n_seq_max=1']]) {
      const { code, stderr } = await chat(server, [`--${name}`, value, 'Why?']);
      assert.equal(code, 2, stderr);
      assert.match(stderr, new RegExp(`--${name} is for a model in this process`));
    }
    for (const value of ['0', 'soon', '', '99999999', '\u001b[2J']) {
      const { code, stderr } = await chat(server, ['--timeout', value, 'Why?']);
      assert.equal(code, 2, stderr);
      assert.match(stderr, /^hearth chat: --timeout .*: write seconds, 1 to 86400\n$/);
      assert.ok(!stderr.includes('\u001b'), 'an error drives no terminal');
    }
  });
});

test('images and sounds go along as data URLs', async (t) => {
  const server = await serve({ t, model: demo, args: ['--mmproj', projectorFor(demo, 'llava')], models: steady });
  const path = join(temporaryFolder(), 'a.png');
  writeFileSync(path, Buffer.from(png(3), 'base64'));
  const { code, stdout, stderr } = await chat(server, [], { input: `/image ${path}\nWhat is this?\n` });
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, /\w/);
  assert.equal(await server.client.metric('hearth_media_encoded_total'), 1);
  await server.stop();
});

test('the key is HEARTH_API_KEY; without it the message says so', async (t) => {
  const keys = join(temporaryFolder(), 'keys');
  const key = 'a-key-of-more-than-sixteen';
  writeFileSync(keys, `${key}\n`, { mode: 0o600 });
  const server = await serve({ t, set: { 'server.api_keys_file': keys }, models: { n_seq_max: 1, ...steady }, access: { key } });
  const without = await chat(server, ['Why?'], { env: { HEARTH_API_KEY: undefined } });
  assert.equal(without.code, 1);
  assert.match(without.stderr, /status 401: .*set HEARTH_API_KEY to a key of the server/);
  const withKey = await chat(server, ['My name is Ottilie.'], { env: { HEARTH_API_KEY: key } });
  assert.deepEqual([withKey.code, withKey.stdout], [0, 'Nice to meet you, Ottilie.\n']);
  await server.stop();
});

test('a certificate that nobody vouches for is refused, unless SSL_CERT_FILE names it', async (t) => {
  const { cert, key, ca } = certificate('hearth');
  const server = await serve({ t, set: { 'server.tls_cert': cert, 'server.tls_key': key }, models: steady, access: { ca } });
  const refused = await chat(server, ['Why?']);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /certificate/);
  const trusted = await chat(server, ['My name is Ottilie.'], { env: { SSL_CERT_FILE: cert } });
  assert.deepEqual([trusted.code, trusted.stdout], [0, 'Nice to meet you, Ottilie.\n']);
  await server.stop();
});

test('no server is said at once, with what to do', async () => {
  const url = `http://127.0.0.1:${await freePort()}`;
  const { code, stderr } = await chat({ url }, ['Why?']);
  assert.equal(code, 1);
  assert.match(stderr, /no server answers at http:\S+ \(.+\): start one with hearth serve, or name it with --server URL/);
});

describe('a reply that does not end', () => {
  let server;
  before(async () => { server = await serve({ model: smallModel('qwen3'), models: { context_window: 16384, n_seq_max: 1, ...steady } }); });
  after(() => server.stop());
  const open = async (t, ...more) => {
    const terminal = await Terminal.open(t, ['chat', '--server', server.url, ...more]);
    await terminal.asks();
    terminal.say('Who are you?');
    await terminal.shows(/Who are you\?\n.*\w/);
    return terminal;
  };

  test('Ctrl-C stops it here and at the server, and not the program', async (t) => {
    const terminal = await open(t);
    await server.client.busy();
    terminal.press('C-c');
    await terminal.asks();
    await server.client.idle();
    assert.ok(!/tokens\/s/.test(terminal.shown()), 'a stopped reply has no figures');
    terminal.type('half a line');
    await terminal.shows(/> half a line$/);
    terminal.press('C-c');
    await terminal.shows(/\^C\n>$/);
    terminal.press('Up');
    await terminal.shows(/\n> Who are you\?$/);
    terminal.press('C-c');
    terminal.say('/exit');
    await terminal.shows(/exit 0/);
  });

  test('what is typed meanwhile is not echoed into it, and is the next message', async (t) => {
    const terminal = await open(t);
    const { pid } = terminal;
    process.kill(pid, 'SIGSTOP');
    await until('it has stopped', () => /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, 'utf8')));
    terminal.press('C-c'); // ends the reply once it runs again
    terminal.type('Typed ahead');
    process.kill(pid, 'SIGCONT');
    await terminal.shows(/\n> Typed ahead$/);
    assert.equal(terminal.shown().split('Typed ahead').length, 2);
  });

  test('SIGINT ends a single question with 130, and its request', async (t) => {
    const child = spawn(hearth, ['chat', '--server', server.url, 'Why?'], { stdio: ['ignore', 'pipe', 'ignore'], env: { ...process.env, HOME: temporaryFolder() } });
    t.after(() => child.kill('SIGKILL'));
    await once(child.stdout, 'data');
    child.stdout.resume();
    child.kill('SIGINT');
    const [code] = await within(30, 'it ends', once(child, 'close'));
    assert.equal(code, 130);
    await server.client.idle();
  });
});

test('a long prompt shows how much of it is read, and what was cached', async (t) => {
  const server = await serve({ t, models: { n_batch: 32, n_ubatch: 32, n_seq_max: 1, ...steady } });
  const terminal = await Terminal.open(t, ['chat', '--server', server.url]);
  await terminal.asks();
  const log = join(temporaryFolder(), 'log');
  terminal.tmux('pipe-pane', '-t', 'it', `cat > '${log}'`); // the line is gone once the reply begins
  terminal.say('Count. '.repeat(200));
  await terminal.shows(/tokens\/s\n>$/);
  terminal.say('Count. '.repeat(150));
  await terminal.shows(/tokens\/s\n(.*\n)+.*tokens\/s\n>$/);
  await until('all of it is written', () => /tokens\/s[^>]*> [^]*tokens\/s/.test(readFileSync(log, 'utf8')));
  assert.match(readFileSync(log, 'utf8'), /reading the prompt: \d+ of \d+ tokens, \d+ of them cached/);
  assert.ok(!/reading/.test(terminal.shown()));
  await server.stop();
});

// A server of OpenAI's API. `answer` gets the response to a chat, and what was asked for; `list` is its list of models;
// what is asked for at the path `hangs` is never answered.
async function fake(t, answer, list = [{ id: 'one', object: 'model', owned_by: 'someone' }], { hangs } = {}) {
  const asked = [];
  const server = createServer((request, response) => {
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => {
      const ofModels = request.url === '/v1/models' && list !== null;
      if (request.url === hangs) return asked.push(request.url);
      if (request.url === '/v1/chat/completions') {
        asked.push({ headers: request.headers, body: JSON.parse(Buffer.concat(pieces).toString()) });
        answer(response, asked.at(-1));
      } else {
        response.writeHead(ofModels ? 200 : 404, { 'Content-Type': 'application/json' });
        response.end(JSON.stringify(ofModels ? { object: 'list', data: list } : { detail: 'Not Found' }));
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => { server.closeAllConnections(); server.close(); });
  return { url: `http://127.0.0.1:${server.address().port}`, asked };
}

const begin = (response) => response.writeHead(200, { 'Content-Type': 'text/event-stream' });
const piece = (content, finish_reason = null) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason }] })}\n\n`;
const reply = (response, text) => { begin(response); response.end(`${piece(text)}${piece('', 'stop')}data: [DONE]\n\n`); };

describe('other servers', () => {
  test('are asked for nothing that is not OpenAI\'s, and need no list of models', async (t) => {
    const server = await fake(t, (response) => reply(response, 'Hello.'), null);
    const without = await chat(server, ['Hi']);
    assert.equal(without.code, 1);
    assert.match(without.stderr, /status 404/);
    const { code, stdout, stderr } = await chat(server, ['--model', 'some/model', 'Hi'], { env: { HEARTH_API_KEY: 'secret' } });
    assert.deepEqual([code, stdout, stderr], [0, 'Hello.\n', '']);
    assert.deepEqual(server.asked[0].body, {
      model: 'some/model', messages: [{ role: 'user', content: 'Hi' }], stream: true, stream_options: { include_usage: true },
    });
    assert.equal(server.asked[0].headers.authorization, 'Bearer secret');
  });

  test('get a pasted text of many lines whole, and are not believed what drives a terminal', async (t) => {
    const evil = 'a\u001b[2J\u0007b';
    const server = await fake(t, (response) => reply(response, evil), [{ id: `one${evil}` }]);
    const terminal = await Terminal.open(t, ['chat', '--server', server.url]);
    await terminal.asks();
    assert.match(terminal.shown(), /^onea\\u001b\[2J\\u0007b: Ctrl-C stops/);
    const text = Array.from({ length: 300 }, (_, i) => `line ${i} of a text that was pasted`).join('\n');
    terminal.paste(text);
    await terminal.shows(/\[paste 1: \d+ bytes, 300 lines\]$/);
    terminal.press('Enter');
    await terminal.shows(/\na\\u001b\[2J\\u0007b\n>$/);
    assert.equal(server.asked[0].body.messages[0].content, text);
    assert.equal(server.asked[0].body.model, `one${evil}`);
    terminal.say('/model');
    await terminal.shows(/\* onea\\u001b\[2J\\u0007b\n>$/);
    terminal.say('/cache');
    await terminal.shows(/\/cache\/lookup answers with status 404/s);
  });

  test('that hang are not waited for: Ctrl-C, and a signal that ends', async (t) => {
    const server = await fake(t, (response) => reply(response, 'Hello.'), undefined, { hangs: '/cache/lookup' });
    const terminal = await Terminal.open(t, ['chat', '--server', server.url]);
    await terminal.asks();
    terminal.say('Hi');
    await terminal.shows(/Hello\.\n>$/);
    terminal.say('/cache');
    await until('it is asked', () => server.asked.includes('/cache/lookup'));
    terminal.press('C-c');
    await terminal.shows(/stopped before http:\S+ has answered\n>$/);
    terminal.say('/cache');
    await until('it is asked again', () => server.asked.filter((what) => what === '/cache/lookup').length === 2);
    process.kill(terminal.pid, 'SIGTERM');
    await terminal.shows(/exit 0/);
  });

  test('have what a picture is in its data URL', async (t) => {
    const server = await fake(t, (response) => reply(response, 'A gradient.'));
    const path = join(temporaryFolder(), 'a.png');
    writeFileSync(path, Buffer.from(png(3), 'base64'));
    const { code, stderr } = await chat(server, [], { input: `/image ${path}\nWhat is this?\n` });
    assert.deepEqual([code, stderr], [0, '']);
    const [image, words] = server.asked[0].body.messages[0].content;
    assert.deepEqual(image, { type: 'image_url', image_url: { url: `data:image/png;base64,${png(3)}` } });
    assert.deepEqual(words, { type: 'text', text: 'What is this?' });
  });
});

describe('what goes wrong is said', () => {
  // A first piece of text has arrived; `then` goes on.
  const broken = async (t, then, ...more) => chat(await fake(t, (response) => { begin(response); response.write(piece('So far')); then(response); }), [...more, 'Why?']);
  const rows = [
    ['a server that falls silent', () => {}, /the reply broke off: nothing came for 1 seconds/, '--timeout', '1'],
    ['a connection that is cut', (response) => setImmediate(() => response.destroy()), /the reply broke off: /],
    ['a stream without an end', (response) => response.end(), /the reply broke off: the server closed the connection before the end/],
    ['an error in the stream', (response) => response.end('data: {"error": {"message": "no more \\u001b[2Jcells", "code": "server_busy"}}\n\n'), /the server has ended the reply: no more \\u001b\[2Jcells\n/],
    ['an event that is no JSON', (response) => response.end('data: <html>\n\n'), /an event that is no JSON object.*<html>/],
    ['a line without an end', (response) => response.write(`data: ${'x'.repeat(5 << 20)}`), /a line of more than 4 MiB/],
    ['a stream of comments', (response) => response.end(`: ${'x'.repeat(1 << 20)}\n`.repeat(70)), /the reply broke off: the response has more than 64 MiB/],
  ];
  for (const [what, then, message, ...more] of rows) {
    test(`${what}; what had come is printed`, async (t) => {
      const { code, stdout, stderr } = await broken(t, then, ...more);
      assert.deepEqual([code, stdout], [1, 'So far\n']);
      assert.match(stderr, message);
    });
  }

  test('a page in place of a stream, and a refusal in any form', async (t) => {
    const answers = [
      [200, 'text/html', '<h1>Hello</h1>', /answers with 'text\/html', not with a stream of events/],
      [500, 'text/plain', 'oops', /status 500: is it a server of OpenAI's API\?/],
      [429, 'application/json', '{"error": {"message": "too much"}}', /status 429: too much: try again in a moment/],
      [400, 'application/json', '{"error": "no \\u001b]0;x"}', /status 400: no \\u001b\]0;x\n/],
    ];
    for (const [status, type, text, message] of answers) {
      const server = await fake(t, (response) => { response.writeHead(status, { 'Content-Type': type }); response.end(text); });
      const { code, stderr } = await chat(server, ['Why?']);
      assert.equal(code, 1);
      assert.match(stderr, message);
    }
  });

  test('a redirect is not followed, so that the key goes nowhere else', async (t) => {
    const other = await fake(t, (response) => reply(response, 'Stolen.'));
    const server = await fake(t, (response) => { response.writeHead(307, { Location: `${other.url}/v1/chat/completions` }); response.end(); });
    const { code, stderr } = await chat(server, ['Why?'], { env: { HEARTH_API_KEY: 'secret' } });
    assert.equal(code, 1);
    assert.match(stderr, /status 307/);
    assert.deepEqual(other.asked, []);
  });

  test('a reply that broke off stays in the conversation; one that never began leaves none', async (t) => {
    let n = 0;
    const server = await fake(t, (response) => {
      if (n++ === 0) { begin(response); response.end(piece('So far')); } else if (n === 2) { response.writeHead(503); response.end(); } else reply(response, 'Yes.');
    });
    const terminal = await Terminal.open(t, ['chat', '--server', server.url]);
    await terminal.asks();
    terminal.say('one');
    await terminal.shows(/So far\nhearth chat: the reply broke off: [^>]*\n>$/);
    terminal.say('two');
    await terminal.shows(/status 503[^>]*\n>$/);
    terminal.say('three');
    await terminal.shows(/Yes\.\n>$/); // no figures: the server named none
    assert.deepEqual(server.asked[2].body.messages.map((m) => m.content), ['one', 'So far', 'three']);
  });
});
