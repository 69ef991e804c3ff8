// The view of one conversation: its messages, the field below them, and the reply that is being streamed. The replies of
// other conversations go on meanwhile.

import { Attachments } from './attachments.js';
import { add, branches, choose, drop, isEmpty, leftOut, nameAfter, path, requestOf, touch } from './conversations.js';
import { el, find } from './dom.js';
import { drafts } from './drafts.js';
import { MessageView } from './message.js';
import { MessageList } from './message_list.js';
import { stream } from './reply.js';
import { save, takeMessage } from './storage.js';
import { WindowMeter } from './window.js';

const LEAST_AT_ONCE = 6; // messages: about what is in view
const AT_ONCE_MS = 12; // for more of them that were not shown before; the others are made afterwards, a few in each frame
const SLICE_MS = 6;
const SETTLING_FRAMES = 3;
const LONG_PASTE = 4000; // characters: more would hide what is written beside them
const KEEP_EVERY_MS = 2000; // while a reply comes: so much of it a reload may lose

export class Chat {
  // `models`: {chosen(), takes()}; `changed` is called when a conversation has another title or place in the list, `denied`
  // when the server wants an API key.
  constructor(models, changed, denied) {
    this.models = models;
    this.changed = changed;
    this.denied = denied;
    this.onFull = () => {}; // asks what to do about a full window
    this.conversation = null;
    this.replies = new Map(); // that are being streamed, by the ids of their conversations: {conversation, controller}
    this.sending = false; // the next message waits for its attachments
    this.editing = this.draft = null; // the message in whose place the next one goes, and what was half written before
    this.changes = new WeakMap(); // what was half written in place of messages, while another one is changed
    this.views = new Map(); // by the ids of messages
    this.shown = new MessageList(find('messages'));
    this.toEnd = false; // what is drawn next is scrolled to its end, unless the user scrolls
    this.drawing = 0; // counts, so that a drawing that goes on knows of a later one
    this.window = new WindowMeter(models);
    this.attachments = new Attachments(() => models.takes(), (text) => this.say(text), () => { this.keepDraft(); this.measure(); }, (text) => this.insert(text));
    this.listen();
  }

