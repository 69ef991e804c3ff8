// What tests of the page share: servers, what a user does, replies of a test's own.

import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { serve, temporaryFolder } from './server.js';

export const key = 'page-test-key-0123456789';
const keyFile = join(temporaryFolder(), 'keys');
writeFileSync(keyFile, `${key} tester\n`, { mode: 0o600 });
export const withKey = { set: { 'server.api_keys_file': keyFile }, access: { key } };

export const start = (t, more = {}) => serve({ t, models: { context_window: 4096, ...more.models }, ...more });

export const send = async (page, text) => {
  await page.fill('#composer-text', text);
  await page.keyboard.press('Enter');
};
export const replied = (page, n) => page.waitForFunction((wanted) => document.querySelectorAll('.message.assistant .tokens .legend').length >= wanted
  && document.querySelector('#stop').hidden, n, { timeout: 60_000 });
export const stored = (page) => page.evaluate(async () => (await import('/page/storage.js')).all());
// innerText of what is not drawn is empty, and messages out of view are not: hence textContent.
const plain = (text) => text.replace(/\s+/g, ' ').trim();
export const textOf = async (locator) => plain(await locator.textContent());
export const lastReply = (page) => textOf(page.locator('.message.assistant .markdown').last());
export const legends = async (page) => (await page.locator('.message.assistant .tokens > .legend').allTextContents()).map(plain);

// The page of a server with replies of a test's own: everything else is the server's.
export async function withReplies(t, server, reply) {
  const front = createServer((incoming, outgoing) => {
    if (incoming.url === '/v1/chat/completions') { incoming.resume().on('end', () => reply(outgoing)); return; }
    const headers = { ...incoming.headers, host: `127.0.0.1:${server.port}` };
    delete headers.origin;
    const onward = httpRequest({ port: server.port, path: incoming.url, method: incoming.method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.pipe(outgoing);
    });
    incoming.pipe(onward);
  }).listen(0, '127.0.0.1');
  await once(front, 'listening');
  t.after(() => { front.closeAllConnections(); front.close(); });
  return `http://127.0.0.1:${front.address().port}`;
}

export const events = (outgoing, texts) => {
  outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const content of texts) outgoing.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`);
  outgoing.end('data: [DONE]\n\n');
};
