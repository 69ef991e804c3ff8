#!/usr/bin/env bash
# Counts sentences that are hard to read, in the documents and in the comments of src/: those of more than 30 words, and
# riddles. A riddle begins with "What", "Whoever", "Nobody" or "Who", or goes on so after a colon or semicolon, or speaks of
# "who is told".
#
#   scripts/prose.sh                  a count for each file, and the sums
#   scripts/prose.sh --list [FILE...] each sentence, with its file and line
#   scripts/prose.sh --check          fails where there are more than the limits below
#   scripts/prose.sh --root FOLDER    the same of another tree, before the other options
#
# A cell of a table, an item of a list and a heading are texts of their own; a question is no riddle. Code in backticks, a
# path and a URL are one word. Pages that are made from the program (config, log, metrics, templates) count by their sources:
# the texts in src/config/table.c and of metrics.
set -euo pipefail

max_words=30
docs_limit=0       # in README.md, CONTRIBUTING.md, docs/ and patches/README.md
comments_limit=0   # in src/

root=$(dirname "$0")/..
if [ "${1:-}" = --root ]; then
    root=$2
    shift 2
fi
cd "$root"

MAX_WORDS=$max_words DOCS_LIMIT=$docs_limit COMMENTS_LIMIT=$comments_limit exec node - "$@" <<'SCRIPT'
const fs = require('fs');
const path = require('path');
const { MAX_WORDS, DOCS_LIMIT, COMMENTS_LIMIT } = process.env;
const made = /^docs\/(config|log|metrics|templates)\.md$/;

function files(folder, pattern) {
  if (!fs.existsSync(folder)) return [];
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : files(name, pattern);
    return pattern.test(name) && !made.test(name) ? [name] : [];
  }).sort();
}

// ---- Texts: runs of lines that belong together, each with the line where it begins ----

// Gathers lines into texts. Each character's line is known by the offsets of `starts`.
function gatherer(texts) {
  let open = null;
  const end = () => { if (open && open.text.trim()) texts.push(open); open = null; };
  return {
    end,
    add(line, text) {
      if (!open) open = { text: '', starts: [] };
      else open.text += ' ';
      open.starts.push([open.text.length, line]);
      open.text += text;
    },
    whole(line, text) { end(); this.add(line, text); end(); },
  };
}

