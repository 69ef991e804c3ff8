// Tells which tests have passed already and would see nothing new, so that `make test` does not run them again.
//
//   node scripts/unchanged.mjs begin FOLDER NAME=FILE...   FOLDER is a build's; prints those tests, "NAME PASSED" a line
//   node scripts/unchanged.mjs end FOLDER                  reads "NAME PASSED FAILED SKIPPED" a line of those that ran
//
// A test is a program or a file of end-to-end tests. Its key is a hash of all that it can see:
//   - its own bytes and, of JavaScript, those of what it imports;
//   - the built programs that these name, and everything in a folder of the repository that they name;
//   - the variables TESTS_* that they name;
//   - the machine: packages of the system, kernel, processors.
// Sources in C are in the programs already. A record is FOLDER/passed.json; one that fails, or skips a case, has none.
// Whoever adds a test that reads something else names it there in a literal, or the test is taken as passed in error.
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const [what, folder, ...tests] = process.argv.slice(2);
const records = path.join(folder, 'passed.json');
const pending = path.join(folder, 'passed.pending.json');
const readJson = (name) => (fs.existsSync(name) ? JSON.parse(fs.readFileSync(name, 'utf8')) : {});
const hash = (...parts) => parts.reduce((sum, part) => sum.update(part).update('\0'), createHash('blake2b512')).digest('hex');

// What git knows of, and what it does not ignore, by the folder at the top; a file at the top is one of its own.
function readTree() {
  const git = (...args) => execFileSync('git', args, { encoding: 'utf8', maxBuffer: 1 << 28 }).split('\0').filter(Boolean);
  const tree = new Map();
  for (const name of git('ls-files', '-z', '--cached', '--others', '--exclude-standard').sort()) {
    if (/\.(c|cpp|h|hpp|test\.js)$/.test(name) || !fs.existsSync(name)) continue;
    const top = name.includes('/') ? `${name.split('/')[0]}/` : name;
    tree.set(top, hash(tree.get(top) ?? '', name, fs.readFileSync(name)));
  }
  return tree;
}

// The bytes of a test: a program, or a file of JavaScript with all that it imports by a relative path. What looks like an
// import may be a text.
function bytesOf(file, seen = new Set()) {
  if (seen.has(file) || !fs.existsSync(file)) return Buffer.alloc(0);
  seen.add(file);
  const own = fs.readFileSync(file);
  if (!file.endsWith('.js')) return own;
  const imported = [...own.toString().matchAll(/from '(\.[^']+)'/g)].map(([, name]) => path.join(path.dirname(file), name));
  return Buffer.concat([own, ...imported.map((name) => bytesOf(name, seen))]);
}

// Of a program what is loaded, which has its literals; names for debuggers, most of the file, lie behind that.
function literalsOf(bytes) {
  if (bytes.length < 64 || bytes.readUInt32BE(0) !== 0x7f454c46) return bytes;
  const at = Number(bytes.readBigUInt64LE(32)); // the table of segments, entries of 56 bytes
  let end = 0;
  for (let i = 0; i < bytes.readUInt16LE(56); i++) {
    const entry = at + 56 * i;
    const isLoaded = bytes.readUInt32LE(entry) === 1;
    if (isLoaded) end = Math.max(end, Number(bytes.readBigUInt64LE(entry + 8) + bytes.readBigUInt64LE(entry + 32)));
  }
  return bytes.subarray(0, end);
}

// What end-to-end tests start without naming it: their library, and make.
const always = new Set(['tests/', 'Makefile', 'CMakeLists.txt']);

// What holds for all tests of this machine.
function describeMachine() {
  const packages = '/var/lib/dpkg/status';
  return hash(fs.existsSync(packages) ? fs.readFileSync(packages) : '', os.release(), os.cpus().map((cpu) => cpu.model).join(),
    process.env.HEARTH_PATCHES ?? '', process.env.LLAMA_FLAGS ?? '');
}

function begin() {
  const tree = readTree();
  const machine = describeMachine();
  const programs = new Map(fs.readdirSync(path.join(folder, 'bin')).filter((name) => !/^(unit|exactness|crash)_/.test(name)).sort()
    .map((name) => [name, hash(fs.readFileSync(path.join(folder, 'bin', name)))]));
  const variables = Object.entries(process.env).filter(([name]) => name.startsWith('TESTS_')).sort();
  const keys = {};
  const known = readJson(records);
  for (const test of tests) {
    const [name, file] = test.split('=');
    const bytes = bytesOf(file);
    const literals = literalsOf(bytes);
    const isNamed = file.endsWith('.js')
      ? { top: (top) => always.has(top) || literals.includes(top.replace('/', '')), program: () => true }
      // A program names the folders of its sources, too, in its assertions.
      : { top: (top) => !/^(src|include|tools)\//.test(top) && literals.includes(top),
        program: (program) => (program === 'hearth' ? ["'", '"', ' ', '\0'].some((end) => literals.includes(`bin/hearth${end}`)) : literals.includes(program)) };
    const seen = [...tree].filter(([top]) => isNamed.top(top))
      .concat([...programs].filter(([program]) => isNamed.program(program)), variables.filter(([variable]) => literals.includes(variable)));
    keys[name] = hash(bytes, machine, ...seen.flat());
    if (known[name]?.key === keys[name]) console.log(`${name} ${known[name].passed}`);
    else delete known[name];
  }
  fs.writeFileSync(records, JSON.stringify(known));
  fs.writeFileSync(pending, JSON.stringify(keys));
}

function end() {
  const keys = readJson(pending);
  const known = readJson(records);
  for (const line of fs.readFileSync(0, 'utf8').split('\n')) {
    const [name, passed, failed, skipped] = line.split(' ');
    if (keys[name] && Number(passed) > 0 && failed === '0' && skipped === '0') known[name] = { key: keys[name], passed: Number(passed) };
  }
  fs.writeFileSync(records, JSON.stringify(known));
}

({ begin, end })[what]();
