// Where conversations are kept: in the browser's IndexedDB, or in memory where it has none or refuses, until the tab is
// closed. Titles have a store of their own, so that the list does not read every message.
//
// What was deleted, here or in another tab, is not saved again by a reply that still comes.

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
    // All of them or none. `isWanted` is asked with what is stored under a conversation's id.
    write: (list, isWanted) => new Promise((resolve, reject) => {
      const transaction = database.transaction([CONVERSATIONS, TITLES], 'readwrite');
      const store = transaction.objectStore(CONVERSATIONS);
      for (const one of list) {
        store.getKey(one.id).onsuccess = ({ target }) => {
          if (!isWanted(one.id, target.result !== undefined)) return;
          store.put(one);
          transaction.objectStore(TITLES).put(titleOf(one));
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
    write: async (list, isWanted) => { for (const one of list) if (isWanted(one.id, kept.has(one.id))) kept.set(one.id, structuredClone(one)); },
    remove: async (id) => { kept.delete(id); },
  };
}

// ---- Either ----

let lasting = true;
const opened = openDatabase().catch(() => { lasting = false; return openMemory(); });

const seen = new Set(); // ids of conversations that this tab has saved or loaded: one of them that is not stored was deleted

// Whether conversations outlive the tab.
export const isLasting = async () => { await opened; return lasting; };

// {id, title, changed} of all, the latest first.
export const titles = async () => (await (await opened).titles()).sort((a, b) => b.changed - a.changed);

export async function load(id) {
  const conversation = await (await opened).load(id);
  if (conversation) seen.add(id);
  return conversation;
}

export const all = async () => (await (await opened).all()).sort((a, b) => b.changed - a.changed);

export async function saveAll(conversations) {
  const now = Date.now();
  await (await opened).write(conversations.map((one) => ({ ...one, changed: now })), (id, isStored) => isStored || !seen.has(id));
  for (const { id } of conversations) seen.add(id);
}

export const save = (conversation) => saveAll([conversation]);

export async function remove(id) {
  seen.add(id);
  await (await opened).remove(id);
}
