// The web page: what the server sends, and what a user of a browser sees and can do.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { accessibilityFaults, browser, openPage } from './lib/browser.js';
import { events, key, lastReply, legends, replied, send, start, stored, textOf, withKey, withReplies } from './lib/page.js';
import { freePort } from './lib/peer.js';
import { temporaryFolder } from './lib/server.js';
import { until } from './lib/wait.js';

test('the page is for browsers, needs no key, and may do little', async (t) => {
  const server = await start(t, withKey);
  const get = (path, headers = {}) => fetch(server.url + path, { headers });
  const page = await get('/', { accept: 'text/html' });
  assert.equal(page.status, 200);
  const policy = page.headers.get('content-security-policy');
  assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'/);
  assert.ok(!/unsafe|\*/.test(policy), policy);
  assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
  const html = await page.text();
  assert.ok(!/ style=|<style| on[a-z]+=|<script(?! type="module" src="\/page\/main\.js")/.test(html), 'nothing is inline');
  assert.equal(await (await get('/')).text(), 'hearth is running\n');
  assert.equal((await get('/page/nothing.js')).status, 404);
  assert.match(await (await get('/page/vendor/licences.txt')).text(), /marked@[\s\S]*katex@[\s\S]*dompurify@[\s\S]*highlightjs/);
  const script = await get('/page/main.js');
  assert.equal(script.headers.get('content-type'), 'text/javascript; charset=utf-8');
  assert.equal((await get('/page/main.js', { 'if-none-match': script.headers.get('etag') })).status, 304);
  assert.equal((await get('/slots')).status, 401);
  await server.stop();
});

