// The view of the cache: cells, slots, tiers and counters, as /live reports them while the view is shown, and what is
// stored.

import { adviceFor, ApiError, orderResident, orderStored, watch } from './api.js';
import { age, bytes, el, find, number, row, svg } from './dom.js';
import { morph } from './morph.js';
import { Stored, tierNames } from './stored.js';
import { tree } from './tree.js';

const FIRST_PAUSE_MS = 500; // before it asks again where the stream broke off; twice as long each time
const LONGEST_PAUSE_MS = 15_000;
const MINUTES = 3;

const orderNames = { keep: 'Keep', release: 'Release', evict: 'Evict' };
const orderMeanings = {
  keep: 'Evict it last, and not for what it costs',
  release: 'Let it stay or leave by what it costs, like others',
  evict: 'Store it, and free its cells',
};

// `refusal` says why no order can be given; the buttons stay where they are, so that the focus does.
function orderButtons(resident, refusal) {
  const { model, seq_id: id, hash, kept } = resident;
  const reason = refusal || (hash ? '' : 'It is being computed');
  return el('span', { class: 'orders' }, ...[kept ? 'release' : 'keep', 'evict'].map((order) => el('button', {
    class: 'quiet', type: 'button', 'data-order': order, 'data-model': model, 'data-seq': id, 'data-hash': hash, 'aria-disabled': reason ? 'true' : null,
    title: reason || orderMeanings[order], 'aria-label': `${orderNames[order]} sequence ${id}${reason ? `: ${reason}` : ''}`,
  }, orderNames[order])));
}

function residentRow(resident, refusal) {
  const { tokens, shared_tokens: shared, kept, state, last_used: used } = resident;
  const line = row('td', resident.seq_id, kept ? `${state}, kept` : state, number(tokens), number(shared), used ? age(used / 1000) : 'now', `${resident.cost_ms.toFixed(0)} ms`,
    `${resident.return_ms.toFixed(0)} ms`, orderButtons(resident, refusal));
  line.dataset.key = `${resident.seq_id} ${resident.hash}`;
  return line;
}

function residentTable(residents, refusal) {
  return el('div', { class: 'scrolls', tabindex: '0', role: 'region', 'aria-label': 'Conversations in the cells' }, el('table', {},
    el('thead', {}, row('th', 'Sequence', 'State', 'Tokens', 'Shared', 'Last used', 'Cost so far', 'Return costs', 'Orders')),
    el('tbody', {}, ...residents.map((r) => residentRow(r, refusal)))));
}

// What a conversation takes of the strip: the cells that count for it, of which others have the shared ones as well, and
// those are drawn for one of them alone.
function partsOf({ tokens, own_tokens: own, shared_tokens: shared, state, kept }, least) {
  const drawn = Math.max(0, own - (tokens - shared));
  const words = `${number(tokens)} tokens, ${number(shared)} of them shared, ${state}${kept ? ', kept' : ''}`;
  const kind = `${state === 'running' ? 'busy' : 'idle'}${kept ? ' kept' : ''}`;
  const part = (n, also) => { const span = el('span', { class: `cell ${also}${kind}`, title: words }); span.style.flexGrow = String(Math.max(n, least)); return span; };
  return [...drawn > 0 ? [part(drawn, 'shares ')] : [], ...own > drawn ? [part(own - drawn, '')] : []];
}

// A strip of cells: shared ones once, and each conversation as wide as its own.
function cells(model, residents, capacity, refusal) {
  const used = residents.reduce((sum, r) => sum + r.own_tokens, 0);
  const strip = el('div', { class: 'cells', role: 'img', 'aria-label': `${number(used)} of ${number(capacity)} cells are used` });
  for (const r of residents) strip.append(...partsOf(r, capacity / 400));
  const free = el('span', { class: 'cell free' });
  free.style.flexGrow = String(Math.max(0, capacity - used));
  strip.append(free);
  return el('section', { 'data-key': model }, el('h2', {}, `KV cells of ${model}`), strip,
    el('p', { class: 'legend' }, `${number(used)} of ${number(capacity)} cells are used, by ${residents.length === 1 ? 'one conversation' : `${residents.length} conversations`}`),
    el('p', { class: 'legend' }, ...[['busy', 'running'], ['idle', 'idle'], ['shares', 'shared by several'], ['kept', 'kept']].flatMap(([kind, words]) => [el('span', { class: kind }, words), ' '])),
    ...residents.length === 0 ? [] : [tree(model, residents), residentTable(residents, refusal)]);
}

