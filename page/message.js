// How one message looks: its text, what was attached, reasoning and tool calls, the token bar, errors, and what can be
// done with it.

import { adviceFor } from './api.js';
import { progressBar, tokenBar } from './bar.js';
import { el } from './dom.js';
import { MarkdownView } from './markdown.js';

const button = (step, text, label, onclick) => el('button', { class: 'quiet', type: 'button', 'data-step': step, 'aria-label': label, title: label, onclick }, text);

function attachment({ kind, data, name }) {
  if (kind === 'audio') return el('audio', { controls: true, src: data, 'aria-label': name });
  return el('img', { src: data, alt: name, loading: 'lazy' });
}

// `actions`: {edit, again, choose}, each called with a message.
export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.markdown = new MarkdownView();
    this.reasoning = null;
    this.foot = el('div', { class: 'foot' });
    this.extra = el('div', { class: 'extra' });
    this.tools = el('div', { class: 'tools' });
    this.branches = '';
    const own = message.role === 'user';
    this.element = el('article', { class: `message ${message.role}`, 'aria-label': own ? 'You' : 'Reply' },
      el('div', { class: 'body' }, ...(message.files ?? []).map(attachment), this.extra, own ? el('p', { class: 'plain' }, message.text) : this.markdown.element),
      this.foot, this.tools);
    this.update();
  }

  // `siblings`: the messages in whose place it may stand, itself among them.
  showBranches(siblings) {
    const { message, actions } = this;
    const at = siblings.findIndex(({ id }) => id === message.id);
    const shown = siblings.length > 1 ? `${at + 1} of ${siblings.length}` : 'alone';
    if (shown === this.branches) return;
    this.branches = shown;
    const to = (i) => () => actions.choose(siblings.at(i % siblings.length));
    this.tools.replaceChildren(...siblings.length > 1 ? [button('before', '‹', 'The branch before', to(at - 1)), el('span', { class: 'branch' }, shown), button('next', '›', 'The next branch', to(at + 1))] : [],
      message.role === 'user' ? button('edit', 'Edit', 'Edit this message in a new branch', () => actions.edit(message)) : button('again', 'Again', 'Again: another reply', () => actions.again(message)));
  }

  // `step`: before, next, edit or again.
  focus(step) {
    this.tools.querySelector(`[data-step="${step}"]`)?.focus();
  }

  // What a stream may have changed.
  update() {
    const { message } = this;
    if (message.role === 'assistant') this.markdown.show(message.text);
    this.showExtra();
    this.element.ariaBusy = String(Boolean(message.running)); // read out once it is whole
    this.foot.replaceChildren(...[
      message.error && el('p', { class: 'error', role: 'alert' }, message.error.message, ' ', el('span', {}, adviceFor(message.error))),
      message.stopped && el('p', { class: 'note' }, 'Stopped.'),
      message.cut && el('p', { class: 'note' }, 'Cut off: it has as many tokens as Settings allow, or the window is full.'),
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
