// Wires the page: the list of conversations, the views, settings and the API key.

import { adviceFor, getKey, setKey } from './api.js';
import { Chat } from './chat.js';
import { exportAll, importAll } from './conversation_files.js';
import { isEmpty, newConversation, samplingNames } from './conversations.js';
import { el, find } from './dom.js';
import { drafts } from './drafts.js';
import { Live } from './live.js';
import { Models } from './models.js';
import { morph } from './morph.js';
import { isLasting, load, remove, titles } from './storage.js';

const models = new Models(() => chat.measure());
const live = new Live(askForKey);
const chat = new Chat(models, drawList, askForKey);

// ---- Conversations ----

async function drawList() {
  let stored;
  try { stored = await titles(); } catch { return; } // the list stays as it is
  const shown = chat.conversation && !stored.some(({ id }) => id === chat.conversation.id) ? [chat.conversation, ...stored] : stored;
  morph(find('conversations'), shown.map(({ id, title }) => el('li', { 'data-key': id },
    el('button', { class: 'quiet title', 'data-does': 'show', 'aria-current': id === chat.conversation?.id ? 'true' : null }, title),
    el('button', { class: 'quiet', 'data-does': 'drop', 'aria-label': `Delete ${title}`, title: 'Delete' }, '×'))));
}

function show(conversation) {
  chat.show(conversation);
  drawList();
  view('chat');
  toggleMenu(false);
}

const why = (error) => error?.message ?? 'the browser refuses';
let unread = ''; // why stored conversations could not be read

// Notices are in the chat's view, beside the list of conversations where there is room for both.
function tell(text) {
  view('chat');
  toggleMenu(false);
  chat.say(text);
}

// The latest, or a new one, as where something is half written for one.
async function showLatest() {
  let latest;
  try {
    const [{ id } = {}] = await titles();
    latest = id && !drafts.ofNew() && (chat.replying(id) ?? await load(id));
    unread = '';
    if (latest) show(latest);
  } catch (error) {
    latest = undefined;
    unread = `The stored conversations cannot be read: ${why(error)}.`;
  }
  if (!latest) show(newConversation());
  if (unread) chat.say(unread);
}

async function showStored(id) {
  try {
    if (id !== chat.conversation.id) show(chat.replying(id) ?? await load(id) ?? newConversation());
    else toggleMenu(false);
  } catch (error) {
    tell(`The conversation cannot be read: ${why(error)}.`);
  }
}

async function drop(id, title) {
  if (!window.confirm(`Delete “${title}”?`)) return;
  const rows = [...find('conversations').children];
  const at = rows.findIndex((row) => row.dataset.key === id);
  chat.forget(id);
  try {
    await remove(id);
  } catch (error) {
    tell(`The conversation is not deleted: ${why(error)}.`);
    return;
  }
  if (chat.conversation.id === id) await showLatest();
  await drawList();
  (find('conversations').children[Math.min(at, rows.length - 2)]?.lastChild ?? find('new-conversation')).focus();
}

find('conversations').addEventListener('click', ({ target }) => {
  const { key } = target.closest('li')?.dataset ?? {};
  if (target.dataset.does === 'show') showStored(key);
  if (target.dataset.does === 'drop') drop(key, target.previousSibling.textContent);
});
find('new-conversation').addEventListener('click', () => show(newConversation()));
find('export').addEventListener('click', async () => {
  try {
    const link = el('a', { href: URL.createObjectURL(new Blob([await exportAll()], { type: 'application/json' })), download: 'hearth-conversations.json' });
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    tell(`Nothing was exported: ${why(error)}.`);
  }
});
find('import').addEventListener('click', () => find('import-file').click());
find('import-file').addEventListener('change', async ({ target }) => {
  const [file] = target.files;
  try {
    const n = await importAll(await file.text());
    tell(n === 1 ? 'One conversation was imported.' : `${n} conversations were imported.`);
  } catch (error) {
    tell(why(error));
  }
  target.value = '';
  drawList();
});

// ---- Views ----

function toggleMenu(open) {
  find('sidebar').classList.toggle('open', open);
  find('menu').setAttribute('aria-expanded', String(open));
}
find('menu').addEventListener('click', () => toggleMenu(!find('sidebar').classList.contains('open')));

function view(name) {
  for (const one of ['chat', 'live']) {
    find(one).hidden = one !== name;
    find(`show-${one}`).setAttribute('aria-pressed', String(one === name));
  }
  live.show(name === 'live');
}
find('show-chat').addEventListener('click', () => view('chat'));
find('show-live').addEventListener('click', () => view('live'));

// ---- Settings ----

find('show-settings').addEventListener('click', () => {
  find('system').value = chat.conversation.system;
  for (const name of samplingNames) find(name).value = chat.conversation.sampling[name] ?? '';
  find('reasoning').value = { true: 'on', false: 'off' }[chat.conversation.reasoning] ?? '';
  find('settings').showModal();
});
// Escape closes the dialog whatever is in its fields: a number that the server would not take leaves the one before.
find('settings').addEventListener('close', () => {
  const { sampling: before } = chat.conversation;
  const wrong = samplingNames.filter((name) => !find(name).validity.valid);
  const values = samplingNames.map((name) => [name, wrong.includes(name) ? before[name] : find(name).value === '' ? undefined : Number(find(name).value)]);
  chat.conversation.system = find('system').value.trim();
  chat.conversation.sampling = Object.fromEntries(values.filter(([, value]) => value !== undefined));
  if (wrong.length > 0) tell(wrong.map((name) => `${find(name).labels[0].firstChild.textContent.trim()} is as it was: ${find(name).validationMessage}`).join(' '));
  chat.conversation.reasoning = { on: true, off: false }[find('reasoning').value];
  if (!isEmpty(chat.conversation)) chat.keep(chat.conversation);
});

// ---- The API key ----

// Once a key was wanted, the dialog can be had again, after a reload as well.
find('show-access').hidden = !getKey();
function askForKey() {
  find('show-access').hidden = false;
  if (!find('access').open) find('access').showModal();
}
find('show-access').addEventListener('click', askForKey);
find('access-cancel').addEventListener('click', () => find('access').close());
find('access').addEventListener('close', () => { find('key').value = ''; });
find('access-form').addEventListener('submit', () => {
  setKey(find('key').value);
  begin();
  live.again();
});

// ---- The beginning ----

async function begin() {
  try {
    await models.load();
    chat.say(unread || (await isLasting() ? '' : 'This browser stores nothing here: conversations last until the tab is closed.'));
  } catch (error) {
    chat.say(`${error.message} ${adviceFor(error)}`);
    if (error.status === 401) askForKey();
  }
}

await showLatest();
await begin();
