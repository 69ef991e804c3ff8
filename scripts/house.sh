#!/usr/bin/env bash
# Prints how a tree is built, in figures that can be compared before and after a change.
#
#   scripts/house.sh [FOLDER]     FOLDER is the root of a tree; without it, this one
#
# It reads the files alone, so that it measures any commit: git worktree add /tmp/before COMMIT; scripts/house.sh /tmp/before
set -euo pipefail
root=$(cd "${1:-$(dirname "$0")/..}" && pwd)
prose=$(cd "$(dirname "$0")" && pwd)/prose.sh

ROOT=$root node - <<'SCRIPT'
const fs = require('fs');
const path = require('path');
process.chdir(process.env.ROOT);

function walk(folder) {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    return entry.isDirectory() ? walk(name) : /\.(c|h|cpp|hpp)$/.test(name) ? [name] : [];
  }).sort();
}

const row = (what, value) => console.log(`${what.padEnd(58)} ${value}`);
const perThousand = (n, of) => (1000 * n / of).toFixed(2);

// A file without its comments and the contents of its strings, lines kept.
const bare = (source) => source.replace(/\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/g,
  (text) => text[0] === '/' ? text.replace(/[^\n]/g, '') : text[0] + text[0]);

const files = walk('src').map((name) => {
  const source = fs.readFileSync(name, 'utf8');
  return { name, source, code: bare(source), lines: source.split('\n').length - 1 };
});
const sum = (of) => files.reduce((n, file) => n + of(file), 0);
const lines = sum((file) => file.lines);

row('lines of src', lines);
row('  of code (no comments, no blank lines)', sum((file) => file.code.split('\n').filter((line) => line.trim()).length));
row('files', files.length);
row('  of fewer than 60 lines', files.filter((file) => file.lines < 60).length);
row('  of 200 to 600 lines', files.filter((file) => file.lines >= 200 && file.lines <= 600).length);
row('  of more than 600 lines', files.filter((file) => file.lines > 600).length);
row('headers', files.filter((file) => /\.h(pp)?$/.test(file.name)).length);

// ---- Static functions: definitions at the left margin, and how often each name stands elsewhere in its file ----

let statics = 0;
let once = 0;
const homes = new Map(); // folder and name, room (its last folder) and name, to files
for (const { name, code } of files) {
  const seen = new Map();
  for (const [, of] of code.matchAll(/^static\s[^;{}()=]*?\b(\w+)\((?:[^;{}]|\{\})*?\)\s*(?:__attribute__\(\(.*?\)\)\s*)?\{/gm)) seen.set(of, 0);
  const declared = [...code.matchAll(/^static\s[^;{}()=]*?\b(\w+)\([^;{}]*?\)[^;{}]*[;{]/gm)].map((found) => found[1]);
  for (const [word] of code.matchAll(/\b[A-Za-z_]\w*\b/g)) if (seen.has(word)) seen.set(word, seen.get(word) + 1);
  for (const of of declared) if (seen.has(of)) seen.set(of, seen.get(of) - 1);
  for (const [of, uses] of seen) {
    statics++;
    if (uses === 1) once++;
    for (const folder of [name.split('/').slice(0, 2).join('/'), `${path.dirname(name)}/.`]) {
      const home = `${folder}: ${of}`;
      homes.set(home, (homes.get(home) || 0) + 1);
    }
  }
}
row('static functions', statics);
row('  of one caller', `${once} (${Math.round(100 * once / statics)} %)`);
const shared = [...homes].filter(([, n]) => n > 1).map(([home]) => home);
row('  names in several files of a folder (src/store)', shared.filter((home) => !home.includes('/.:')).length);
row('  names in several files of a room (src/store/index)', shared.filter((home) => home.includes('/.:')).length);

// ---- Assertions ----

const asserts = sum((file) => (file.code.match(/(?<![\w.])assert\(/g) || []).length);
row('assert()', asserts);
row('  a thousand lines', perThousand(asserts, lines));

// ---- Headers that many files include ----

const included = new Map();
for (const { name, source } of files) {
  for (const [, of] of source.matchAll(/^#\s*include "([^"]+)"/gm)) {
    const beside = path.join(path.dirname(name), of);
    const is = [beside, path.join('src', of)].find((at) => fs.existsSync(at)) ?? path.join('include', of);
    included.set(is, (included.get(is) || 0) + 1);
  }
}
const many = [...included].filter(([, n]) => n > 15).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
row('headers that more than 15 files include', many.length);
for (const [name, n] of many) console.log(`  ${String(n).padStart(4)} ${name}`);
SCRIPT

echo 'sentences of more than 30 words, and riddles'
"$prose" --root "$root" | grep -E '^(docs|comments):' | sed 's/^/  /'
