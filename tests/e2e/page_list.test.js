// The list of conversations on the page: searched, named, pinned, deleted, exported; and keys of the keyboard.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { accessibilityFaults, browser, openPage } from './lib/browser.js';
import { replied, send, start, stored } from './lib/page.js';
import { until } from './lib/wait.js';

const conversation = (id, title, ...texts) => ({
  id, title, changed: 0, system: '', sampling: {}, leaf: `${id}${texts.length - 1}`,
  messages: Object.fromEntries(texts.map((text, i) => [`${id}${i}`, { id: `${id}${i}`, parent: i ? `${id}${i - 1}` : null, role: i % 2 ? 'assistant' : 'user', text }])),
});
const three = [
  conversation('a', 'Boats', 'Which wood floats best?', 'Balsa floats best.'),
  conversation('b', 'Bread', 'How long does dough rest?', 'An hour, or a NIGHT in the cold.'),
  conversation('c', 'Tea', 'How hot is water for green tea?', 'Seventy degrees.'),
];

// One after the other, so that the last is the latest.
async function withConversations(t, server, options) {
  const page = await openPage(t, await browser(t), server.url, options);
  await page.evaluate(async (list) => {
    const { save } = await import('/page/storage.js');
    for (const one of list) {
      await save(one);
      for (const saved = Date.now(); Date.now() === saved;) await Promise.resolve(); // the next one is later
    }
  }, three);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll('#conversations li').length === 3);
  return page;
}

const found = (page, text) => page.waitForFunction((wanted) => document.querySelector('#found').textContent === wanted, text);
const titles = (page) => page.locator('#conversations .title').allTextContents();
const shows = (page, ...wanted) => page.waitForFunction((list) => JSON.stringify([...document.querySelectorAll('#conversations .title')].map((one) => one.textContent)) === JSON.stringify(list), wanted);
const open = async (page, title) => {
  if (await page.locator('#menu').isVisible() && !await page.locator('#sidebar').isVisible()) await page.click('#menu');
  await page.click(`[aria-label="More of ${title}"]`);
  await page.waitForSelector('#about[open]');
};

