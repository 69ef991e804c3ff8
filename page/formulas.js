// Formulas in replies: $…$ and \(…\) within a line, $$…$$ and \[…\] in lines of their own. KaTeX makes MathML of them,
// which browsers draw by themselves: no fonts, no styles. What it makes goes through the sanitiser like the rest. A formula
// that is malformed, asks for more than formulas need, or is too large shows its source.

import './vendor/katex.js'; // it has no exports
import DOMPurify from './vendor/purify.js';

const { katex } = window;

const LONGEST = 4000; // characters of a formula
const DEEPEST = 60; // elements in each other
const MOST = 200; // formulas of a block
const MOST_KEPT = 500; // that have been drawn: while a reply grows, its last block is drawn again and again

const pairs = [['$$', '$$', true], ['\\[', '\\]', true], ['\\(', '\\)', false], ['$', '$', false]];

// ---- Finding them ----

// In prose a dollar is money: a formula has no space inside of its dollars, and no digit follows the second one.
function endOfDollars(text) {
  if (/^\$[\s$]/.test(text)) return -1;
  for (let at = 1; at < text.length && text[at] !== '\n'; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === '$') return /\s/.test(text[at - 1]) || /\d/.test(text[at + 1] ?? '') ? -1 : at + 1;
  }
  return -1;
}

// The formula that the text begins with: {raw, display}; undefined: it begins with none.
function formulaAt(source) {
  const text = source.slice(0, LONGEST);
  const found = pairs.find(([open]) => text.startsWith(open));
  if (!found) return undefined;
  const [open, close, display] = found;
  const end = open === '$' ? endOfDollars(text) : text.indexOf(close, open.length) + close.length;
  return end > open.length + close.length ? { raw: text.slice(0, end), display } : undefined;
}

const firstOf = (text, marks, offset) => {
  const found = marks.map((mark) => text.indexOf(mark)).filter((at) => at >= 0);
  return found.length > 0 ? Math.min(...found) + offset : undefined;
};

const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const renderer = ({ raw, display }) => `<span class="formula${display ? ' display' : ''}">${escaped(raw.trim())}</span>`;

// For marked. In a block of its own a formula may hold lines that mean something else in markdown.
export const extensions = [
  { name: 'formulaBlock',
    level: 'block',
    start: (text) => firstOf(text, ['\n$$', '\n\\['], 1),
    tokenizer(text) {
      const found = formulaAt(text);
      const rest = found?.display && /^[ \t]*(?:\n+|$)/.exec(text.slice(found.raw.length));
      return rest ? { type: 'formulaBlock', raw: found.raw + rest[0], display: true } : undefined;
    },
    renderer },
  { name: 'formula',
    level: 'inline',
    start: (text) => firstOf(text, ['$', '\\(', '\\['], 0),
    tokenizer(text) {
      const found = formulaAt(text);
      return found && { type: 'formula', ...found };
    },
    renderer },
];

// ---- Drawing them ----

const allowed = {
  ALLOWED_TAGS: ['annotation', 'math', 'menclose', 'mfrac', 'mi', 'mmultiscripts', 'mn', 'mo', 'mover', 'mpadded', 'mphantom', 'mroot', 'mrow', 'ms', 'mspace', 'msqrt', 'mstyle',
    'msub', 'msubsup', 'msup', 'mtable', 'mtd', 'mtext', 'mtr', 'munder', 'munderover', 'semantics', 'span'],
  ALLOWED_ATTR: ['accent', 'accentunder', 'columnalign', 'columnlines', 'columnspacing', 'depth', 'display', 'displaystyle', 'fence', 'form', 'height', 'largeop', 'linethickness',
    'lspace', 'mathbackground', 'mathcolor', 'mathsize', 'mathvariant', 'maxsize', 'minsize', 'movablelimits', 'notation', 'rowlines', 'rowspacing', 'rspace', 'scriptlevel',
    'separator', 'stretchy', 'symmetric', 'voffset', 'width', 'xmlns'],
  RETURN_DOM_FRAGMENT: true,
};

// Links, pictures and attributes of one's own are no formulas.
function refuse() {
  throw new Error('not trusted');
}

function isDeep(root) {
  let level = [root];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > DEEPEST) return true;
    level = level.flatMap(({ children }) => [...children]);
  }
  return false;
}

function draw(raw) {
  const [open, close, displayMode] = pairs.find(([o, c]) => raw.startsWith(o) && raw.endsWith(c));
  const tex = raw.slice(open.length, -close.length);
  const html = katex.renderToString(tex, { displayMode, output: 'mathml', throwOnError: true, strict: 'ignore', trust: refuse, maxSize: 20, maxExpand: 200 });
  const fragment = DOMPurify.sanitize(html, allowed);
  fragment.querySelectorAll('annotation').forEach((source) => source.remove());
  const math = fragment.querySelector('math');
  return math && !isDeep(math) ? math : null;
}

const kept = new Map(); // from a formula as it is written to its element; null: it shows its source

// A reply may have the element itself, with anything in it.
function drawn(raw) {
  if (raw.length > LONGEST) return undefined;
  if (!kept.has(raw)) {
    if (kept.size >= MOST_KEPT) kept.clear();
    let math = null;
    try { math = draw(raw); } catch { /* its source is shown */ }
    kept.set(raw, math);
  }
  return kept.get(raw)?.cloneNode(true);
}

export function finishFormulas(fragment) {
  [...fragment.querySelectorAll('.formula')].slice(0, MOST).forEach((span) => {
    const math = drawn(span.textContent);
    if (math) span.replaceChildren(math);
    else span.classList.add('source');
  });
}
