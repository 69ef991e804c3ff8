// Models that are being fetched. The server fetches while somebody waits for it: a pull that is paused, or whose page was
// closed, goes on where it was when it is asked for again. The browser keeps what was asked for until it is there.

import { pull } from './api.js';
import { textStorage } from './texts.js';

const NAME = 'hearth.pulls';
const RATE_MS = 5000; // that a rate is the average of
const area = textStorage('localStorage');

function read() {
  try {
    const list = JSON.parse(area.getItem(NAME) ?? '[]');
    return list.filter((one) => typeof one === 'string' && one);
  } catch {
    return [];
  }
}

export class Pulls {
  // `changed` is called when there is something to show, `done` with a model's name when it is there, `denied` when the
  // server wants an API key.
  constructor(changed, done, denied) {
    Object.assign(this, { changed, done, denied });
    this.list = read().map((ref) => ({ ref, running: null })); // {ref, running, status, file, done, total, rate, error}
    window.addEventListener('storage', ({ key }) => { if (key === NAME) this.follow(); });
  }

  // Another tab has begun or ended some.
  follow() {
    const refs = read();
    this.list = this.list.filter(({ ref, running, error }) => running || error || refs.includes(ref));
    for (const ref of refs) if (!this.list.some((one) => one.ref === ref)) this.list.push({ ref, running: null });
    this.changed();
  }

  // In other tabs others may be fetched: of what the browser keeps only this one is changed.
  keep(ref, wanted) {
    const refs = read().filter((one) => one !== ref);
    try { area.setItem(NAME, JSON.stringify(wanted ? [...refs, ref] : refs)); } catch { /* it is not offered after a reload */ }
  }

  begin(ref) {
    let one = this.list.find((other) => other.ref === ref);
    if (!one) this.list.push(one = { ref, running: null });
    if (!one.running) this.run(one);
  }

  pause(ref) {
    this.list.find((one) => one.ref === ref)?.running?.abort();
  }

  // What was fetched of it stays on the server's disk, until it is asked for again.
  forget(ref) {
    this.pause(ref);
    this.list = this.list.filter((one) => one.ref !== ref);
    this.keep(ref, false);
    this.changed();
  }

  async run(one) {
    const controller = new AbortController();
    Object.assign(one, { running: controller, status: 'asking for it', error: null, rate: 0, samples: [] });
    this.changed();
    try {
      let model = one.ref;
      for await (const line of pull(one.ref, controller.signal)) {
        if (one.status === 'asking for it') this.keep(one.ref, true); // it is one that can be had
        this.note(one, line);
        model = line.model ?? model;
      }
      this.forget(one.ref);
      this.done(model);
    } catch (error) {
      if (!controller.signal.aborted) one.error = error;
      if (!controller.signal.aborted && !one.total) this.keep(one.ref, false); // nothing of it was to be had
      if (error.status === 401) this.denied();
    }
    if (one.running === controller) one.running = null;
    this.changed();
  }

  note(one, { status, digest, file, total, completed }) {
    const now = performance.now();
    if (digest !== one.digest) one.samples = [];
    Object.assign(one, { status, digest, file: file ?? digest, total, done: completed ?? 0 });
    if (completed === undefined) { this.changed(); return; }
    one.samples.push({ at: now, done: completed });
    while (one.samples.length > 2 && now - one.samples[0].at > RATE_MS) one.samples.shift();
    const [first] = one.samples;
    one.rate = now > first.at ? (completed - first.done) / (now - first.at) * 1000 : 0;
    this.changed();
  }
}
