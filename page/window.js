// How full the model's window is: the tokens of the conversation, as its last reply has counted them, and of what is being
// written. From WARN on it says so, while there is still something to do about it.
//
// What is written is estimated. The server is asked for its tokens only where that may matter, and no more once it refuses:
// each question counts as a request of the key's.

import { countTokens } from './api.js';
import { path, textOf } from './conversations.js';
import { find, number } from './dom.js';

const WARN = 0.85;
const ASK = 0.6; // of the window, by an estimate that is too high
const WAIT_MS = 1000; // after the last key
const AROUND = 8; // tokens that a template has around a message, about
const LETTERS = 4, FEWEST = 2; // of a token, about and at least

// Of what is shown before `editing`, or of all of it, up to its last reply; 0: no reply has counted them.
function counted(conversation, editing) {
  const messages = path(conversation);
  const before = editing ? messages.slice(0, messages.findIndex(({ id }) => id === editing.id)) : messages;
  const last = before.findLast((message) => message.figures);
  const tokens = ['shared', 'restored', 'reused', 'computed', 'generated'].reduce((sum, name) => sum + (last?.figures[name] ?? 0), 0);
  const since = before.filter(({ left }) => left > last?.at).reduce((sum, message) => sum + textOf(message).length / LETTERS + AROUND, 0);
  return Math.max(0, tokens - since); // those that were left out since
}

export class WindowMeter {
  // `models`: {chosen(), window()}.
  constructor(models) {
    this.models = models;
    this.asking = new AbortController();
    this.timer = 0;
    this.refused = false;
  }

  // The conversation is another one, has another reply, or something else is being written, in place of `editing`.
  update(conversation, editing, text) {
    this.asking.abort();
    clearTimeout(this.timer);
    const before = counted(conversation, editing), window = this.models.window();
    const written = text.trim() ? Math.ceil(text.length / LETTERS) + AROUND : 0;
    this.show(before + written, written > 0 || path(conversation).some(({ left }) => left));
    if (window === 0 || written === 0 || this.refused || before + text.length / FEWEST < ASK * window) return;
    this.timer = setTimeout(() => this.ask(before, text), WAIT_MS);
  }

  async ask(before, text) {
    this.asking = new AbortController();
    const { signal } = this.asking;
    try {
      const n = await countTokens(this.models.chosen(), text, signal);
      if (!signal.aborted) this.show(before + n + AROUND);
    } catch (error) {
      if (signal.aborted) return;
      if ([400, 413].includes(error.status)) this.show(Math.max(this.models.window(), before + text.length / LETTERS), true); // it is too long to be counted
      this.refused = [401, 403, 429].includes(error.status);
    }
  }

  show(tokens, about = false) {
    const window = this.models.window();
    const known = window > 0 && tokens > 0;
    const part = known ? tokens / window : 0;
    const warning = part >= 1 ? 'The window is full' : part >= WARN ? 'The window is nearly full' : '';
    find('window').hidden = !known;
    find('window-more').hidden = part < WARN;
    find('window').classList.toggle('warns', part >= WARN);
    if (find('window-warning').textContent !== warning) find('window-warning').textContent = warning; // read out once
    if (!known) return;
    find('window-meter').value = Math.min(1, part);
    find('window-text').textContent = `${about ? 'about ' : ''}${number(Math.round(tokens))} of ${number(window)} tokens${warning && `: ${warning.toLowerCase()}`}`;
  }
}
