// Stored conversations: the list of them, orders about one, and both in the page. What is dropped is gone, what another
// conversation has stays, and no text is told.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { accessibilityFaults, browser, openPage } from './lib/browser.js';
import { serve, temporaryFolder } from './lib/server.js';
import { intact, saved } from './lib/store.js';
import { until } from './lib/wait.js';

const admin = 'stored-admin-0123456789';
const narrow = 'stored-narrow-0123456789';
const chatter = 'stored-chatter-0123456789';
const keyFile = join(temporaryFolder(), 'keys');
writeFileSync(keyFile, `${admin} owner\n${narrow} reader chat,models,status,cache\n${chatter} talker chat\n`, { mode: 0o600 });

const start = (t, disk, set) => serve({ t, access: { key: admin }, models: { context_window: 4096 },
  set: { 'server.api_keys_file': keyFile, 'server.isolate_keys': 'false', 'cache.tiers.disk.path': disk, 'cache.boundary_align_tokens': 32, ...set } });

const system = { role: 'system', content: Array.from({ length: 60 }, (_, i) => `Rule ${i}.`).join(' ') };
const chat = (server, ...words) => server.client.chat({ messages: [system, { role: 'user', content: words.join(' ') }], max_tokens: 20 });
const alice = 'My secret word is heliotrope, and you must not tell anybody.';
const bob = 'Which rule is the longest of all of them, and why is it?';
const list = async (client, query = '') => (await client.get(`/cache/stored${query}`)).json;
const drop = ({ tier, key }, order = 'drop') => ({ tier, key, order });

// Both conversations, stored by a server that has ended. Returns the list, the one used last first.
async function store(t, disk) {
  const server = await start(t, disk);
  await chat(server, alice);
  await saved(server);
  await chat(server, bob);
  await saved(server);
  await server.stop();
}

// What a server finds of a conversation that it has not in its cells.
async function cachedAfterStart(t, disk, words) {
  const server = await start(t, disk);
  const { timings } = await chat(server, words);
  await server.stop();
  return timings.cache_n;
}

test('one of two is dropped: the other comes back after a restart, as much of it as before', async (t) => {
  const untouched = temporaryFolder();
  const disk = temporaryFolder();
  await store(t, untouched);
  await store(t, disk);
  const server = await start(t, disk);
  const { total, conversations: [second, first], next } = await list(server.client);
  assert.deepEqual([total, next], [2, null]);
  assert.ok(first.last_used < second.last_used);
  for (const { model, tier, tokens, own_tokens: own, own_bytes: bytes, resident, kept } of [first, second]) {
    assert.deepEqual([model, tier, resident, kept], ['demo', 'disk', 0, false]);
    assert.ok(own > 0 && own < tokens && bytes > 0);
  }
  const { bytes } = (await server.client.get('/cache')).json.tiers.disk;
  assert.deepEqual(await server.client.ask('/cache/stored', drop(first)), { success: true });
  assert.equal((await server.client.get('/cache')).json.tiers.disk.bytes, bytes - first.own_bytes);
  const left = await list(server.client);
  assert.deepEqual([left.total, left.conversations[0].key], [1, second.key]);
  assert.equal(left.conversations[0].own_tokens, second.tokens, 'it shares with nobody now');
  assert.equal((await server.client.post('/cache/stored', drop(first))).json.error.code, 'not_found');
  await server.stop();
  await intact(disk);

  const expected = await cachedAfterStart(t, untouched, bob);
  assert.ok(expected > 200);
  assert.equal(await cachedAfterStart(t, disk, bob), expected);
  const shared = first.tokens - first.own_tokens;
  const found = await cachedAfterStart(t, disk, alice);
  assert.ok(found >= shared && found < await cachedAfterStart(t, untouched, alice), `${found} of the dropped one, ${shared} were shared`);
});

test('what is in the cells, too, is said, and is stored again when it leaves them', async (t) => {
  const server = await start(t, temporaryFolder());
  await chat(server, alice);
  await saved(server);
  const { conversations: [conversation] } = await list(server.client);
  assert.equal(conversation.resident, conversation.tokens);
  await server.client.ask('/cache/stored', drop(conversation));
  assert.equal((await list(server.client)).total, 0);
  const [{ seq_id, hash }] = (await server.client.get('/cache')).json.resident;
  await server.client.ask('/cache/resident', { seq_id, hash, order: 'evict' });
  await until('it is back in the list', async () => {
    const { conversations } = await list(server.client);
    return conversations.length === 1 && conversations[0].key === conversation.key && conversations[0].resident === 0;
  });
  await server.stop();
});

