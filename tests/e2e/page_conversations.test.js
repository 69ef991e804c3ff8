// Conversations of the page: what is stored, imported, deleted and lost, and what goes with a message.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { browser, openPage } from './lib/browser.js';
import { png, wav } from './lib/media.js';
import { demo, projectorFor } from './lib/models.js';
import { lastReply, replied, send, start, stored, withReplies } from './lib/page.js';
import { serve, temporaryFolder } from './lib/server.js';
import { until } from './lib/wait.js';

// A reply that goes on until `end`: {url, asked, say, end}.
async function withOpenReply(t, server) {
  const reply = { asked: 0, say(text) { this.outgoing.write(`data: ${JSON.stringify({ choices: [{ delta: { content: text } }] })}\n\n`); }, end() { this.outgoing.end('data: [DONE]\n\n'); } };
  reply.url = await withReplies(t, server, (outgoing) => {
    outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
    Object.assign(reply, { outgoing, asked: reply.asked + 1 });
    reply.say('It begins');
  });
  return reply;
}

const begun = (page) => page.waitForFunction(() => /It begins/.test(document.querySelector('.message.assistant')?.textContent));
const listed = (page) => page.locator('#conversations .title').allTextContents();

// ---- The list of messages ----

// Shows parts of paths that branch, grow and shrink, in an order of its own; gives what went wrong.
const shownWrongly = (page, steps) => page.evaluate(async (count) => {
  const { MessageList } = await import('/page/message_list.js');
  let seed = 7;
  const random = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor((seed / 2147483648) * n); };
  const root = document.createElement('div');
  document.body.append(root);
  const list = new MessageList(root);
  let path = [], first = 0;
  for (let step = 0; step < count; step++) {
    if (first > 0 && random(2) === 0) {
      for (let n = 1 + random(40); n > 0 && first > 0; n--) list.prepend(--first, path[first]);
    } else {
      path = path.slice(0, random(4) ? path.length : random(path.length + 1));
      for (let n = random(40); n > 0; n--) path.push(Object.assign(document.createElement('button'), { textContent: `${step}.${n}` }));
      const next = random(3) ? Math.min(first, path.length) : random(path.length + 1);
      const focused = path[Math.max(first, next)];
      focused?.focus();
      const had = focused !== undefined && document.activeElement === focused;
      first = next;
      list.show(first, path.slice(first));
      if (had && document.activeElement !== focused) return `step ${step}: the focus is lost`;
    }
    const shown = [...root.querySelectorAll('button')];
    if (shown.length !== path.length - first || shown.some((element, i) => element !== path[first + i])) return `step ${step}: ${shown.length} of ${path.length} from ${first}`;
    if ([...root.children].some((part) => part.children.length === 0 || part.children.length > 16)) return `step ${step}: a part is empty, or too large`;
  }
  return '';
}, steps);

