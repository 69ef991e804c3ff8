// The view of models: getting one, pausing, loading, removing; from a source that the test holds back.

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

test('a key that may not change models is told so', async (t) => {
  const file = join(temporaryFolder(), 'keys'), key = 'limited-key-0123456789';
  writeFileSync(file, `${key} limited chat,models\n`, { mode: 0o600 });
  const { server, page } = await open(t, { set: { 'server.api_keys_file': file }, access: { key } }, { expected: /Failed to load resource/ });
  await has(page, 'demo', 'loaded');
  await ask(page, REF);
  await page.locator('#models .pull .error').getByText(/This API key does not allow it/).waitFor();
  await server.stop();
});

for (const [name, options] of [['light', {}], ['dark', { colorScheme: 'dark' }], ['phone', { viewport: { width: 390, height: 800 } }]]) {
  test(`the view of models can be used by all: ${name}`, async (t) => {
    const { server, page } = await open(t, {}, { ...options, expected: /Failed to load resource/ });
    await ask(page, 'hf:a/nothing');
    await page.locator('#models .pull .error').waitFor({ timeout: 60_000 });
    assert.equal(await page.locator('#models section[data-key="suggested"] tbody tr').count(), 12);
    assert.deepEqual(await accessibilityFaults(page), []);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), 'nothing is wider than the page');
    await server.stop();
  });
}
