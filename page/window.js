// How full the model's window is: the tokens of the conversation, as its last reply has counted them, and of what is being
// written. From WARN on it says so, while there is still something to do about it.

import { countTokens } from './api.js';
import { path } from './conversations.js';
import { find, number } from './dom.js';

const WARN = 0.85;
const WAIT_MS = 300; // after the last key: so often at most the server is asked
const AROUND = 8; // tokens that a template has around a message, about

// Of what is shown, up to its last reply; null: no reply has counted them.
function counted(conversation) {
  const figures = path(conversation).findLast((message) => message.figures)?.figures;
  return figures ? ['shared', 'restored', 'reused', 'computed', 'generated'].reduce((sum, name) => sum + (figures[name] ?? 0), 0) : null;
}

export class WindowMeter {
  // `models`: {chosen(), window()}.
  constructor(models) {
    this.models = models;
    this.asking = new AbortController();
    this.timer = 0;
  }

  // The conversation is another one, has another reply, or something else is being written.
  update(conversation, text) {
    this.asking.abort();
    clearTimeout(this.timer);
    const before = counted(conversation) ?? 0;
    if (!text.trim()) { this.show(before); return; }
    this.timer = setTimeout(async () => {
      this.asking = new AbortController();
      const { signal } = this.asking;
      const n = await countTokens(this.models.chosen(), text, signal).catch(() => null);
      if (!signal.aborted) this.show(n === null ? before : before + n + AROUND);
    }, WAIT_MS);
  }

  show(tokens) {
    const window = this.models.window();
    const known = window > 0 && tokens > 0;
    const part = known ? tokens / window : 0;
    find('window').hidden = !known;
    find('window').classList.toggle('warns', part >= WARN);
    if (!known) return;
    find('window-meter').value = Math.min(1, part);
    find('window-text').textContent = `${number(tokens)} of ${number(window)} tokens${part >= 1 ? ': the window is full' : part >= WARN ? ': the window is nearly full' : ''}`;
  }
}
