// What a user does with messages: go on with a reply that was cut off, copy, delete, and leave something half written.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { browser, openPage } from './lib/browser.js';
import { events, lastReply, legends, replied, send, start, stored, textOf, withReplies } from './lib/page.js';
import { until } from './lib/wait.js';

const mostTokens = async (page, n) => {
  await page.click('#show-settings');
  await page.fill('#max_tokens', n);
  await page.click('#settings-done');
  await page.waitForFunction(() => !document.getElementById('settings').open);
};

test('a reply that was cut off goes on where it ends, and nothing is computed twice', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  await mostTokens(page, '4');
  await send(page, 'Who are you?');
  await replied(page, 1);
  const before = await lastReply(page);
  await mostTokens(page, '40');
  const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), page.getByRole('button', { name: 'Continue this reply' }).click()]);
  const { messages } = request.postDataJSON();
  assert.deepEqual(messages.map(({ role }) => role), ['user', 'assistant']);
  assert.equal(messages[1].content.trim(), before);
  await page.waitForFunction((n) => document.querySelector('.message.assistant .markdown').textContent.trim().length > n && document.querySelector('#stop').hidden, before.length);
  assert.ok((await lastReply(page)).startsWith(before), `${before}, then ${await lastReply(page)}`);
  assert.equal(await page.locator('.message').count(), 2, 'it is the same message');
  const [legend] = await legends(page);
  const [reused, computed] = /([\d,]+) reused from KV cells · ([\d,]+) computed/.exec(legend).slice(1).map(Number);
  assert.ok(reused > 10 && computed <= 2, legend);
  assert.match(await textOf(page.locator('.message.assistant .when')), /^demo · .*\d/);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('a reply that was stopped while it reasoned goes on with its reasoning', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  const file = { hearth_conversations: 1, conversations: [{ title: 'Stopped', system: '', sampling: {}, leaf: 'b', messages: {
    a: { id: 'a', parent: null, role: 'user', text: 'Who are you?' }, b: { id: 'b', parent: 'a', role: 'assistant', text: '', reasoning: 'I think', stopped: true } } }] };
  await page.setInputFiles('#import-file', { name: 'file.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(file)) });
  await page.locator('#conversations .title').getByText('Stopped').click();
  const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), page.getByRole('button', { name: 'Continue this reply' }).click()]);
  assert.deepEqual(request.postDataJSON().messages.at(-1), { role: 'assistant', content: '', reasoning_content: 'I think' });
  await page.waitForFunction(() => document.querySelector('#stop').hidden);
  await server.stop();
});

test('a message is copied whole: as Markdown into plain fields, with its markup into others', async (t) => {
  const server = await start(t);
  const text = 'It is **bold**.\n\n- one\n- two\n';
  const url = await withReplies(t, server, (outgoing) => events(outgoing, [text]));
  const context = await (await browser(t)).newContext({ permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await openPage(t, null, url, { context });
  await send(page, 'Say *it*.');
  await page.locator('.markdown li').nth(1).waitFor();
  const clipboard = () => page.evaluate(async () => {
    const [item] = await navigator.clipboard.read();
    return Promise.all(['text/plain', 'text/html'].map(async (type) => (item.types.includes(type) ? (await item.getType(type)).text() : null)));
  });
  const copy = page.getByRole('button', { name: 'Copy this message' });
  await copy.nth(1).click();
  await page.getByText('Copied').waitFor();
  const [plain, markup] = await clipboard();
  assert.equal(plain.trim(), text.trim());
  assert.match(markup, /<strong>bold<\/strong>[\s\S]*<li>one<\/li>/);
  await copy.first().click();
  await until('the question is copied', async () => (await clipboard())[0] === 'Say *it*.');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('a message is deleted with what follows it, once it was asked for', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  for (const [n, text] of [[1, 'Hello.'], [2, 'Who are you?']]) {
    await send(page, text);
    await replied(page, n);
  }
  const texts = () => page.locator('.message.user .plain').allTextContents();
  let answer = 'dismiss';
  page.on('dialog', (dialog) => dialog[answer]());
  const remove = page.getByRole('button', { name: 'Delete this message' });
  await remove.nth(2).click();
  assert.deepEqual(await texts(), ['Hello.', 'Who are you?']);
  answer = 'accept';
  await remove.nth(2).click();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 2);
  await until('it is stored so', async () => Object.keys((await stored(page))[0].messages).length === 2);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 2);
  // Of two branches the other one is shown.
  await page.getByRole('button', { name: 'Again: another reply' }).click();
  await page.waitForFunction(() => document.querySelector('.message.assistant .branch')?.textContent === '2 of 2' && document.querySelector('#stop').hidden);
  await remove.nth(1).click();
  await page.waitForFunction(() => document.querySelectorAll('.branch').length === 0 && document.querySelectorAll('.message').length === 2);
  await remove.first().click();
  await page.locator('.empty').waitFor();
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('what is half written is there after a reload, and in its conversation alone', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  const field = () => page.inputValue('#composer-text');
  await page.fill('#composer-text', 'Before the first message');
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#composer-text').value !== '');
  assert.equal(await field(), 'Before the first message');
  await send(page, 'Hello.');
  await replied(page, 1);
  assert.equal(await field(), '');
  await page.fill('#composer-text', 'For this one');
  await page.click('#new-conversation');
  assert.equal(await field(), '');
  await page.locator('#conversations .title').getByText('Hello.').click();
  assert.equal(await field(), 'For this one');
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#composer-text').value === 'For this one');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('the window is measured while something is written, and warns before it is full', async (t) => {
  const server = await start(t, { models: { context_window: 512 } });
  const page = await openPage(t, await browser(t), server.url);
  assert.equal(await page.locator('#window').isVisible(), false);
  await mostTokens(page, '10');
  await send(page, 'Who are you?');
  await replied(page, 1);
  const tokens = async () => Number(/^([\d,]+) of 512 tokens/.exec(await textOf(page.locator('#window-text')))[1]);
  const said = (await legends(page))[0].match(/[\d,]+ (?:computed|generated|reused)/g).reduce((sum, part) => sum + parseInt(part, 10), 0);
  assert.equal(await tokens(), said);
  await page.fill('#composer-text', 'one two three '.repeat(20));
  await page.waitForFunction((n) => Number(/^\d+/.exec(document.querySelector('#window-text').textContent)[0]) > n + 50, said);
  assert.equal(await page.locator('#window.warns').count(), 0);
  await page.fill('#composer-text', 'one two three '.repeat(500));
  await page.locator('#window.warns').getByText('the window is full').waitFor();
  await page.fill('#composer-text', '');
  await page.waitForFunction(() => !document.querySelector('#window').classList.contains('warns'));
  assert.equal(await tokens(), said);
  assert.deepEqual(page.faults, []);
  await server.stop();
});
