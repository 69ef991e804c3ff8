// What goes with a message besides its words, what becomes of messages that were sent, and of a window that is full.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { accessibilityFaults, browser, openPage } from './lib/browser.js';
import { demo } from './lib/models.js';
import { events, replied, send, start, stored, textOf, withReplies } from './lib/page.js';
import { serve, temporaryFolder } from './lib/server.js';

const requestOf = async (page, act) => (await Promise.all([page.waitForRequest('**/v1/chat/completions'), act()]))[0].postDataJSON();
const echo = (outgoing) => events(outgoing, ['Yes.']);
const cutOff = (outgoing) => {
  outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
  outgoing.end(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'I am' }, finish_reason: 'length' }] })}\n\ndata: [DONE]\n\n`);
};
const nothing = async (page) => page.waitForFunction(() => document.querySelector('#stop').hidden);
const text = (name, words, mimeType = 'text/plain') => ({ name, mimeType, buffer: Buffer.from(words) });

// ---- Files ----

test('texts, code and tables go with a message to every model, and stay with it', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), await withReplies(t, server, echo));
  await page.setInputFiles('#attach-file', [text('sum.c', 'int sum;\r\n```\nint b;', 'text/x-csrc'), text('a.csv', '\ufeffx,y\n1,2\n', 'text/csv'), text('data', '{"a": 1}', '')]);
  await page.locator('.attachment').nth(2).waitFor();
  const body = await requestOf(page, () => send(page, 'What is this?'));
  assert.equal(body.messages[0].content, 'sum.c:\n````c\nint sum;\n```\nint b;\n````\n\na.csv:\n```csv\nx,y\n1,2\n```\n\ndata:\n```\n{"a": 1}\n```\n\nWhat is this?');
  await nothing(page);
  assert.equal(await textOf(page.locator('.message.user .plain')), 'What is this?');
  assert.equal(await page.locator('.message.user .file').count(), 3);
  await page.getByText(/sum\.c · \d+ characters/).click();
  assert.match(await page.locator('.message.user .file pre').first().textContent(), /^int sum;\n/);
  await page.reload();
  await page.locator('.message.user .file').nth(2).waitFor();
  const again = await requestOf(page, () => page.getByRole('button', { name: 'Again: another reply' }).click());
  assert.deepEqual(again.messages[0], body.messages[0]);
  await nothing(page);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('what is no text is refused there and then, with the reason', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  await page.waitForFunction(() => document.querySelector('#model').options.length > 0);
  const refused = [
    [text('letter.pdf', '%PDF-1.7', 'application/pdf'), /letter\.pdf cannot be read: it is a PDF document/],
    [text('table.xlsx', 'PK', 'application/vnd.ms-excel'), /table\.xlsx cannot be read: it is a spreadsheet/],
    [{ name: 'program', mimeType: '', buffer: Buffer.from([0x7f, 0x45, 0, 1]) }, /program cannot be read: it is no text in UTF-8/],
    [{ name: 'latin.txt', mimeType: 'text/plain', buffer: Buffer.from([0xe4, 0x20]) }, /latin\.txt cannot be read: it is no text in UTF-8/],
    [text('photo.png', 'x', 'image/png'), /This model does not take photo\.png: it takes text\./],
    [text('song.mp3', 'x', 'audio/mpeg'), /This model does not take song\.mp3: it takes text\./],
  ];
  for (const [file, why] of refused) {
    await page.setInputFiles('#attach-file', file);
    await page.locator('#notice').getByText(why).waitFor();
    assert.equal(await page.locator('.attachment').count(), 0);
  }
  await page.setInputFiles('#attach-file', { name: 'wide.txt', mimeType: 'text/plain', buffer: Buffer.from('\ufeffwords', 'utf16le') });
  await page.locator('.attachment').getByText('wide.txt').waitFor();
  await server.stop();
});

