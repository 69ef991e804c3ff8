// Wires the page: the list of conversations, the views, settings and the API key.

import { adviceFor, setKey } from './api.js';
import { Chat } from './chat.js';
import { all, exportAll, importAll, newConversation, remove, save } from './conversations.js';
import { el, find } from './dom.js';
import { Live } from './live.js';
import { Models } from './models.js';

const models = new Models();
const live = new Live(askForKey);
const chat = new Chat(models, drawList, askForKey);

// ---- Conversations ----

async function drawList() {
  const conversations = await all();
  const shown = chat.conversation && !conversations.some(({ id }) => id === chat.conversation.id) ? [chat.conversation, ...conversations] : conversations;
  find('conversations').replaceChildren(...shown.map((one) => el('li', {},
    el('button', { class: 'quiet title', 'aria-current': one.id === chat.conversation?.id ? 'true' : null, onclick: () => show(one) }, one.title),
    el('button', { class: 'quiet', 'aria-label': `Delete ${one.title}`, title: 'Delete', onclick: () => drop(one) }, '×'))));
}

function show(conversation) {
  chat.show(conversation);
  drawList();
  view('chat');
  toggleMenu(false);
}

async function drop(conversation) {
  if (!window.confirm(`Delete “${conversation.title}”?`)) return;
  await remove(conversation.id);
  if (chat.conversation.id === conversation.id) show((await all())[0] ?? newConversation());
  else drawList();
}

find('new-conversation').addEventListener('click', () => show(newConversation()));
find('export').addEventListener('click', async () => {
  const link = el('a', { href: URL.createObjectURL(new Blob([await exportAll()], { type: 'application/json' })), download: 'hearth-conversations.json' });
  link.click();
  URL.revokeObjectURL(link.href);
});
find('import').addEventListener('click', () => find('import-file').click());
find('import-file').addEventListener('change', async ({ target }) => {
  const text = await target.files[0].text();
  target.value = '';
  try {
    chat.say(`${await importAll(text)} conversations imported.`);
  } catch (error) {
    chat.say(error.message);
  }
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

const sampling = ['temperature', 'top_p', 'top_k', 'max_tokens'];
find('show-settings').addEventListener('click', () => {
  find('system').value = chat.conversation.system;
  for (const name of sampling) find(name).value = chat.conversation.sampling[name] ?? '';
  find('settings').showModal();
});
find('settings').addEventListener('close', () => {
  chat.conversation.system = find('system').value.trim();
  chat.conversation.sampling = Object.fromEntries(sampling.filter((name) => find(name).value !== '').map((name) => [name, Number(find(name).value)]));
  if (Object.keys(chat.conversation.messages).length > 0) save(chat.conversation);
});

// ---- The API key ----

function askForKey() {
  if (!find('access').open) find('access').showModal();
}
find('access').addEventListener('close', () => {
  setKey(find('key').value);
  find('key').value = '';
  begin();
  live.again();
});

// ---- The beginning ----

async function begin() {
  try {
    await models.load();
  } catch (error) {
    if (error.status === 401) askForKey();
    else chat.say(`${error.message} ${adviceFor(error)}`);
  }
}

show((await all())[0] ?? newConversation());
await begin();
