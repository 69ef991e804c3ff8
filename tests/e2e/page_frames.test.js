// Measures time: how long a browser takes for a frame of the page while it has much to draw.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { browser, openPage } from './lib/browser.js';
import { send, start } from './lib/page.js';

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
