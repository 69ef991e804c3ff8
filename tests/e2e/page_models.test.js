// The view of models: whether one fits, getting one, pausing, loading, removing; from a source that the test holds back.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { accessibilityFaults, browser, openPage } from './lib/browser.js';
import { Mirror } from './lib/mirror.js';
import { demo } from './lib/models.js';
import { replied, send, textOf } from './lib/page.js';
import { serve, temporaryFolder } from './lib/server.js';

const MIB = 1 << 20;
const REF = 'hf:a/b:Q4_K_M', NAME = 'm-Q4_K_M';

// A whole model file of this size: bytes after the last tensor do no harm.
function modelOf(size) {
  const bytes = Buffer.alloc(size);
  readFileSync(demo).copy(bytes);
  createHash('sha256').update('1').digest().copy(bytes, size - 32);
  return bytes;
}

async function open(t, { size = 4 * MIB, into = join(temporaryFolder(), 'models'), ...options } = {}, view = {}) {
  const mirror = await Mirror.open(t, { 'a/b/m-Q4_K_M.gguf': modelOf(size) });
  const server = await serve({ t, env: mirror.environment(into), ...options });
  const page = await openPage(t, await browser(t), server.url, view);
  if (options.access) {
    await page.fill('#key', options.access.key);
    await page.click('#access-done');
  }
  await page.getByRole('button', { name: 'Models', exact: true }).click();
  await page.locator('#models h2').getByText('On this server').waitFor();
  return { mirror, server, into, page };
}

const ask = async (page, ref) => {
  await page.fill('#pull-ref', ref);
  await page.keyboard.press('Enter');
};
const row = (page, name) => page.locator('#models section[data-key="list"] tr').filter({ hasText: name });
const has = (page, name, state) => row(page, name).filter({ hasText: state }).waitFor({ timeout: 60_000 });

// Bytes of files wait from the nth request on, until release().
function hold(mirror, after) {
  const waiting = [];
  let isOpen = false, n = 0;
  mirror.faults.answer = (request, response, file) => {
    if (isOpen || request.headers.range === 'bytes=0-0' || n++ < after) return false;
    waiting.push(() => mirror.send(request, response, file));
    return true;
  };
  return () => { isOpen = true; waiting.forEach((go) => go()); };
}

