// GET /live: reports come while something happens, and cost nobody anything; the page reads them only while they are
// seen.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { browser, openPage } from './lib/browser.js';
import { serve, temporaryFolder } from './lib/server.js';
import { until, within } from './lib/wait.js';

// Reads the stream to its end, or until `enough` of its reports: `seen`, [{at, slots, cache, models}].
async function reports(client, enough = () => false, seen = []) {
  const [request, response] = await client.send('GET', '/live');
  assert.equal(response.statusCode, 200);
  assert.match(response.headers['content-type'], /^text\/event-stream/);
  let rest = '';
  for await (const chunk of response.setEncoding('utf8')) {
    const events = (rest + chunk).split('\n\n');
    rest = events.pop();
    for (const event of events) seen.push({ at: performance.now(), ...JSON.parse(event.replace(/^data: /, '')) });
    if (enough(seen)) break;
  }
  request.destroy();
  return seen;
}

const busy = ({ slots }) => slots.some(({ is_processing }) => is_processing);
const watched = async (server) => (await server.client.metrics()).get('hearth_http_requests_total{route="/live",status="499"}') ?? 0;

test('reports tell what a request does, at most four times a second', async (t) => {
  const server = await serve({ t });
  const began = performance.now();
  const told = [];
  const seen = reports(server.client, (list) => list.some(busy) && !busy(list.at(-1)) && list.length > 4, told);
  await until('the first report is there before anything happens', () => told.length > 0);
  const { timings } = await server.client.chat({ messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 1800, ignore_eos: true, 'speculative.n_max': 0 }); // with drafts it may be over before a second report
  assert.equal(timings.predicted_n, 1800);
  const list = await seen;
  assert.deepEqual(Object.keys(list[0]).sort(), ['at', 'cache', 'models', 'slots']);
  assert.deepEqual(list[0].cache.resident, []);
  const made = list.filter(busy).map(({ slots }) => slots.find(({ is_processing }) => is_processing).next_token[0].n_decoded);
  assert.ok(made.length > 1 && made.every((n, i) => i === 0 || n >= made[i - 1]), `it grows: ${made}`);
  assert.equal(list.at(-1).cache.resident.length, 1);
  const generated = ({ models }) => models[0].generated_tokens;
  assert.deepEqual([generated(list[0]), generated(list.at(-1))], [0, 1800]);
  assert.ok((list.at(-1).at - began) / 250 + 1 >= list.length, `${list.length} reports in ${list.at(-1).at - began} ms`);
  assert.deepEqual((await server.client.get('/cache')).json.resident, list.at(-1).cache.resident);
  await server.stop();
});

test('what comes with a request to watch takes no memory from others', async (t) => {
  const server = await serve({ t });
  const size = 32 << 20, block = Buffer.alloc(1 << 20); // eight of them are as many as there may be of all bodies
  for (let i = 0; i < 9; i++) {
    const socket = connect(server.port, '127.0.0.1');
    socket.on('error', () => {}); // it is ended with the test
    t.after(() => socket.destroy());
    socket.write(`GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${size}\r\n\r\n`);
    await within(30, 'its body is taken', (async () => {
      for (let sent = 0; sent < size; sent += block.length) if (!socket.write(block)) await once(socket, 'drain');
      await once(socket, 'data');
    })());
  }
  const { status } = await within(20, 'a request is answered', server.client.post('/tokenize', { content: 'Hello.' }));
  assert.equal(status, 200);
  await server.stop();
});

test('who watches holds up no shutdown, and twenty who watch no reply', async (t) => {
  const server = await serve({ t });
  const lists = Array.from({ length: 20 }, () => []);
  const streams = lists.map((seen) => reports(server.client, undefined, seen).catch((error) => error));
  await until('all watch', async () => (await server.client.metric('hearth_http_active_requests')) >= 21);
  await server.client.chat({ messages: [{ role: 'user', content: 'Hello.' }], max_tokens: 50 });
  await until('each is told of the reply', () => lists.every((seen) => seen.some(({ cache }) => cache.resident.length > 0)));
  await server.stop();
  for (const end of await Promise.all(streams)) assert.ok(Array.isArray(end), `the stream ends in good order: ${end}`);
});

