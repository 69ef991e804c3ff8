// What is half written in each conversation, and in one that has no message yet, with its files. It is kept in memory, and
// by the browser for the next time: the MOST conversations that were written in last, each with at most LONGEST characters,
// and texts alone of its files.

import { isEmpty } from './conversations.js';
import { textStorage } from './texts.js';

const NAME = 'hearth.drafts';
const MOST = 50;
const LONGEST = 100_000;
const KEEP_MS = 400; // after the last key
const area = textStorage('localStorage');

const NOTHING = { text: '', files: [] };
const isText = (value) => typeof value === 'string';
const filesOf = (list) => (Array.isArray(list) ? list.filter(({ name, data } = {}) => isText(name) && isText(data)).map(({ name, data }) => ({ kind: 'text', name, data })) : []);

// What cannot be read is nothing.
function read() {
  try {
    const list = JSON.parse(area.getItem(NAME) ?? '[]').filter((one) => Array.isArray(one) && isText(one[0]) && isText(one[1]));
    return list.map(([name, text, files]) => [name, { text, files: filesOf(files) }]);
  } catch {
    return [];
  }
}

const isShort = ({ text, files }) => files.reduce((sum, { data }) => sum + data.length, text.length) <= LONGEST;

const written = new Map(read()); // by name, the latest last
const changed = new Set(); // names that this tab has to tell the browser: what others keep stays
let timer = 0;

function keep() {
  clearTimeout(timer);
  timer = 0;
  const kept = new Map(read());
  for (const name of changed) {
    kept.delete(name);
    const { text, files } = written.get(name) ?? NOTHING, half = { text, files: files.filter(({ kind, data }) => kind === 'text' && data !== null) };
    if ((half.text || half.files.length > 0) && isShort(half)) kept.set(name, half);
  }
  changed.clear();
  const list = [...kept].slice(-MOST).map(([name, { text, files }]) => [name, text, ...files.length ? [files] : []]);
  try {
    if (list.length > 0) area.setItem(NAME, JSON.stringify(list));
    else area.removeItem(NAME);
  } catch { /* the browser has no room: they are lost with the tab */ }
}
window.addEventListener('pagehide', () => { if (timer) keep(); });

// A conversation without messages is nowhere else, and is another one after a reload.
const nameOf = (conversation) => (isEmpty(conversation) ? '' : conversation.id);

function set(name, text, files) {
  const before = written.get(name) ?? NOTHING;
  if (text === before.text && files.length === 0 && before.files.length === 0) return;
  written.delete(name);
  if (text.trim() || files.length > 0) written.set(name, { text, files: [...files] });
  changed.add(name);
  timer ||= setTimeout(keep, KEEP_MS);
}

export const drafts = {
  // Whether there is one for a conversation without messages.
  ofNew: () => written.has(''),
  get: (conversation) => written.get(nameOf(conversation)) ?? NOTHING,
  set: (conversation, text, files) => set(nameOf(conversation), text, files),
  // Of a conversation that is deleted; `empty`: it had no messages.
  forget: (id, empty) => set(empty ? '' : id, '', []),
};
