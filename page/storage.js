// Where conversations are kept: in the browser's IndexedDB, or in memory where it has none or refuses, until the tab is
// closed. Titles have a store of their own, so that the list does not read every message.
//
// Tabs save what they show beside each other: what was deleted, here or in another tab, is not saved again by a reply that
// still comes, and messages that another tab has added stay, in a branch of their own.

const NAME = 'hearth';
const VERSION = 2; // 1 had no titles
const CONVERSATIONS = 'conversations';
const TITLES = 'titles';
const AT_ONCE = 8; // conversations that are read at once while all of them are

const titleOf = ({ id, title, changed, used, pinned }) => ({ id, title, changed, used, pinned });

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
  const begin = (...what) => {
    try { return database.transaction(...what); } catch (error) { closed = true; throw error; }
  };
  database.onclose = () => { closed = true; };
  database.onversionchange = () => { database.close(); closed = true; }; // a newer page in another tab
  return {
    titles: () => promised(begin(TITLES).objectStore(TITLES).getAll()),
    load: (id) => promised(begin(CONVERSATIONS).objectStore(CONVERSATIONS).get(id)),
    all: () => promised(begin(CONVERSATIONS).objectStore(CONVERSATIONS).getAll()),
    // The next ones behind an id: few, since nothing is saved while they are read.
    some: (after) => promised(begin(CONVERSATIONS).objectStore(CONVERSATIONS).getAll(after === undefined ? null : IDBKeyRange.lowerBound(after, true), AT_ONCE)),
    // All of them or none, but for those that were deleted: their ids.
    write: (list) => new Promise((resolve, reject) => {
      const left = [];
      const transaction = begin([CONVERSATIONS, TITLES], 'readwrite');
      const store = transaction.objectStore(CONVERSATIONS);
      const put = (one) => { store.put(one); transaction.objectStore(TITLES).put(titleOf(one)); };
      for (const one of list) {
        transaction.objectStore(TITLES).get(one.id).onsuccess = ({ target: { result: stored } }) => {
          if (wasDeleted(one.id, stored)) left.push(one.id);
          else if (isOurs(one.id, stored)) put(one);
          else store.get(one.id).onsuccess = ({ target }) => { takeOver(one, target.result); put(one); };
        };
      }
      transaction.oncomplete = () => resolve(left);
      transaction.onabort = () => reject(transaction.error);
    }),
    remove: (id) => new Promise((resolve, reject) => {
      const transaction = begin([CONVERSATIONS, TITLES], 'readwrite');
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
    some: async (after) => [...kept.values()].filter(({ id }) => after === undefined || id > after).sort((a, b) => (a.id < b.id ? -1 : 1)).slice(0, AT_ONCE),
    write: async (list) => {
      const left = list.filter(({ id }) => wasDeleted(id, kept.get(id)));
      for (const one of list) if (!left.includes(one)) kept.set(one.id, structuredClone(one));
      return left.map(({ id }) => id);
    },
    remove: async (id) => { kept.delete(id); },
  };
}

// ---- Either ----

let lasting = true;
let closed = false; // by the browser, as when the page's data are cleared: opened anew when it is wanted
let opened = openDatabase().catch(() => { lasting = false; return openMemory(); });

async function reopen() {
  closed = false;
  opened = openDatabase();
  return opened.catch((error) => { closed = true; throw error; });
}

async function using(work) {
  const stores = await (closed ? reopen() : opened);
  try {
    return await work(stores);
  } catch (error) {
    if (!closed) throw error;
    return work(await reopen());
  }
}

// Of each conversation that this tab has loaded, saved or deleted: when it was changed last, as far as this tab knows, and
// the ids of messages that are not its own.
const known = new Map();
const note = (id, changed, theirs = known.get(id)?.theirs ?? new Set()) => known.set(id, { changed, theirs });

const wasDeleted = (id, stored) => !stored && known.has(id);
const isOurs = (id, stored) => !stored || known.get(id)?.changed === stored.changed;

// What people say about a conversation, and when they said it last (`about`): of two tabs the later one holds.
const ABOUT = ['title', 'named', 'pinned', 'about'];

// Another tab has saved the conversation since: its messages are as it says.
function takeOver(conversation, stored) {
  const theirs = known.get(conversation.id)?.theirs ?? new Set();
  for (const [id, message] of Object.entries(stored.messages)) {
    const shown = conversation.messages[id];
    const later = (message.touched ?? 0) - (shown?.touched ?? 0); // touch() in conversations.js
    if (shown && (later < 0 || (later === 0 && !theirs.has(id)))) continue;
    for (const name of Object.keys(shown ?? {})) delete shown[name];
    conversation.messages[id] = Object.assign(shown ?? {}, message); // who shows it goes on with the same object
    theirs.add(id);
  }
  leaveOut(conversation, stored);
  if ((stored.about ?? 0) > (conversation.about ?? 0)) for (const name of ABOUT) conversation[name] = stored[name];
  note(conversation.id, stored.changed, theirs);
}

// What was deleted in either tab is in neither. What follows it in the other one follows what it followed.
function leaveOut(conversation, stored) {
  const gone = new Set([...conversation.gone ?? [], ...stored.gone ?? []]);
  const former = { ...stored.messages, ...conversation.messages };
  const left = (id) => { while (gone.has(id)) id = former[id]?.parent ?? null; return id; };
  conversation.leaf = left(conversation.leaf);
  for (const id of gone) delete conversation.messages[id];
  for (const message of Object.values(conversation.messages)) message.parent = left(message.parent);
  if (gone.size > 0) conversation.gone = [...gone];
}

// A message that another tab may have made goes on in this one: its text is this tab's from now on.
export const takeMessage = (conversation, id) => known.get(conversation.id)?.theirs.delete(id);

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
export const isLasting = async () => { await opened.catch(() => {}); return lasting; };

// Naming one does not make it the latest.
const usedAt = ({ used, changed }) => used ?? changed;

// {id, title, changed, used, pinned} of all, the latest first.
export const titles = async () => (await using((stores) => stores.titles())).sort((a, b) => usedAt(b) - usedAt(a));

export async function load(id) {
  const conversation = await using((stores) => stores.load(id));
  if (!conversation) return undefined;
  note(id, conversation.changed, new Set(Object.keys(conversation.messages)));
  endReplies(conversation);
  return conversation;
}

export const all = async () => (await using((stores) => stores.all())).sort((a, b) => usedAt(b) - usedAt(a));

// Gives one after the other, until `take` returns false.
export async function eachConversation(take) {
  for (let some = await using((stores) => stores.some()); some.length > 0; some = await using((stores) => stores.some(some.at(-1).id))) {
    if (!some.every(take)) return;
  }
}

// `named`: they were only named or pinned, and are no later than before.
export async function saveAll(conversations, { named = false } = {}) {
  const now = Date.now();
  for (const one of conversations) {
    if (named) one.used ??= known.get(one.id)?.changed ?? one.changed;
    else delete one.used;
  }
  const written = conversations.map((one) => ({ ...one, changed: now }));
  const left = await using((stores) => stores.write(written));
  conversations.forEach((one, i) => { for (const name of ABOUT) if (written[i][name] !== undefined) one[name] = written[i][name]; }); // another tab may know better
  for (const { id } of conversations) if (!left.includes(id)) note(id, now);
  return left;
}

// Whether it is stored: not if it was deleted.
export const save = async (conversation, how) => (await saveAll([conversation], how)).length === 0;

export async function remove(id) {
  note(id, 0);
  await using((stores) => stores.remove(id));
}
