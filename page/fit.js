// Whether a model fits the server's machine, before it is fetched. In each place one is asked about at a time: the next
// question ends the one before.

import { adviceFor, askFit } from './api.js';
import { bytes, el, number } from './dom.js';

const room = (needed, where, free) => `${bytes(needed)} ${where}${free > 0 ? ` (${bytes(free)} are free)` : ''}`;

// {fits, size_bytes, files, memory_bytes, …}, as the server has it, in words.
export function fitWords(told) {
  const n = told.files.length, slots = told.n_seq_max;
  const fetched = `${bytes(told.size_bytes)} to fetch${n > 1 ? ` in ${n} files` : ''}.`;
  if (!told.fits) return `Does not fit this machine: ${told.reason}. ${fetched}`;
  const gpu = told.gpu_bytes > 0 ? ` and ${room(told.gpu_bytes, 'on the GPU', told.gpu_free_bytes)}` : '';
  const window = told.context_window > 0 ? ` Window: ${number(told.context_window)} tokens${slots > 1 ? `, for ${slots} conversations at once` : ''}.` : '';
  return `Fits this machine. ${fetched} It takes ${room(told.memory_bytes, 'of memory', told.free_bytes)}${gpu}.${window}`;
}

export class Fit {
  // `changed` is called when there is something to show, `denied` when the server wants an API key.
  constructor(changed, denied) {
    Object.assign(this, { changed, denied, asked: null }); // {name, controller, answer, error}
  }

  // `name`: to be told with the answer, where that does not stand beside what was asked about.
  async ask(ref, name = '') {
    this.drop();
    const one = this.asked = { name, controller: new AbortController() };
    this.changed();
    try {
      one.answer = await askFit(ref, one.controller.signal);
    } catch (error) {
      if (one.controller.signal.aborted) return;
      one.error = error;
      if (error.status === 401) this.denied();
    }
    this.changed();
  }

  // Nothing is asked, nor shown, any more.
  drop() {
    this.asked?.controller.abort();
    this.asked = null;
  }

  // The paragraph for the answer. It is there before it says something, so that it is read out.
  show() {
    const one = this.asked;
    const says = !one ? '' : one.error ? `${one.error.message} ${adviceFor(one.error)}`.trim() : one.answer ? fitWords(one.answer) : 'Looking at its files …';
    return el('p', { 'data-key': 'fit', class: one?.error ? 'fit error' : 'fit note', role: 'status' }, one?.name ? `${one.name}: ${says}` : says);
  }
}
