// What is half written in each conversation, and in one that has no message yet. It is kept in memory, and by the browser
// for the next time: the MOST conversations that were written in last, each with at most LONGEST characters.

import { isEmpty } from './conversations.js';
import { textStorage } from './texts.js';

const NAME = 'hearth.drafts';
const MOST = 50;
const LONGEST = 100_000;
const KEEP_MS = 400; // after the last key
const area = textStorage('localStorage');

// What cannot be read is nothing.
function read() {
  try {
    const list = JSON.parse(area.getItem(NAME) ?? '[]');
    return list.filter((one) => Array.isArray(one) && one.length === 2 && one.every((part) => typeof part === 'string'));
  } catch {
    return [];
  }
}

const written = new Map(read()); // by name, the latest last
const changed = new Set(); // names that this tab has to tell the browser: what others keep stays
let timer = 0;

function keep() {
  clearTimeout(timer);
  timer = 0;
  const kept = new Map(read());
  for (const name of changed) {
    kept.delete(name);
    if (written.has(name) && written.get(name).length <= LONGEST) kept.set(name, written.get(name));
  }
  changed.clear();
  const list = [...kept].slice(-MOST);
  try {
    if (list.length > 0) area.setItem(NAME, JSON.stringify(list));
    else area.removeItem(NAME);
  } catch { /* the browser has no room: they are lost with the tab */ }
}
window.addEventListener('pagehide', () => { if (timer) keep(); });

// A conversation without messages is nowhere else, and is another one after a reload.
const nameOf = (conversation) => (isEmpty(conversation) ? '' : conversation.id);

function set(name, text) {
  if (text === (written.get(name) ?? '')) return;
  written.delete(name);
  if (text.trim()) written.set(name, text);
  changed.add(name);
  timer ||= setTimeout(keep, KEEP_MS);
}

export const drafts = {
  ofNew: () => written.get('') ?? '',
  get: (conversation) => written.get(nameOf(conversation)) ?? '',
  set: (conversation, text) => set(nameOf(conversation), text),
  // Of a conversation that is deleted; `empty`: it had no messages.
  forget: (id, empty) => set(empty ? '' : id, ''),
};
