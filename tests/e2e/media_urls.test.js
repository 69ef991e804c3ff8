// Images that requests name by URL: what is fetched, from where not, and that nobody waits for a server that is slow.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { png } from './lib/media.js';
import { demo, projectorFor } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { until } from './lib/wait.js';

const MIB = 1 << 20;
const waiting = new Set(); // answers that never come
let paths; // that were asked for

const answer = (request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://site');
  paths.push(request.url);
  const [, what, number] = pathname.split('/');
  if (what === 'image') response.end(Buffer.from(png(Number(number)), 'base64'));
  else if (what === 'to') response.writeHead(302, { location: searchParams.get('url') }).end();
  else if (what === 'many') response.writeHead(302, { location: number === '0' ? '/image/1' : `/many/${number - 1}` }).end();
  else if (what === 'large') response.writeHead(200, { 'content-length': 2 * MIB }).end(Buffer.alloc(2 * MIB));
  else if (what === 'endless') { response.writeHead(200); const more = () => { while (response.write(Buffer.alloc(65536))); response.once('drain', more); }; more(); }
  else if (what === 'hang') waiting.add(response);
  else response.writeHead(404).end();
};
const site = createServer(answer);
const beside = createServer(answer); // the same at an address that the configuration does not name

const start = (options = {}) => serve({
  ...options,
  models: { context_window: 2048, n_seq_max: 2, cache_min_tokens: 0, mmproj: projectorFor(demo, 'llava'), ...options.models },
});
const question = (url) => ({ role: 'user', content: [{ type: 'image_url', image_url: { url } }, { type: 'text', text: 'What is this?' }] });
const ask = (server, ...urls) => server.client.post('/v1/chat/completions', { temperature: 0, max_tokens: 8, messages: urls.map(question) });

describe('URLs', () => {
  let server, at, port;
  before(async () => {
    site.listen(0, '127.0.0.1');
    await once(site, 'listening');
    ({ port } = site.address());
    beside.listen(port, '127.0.0.2');
    await once(beside, 'listening');
    at = `http://127.0.0.1:${port}`;
    server = await start({ models: { media_urls: true, media_url_hosts: JSON.stringify([`127.0.0.1:${port}`, 'localhost']), media_url_mb: 1, media_url_seconds: 5 } });
  });
  after(async () => {
    await server.stop();
    site.closeAllConnections();
    site.close();
    beside.close();
  });
  // Each test sees its own requests.
  const refused = async (says, ...urls) => {
    paths = [];
    const { status, json: { error } } = await ask(server, ...urls);
    assert.equal(status, 400, JSON.stringify(error));
    assert.equal(error.param, `messages[${urls.length - 1}].content[0].image_url.url`);
    assert.match(error.message, says);
  };

  test('an image by its URL is the image', async () => {
    paths = [];
    const { json: sent } = await ask(server, `data:image/png;base64,${png(1)}`);
    const { json: named, text } = await ask(server, `${at}/image/1?token=secret`);
    assert.equal(named.choices?.[0].message.content, sent.choices[0].message.content, text);
    assert.ok(named.usage.prompt_tokens_details.cached_tokens >= sent.usage.prompt_tokens - 1, JSON.stringify(named.usage));
    assert.equal(await server.client.metric('hearth_media_encoded_total'), 1);
    assert.deepEqual(paths, ['/image/1?token=secret']);
    await server.says(/fetched a medium.* from=http:\/\/127\.0\.0\.1:\d+ bytes=/);
    assert.ok(!server.log.includes('secret'));
    const { status } = await ask(server, `${at}/many/2`);
    assert.equal(status, 200);
  });

  test('nothing is fetched from an address that is not public', async () => {
    // All of this machine: a check that is broken reaches nobody else. Which addresses are public is a table in unit_media_test_media_fetch.
    for (const url of [`http://127.0.0.2:${port}/image/1`, `http://[::1]:${port}/image/1`, `http://0x7f000002:${port}/image/1`, `http://2130706434:${port}/image/1`,
      `http://[::ffff:127.0.0.2]:${port}/image/1`, `http://0.0.0.0:${port}/image/1`, `${at}/to?url=http://127.0.0.2:${port}/`, `${at}/to?url=http://127.0.0.2:${port}/image/1`]) {
      await refused(/is not fetched: the address of .* is not public/, url);
      assert.deepEqual(paths.filter((path) => !path.startsWith('/to?')), [], url);
    }
  });

  test('what is too large, too slow or not there is refused', async () => {
    await refused(/larger than a request's files may be together: models\.\*\.media_url_mb/, `${at}/large`);
    await refused(/media_url_mb/, `${at}/endless`);
    await refused(/takes 127\.0\.0\.1 too long: models\.\*\.media_url_seconds/, `${at}/hang`);
    await refused(/too long/, `${at}/image/1`, `${at}/hang`);
    await refused(/127\.0\.0\.1 answered 404/, `${at}/nothing`);
    await refused(/redirected more than 3 times/, `${at}/many/9`);
    await refused(/kind that is not fetched/, 'ftp://127.0.0.1/a.png');
    await refused(/is no URL that can be fetched/, `${at}/to?url=file:///etc/passwd`);
    await refused(/a user's name/, at.replace('//', '//me:secret@') + '/image/1');
    await refused(/models\.\*\.media_path/, 'file:///etc/passwd');
  });

  test('others do not wait for a server that hangs, and a client that leaves ends it', async () => {
    const n = waiting.size;
    const left = new AbortController();
    const slow = fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, signal: left.signal,
      body: JSON.stringify({ max_tokens: 4, messages: [question(`${at}/hang`)] }),
    });
    await until('the site is asked', () => waiting.size > n);
    assert.equal((await server.client.post('/v1/chat/completions', { max_tokens: 4, messages: [{ role: 'user', content: 'Hello.' }] })).status, 200);
    assert.equal((await ask(server, `data:image/png;base64,${png(1)}`)).status, 200);
    assert.equal((await ask(server, `${at}/image/1`)).status, 200);
    left.abort();
    await assert.rejects(slow);
    await until('the site is left', () => [...waiting].at(-1).destroyed, { seconds: 3 });
  });

  test('nor do others that only want their prompts', async () => {
    paths = [];
    let over = false;
    const counted = server.client.post('/v1/messages/count_tokens', {
      messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url: `${at}/hang` } }] }],
    }).finally(() => { over = true; });
    await until('the URL is asked for', () => paths.includes('/hang'));
    for (let i = 0; i < 3; i++) assert.equal((await server.client.post('/tokenize', { content: 'Once' })).status, 200);
    assert.equal(over, false);
    assert.match((await counted).text, /too long/);
  });
});

