// Where conversations are kept: in the browser's IndexedDB, or in memory where it has none or refuses, until the tab is
// closed. Titles have a store of their own, so that the list does not read every message.
//
// Tabs save what they show beside each other: what was deleted, here or in another tab, is not saved again by a reply that
// still comes, and messages that another tab has added stay, in a branch of their own.

const NAME = 'hearth';
const VERSION = 2; // 1 had no titles
const CONVERSATIONS = 'conversations';
const TITLES = 'titles';

const titleOf = ({ id, title, changed }) => ({ id, title, changed });

// ---- IndexedDB ----

function upgrade({ result: database, transaction }, { oldVersion }) {
  if (oldVersion < 1) database.createObjectStore(CONVERSATIONS, { keyPath: 'id' });
  const titles = database.createObjectStore(TITLES, { keyPath: 'id' });
  transaction.objectStore(CONVERSATIONS).openCursor().onsuccess = ({ target: { result: cursor } }) => {
    if (!cursor) return;
    titles.put(titleOf(cursor.value));
    cursor.continue();
  };
}

const promised = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

async function openDatabase() {
  const request = indexedDB.open(NAME, VERSION);
  request.onupgradeneeded = (event) => upgrade(request, event);
  const blocked = new Promise((_, reject) => { request.onblocked = () => reject(new Error('a former page in another tab holds them')); });
  const database = await Promise.race([promised(request), blocked]);
  database.onversionchange = () => database.close(); // a newer page in another tab
  return {
    titles: () => promised(database.transaction(TITLES).objectStore(TITLES).getAll()),
    load: (id) => promised(database.transaction(CONVERSATIONS).objectStore(CONVERSATIONS).get(id)),
    all: () => promised(database.transaction(CONVERSATIONS).objectStore(CONVERSATIONS).getAll()),
    // All of them or none.
    write: (list) => new Promise((resolve, reject) => {
      const transaction = database.transaction([CONVERSATIONS, TITLES], 'readwrite');
      const store = transaction.objectStore(CONVERSATIONS);
      const put = (one) => { store.put(one); transaction.objectStore(TITLES).put(titleOf(one)); };
      for (const one of list) {
        transaction.objectStore(TITLES).get(one.id).onsuccess = ({ target: { result: stored } }) => {
          if (wasDeleted(one.id, stored)) return;
          if (isOurs(one.id, stored)) put(one);
          else store.get(one.id).onsuccess = ({ target }) => { takeOver(one, target.result); put(one); };
        };
      }
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    }),
    remove: (id) => new Promise((resolve, reject) => {
      const transaction = database.transaction([CONVERSATIONS, TITLES], 'readwrite');
      for (const name of [CONVERSATIONS, TITLES]) transaction.objectStore(name).delete(id);
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    }),
  };
}

// ---- Memory ----

function openMemory() {
  const kept = new Map();
  return {
    titles: async () => [...kept.values()].map(titleOf),
    load: async (id) => kept.get(id),
    all: async () => [...kept.values()],
    write: async (list) => { for (const one of list) if (!wasDeleted(one.id, kept.get(one.id))) kept.set(one.id, structuredClone(one)); },
    remove: async (id) => { kept.delete(id); },
  };
}

// ---- Either ----

let lasting = true;
const opened = openDatabase().catch(() => { lasting = false; return openMemory(); });

// Of each conversation that this tab has loaded, saved or deleted: when it was changed last, as far as this tab knows, and
// the ids of messages that are not its own.
const known = new Map();
const note = (id, changed, theirs = known.get(id)?.theirs ?? new Set()) => known.set(id, { changed, theirs });

const wasDeleted = (id, stored) => !stored && known.has(id);
const isOurs = (id, stored) => !stored || known.get(id)?.changed === stored.changed;

// Another tab has saved the conversation since: its messages are as it says.
function takeOver(conversation, stored) {
  const theirs = known.get(conversation.id)?.theirs ?? new Set();
  for (const [id, message] of Object.entries(stored.messages)) {
    if (conversation.messages[id] && !theirs.has(id)) continue;
    conversation.messages[id] = message;
    theirs.add(id);
  }
  note(conversation.id, stored.changed, theirs);
}

// A page that was left while a reply came has no end of it.
function endReplies(conversation) {
  for (const message of Object.values(conversation.messages)) {
    if (!message.running) continue;
    delete message.running;
    message.progress = null;
    message.stopped = true;
  }
}

// Whether conversations outlive the tab.
export const isLasting = async () => { await opened; return lasting; };

// {id, title, changed} of all, the latest first.
export const titles = async () => (await (await opened).titles()).sort((a, b) => b.changed - a.changed);

export async function load(id) {
  const conversation = await (await opened).load(id);
  if (!conversation) return undefined;
  note(id, conversation.changed, new Set(Object.keys(conversation.messages)));
  endReplies(conversation);
  return conversation;
}

export const all = async () => (await (await opened).all()).sort((a, b) => b.changed - a.changed);

export async function saveAll(conversations) {
  const now = Date.now();
  await (await opened).write(conversations.map((one) => ({ ...one, changed: now })));
  for (const { id } of conversations) note(id, now);
}

export const save = (conversation) => saveAll([conversation]);

export async function remove(id) {
  note(id, 0);
  await (await opened).remove(id);
}