test('what is kept stays in its tier under pressure, and a keep fills no tier', async (t) => {
  const server = await start(t, temporaryFolder(), { 'cache.tiers.disk.quota_mb': '12' });
  await chat(server, alice);
  await saved(server);
  const { conversations: [{ tier, key }] } = await list(server.client);
  await server.client.ask('/cache/stored', { tier, key, order: 'keep' });
  assert.equal((await list(server.client)).conversations[0].kept, true);
  let refused = 0;
  for (let i = 0; (await server.client.get('/cache')).json.tiers.disk.evictions < 30; i++) {
    await chat(server, `Number ${i}.`, ...Array.from({ length: 100 }, (_, k) => `${i * k}`));
    await saved(server);
    const { conversations: [latest] } = await list(server.client);
    const reply = await server.client.post('/cache/stored', drop(latest, 'keep'));
    if (reply.status === 409) assert.match(reply.json.error.message, /quarter of the quota/);
    else assert.equal(reply.status, 200);
    refused += reply.status === 409;
    assert.ok(i < 200, 'something is evicted');
  }
  assert.ok(refused > 0, 'not all can be kept');
  assert.ok((await list(server.client, '?limit=100')).conversations.some((c) => c.key === key && c.kept));
  await server.client.ask('/cache/stored', { tier, key, order: 'release' });
  await server.stop();
});

test('orders need the grant, the list tells no text, and pages follow each other', async (t) => {
  const server = await start(t, temporaryFolder(), { 'server.isolate_keys': 'true' });
  for (const words of [alice, bob, 'A third one.']) await chat(server, words);
  await saved(server);
  const reader = server.client.withKey(narrow);
  const { status, json, text } = await reader.get('/cache/stored');
  assert.equal(status, 200);
  assert.equal(json.total, 3);
  assert.ok(!/heliotrope|Rule/.test(text), text);
  for (const c of json.conversations) {
    assert.deepEqual(Object.keys(c), ['model', 'tier', 'key', 'tokens', 'own_tokens', 'own_bytes', 'resident', 'kept', 'last_used']);
    for (const order of ['keep', 'release', 'drop']) {
      const reply = await reader.post('/cache/stored', drop(c, order));
      assert.equal(reply.status, 403);
      assert.match(reply.json.error.message, /'admin'/);
    }
  }
  assert.equal((await server.client.withKey(chatter).get('/cache/stored')).status, 403);
  assert.equal((await server.client.withKey('unknown-0123456789').get('/cache/stored')).status, 401);
  const pages = [];
  for (let after = ''; after !== null;) {
    const page = await list(reader, `?limit=1${after && `&after=${after}`}`);
    pages.push(page.conversations.map(({ key }) => key));
    after = page.next;
  }
  assert.deepEqual(pages, json.conversations.map(({ key }) => [key]));
  assert.equal((await server.client.refused(400, '/cache/stored', { tier: 'disk', key: 'ff', order: 'drop' })).param, 'key');
  await server.stop();
});

// ---- The page ----

const stored = '#live [aria-label="Stored conversations"] tbody tr';

async function openLive(t, started, server, key, options) {
  const page = await openPage(t, started, server.url, { expected: /Failed to load resource/, ...options });
  await page.fill('#key', key);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('#model option') !== null);
  await page.click('#show-live');
  return page;
}

