// The choice of a model, and what the chosen one takes.

import { getJson } from './api.js';
import { el, find } from './dom.js';
import { textStorage } from './texts.js';

const chosen = textStorage('localStorage');

export class Models {
  // `changed` is called when another model was chosen, or the list has come.
  constructor(changed) {
    this.changed = changed;
    this.list = [];
    this.wanted = chosen.getItem('hearth.model');
    find('model').addEventListener('change', () => this.choose(find('model').value));
  }

  async load() {
    const { data } = await getJson('/v1/models');
    this.take(data);
  }

  // The server's list. The one that is wanted is chosen again once it is there.
  take(data) {
    this.list = data.filter(({ type }) => type === 'chat');
    find('model').replaceChildren(...this.list.map(({ id }) => el('option', { value: id, selected: id === this.wanted }, id)));
    this.update();
  }

  choose(name) {
    this.wanted = name;
    chosen.setItem('hearth.model', name);
    find('model').value = name;
    this.update();
  }

  chosen() {
    return find('model').value;
  }

  // Kinds of files.
  takes() {
    return new Set(this.list.find(({ id }) => id === this.chosen())?.modalities.input ?? []);
  }

  // Tokens of the window of the one that is chosen; 0: not known.
  window() {
    return this.list.find(({ id }) => id === this.chosen())?.meta?.n_ctx ?? 0;
  }

  // Tokens that it was trained for; 0: not known.
  trained() {
    return this.list.find(({ id }) => id === this.chosen())?.meta?.n_ctx_train ?? 0;
  }

  // Whether there is only the one that comes with the program.
  areDemo() {
    return this.list.length === 1 && this.list[0].id === 'demo';
  }

  names() {
    return this.list.map(({ id }) => id);
  }

  update() {
    this.changed();
  }
}