test('the messages on the screen are those of the path, in parts, whatever was shown before', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  assert.equal(await shownWrongly(page, 2000), '');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

// ---- Files ----

const message = (id, parent, more = {}) => ({ id, parent, role: parent === null ? 'user' : 'assistant', text: `Text ${id}`, ...more });
const conversation = (more = {}) => ({ id: 'own', title: 'From a file', system: 'Be brief.', sampling: { temperature: 0.5 }, leaf: 'b', messages: { a: message('a', null), b: message('b', 'a') }, ...more });
const fileOf = (...conversations) => ({ hearth_conversations: 1, conversations });

const faults = [
  ['no JSON', 'nothing', /it is no JSON/],
  ['another JSON', '[1, 2]', /it holds no conversations/],
  ['another version', { ...fileOf(), hearth_conversations: 2 }, /hearth_conversations must be 1/],
  ['a title that is none', fileOf(conversation({ title: 7 })), /conversations\[0\]\.title must be a text/],
  ['one that is none', fileOf(conversation(), 'x'), /conversations\[1\] must be an object/],
  ['no messages', fileOf(conversation({ messages: [] })), /conversations\[0\]\.messages must be an object/],
  ['a role', fileOf(conversation({ messages: { a: message('a', null, { role: 'system' }) }, leaf: 'a' })), /messages\.a\.role must be user or assistant/],
  ['a name', fileOf(conversation({ messages: { a: message('c', null) }, leaf: 'a' })), /messages\.a\.id must be the name/],
  ['a parent', fileOf(conversation({ messages: { a: message('a', 'z') }, leaf: 'a' })), /messages\.a\.parent must be another message/],
  ['a circle', fileOf(conversation({ messages: { a: message('a', 'b'), b: message('b', 'a') } })), /messages has messages that follow themselves/],
  ['a leaf', fileOf(conversation({ leaf: 'z' })), /leaf must be one of the messages/],
  ['sampling', fileOf(conversation({ sampling: { temperature: 'hot' } })), /sampling\.temperature must be a number/],
  ['time', fileOf(conversation({ messages: { a: { ...message('a', null), at: 1e300 }, b: message('b', 'a') } })), /messages\.a\.at must be milliseconds since 1970/],
  ['reasoning', fileOf(conversation({ reasoning: 'on' })), /conversations\[0\]\.reasoning must be true or false/],
  ['a picture from elsewhere', fileOf(conversation({ messages: { a: message('a', null, { files: [{ kind: 'image', name: 'x', data: 'http://127.0.0.1:1/x.png' }] }) }, leaf: 'a' })), /files\[0\]\.data must be an image or a sound in base64/],
  ['figures', fileOf(conversation({ messages: { a: message('a', null, { figures: { shared: '1' } }) }, leaf: 'a' })), /figures\.shared must be a number/],
];

describe('files', () => {
  test('what is wrong with a file is named, and nothing of it is imported', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    for (const [name, file, says] of faults) {
      const text = typeof file === 'string' ? file : JSON.stringify(file);
      await page.setInputFiles('#import-file', { name: 'file.json', mimeType: 'application/json', buffer: Buffer.from(text) });
      await page.waitForFunction((pattern) => new RegExp(pattern).test(document.getElementById('notice').textContent), says.source);
      assert.equal((await stored(page)).length, 0, name);
    }
    const good = fileOf(conversation(), conversation({ title: 'Second' }));
    const halfGood = fileOf(conversation(), conversation({ title: null }));
    await page.setInputFiles('#import-file', { name: 'file.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(halfGood)) });
    await page.locator('#notice').getByText('conversations[1].title').waitFor();
    await page.click('#show-live');
    await page.locator('#live').waitFor();
    assert.equal((await stored(page)).length, 0, 'not the first one either');
    await page.setInputFiles('#import-file', { name: 'file.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(good)) });
    await page.locator('#notice').getByText('2 conversations were imported.').waitFor();
    assert.equal((await stored(page)).length, 2);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('only what belongs to a conversation is taken, under names of its own', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    const text = JSON.stringify(fileOf(conversation({ evil: '<img src=x onerror=window.hit=1>', messages: { a: message('a', null, { html: '<b>', onclick: 'window.hit=1' }), b: message('b', 'a', { figures: { shared: 1, restored: 0, computed: 2, generated: 3, evil: 1 } }) } })))
      .replace('"a":{', '"__proto__":{"id":"__proto__","parent":null,"role":"user","text":"x","polluted":true},"a":{');
    await page.setInputFiles('#import-file', { name: 'file.json', mimeType: 'application/json', buffer: Buffer.from(text) });
    await page.locator('#conversations .title').getByText('From a file').waitFor();
    const [taken] = await stored(page);
    assert.deepEqual(Object.keys(taken).sort(), ['changed', 'id', 'leaf', 'messages', 'sampling', 'system', 'title']);
    assert.notEqual(taken.id, 'own');
    const [first] = Object.values(taken.messages).filter(({ text: words }) => words === 'Text a');
    const reply = taken.messages[taken.leaf];
    assert.deepEqual(first, { id: first.id, parent: null, role: 'user', text: 'Text a' });
    assert.deepEqual(reply, { id: reply.id, parent: first.id, role: 'assistant', text: 'Text b', figures: { shared: 1, restored: 0, computed: 2, generated: 3 } });
    assert.ok(!Object.keys(taken.messages).some((id) => ['a', 'b', '__proto__'].includes(id)));
    assert.equal(await page.evaluate(() => ({}).polluted), undefined);
    await page.locator('#conversations .title').getByText('From a file').click();
    await page.getByText('Text b').waitFor();
    assert.equal(await lastReply(page), 'Text b');
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a reply that the server broke off says what to do, and is exported and imported', async (t) => {
    const server = await start(t);
    const url = await withReplies(t, server, (outgoing) => {
      outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
      outgoing.end(`data: ${JSON.stringify({ error: { message: 'the server is stopping', type: 'server_error', code: 'unavailable' } })}\n\n`);
    });
    const page = await openPage(t, await browser(t), url);
    await send(page, 'Hello.');
    await page.getByText('the server is stopping The server is loading or stopping: try again in a moment.').waitFor();
    await until('it is stored', async () => (await stored(page)).some(({ messages }) => Object.values(messages).some(({ error }) => error?.status === 503)));
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
    await page.setInputFiles('#import-file', await download.path());
    await page.locator('#notice').getByText('One conversation was imported.').waitFor();
    const former = fileOf(conversation({ messages: { a: message('a', null, { error: { message: 'x', status: 'unavailable', code: 'server_error' } }) }, leaf: 'a' }));
    await page.setInputFiles('#import-file', { name: 'file.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(former)) });
    await until('a file of a former page is taken', async () => (await stored(page)).length === 3);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('what is exported is imported again as it was', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    await page.click('#show-settings');
    await page.selectOption('#reasoning', 'off');
    await page.click('#settings-done');
    await send(page, 'Hello.');
    await replied(page, 1);
    const [before] = await until('it is stored', async () => { const all = await stored(page); return all.length === 1 && Object.values(all[0].messages).some(({ figures }) => figures) && all; });
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
    await page.setInputFiles('#import-file', await download.path());
    await page.locator('#notice').getByText('One conversation was imported.').waitFor();
    const after = (await stored(page)).find(({ id }) => id !== before.id);
    const given = (value) => JSON.parse(JSON.stringify(value, (name, member) => (member === null ? undefined : member)));
    const shape = ({ messages, title, system, sampling, reasoning }) => given({ title, system, sampling, reasoning, messages: Object.values(messages).map(({ id, parent, ...rest }) => rest) });
    assert.deepEqual(shape(after), shape(before));
    await server.stop();
  });
});

// ---- Storage ----

describe('what is stored', () => {
  test('a conversation that is deleted while its reply comes stays deleted, here and from another tab', async (t) => {
    const server = await start(t);
    const reply = await withOpenReply(t, server);
    const started = await browser(t);
    const context = await started.newContext();
    const page = await openPage(t, started, reply.url, { context });
    page.on('dialog', (dialog) => dialog.accept());
    await send(page, 'Go on.');
    await begun(page);
    assert.equal((await stored(page)).length, 1);
    await page.getByRole('button', { name: 'Delete Go on.' }).click();
    await page.waitForFunction(() => document.querySelector('.message') === null);
    await page.waitForFunction(() => document.querySelector('#stop').hidden);
    assert.deepEqual(await stored(page), []);
    assert.deepEqual(await listed(page), ['New conversation']);

    await send(page, 'Once more.');
    await begun(page);
    const [{ id }] = await stored(page);
    const other = await openPage(t, started, reply.url, { context });
    await other.evaluate(async (gone) => (await import('/page/storage.js')).remove(gone), id);
    reply.say(' and ends');
    reply.end();
    await page.getByText('It begins and ends').waitFor();
    await page.waitForFunction(() => document.querySelector('#stop').hidden);
    await page.reload();
    await page.locator('.empty').waitFor();
    assert.deepEqual(await stored(page), []);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('what came of a reply outlives a reload', async (t) => {
    const server = await start(t);
    const reply = await withOpenReply(t, server);
    const page = await openPage(t, await browser(t), reply.url);
    await send(page, 'Go on.');
    await begun(page);
    await until('some of it is stored', async () => {
      reply.say(' and goes on');
      return Object.values((await stored(page))[0].messages).some(({ text }) => /goes on/.test(text));
    }, { every: 100 });
    await page.reload();
    await begun(page);
    assert.match(await lastReply(page), /^It begins and goes on/);
    await server.stop();
  });

  test('what came of a reply is stored in a page without frames, too, as those in the background are', async (t) => {
    const server = await start(t);
    const reply = await withOpenReply(t, server);
    const page = await openPage(t, await browser(t), reply.url);
    await send(page, 'Go on.');
    await begun(page);
    await page.evaluate(() => { window.requestAnimationFrame = () => 1; });
    await until('some of it is stored', async () => {
      reply.say(' and goes on');
      return Object.values((await stored(page))[0].messages).some(({ text }) => /goes on/.test(text));
    }, { every: 100 });
    await server.stop();
  });

  test('a database that the browser closes under the page is opened again', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    await send(page, 'Hello.');
    await replied(page, 1);
    await page.evaluate(() => { // every transaction fails until the database is opened anew
      const opened = new WeakSet(), { open } = IDBFactory.prototype, { transaction } = IDBDatabase.prototype;
      IDBFactory.prototype.open = function again(...args) {
        const request = open.apply(this, args);
        request.addEventListener('success', () => opened.add(request.result));
        return request;
      };
      IDBDatabase.prototype.transaction = function begin(...args) {
        if (!opened.has(this)) throw new DOMException('The database connection is closing.', 'InvalidStateError');
        return transaction.apply(this, args);
      };
    });
    await send(page, 'Who are you?');
    await replied(page, 2);
    await until('all is stored', async () => Object.values((await stored(page))[0].messages).filter(({ figures }) => figures).length === 2);
    assert.equal(await page.locator('#notice').textContent(), '');
    await page.reload();
    await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a browser that stores nothing any more says so, and the conversation goes on', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    await page.evaluate(() => {
      IDBFactory.prototype.open = () => { throw new DOMException('no more', 'UnknownError'); };
      IDBDatabase.prototype.transaction = () => { throw new DOMException('no more', 'InvalidStateError'); };
    });
    for (const n of [1, 2]) {
      await send(page, 'Hello.');
      await replied(page, n);
      await page.locator('#notice').getByText('The conversation is not stored: no more.').waitFor();
    }
    await page.click('#new-conversation');
    await page.locator('.empty').waitFor();
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a conversation that was deleted in another tab says that it is not stored', async (t) => {
    const server = await start(t);
    const started = await browser(t);
    const context = await started.newContext();
    const page = await openPage(t, started, server.url, { context });
    await send(page, 'Hello.');
    await replied(page, 1);
    const [{ id }] = await until('it is stored', async () => { const all = await stored(page); return all.length === 1 && all; });
    const other = await openPage(t, started, server.url, { context });
    await other.evaluate(async (gone) => (await import('/page/storage.js')).remove(gone), id);
    await send(page, 'Who are you?');
    await page.locator('#notice').getByText('The conversation is not stored: it was deleted').waitFor();
    await replied(page, 2);
    assert.deepEqual(await stored(page), []);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('branches can be chosen among after another tab has saved the conversation', async (t) => {
    const server = await start(t);
    const started = await browser(t);
    const context = await started.newContext();
    const first = await openPage(t, started, server.url, { context });
    await send(first, 'Hello.');
    await replied(first, 1);
    await first.getByRole('button', { name: 'Again: another reply' }).click();
    await first.getByText('2 of 2').waitFor();
    await replied(first, 1);
    await until('both are stored', async () => Object.values((await stored(first))[0].messages).filter(({ figures }) => figures).length === 2);
    await first.reload();
    const other = await openPage(t, started, server.url, { context });
    for (const page of [other, first]) {
      await page.getByText('2 of 2').waitFor();
      await send(page, 'Who are you?');
      await replied(page, 2);
    }
    await until('all is stored', async () => Object.values((await stored(first))[0].messages).filter(({ figures }) => figures).length === 4);
    await first.getByText('2 of 2').first().waitFor();
    await first.getByRole('button', { name: 'The branch before' }).first().click();
    await first.getByText('1 of 2').waitFor();
    await first.getByRole('button', { name: 'The next branch' }).first().click();
    await first.waitForFunction(() => document.querySelector('.message.assistant .branch')?.textContent === '2 of 2');
    assert.deepEqual(first.faults, []);
    await server.stop();
  });

  test('what two tabs say stays, in branches beside each other', async (t) => {
    const server = await start(t);
    const started = await browser(t);
    const context = await started.newContext();
    const page = await openPage(t, started, server.url, { context });
    await send(page, 'Hello.');
    await replied(page, 1);
    await until('it is stored', async () => (await stored(page)).some(({ messages }) => Object.values(messages).some(({ figures }) => figures)));
    const other = await openPage(t, started, server.url, { context });
    await other.waitForFunction(() => document.querySelectorAll('.message').length === 2);
    await send(other, 'Who are you?');
    await replied(other, 2);
    await send(page, 'What can you do?');
    await replied(page, 2);
    await send(other, 'And again: who are you?');
    await replied(other, 3);
    const texts = ({ messages }) => Object.values(messages).filter(({ role }) => role === 'user').map(({ text }) => text).sort();
    await until('all is stored', async () => {
      const [one, ...others] = await stored(other);
      return others.length === 0 && Object.values(one.messages).filter(({ figures }) => figures).length === 4
        && assert.deepEqual(texts(one), ['And again: who are you?', 'Hello.', 'What can you do?', 'Who are you?']) === undefined;
    });
    await page.reload();
    await page.waitForFunction(() => document.querySelectorAll('.message').length === 6);
    assert.equal(await page.locator('.branch').first().textContent(), '1 of 2');
    assert.deepEqual([...page.faults, ...other.faults], []);
    await server.stop();
  });

  test('a reply goes on while another conversation is shown, and what was being edited goes nowhere else', async (t) => {
    const server = await start(t);
    const reply = await withOpenReply(t, server);
    const page = await openPage(t, await browser(t), reply.url);
    await send(page, 'Go on.');
    await begun(page);
    await page.getByRole('button', { name: 'Edit this message' }).click();
    await page.click('#new-conversation');
    await page.locator('.empty').waitFor();
    assert.equal(await page.inputValue('#composer-text'), '');
    assert.equal(await page.locator('#send').isVisible(), true);
    reply.say(' and goes on');
    await page.locator('#conversations .title').getByText('Go on.').click();
    await page.getByText('It begins and goes on').waitFor();
    assert.equal(await page.locator('#stop').isVisible(), true);
    assert.equal(await page.locator('.message.assistant').getAttribute('aria-busy'), 'true');
    await page.click('#new-conversation');
    reply.say(' and ends');
    reply.end();
    await until('it is stored', async () => Object.values((await stored(page))[0].messages).some(({ text, running }) => /and ends$/.test(text) && !running));
    await page.locator('#conversations .title').getByText('Go on.').click();
    await page.getByText('It begins and goes on and ends').waitFor();
    assert.equal(await page.locator('.message.assistant').getAttribute('aria-busy'), 'false');
    assert.equal(await page.getByText('Stopped.').count(), 0);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a page that was left while a prompt was computed shows no progress for ever', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    await page.evaluate(async () => (await import('/page/storage.js')).save({ id: 'left', title: 'Left', system: '', sampling: {}, leaf: 'b', messages: {
      a: { id: 'a', parent: null, role: 'user', text: 'Go on.' },
      b: { id: 'b', parent: 'a', role: 'assistant', text: '', running: true, progress: { total: 100, cache: 0, processed: 50 } } } }));
    await page.reload();
    await page.getByText('Stopped.').waitFor();
    assert.equal(await page.locator('.message progress').count(), 0);
    assert.equal(await page.locator('.message.assistant').getAttribute('aria-busy'), 'false');
    await server.stop();
  });

  test('the list reads titles alone, and those of a former version are found', async (t) => {
    const server = await start(t);
    const started = await browser(t);
    const context = await started.newContext();
    await context.addInitScript(() => {
      window.reads = [];
      for (const name of ['get', 'getAll', 'openCursor']) {
        const real = IDBObjectStore.prototype[name];
        IDBObjectStore.prototype[name] = function read(...args) { window.reads.push(`${name} ${this.name}`); return real.apply(this, args); };
      }
    });
    const before = await context.newPage();
    await before.goto(`${server.url}/page/icon.svg`);
    await before.evaluate(() => new Promise((resolve, reject) => { // as version 1 had it
      const request = indexedDB.open('hearth', 1);
      request.onerror = () => reject(request.error);
      request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
      request.onsuccess = () => {
        const transaction = request.result.transaction('conversations', 'readwrite');
        for (const n of [1, 2, 3]) transaction.objectStore('conversations').put({ id: `old-${n}`, title: `Old ${n}`, changed: n, system: '', sampling: {}, leaf: 'a', messages: { a: { id: 'a', parent: null, role: 'user', text: `Words ${n}` } } });
        transaction.oncomplete = () => { request.result.close(); resolve(); };
      };
    }));
    const page = await openPage(t, started, server.url, { context });
    assert.deepEqual(await listed(page), ['Old 3', 'Old 2', 'Old 1']);
    assert.deepEqual(await page.locator('.message .plain').allTextContents(), ['Words 3']);
    await page.reload();
    await page.locator('.message').waitFor();
    const reads = await page.evaluate(() => window.reads);
    assert.deepEqual(reads.filter((read) => /conversations/.test(read)), ['get conversations'], `one conversation is read: ${reads}`);
    await page.locator('#conversations .title').getByText('Old 1').click();
    await page.locator('.message .plain').getByText('Words 1').waitFor();
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a browser that stores nothing says so, and works', async (t) => {
    const server = await start(t);
    const started = await browser(t);
    const context = await started.newContext();
    await context.addInitScript(() => {
      for (const name of ['indexedDB', 'localStorage', 'sessionStorage']) Object.defineProperty(window, name, { get() { throw new DOMException('refused', 'SecurityError'); } });
    });
    const page = await openPage(t, started, server.url, { context });
    await page.locator('#notice[role=status]').getByText('This browser stores nothing here').waitFor();
    await send(page, 'Hello.');
    await replied(page, 1);
    await page.click('#new-conversation');
    await page.locator('.empty').waitFor();
    await page.locator('#conversations .title').getByText('Hello.').click();
    await page.waitForFunction(() => document.querySelectorAll('.message').length === 2);
    await page.reload();
    await page.locator('.empty').waitFor();
    assert.deepEqual(page.faults, []);
    await server.stop();
  });
});

// ---- What goes with a message ----

describe('attachments', () => {
  const withProjector = (t, kind) => serve({ t, models: { context_window: 2048, n_seq_max: 2, cache_min_tokens: 0, mmproj: projectorFor(demo, kind) } });

  test('an image is chosen, pasted or dropped, waited for, sent, and there after a reload', async (t) => {
    const server = await withProjector(t, 'llava');
    const page = await openPage(t, await browser(t), server.url);
    const file = (seed) => ({ name: `picture ${seed}.png`, mimeType: 'image/png', buffer: Buffer.from(png(seed), 'base64') });
    await page.evaluate(() => { // reading takes as long as the test wants
      const read = FileReader.prototype.readAsDataURL;
      FileReader.prototype.readAsDataURL = function later(...args) { (window.held ??= []).push(() => read.apply(this, args)); };
    });
    await page.setInputFiles('#attach-file', file(1));
    await page.getByText('picture 1.png is being read').waitFor();
    await send(page, 'What is this?');
    assert.equal(await page.locator('.message').count(), 0, 'it waits');
    await page.evaluate(() => window.held.splice(0).forEach((read) => read()));
    await replied(page, 1);
    assert.equal(await page.locator('.message.user img').count(), 1);
    await page.waitForFunction(() => document.querySelector('.message.user img').naturalWidth === 112);

    for (const [type, event] of [['paste', 'clipboardData'], ['drop', 'dataTransfer']]) {
      await page.evaluate(([name, member, base64]) => {
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], `${name}.png`, { type: 'image/png' }));
        const made = name === 'paste' ? new ClipboardEvent(name, { [member]: data, bubbles: true, cancelable: true }) : new DragEvent(name, { [member]: data, bubbles: true, cancelable: true });
        document.getElementById('composer-text').dispatchEvent(made);
        window.held.splice(0).forEach((read) => read());
      }, [type, event, png(type.length)]);
      await page.locator('.attachment img').waitFor();
      await send(page, `And this ${type}?`);
      await page.waitForFunction((words) => [...document.querySelectorAll('.message.user')].at(-1).textContent.includes(words), type);
      await page.waitForFunction(() => document.querySelector('#stop').hidden);
    }
    assert.equal(await server.client.metric('hearth_media_encoded_total'), 3, 'each is encoded once, however many turns have it');
    await page.reload();
    await page.waitForFunction(() => document.querySelectorAll('.message.user img').length === 3);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('an image can be left out again as its message is edited, and what was half written comes back', async (t) => {
    const server = await withProjector(t, 'llava');
    const page = await openPage(t, await browser(t), server.url);
    await page.setInputFiles('#attach-file', { name: 'scan.tiff', mimeType: 'image/tiff', buffer: Buffer.from('x') });
    await page.locator('#notice').getByText('scan.tiff is not taken: PNG, JPEG, WebP, GIF and BMP are.').waitFor();
    await page.setInputFiles('#attach-file', { name: 'broken.png', mimeType: 'image/png', buffer: Buffer.from('no picture') });
    await page.locator('.attachment img').waitFor({ state: 'attached' });
    await send(page, 'What is this?');
    await page.locator('.message.assistant .error').waitFor();
    await page.fill('#composer-text', 'half written');
    await page.setInputFiles('#attach-file', { name: 'mine.png', mimeType: 'image/png', buffer: Buffer.from(png(1), 'base64') });
    await page.locator('.attachment').getByText('mine.png').waitFor();
    const edit = page.getByRole('button', { name: 'Edit this message' });
    await edit.click();
    assert.equal(await page.inputValue('#composer-text'), 'What is this?');
    await page.locator('.attachment').getByText('broken.png').waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await page.inputValue('#composer-text'), 'half written');
    await page.locator('.attachment').getByText('mine.png').waitFor();
    await edit.click();
    await page.getByRole('button', { name: 'Leave out broken.png' }).click();
    await page.keyboard.press('Enter');
    await replied(page, 1);
    assert.equal(await page.locator('.message.user img').count(), 0);
    assert.equal(await page.inputValue('#composer-text'), 'half written');
    assert.equal(await page.locator('.attachment').count(), 1);
    await server.stop();
  });

  test('text that comes with a picture of itself is pasted as text; a file is taken wherever it is dropped', async (t) => {
    const server = await withProjector(t, 'llava');
    const page = await openPage(t, await browser(t), server.url);
    const taken = (type, member, at, withText) => page.evaluate(([name, data, id, text, base64]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], `${name}.png`, { type: 'image/png' }));
      if (text) transfer.setData('text/plain', 'a cell');
      const made = new (name === 'paste' ? ClipboardEvent : DragEvent)(name, { [data]: transfer, bubbles: true, cancelable: true });
      document.getElementById(id).dispatchEvent(made);
      return made.defaultPrevented;
    }, [type, member, at, withText, png(4)]);
    assert.equal(await taken('paste', 'clipboardData', 'composer-text', true), false);
    assert.equal(await page.locator('.attachment').count(), 0);
    assert.equal(await taken('drop', 'dataTransfer', 'sidebar', false), true);
    await page.locator('.attachment').getByText('drop.png').waitFor();
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a sound is sent, and what the model does not take is refused', async (t) => {
    const server = await withProjector(t, 'audio');
    const page = await openPage(t, await browser(t), server.url);
    const path = join(temporaryFolder(), 'tone.wav');
    writeFileSync(path, Buffer.from(wav(), 'base64'));
    await page.setInputFiles('#attach-file', path);
    await page.locator('.attachment').getByText('tone.wav').waitFor();
    await send(page, 'What is this?');
    await replied(page, 1);
    assert.equal(await page.locator('.message.user audio').count(), 1);
    assert.equal(await server.client.metric('hearth_media_encoded_total'), 1);
    await page.setInputFiles('#attach-file', { name: 'film.mkv', mimeType: 'video/x-matroska', buffer: Buffer.from('x') });
    await page.locator('#notice').getByText('This model does not take film.mkv: it takes text, audio.').waitFor();
    assert.deepEqual(page.faults, []);
    await server.stop();
  });
});