describe('in a browser', () => {
  test('three turns recall a fact, the bars say what was reused, and a restart is survived', async (t) => {
    const port = await freePort();
    const disk = temporaryFolder();
    const options = { args: ['--port', String(port)], set: { 'cache.tiers.disk.path': disk } };
    let server = await start(t, options);
    const page = await openPage(t, await browser(t), server.url);
    await send(page, 'My code is 4711. Remember it.');
    await replied(page, 1);
    await send(page, 'What can you do?');
    await replied(page, 2);
    await server.stop();
    server = await start(t, options);
    await send(page, 'What is my code?');
    await replied(page, 3);
    const said = await legends(page);
    assert.match(said[0], /^[\d,]+ computed · [\d,]+ generated · ([\d,]+ of them as drafted · )?[\d.]+ s to the first token/);
    assert.match(said[1], /^[\d,]+ reused from KV cells · [\d,]+ computed/);
    assert.match(said[2], /^[\d,]+ restored from the disk · [\d,]+ computed/);
    assert.match(await lastReply(page), /4711/);
    await page.reload();
    await page.waitForFunction(() => document.querySelectorAll('.message').length === 6);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a message is edited in a branch of its own, and a reply is stopped', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    await send(page, 'Hello.');
    await replied(page, 1);
    const former = await lastReply(page);
    await page.getByRole('button', { name: 'Edit this message' }).first().click();
    await page.fill('#composer-text', 'Who are you?');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.message.user .plain').textContent === 'Who are you?');
    await replied(page, 1);
    assert.equal(await textOf(page.locator('.branch').first()), '2 of 2');
    await page.getByRole('button', { name: 'The branch before' }).first().click();
    assert.equal(await lastReply(page), former);
    await page.getByRole('button', { name: 'Again: another reply' }).first().click();
    await replied(page, 1);
    assert.equal(await textOf(page.locator('.message.assistant .branch').first()), '2 of 2');
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a reply that goes on is stopped, and what came stays', async (t) => {
    const server = await start(t);
    const open = [];
    const url = await withReplies(t, server, (outgoing) => {
      outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
      outgoing.write(`data: ${JSON.stringify({ choices: [{ delta: { content: 'It begins' } }] })}\n\n`);
      open.push(outgoing);
    });
    const page = await openPage(t, await browser(t), url);
    await send(page, 'Go on for ever.');
    await page.waitForFunction(() => /It begins/.test(document.querySelector('.message.assistant')?.textContent));
    const closed = once(open[0], 'close');
    await page.click('#stop');
    await closed;
    await page.getByText('Stopped.').waitFor();
    assert.equal(await lastReply(page), 'It begins');
    await server.stop();
  });

  test('Escape ends a reply wherever in the chat the focus is', async (t) => {
    const server = await start(t);
    const url = await withReplies(t, server, (outgoing) => {
      outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
      outgoing.write(`data: ${JSON.stringify({ choices: [{ delta: { content: 'It begins' } }] })}\n\n`);
    });
    const page = await openPage(t, await browser(t), url);
    await page.fill('#composer-text', 'Go on for ever.');
    await page.click('#send');
    await page.waitForFunction(() => /It begins/.test(document.querySelector('.message.assistant')?.textContent));
    assert.equal(await page.evaluate(() => document.activeElement.id), 'stop');
    await page.keyboard.press('Escape');
    await page.getByText('Stopped.').waitFor();
    await server.stop();
  });

  test('a reply that no renderer copes with is shown as it is, stored, and there after a reload', async (t) => {
    const server = await start(t);
    const url = await withReplies(t, server, (outgoing) => events(outgoing, ['So: ', '\n\n', '>'.repeat(20_000), ' deep']));
    const page = await openPage(t, await browser(t), url);
    await send(page, 'Quote.');
    await page.waitForFunction(() => / deep$/.test(document.querySelector('.message.assistant .plain')?.textContent));
    await until('it is stored', async () => Object.values((await stored(page))[0].messages).some(({ text, running }) => / deep$/.test(text) && !running));
    await page.reload();
    await page.waitForFunction(() => document.querySelector('#model option') !== null && / deep$/.test(document.querySelector('.message.assistant .plain')?.textContent));
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a link whose address comes at the end of the reply becomes one', async (t) => {
    const server = await start(t);
    let open;
    const url = await withReplies(t, server, (outgoing) => { open = outgoing; outgoing.writeHead(200, { 'content-type': 'text/event-stream' }); say('See [the text][1].\n\nMore.\n\n'); });
    const say = (content) => open.write(`data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`);
    const page = await openPage(t, await browser(t), url);
    await send(page, 'Where?');
    await page.getByText('See [the text][1].').waitFor();
    say('[1]: https://example.org/\n');
    await page.getByRole('link', { name: 'the text' }).waitFor();
    await server.stop();
  });

  test('the bar has a part for what drafts had right', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    const bar = await page.evaluate(async () => {
      const { figuresOf, tokenBar } = await import('/page/bar.js');
      const { children: [parts, legend] } = tokenBar(figuresOf({ prompt_n: 10, predicted_n: 30, draft_n: 40, draft_n_accepted: 12 }));
      return { text: legend.textContent, widths: [...parts.children].map((part) => [part.className, Number(part.style.flexGrow)]) };
    });
    assert.equal(bar.text, '10 computed · 30 generated · 12 of them as drafted');
    assert.deepEqual(bar.widths, [['computed', 0.25], ['generated', 0.45], ['drafted', 0.3]]);
  });

  test('without a lookup the bar does not say from where tokens were reused', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url, { expected: /Failed to load resource/ });
    await page.route('**/cache/lookup', (route) => route.fulfill({ status: 403, json: { error: { message: 'no' } } }));
    await send(page, 'Hello.');
    await replied(page, 1);
    await send(page, 'Who are you?');
    await replied(page, 2);
    assert.match((await legends(page))[1], /^[\d,]+ reused · [\d,]+ computed/);
    await server.stop();
  });

  test('a lookup that the server does not get to holds up no reply', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    await page.route('**/cache/lookup', () => {}); // it is never answered
    await send(page, 'Hello.');
    await replied(page, 1);
    await server.stop();
  });

  test('a reply of markup runs nothing, loads nothing and goes nowhere', async (t) => {
    const server = await start(t);
    const attacks = ['<script>window.hit = 1</script>', '<img src=x onerror="window.hit=1">', '<img src="http://127.0.0.1:1/leak?x=1">', '<svg onload="window.hit=1"><a xlink:href="javascript:window.hit=1">x</a></svg>',
      '<iframe src="javascript:parent.hit=1"></iframe>', '[press](javascript:window.hit=1)', '[data](data:text/html,<script>opener.hit=1</script>)', '<form action="http://127.0.0.1:1/"><button>send</button></form>',
      '<style>* { display: none }</style>', '<a href="/slots" style="position:fixed;inset:0">x</a>', '<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>', '![leak](http://127.0.0.1:1/leak.png)',
      '<base href="http://127.0.0.1:1/">', '<input autofocus onfocus="window.hit=1">', '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:1/">'];
    const url = await withReplies(t, server, (outgoing) => events(outgoing, [...attacks.join('\n\n'), '\n\n| a | b |\n|---|---|\n| 1 | **2** |\n\n```js\nconst x = 1 < 2;\n```\n']));
    // The sanitiser parses in a document of its own, where the page's policy holds as well, and says so.
    const page = await openPage(t, await browser(t), url, { expected: /violates the following Content Security Policy/ });
    await send(page, 'Show me.');
    await page.locator('.markdown td strong').waitFor();
    for (const link of await page.locator('.markdown a').all()) {
      const href = await link.getAttribute('href');
      assert.ok(href === null || /^(https?:|mailto:)/.test(href), href);
    }
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.equal(await page.locator('.markdown :is(img, script, style, iframe, form, input, svg, math, base, meta)').count(), 0);
    assert.equal(await textOf(page.locator('.markdown .hljs-keyword')), 'const');
    assert.equal(await page.locator('#composer').isVisible(), true);
    assert.deepEqual(page.faults, []);
    assert.equal(new URL(page.url()).pathname, '/');
    await server.stop();
  });

  test('formulas are drawn, and those that are none, or hostile, show their source', async (t) => {
    const server = await start(t);
    const drawn = ['Inline $a^2 + b^2 = c^2$ and \\(\\frac{1}{2}\\).', '$$\n\\sum_{i=1}^n i\n= \\frac{n(n+1)}{2}\n$$', '\\[\n\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}\n\\]', '- in a list: $x_1 < x_2$'];
    const plain = ['It costs $5, or $10 for two.', 'Escaped \\$x\\$, `code $y$`', '```\n$$z$$\n```', 'Not closed: $a + b'];
    const hostile = ['\\frac{1}{', '\\href{javascript:window.hit=1}{x}', '\\htmlClass{x}{y}', '\\htmlStyle{position:fixed}{y}', '\\includegraphics{http://127.0.0.1:1/x.png}', '\\url{http://127.0.0.1:1/}',
      '\\def\\a{\\a\\a}\\a', `${'\\sqrt{'.repeat(300)}x${'}'.repeat(300)}`, `${'\\left('.repeat(300)}x${'\\right)'.repeat(300)}`];
    const markup = [`$${'{'.repeat(900)}x${'}'.repeat(900)}$`, '$\\text{<img src=x onerror=window.hit=1>}$', '$<script>window.hit = 1</script>$', '<span class="formula">$\\text{</span><img src=x onerror=window.hit=1>}$</span>'];
    const url = await withReplies(t, server, (outgoing) => events(outgoing, [[...drawn, ...plain, ...hostile.map((tex) => `$${tex}$`), ...markup, 'The end.'].join('\n\n')]));
    const page = await openPage(t, await browser(t), url, { expected: /violates the following Content Security Policy/ });
    await send(page, 'Show me.');
    await page.getByText('The end.').waitFor();
    assert.equal(await page.locator('.markdown .block:nth-child(1) math').count(), 2);
    assert.equal(await page.locator('.formula.display > math').count(), 2);
    assert.equal(await page.locator('.markdown li math').count(), 1);
    assert.equal(await textOf(page.locator('.markdown li math')), 'x1<x2');
    assert.equal(await page.locator('math annotation').count(), 0, 'the source is not there twice');
    assert.ok(await page.evaluate(() => document.querySelector('math mfrac').getBoundingClientRect().height > 10), 'the browser draws it');
    const text = await page.locator('.message.assistant .markdown').textContent();
    for (const words of ['It costs $5, or $10 for two.', 'Escaped $x$, code $y$', '$$z$$', 'Not closed: $a + b']) assert.ok(text.includes(words), words);
    const sources = (await page.locator('.formula.source').allTextContents());
    for (const tex of hostile) assert.ok(sources.includes(`$${tex}$`), `shown as it is: ${tex.slice(0, 40)}`);
    assert.equal(await page.locator('.markdown :is(img, script, a, [href], [style], [src])').count(), 0);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('many formulas in a reply that grows hold nothing up', async (t) => {
    const server = await start(t);
    const url = await withReplies(t, server, (outgoing) => events(outgoing, Array.from({ length: 3000 }, (_, i) => `$x_{${i}}$ `)));
    const page = await openPage(t, await browser(t), url);
    const began = performance.now();
    await send(page, 'Show me.');
    await page.waitForFunction(() => document.querySelector('.markdown')?.textContent.includes('2999') && document.querySelector('#stop').hidden);
    assert.equal(await page.locator('.markdown math').count(), 200);
    assert.ok(performance.now() - began < 20_000);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('a reply that was cut off says so', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    await page.click('#show-settings');
    await page.fill('#max_tokens', '2');
    await page.fill('#temperature', '0.72');
    await page.click('#settings-done');
    await page.waitForFunction(() => !document.getElementById('settings').open);
    await send(page, 'Who are you?');
    await page.getByText('Cut off: it has as many tokens as Settings allow').waitFor();
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('whether the model reasons is chosen in Settings, kept, and not said where it is left to the model', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url);
    let n = 0;
    for (const [chosen, sent] of [[null, undefined], ['off', false], ['on', true], ['', undefined]]) {
      await page.click('#show-settings');
      if (chosen !== null) await page.selectOption('#reasoning', chosen);
      await page.click('#settings-done');
      await page.waitForFunction(() => !document.getElementById('settings').open);
      const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), send(page, 'Who are you?')]);
      assert.equal(request.postDataJSON().enable_thinking, sent, String(chosen));
      await replied(page, ++n);
      await until('the reply is stored', async () => (await stored(page)).some(({ messages }) => Object.values(messages).filter(({ figures }) => figures).length === n));
      await page.reload();
      await page.locator('#conversations .title').first().click();
      await page.click('#show-settings');
      assert.equal(await page.inputValue('#reasoning'), chosen ?? '');
      await page.click('#settings-done');
    }
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('long lines and many messages make nothing wider than the window', async (t) => {
    const server = await start(t);
    const started = await browser(t);
    const messages = Object.fromEntries(Array.from({ length: 80 }, (_, i) => [`m${i}`, { id: `m${i}`, parent: i > 0 ? `m${i - 1}` : null, role: i % 2 ? 'assistant' : 'user', text: i === 79 ? `\`\`\`js\n${'const x = 1; '.repeat(40)}\n\`\`\`` : `Text ${i}` }]));
    for (const viewport of [{ width: 1200, height: 800 }, { width: 390, height: 844 }]) {
      const page = await openPage(t, started, server.url, { viewport });
      const file = { hearth_conversations: 1, conversations: [{ title: 'Wide', system: '', sampling: {}, leaf: 'm79', messages }] };
      await page.setInputFiles('#import-file', { name: 'file.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(file)) });
      await page.locator('#notice').getByText('One conversation was imported.').waitFor();
      await page.reload();
      await page.locator('.markdown pre').waitFor();
      await page.waitForFunction(() => document.querySelectorAll('.message').length === 80);
      const widths = () => page.evaluate(() => [document.documentElement.scrollWidth, document.getElementById('chat').scrollWidth, document.getElementById('send').getBoundingClientRect().right].map(Math.ceil));
      for (const width of await widths()) assert.ok(width <= viewport.width, `${await widths()} of ${viewport.width}`);
      assert.ok(await page.evaluate(() => { const pre = document.querySelector('.markdown pre'); return pre.scrollWidth > pre.clientWidth; }), 'the code scrolls in its box');
      assert.deepEqual(page.faults, []);
    }
    await server.stop();
  });

  test('code is copied, also where the browser has no clipboard for the page', async (t) => {
    const server = await start(t);
    const url = await withReplies(t, server, (outgoing) => events(outgoing, ['```js\nconst x = 1;\n```\n']));
    const started = await browser(t);
    for (const has of [true, false]) {
      const context = await started.newContext({ permissions: ['clipboard-read', 'clipboard-write'] });
      if (!has) await context.addInitScript(() => Object.defineProperty(Navigator.prototype, 'clipboard', { get: () => undefined }));
      const page = await openPage(t, started, url, { context });
      await send(page, 'Show me.');
      await page.locator('.copy').click();
      await page.locator('.copy').getByText('Copied', { exact: true }).waitFor();
      if (has) assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'const x = 1;\n');
      else assert.equal(await page.evaluate(() => window.getSelection().toString()), 'const x = 1;');
      assert.deepEqual(page.faults, []);
    }
    await server.stop();
  });

  test('errors say what happened and what to do', async (t) => {
    const server = await start(t);
    const page = await openPage(t, await browser(t), server.url, { expected: /Failed to load resource|request:/ });
    await send(page, 'word '.repeat(9000));
    await page.getByText('Shorten the conversation', { exact: false }).waitFor();
    await server.stop();
    await send(page, 'Hello?');
    await page.getByText('The server does not answer. Is the server running?', { exact: false }).waitFor();
  });

  test('a key is asked for, used, and gone with the session', async (t) => {
    const server = await start(t, withKey);
    const page = await openPage(t, await browser(t), server.url, { expected: /Failed to load resource/ });
    await page.fill('#key', key);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#model option') !== null);
    await send(page, 'Hello.');
    await replied(page, 1);
    assert.ok(!page.url().includes(key));
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage)), '{}');
    await page.reload();
    await page.waitForFunction(() => document.querySelector('#model option') !== null);
    await page.getByRole('button', { name: 'API key' }).click();
    await page.fill('#key', `${key}…`);
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.getElementById('key').validity.patternMismatch && document.getElementById('access').open), true);
    await page.fill('#key', ` ${key} `);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => !document.getElementById('access').open);
    await server.stop();
  });

  test('the view of the cache asks for a key once', async (t) => {
    const server = await start(t, withKey);
    const page = await openPage(t, await browser(t), server.url, { expected: /Failed to load resource/ });
    await page.clock.install();
    let asked = 0;
    page.on('request', (request) => { asked += new URL(request.url()).pathname === '/live'; });
    await page.getByRole('button', { name: 'Not now' }).click();
    await page.click('#show-live');
    await page.waitForFunction(() => document.getElementById('access').open);
    await page.getByRole('button', { name: 'Not now' }).click();
    await page.clock.runFor(60_000);
    assert.equal(await page.evaluate(() => document.getElementById('access').open), false);
    assert.equal(asked, 1);
    await page.click('#show-access');
    await page.fill('#key', key);
    await page.keyboard.press('Enter');
    await page.locator('#live .cards').waitFor();
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('the dialog for a key can be left, and had again', async (t) => {
    const server = await start(t, withKey);
    const page = await openPage(t, await browser(t), server.url, { expected: /Failed to load resource/ });
    for (const leave of [() => page.keyboard.press('Escape'), () => page.getByRole('button', { name: 'Not now' }).click()]) {
      await leave();
      await page.waitForFunction(() => !document.getElementById('access').open);
      await page.locator('#notice').getByText('Enter an API key of this server.').waitFor();
      await page.getByRole('button', { name: 'API key' }).click();
      await page.waitForFunction(() => document.getElementById('access').open);
    }
    await page.fill('#key', key);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#model option') !== null && document.getElementById('notice').textContent === '');
    assert.deepEqual(page.faults, []);
    await server.stop();
  });

  test('the keyboard suffices, the focus stays, and axe-core finds nothing serious', async (t) => {
    const server = await start(t);
    for (const [colorScheme, viewport] of [['light', { width: 1200, height: 800 }], ['dark', { width: 1200, height: 800 }], ['light', { width: 390, height: 844 }], ['dark', { width: 390, height: 844 }]]) {
      const what = `${colorScheme}, ${viewport.width} wide`;
      const page = await openPage(t, await browser(t), server.url, { colorScheme, viewport });
      page.on('dialog', (dialog) => dialog.accept());
      const focused = () => page.evaluate(() => document.activeElement.ariaLabel || document.activeElement.textContent);
      const press = async (name, direction = 'Tab') => {
        for (let i = 0; i < 60; i++) {
          if ((await focused()).startsWith(name)) { await page.keyboard.press('Enter'); return; }
          await page.keyboard.press(direction);
        }
        assert.fail(`${name} is not reached by ${direction}: ${what}`);
      };
      const sound = async (part) => assert.deepEqual(await accessibilityFaults(page), [], `${what}, ${part}`);

      await page.keyboard.type('Hello.');
      await page.keyboard.press('Enter');
      await replied(page, 1);
      await sound('chat');
      await press('Again', 'Shift+Tab');
      await page.getByText('2 of 2').waitFor();
      await replied(page, 1);
      assert.equal(await focused(), 'Again: another reply');
      await press('The branch before', 'Shift+Tab');
      await page.getByText('1 of 2').waitFor();
      assert.equal(await focused(), 'The branch before');
      await press('Edit this message', 'Shift+Tab');
      assert.equal(await page.inputValue('#composer-text'), 'Hello.');
      await page.keyboard.press('Escape');
      assert.equal(await page.inputValue('#composer-text'), '');

      await press('Settings', 'Shift+Tab');
      await page.locator('#settings[open]').waitFor();
      await sound('settings');
      await page.keyboard.type('Be brief.');
      assert.equal(await page.inputValue('#system'), 'Be brief.');
      await press('Done');
      await page.waitForFunction(() => !document.getElementById('settings').open);
      assert.equal(await focused(), 'Settings');
      await press('Cache', 'Shift+Tab');
      await page.locator('#live tbody tr').first().waitFor();
      await sound('cache');
      assert.equal(await focused(), 'Cache');
      await press('Chat', 'Shift+Tab');
      if (viewport.width < 800) await press('Conversations', 'Shift+Tab');
      await press('Delete Hello.');
      await page.locator('.empty').waitFor();
      // On a phone the list has gone away: there it is the field for the next message.
      await page.waitForFunction((wide) => (wide ? /^(Delete|New conversation)/.test(document.activeElement.ariaLabel || document.activeElement.textContent) : document.activeElement.id === 'composer-text'), viewport.width > 800);
      await sound('nothing');
      assert.deepEqual(page.faults, []);
    }
    await server.stop();
  });
});
