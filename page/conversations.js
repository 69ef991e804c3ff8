// Conversations, kept in the browser (IndexedDB): trees of messages, since an edited message or another reply begins a
// branch beside the former one. What is shown is the path from the root to `leaf`.

const NAME = 'hearth';
const STORE = 'conversations';

let database;
const open = () => (database ??= new Promise((resolve, reject) => {
  const asked = indexedDB.open(NAME, 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore(STORE, { keyPath: 'id' });
  asked.onsuccess = () => resolve(asked.result);
  asked.onerror = () => reject(asked.error);
}));

async function inStore(mode, work) {
  const transaction = (await open()).transaction(STORE, mode);
  const asked = work(transaction.objectStore(STORE));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(asked?.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

const name = () => (crypto.randomUUID ? crypto.randomUUID() : `${Date.now()}-${Math.random().toString(36).slice(2)}`);

export const newConversation = () => ({ id: name(), title: 'New conversation', changed: Date.now(), system: '', sampling: {}, messages: {}, leaf: null });

export const all = async () => (await inStore('readonly', (store) => store.getAll())).sort((a, b) => b.changed - a.changed);
export const save = (conversation) => inStore('readwrite', (store) => store.put({ ...conversation, changed: Date.now() }));
export const remove = (id) => inStore('readwrite', (store) => store.delete(id));

// ---- The tree ----

export function add(conversation, parent, message) {
  const added = { id: name(), parent, ...message };
  conversation.messages[added.id] = added;
  conversation.leaf = added.id;
  if (message.role === 'user' && parent === null && message.text) conversation.title = message.text.replace(/\s+/g, ' ').slice(0, 60);
  return added;
}

// From the first message to the leaf.
export function path(conversation) {
  const messages = [];
  for (let id = conversation.leaf; id !== null && conversation.messages[id]; id = conversation.messages[id].parent) messages.unshift(conversation.messages[id]);
  return messages;
}

// The branches that begin where this message does, itself among them, in the order they were made.
export const siblings = (conversation, message) => Object.values(conversation.messages).filter(({ parent }) => parent === message.parent);

// Shows the branch of a message, to the end of its newest reply.
export function choose(conversation, message) {
  for (let leaf = message; leaf; leaf = Object.values(conversation.messages).filter(({ parent }) => parent === leaf.id).at(-1)) conversation.leaf = leaf.id;
}

// ---- As the API has them ----

function contentOf({ text, files }) {
  if (!files?.length) return text;
  const parts = files.map(({ kind, data, format }) => (kind === 'audio' ? { type: 'input_audio', input_audio: { data: data.replace(/^[^,]*,/, ''), format } }
    : { type: 'image_url', image_url: { url: data } }));
  return text ? [...parts, { type: 'text', text }] : parts;
}

export function requestOf(conversation, model, messages) {
  const list = messages.filter(({ error, text }) => !error || text).map((message) => ({ role: message.role, content: contentOf(message) }));
  if (conversation.system) list.unshift({ role: 'system', content: conversation.system });
  return { ...model && { model }, messages: list, ...conversation.sampling };
}

// ---- Files ----

export const exportAll = async () => JSON.stringify({ hearth_conversations: 1, conversations: await all() }, null, 1);

function isConversation(one) {
  return typeof one?.id === 'string' && typeof one.title === 'string' && typeof one.messages === 'object' && one.messages !== null
    && Object.values(one.messages).every((m) => typeof m?.id === 'string' && ['user', 'assistant'].includes(m.role) && typeof m.text === 'string');
}

// How many came; throws what is wrong with the file. They get new names, so that nothing is replaced.
export async function importAll(text) {
  let file;
  try { file = JSON.parse(text); } catch { throw new Error('This file is no JSON: choose one that was exported here.'); }
  const list = file?.conversations;
  if (!Array.isArray(list) || !list.every(isConversation)) throw new Error('This file holds no conversations: choose one that was exported here.');
  for (const one of list) await save({ ...newConversation(), ...one, id: name() });
  return list.length;
}
