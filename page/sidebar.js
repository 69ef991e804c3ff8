// The list of conversations: finding, naming, pinning, exporting and deleting them. Which one is shown is the chat's.

import { conversationsFile, exportAll, importAll, markdownOf } from './conversation_files.js';
import { isEmpty, textOf } from './conversations.js';
import { el, find } from './dom.js';
import { morph } from './morph.js';
import { eachConversation, load, remove, titles } from './storage.js';

const SEARCH_MS = 150; // after the last letter
const DRAW_MS = 250; // while a search goes on

const why = (error) => error?.message ?? 'the browser refuses';

function download(name, type, text) {
  const link = el('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

// A title as the name of a file.
const fileName = (title) => title.replace(/[^\p{L}\p{M}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 60) || 'conversation';

export class Sidebar {
  // `show(id)` shows a conversation, `showLatest()` one after the shown one was deleted, `tell(text)` says something.
  constructor(chat, { show, showLatest, tell }) {
    Object.assign(this, { chat, show, showLatest, tell });
    this.query = '';
    this.found = new Set(); // ids of those in whose messages the words are
    this.searches = 0; // so that a search knows of a later one
    this.chosen = null; // ids, while several are being chosen
    this.about = null; // the one whose dialog is open: {id, title} as it was then
    this.shownStored = new Set(); // ids of the stored ones, as the list was drawn last
    this.listen();
  }

  listen() {
    const list = find('conversations');
    list.addEventListener('click', ({ target }) => {
      const { key } = target.closest('li')?.dataset ?? {};
      const does = { show: () => this.show(key), more: () => this.open(key), drop: () => this.dropOne(key), choose: () => this.choose(key, target.checked) };
      does[target.dataset.does]?.();
    });
    find('search').addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.search(find('search').value), SEARCH_MS);
    });
    find('search').addEventListener('keydown', (event) => {
      if (event.isComposing) return;
      if (event.key === 'Enter') this.showFirst();
      if (event.key === 'Escape') this.endSearch();
    });
    find('choose').addEventListener('click', () => this.choosing(this.chosen === null));
    find('delete-chosen').addEventListener('click', () => this.dropChosen());
    find('export').addEventListener('click', () => this.exporting(async () => download('hearth-conversations.json', 'application/json', await exportAll())));
    find('import').addEventListener('click', () => find('import-file').click());
    find('import-file').addEventListener('change', ({ target }) => this.import(target));
    find('export-markdown').addEventListener('click', () => this.exportOne((one) => download(`${fileName(one.title)}.md`, 'text/markdown', markdownOf(one))));
    find('export-json').addEventListener('click', () => this.exportOne((one) => download(`${fileName(one.title)}.json`, 'application/json', conversationsFile([one]))));
    find('about').addEventListener('close', () => this.keepAbout());
  }

  // ---- The list ----

  async draw() {
    let stored;
    try { stored = await titles(); } catch { return; } // the list stays as it is
    this.shownStored = new Set(stored.map(({ id }) => id));
    const { conversation } = this.chat;
    const all = conversation && !stored.some(({ id }) => id === conversation.id) ? [conversation, ...stored] : stored;
    const shown = all.filter(({ id, title }) => !this.query || title.toLowerCase().includes(this.query) || this.found.has(id));
    const pinned = shown.filter((one) => one.pinned), others = shown.filter((one) => !one.pinned);
    const list = find('conversations'), { activeElement: focused } = document;
    const had = list.contains(focused) && { key: focused.closest('li').dataset.key, does: focused.dataset.does };
    morph(list, [...pinned, ...others].map((one) => this.row(one)));
    if (had && document.activeElement !== focused) list.querySelector(`[data-key="${CSS.escape(had.key)}"] [data-does="${had.does}"]`)?.focus(); // the row has moved
    this.ids = new Set(shown.map(({ id }) => id));
    this.drawChosen();
    find('found').textContent = !this.query ? '' : `${shown.length} found${this.searching ? ' so far' : ''}`;
  }

  drawChosen() {
    if (!this.chosen) return;
    for (const id of this.chosen) if (!this.searching && !this.ids.has(id)) this.chosen.delete(id); // what is not seen is not deleted
    find('chosen-text').textContent = `${this.chosen.size} chosen`;
    find('delete-chosen').disabled = this.chosen.size === 0;
  }

  row({ id, title, pinned }) {
    return el('li', { 'data-key': id, class: pinned ? 'pinned' : null },
      this.chosen && el('input', { type: 'checkbox', 'data-key': 'choose', 'data-does': 'choose', 'aria-label': `Choose ${title}`, checked: this.chosen.has(id) }),
      el('button', { class: 'quiet title', 'data-key': 'show', 'data-does': 'show', 'aria-current': id === this.chat.conversation?.id ? 'true' : null }, title, pinned ? el('span', { class: 'hidden' }, ', pinned') : null),
      el('button', { class: 'quiet', 'data-key': 'more', 'data-does': 'more', 'aria-haspopup': 'dialog', 'aria-label': `More of ${title}`, title: 'Rename, pin, export' }, '⋯'),
      el('button', { class: 'quiet', 'data-key': 'drop', 'data-does': 'drop', 'aria-label': `Delete ${title}`, title: 'Delete' }, '×'));
  }

  // ---- Search: titles at once, messages as they are read ----

  async search(text) {
    const search = ++this.searches;
    this.query = text.trim().toLowerCase();
    this.found.clear();
    this.searching = this.query !== '';
    await this.draw();
    if (!this.searching) return;
    let drawn = performance.now();
    const { query } = this;
    try {
      await eachConversation((one) => {
        if (search !== this.searches) return false;
        if (Object.values(one.messages).some((message) => textOf(message).toLowerCase().includes(query))) this.found.add(one.id);
        if (performance.now() - drawn > DRAW_MS) { drawn = performance.now(); this.draw(); }
        return true;
      });
    } catch (error) {
      if (search === this.searches) this.tell(`The conversations cannot be searched: ${why(error)}.`);
    }
    if (search !== this.searches) return;
    this.searching = false;
    await this.draw();
  }

  endSearch() {
    clearTimeout(this.timer);
    find('search').value = '';
    return this.search('');
  }

  // Of what is written now, though it may not have been searched for yet.
  async showFirst() {
    clearTimeout(this.timer);
    if (find('search').value.trim().toLowerCase() !== this.query) await this.search(find('search').value);
    find('conversations').querySelector('.title')?.click();
  }

  // ---- One of them ----

  // As it is shown or answered, or as it is stored.
  async conversation(id) {
    if (id === this.chat.conversation.id) return this.chat.conversation;
    return this.chat.replying(id) ?? load(id);
  }

  async open(id) {
    const one = await this.conversation(id).catch((error) => this.tell(`The conversation cannot be read: ${why(error)}.`));
    if (!one) return;
    find('about-title').value = one.title;
    find('about-pinned').checked = one.pinned === true;
    this.about = { id, title: find('about-title').value };
    find('about').showModal();
  }

  // What the dialog says of the conversation, as it is by now. One that was named keeps its name when its first message is
  // edited.
  async readAbout() {
    const { id, title: before } = this.about, one = await this.conversation(id);
    if (!one) return null;
    const title = find('about-title').value.replace(/\s+/g, ' ').trim().slice(0, 200), pinned = find('about-pinned').checked;
    const isNamed = title !== '' && find('about-title').value !== before, isChanged = isNamed || pinned !== (one.pinned === true);
    if (isNamed) Object.assign(one, { title, named: true });
    if (isChanged) Object.assign(one, { pinned, about: Date.now() });
    return { one, isChanged };
  }

  async keepAbout() {
    try {
      const { one, isChanged } = await this.readAbout() ?? {};
      if (isChanged && !this.shownStored.has(one.id)) await this.draw();
      else if (isChanged) await this.chat.keep(one, { named: true });
    } catch (error) {
      this.tell(`The conversation is as it was: ${why(error)}.`);
    }
  }

  async exporting(work) {
    try { await work(); } catch (error) { this.tell(`Nothing was exported: ${why(error)}.`); }
  }

  exportOne(work) {
    return this.exporting(async () => { const { one } = await this.readAbout() ?? {}; if (one) work(one); });
  }

  async import(input) {
    const [file] = input.files;
    try {
      const n = await importAll(await file.text());
      this.tell(n === 1 ? 'One conversation was imported.' : `${n} conversations were imported.`);
    } catch (error) {
      this.tell(why(error));
    }
    input.value = '';
    await this.endSearch();
  }

  // ---- Deleting ----

  // False: some are not deleted, and it is said why.
  async drop(ids) {
    const gone = [];
    let fault;
    for (const id of ids) {
      this.chat.forget(id);
      try { await remove(id); } catch (error) { fault = error; break; }
      gone.push(id);
    }
    if (gone.includes(this.chat.conversation.id)) await this.showLatest();
    await this.draw();
    if (fault) this.tell(ids.length === 1 ? `The conversation is not deleted: ${why(fault)}.` : `${gone.length} of ${ids.length} are deleted: ${why(fault)}.`);
    return !fault;
  }

  async dropOne(id) {
    const rows = [...find('conversations').children];
    const at = rows.findIndex((row) => row.dataset.key === id);
    if (!window.confirm(`Delete “${rows[at].querySelector('.title').firstChild.textContent}”?`)) return;
    if (await this.drop([id])) (find('conversations').children[Math.min(at, rows.length - 2)]?.lastChild ?? find('new-conversation')).focus();
  }

  choosing(on) {
    this.chosen = on ? new Set() : null;
    find('choose').setAttribute('aria-pressed', String(on));
    find('chosen').hidden = !on;
    return this.draw();
  }

  choose(id, on) {
    if (!this.chosen) return;
    if (on) this.chosen.add(id);
    else this.chosen.delete(id);
    this.draw();
  }

  async dropChosen() {
    const ids = [...this.chosen].filter((id) => this.ids.has(id));
    if (!window.confirm(ids.length === 1 ? 'Delete the chosen conversation?' : `Delete ${ids.length} conversations?`)) return;
    if (await this.drop(ids)) await this.choosing(false);
    find('choose').focus();
  }
}
