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

function renderBlock(token) {
  const fragment = sanitize(Parser.parse([token]));
  finishLinks(fragment);
  finishFormulas(fragment);
  fragment.querySelectorAll('pre').forEach(finishCode);
  for (const table of fragment.querySelectorAll('table')) table.replaceWith(el('div', { class: 'scrolls', tabindex: '0' }, table.cloneNode(true)));
  return el('div', { class: 'block' }, fragment);
}

// A view of text that grows: only blocks that have changed are made anew.
export class MarkdownView {
  constructor() {
    this.element = el('div', { class: 'markdown' });
    this.raws = [];
    this.links = '';
  }

  // What the renderer cannot cope with, such as thousands of quotations in each other, is shown as it is.
  show(text) {
    try {
      this.render(text);
    } catch {
      this.element.replaceChildren(el('p', { class: 'plain' }, text));
      this.raws = [];
    }
  }

  render(text) {
    const tokens = Lexer.lex(text);
    const links = JSON.stringify(tokens.links); // [1]: https://… at the end gives [1] before it its meaning
    if (links !== this.links) this.raws = [];
    this.links = links;
    tokens.forEach((token, i) => {
      if (this.raws[i] === token.raw) return;
      const block = renderBlock(token);
      if (this.element.children[i]) this.element.children[i].replaceWith(block);
      else this.element.append(block);
      this.raws[i] = token.raw;
    });
    while (this.element.children.length > tokens.length) this.element.lastChild.remove();
    this.raws.length = tokens.length;
  }
}

// marked, DOMPurify and the highlighter compile their patterns when they are used first, which takes several frames: now,
// while nobody waits for one.
const sample = '# A\n\n**B** `c`\n\n- d\n\n```javascript\nlet e = 1;\n```\n';
(window.requestIdleCallback ?? setTimeout)(() => new MarkdownView().show(sample));
