// Replies as markup: marked makes HTML of markdown, DOMPurify lets nothing through that runs, loads or submits, and code
// is highlighted. A reply is not trusted: everything goes through sanitize().

import { Lexer, marked, Parser } from './vendor/marked.js';
import DOMPurify from './vendor/purify.js';
import hljs from './vendor/highlight.js';
import { el } from './dom.js';
import { extensions, finishFormulas } from './formulas.js';

// Boxes of tasks are text, which is all that a reply may hold.
const renderer = { checkbox: ({ checked }) => `<span class="task">${checked ? '☑' : '☐'}</span> ` };
marked.use({ extensions, renderer });

const allowed = {
  ALLOWED_TAGS: ['a', 'b', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'i', 'li', 'ol', 'p', 'pre', 'span', 'strong', 'sub', 'sup',
    'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul'],
  ALLOWED_ATTR: ['href', 'class', 'start', 'align', 'title'],
  ALLOWED_URI_REGEXP: /^(https?:|mailto:)/i,
  ADD_URI_SAFE_ATTR: ['start', 'align'], // whose values are no addresses
  RETURN_DOM_FRAGMENT: true,
};
const sanitize = (html) => DOMPurify.sanitize(html, allowed);

function finishLinks(fragment) {
  for (const link of fragment.querySelectorAll('a')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }
}

// Browsers have a clipboard for pages of https and of this machine alone: elsewhere the code is selected, and copied as a
// user would.
async function copied(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    window.getSelection().selectAllChildren(code);
    return document.execCommand('copy');
  }
}

// The text into plain fields, and `element`, if there is one, with its markup into others.
export async function copyText(text, element) {
  try {
    const kinds = { 'text/plain': new Blob([text], { type: 'text/plain' }) };
    if (element) {
      const copy = element.cloneNode(true);
      copy.querySelectorAll('.code-head').forEach((head) => head.remove());
      kinds['text/html'] = new Blob([copy.innerHTML], { type: 'text/html' });
    }
    await navigator.clipboard.write([new ClipboardItem(kinds)]);
    return true;
  } catch {
    const field = el('textarea', { class: 'hidden', 'aria-hidden': 'true' });
    const focused = document.activeElement;
    field.value = text;
    document.body.append(field);
    field.focus();
    field.select();
    const done = document.execCommand('copy');
    field.remove();
    focused?.focus();
    return done;
  }
}

const MOST_HIGHLIGHTED = 100_000; // characters of a code block

function finishCode(pre) {
  const code = pre.querySelector('code');
  if (!code) return;
  const language = /language-([\w+#-]+)/.exec(code.className)?.[1];
  const text = code.textContent;
  if (language && hljs.getLanguage(language) && text.length < MOST_HIGHLIGHTED) code.replaceChildren(sanitize(hljs.highlight(text, { language }).value));
  const copy = el('button', { class: 'copy quiet', type: 'button', onclick: async () => { copy.textContent = await copied(code) ? 'Copied' : 'Not copied'; } }, 'Copy');
  pre.before(el('div', { class: 'code-head' }, el('span', {}, language ?? 'text'), copy));
  pre.tabIndex = 0; // it scrolls
}

const LAST_BLOCKS = 3; // that further text may change: a list goes on behind a blank line

function renderBlock(token) {
  const fragment = sanitize(Parser.parse([token]));
  finishLinks(fragment);
  finishFormulas(fragment);
  fragment.querySelectorAll('pre').forEach(finishCode);
  for (const table of fragment.querySelectorAll('table')) table.replaceWith(el('div', { class: 'scrolls', tabindex: '0' }, table.cloneNode(true)));
  return el('div', { class: 'block' }, fragment);
}

// What the text is made of, read from a block on: those before it gave links such as [1]: https://… their meaning.
function lexFrom(text, links) {
  const lexer = new Lexer();
  Object.assign(lexer.tokens.links, links);
  return lexer.lex(text);
}

// A view of text that grows: only its last blocks are read again, and only those that have changed are made anew.
export class MarkdownView {
  constructor() {
    this.element = el('div', { class: 'markdown' });
    this.forget();
  }

  forget() {
    this.text = '';
    this.raws = []; // the text of each block
    this.defines = []; // [name, what it means] of each that is a definition such as [1]: https://…, else null
    this.links = {};
  }

  // What the renderer cannot cope with, such as thousands of quotations in each other, is shown as it is. `grows`: more
  // will be shown, and a block that only ends many blocks later is not seen as one before the last text.
  show(text, grows = false) {
    try {
      this.render(text.replace(/\r\n?/g, '\n'), grows);
    } catch {
      this.element.replaceChildren(el('p', { class: 'plain' }, text));
      this.forget();
    }
  }

  // Blocks that further text does not change any more: all but the last ones that are not blank.
  settled() {
    let i = this.raws.length;
    for (let left = LAST_BLOCKS; i > 0 && left > 0;) if (this.raws[--i].trim() !== '') left--;
    return i;
  }

  render(text, grows) {
    let first = grows && text.startsWith(this.text) ? this.settled() : 0;
    const at = this.raws.slice(0, first).reduce((n, raw) => n + raw.length, 0);
    let tokens = lexFrom(text.slice(at), Object.fromEntries(this.defines.slice(0, first).filter(Boolean)));
    const isNew = JSON.stringify(tokens.links) !== JSON.stringify(this.links); // [1]: https://… at the end gives [1] before it its meaning
    if (isNew) {
      if (first > 0) tokens = lexFrom(text, {});
      first = 0;
      this.raws = [];
    }
    tokens.forEach(({ raw, type, tag, href, title }, k) => {
      const i = first + k;
      this.defines[i] = type === 'def' ? [tag, { href, title }] : null;
      if (this.raws[i] === raw) return;
      const block = renderBlock(tokens[k]);
      if (this.element.children[i]) this.element.children[i].replaceWith(block);
      else this.element.append(block);
      this.raws[i] = raw;
    });
    this.raws.length = first + tokens.length;
    while (this.element.children.length > this.raws.length) this.element.lastChild.remove();
    this.text = text;
    this.links = tokens.links;
  }
}

// marked, DOMPurify and the highlighter compile their patterns when they are used first, which takes several frames: now,
// while nobody waits for one.
const sample = '# A\n\n**B** `c`\n\n- d\n\n```javascript\nlet e = 1;\n```\n';
(window.requestIdleCallback ?? setTimeout)(() => new MarkdownView().show(sample));
