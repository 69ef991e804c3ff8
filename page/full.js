// What to do about a window that is nearly full: leave out the oldest turns, go on in a new conversation with a summary, or
// enlarge the window.

import { adviceFor, chat as ask } from './api.js';
import { add, isEmpty, leftOut, newConversation, path, requestOf, textOf, touch, turnsOf } from './conversations.js';
import { find, number } from './dom.js';
import { save } from './storage.js';
import { lettersOf } from './window.js';

const KEPT = 0.5; // of the window, that the turns which stay may have
const SUMMARY_TOKENS = 1000, SUMMARY_PART = 0.25; // at most, and of the window
const MEDIUM = 300; // tokens of an image or a sound, about
const QUESTION = 'Summarise what we have said so far, so that we can go on from the summary alone: what I want, what is decided, names, numbers and code that we still need, and what is open.';
const ASKED = 'What have we said so far?';

// The turns that the model reads, and how many tokens they have, about.
function readTurns(conversation) {
  const shown = path(conversation), left = leftOut(shown), messages = shown.filter((message) => !left.has(message));
  const letters = lettersOf(messages);
  const size = (turn) => turn.reduce((sum, message) => sum + textOf(message).length / letters + MEDIUM * (message.files ?? []).filter(({ kind }) => kind !== 'text').length, 0);
  return turnsOf(messages).map((turn) => ({ turn, size: size(turn) }));
}

// The first turns, as many as have to go so that the others have at most so many tokens; never the last one.
function oldest(turns, tokens) {
  let rest = turns.reduce((sum, { size }) => sum + size, 0), n = 0;
  for (; n < turns.length - 1 && rest > tokens; n++) rest -= turns[n].size;
  return turns.slice(0, n).flatMap(({ turn }) => turn);
}

export class FullDialog {
  // `show(conversation)` shows another one.
  constructor(chat, models, show) {
    Object.assign(this, { chat, models, show });
    this.asking = null; // ends the summary that is being written
    find('window-more').addEventListener('click', () => this.open());
    find('full-leave').addEventListener('click', () => this.leaveOut());
    find('full-summary').addEventListener('click', () => this.summarise());
    find('full').addEventListener('close', () => this.asking?.abort());
  }

  // Those that are left out where somebody says so: at least one turn, if there are several.
  leaving() {
    const turns = readTurns(this.chat.conversation), all = turns.reduce((sum, { size }) => sum + size, 0);
    return oldest(turns, Math.min(KEPT * this.models.window(), all - 1));
  }

  open() {
    const window = this.models.window(), trained = this.models.trained(), gone = this.leaving().length;
    find('full-leave-text').textContent = gone === 0 ? 'There is only one turn that the model reads.'
      : `The first ${gone === 1 ? 'message stays' : `${number(gone)} messages stay`} here, folded, and the model reads ${gone === 1 ? 'it' : 'them'} no more.`;
    this.tell('');
    this.enable();
    const larger = Math.min(2 * window, trained || 2 * window);
    find('full-line').textContent = `--set context_window=${larger}`;
    find('full-larger').hidden = larger <= window;
    find('full-largest').hidden = larger > window;
    find('full').showModal();
  }

  enable() {
    const busy = Boolean(this.chat.running || this.asking);
    find('full-leave').disabled = busy || this.leaving().length === 0;
    find('full-summary').disabled = busy || isEmpty(this.chat.conversation);
  }

  tell(text) {
    find('full-note').textContent = text;
  }

  leaveOut() {
    const { conversation } = this.chat, gone = this.leaving();
    for (const message of gone) message.left = true;
    touch(...gone);
    find('full').close();
    this.chat.redraw(conversation);
  }

  // The request has no more than fits, with room for the summary, and not a last question that did not fit.
  bodyOf(conversation) {
    const window = this.models.window(), most = Math.floor(Math.min(SUMMARY_TOKENS, SUMMARY_PART * window));
    const turns = readTurns(conversation);
    const [failed] = turns.at(-1)?.turn.at(-1)?.error?.code === 'context_length_exceeded' ? turns.pop().turn : [];
    const without = new Set(oldest(turns, window - 2 * most));
    const read = turns.flatMap(({ turn }) => turn).filter((message) => !without.has(message));
    const question = { role: 'user', text: QUESTION };
    return { failed, missing: without.size, body: { ...requestOf(conversation, this.models.chosen(), [...read, question]), max_tokens: most, enable_thinking: false } };
  }

  async summarise() {
    const { conversation } = this.chat, { failed, missing, body } = this.bodyOf(conversation);
    this.asking = new AbortController();
    const { signal } = this.asking;
    this.enable();
    find('full-cancel').focus();
    find('full-note').ariaLive = 'off'; // it changes with each token
    this.tell('The model reads the conversation …');
    let text = '';
    try {
      for await (const { choices } of ask(body, signal)) {
        text += choices?.[0]?.delta?.content ?? '';
        if (text) this.tell(`The model writes: ${text.slice(-300)}`);
        if (choices?.[0]?.finish_reason === 'length' && text) text += ' … (The summary ends here.)';
      }
      if (!text.trim()) throw new Error('The model wrote nothing.');
    } catch (error) {
      find('full-note').ariaLive = 'polite';
      this.asking = null;
      if (!signal.aborted) this.tell(`There is no summary: ${error.message} ${adviceFor(error)}`);
      if (find('full').open) this.enable();
      return;
    }
    this.asking = null;
    find('full-note').ariaLive = 'polite';
    if (!signal.aborted) await this.begin(conversation, text.trim(), failed, missing);
  }

  // A turn in which the model says it: templates want questions and replies in turn. What was being written goes with it, or
  // else the question that did not fit.
  async begin(former, summary, failed, missing) {
    const { system, sampling, reasoning } = former;
    const conversation = { ...newConversation(), system, sampling: { ...sampling }, reasoning, title: `${former.title.slice(0, 180)} (continued)`, named: true };
    const at = Date.now(), model = this.models.chosen();
    add(conversation, null, { role: 'user', text: ASKED, at });
    add(conversation, conversation.leaf, { role: 'assistant', text: summary, at, ...model && { model } });
    await save(conversation).catch(() => {}); // the next message says so, if it fails again
    const written = this.chat.takeWritten();
    find('full').close();
    this.show(conversation);
    this.chat.write(written.text || written.files.length > 0 || !failed ? written : { text: failed.text, files: failed.files ?? [] });
    if (missing > 0) this.chat.say(`The summary is not of the first ${missing === 1 ? 'message' : `${number(missing)} messages`}: they do not fit into the window beside the others.`);
  }
}
