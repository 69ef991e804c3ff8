// The view of models: those that the server has, and getting others.

import { adviceFor, getJson, orderModel, removeModel } from './api.js';
import { bytes, el, find, number, row } from './dom.js';
import { Fit } from './fit.js';
import { morph } from './morph.js';
import { Pulls } from './pulls.js';
import { suggestions } from './suggestions.js';

const POLL_MS = 1000; // while one is loading or unloading

const featureNames = { tools: 'tools', thinking: 'reasoning', vision: 'images', audio: 'sounds' };
const weights = (meta) => (meta.ftype ?? '').replace('(guessed) ', '').replace(/^all /, '');

// `place`: what stays where a button does something else.
const button = (act, name, text, label, { place = act, waits = false } = {}) => el('button', { type: 'button', class: 'quiet', 'data-act': act, 'data-name': name, 'data-key': `${place} ${name}`, 'aria-label': label, 'aria-disabled': waits ? 'true' : null }, text);

export class ModelView {
  // `models`: the choice of one; `denied` is called when the server wants an API key, `use(name)` shows the chat with it.
  constructor(models, denied, use) {
    Object.assign(this, { models, denied, use });
    this.shown = false;
    this.list = [];
    this.features = new Map(); // by name
    this.busy = new Set(); // names of models of which something is asked
    this.error = this.fault = this.note = ''; // of an order, of the list; what has come
    this.pulls = new Pulls(() => this.draw(), (model) => this.pulled(model), denied);
    this.typed = new Fit(() => this.draw(), denied);
    this.suggestion = new Fit(() => this.draw(), denied);
    this.element = find('models');
    this.listen();
  }

  listen() {
    this.element.addEventListener('click', ({ target }) => {
      const { act, name } = target.closest('button:not([aria-disabled])')?.dataset ?? {};
      const does = {
        load: () => this.order('load', name), unload: () => this.order('unload', name), remove: () => this.remove(name), use: () => this.use(name),
        fit: () => this.suggestion.ask(name, suggestions.find(({ ref }) => ref === name).name), 'fit-typed': () => this.fitTyped(),
        get: () => this.pulls.begin(name), pause: () => this.pulls.pause(name), resume: () => this.pulls.begin(name), forget: () => this.pulls.forget(name),
      };
      does[act]?.();
      if (target.closest('summary')) this.open = !target.closest('details').open; // the user says so from now on
    });
    this.element.addEventListener('input', ({ target }) => {
      if (target.id !== 'pull-ref') return;
      this.typed.drop(); // it was about another one
      this.draw();
    });
    this.element.addEventListener('submit', (event) => {
      event.preventDefault();
      const field = find('pull-ref'), ref = field.value.trim();
      if (!ref) return;
      field.value = '';
      this.typed.drop();
      this.pulls.begin(ref);
    });
  }

  fitTyped() {
    const field = find('pull-ref'), ref = field.value.trim();
    if (ref) this.typed.ask(ref);
    else field.focus();
  }

  show(shown) {
    this.shown = shown;
    if (!shown) {
      clearTimeout(this.timer);
      this.typed.drop();
      this.suggestion.drop();
      return;
    }
    this.error = this.note = '';
    this.draw();
    this.load();
  }

  // With another API key, perhaps.
  again() {
    this.features.clear();
    if (this.shown) this.show(true);
  }

  // The list anew, and again while one of them is on its way.
  async load() {
    clearTimeout(this.timer);
    try {
      const { data } = await getJson('/v1/models');
      this.list = data;
      this.fault = '';
      this.models.take(data);
      await Promise.all(data.filter(({ id, status }) => status.value === 'loaded' && !this.features.has(id)).map((one) => this.learn(one.id)));
    } catch (error) {
      this.fault = this.words(error);
    }
    if (this.shown && this.list.some(({ status }) => /ing$/.test(status.value))) this.timer = setTimeout(() => this.load(), POLL_MS);
    this.draw();
  }

  // What its template knows. Not every key may ask.
  async learn(name) {
    this.features.set(name, '');
    const { capabilities } = await getJson('/api/show', { body: { model: name } }).catch(() => ({}));
    if (!capabilities) this.features.delete(name);
    else this.features.set(name, capabilities.map((one) => featureNames[one]).filter(Boolean).join(', '));
  }

  words(error) {
    if (error.status === 401) this.denied();
    return `${error.message} ${adviceFor(error)}`.trim();
  }

  // A request about one: the buttons of it wait meanwhile.
  async about(name, work) {
    this.busy.add(name);
    this.error = this.note = '';
    this.draw();
    setTimeout(() => this.load(), 100); // it is loading by then
    try { await work(); } catch (error) { this.error = this.words(error); }
    this.busy.delete(name);
    await this.load();
  }

  order(order, name) {
    this.features.delete(name);
    return this.about(name, () => orderModel(order, name));
  }

  remove(name) {
    if (window.confirm(`Remove ${name} and its files from the server?`)) this.about(name, () => removeModel(name));
  }