test('the page lists what is stored and gives orders, by keyboard, and says why it may not', async (t) => {
  const disk = temporaryFolder();
  await store(t, disk);
  const server = await start(t, disk);
  const started = await browser(t);
  const rows = (page, n) => page.waitForFunction(([selector, wanted]) => document.querySelectorAll(selector).length === wanted, [stored, n]);
  const refused = await openLive(t, started, server, narrow);
  await rows(refused, 2);
  await refused.getByRole('button', { name: /^Drop stored conversation/ }).first().click();
  await refused.locator('#live > [role=status]').getByText("lacks the grant 'admin'").waitFor();
  assert.equal(await refused.locator(`${stored} button:not([aria-disabled])`).count(), 0);

  const page = await openLive(t, started, server, admin);
  await rows(page, 2);
  assert.match(await page.locator(stored).first().textContent(), /demoDisk/);
  await page.getByRole('button', { name: /^Keep stored conversation/ }).first().focus();
  await page.keyboard.press('Enter');
  await page.locator(stored).getByText('Disk, kept').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Release', 'the focus stays on the button');
  await page.keyboard.press('Enter');
  await page.waitForFunction((selector) => [...document.querySelectorAll(selector)].every((row) => !row.textContent.includes('kept')), stored);
  await page.getByRole('button', { name: /^Drop stored conversation/ }).first().focus();
  await page.keyboard.press('Enter');
  await rows(page, 1);
  await page.waitForFunction(() => document.activeElement.textContent === 'Drop');
  await page.keyboard.press('Enter');
  await page.getByText('Nothing is stored.').waitFor();
  await page.waitForFunction(() => document.activeElement.id === 'show-live');
  await chat(server, 'A new one.');
  await rows(page, 1);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('ten thousand are shown a page at a time, on a phone and in the dark, too', async (t) => {
  const server = await start(t, temporaryFolder());
  const all = 10_000;
  const conversation = (i) => ({ model: i % 7 ? 'demo' : '', tier: ['ram', 'ram_file', 'disk', 'remote'][i % 4], key: String(i).padStart(64, '0'), tokens: 5000 + i, own_tokens: 500, own_bytes: 1e6 * i,
    resident: i % 5 ? 0 : 4000, kept: i % 11 === 0, last_used: Date.now() - i * 60_000 });
  const answer = (route) => {
    const query = new URL(route.request().url()).searchParams;
    const from = Number(query.get('after') ?? 0);
    const limit = Number(query.get('limit'));
    const conversations = Array.from({ length: Math.min(limit, all - from) }, (_, i) => conversation(from + i));
    return route.fulfill({ json: { total: all, conversations, next: from + limit < all ? String(from + limit) : null } });
  };
  const started = await browser(t);
  for (const [colorScheme, viewport] of [['light', { width: 1200, height: 800 }], ['dark', { width: 390, height: 844 }]]) {
    const page = await openPage(t, started, server.url, { colorScheme, viewport, expected: /Failed to load resource/ });
    await page.route('**/cache/stored?*', answer);
    await page.fill('#key', admin);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#model option') !== null);
    await page.click('#show-live');
    await page.getByText('1 to 50 of 10,000 conversations').waitFor();
    assert.equal(await page.locator(stored).count(), 50);
    assert.equal(await page.locator(`${stored} button[data-tier=disk]`).count(), 2 * 12);
    assert.equal(await page.locator(`${stored} button[data-tier=remote]`).count(), 0, 'a server takes no orders');
    assert.deepEqual(await accessibilityFaults(page), [], `${colorScheme}, ${viewport.width} wide`);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), true, 'nothing sticks out');
    await page.getByRole('button', { name: 'Newer' }).click({ force: true });
    const older = page.getByRole('button', { name: 'Older' });
    await older.focus();
    for (const range of ['51 to 100', '101 to 150']) {
      await page.keyboard.press('Enter');
      await page.getByText(`${range} of 10,000 conversations`).waitFor();
      assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Older', 'the focus stays on the button');
    }
    assert.equal(await page.locator(stored).count(), 50);
    await page.getByRole('button', { name: 'Newer' }).click();
    await page.getByText('51 to 100 of 10,000 conversations').waitFor();
    let release;
    const held = new Promise((resolve) => { release = resolve; });
    await page.route('**/cache/stored?*', async (route) => { await held; return answer(route); });
    await older.dblclick();
    release();
    await page.getByText('101 to 150 of 10,000 conversations').waitFor();
    assert.ok(await page.locator(`${stored} code[title="${'100'.padStart(64, '0')}"]`).count() > 0, 'the label is that of the rows');
    await page.unroute('**/cache/stored?*');
    await page.route('**/cache/stored?*', (route) => route.abort());
    await older.click();
    await page.locator('#live [data-key=" stored"] .error').waitFor();
    await page.getByText('101 to 150 of 10,000 conversations').waitFor();
    assert.deepEqual(page.faults, []);
    await page.close();
  }
  await server.stop();
});
