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
  await page.waitForFunction(() => document.querySelector('#composer-text').value === 'For this one');
  // Another tab writes in another conversation, and takes nothing of this away.
  const other = await openPage(t, null, server.url, { context: page.context() });
  await page.fill('#composer-text', 'For this one, and more');
  await until('it is kept', () => page.evaluate(() => localStorage['hearth.drafts'].includes('and more')));
  await other.click('#new-conversation');
  await other.fill('#composer-text', 'Elsewhere');
  await until('both are kept', () => page.evaluate(() => /and more.*Elsewhere/.test(localStorage['hearth.drafts'])));
  await other.fill('#composer-text', '');
  await until('that is dropped', () => page.evaluate(() => !localStorage['hearth.drafts'].includes('Elsewhere')));
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#composer-text').value === 'For this one, and more');
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
  await page.waitForFunction((n) => Number(/^about (\d+)/.exec(document.querySelector('#window-text').textContent)[1]) > n + 50, said);
  assert.equal(await page.locator('#window.warns').count(), 0);
  await page.fill('#composer-text', 'one two three '.repeat(500));
  const [asked] = await Promise.all([page.waitForRequest('**/tokenize'), page.locator('#window.warns').getByText('the window is full').waitFor()]);
  assert.equal(asked.postDataJSON().content.length, 7000);
  await page.waitForFunction(() => /^[\d,]+ of 512/.test(document.querySelector('#window-text').textContent));
  assert.equal(await page.locator('#window-warning').textContent(), 'The window is full');
  await page.fill('#composer-text', '');
  await page.waitForFunction(() => !document.querySelector('#window').classList.contains('warns'));
  assert.equal(await tokens(), said);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

// Every message that is stored follows one that is stored, so that all of it is exported and imported.
const expectTree = async (page) => {
  for (const { messages, leaf } of await stored(page)) {
    for (const { parent } of Object.values(messages)) assert.ok(parent === null || messages[parent], 'a message follows one that is gone');
    assert.ok(leaf === null || messages[leaf]);
  }
};

test('what is deleted while its answer is edited leaves nothing that follows it', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  page.on('dialog', (dialog) => dialog.accept());
  for (const [n, text] of [[1, 'Hello.'], [2, 'Who are you?']]) {
    await send(page, text);
    await replied(page, n);
  }
  await page.getByRole('button', { name: 'Edit this message' }).nth(1).click();
  await page.getByRole('button', { name: 'Delete this message' }).nth(1).click(); // the reply before it
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 1);
  assert.equal(await page.inputValue('#composer-text'), '');
  await send(page, 'What can you do?');
  await replied(page, 1);
  assert.deepEqual(await page.locator('.message.user .plain').allTextContents(), ['Hello.', 'What can you do?']);
  await until('it is stored', async () => Object.keys((await stored(page))[0].messages).length === 3);
  await expectTree(page);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('what one tab deletes and continues another one neither brings back nor undoes', async (t) => {
  const server = await start(t);
  const context = await (await browser(t)).newContext({ viewport: { width: 1200, height: 800 } });
  const [one, other] = [await openPage(t, null, server.url, { context }), await openPage(t, null, server.url, { context })];
  one.on('dialog', (dialog) => dialog.accept());
  await mostTokens(one, '4');
  await send(one, 'Hello.');
  await replied(one, 1);
  await send(one, 'Who are you?');
  await replied(one, 2);
  await until('it is stored', async () => Object.values((await stored(one))[0].messages).filter(({ figures }) => figures).length === 2);
  await other.reload();
  await other.waitForFunction(() => document.querySelectorAll('.message').length === 4);
  // The one deletes the last reply, the other goes on behind it.
  await one.getByRole('button', { name: 'Delete this message' }).nth(3).click();
  await until('the deletion is stored', async () => Object.keys((await stored(one))[0].messages).length === 3);
  await send(other, 'And you?');
  await replied(other, 2);
  await until('what the other says is stored', async () => Object.values((await stored(other))[0].messages).some(({ text, figures }) => text === 'And you?' || figures));
  await other.waitForFunction(() => document.querySelector('#stop').hidden);
  await until('it is as both want it', async () => {
    const { messages } = (await stored(other))[0];
    return Object.values(messages).filter(({ role }) => role === 'user').map(({ text }) => text).sort().join('|') === 'And you?|Hello.|Who are you?' && Object.keys(messages).length === 5;
  });
  await expectTree(other);
  // A reply of the other tab's is continued here, and the other one saves meanwhile: nothing of it is lost.
  await one.reload();
  await one.waitForFunction(() => document.querySelectorAll('.message').length >= 3);
  const before = await lastReply(one);
  await mostTokens(one, '60');
  await other.click('#show-settings');
  await other.fill('#system', 'Be brief.');
  await one.getByRole('button', { name: 'Continue this reply' }).last().click();
  await other.click('#settings-done');
  await one.waitForFunction(() => document.querySelector('#stop').hidden);
  const after = await lastReply(one);
  assert.ok(after.startsWith(before) && after.length > before.length, `${before}, then ${after}`);
  await until('it is stored whole', async () => Object.values((await stored(one))[0].messages).some(({ text }) => text.replace(/\s+/g, ' ').trim() === after));
  await server.stop();
});

