// How full the model's window is: the tokens of the conversation, as its last reply has counted them, and of what is being
// written. From WARN on it says so, while there is still something to do about it.
//
// What is written is estimated. The server is asked for its tokens only where that may matter, and no more once it refuses:
// each question counts as a request of the key's.

import { countTokens } from './api.js';
import { leftOut, path, textOf } from './conversations.js';
import { find, number } from './dom.js';

const WARN = 0.85;
const ASK = 0.6; // of the window, by an estimate that is too high
const WAIT_MS = 1000; // after the last key
const AROUND = 8; // tokens that a template has around a message, about
const LETTERS = 4, FEWEST = 2; // of a token, about and at least

const parts = ['shared', 'restored', 'reused', 'computed', 'generated'];
const tokensOf = ({ figures }) => parts.reduce((sum, name) => sum + (figures[name] ?? 0), 0);

// Letters of a token, by what the last reply has counted, or else about as many as they have.
export function lettersOf(messages) {
  const last = messages.findLastIndex(({ figures }) => figures), tokens = last < 0 ? 0 : tokensOf(messages[last]);
  const letters = messages.slice(0, last + 1).reduce((sum, message) => sum + textOf(message).length, 0);
  return tokens > 0 && letters > 0 ? Math.min(6, Math.max(0.5, letters / tokens)) : LETTERS;
}

const about = (messages, letters) => messages.reduce((sum, message) => sum + textOf(message).length / letters + AROUND, 0);

// Tokens of what is shown before `editing`, or of all of it: as the last reply has counted them, and about as many as those
// behind it have. Where something was changed since, all of them are estimated. {tokens, exact}
function counted(conversation, editing) {
  const messages = path(conversation), left = leftOut(messages);
  const at = editing ? messages.findIndex(({ id }) => id === editing.id) : -1;
  const before = at < 0 ? messages : messages.slice(0, at);
  const last = before.findLastIndex((message) => message.figures && !left.has(message));
  const when = before[last]?.at ?? 0;
  if (last < 0 || before.some(({ touched }) => touched > when)) {
    const read = before.filter((message) => !left.has(message));
    return { tokens: about(read, lettersOf(before)), exact: read.length === 0 };
  }
  return { tokens: tokensOf(before[last]) + about(before.slice(last + 1), lettersOf(before)), exact: last === before.length - 1 };
}

export class WindowMeter {
  // `models`: {chosen(), window()}.
  constructor(models) {
    this.models = models;
    this.asking = new AbortController();
    this.timer = 0;
    this.refused = false;
  }

  // The conversation is another one, has another reply, or something else is being written, in place of `editing`, with
  // these files.
  update(conversation, editing, text, files) {
    this.asking.abort();
    clearTimeout(this.timer);
    const { tokens: before, exact } = counted(conversation, editing), window = this.models.window();
    const letters = files.reduce((sum, { kind, data }) => sum + (kind === 'text' ? data?.length ?? 0 : 0), text.trim() ? text.length : 0);
    const written = letters > 0 ? Math.ceil(letters / LETTERS) + AROUND : 0;
    this.show(before + written, written > 0 || !exact);
    if (window === 0 || written === 0 || this.refused || before + letters / FEWEST < ASK * window) return;
    this.timer = setTimeout(() => this.ask(before, textOf({ text, files })), WAIT_MS);
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