test('a long text that is pasted becomes a file, a short one stays where it is', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), await withReplies(t, server, echo));
  const paste = (words) => page.evaluate((data) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData('text/plain', data);
    return document.getElementById('composer-text').dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
  }, words);
  assert.equal(await paste('short'), true, 'the field takes it');
  assert.equal(await paste('word '.repeat(1000)), false);
  await page.locator('.attachment').getByText('Pasted text').waitFor();
  await page.waitForFunction(() => /about 1,\d{3} of/.test(document.getElementById('window-text').textContent)); // it counts
  const body = await requestOf(page, () => send(page, 'And?'));
  assert.ok(body.messages[0].content.startsWith('Pasted text:\n```\nword word'), body.messages[0].content.slice(0, 40));
  assert.equal((await stored(page))[0].title, 'And?');
  await server.stop();
});

test('a file alone is a message, and is imported as it was exported', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), await withReplies(t, server, echo));
  await page.setInputFiles('#attach-file', text('notes.md', '# Notes'));
  await page.locator('.attachment').waitFor();
  const body = await requestOf(page, () => page.click('#send'));
  assert.equal(body.messages[0].content, 'notes.md:\n```markdown\n# Notes\n```');
  await nothing(page);
  const file = await page.evaluate(async () => (await import('/page/conversation_files.js')).exportAll());
  await page.setInputFiles('#import-file', { name: 'all.json', mimeType: 'application/json', buffer: Buffer.from(file) });
  await page.getByText('One conversation was imported.').waitFor({ state: 'attached' });
  const all = await stored(page);
  assert.deepEqual(all.map(({ title, messages }) => [title, Object.values(messages).find(({ role }) => role === 'user').files]), [1, 2].map(() => ['notes.md', [{ kind: 'text', name: 'notes.md', data: '# Notes' }]]));
  await server.stop();
});

test('where there is the demo model alone, an empty conversation leads to others', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  await page.getByText('This server has only its demo model').waitFor();
  await page.getByRole('button', { name: 'Get a model' }).click();
  await page.locator('#models').waitFor();
  assert.equal(await page.locator('#chat').isVisible(), false);
  await page.click('#show-chat');
  await send(page, 'Hello');
  await replied(page, 1);
  assert.equal(await page.getByText('only its demo model').count(), 0);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('what was begun in place of one message is there again after another one', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), await withReplies(t, server, echo));
  await page.waitForFunction(() => document.querySelector('#model').options.length > 0);
  for (const [i, words] of ['One?', 'Two?'].entries()) { await send(page, words); await page.locator('.message.assistant').nth(i).waitFor(); await nothing(page); }
  await page.fill('#composer-text', 'Three, half');
  const edit = (i) => page.locator('.message.user').nth(i).getByRole('button', { name: 'Edit this message in a new branch' }).click();
  const field = () => page.inputValue('#composer-text');
  await edit(0);
  await page.fill('#composer-text', 'One, changed');
  await edit(1);
  assert.equal(await field(), 'Two?');
  await page.fill('#composer-text', 'Two, changed');
  await edit(0);
  assert.equal(await field(), 'One, changed');
  await page.fill('#composer-text', 'One, changed again');
  await edit(0);
  assert.equal(await field(), 'One, changed again', 'it is edited already');
  await edit(1);
  assert.equal(await field(), 'Two, changed');
  await page.keyboard.press('Escape');
  assert.equal(await field(), 'Three, half');
  await edit(1);
  assert.equal(await field(), 'Two?', 'Escape has left the change');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

// ---- Messages that were sent ----

