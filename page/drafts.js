// What is half written in each conversation, and in one that has no message yet, kept by the browser. Those that were written in last are kept, and no more
// than MOST, each with at most LONGEST characters.

import { isEmpty } from './conversations.js';
import { textStorage } from './texts.js';

const NAME = 'hearth.drafts';
const MOST = 50;
const LONGEST = 100_000;
const area = textStorage('localStorage');

// [id, text], the latest last. What cannot be read is nothing.
function read() {
  try {
    const list = JSON.parse(area.getItem(NAME) ?? '[]');
    return list.filter((one) => Array.isArray(one) && one.length === 2 && one.every((part) => typeof part === 'string'));
  } catch {
    return [];
  }
}

// A conversation without messages is nowhere else, and is another one after a reload.
const nameOf = (conversation) => (isEmpty(conversation) ? '' : conversation.id);

export const drafts = {
  ofNew: () => drafts.get({ messages: {} }),
  get: (conversation) => read().find(([other]) => other === nameOf(conversation))?.[1] ?? '',
  set(conversation, text) {
    const id = nameOf(conversation);
    const others = read().filter(([other]) => other !== id);
    const list = text.trim() && text.length <= LONGEST ? [...others, [id, text]] : others;
    try {
      if (list.length > 0) area.setItem(NAME, JSON.stringify(list.slice(-MOST)));
      else area.removeItem(NAME);
    } catch { /* the browser has no room: it is lost with the tab */ }
  },
};
