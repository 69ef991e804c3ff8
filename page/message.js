// How one message looks: its text, what was attached, reasoning and tool calls, the token bar, errors, and what can be
// done with it.

import { adviceFor } from './api.js';
import { progressBar, tokenBar } from './bar.js';
import { el } from './dom.js';
import { MarkdownView } from './markdown.js';

const button = (text, label, onclick) => el('button', { class: 'quiet', type: 'button', 'aria-label': label, title: label, onclick }, text);

function attachment({ kind, data, name }) {
  if (kind === 'audio') return el('audio', { controls: true, src: data, 'aria-label': name });
  return el('img', { src: data, alt: name, loading: 'lazy' });
}

// `actions`: {edit, again, choose}, each called with the message; `branches`: messages in whose place it may stand.
export class MessageView {
  constructor(message, branches, actions) {
    this.message = message;
    this.actions = actions;
    this.markdown = new MarkdownView();
    this.reasoning = null;
    this.foot = el('div', { class: 'foot' });
    this.extra = el('div', { class: 'extra' });
    const own = message.role === 'user';
    this.element = el('article', { class: `message ${message.role}`, 'aria-label': own ? 'You' : 'Reply' },
      el('div', { class: 'body' }, ...(message.files ?? []).map(attachment), this.extra, own ? el('p', { class: 'plain' }, message.text) : this.markdown.element),
      this.foot, this.tools(branches));
    this.update();
  }

  tools(branches) {
    const { message, actions } = this;
    const row = el('div', { class: 'tools' });
    if (branches.length > 1) {
      const at = branches.indexOf(message);
      row.append(button('‹', 'The branch before', () => actions.choose(branches[(at + branches.length - 1) % branches.length])),
        el('span', { class: 'branch' }, `${at + 1} of ${branches.length}`), button('›', 'The next branch', () => actions.choose(branches[(at + 1) % branches.length])));
    }
    row.append(message.role === 'user' ? button('Edit', 'Edit this message in a new branch', () => actions.edit(message))
      : button('Again', 'Again: another reply', () => actions.again(message)));
    return row;
  }

  // What a stream may have changed.
  update() {
    const { message } = this;
    if (message.role === 'assistant') this.markdown.show(message.text);
    this.showExtra();
    this.foot.replaceChildren(...[
      message.error && el('p', { class: 'error', role: 'alert' }, message.error.message, ' ', el('span', {}, adviceFor(message.error))),
      message.stopped && el('p', { class: 'note' }, 'Stopped.'),
      message.progress && progressBar(message.progress),
      message.figures && tokenBar(message.figures),
    ].filter(Boolean));
  }

  showExtra() {
    const { message } = this;
    if (message.reasoning) {
      if (!this.reasoning) this.extra.append(this.reasoning = el('details', { class: 'reasoning' }, el('summary', {}, 'Reasoning'), el('p')));
      this.reasoning.lastChild.textContent = message.reasoning;
    }
    const shown = this.extra.querySelectorAll('.tool').length;
    for (const call of (message.calls ?? []).slice(shown)) this.extra.append(el('details', { class: 'tool' }, el('summary', {}, `Calls ${call.name}`), el('pre', { tabindex: '0' })));
    this.extra.querySelectorAll('.tool pre').forEach((pre, i) => { pre.textContent = message.calls[i].arguments; });
  }
}
