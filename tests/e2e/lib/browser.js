// Debian's Chromium, driven by playwright-core. Pages that break their own rules fail the test: an exception, a line of
// console.error(), a violation of the content security policy or a request to another origin.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after } from 'node:test';
import { chromium } from 'playwright-core';

const executable = () => {
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    try { return execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim(); } catch { /* the next */ }
  }
  return assert.fail('there is no chromium: scripts/packages.sh test installs it');
};

// One browser for all tests of a file, since it takes seconds to start; what a test opened in it is closed after the test.
let launched;
export async function browser(t) {
  launched ??= chromium.launch({ executablePath: executable(), args: ['--no-sandbox', '--disable-gpu'] });
  const started = await launched;
  t.after(() => Promise.all(started.contexts().map((context) => context.close())));
  return started;
}
after(async () => (await launched)?.close());

// A page at the address, in a context of its own unless one is given. `faults` are what it did wrong; `expected` ones
// do not count.
export async function openPage(t, started, url, { context, expected = /^$/, ...options } = {}) {
  const own = context ?? await started.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  const page = await own.newPage();
  page.faults = [];
  const fault = (text) => { if (!expected.test(text)) page.faults.push(text); };
  page.on('pageerror', (error) => fault(`exception: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error') fault(`console: ${message.text()}`); });
  page.on('request', (request) => { if (!request.url().startsWith(url) && !/^(data|blob):/.test(request.url())) fault(`request: ${request.url()}`); });
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector('#model option') !== null || document.querySelector('dialog[open]') !== null);
  return page;
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// Findings of axe-core that are serious or worse, in words.
export async function accessibilityFaults(page) {
  await page.evaluate(axe); // in the page's own world, past its policy
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return violations.filter(({ impact }) => impact === 'serious' || impact === 'critical').map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(' ')).join(', ')}`);
}