test('the page watches while its view is seen, and asks again when the server is back', async (t) => {
  const key = 'live-test-key-0123456789';
  const keyFile = join(temporaryFolder(), 'keys');
  writeFileSync(keyFile, `${key} viewer chat,models,status,cache\n`, { mode: 0o600 });
  const server = await serve({ t, set: { 'server.api_keys_file': keyFile }, access: { key } });
  const page = await openPage(t, await browser(t), server.url, { expected: /Failed to load resource/ });
  await page.fill('#key', key);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('#model option') !== null);
  assert.equal(await watched(server), 0);
  await page.click('#show-live');
  await page.locator('#live .cards').waitFor();
  await server.client.chat({ messages: [{ role: 'user', content: 'Hello.' }], max_tokens: 50 });
  await page.locator('#live [aria-label="Conversations in the cells"] tbody tr').waitFor();
  await page.locator('#live [aria-label="Conversations in the cells"]').focus();
  await server.client.chat({ messages: [{ role: 'user', content: 'Who are you?' }], max_tokens: 50 });
  await page.waitForFunction(() => document.querySelectorAll('#live [aria-label="Conversations in the cells"] tbody tr').length === 2);
  assert.equal(await page.evaluate(() => document.activeElement.className), 'scrolls', 'what has the focus keeps it');
  await page.click('#show-chat');
  await until('it has stopped', async () => await watched(server) === 1);
  await page.click('#show-live');
  await until('it watches again', async () => (await server.client.metric('hearth_http_active_requests')) >= 2);
  server.signal('SIGHUP');
  await server.says(/reloaded/);
  const rows = await page.locator('#live [aria-label="Conversations in the cells"] tbody tr').count();
  await server.client.chat({ messages: [{ role: 'user', content: 'What can you do for me?' }], max_tokens: 50 });
  await page.waitForFunction((n) => document.querySelectorAll('#live [aria-label="Conversations in the cells"] tbody tr').length === n + 1, rows);
  assert.deepEqual(page.faults, []);
  await server.stop();
  await page.getByText('The server does not answer.').waitFor();
});

const resident = async (client) => (await client.get('/cache')).json.resident;
const say = (client, content, more) => client.chat({ messages: [{ role: 'user', content }], max_tokens: 20, ...more });

// Two conversations, the first of which is idle and the one that was used last.
async function converse(server) {
  const words = (n) => Array.from({ length: 150 }, (_, i) => `${n}${i}`).join(' ');
  for (const n of [1, 2]) await say(server.client, words(n));
  return words;
}

test('orders keep a conversation in the cells, or store it and free them', async (t) => {
  const admin = 'orders-admin-0123456789';
  const narrow = 'orders-narrow-0123456789';
  const keyFile = join(temporaryFolder(), 'keys');
  writeFileSync(keyFile, `${admin} owner\n${narrow} reader chat,models,status,cache\n`, { mode: 0o600 });
  const server = await serve({ t, set: { 'server.api_keys_file': keyFile, 'server.isolate_keys': 'false' }, access: { key: admin } });
  const words = await converse(server);
  const [first, second] = await until('both are idle', async () => {
    const list = await resident(server.client);
    return list.length === 2 && list.every(({ state }) => state === 'idle') && list;
  });
  const order = ({ seq_id, hash }, name) => ({ seq_id, hash, order: name });
  assert.equal((await server.client.withKey(narrow).post('/cache/resident', order(first, 'keep'))).status, 403);
  const gone = await server.client.post('/cache/resident', order({ ...first, hash: second.hash }, 'evict'));
  assert.deepEqual([gone.status, gone.json.error.code, gone.json.error.param], [404, 'not_found', 'hash']);
  const unknown = await server.client.post('/cache/resident', { ...order(first, 'keep'), model: 'nobody' });
  assert.deepEqual([unknown.status, unknown.json.error.code], [404, 'model_not_found']);
  assert.deepEqual((await resident(server.client)).map(({ kept }) => kept), [false, false]);

  assert.deepEqual(await server.client.ask('/cache/resident', order(first, 'keep')), { success: true });
  assert.deepEqual((await resident(server.client)).map(({ kept }) => kept), [true, false]);
  await server.client.ask('/cache/resident', order(second, 'evict'));
  await until('it has left', async () => (await resident(server.client)).length === 1);
  assert.equal((await server.client.post('/cache/resident', order(second, 'evict'))).status, 404);
  const { timings } = await say(server.client, words(2), { max_tokens: 1 });
  assert.ok(timings.cache_n > 100 && timings.restore_ms > 0, `it comes back from the store: ${JSON.stringify(timings)}`);
  await server.client.ask('/cache/resident', order(first, 'release'));
  assert.ok((await resident(server.client)).every(({ kept }) => !kept));
  await server.stop();
});

