// How one message looks: its text, what was attached, reasoning and tool calls, the token bar, errors, and what can be
// done with it.

import { adviceFor } from './api.js';
import { progressBar, tokenBar } from './bar.js';
import { el, number } from './dom.js';
import { copyText, MarkdownView } from './markdown.js';

const button = (step, text, label, onclick) => el('button', { class: 'quiet', type: 'button', 'data-step': step, 'aria-label': label, title: label, onclick }, text);

function attachment({ kind, data, name }) {
  if (kind === 'text') return el('details', { class: 'file' }, el('summary', {}, `${name} · ${number(data.length)} characters`), el('pre', { tabindex: '0' }, data));
  if (kind === 'audio') return el('audio', { controls: true, src: data, 'aria-label': name });
  return el('img', { src: data, alt: name, loading: 'lazy' });
}

const times = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

// `actions`: {edit, again, choose, more, drop, take, others}, each called with a message; `models`
// gives the names of all, and `full` asks what to do about a full window.
export class MessageView {
  constructor(message, actions, left) {
    this.message = message;
    this.actions = actions;
    this.left = left; // the model does not read it
    this.touched = message.touched; // as it is shown
    this.siblings = [message];
    this.markdown = new MarkdownView();
    this.reasoning = null;
    this.foot = el('div', { class: 'foot' });
    this.extra = el('div', { class: 'extra' });
    this.tools = el('div', { class: 'tools' });
    this.branches = '';
    const own = message.role === 'user';
    const body = el('div', { class: 'body' }, ...(message.files ?? []).map(attachment), this.extra, own ? el('p', { class: 'plain' }, message.text) : this.markdown.element);
    const shown = left ? el('details', {}, el('summary', {}, 'Left out of what the model reads'), body) : body;
    this.element = el('article', { class: `message ${message.role}${left ? ' left' : ''}`, 'aria-label': own ? 'You' : 'Reply' }, shown, this.foot, this.tools);
    this.update();
  }

  // `siblings`: the messages in whose place it may stand, itself among them.
  showBranches(siblings) {
    this.siblings = siblings;
    this.showTools();
  }

  isStale() {
    return this.message.touched !== this.touched;
  }

  showTools() {
    const { message, actions, siblings } = this;
    const at = siblings.findIndex(({ id }) => id === message.id);
    const shown = siblings.length > 1 ? `${at + 1} of ${siblings.length}` : 'alone', several = actions.models().length > 1;
    if (`${shown}, ${several}` === this.branches) return;
    this.branches = `${shown}, ${several}`;
    const to = (i) => () => actions.choose(siblings.at(i % siblings.length));
    const stepped = siblings.length > 1
      ? [button('before', '‹', 'The branch before', to(at - 1)), el('span', { class: 'branch' }, shown), button('next', '›', 'The next branch', to(at + 1))] : [];
    const edit = message.role === 'user' ? button('edit', 'Edit', 'Edit this message in a new branch', () => actions.edit(message))
      : button('edit', 'Edit', 'Edit this reply', () => actions.edit(message));
    const own = message.role === 'user' ? [edit] : [button('again', 'Again', 'Again: another reply', () => actions.again(message)), several ? button('others', 'with …', 'Again with … another model', () => actions.others(message)) : null, edit].filter(Boolean);
    const take = this.left && message.role === 'user' ? [button('take', 'Take in', 'Take this message in again, with those that follow it', () => actions.take(message))] : [];
    const when = message.at ? [el('span', { class: 'when' }, [message.model, times.format(message.at), message.changed && 'changed'].filter(Boolean).join(' · '))] : [];
    this.tools.replaceChildren(...stepped, ...own, ...take, this.copy(), button('drop', 'Delete', 'Delete this message and what follows it', () => actions.drop(message)), ...when);
  }

  // As Markdown into plain fields, with its markup into others.
  copy() {
    const { message } = this;
    const copy = button('copy', 'Copy', 'Copy this message', async () => {
      const done = await copyText(message.text, message.role === 'user' ? null : this.markdown.element);
      const say = (text, label) => { copy.textContent = text; copy.ariaLabel = label; };
      say(...done ? ['Copied', 'Copied'] : ['Not copied', 'Not copied']);
      setTimeout(() => say('Copy', 'Copy this message'), 2000);
    });
    return copy;
  }

  // A reply that has not come to its end.
  note(text) {
    return el('p', { class: 'note' }, text, this.more());
  }

  full() {
    return this.message.error.code === 'context_length_exceeded' ? button('full', 'What now?', 'What to do about a full window', () => this.actions.full()) : null;
  }

  more() {
    const { message, actions } = this;
    return message.text || message.reasoning ? button('more', 'Continue', 'Continue this reply where it ends', () => actions.more(message)) : null;
  }

  // `step`: before, next, edit or again.
  focus(step) {
    this.tools.querySelector(`[data-step="${step}"]`)?.focus();
  }

  // What a stream may have changed.
  update() {
    const { message } = this;
    if (message.role === 'assistant') this.markdown.show(message.text, Boolean(message.running));
    this.showExtra();
    this.element.ariaBusy = String(Boolean(message.running)); // read out once it is whole
    this.foot.replaceChildren(...[
      message.error && el('p', { class: 'error', role: 'alert' }, message.error.message, ' ', el('span', {}, adviceFor(message.error)), ' ', message.running ? null : this.more(), this.full()),
      message.stopped && this.note('Stopped. '),
      message.cut && this.note('Cut off: it has as many tokens as Settings allow, or the window is full. '),
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
