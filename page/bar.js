// The token bar under a reply: what of the prompt was there, and from where, what was computed, what was generated, and
// what of that drafts had right.

import { el, number, seconds } from './dom.js';

const tierNames = { ram: 'memory', ram_file: 'shared memory', disk: 'the disk', remote: 'the shared server' };

// {shared, restored, reused, tier, computed, generated, drafted, firstMs, rate}: of timings, and of the lookup before. Without one
// it is not known from where tokens were reused.
export function figuresOf(timings, lookup, firstMs) {
  const cached = timings.cache_n ?? 0;
  const shared = lookup ? Math.min(cached, lookup.resident) : 0;
  const tier = lookup && Object.keys(tierNames).filter((name) => lookup[name] > 0).sort((a, b) => lookup[b] - lookup[a])[0];
  return {
    shared, restored: lookup ? cached - shared : 0, reused: lookup ? 0 : cached, tier, computed: timings.prompt_n ?? 0, generated: timings.predicted_n ?? 0,
    drafted: timings.draft_n_accepted ?? 0, firstMs, rate: timings.predicted_per_second, divergence: lookup?.divergence,
  };
}

const kinds = [
  ['reused', (f) => `${number(f.reused)} reused`],
  ['shared', (f) => `${number(f.shared)} reused from KV cells`],
  ['restored', (f) => `${number(f.restored)} restored from ${tierNames[f.tier] ?? 'the store'}`],
  ['computed', (f) => `${number(f.computed)} computed`],
  ['generated', (f) => `${number(f.generated)} generated`],
  ['drafted', (f) => `${number(f.drafted)} of them as drafted`],
];

// The next tokens of both spell the same text, as far as both are known.
const saysTheSame = (a, b) => a && b && (a.startsWith(b) || b.startsWith(a));

function explain({ shared, restored, computed, divergence }) {
  if (!divergence || computed < 64 || computed < (shared + restored) / 4) return null;
  const where = divergence.message === null || divergence.message === undefined ? '' : `, in message ${divergence.message + 1}${divergence.role ? ` (${divergence.role})` : ''}`;
  const text = `The nearest cached prompt is the same up to token ${number(divergence.position)}${where}.`;
  if (divergence.prompt === null && divergence.nearest === null) return el('p', { class: 'why' }, text);
  if (saysTheSame(divergence.prompt, divergence.nearest)) return el('p', { class: 'why' }, text, ' Then both say ', el('q', {}, divergence.prompt), ', in other tokens.');
  return el('p', { class: 'why' }, text, ' Then it has ', el('q', {}, divergence.nearest ?? ''), ' where this one has ', el('q', {}, divergence.prompt ?? ''), '.');
}

export function tokenBar(figures) {
  const shown = kinds.filter(([kind]) => figures[kind] > 0);
  const width = (kind) => (kind === 'generated' ? figures.generated - (figures.drafted ?? 0) : figures[kind]);
  const total = shown.reduce((sum, [kind]) => sum + width(kind), 0);
  const words = shown.map(([, say]) => say(figures));
  if (figures.firstMs) words.push(`${seconds(figures.firstMs)} to the first token`);
  if (figures.rate > 0) words.push(`${figures.rate < 10 ? figures.rate.toFixed(1) : number(Math.round(figures.rate))} tokens/s`);
  const bar = el('div', { class: 'bar', 'aria-hidden': 'true' });
  for (const [kind] of shown) {
    const part = el('span', { class: kind });
    part.style.flexGrow = String(width(kind) / total);
    bar.append(part);
  }
  const legend = el('p', { class: 'legend' });
  words.forEach((text, i) => legend.append(i > 0 ? ' · ' : '', el('span', { class: shown[i]?.[0] ?? '' }, text)));
  return el('div', { class: 'tokens' }, bar, legend, explain(figures));
}

// While a long prompt is computed: {total, cache, processed}.
export function progressBar({ total, cache, processed }) {
  return el('div', { class: 'tokens' },
    el('progress', { max: total, value: processed, 'aria-label': 'The prompt is being computed' }),
    el('p', { class: 'legend' }, `${number(processed)} of ${number(total)} prompt tokens${cache > 0 ? `, ${number(cache)} of them reused` : ''}`));
}