  async pulled(model) {
    this.note = `${model} is there.`;
    this.error = '';
    await this.load();
  }

  // ---- What is shown ----

  draw() {
    if (!this.shown) return;
    morph(this.element, [this.get(), ...this.running(), this.table(), this.suggested()]);
  }

  get() {
    return el('section', { 'data-key': 'get' }, el('h2', {}, 'Get a model'),
      el('form', { class: 'row' }, el('label', { class: 'hidden', for: 'pull-ref' }, 'Name or address of a model'),
        el('input', { id: 'pull-ref', type: 'text', placeholder: 'hf:OWNER/REPO:QUANT, or an address of a .gguf file', autocomplete: 'off', spellcheck: 'false' }),
        button('fit-typed', '', 'Does it fit?', null), el('button', { 'data-key': 'get' }, 'Get it')),
      this.typed.show(),
      el('p', { class: this.error || this.fault ? 'error' : 'note', role: 'status' }, this.error || this.fault || this.note || ''));
  }

  suggested() {
    return el('section', { 'data-key': 'suggested' },
      el('details', { open: this.open ?? this.list.length < 2 }, el('summary', {}, 'Suggestions, by the memory that a machine should have'),
        el('div', { class: 'scrolls', tabindex: '0', role: 'region', 'aria-label': 'Suggestions' }, el('table', {}, el('thead', {}, row('th', 'Memory', 'Model', 'Good for', 'To fetch', '')),
          el('tbody', {}, ...suggestions.map(({ name, ref, gb, memory, what }) => {
            const line = row('td', `${memory} GB`, name, what, `${gb.toFixed(1)} GB`, el('span', { class: 'orders' }, button('fit', ref, 'Does it fit?', `Does it fit? ${name}`), button('get', ref, 'Get it', `Get it: ${name}`)));
            line.dataset.key = ref;
            return line;
          })))), this.suggestion.show()));
  }

  running() {
    if (this.pulls.list.length === 0) return [];
    return [el('section', { 'data-key': 'pulls' }, el('h2', {}, 'Being fetched'), ...this.pulls.list.map((one) => this.pull(one)))];
  }

  pull({ ref, running, status, file, done, total, rate, error }) {
    const part = total > 0 ? `${bytes(done)} of ${bytes(total)}` : '';
    const left = rate > 0 && total > done ? `${bytes(rate)} a second, ${Math.ceil((total - done) / rate / 60)} min left` : '';
    const words = running ? [status, file && file !== status ? file : '', part, left] : [error ? '' : 'Paused: what was fetched is kept', part];
    return el('div', { class: 'card pull', 'data-key': ref }, el('h3', { 'data-key': 'name' }, ref),
      total > 0 ? el('progress', { 'data-key': 'progress', max: total, value: done, 'aria-label': `${ref}: fetched` }) : null,
      el('p', { 'data-key': 'words', class: 'legend' }, words.filter(Boolean).join(' · ')),
      error ? el('p', { 'data-key': 'error', class: 'error', role: 'alert' }, `${error.message} ${adviceFor(error)}`) : null,
      running ? button('pause', ref, 'Pause', `Pause ${ref}`, { place: 'run' }) : button('resume', ref, error ? 'Try again' : 'Resume', `${error ? 'Try again:' : 'Resume'} ${ref}`, { place: 'run' }),
      button('forget', ref, 'Cancel', `Cancel ${ref}`));
  }

  table() {
    return el('section', { 'data-key': 'list' }, el('h2', {}, 'On this server'), this.list.length === 0 ? el('p', { class: 'note' }, 'There is no model yet.')
      : el('div', { class: 'scrolls', tabindex: '0', role: 'region', 'aria-label': 'Models on this server' }, el('table', {},
        el('thead', {}, row('th', 'Model', 'State', 'Weights', 'Size', 'Window', 'Knows', '')),
        el('tbody', {}, ...this.list.map((one) => this.line(one))))));
  }

  // One that is loaded at the server's start has no `meta` yet.
  line({ id, status: { value: state }, type = 'chat', meta = {} }) {
    const waits = this.busy.has(id) || /ing$/.test(state), loaded = state === 'loaded';
    const acts = [
      type === 'chat' ? button('use', id, 'Chat', `Chat with ${id}`, { waits }) : null,
      loaded ? button('unload', id, 'Unload', `Unload ${id}`, { place: 'load', waits }) : button('load', id, 'Load', `Load ${id}`, { waits }),
      button('remove', id, 'Remove', `Remove ${id}`, { waits }),
    ];
    const line = row('td', id, state, loaded ? weights(meta) : '', meta.size ? bytes(meta.size) : '', loaded && meta.n_ctx ? number(meta.n_ctx) : '',
      [type === 'chat' ? '' : type, this.features.get(id)].filter(Boolean).join(', '), el('span', { class: 'orders' }, ...acts.filter(Boolean)));
    line.dataset.key = id;
    return line;
  }
}