test('a search finds titles and messages, in any case of letters', async (t) => {
  const server = await start(t);
  const page = await withConversations(t, server);
  assert.deepEqual(await titles(page), ['Tea', 'Bread', 'Boats']);
  await page.fill('#search', 'night');
  await shows(page, 'Bread');
  await found(page, '1 found');
  await page.fill('#search', 'floats');
  await shows(page, 'Boats');
  await page.fill('#search', 'b');
  await shows(page, 'Bread', 'Boats');
  await page.fill('#search', 'no such words');
  await shows(page);
  await found(page, '0 found');
  await page.fill('#search', 'BOAT');
  await page.press('#search', 'Enter'); // before it was searched for
  await shows(page, 'Boats');
  await page.waitForFunction(() => /Balsa/.test(document.querySelector('#messages').textContent));
  await page.press('#search', 'Escape');
  await shows(page, 'Tea', 'Bread', 'Boats');
  await found(page, '');
  // What was found for other words is not found for these; a new conversation ends the search.
  await page.evaluate(async () => {
    const field = document.querySelector('#search');
    for (const words of ['floats', 'dough']) {
      field.value = words;
      field.dispatchEvent(new Event('input'));
      while (words === 'floats' && document.querySelector('#found').textContent === '') await new Promise(requestAnimationFrame); // until it is searched for
    }
  });
  await shows(page, 'Bread');
  await found(page, '1 found');
  await page.click('#new-conversation');
  await shows(page, 'New conversation', 'Tea', 'Bread', 'Boats');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('a name that was given stays, whatever the first message becomes', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  await send(page, 'My name is Ottilie.');
  await replied(page, 1);
  await open(page, 'My name is Ottilie.');
  assert.equal(await page.inputValue('#about-title'), 'My name is Ottilie.');
  await page.fill('#about-title', '  Somebody   I know ');
  await page.click('#about >> text=Done');
  await shows(page, 'Somebody I know');
  await page.getByRole('button', { name: 'Edit this message' }).click();
  await send(page, 'My name is Balthasar.');
  await until('the other branch is stored', async () => Object.values((await stored(page))[0].messages).filter(({ figures }) => figures).length === 2);
  await page.reload();
  await shows(page, 'Somebody I know');
  // An empty title changes nothing, nor does looking; Escape keeps what was written.
  const [{ changed }] = await stored(page);
  for (const title of [' ', 'Somebody I know']) {
    await open(page, 'Somebody I know');
    await page.fill('#about-title', title);
    await page.click('#about >> text=Done');
    await page.waitForSelector('#about', { state: 'hidden' });
  }
  assert.equal((await stored(page))[0].changed, changed);
  await open(page, 'Somebody I know');
  await page.fill('#about-title', 'Balthasar');
  await page.keyboard.press('Escape');
  await shows(page, 'Balthasar');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('a name that was given in another tab stays, too, beside a reply that comes', async (t) => {
  const server = await start(t);
  const one = await withConversations(t, server);
  const other = await openPage(t, await browser(t), server.url, { context: one.context() });
  await open(one, 'Tea');
  await one.fill('#about-title', 'Green tea');
  await one.check('#about-pinned');
  await one.click('#about >> text=Done');
  await shows(one, 'Green tea, pinned', 'Bread', 'Boats');
  await send(other, 'And black tea?'); // in the one that is shown, under its former title
  await replied(other, 1);
  for (let i = 0; i < 2; i++) {
    await until('the reply is stored', async () => Object.values((await stored(other)).find(({ id }) => id === 'c').messages).some(({ figures }) => figures));
    const { title, named, pinned } = (await stored(one)).find(({ id }) => id === 'c');
    assert.deepEqual([title, named, pinned], ['Green tea', true, true]);
    await send(other, 'And white tea?');
    await replied(other, 2 + i);
  }
  await shows(other, 'Green tea, pinned', 'Bread', 'Boats');
  await one.close();
  assert.deepEqual(other.faults, []);
  await server.stop();
});

test('pinned ones stand above the others, after a reload and in a file too', async (t) => {
  const server = await start(t);
  const page = await withConversations(t, server);
  await page.focus('[aria-label="More of Boats"]');
  await page.keyboard.press('Enter');
  await page.check('#about-pinned');
  await page.keyboard.press('Enter');
  await shows(page, 'Boats, pinned', 'Tea', 'Bread');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'More of Boats'); // whose row has moved
  assert.match(await page.textContent('#messages'), /green tea/);
  await page.reload();
  await page.waitForFunction(() => /green tea/.test(document.querySelector('#messages').textContent)); // still the latest
  await shows(page, 'Boats, pinned', 'Tea', 'Bread');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
  await page.setInputFiles('#import-file', await download.path());
  await page.waitForFunction(() => document.querySelectorAll('#conversations li').length === 6);
  assert.deepEqual((await titles(page)).slice(0, 2), ['Boats, pinned', 'Boats, pinned']);
  await open(page, 'Tea');
  assert.equal(await page.isChecked('#about-pinned'), false);
  await page.keyboard.press('Escape');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('several are chosen and deleted, the one that is shown among them', async (t) => {
  const server = await start(t);
  const page = await withConversations(t, server);
  let answer = 'dismiss';
  const asked = [];
  page.on('dialog', (dialog) => { asked.push(dialog.message()); dialog[answer](); });
  await page.click('#choose');
  assert.equal(await page.isDisabled('#delete-chosen'), true);
  await page.check('[aria-label="Choose Tea"]'); // the latest, which is shown
  await page.check('[aria-label="Choose Boats"]');
  await page.check('[aria-label="Choose Bread"]');
  await page.uncheck('[aria-label="Choose Bread"]');
  await page.waitForFunction(() => document.querySelector('#chosen-text').textContent === '2 chosen');
  await page.click('#delete-chosen');
  assert.equal((await stored(page)).length, 3);
  // What a search hides is not deleted.
  await page.fill('#search', 'hot');
  await shows(page, 'Tea');
  await page.waitForFunction(() => document.querySelector('#chosen-text').textContent === '1 chosen');
  await page.fill('#search', '');
  await shows(page, 'Tea', 'Bread', 'Boats');
  await page.check('[aria-label="Choose Boats"]');
  answer = 'accept';
  await page.click('#delete-chosen');
  await shows(page, 'Bread');
  assert.deepEqual(asked, ['Delete 2 conversations?', 'Delete 2 conversations?']);
  await page.waitForFunction(() => /dough/.test(document.querySelector('#messages').textContent));
  await page.waitForSelector('#chosen', { state: 'hidden' });
  assert.deepEqual((await stored(page)).map(({ id }) => id), ['b']);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('one is exported, as Markdown and as JSON that can be imported', async (t) => {
  const server = await start(t);
  const page = await withConversations(t, server);
  await open(page, 'Bread');
  const [markdown] = await Promise.all([page.waitForEvent('download'), page.click('#export-markdown')]);
  assert.equal(markdown.suggestedFilename(), 'Bread.md');
  assert.equal(readFileSync(await markdown.path(), 'utf8'), '# Bread\n\n**You**\n\nHow long does dough rest?\n\n**Model**\n\nAn hour, or a NIGHT in the cold.\n');
  const [json] = await Promise.all([page.waitForEvent('download'), page.click('#export-json')]);
  assert.equal(json.suggestedFilename(), 'Bread.json');
  await page.click('#about >> text=Done');
  await page.setInputFiles('#import-file', await json.path());
  await page.waitForFunction(() => document.querySelectorAll('#conversations li').length === 4);
  assert.deepEqual((await titles(page)).filter((title) => title === 'Bread').length, 2);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('settings are kept by name, and new conversations begin with those that were chosen for them', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  let name = 'Terse';
  page.on('dialog', (dialog) => dialog.accept(dialog.type() === 'prompt' ? name : undefined));
  const settings = () => page.evaluate(() => ['system', 'temperature', 'seed', 'reasoning'].map((id) => document.getElementById(id).value));
  const done = () => page.click('#settings-done');
  await page.click('#show-settings');
  await page.fill('#system', 'One word.');
  await page.fill('#temperature', '0.25');
  await page.click('#preset-save');
  assert.equal(await page.textContent('#settings-note'), 'Kept as “Terse”.');
  await page.fill('#system', 'Many words.');
  await page.fill('#temperature', '');
  await page.fill('#seed', '9');
  await page.selectOption('#reasoning', 'off');
  name = 'Verbose';
  await page.click('#preset-save');
  await page.click('#preset-of-new');
  await page.selectOption('#preset', 'Terse');
  assert.deepEqual(await settings(), ['One word.', '0.25', '', '']);
  await page.selectOption('#preset', ''); // back to those of the conversation
  assert.deepEqual(await settings(), ['', '', '', '']);
  await page.selectOption('#preset', 'Terse');
  await done();
  await page.reload();
  await page.waitForSelector('#model option', { state: 'attached' });
  await page.click('#new-conversation');
  await page.click('#show-settings');
  assert.deepEqual(await settings(), ['Many words.', '', '9', 'off']);
  assert.deepEqual(await page.locator('#preset option').allTextContents(), ['none', 'Terse', 'Verbose']);
  await page.selectOption('#preset', 'Terse');
  await page.click('#preset-remove');
  assert.deepEqual(await page.locator('#preset option').allTextContents(), ['none', 'Verbose']);
  assert.deepEqual(await accessibilityFaults(page), []);
  await page.fill('#temperature', '9');
  await page.keyboard.press('Escape');
  await page.getByText(/Temperature is as it was/).waitFor();
  await page.click('#show-settings');
  assert.deepEqual(await settings(), ['One word.', '', '', '']);
  await done();
  assert.deepEqual(page.faults, []);
  await server.stop();
});

for (const [name, options] of [['light', {}], ['dark', { colorScheme: 'dark' }], ['phone', { viewport: { width: 390, height: 800 } }]]) {
  test(`keys, and axe-core: ${name}`, async (t) => {
    const server = await start(t);
    const page = await withConversations(t, server, options);
    await open(page, 'Boats');
    await page.fill('#about-title', 'A title that is longer than a telephone is wide, and then some');
    await page.keyboard.press('Enter');
    await page.getByText(/longer than a telephone/).waitFor({ state: 'attached' });
    if (await page.locator('#menu').isVisible()) await page.click('#menu');
    await page.focus('#composer-text');
    await page.keyboard.press('?');
    assert.equal(await page.inputValue('#composer-text'), '?');
    await page.fill('#composer-text', '');
    await page.keyboard.press('Control+k');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
    assert.deepEqual(await accessibilityFaults(page), []);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), true, 'the list is not wider than the screen');
    await page.click('#choose');
    await page.waitForSelector('[aria-label="Choose Tea"]');
    assert.deepEqual(await accessibilityFaults(page), []);
    await page.click('#choose');
    await open(page, 'Tea');
    assert.deepEqual(await accessibilityFaults(page), []);
    await page.keyboard.press('?'); // in the dialog's field
    assert.match(await page.inputValue('#about-title'), /\?/);
    await page.fill('#about-title', 'Tea');
    await page.keyboard.press('Escape');
    await page.click('#show-keys');
    assert.deepEqual(await accessibilityFaults(page), []);
    await page.keyboard.press('Escape');
    await page.keyboard.press('?');
    await page.waitForSelector('#keys[open]');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+Shift+o');
    await page.waitForFunction(() => document.querySelector('#messages .message') === null);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), true, 'nothing is wider than the screen');
    assert.deepEqual(page.faults, []);
    await server.stop();
  });
}