test('a reply and a question are changed where they stand, without asking for another reply', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), await withReplies(t, server, echo));
  await send(page, 'Is it so?');
  await nothing(page);
  await page.getByRole('button', { name: 'Edit this reply' }).click();
  assert.equal(await page.inputValue('#composer-text'), 'Yes.');
  await page.fill('#composer-text', 'No, **never**.');
  await page.getByRole('button', { name: 'Change', exact: true }).click();
  await page.locator('.message.assistant strong').getByText('never').waitFor();
  assert.match(await textOf(page.locator('.message.assistant .when')), /changed$/);
  await page.getByRole('button', { name: 'Edit this message' }).click();
  await page.fill('#composer-text', 'Is it not so?');
  await page.getByRole('button', { name: 'Change it only' }).click();
  await page.locator('.message.user').getByText('Is it not so?').waitFor();
  assert.equal(await page.locator('.message').count(), 2);
  assert.equal(await page.locator('.branch').count(), 0);
  const body = await requestOf(page, () => send(page, 'Why?'));
  assert.deepEqual(body.messages.map(({ content }) => content), ['Is it not so?', 'No, **never**.', 'Why?']);
  await nothing(page);
  const [{ title }] = await stored(page);
  assert.equal(title, 'Is it not so?');
  // Escape leaves an edit as it was.
  await page.fill('#composer-text', 'half written');
  await page.getByRole('button', { name: 'Edit this reply' }).first().click();
  await page.keyboard.press('Escape');
  assert.equal(await page.inputValue('#composer-text'), 'half written');
  assert.equal(await page.locator('#change').isHidden() && await textOf(page.locator('#send')), 'Send');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('another model answers again, beside the reply of the first', async (t) => {
  const path = join(temporaryFolder(), 'two.yaml');
  writeFileSync(path, `models:\n  first: {path: ${demo}, context_window: 2048}\n  second: {path: ${demo}, context_window: 2048}\n`);
  const server = await serve({ t, args: ['--config', path] });
  const page = await openPage(t, await browser(t), server.url);
  await send(page, 'Who are you?');
  await replied(page, 1);
  await page.getByRole('button', { name: 'Again with' }).click();
  assert.deepEqual(await accessibilityFaults(page), []);
  const body = await requestOf(page, () => page.locator('#others').getByRole('button', { name: 'second' }).click());
  assert.equal(body.model, 'second');
  await page.locator('.branch').getByText('2 of 2').waitFor();
  await nothing(page);
  assert.match(await textOf(page.locator('.message.assistant .when')), /^second · /);
  assert.equal(await page.inputValue('#model'), 'first');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('a model that the reply came from goes on with it, and none is asked before one is chosen', async (t) => {
  const path = join(temporaryFolder(), 'two.yaml');
  writeFileSync(path, `models:\n  first: {path: ${demo}, context_window: 2048}\n  second: {path: ${demo}, context_window: 2048}\n`);
  const server = await serve({ t, args: ['--config', path] });
  const page = await openPage(t, await browser(t), await withReplies(t, server, cutOff));
  await page.selectOption('#model', 'second');
  await send(page, 'Who are you?');
  await nothing(page);
  await page.selectOption('#model', 'first');
  const more = await requestOf(page, () => page.getByRole('button', { name: 'Continue this reply' }).click());
  assert.equal(more.model, 'second');
  await nothing(page);
  await page.getByRole('button', { name: 'Again with' }).click();
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.branch').count(), 0);
  await server.stop();
});

test('an edit that meets a running reply, or a file that is still read, loses nothing', async (t) => {
  const server = await start(t);
  let end;
  const page = await openPage(t, await browser(t), await withReplies(t, server, (outgoing) => {
    outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
    outgoing.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'First half' } }] })}\n\n`);
    end = () => outgoing.end(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: ', second half.' } }] })}\n\ndata: [DONE]\n\n`);
  }));
  await send(page, 'Is it so?');
  await page.getByText('First half').waitFor();
  await page.getByRole('button', { name: 'Edit this reply' }).click();
  await page.locator('#notice').getByText('still being written').waitFor();
  assert.equal(await page.inputValue('#composer-text'), '');
  end();
  await page.getByText('First half, second half.').waitFor();
  await nothing(page);
  await page.getByRole('button', { name: 'Edit this reply' }).click();
  await page.setInputFiles('#attach-file', text('a.txt', 'words'));
  await page.locator('#notice').getByText('Files go with what you ask').waitFor();
  assert.equal(await page.locator('.attachment').count(), 0);
  await page.keyboard.press('Escape');
  // A file that fails while the message waits for it: nothing is sent without it.
  await page.fill('#composer-text', 'And this?');
  await page.setInputFiles('#attach-file', { name: 'bad.txt', mimeType: 'text/plain', buffer: Buffer.from([0xff, 0x41]) });
  await page.locator('#notice').getByText(/bad\.txt cannot be read/).waitFor();
  assert.equal(await page.inputValue('#composer-text'), 'And this?');
  await server.stop();
});

