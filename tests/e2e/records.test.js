// What `make test` does not run again (scripts/unchanged.mjs): in a repository of a few files, each change of what a test
// sees makes it run, and what it does not see leaves its record.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from './lib/server.js';

const script = fileURLToPath(new URL('../../scripts/unchanged.mjs', import.meta.url));

// The name and file of each test; that of documents names what it reads in its bytes, as a program does in its literals.
const tests = {
  'unit_docs': ['build/bin/unit_docs', 'ELF\0%s/docs/design.md\0cat\0'],
  'unit_models': ['build/bin/unit_models', "ELF\0'%s/bin/hearth-mkmodel' -o\0"],
  'unit_part': ['build/bin/unit_part', 'ELF\0TESTS_QUARTER\0'],
  'unit_plain': ['build/bin/unit_plain', 'ELF\0/src/engine/plan.c\0'],
  'a.test.js': ['tests/e2e/a.test.js', "import { b } from './lib/b.js';\n"],
};

class Repository {
  constructor() {
    this.folder = temporaryFolder();
    execFileSync('git', ['init', '--quiet', this.folder]);
    for (const [file, bytes] of Object.values(tests)) this.write(file, bytes);
    this.write('.gitignore', '/build/\n');
    this.write('docs/design.md', 'A picture.\n');
    this.write('src/engine/plan.c', 'int plan;\n');
    this.write('tests/e2e/lib/b.js', 'export const b = 1;\n');
    this.write('build/bin/hearth', 'ELF server');
    this.write('build/bin/hearth-mkmodel', 'ELF tool');
  }

  write(file, bytes) {
    mkdirSync(dirname(join(this.folder, file)), { recursive: true });
    writeFileSync(join(this.folder, file), bytes);
  }

  run(args, { input = '', env = {} } = {}) {
    return execFileSync(process.execPath, [script, ...args], { cwd: this.folder, input, env: { ...process.env, TESTS_QUARTER: '1', ...env } }).toString();
  }

  // Those that need not run again.
  begin(env) {
    const named = Object.entries(tests).map(([name, [file]]) => `${name}=${file}`);
    return this.run(['begin', 'build', ...named], { env }).trim().split('\n').filter(Boolean).map((line) => line.split(' ')[0]);
  }

  end(lines) {
    this.run(['end', 'build'], { input: lines });
  }
}

const all = Object.keys(tests);
const passed = all.map((name) => `${name} 3 0 0\n`).join('');

test('what passed is not run again', () => {
  const repository = new Repository();
  assert.deepEqual(repository.begin(), []);
  repository.end(passed);
  assert.deepEqual(repository.begin(), all);
  assert.deepEqual(repository.begin(), all, 'a run of nothing forgets what passed');
});

test('what failed, skipped a case or had none is', () => {
  for (const counts of ['2 1 0', '2 0 1', '0 0 0']) {
    const repository = new Repository();
    repository.begin();
    repository.end(passed.replace('unit_plain 3 0 0', `unit_plain ${counts}`));
    assert.deepEqual(repository.begin(), all.filter((name) => name !== 'unit_plain'), counts);
  }
});

test('a program that failed since it passed has no record, though it is the same again', () => {
  const repository = new Repository();
  repository.begin();
  repository.end(passed);
  repository.begin({ TESTS_QUARTER: '2' });
  repository.end('unit_part 2 1 0\n');
  assert.deepEqual(repository.begin(), all.filter((name) => name !== 'unit_part'));
});

const changes = {
  'its own bytes': ['build/bin/unit_plain', 'ELF otherwise', ['unit_plain']],
  'a document': ['docs/design.md', 'Another picture.\n', ['unit_docs']],
  'a new document, not yet known to git': ['docs/new.md', 'More.\n', ['unit_docs']],
  'a program that makes models': ['build/bin/hearth-mkmodel', 'ELF another tool', ['unit_models', 'a.test.js']],
  'the server': ['build/bin/hearth', 'ELF another server', ['a.test.js']],
  'a library of the end-to-end tests': ['tests/e2e/lib/b.js', 'export const b = 2;\n', ['a.test.js']],
  'a source, which is in the programs': ['src/engine/plan.c', 'int plan = 1;\n', []],
};
for (const [what, [file, bytes, again]] of Object.entries(changes)) {
  test(`a change of ${what} has ${again.length} of them run again`, () => {
    const repository = new Repository();
    repository.begin();
    repository.end(passed);
    repository.write(file, bytes);
    assert.deepEqual(repository.begin(), all.filter((name) => !again.includes(name)));
  });
}

test('another part of a matrix is played by those that know parts', () => {
  const repository = new Repository();
  repository.begin();
  repository.end(passed);
  assert.deepEqual(repository.begin({ TESTS_QUARTER: '3' }), all.filter((name) => name !== 'unit_part'));
});
