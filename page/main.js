// Wires the page: what is shown, the views, settings, keys of the keyboard and the API key.

import { adviceFor, getKey, setKey } from './api.js';
import { Chat } from './chat.js';
import { isEmpty, newConversation, samplingNames } from './conversations.js';
import { el, find } from './dom.js';
import { drafts } from './drafts.js';
import { FullDialog } from './full.js';
import { Live } from './live.js';
import { ModelView } from './model_view.js';
import { Models } from './models.js';
import { presets } from './presets.js';
import { Sidebar } from './sidebar.js';
import { isLasting, load, titles } from './storage.js';

const models = new Models(() => chat.modelsChanged());
const live = new Live(askForKey);
const modelView = new ModelView(models, askForKey, (name) => { models.choose(name); view('chat'); find('composer-text').focus(); });
const chat = new Chat(models, () => sidebar.draw(), askForKey);
const full = new FullDialog(chat, models, (conversation) => show(conversation));
chat.onFull = () => full.open();
const sidebar = new Sidebar(chat, { show: showStored, showLatest, tell });

// ---- Conversations ----

const begun = () => ({ ...newConversation(), ...presets.ofNew() });

function show(conversation) {
  chat.show(conversation);
  sidebar.draw();
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
  if (!latest) show(begun());
  if (unread) chat.say(unread);
}

async function showStored(id) {
  try {
    if (id !== chat.conversation.id) show(chat.replying(id) ?? await load(id) ?? begun());
    else toggleMenu(false);
  } catch (error) {
    tell(`The conversation cannot be read: ${why(error)}.`);
  }
}

find('new-conversation').addEventListener('click', () => { sidebar.endSearch(); show(begun()); });

// ---- Views ----

function toggleMenu(open) {
  find('sidebar').classList.toggle('open', open);
  find('menu').setAttribute('aria-expanded', String(open));
}
find('menu').addEventListener('click', () => toggleMenu(!find('sidebar').classList.contains('open')));

function view(name) {
  for (const one of ['chat', 'models', 'live']) {
    find(one).hidden = one !== name;
    find(`show-${one}`).setAttribute('aria-pressed', String(one === name));
  }
  live.show(name === 'live');
  modelView.show(name === 'models');
}
find('show-chat').addEventListener('click', () => view('chat'));
find('show-models').addEventListener('click', () => view('models'));
find('show-live').addEventListener('click', () => view('live'));

// ---- Settings ----

// A number that the server would not take leaves the one before.
function settingsShown(before) {
  const values = samplingNames.map((name) => [name, find(name).validity.valid ? find(name).value : before[name] ?? '']);
  const sampling = Object.fromEntries(values.filter(([, value]) => value !== '').map(([name, value]) => [name, Number(value)]));
  return { system: find('system').value.trim(), sampling, reasoning: { on: true, off: false }[find('reasoning').value] };
}

function showSettings({ system, sampling, reasoning }) {
  find('system').value = system;
  for (const name of samplingNames) find(name).value = sampling[name] ?? '';
  find('reasoning').value = { true: 'on', false: 'off' }[reasoning] ?? '';
}

function listPresets(chosen = '') {
  find('preset').replaceChildren(...['', ...presets.names()].map((name) => el('option', { value: name }, name || 'none')));
  find('preset').value = chosen;
  find('preset-remove').disabled = chosen === '';
  find('settings-note').textContent = 'They belong to this conversation.';
}

const noteOf = (kept, text) => { find('settings-note').textContent = kept ? text : 'The browser keeps nothing here, or has no room.'; };

find('show-settings').addEventListener('click', () => {
  showSettings(chat.conversation);
  listPresets();
  find('settings').showModal();
});
find('preset').addEventListener('change', ({ target }) => {
  showSettings((target.value && presets.get(target.value)) || chat.conversation); // which has those of before until this is closed
  find('preset-remove').disabled = !target.value;
});
const settingsAreRight = () => find('settings').querySelector('form').reportValidity();

find('preset-save').addEventListener('click', () => {
  if (!settingsAreRight()) return;
  const name = window.prompt('Name of the preset', find('preset').value)?.trim().slice(0, 60);
  if (!name || (presets.get(name) && name !== find('preset').value && !window.confirm(`Replace the preset “${name}”?`))) return;
  const kept = presets.set(name, settingsShown(chat.conversation.sampling));
  listPresets(kept ? name : '');
  noteOf(kept, `Kept as “${name}”.`);
});
find('preset-remove').addEventListener('click', () => {
  const name = find('preset').value;
  if (!window.confirm(`Remove the preset “${name}”?`)) return;
  const kept = presets.remove(name);
  listPresets();
  noteOf(kept, `“${name}” is removed.`);
});
find('preset-of-new').addEventListener('click', () => settingsAreRight() && noteOf(presets.setOfNew(settingsShown(chat.conversation.sampling)), 'New conversations begin with these.'));
// Escape closes the dialog whatever is in its fields.
find('settings').addEventListener('close', () => {
  const wrong = samplingNames.filter((name) => !find(name).validity.valid);
  Object.assign(chat.conversation, settingsShown(chat.conversation.sampling));
  if (wrong.length > 0) tell(wrong.map((name) => `${find(name).labels[0].firstChild.textContent.trim()} is as it was: ${find(name).validationMessage}`).join(' '));
  if (!isEmpty(chat.conversation)) chat.keep(chat.conversation);
});

// ---- The keyboard ----

const isField = (element) => element.matches?.('input:not([type="checkbox"]), textarea, select');
document.addEventListener('keydown', (event) => {
  if (event.isComposing || event.repeat || event.altKey || !event.key || document.querySelector('dialog[open]')) return;
  const command = /Mac/.test(navigator.platform) ? event.metaKey : event.ctrlKey, letter = event.key.toLowerCase();
  const does = command && event.shiftKey && letter === 'o' ? () => find('new-conversation').click()
    : command && !event.shiftKey && letter === 'k' ? () => { toggleMenu(true); find('search').focus(); }
      : event.key === '?' && !isField(event.target) ? () => find('keys').showModal() : null;
  if (!does) return;
  event.preventDefault();
  does();
});
find('show-keys').addEventListener('click', () => find('keys').showModal());

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
  modelView.again();
});

// ---- The beginning ----

async function begin() {
  try {
    await models.load();
    if (models.names().length === 0) view('models');
    chat.say(unread || (await isLasting() ? '' : 'This browser stores nothing here: conversations last until the tab is closed.'));
  } catch (error) {
    chat.say(`${error.message} ${adviceFor(error)}`);
    if (error.status === 401) askForKey();
  }
}

await showLatest();
await begin();