test('what was attached or pasted stays with its conversation, also after a reload', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), await withReplies(t, server, echo));
  await send(page, 'One');
  await nothing(page);
  await page.fill('#composer-text', 'half written');
  await page.setInputFiles('#attach-file', text('a.txt', 'words of a file'));
  await page.locator('.attachment').getByText('a.txt').waitFor();
  await page.click('#new-conversation');
  await page.waitForFunction(() => document.querySelectorAll('.attachment').length === 0 && document.getElementById('composer-text').value === '');
  await page.locator('#conversations .title').getByText('One').click();
  await page.locator('.attachment').getByText('a.txt').waitFor();
  assert.equal(await page.inputValue('#composer-text'), 'half written');
  await page.waitForFunction(() => localStorage.getItem('hearth.drafts')?.includes('words of a file'));
  await page.reload();
  await page.locator('.attachment').getByText('a.txt').waitFor();
  await page.getByRole('button', { name: 'Insert a.txt into the message' }).click();
  assert.equal(await page.inputValue('#composer-text'), 'half writtenwords of a file');
  assert.equal(await page.locator('.attachment').count(), 0);
  await page.fill('#search', 'of a file');
  await page.keyboard.press('Escape');
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('two tabs: the later change of a message holds in both, and so does what was left out', async (t) => {
  const { server, page } = await openLong(t, 6, 1900, echo);
  const other = await openPage(t, null, page.url(), { context: page.context() });
  await other.locator('#conversations .title').getByText('Long').click();
  await other.locator('.message').nth(11).waitFor();
  await page.getByRole('button', { name: 'Edit this reply' }).last().click();
  await page.fill('#composer-text', 'Changed here.');
  await page.getByRole('button', { name: 'Change', exact: true }).click();
  await page.getByText('Changed here.').waitFor();
  await page.getByRole('button', { name: 'What now?' }).click();
  await page.getByRole('button', { name: 'Leave them out' }).click();
  const n = await page.locator('.message.left').count();
  await page.waitForFunction(async (title) => (await (await import('/page/storage.js')).all()).some((one) => one.title === title && Object.values(one.messages).some(({ left }) => left)), 'Long');
  await requestOf(other, () => send(other, 'From the other tab'));
  await nothing(other);
  await other.getByText('Changed here.').waitFor();
  assert.equal(await other.locator('.message.left').count(), n);
  const body = await requestOf(other, () => send(other, 'Once more'));
  assert.equal(body.messages.length, 1 + (12 - n) + 2 + 1);
  assert.ok(body.messages.some(({ content }) => content === 'Changed here.'));
  await server.stop();
});

// ---- A full window ----

const long = (n) => Array.from({ length: 60 }, (_, i) => `word${n}x${i}`).join(' ');

// Conversations of the file: so many turns of some 300 tokens each, the last reply of which has counted them.
const filled = (turns, tokens) => {
  const messages = {};
  for (let i = 0; i < turns; i++) {
    messages[`q${i}`] = { id: `q${i}`, parent: i ? `a${i - 1}` : null, role: 'user', text: `${long(i)}?`, at: 1000 + i };
    messages[`a${i}`] = { id: `a${i}`, parent: `q${i}`, role: 'assistant', text: `${long(i)}.`, at: 1000 + i, ...i === turns - 1 && { figures: { shared: 0, restored: 0, computed: tokens, generated: 0 } } };
  }
  return Buffer.from(JSON.stringify({ hearth_conversations: 1, conversations: [{ title: 'Long', system: 'Be brief.', sampling: { temperature: 0 }, leaf: `a${turns - 1}`, messages }] }));
};
async function openLong(t, turns, tokens, reply) {
  const server = await start(t, { models: { context_window: 2048 } });
  const page = await openPage(t, await browser(t), reply ? await withReplies(t, server, reply) : server.url, { expected: /400 \(Bad Request\)/ }); // of /cache/lookup, where a prompt does not fit
  await page.waitForFunction(() => document.querySelector('#model').options.length > 0);
  await page.setInputFiles('#import-file', { name: 'long.json', mimeType: 'application/json', buffer: filled(turns, tokens) });
  await page.locator('#conversations .title').getByText('Long').click();
  await page.locator('.message').nth(2 * turns - 1).waitFor({ state: 'attached' }); // what is written before belongs to the other one
  return { server, page };
}