test('a reply that broke off with an error can be continued, and one that others follow goes on in a branch', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  const message = (id, parent, role, text, more) => ({ id, parent, role, text, ...more });
  const messages = { a: message('a', null, 'user', 'Hello.'), b: message('b', 'a', 'assistant', 'I', { cut: true }), c: message('c', 'b', 'user', 'Go on.'),
    d: message('d', 'c', 'assistant', 'I am', { error: { message: 'The reply broke off: network', status: 0 } }) };
  const file = { hearth_conversations: 1, conversations: [{ title: 'Broken', system: '', sampling: { max_tokens: 8 }, leaf: 'd', messages }] };
  await page.setInputFiles('#import-file', { name: 'file.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(file)) });
  await page.locator('#conversations .title').getByText('Broken').click();
  const more = page.getByRole('button', { name: 'Continue this reply' });
  await until('both can be continued', async () => await more.count() === 2);
  await more.last().click();
  await page.waitForFunction(() => document.querySelector('#stop').hidden && [...document.querySelectorAll('.message.assistant .markdown')].at(-1).textContent.length > 6);
  assert.equal(await page.locator('.error').count(), 0);
  await more.first().click();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 2 && document.querySelector('#stop').hidden);
  assert.equal(await textOf(page.locator('.branch')), '2 of 2');
  await page.getByRole('button', { name: 'The branch before' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('a text that grows looks at each moment as it does when it is shown at once', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  const differ = await page.evaluate(async () => {
    const { MarkdownView } = await import('/page/markdown.js');
    const texts = [
      '- one\n- two\n\n  still two\n\n- three\n\nText\nthat is\n===\n\nmore\n\n> quoted\nlazily\n\n> again\n\n',
      '1. a\n\n   ```c\n   int x;\n\n   int y;\n   ```\n\n2. b\n\n| a | b |\n| - | -: |\n| 1 | 2 |\n\nbehind\n\n```js\nlet a;\n\n\nlet b;\n```\n\nend\n\n',
      'See [1] and [2].\n\nA paragraph.\n\nAnother.\n\n[1]: https://example.org/a\n\nAnd [1] again.\n\nMore [2].\n\nText.\n\n[2]: https://example.org/b\n\nEnd [1], [2].\n\n',
      '# H\n\n$$\na + b\n$$\n\nand $x$.\r\n\r\n* * *\n\n<b>no</b>\n\n    code\n\n    more\n\ntext\n- [x] done\n- [ ] not\n\n\n\nlast\n',
    ];
    texts.push(texts.join(''), [...texts].reverse().join(''));
    const found = [];
    for (const text of texts) {
      const grows = new MarkdownView();
      for (let n = 1; n <= text.length; n++) {
        const whole = new MarkdownView();
        grows.show(text.slice(0, n), true);
        whole.show(text.slice(0, n));
        if (grows.element.innerHTML !== whole.element.innerHTML && found.length < 3) found.push([text.slice(Math.max(0, n - 60), n), grows.element.innerHTML.slice(-300), whole.element.innerHTML.slice(-300)]);
      }
    }
    return found;
  });
  assert.deepEqual(differ, []);
  await server.stop();
});
