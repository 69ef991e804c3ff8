// How replies, the phone's header and the settings look: what a user of the page has seen to be wrong once.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { browser, openPage } from './lib/browser.js';
import { events, replied, send, start, withReplies } from './lib/page.js';

const phone = { width: 390, height: 844 };

test('tables keep words whole and columns aligned, and tasks show what is done', async (t) => {
  const server = await start(t);
  const word = 'Donaudampfschifffahrtsgesellschaft';
  const text = ['| name | left | right | middle |', '| --- | :--- | ---: | :---: |', `| ${word} | ${word} | 12 | b |`, '', '- [x] done', '- [ ] to do', '- plain', '', '3. third', '4. fourth', ''].join('\n');
  const url = await withReplies(t, server, (outgoing) => events(outgoing, [text]));
  for (const viewport of [phone, { width: 1200, height: 800 }]) {
    const page = await openPage(t, await browser(t), url, { viewport });
    await send(page, 'Show me.');
    await page.locator('.markdown li').nth(4).waitFor();
    const cells = await page.evaluate(() => [...document.querySelectorAll('.markdown tbody td')].map((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return { lines: new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size, align: getComputedStyle(cell).textAlign };
    }));
    assert.deepEqual(cells.map(({ lines }) => lines), [1, 1, 1, 1]);
    assert.deepEqual(cells.map(({ align }) => align), ['left', 'left', 'right', 'center']);
    const items = await page.evaluate(() => [...document.querySelectorAll('.markdown li')].map((item) => [item.textContent.replace(/\s+/g, ' ').trim(), getComputedStyle(item).listStyleType]));
    assert.deepEqual(items, [['☑ done', 'none'], ['☐ to do', 'none'], ['plain', 'disc'], ['third', 'decimal'], ['fourth', 'decimal']]);
    assert.equal(await page.evaluate(() => document.querySelector('.markdown ol').start), 3);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the table scrolls, and not the page');
    assert.deepEqual(page.faults, []);
  }
  await server.stop();
});

test('on a phone the header is one line, and the menu shows all of its entries', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url, { viewport: phone });
  for (let i = 0; i < 25; i++) {
    await page.evaluate(async (n) => {
      const { newConversation } = await import('/page/conversations.js');
      const { save } = await import('/page/storage.js');
      await save({ ...newConversation(), title: `Conversation ${n}` });
    }, i);
  }
  await page.reload();
  const box = (selector) => page.locator(selector).boundingBox();
  const header = await box('header');
  assert.ok(header.height <= phone.height / 14, `${header.height} px`);
  for (const name of ['Conversations', 'Chat', 'Cache', 'Settings']) {
    const button = await page.getByRole('button', { name, exact: true }).boundingBox();
    assert.ok(button.x >= 0 && button.x + button.width <= phone.width && button.width >= 24 && button.height >= 24, `${name}: ${JSON.stringify(button)}`);
  }
  assert.ok((await box('#model')).width >= 60);
  await page.getByRole('button', { name: 'Conversations', exact: true }).click();
  await page.locator('#conversations li').nth(24).waitFor();
  for (const selector of ['#new-conversation', '#export', '#import']) {
    const { y, height } = await box(selector);
    assert.ok(y >= header.height && y + height <= phone.height, `${selector} is at ${y}`);
  }
  await page.locator('#conversations .title').last().click(); // it can be scrolled to
  await page.locator('#sidebar').waitFor({ state: 'hidden' });
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('a number that the server would not take is not kept, however the settings are left', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  const set = async (value) => { await page.click('#show-settings'); await page.fill('#temperature', value); };
  await set('0.5');
  await page.click('#settings-done');
  await page.waitForFunction(() => !document.getElementById('settings').open);
  await set('9');
  await page.click('#settings-done');
  assert.ok(await page.evaluate(() => document.getElementById('settings').open), 'it stays open, and the browser says why');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => !document.getElementById('settings').open);
  await page.locator('#notice').getByText('Temperature is as it was').waitFor();
  const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), send(page, 'Who are you?')]);
  assert.equal(request.postDataJSON().temperature, 0.5);
  await replied(page, 1);
  assert.deepEqual(page.faults, []);
  await server.stop();
});
