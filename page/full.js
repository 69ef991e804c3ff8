// What to do about a window that is nearly full: leave out the oldest turns, go on in a new conversation with a summary, or
// enlarge the window.

import { adviceFor, chat as ask } from './api.js';
import { add, isEmpty, newConversation, path, requestOf, textOf, turnsOf } from './conversations.js';
import { find, number } from './dom.js';
import { save } from './storage.js';

const KEPT = 0.5; // of the window, that the turns which stay may have
const SUMMARY_TOKENS = 600, SUMMARY_PART = 0.25; // at most, and of the window
const LETTERS = 3; // of a token, at least, as far as it matters here
const QUESTION = 'Summarise what we have said so far, so that we can go on from the summary alone: what I want, what is decided, names, numbers and code that we still need, and what is open.';
const ASKED = 'What have we said so far?';

const size = (messages) => messages.reduce((sum, message) => sum + textOf(message).length / LETTERS, 0);

// The first turns, as many as have to go so that the others have at most so many tokens; never the last one.
function oldest(conversation, tokens) {
  const turns = turnsOf(conversation).filter(([message]) => !message.left);
  const gone = [];
  while (turns.length > 1 && size(turns.flat()) > tokens) gone.push(turns.shift());
  return gone.flat();
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

  open() {
    const window = this.models.window(), trained = this.models.trained();
    const gone = oldest(this.chat.conversation, KEPT * window);
    find('full-leave').disabled = gone.length === 0 || Boolean(this.chat.running);
    find('full-leave-text').textContent = gone.length === 0 ? 'There is only one turn.'
      : `The first ${gone.length === 1 ? 'message stays' : `${number(gone.length)} messages stay`} here, folded, and the model reads ${gone.length === 1 ? 'it' : 'them'} no more.`;
    find('full-summary').disabled = isEmpty(this.chat.conversation) || Boolean(this.chat.running);
    this.tell('');
    const larger = Math.min(2 * window, trained || 2 * window);
    find('full-line').textContent = `--set context_window=${larger}`;
    find('full-larger').hidden = larger <= window;
    find('full-largest').hidden = larger > window;
    find('full').showModal();
  }

  tell(text) {
    find('full-note').textContent = text;
  }

  leaveOut() {
    const { conversation } = this.chat;
    for (const message of oldest(conversation, KEPT * this.models.window())) message.left = Date.now();
    find('full').close();
    this.chat.redraw(conversation);
  }

  // The request has no more than fits, with room for the summary.
  async summarise() {
    const { conversation } = this.chat, window = this.models.window();
    const most = Math.floor(Math.min(SUMMARY_TOKENS, SUMMARY_PART * window));
    const without = new Set(oldest(conversation, window - 2 * most));
    const body = requestOf(conversation, this.models.chosen(), [...path(conversation).filter((message) => !without.has(message)), { role: 'user', text: QUESTION }]);
    this.asking = new AbortController();
    const { signal } = this.asking;
    find('full-leave').disabled = find('full-summary').disabled = true;
    this.tell('The model reads the conversation …');
    try {
      let text = '';
      for await (const { choices } of ask({ ...body, max_tokens: most, enable_thinking: false }, signal)) {
        text += choices?.[0]?.delta?.content ?? '';
        if (text) this.tell(`The model writes: ${text.slice(-300)}`);
      }
      if (!text.trim()) throw new Error('The model wrote nothing.');
      await this.begin(conversation, text.trim());
    } catch (error) {
      if (!signal.aborted) this.tell(`There is no summary: ${error.message} ${adviceFor(error)}`);
      find('full-leave').disabled = find('full-summary').disabled = false;
    }
  }

  // A turn in which the model says it: templates want questions and replies in turn.
  async begin(former, summary) {
    const { system, sampling, reasoning } = former;
    const conversation = { ...newConversation(), system, sampling: { ...sampling }, reasoning, title: `${former.title.slice(0, 180)} (continued)`, named: true };
    const at = Date.now(), model = this.models.chosen();
    add(conversation, null, { role: 'user', text: ASKED, at });
    add(conversation, conversation.leaf, { role: 'assistant', text: summary, at, ...model && { model } });
    await save(conversation);
    find('full').close();
    this.show(conversation);
  }
}