test('a model is got, chatted with, unloaded, loaded and removed, all on the page', async (t) => {
  const { server, into, page } = await open(t);
  assert.match(await textOf(row(page, 'demo')), /^demo ?loaded.*MiB2,048tools ?Chat ?Unload ?Remove/);
  await ask(page, REF);
  await page.getByText(`${NAME} is there.`).waitFor({ timeout: 60_000 });
  await has(page, NAME, 'unloaded');
  assert.equal(await page.locator('#models .pull').count(), 0);
  await page.getByRole('button', { name: `Chat with ${NAME}` }).click();
  assert.equal(await page.inputValue('#model'), NAME);
  await send(page, 'My name is Ottilie.');
  await replied(page, 1);
  assert.match(await textOf(page.locator('.message.assistant .when')), new RegExp(`^${NAME} · `));
  await page.getByRole('button', { name: 'Models', exact: true }).click();
  await has(page, NAME, /(?<!un)loaded/);
  await page.getByRole('button', { name: `Unload ${NAME}` }).click();
  await page.getByRole('button', { name: `Load ${NAME}` }).waitFor();
  await page.getByRole('button', { name: `Load ${NAME}` }).click();
  await page.getByRole('button', { name: `Unload ${NAME}` }).waitFor();
  page.once('dialog', (dialog) => dialog.dismiss());
  await page.getByRole('button', { name: `Remove ${NAME}` }).click();
  assert.ok(existsSync(join(into, NAME)), 'it was asked first');
  page.once('dialog', (dialog) => dialog.accept());
  await page.getByRole('button', { name: `Remove ${NAME}` }).click();
  await row(page, NAME).waitFor({ state: 'detached' });
  assert.ok(!existsSync(join(into, NAME)));
  assert.deepEqual(await page.locator('#model option').allTextContents(), ['demo']);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('what was paused, or lost with the page, goes on where it was', async (t) => {
  const { mirror, server, page } = await open(t, { size: 40 * MIB });
  const release = hold(mirror, 2);
  await ask(page, REF);
  await page.locator('#models .pull').getByText(/[1-9]\d*\.\d MiB of 40\.0 MiB/).waitFor({ timeout: 60_000 });
  await page.getByRole('button', { name: `Pause ${REF}` }).click();
  await page.locator('#models .pull').getByText(/Paused/).waitFor();
  await page.getByRole('button', { name: `Resume ${REF}` }).click();
  await page.locator('#models .pull').getByText(/MiB of 40\.0 MiB/).waitFor({ timeout: 60_000 });
  await page.reload();
  await page.getByRole('button', { name: 'Models', exact: true }).click();
  release();
  await page.getByRole('button', { name: `Resume ${REF}` }).click();
  await page.getByText(`${NAME} is there.`).waitFor({ timeout: 60_000 });
  assert.ok(mirror.sent < 70 * MIB, `${mirror.sent / MIB} MiB were sent of 40`);
  await page.reload();
  await page.getByRole('button', { name: 'Models', exact: true }).click();
  await has(page, NAME, 'unloaded');
  assert.equal(await page.locator('#models .pull').count(), 0);
  await server.stop();
});

test('what cannot be got says why, and can be tried again or cancelled', async (t) => {
  const { server, page } = await open(t, {}, { expected: /Failed to load resource/ });
  await ask(page, 'hf:a/nothing');
  await page.locator('#models .pull .error').waitFor({ timeout: 60_000 });
  assert.match(await textOf(page.locator('#models .pull')), /a\/nothing.*Try again ?Cancel/);
  await page.getByRole('button', { name: 'Try again: hf:a/nothing' }).click();
  await page.locator('#models .pull .error').waitFor({ timeout: 60_000 });
  await page.getByRole('button', { name: 'Cancel hf:a/nothing' }).click();
  assert.equal(await page.locator('#models .pull').count(), 0);
  page.once('dialog', (dialog) => dialog.accept());
  await page.getByRole('button', { name: 'Remove demo' }).click();
  await page.locator('#models .error').getByText(/demo/).waitFor();
  assert.match(await textOf(row(page, 'demo')), /loaded/);
  await server.stop();
});

const typed = (page) => page.locator('#models section[data-key="get"] .fit');

test('whether a model fits is told before it is got', async (t) => {
  const { mirror, server, into, page } = await open(t);
  assert.equal(await textOf(typed(page)), '');
  assert.equal(await typed(page).getAttribute('role'), 'status');
  await page.getByRole('button', { name: 'Does it fit?', exact: true }).click();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'pull-ref', 'a name is wanted first');
  assert.deepEqual(mirror.requests, []);
  await page.fill('#pull-ref', REF);
  await page.getByRole('button', { name: 'Does it fit?', exact: true }).click();
  await typed(page).getByText(/^Fits/).waitFor({ timeout: 60_000 });
  assert.match(await textOf(typed(page)), /^Fits this machine\. 4\.0 MiB to fetch\. It takes [\d.]+ [MG]iB of memory \([\d.]+ GiB are free\).*\. Window: 2,048 tokens\.$/);
  assert.ok(!existsSync(into) && mirror.sent <= MIB + 1, `${mirror.sent} bytes were sent`);
  assert.equal(await page.inputValue('#pull-ref'), REF, 'and it can be got');
  await page.locator('#pull-ref').press('End');
  await page.locator('#pull-ref').press('Backspace');
  assert.equal(await textOf(typed(page)), '', 'another one was not asked about');
  await ask(page, REF);
  await page.getByText(`${NAME} is there.`).waitFor({ timeout: 60_000 });
  assert.equal(await textOf(typed(page)), '');
  await server.stop();
});

test('a model that does not fit says why, and so does one of which that cannot be told; both can be got', async (t) => {
  const { server, page } = await open(t, {}, { expected: /Failed to load resource/ });
  await page.route('**/models/fit', (route) => route.fulfill({ json: {
    model: 'm', size_bytes: 3e12, files: [{ name: 'a', size_bytes: 1e12 }, { name: 'b', size_bytes: 2e12 }], fits: false, context_window: 2048, n_seq_max: 1,
    memory_bytes: 3e12, free_bytes: 16 * 2 ** 30, gpu_bytes: 0, gpu_free_bytes: 0, reason: 'the weights do not fit: <b>take</b> a smaller model',
  } }), { times: 1 });
  await page.fill('#pull-ref', REF);
  await page.getByRole('button', { name: 'Does it fit?', exact: true }).click();
  await typed(page).getByText(/^Does not fit/).waitFor();
  assert.equal(await textOf(typed(page)), 'Does not fit this machine: the weights do not fit: <b>take</b> a smaller model. 2.7 TiB to fetch in 2 files.');
  await page.fill('#pull-ref', 'hf:a/nothing');
  await page.getByRole('button', { name: 'Does it fit?', exact: true }).click();
  await page.locator('#models .fit.error').getByText(/may not be read, or is not there/).waitFor({ timeout: 60_000 });
  await ask(page, REF);
  await page.getByText(`${NAME} is there.`).waitFor({ timeout: 60_000 });
  await server.stop();
});

test('a suggestion is asked about in its row, and the next question ends the one before', async (t) => {
  const { mirror, server, page } = await open(t, {}, { expected: /Failed to load resource/ });
  mirror.files['Qwen/Qwen3-8B-GGUF/m-Q4_K_M.gguf'] = modelOf(4 * MIB);
  const release = hold(mirror, 0);
  const told = page.locator('#models section[data-key="suggested"] .fit');
  await page.getByRole('button', { name: 'Does it fit? Qwen3 8B' }).click();
  await told.getByText('Qwen3 8B: Looking at its files').waitFor();
  await page.getByRole('button', { name: 'Does it fit? Qwen3 4B' }).click();
  await told.getByText(/^Qwen3 4B: .*Qwen3-4B-GGUF/).waitFor({ timeout: 60_000 });
  assert.equal(await textOf(typed(page)), '');
  await server.says(/path=\/models\/fit status=499/);
  release();
  await page.getByRole('button', { name: 'Does it fit? Qwen3 8B' }).click();
  await told.getByText(/^Qwen3 8B: Fits this machine/).waitFor({ timeout: 60_000 });
  await server.stop();
});

test('a key that may not change models is told so', async (t) => {
  const file = join(temporaryFolder(), 'keys'), key = 'limited-key-0123456789';
  writeFileSync(file, `${key} limited chat,models\n`, { mode: 0o600 });
  const { server, page } = await open(t, { set: { 'server.api_keys_file': file }, access: { key } }, { expected: /Failed to load resource/ });
  await has(page, 'demo', 'loaded');
  await ask(page, REF);
  await page.locator('#models .pull .error').getByText(/This API key does not allow it/).waitFor();
  await page.fill('#pull-ref', REF);
  await page.getByRole('button', { name: 'Does it fit?', exact: true }).click();
  await page.locator('#models .fit.error').getByText(/This API key does not allow it/).waitFor();
  await server.stop();
});

for (const [name, options] of [['light', {}], ['dark', { colorScheme: 'dark' }], ['phone', { viewport: { width: 390, height: 800 } }]]) {
  test(`the view of models can be used by all: ${name}`, async (t) => {
    const { server, page } = await open(t, {}, { ...options, expected: /Failed to load resource/ });
    await ask(page, 'hf:a/nothing');
    await page.locator('#models .pull .error').waitFor({ timeout: 60_000 });
    assert.equal(await page.locator('#models section[data-key="suggested"] tbody tr').count(), 12);
    await page.fill('#pull-ref', 'hf:a/nothing');
    await page.getByRole('button', { name: 'Does it fit?', exact: true }).click();
    await page.locator('#models .fit.error').getByText(/may not be read/).waitFor({ timeout: 60_000 });
    assert.deepEqual(await accessibilityFaults(page), []);
    await page.fill('#pull-ref', REF);
    await page.getByRole('button', { name: 'Does it fit?', exact: true }).click();
    await typed(page).getByText(/^Fits/).waitFor({ timeout: 60_000 });
    await page.getByRole('button', { name: 'Does it fit? Qwen3 0.6B' }).click();
    await page.locator('#models section[data-key="suggested"] .fit').getByText(/^Qwen3 0\.6B: .*may not be read/).waitFor({ timeout: 60_000 });
    assert.deepEqual(await accessibilityFaults(page), []);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), 'nothing is wider than the page');
    await server.stop();
  });
}