test('the page gives orders, and says why it may not', async (t) => {
  const admin = 'orders-admin-0123456789';
  const narrow = 'orders-narrow-0123456789';
  const keyFile = join(temporaryFolder(), 'keys');
  writeFileSync(keyFile, `${admin} owner\n${narrow} reader chat,models,status,cache\n`, { mode: 0o600 });
  const server = await serve({ t, set: { 'server.api_keys_file': keyFile, 'server.isolate_keys': 'false' }, access: { key: admin } });
  await converse(server);
  const started = await browser(t);
  const open = async (key) => {
    const page = await openPage(t, started, server.url, { expected: /Failed to load resource/ });
    await page.fill('#key', key);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#model option') !== null);
    await page.click('#show-live');
    await page.waitForFunction(() => document.querySelectorAll('#live [aria-label="Conversations in the cells"] tbody tr').length === 2);
    return page;
  };
  const refused = await open(narrow);
  await refused.getByRole('button', { name: /^Evict sequence/ }).first().click();
  await refused.locator('#live > [role=status]').getByText("lacks the grant 'admin'").waitFor();
  assert.equal(await refused.locator('#live .orders button:not([aria-disabled])').count(), 0);
  assert.equal((await resident(server.client)).length, 2);

  const page = await open(admin);
  const keep = page.getByRole('button', { name: /^Keep sequence/ }).first();
  await keep.focus();
  await page.keyboard.press('Enter');
  await page.locator('#live .cell.kept').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Release', 'the focus stays on the button');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('#live .cell.kept') === null);
  await page.getByRole('button', { name: /^Evict sequence/ }).last().click();
  await page.waitForFunction(() => document.querySelectorAll('#live [aria-label="Conversations in the cells"] tbody tr').length === 1);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('where conversations part is a tree, in numbers and as a picture', async (t) => {
  const server = await serve({ t });
  const system = { role: 'system', content: 'You are a helpful assistant who answers in few words, and who never tells anybody how it came to know so much about ships, sails and harbours.' };
  const ask = (...words) => server.client.chat({ messages: [system, ...words.map((content, i) => ({ role: i % 2 ? 'assistant' : 'user', content }))], max_tokens: 8, ignore_eos: true });
  await ask('Tell me about the wind in the north of the country.');
  await ask('Tell me about the wind in the south, where it is warm.');
  await ask('Which ship is the largest one that was ever built?');
  await server.client.idle();
  const { resident } = (await server.client.get('/cache')).json;
  const at = new Map(resident.map((one, i) => [one.seq_id, i]));
  assert.equal(resident.length, 3);
  assert.deepEqual(resident.map(({ branch_of: of }) => of >= 0), [false, true, true], JSON.stringify(resident));
  for (const [i, one] of resident.entries()) {
    if (one.branch_of < 0) { assert.equal(one.branch_at, 0); continue; }
    assert.ok(at.get(one.branch_of) < i, 'it is one before it in the list');
    assert.ok(one.branch_at > 20 && one.branch_at < one.tokens && one.branch_at < resident[at.get(one.branch_of)].tokens && one.branch_at <= one.shared_tokens, JSON.stringify(one));
  }
  const page = await openPage(t, await browser(t), server.url);
  await page.getByRole('button', { name: 'Cache' }).click();
  await page.locator('svg.tree line').nth(2).waitFor({ state: 'attached' });
  assert.equal(await page.locator('svg.tree .joint').count(), 2);
  const label = await page.locator('svg.tree').getAttribute('aria-label');
  for (const { seq_id: id, tokens } of resident) assert.match(label, new RegExp(`\\b${id} has ${tokens} tokens`));
  const [left, right] = await page.evaluate(() => [...document.querySelectorAll('svg.tree .joint')].map((joint) => joint.getBBox().x).sort((a, b) => a - b));
  assert.ok(left > 0 && right < 600, `${left}, ${right}`);
  await page.locator('section[data-key="saved"]').getByText(/demo: \d+ of \d+ prompt tokens since the start, \d+ %/).waitFor();
  assert.deepEqual(page.faults, []);
  await server.stop();
});