// How many requests wait, of the models where any does.
const queue = (models) => models.filter(({ waiting }) => waiting > 0).map(({ model, waiting }) => `${number(waiting)} for ${model}`).join(', ') || 'no request';

function slotCards(slots, models) {
  return el('section', {}, el('h2', {}, 'Slots'), el('p', { class: 'legend' }, `Waiting: ${queue(models)}`), el('div', { class: 'cards' }, ...slots.map((slot) => el('div', { class: `card ${slot.is_processing ? 'busy' : ''}` },
    el('h3', {}, slots.some(({ model }) => model !== slot.model) ? `Slot ${slot.id} of ${slot.model}` : `Slot ${slot.id}`), el('p', {}, slot.state), el('p', { class: 'legend' }, slot.is_processing
      ? `${number(slot.n_prompt_tokens)} prompt tokens, ${number(slot.n_prompt_tokens_cache)} of them cached, ${number(slot.next_token[0].n_decoded)} generated`
      : `${number(slot.cached_tokens)} tokens cached`)))));
}

function tierBars(tiers) {
  return el('section', {}, el('h2', {}, 'Store'), ...Object.entries(tiers).map(([name, tier]) => el('div', { class: 'tier' },
    el('p', { class: tier.on ? '' : 'note' }, tierNames[name] ?? name, ': ', tier.on ? `${bytes(tier.bytes)} of ${bytes(tier.quota_bytes)}, ${number(tier.entries)} entries, ${number(tier.evictions)} evicted` : 'off'),
    tier.on ? el('meter', { min: 0, max: tier.quota_bytes || 1, value: tier.bytes, 'aria-label': `${tierNames[name] ?? name}, bytes used` }) : null,
    tier.trouble ? el('p', { class: 'error' }, tier.trouble) : null)));
}

// Of each model's prompt tokens, how many did not have to be computed.
function saved(models) {
  const asked = models.filter(({ prompt_tokens: computed, cached_tokens: cached }) => computed + cached > 0);
  if (asked.length === 0) return null;
  return el('section', { 'data-key': 'saved' }, el('h2', {}, 'Not computed twice'), ...asked.map(({ model, prompt_tokens: computed, cached_tokens: cached }) => el('div', { class: 'tier' },
    el('p', {}, `${model}: ${number(cached)} of ${number(computed + cached)} prompt tokens since the start, ${(100 * cached / (computed + cached)).toFixed(0)} %`),
    el('meter', { min: 0, max: computed + cached, value: cached, 'aria-label': `${model}, prompt tokens that were not computed` }))));
}

function counters(cache) {
  const hits = cache.hits_exact + cache.hits_resume + cache.hits_longest_prefix;
  const rows = [['Found in the store', hits], ['Not found', cache.misses], ['Saves', cache.saves_cold + cache.saves_continued + cache.saves_finish + cache.saves_evict + cache.saves_shutdown],
    ['Saves dropped', cache.saves_dropped], ['Damaged files', cache.corrupt_files]];
  return el('section', {}, el('h2', {}, 'Since the start'), el('dl', { class: 'counters' },
    ...rows.flatMap(([what, n]) => [el('dt', {}, what), el('dd', {}, number(n))]), el('dt', {}, 'Written'), el('dd', {}, bytes(cache.written_bytes)), el('dt', {}, 'Read'), el('dd', {}, bytes(cache.read_bytes))));
}

// Generated tokens a second, over the last minutes.
class Rate {
  constructor() {
    this.points = [];
    this.last = null;
  }

  // The time since the last report is not measured.
  begin() {
    this.last = null;
  }

  add(models, now) {
    const made = models.reduce((sum, { generated_tokens: n }) => sum + n, 0);
    if (this.last && made >= this.last.made) this.points.push({ now, rate: ((made - this.last.made) * 1000) / (now - this.last.now) });
    this.last = { made, now };
    this.points = this.points.filter((p) => now - p.now < MINUTES * 60_000);
  }

