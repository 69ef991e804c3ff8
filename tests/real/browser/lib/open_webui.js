// Open WebUI as pip installs it, and what a user does in its page.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { freePort } from '../../../e2e/lib/peer.js';
import { temporaryFolder } from '../../../e2e/lib/server.js';
import { until, within } from '../../../e2e/lib/wait.js';

const version = '0.12.4';

// Starts it with both of hearth's APIs at `url`; `env` is added to the environment. `t` is anything with after().
// What it would ask the model beside the replies (titles, tags, questions) is off, and nothing is looked up elsewhere.
// `ask` speaks its own API, as the one user there is.
export async function openWebUi(t, python, url, env) {
  const port = await freePort();
  const folder = temporaryFolder();
  const child = spawn(python, ['-c', 'import open_webui; open_webui.app()', 'serve', '--host', '127.0.0.1', '--port', String(port)], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env.PATH, HOME: folder, DATA_DIR: folder, PYTHONDONTWRITEBYTECODE: '1',
      WEBUI_AUTH: 'False', WEBUI_SECRET_KEY: 'tests', ENABLE_PERSISTENT_CONFIG: 'False', BYPASS_MODEL_ACCESS_CONTROL: 'True',
      OFFLINE_MODE: 'True', HF_HUB_OFFLINE: '1', ENABLE_VERSION_UPDATE_CHECK: 'False', ANONYMIZED_TELEMETRY: 'False',
      OPENAI_API_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'none', OLLAMA_BASE_URL: url,
      RAG_OPENAI_API_BASE_URL: `${url}/v1`, RAG_OPENAI_API_KEY: 'none', RAG_OLLAMA_BASE_URL: url,
      ENABLE_TITLE_GENERATION: 'False', ENABLE_TAGS_GENERATION: 'False', ENABLE_FOLLOW_UP_GENERATION: 'False',
      ENABLE_RETRIEVAL_QUERY_GENERATION: 'False', ...env,
    },
  });
  let log = '', ended = false, token;
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { log += text; });
  child.on('close', () => { ended = true; });
  t.after(() => child.kill('SIGKILL'));
  const own = `http://127.0.0.1:${port}`;
  await until('Open WebUI listens', async () => ended || (await fetch(`${own}/health`)).ok, { seconds: 300, every: 100 });
  assert.ok(!ended, log);
  const ask = async (path, body) => {
    const headers = { 'content-type': 'application/json', ...token && { authorization: `Bearer ${token}` } };
    const answer = await fetch(`${own}/api/v1${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    assert.equal(answer.status, 200, await answer.clone().text());
    return answer.json();
  };
  ({ token } = await ask('/auths/signin', { email: '', password: '' }));
  return { url: own, ask };
}

// A new chat with the model. `params` are those of the user's settings. `page.faults` are exceptions, errors in the
// console and requests to other servers.
export async function openChat(browser, webUi, model, params = {}) {
  await webUi.ask('/users/user/settings/update', { ui: { version, params } });
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
  page.setDefaultTimeout(120_000);
  page.faults = [];
  page.on('pageerror', (error) => page.faults.push(`exception: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error') page.faults.push(`console: ${message.text()}`); });
  page.on('request', (request) => { if (!request.url().startsWith(webUi.url) && !/^(data|blob):/.test(request.url())) page.faults.push(`request: ${request.url()}`); });
  await page.goto(`${webUi.url}/?model=${encodeURIComponent(model)}`);
  await page.getByRole('button', { name: `Selected model: ${model}`, exact: true }).waitFor();
  return page;
}

export async function send(page, text) {
  await page.fill('#chat-input', text);
  await page.keyboard.press('Enter');
}

// The text of the nth reply, once it is whole.
export async function replied(page, n, seconds = 120) {
  await page.waitForFunction((wanted) => {
    const replies = document.querySelectorAll('.chat-assistant');
    return replies.length === wanted && !document.querySelector('button[aria-label="Stop"]') && document.querySelector('button[aria-label="Regenerate"]');
  }, n, { timeout: seconds * 1000 });
  return lastReply(page);
}
export const lastReply = async (page) => (await page.locator('.chat-assistant').last().innerText()).trim();

export async function edit(page, text) {
  const message = page.locator('.user-message').last();
  await message.hover();
  await message.getByRole('button', { name: 'Edit' }).click();
  await page.fill('textarea[id^=message-edit]', text);
  await page.click('#confirm-edit-message-button');
}

export async function regenerate(page) {
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  await page.getByText('Try Again').click();
}

// Attaches a file to the next message: {name, mimeType, buffer}. One of text is there once Open WebUI has taken it in.
export async function attach(page, file, seconds = 120) {
  const taken = /^text/.test(file.mimeType) ? page.waitForResponse(/\/process\/status/) : null;
  await page.setInputFiles('input[type=file][multiple]', file);
  if (!taken) {
    await page.locator('#message-input-container img[src*="files/"], #message-input-container img[src^="data:"]').first().waitFor();
    return;
  }
  const events = await within(seconds, `Open WebUI takes ${file.name} in`, (await taken).text());
  assert.match(events, /"status": ?"completed"/);
}