function markdown(source) {
  const texts = [];
  const to = gatherer(texts);
  let fence = false;
  let comment = false;
  let blank = true;
  let list = false;
  source.split('\n').forEach((line, i) => {
    const number = i + 1;
    if (/^\s*```/.test(line)) { fence = !fence; to.end(); return; }
    if (fence) return;
    if (/^\s*<!--/.test(line)) comment = true;
    if (comment) { if (/-->/.test(line)) comment = false; to.end(); return; }
    if (!line.trim()) { to.end(); blank = true; return; }
    if (/^\s*\|/.test(line)) {
      to.end();
      if (!/^[\s|:-]+$/.test(line))
        line.replace(/\\\|/g, '/').replace(/`[^`]*`/g, (code) => code.replace(/\|/g, '/')).split('|').forEach((cell) => to.whole(number, cell));
    } else if (/^(    |\t)/.test(line) && blank && !list) {
      to.end(); // code; its next line is code as well
      return;
    } else if (/^#+ /.test(line)) {
      to.whole(number, line.replace(/^#+ /, '')); // "What is kept" is a name, no sentence
      texts[texts.length - 1].heading = true;
      list = false;
    } else if (/^\s*([-*+]|\d+\.) /.test(line)) {
      to.end();
      to.add(number, line.replace(/^\s*([-*+]|\d+\.) /, ''));
      list = true;
    } else {
      if (blank && !/^\s/.test(line)) list = false;
      to.add(number, line.replace(/^\s*>? ?/, ''));
    }
    blank = false;
  });
  to.end();
  return texts;
}

// The comments of a C file: blocks by paragraphs, and lines of // as long as they follow each other at one column.
function comments(source, withTexts) {
  const texts = [];
  const to = gatherer(texts);
  let column = -1;
  let lastLine = -2;
  let line = 1;
  let lineStart = 0;
  const token = /\n|\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/g;
  let strings = null;
  const endStrings = () => {
    if (strings && withTexts) strings.forEach(([n, text], i) => { if (i === 0) to.end(); to.add(n, text.replace(/\\n/g, '. ').replace(/\\"/g, '"')); });
    if (strings && withTexts) to.end();
    strings = null;
  };
  let last = 0;
  for (let found = token.exec(source); found; found = token.exec(source)) {
    const [text] = found;
    if (/\S/.test(source.slice(last, found.index))) endStrings();
    last = token.lastIndex;
    if (text === '\n') { line++; lineStart = token.lastIndex; continue; }
    if (text[0] === '"') { if (withTexts) (strings ||= []).push([line, text.slice(1, -1)]); continue; }
    if (text[0] === "'") continue;
    endStrings();
    const at = found.index - lineStart;
    if (text.startsWith('//')) {
      const alone = !source.slice(lineStart, found.index).trim();
      if (!(alone && line === lastLine + 1 && at === column)) to.end();
      const says = text.replace(/^\/\/+ ?/, '');
      if (/^[-=]{3}|^(NOLINT|clang-format)/.test(says) || !says.trim()) to.end();
      else { if (/^\s*- /.test(says)) to.end(); to.add(line, says.replace(/^\s*- /, '')); }
      column = at;
      lastLine = line;
    } else {
      to.end();
      text.slice(2, -2).split('\n').forEach((row, i) => {
        const says = row.replace(/^\s*\*+ ?/, '').replace(/^\s*- /, '\0');
        if (!says.trim() || says[0] === '\0' || /^\s{4}/.test(says)) to.end();
        if (says.trim() && !/^\s{4}/.test(says)) to.add(line + i, says.replace('\0', ''));
      });
      to.end();
      const lines = text.split('\n').length - 1;
      line += lines;
      if (lines) lineStart = found.index + text.lastIndexOf('\n') + 1;
      lastLine = -2;
    }
  }
  to.end();
  return texts;
}

// ---- Sentences ----

const abbreviation = /\b(e\.g|i\.e|etc|vs|cf|approx)\.$/;

function sentences({ text, starts, heading }) {
  const plain = text
    .replace(/`[^`]+`/g, (code) => 'X'.repeat(code.length))
    .replace(/\]\(([^)\s]+)\)/g, (link) => ']' + ' '.repeat(link.length - 1))
    .replace(/https?:\/\/[^\s)]*[^\s).,;:]/g, (url) => 'X'.repeat(url.length));
  const out = [];
  let begin = 0;
  const cut = (end) => {
    const part = plain.slice(begin, end);
    const offset = begin + part.search(/\S|$/);
    const line = starts.filter(([at]) => at <= offset).pop()?.[1] ?? starts[0][1];
    const words = part.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
    if (words) out.push({ line, words, heading, says: text.slice(begin, end).trim() });
    begin = end;
  };
  const ends = /[.!?]["'”’)\]*_]*(?=\s|$)/g;
  for (let found = ends.exec(plain); found; found = ends.exec(plain)) {
    const end = found.index + found[0].length;
    if (!abbreviation.test(plain.slice(Math.max(0, end - 8), end))) cut(end);
  }
  cut(plain.length);
  return out;
}

const riddle = (says) => !/\?["'”)*]*$/.test(says)
  && (/^["“(*_]*(What|Whoever|Nobody|Who)\b|[:;] (what|whoever|nobody|who)\b/.test(says) || /\bwho is told\b/i.test(says));

// ---- What was found ----

const args = process.argv.slice(2);
const mode = args[0] && args[0].startsWith('--') ? args.shift() : '';
if (!['', '--list', '--check'].includes(mode)) { console.error('scripts/prose.sh [--root FOLDER] [--list [FILE...] | --check]'); process.exit(2); }
const docs = ['README.md', 'CONTRIBUTING.md', 'patches/README.md'].filter((name) => fs.existsSync(name)).concat(files('docs', /\.md$/));
const sources = files('src', /\.(c|h|cpp|hpp)$/);
const wanted = args.length ? args : docs.concat(sources);

const sums = { docs: [0, 0], comments: [0, 0] };
for (const name of wanted) {
  const source = fs.readFileSync(name, 'utf8');
  const texts = name.endsWith('.md') ? markdown(source) : comments(source, /config\/table\.c$|reports\/prometheus\.c$/.test(name));
  let long = 0;
  let riddles = 0;
  for (const text of texts) {
    for (const { line, words, heading, says } of sentences(text)) {
      const isLong = words > MAX_WORDS;
      const isRiddle = !heading && riddle(says);
      long += isLong;
      riddles += isRiddle;
      if (mode === '--list' && (isLong || isRiddle)) console.log(`${name}:${line}: ${isLong ? `${words} words` : 'riddle'}: ${says}`);
    }
  }
  const sum = sums[name.endsWith('.md') ? 'docs' : 'comments'];
  sum[0] += long;
  sum[1] += riddles;
  if (mode === '' && long + riddles) console.log(`${String(long).padStart(5)} long ${String(riddles).padStart(5)} riddles  ${name}`);
}
if (mode === '') for (const [what, [long, riddles]] of Object.entries(sums)) console.log(`${what}: ${long} long, ${riddles} riddles`);
if (mode === '--check') {
  let bad = 0;
  for (const [what, limit] of [['docs', DOCS_LIMIT], ['comments', COMMENTS_LIMIT]]) {
    const n = sums[what][0] + sums[what][1];
    if (n <= limit) continue;
    console.log(`${n} sentences of ${what} are too long or riddles, ${limit} are allowed: scripts/prose.sh --list`);
    bad = 1;
  }
  process.exit(bad);
}
SCRIPT