  draw() {
    const most = Math.max(0, ...this.points.map((p) => p.rate));
    const end = this.points.at(-1)?.now ?? 0;
    const at = ({ now, rate }) => `${(300 - ((end - now) / (MINUTES * 60_000)) * 300).toFixed(1)},${(59 - (rate / Math.max(most, 1)) * 56).toFixed(1)}`;
    const label = `${(this.points.at(-1)?.rate ?? 0).toFixed(0)} tokens a second now, ${most.toFixed(0)} at most`;
    const curve = svg('svg', { viewBox: '0 0 300 60', role: 'img', preserveAspectRatio: 'none', 'aria-label': label }, svg('polyline', { points: this.points.map(at).join(' ') }));
    return el('section', {}, el('h2', {}, 'Tokens a second'), el('div', { class: 'rate' }, curve), el('p', { class: 'legend' }, `now ${(this.points.at(-1)?.rate ?? 0).toFixed(0)}, at most ${most.toFixed(0)} in ${MINUTES} minutes`));
  }
}

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
});

export class Live {
  // `denied` is called where the server wants an API key.
  constructor(denied) {
    this.denied = denied;
    this.rate = new Rate();
    this.stored = new Stored();
    this.wanted = false;
    this.reading = null; // the AbortController of the stream
    this.notice = ''; // how the last order ended, where it failed
    this.refusal = ''; // why the API key may give no orders
    find('live').addEventListener('click', ({ target }) => {
      if (target.hasAttribute('aria-disabled')) return;
      if (target.dataset.order) this.give(target);
      if (target.dataset.turn) this.turn(target.dataset.turn);
    });
    document.addEventListener('visibilitychange', () => this.update());
  }

  show(wanted) {
    this.wanted = wanted;
    this.update();
  }

  // Reads the stream while somebody can see it, and only then.
  update() {
    const reads = this.wanted && !document.hidden;
    if (reads === Boolean(this.reading)) return;
    this.reading?.abort();
    this.reading = reads ? new AbortController() : null;
    if (reads) this.read(this.reading.signal);
  }

  // Asks again at once: with another API key, perhaps.
  again() {
    this.notice = this.refusal = '';
    this.stored.forget();
    this.reading?.abort();
    this.reading = null;
    this.update();
  }

  async read(signal) {
    this.rate.begin();
    for (let wait = FIRST_PAUSE_MS; !signal.aborted; wait = Math.min(2 * wait, LONGEST_PAUSE_MS)) {
      try {
        for await (const report of watch(signal)) {
          wait = FIRST_PAUSE_MS;
          this.take(report);
        }
      } catch (error) {
        if (signal.aborted) return;
        this.say(error instanceof ApiError ? error : new ApiError(0, 'The connection broke off.'));
        if (error.status === 401) return; // until there is another API key, or the view is shown again
      }
      await pause(wait, signal);
    }
  }

  say(error) {
    const advice = error.status === 401 || error.status === 403 ? 'This view needs an API key with the grants status and cache.' : adviceFor(error);
    if (error.status === 401) this.denied();
    morph(find('live'), [el('p', { class: 'error', role: 'alert' }, error.message, ' ', el('span', {}, advice))]);
  }

  async give(button) {
    const { order, model, seq, hash, tier, stored: key } = button.dataset;
    const at = [...find('live').querySelectorAll('[data-stored]')].indexOf(button);
    this.notice = '';
    try {
      await (key ? orderStored({ tier, key, order }) : orderResident({ model, seq_id: Number(seq), hash, order }));
    } catch (error) {
      this.notice = error.message;
      if (error.status === 403) this.refusal = error.message;
    }
    if (key) await this.stored.load();
    this.redraw();
    if (key && !button.isConnected) this.focusStored(at);
  }

  // Its row has gone: the button in its place has the focus, or what is there of the list.
  focusStored(at) {
    const buttons = [...find('live').querySelectorAll('[data-stored]')];
    (buttons[at] ?? buttons.at(-1) ?? find('show-live')).focus();
  }

  async turn(way) {
    await this.stored.turn(way);
    this.redraw();
  }

  redraw() {
    if (this.last && this.reading) this.draw(this.last);
  }

  take(report) {
    this.rate.add(report.models, performance.now());
    this.last = report;
    this.draw(report);
    if (this.stored.isStale(report.cache, performance.now())) this.stored.load().then(() => this.redraw());
  }

  draw({ slots, cache, models }) {
    const names = [...new Set(slots.map((s) => s.model))];
    const parts = [el('p', { class: 'error', role: 'status' }, this.notice), saved(models), ...names.map((name) => {
      const own = slots.filter((s) => s.model === name);
      return cells(name, cache.resident.filter((r) => r.model === name), own.reduce((sum, s) => sum + s.n_ctx, 0), this.refusal);
    }), this.stored.section(this.refusal), slotCards(slots, models), this.rate.draw(), tierBars(cache.tiers), counters(cache)];
    morph(find('live'), parts.filter(Boolean));
  }
}