  listen() {
    const text = find('composer-text');
    find('composer').addEventListener('submit', (event) => { event.preventDefault(); this.send(); });
    text.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.send(); }
    });
    find('chat').addEventListener('keydown', (event) => { if (event.key === 'Escape' && !event.isComposing) this.escape(); });
    text.addEventListener('input', () => { this.fit(); this.keepDraft(); this.measure(); });
    text.addEventListener('paste', (event) => this.paste(event));
    find('change').addEventListener('click', () => this.change());
    find('stop').addEventListener('click', () => this.running?.controller.abort());
    find('attach').addEventListener('click', () => find('attach-file').click());
    find('attach-file').addEventListener('change', ({ target }) => { this.attach([...target.files]); target.value = ''; });
    for (const name of ['wheel', 'touchmove', 'keydown', 'pointerdown']) find('messages').addEventListener(name, () => { this.toEnd = false; }, { passive: true });
    // Anywhere: else the browser opens the file in place of the page.
    document.addEventListener('dragover', (event) => { if (event.dataTransfer.types.includes('Files')) event.preventDefault(); });
    document.addEventListener('drop', (event) => { if (event.dataTransfer.files.length) { event.preventDefault(); this.attach([...event.dataTransfer.files]); } });
  }

  // Office programs put a picture of what was copied beside its text. A long text becomes a file.
  paste(event) {
    const { files, types } = event.clipboardData, text = event.clipboardData.getData('text/plain');
    if (files.length > 0 && !types.includes('text/plain')) this.attach([...files]);
    else if (text.length > LONG_PASTE && this.editing?.role !== 'assistant') this.attachments.addText('Pasted text', text.replace(/\r\n?/g, '\n'));
    else return;
    event.preventDefault();
  }

  attach(files) {
    if (this.editing?.role === 'assistant') this.say('Files go with what you ask, not with a reply.');
    else this.attachments.add(files);
  }

  // Where the cursor is, in place of what is selected.
  insert(text) {
    const field = find('composer-text');
    field.setRangeText(text, field.selectionStart, field.selectionEnd, 'end');
    field.focus();
    this.fit();
    this.keepDraft();
    this.measure();
  }

  fit() {
    const text = find('composer-text');
    text.style.height = 'auto';
    text.style.height = `${Math.min(text.scrollHeight, window.innerHeight * 0.4)}px`;
  }

  // Other models can be had, or another one is chosen.
  modelsChanged() {
    for (const view of this.views.values()) view.showTools();
    this.offerModels();
    this.measure();
  }

  measure() {
    if (this.conversation) this.window.update(this.conversation, this.editing, find('composer-text').value, this.attachments.files);
  }

  // What is half written stays with its conversation, and outlives the tab; what is written in a message's place does not.
  keepDraft() {
    if (this.conversation && !this.editing && !this.showing) drafts.set(this.conversation, find('composer-text').value, this.attachments.files);
  }

  // A notice, read out by screen readers; '' takes it away.
  say(text) {
    find('notice').textContent = text;
  }

  // The reply of the conversation that is shown.
  get running() {
    return this.replies.get(this.conversation.id);
  }

  // A conversation that gets a reply, as this page has it; undefined: it gets none.
  replying(id) {
    return this.replies.get(id)?.conversation;
  }

  // Ends the reply of a conversation that is being deleted.
  forget(id) {
    this.replies.get(id)?.controller.abort();
    drafts.forget(id, this.conversation?.id === id && isEmpty(this.conversation));
  }

  escape() {
    if (this.editing) this.endEditing();
    else this.running?.controller.abort();
  }

  async keep(conversation, how) {
    try {
      const stored = await save(conversation, how);
      if (!stored && (how || conversation === this.conversation)) this.say('The conversation is not stored: it was deleted, in another tab or with the data of this page.');
    } catch (error) {
      this.say(`The conversation is not stored: ${error?.message ?? 'the browser refuses'}.`);
    }
    if (conversation === this.conversation && this.showsOthers()) this.draw();
    await this.changed();
  }

  // Whether another tab has changed what is shown: messages were replaced as they were saved.
  showsOthers() {
    return [...this.views.values()].some((view) => view.isStale());
  }

  // ---- What is shown ----

  show(conversation) {
    this.endEditing();
    this.showing = true; // what is written is put in the place of what was, and is no draft of either
    this.conversation = conversation;
    const { text, files } = drafts.get(conversation);
    this.attachments.swap(files);
    find('composer-text').value = text;
    this.showing = false;
    this.fit();
    this.views.clear();
    this.buttons();
    this.measure();
    this.draw({ toEnd: true });
    find('composer-text').focus();
  }

  // Views of messages that were shown before stay as they are, and with them the focus.
  viewOf(message, siblings, left) {
    const actions = { edit: (m) => this.edit(m), again: (m, model) => this.again(m, model), choose: (m) => this.choose(m), more: (m) => this.more(m), drop: (m) => this.drop(m), take: (m) => this.takeIn(m), models: () => this.models.names(), others: (m) => this.askWhich(m), full: () => this.onFull() };
    const former = this.views.get(message.id);
    if (!former || former.left !== left || former.isStale()) this.views.set(message.id, new MessageView(message, actions, left));
    const view = this.views.get(message.id);
    view.showBranches(siblings);
    return view;
  }

  draw({ toEnd = false } = {}) {
    const list = find('messages');
    const following = branches(this.conversation);
    const messages = path(this.conversation);
    const left = leftOut(messages);
    const viewOf = (message) => this.viewOf(message, following.get(message.parent), left.has(message));
    const until = performance.now() + AT_ONCE_MS;
    let first = messages.length;
    const hasTime = () => messages.length - first < LEAST_AT_ONCE || performance.now() < until;
    while (first > 0 && (this.views.has(messages[first - 1].id) || hasTime())) viewOf(messages[--first]);
    const elements = messages.slice(first).map(({ id }) => this.views.get(id).element);
    this.shown.show(first, elements);
    if (messages.length === 0) list.append(el('div', { class: 'empty' }, el('h2', {}, 'What would you like to know?'),
      el('p', {}, 'Under each reply a bar shows which tokens of the prompt were reused, restored or computed.'), el('p', { id: 'only-demo' })));
    this.offerModels();
    this.toEnd = toEnd;
    if (toEnd) list.scrollTop = list.scrollHeight;
    this.drawOlder(messages.slice(0, first), viewOf);
  }

  // Where there is only the model that comes with the program, which is for trying it out.
  offerModels() {
    const place = find('only-demo');
    if (!place) return;
    place.replaceChildren(...this.models.areDemo() ? ['This server has only its demo model, which knows little. ',
      el('button', { type: 'button', class: 'quiet', onclick: () => find('show-models').click() }, 'Get a model')] : []);
  }

  // Upwards from what is there, so that what is in view stays where it is, or the end does. Browsers guess how high a
  // message is until it is near the view: hence the last frames, for the end alone.
  drawOlder(messages, viewOf) {
    const list = find('messages');
    const drawing = ++this.drawing;
    let frames = SETTLING_FRAMES;
    list.ariaBusy = String(messages.length > 0);
    const step = () => {
      if (drawing !== this.drawing) return;
      const until = performance.now() + SLICE_MS;
      const fromEnd = list.scrollHeight - list.scrollTop;
      while (messages.length > 0 && performance.now() < until) this.shown.prepend(messages.length - 1, viewOf(messages.pop()).element);
      list.scrollTop = list.scrollHeight - (this.toEnd ? 0 : fromEnd);
      if (messages.length > 0) { requestAnimationFrame(step); return; }
      list.ariaBusy = 'false';
      if (this.toEnd && --frames > 0) requestAnimationFrame(step);
    };
    // Not in the frame of what is drawn already, which is the longest.
    if (messages.length > 0 || this.toEnd) requestAnimationFrame(() => requestAnimationFrame(step));
  }

  // ---- Sending ----

  async send() {
    const { conversation, editing } = this, said = await this.said();
    if (!said) return;
    if (editing?.role === 'assistant') { this.become(editing, said); return; }
    const parent = editing ? editing.parent : conversation.leaf;
    if (parent !== null && !conversation.messages[parent]) { this.say('What this message followed was deleted. Copy the text, and leave with Escape.'); return; }
    this.attachments.take();
    find('composer-text').value = '';
    this.keepDraft();
    this.endEditing();
    add(conversation, parent, { role: 'user', at: Date.now(), ...said });
    await this.reply();
  }

  // What is written, once its files were read; undefined: nothing, one of them could not be read, or something else is
  // shown or answered by now.
  async said() {
    if (this.running || this.sending) return undefined;
    const { conversation, editing } = this, { failures } = this.attachments;
    this.sending = true;
    try { await this.attachments.ready(); } finally { this.sending = false; }
    if (conversation !== this.conversation || editing !== this.editing || this.running || failures !== this.attachments.failures) return undefined;
    const text = find('composer-text').value.trim(), files = this.attachments.all();
    return text || files.length > 0 ? { text, ...files.length && { files } } : undefined;
  }

  // What was half written comes back afterwards.
  edit(message) {
    if (message.running) { this.say('This reply is still being written.'); return; }
    if (message === this.editing) { find('composer-text').focus(); return; }
    const field = find('composer-text');
    const written = { text: field.value, files: this.attachments.files };
    if (!this.editing) this.draft = written;
    else this.changes.set(this.editing, written);
    this.editing = message;
    const { text, files } = this.changes.get(message) ?? { text: message.text, files: message.files ?? [] };
    this.attachments.swap(files);
    field.value = text;
    find('change').hidden = message.role !== 'user';
    find('send').textContent = message.role === 'user' ? 'Send' : 'Change';
    this.fit();
    this.measure();
    field.focus();
    this.say(message.role === 'user' ? 'What you send takes the message\u2019s place, in a branch of its own. Escape leaves it.' : 'What you write takes the reply\u2019s text. Escape leaves it.');
  }

  // What is half written, which is nowhere then.
  takeWritten() {
    this.endEditing();
    const field = find('composer-text'), written = { text: field.value, files: this.attachments.take() };
    field.value = '';
    this.keepDraft();
    return written;
  }

  write({ text, files }) {
    this.attachments.swap(files);
    find('composer-text').value = text;
    this.fit();
    this.keepDraft();
    this.measure();
  }

  // Without asking for a reply: those that follow stay.
  async change() {
    const { editing } = this, said = await this.said();
    if (said && editing) this.become(editing, said);
  }

  // The message says something else from now on.
  become(message, said) {
    const { conversation } = this;
    if (!conversation.messages[message.id]) { this.say('The message was deleted. Copy the text, and leave with Escape.'); return; }
    this.endEditing();
    for (const name of ['files', 'cut', 'stopped', 'error']) delete message[name];
    this.changes.delete(message);
    Object.assign(message, said, { changed: true });
    touch(message);
    nameAfter(conversation, message);
    this.redraw(conversation);
  }

  // Messages of the conversation were touched.
  redraw(conversation) {
    this.keep(conversation);
    if (conversation !== this.conversation) return;
    this.measure();
    this.draw();
    find('composer-text').focus();
  }

  // A question that was left out of what the model reads is in it again, with all that follow it, as is that of a reply.
  takeIn(message) {
    this.readAgain(message);
    this.redraw(this.conversation);
  }

  readAgain(message) {
    const messages = path(this.conversation), at = messages.indexOf(message);
    const from = messages.findLastIndex(({ role }, i) => i <= at && role === 'user');
    const again = messages.slice(Math.max(0, from)).filter(({ left }) => left);
    for (const one of again) delete one.left;
    touch(...again);
  }

  endEditing() {
    if (this.editing) {
      this.changes.delete(this.editing);
      find('composer-text').value = this.draft.text;
      this.attachments.swap(this.draft.files);
    }
    this.editing = this.draft = null;
    find('change').hidden = true;
    find('send').textContent = 'Send';
    this.fit();
    this.measure();
    this.say('');
  }

  choose(message) {
    if (this.running) return;
    const step = this.focusedStep();
    choose(this.conversation, message);
    this.measure();
    this.draw();
    if (step) this.views.get(message.id).focus(step);
    this.keep(this.conversation);
  }

  // `model`: another one than that which is chosen.
  async again(message, model) {
    if (this.running) return;
    const step = this.focusedStep();
    this.readAgain(message);
    this.conversation.leaf = message.parent;
    const replied = this.reply(model);
    if (step) this.views.get(this.conversation.leaf).focus(step);
    await replied;
  }

  // Which other model is to answer.
  askWhich(message) {
    const pick = (name) => el('button', { value: name, class: 'wide quiet' }, name);
    find('others-list').replaceChildren(...this.models.names().map(pick));
    find('others').returnValue = '';
    find('others').addEventListener('close', () => { if (find('others').returnValue) this.again(message, find('others').returnValue); }, { once: true });
    find('others').showModal();
  }

  // Continues a reply that was cut off, stopped or broken off: what it has is the beginning of what the model writes. One
  // that others follow goes on in a branch of its own.
  async more(message) {
    this.changes.delete(message);
    const { conversation } = this;
    if (this.running) return;
    if (this.editing?.id === message.id) this.endEditing();
    this.readAgain(message);
    const { id, parent, cut, stopped, error, figures, ...said } = message;
    const continued = id === conversation.leaf ? message : add(conversation, parent, said);
    for (const name of ['cut', 'stopped', 'error']) delete continued[name];
    takeMessage(conversation, continued.id);
    find('composer-text').focus();
    const model = this.models.names().includes(message.model) ? message.model : this.models.chosen();
    await this.receive(continued, requestOf(conversation, model, path(conversation)));
  }

  drop(message) {
    if (this.running || !window.confirm('Delete this message and what follows it?')) return;
    drop(this.conversation, message);
    if (this.editing && !this.conversation.messages[this.editing.id]) this.endEditing();
    if (isEmpty(this.conversation)) drafts.forget(this.conversation.id, false);
    this.keepDraft();
    this.measure();
    this.draw();
    find('composer-text').focus();
    this.keep(this.conversation);
  }

  // Which button of a message has the focus; undefined: none has.
  focusedStep() {
    return find('messages').contains(document.activeElement) ? document.activeElement.dataset.step : undefined;
  }

  async reply(model = this.models.chosen()) {
    const body = requestOf(this.conversation, model, path(this.conversation));
    await this.receive(add(this.conversation, this.conversation.leaf, { role: 'assistant', text: '' }), body);
  }

  // Streams a reply into its message, the last one of what is shown.
  async receive(message, body) {
    const { conversation } = this;
    const controller = new AbortController();
    Object.assign(message, { at: Date.now(), ...body.model && { model: body.model } });
    this.replies.set(conversation.id, { conversation, controller });
    this.buttons();
    this.draw({ toEnd: true });
    await this.keep(conversation);
    let frame = 0, kept = performance.now();
    const update = () => { frame = 0; if (conversation === this.conversation) this.follow(() => this.views.get(message.id)?.update()); };
    // Pages in the background have no frames.
    const show = () => {
      frame ||= requestAnimationFrame(update);
      if (performance.now() - kept < KEEP_EVERY_MS) return;
      kept = performance.now();
      save(conversation).catch(() => {}); // the end says so, if it fails
    };
    await stream(message, body, controller.signal, show);
    this.replies.delete(conversation.id);
    this.buttons();
    this.measure();
    const ended = this.keep(conversation);
    update();
    await ended;
    if (message.error?.status === 401) this.denied();
  }

  // Stays at the end, if that is what was in view.
  follow(work) {
    const list = find('messages');
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    work();
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  // What has the focus keeps it: the one button becomes the other.
  buttons() {
    const [shown, other] = this.running ? ['stop', 'send'] : ['send', 'stop'];
    const focused = document.activeElement === find(other);
    find(shown).hidden = false;
    find(other).hidden = true;
    if (focused) find(shown).focus();
  }
}
