// Measures time: how long a browser takes for a frame of the page while it has much to draw.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { browser, openPage } from './lib/browser.js';
import { send, start, withReplies } from './lib/page.js';

const thorough = Boolean(process.env.TESTS_THOROUGH);

test('two thousand messages open, scroll and grow without a slow frame', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  await page.evaluate(async () => {
    const { add, newConversation } = await import('/page/conversations.js');
    const { save } = await import('/page/storage.js');
    const conversation = { ...newConversation(), title: 'Long' };
    for (let i = 0; i < 1000; i++) {
      add(conversation, conversation.leaf, { role: 'user', text: `Question ${i}` });
      add(conversation, conversation.leaf, { role: 'assistant', text: `# Answer ${i}\n\nSome **text** with \`code\`.\n\n- one\n- two\n\n\`\`\`c\nint x = ${i};\n\`\`\`\n` });
    }
    await save({ ...conversation, title: 'Long' });
    // The longest time between two frames since it was asked last.
    let last = performance.now(), longest = 0;
    const frame = (now) => { longest = Math.max(longest, now - last); last = now; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    window.slowest = () => { const was = longest; longest = 0; return was; };
  });
  const slow = async (what) => {
    const ms = await page.evaluate(() => window.slowest());
    t.diagnostic(`slowest frame: ${ms.toFixed(0)} ms, ${what}`);
    assert.ok(ms < 100, `a frame took ${ms.toFixed(0)} ms: ${what}`);
  };
  await page.click('#new-conversation'); // draws the list
  await page.evaluate(() => window.slowest());
  await page.locator('#conversations .title').getByText('Long').click();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 2000, undefined, { timeout: 60_000 });
  await slow('opening');
  assert.equal(await page.evaluate(() => { const list = document.getElementById('messages'); return list.scrollHeight - list.scrollTop - list.clientHeight < 40; }), true, 'its end is in view');
  await page.evaluate(async () => {
    const list = document.getElementById('messages');
    for (let i = 0; i < 120; i++) {
      list.scrollTop -= 400;
      await new Promise((resolve) => { requestAnimationFrame(resolve); });
    }
  });
  await slow('scrolling');
  await page.evaluate(() => { document.getElementById('messages').scrollTop = 1e9; });
  await page.evaluate(() => window.slowest());
  const url = '**/v1/chat/completions';
  await page.route(url, (route) => route.fulfill({ contentType: 'text/event-stream', body: ['It', ' grows.'].map((content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`).join('') }));
  await page.route('**/cache/lookup', (route) => route.fulfill({ status: 403, contentType: 'application/json', body: '{}' }));
  page.faults.length = 0;
  await send(page, 'Go on.');
  // Not by its text, for which the driver would search all of the page, in its frames.
  await page.waitForFunction(() => document.querySelector('#messages > :last-child > :last-child').textContent.startsWith('It grows.') && document.getElementById('stop').hidden);
  assert.equal(await page.evaluate(() => document.querySelectorAll('.message').length), 2002);
  await slow('sending');
  await server.stop();
});

test('with a thousand conversations of two hundred messages the page is there as soon as without', async (t) => {
  const server = await start(t);
  const page = await openPage(t, await browser(t), server.url);
  const usable = async () => {
    await page.reload();
    await page.waitForFunction(() => document.querySelector('#model').options.length > 0 && !document.querySelector('#composer-text').disabled);
    return page.evaluate(() => ({ paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime, usable: performance.now() }));
  };
  await usable();
  const empty = await usable();
  const n = thorough ? 1000 : 250;
  await page.evaluate(async (n) => {
    const { add, newConversation } = await import('/page/conversations.js');
    const { save } = await import('/page/storage.js');
    for (let i = 0; i < n; i++) {
      const conversation = newConversation();
      for (let k = 0; k < 100; k++) {
        add(conversation, conversation.leaf, { role: 'user', text: `Question ${k} of conversation ${i}` });
        add(conversation, conversation.leaf, { role: 'assistant', text: `# Answer ${k}\n\n${'Some **text** with `code`. '.repeat(8)}` });
      }
      await save(conversation);
    }
  }, n);
  const full = await usable();
  await page.waitForFunction((n) => document.querySelectorAll('#conversations .title').length >= n, n);
  t.diagnostic(`first paint ${Math.round(empty.paint)} ms, with ${n} conversations ${Math.round(full.paint)}; to be used after ${Math.round(empty.usable)} and ${Math.round(full.usable)} ms`);
  assert.ok(full.paint < empty.paint + 300, `first paint after ${full.paint} ms`);
  assert.ok(full.usable < empty.usable + 500, `to be used after ${full.usable} ms`);
  // From the key to the request, in the conversation that is the longest way down the list.
  await page.locator('#conversations .title').last().click();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 200);
  await page.fill('#composer-text', 'Go on.');
  const sent = page.waitForRequest('**/v1/chat/completions');
  const began = performance.now();
  await page.keyboard.press('Enter');
  await sent;
  const ms = performance.now() - began;
  t.diagnostic(`from the key to the request: ${Math.round(ms)} ms`);
  assert.ok(ms < 500, `${ms} ms from the key to the request`);
  await page.waitForFunction(() => document.querySelector('#stop').hidden);
  await server.stop();
});