test('of a full window the oldest turns are left out, and are still there', async (t) => {
  const { server, page } = await openLong(t, 6, 1900, echo);
  await page.getByText(/1,900 of 2,048 tokens: the window is nearly full/).waitFor();
  await page.getByRole('button', { name: 'What now?' }).click();
  assert.deepEqual(await accessibilityFaults(page), []);
  const note = await textOf(page.locator('#full-leave-text'));
  await page.getByRole('button', { name: 'Leave them out' }).click();
  const left = await page.locator('.message.left').count();
  assert.ok(left >= 2 && left <= 10 && left % 2 === 0 && note.includes(` ${left} messages `), `${left}: ${note}`);
  assert.equal(await page.locator('.message').count(), 12);
  await page.waitForFunction(() => document.getElementById('window-more').hidden);
  const body = await requestOf(page, () => send(page, 'And now?'));
  assert.equal(body.messages.length, 1 + 12 - left + 1, 'the system prompt, and those that stay');
  assert.deepEqual(body.messages.slice(0, 2).map(({ role }) => role), ['system', 'user']);
  await nothing(page);
  await page.reload();
  await page.locator('.message.left').first().waitFor();
  await page.locator('.message.left summary').nth(left - 2).click();
  await page.getByRole('button', { name: 'Take this message in again' }).last().click();
  await page.waitForFunction((n) => document.querySelectorAll('.message.left').length === n, left - 2);
  const again = await requestOf(page, () => send(page, 'And then?'));
  assert.equal(again.messages.length, body.messages.length + 2 + 2);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('the model writes a summary, and a new conversation goes on from it', async (t) => {
  const { server, page } = await openLong(t, 5, 1950);
  await page.getByRole('button', { name: 'What now?' }).click();
  const body = await requestOf(page, () => page.getByRole('button', { name: 'Write a summary' }).click());
  assert.match(body.messages.at(-1).content, /^Summarise what we have said/);
  assert.equal(body.max_tokens, 512);
  await page.locator('#conversations .title').getByText('Long (continued)').waitFor({ timeout: 120_000 });
  assert.equal(await page.evaluate(() => document.getElementById('full').open), false);
  assert.equal(await page.locator('.message').count(), 2);
  const kept = (await stored(page)).find(({ title }) => title === 'Long (continued)');
  assert.deepEqual([kept.system, kept.sampling], ['Be brief.', { temperature: 0 }]);
  const next = await requestOf(page, () => send(page, 'Go on.'));
  assert.deepEqual(next.messages.map(({ role }) => role), ['system', 'user', 'assistant', 'user']);
  await replied(page, 1);
  assert.deepEqual(page.faults, []);
  await server.stop();
});

test('a summary that is not wanted any more, or fails, leaves everything as it was', async (t) => {
  const { server, page } = await openLong(t, 5, 1950, (outgoing) => { outgoing.writeHead(503, { 'content-type': 'application/json' }); outgoing.end('{"error":{"message":"It is stopping."}}'); });
  await page.getByRole('button', { name: 'What now?' }).click();
  await page.getByRole('button', { name: 'Write a summary' }).click();
  await page.locator('#full-note').getByText('There is no summary: It is stopping.').waitFor();
  await page.getByRole('button', { name: 'Write a summary' }).waitFor();
  await page.route('**/v1/chat/completions', () => {}); // it does not answer
  await Promise.all([page.waitForRequest('**/v1/chat/completions'), page.getByRole('button', { name: 'Write a summary' }).click()]);
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => !document.getElementById('full').open);
  assert.equal((await stored(page)).length, 1);
  await server.stop();
});

test('a prompt that does not fit leads there, and the window can be enlarged', async (t) => {
  const { server, page } = await openLong(t, 2, 600);
  await send(page, `${'many words '.repeat(1500)}`);
  await page.locator('.message.assistant .error').waitFor();
  await page.locator('.message.assistant .error').getByRole('button', { name: 'What to do about a full window' }).click();
  assert.match(await textOf(page.locator('#full')), /--set context_window=4096|as large as the model was trained for/);
  await page.keyboard.press('Escape');
  await server.stop();
});