test('a server ends in its time while a URL hangs', async (t) => {
  const hangs = createServer((request, response) => waiting.add(response)).listen(0, '127.0.0.1');
  await once(hangs, 'listening');
  t.after(() => { hangs.closeAllConnections(); hangs.close(); });
  const server = await start({ t, models: { media_urls: true, media_url_hosts: ['127.0.0.1'], media_url_seconds: 600 }, set: { 'server.drain_timeout': 1 } });
  const n = waiting.size;
  const slow = ask(server, `http://127.0.0.1:${hangs.address().port}/`).catch(() => undefined);
  await until('the site is asked', () => waiting.size > n);
  const began = Date.now();
  await server.stop();
  assert.ok(Date.now() - began < 8000, `${Date.now() - began} ms`);
  await slow;
});

test('files below models.*.media_path, and none beside it', async (t) => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'pictures'));
  writeFileSync(join(folder, 'pictures', 'a b.png'), Buffer.from(png(2), 'base64'));
  writeFileSync(join(folder, 'beside.png'), Buffer.from(png(3), 'base64'));
  symlinkSync('../beside.png', join(folder, 'pictures', 'link.png'));
  const server = await start({ t, models: { media_path: join(folder, 'pictures') } });
  const { json: sent } = await ask(server, `data:image/png;base64,${png(2)}`);
  const { json: named } = await ask(server, 'file://a%20b.png');
  assert.equal(named.choices[0].message.content, sent.choices[0].message.content);
  for (const url of ['file://../beside.png', 'file://link.png', 'file:///etc/hostname', `file://${folder}/beside.png`]) {
    const { status, json: { error } } = await ask(server, url);
    assert.equal(status, 400, url);
    assert.match(error.message, /is no file below models\.\*\.media_path/);
    assert.ok(!error.message.includes(folder));
  }
  await server.stop();
});

test('a model that takes text only fetches nothing, unless it may', async (t) => {
  let asked = 0;
  const counts = createServer((request, response) => { asked++; response.end(); }).listen(0, '127.0.0.1');
  await once(counts, 'listening');
  t.after(() => { counts.closeAllConnections(); counts.close(); });
  const server = await serve({ t, models: { context_window: 1024 } });
  assert.equal((await ask(server, `http://127.0.0.1:${counts.address().port}/`)).status, 200);
  assert.equal(asked, 0);
  await server.stop();
});
