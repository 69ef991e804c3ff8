// The view of one conversation: its messages, the field below them, and the reply that is being streamed.

import { Attachments } from './attachments.js';
import { add, choose, path, requestOf, save, siblings } from './conversations.js';
import { el, find } from './dom.js';
import { MessageView } from './message.js';
import { stream } from './reply.js';

export class Chat {
  // `models`: {chosen()}; `changed` is called when a conversation has another title or place in the list.
  constructor(models, changed, denied) {
    this.models = models;
    this.changed = changed;
    this.denied = denied;
    this.conversation = null;
    this.running = null; // the AbortController of the reply
    this.attachments = new Attachments(() => models.takes(), (text) => this.say(text));
    this.listen();
  }

  listen() {
    const text = find('composer-text');
    find('composer').addEventListener('submit', (event) => { event.preventDefault(); this.send(); });
    text.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.send(); }
      if (event.key === 'Escape') this.running?.abort();
    });
    text.addEventListener('input', () => this.fit());
    text.addEventListener('paste', (event) => { if (event.clipboardData.files.length) { event.preventDefault(); this.attachments.add(event.clipboardData.files); } });
    find('stop').addEventListener('click', () => this.running?.abort());
    find('attach').addEventListener('click', () => find('attach-file').click());
    find('attach-file').addEventListener('change', ({ target }) => { this.attachments.add([...target.files]); target.value = ''; });
    find('chat').addEventListener('dragover', (event) => event.preventDefault());
    find('chat').addEventListener('drop', (event) => { event.preventDefault(); this.attachments.add(event.dataTransfer.files); });
  }

  fit() {
    const text = find('composer-text');
    text.style.height = 'auto';
    text.style.height = `${Math.min(text.scrollHeight, window.innerHeight * 0.4)}px`;
  }

  say(text) {
    find('hint').textContent = text;
  }

  // ---- What is shown ----

  show(conversation) {
    this.running?.abort();
    this.conversation = conversation;
    this.editing = null;
    this.draw();
    find('composer-text').focus();
  }

  draw() {
    const list = find('messages');
    const actions = { edit: (m) => this.edit(m), again: (m) => this.again(m), choose: (m) => { choose(this.conversation, m); save(this.conversation); this.draw(); } };
    const messages = path(this.conversation);
    this.views = messages.map((message) => new MessageView(message, siblings(this.conversation, message), actions));
    list.replaceChildren(...this.views.map(({ element }) => element));
    if (messages.length === 0) list.append(el('div', { class: 'empty' }, el('h2', {}, 'What would you like to know?'),
      el('p', {}, 'Under each reply a bar shows which tokens of the prompt were reused, restored or computed.')));
    list.scrollTop = list.scrollHeight;
  }

  // ---- Sending ----

  async send() {
    const field = find('composer-text');
    const text = field.value.trim();
    const files = [...this.editing?.files ?? [], ...this.attachments.take()];
    if (this.running || (!text && files.length === 0)) return;
    field.value = '';
    this.fit();
    this.say('Enter sends, Shift Enter begins a line');
    const parent = this.editing ? this.editing.parent : this.conversation.leaf;
    this.editing = null;
    add(this.conversation, parent, { role: 'user', text, ...files.length && { files } });
    await this.reply();
  }

  edit(message) {
    this.editing = message;
    find('composer-text').value = message.text;
    this.fit();
    find('composer-text').focus();
    this.say('What you send takes the message\u2019s place, in a branch of its own.');
  }

  async again(message) {
    if (this.running) return;
    this.conversation.leaf = message.parent;
    await this.reply();
  }

  async reply() {
    const { conversation } = this;
    const body = requestOf(conversation, this.models.chosen(), path(conversation));
    const message = add(conversation, conversation.leaf, { role: 'assistant', text: '' });
    this.draw();
    const view = this.views.at(-1);
    const controller = this.running = new AbortController();
    this.buttons();
    await save(conversation);
    this.changed();
    let frame = 0;
    const show = () => { frame ||= requestAnimationFrame(() => { frame = 0; this.follow(() => view.update()); }); };
    await stream(message, body, controller.signal, show);
    this.running = null;
    this.buttons();
    this.follow(() => view.update());
    await save(conversation);
    this.changed();
    if (message.error?.status === 401) this.denied();
  }

  // Stays at the end, if that is what was in view.
  follow(work) {
    const list = find('messages');
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    work();
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  buttons() {
    find('stop').hidden = !this.running;
    find('send').hidden = Boolean(this.running);
  }
}