// Two hundred a second, as a small model on a card writes.
test('a long reply that comes fast keeps its frames, and takes memory for its words alone', async (t) => {
  const n = thorough ? 20_000 : 3000;
  // A list, a heading or code behind each fifty words.
  const words = ['- one\n- two\n\n', '## More\n\n', '```c\nint x = 1;\n```\n\n', ''].flatMap((block) => [block, ...Array.from({ length: 50 }, (_, i) => ['text ', 'goes ', '**on** ', 'or `so` '][i % 4]), 'on.\n\n']);
  const server = await start(t);
  const page = await openPage(t, await browser(t), await withReplies(t, server, (outgoing) => {
    outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
    let at = 0;
    const timer = setInterval(() => {
      for (let i = 0; i < 4 && at < n; i++, at++) outgoing.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: words[at % words.length] } }] })}\n\n`);
      if (at < n && !outgoing.destroyed) return;
      clearInterval(timer);
      outgoing.end('data: [DONE]\n\n');
    }, 20);
  }));
  await page.waitForFunction(() => document.querySelector('#model').options.length > 0);
  await page.evaluate(() => {
    const seen = { frames: 0, longest: 0, from: performance.now(), last: performance.now() };
    const frame = (now) => { seen.frames++; seen.longest = Math.max(seen.longest, now - seen.last); seen.last = now; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    // Since it was asked last.
    window.frames_seen = () => {
      const now = performance.now(), { frames, longest, from } = seen;
      Object.assign(seen, { frames: 0, longest: 0, from: now });
      return { rate: frames / (now - from) * 1000, longest };
    };
  });
  const cdp = await page.context().newCDPSession(page);
  const heap = async () => { await cdp.send('HeapProfiler.collectGarbage'); return (await cdp.send('Runtime.getHeapUsage')).usedSize; };
  const before = await heap();
  const idle = await page.evaluate(async () => { // on which nothing happens
    window.frames_seen();
    for (let i = 0; i < 100; i++) await new Promise((resolve) => { requestAnimationFrame(resolve); });
    return window.frames_seen();
  });
  await send(page, 'Tell me a long story.');
  await page.waitForFunction(() => !document.querySelector('#stop').hidden);
  await page.waitForFunction(() => document.querySelector('#stop').hidden, undefined, { timeout: 300_000, polling: 1000 });
  const { rate, longest } = await page.evaluate(() => window.frames_seen());
  const more = await heap() - before;
  t.diagnostic(`${n} tokens: ${rate.toFixed(1)} frames a second of ${idle.rate.toFixed(1)}, the longest of ${longest.toFixed(0)} ms; ${(more / 2 ** 20).toFixed(0)} MiB more`);
  assert.ok(rate >= idle.rate * 50 / 60, `${rate} frames a second, of ${idle.rate}`);
  assert.ok(more < 200 * 2 ** 20, `${more} bytes more`);
  await server.stop();
});
