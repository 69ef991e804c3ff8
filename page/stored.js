// The stored conversations in the view of the cache: a page of them at a time, newest first, however many there are.

import { listStored } from './api.js';
import { age, bytes, el, number, row } from './dom.js';

const SIZE = 50; // of a page
const PAUSE_MS = 2000; // between two lists, at least
const LONGEST_MS = 30_000; // and at most: what is kept shows in no report

export const tierNames = { ram: 'Memory', ram_file: 'Shared memory', disk: 'Disk', remote: 'Shared server' };

const orderNames = { keep: 'Keep', release: 'Release', drop: 'Drop' };
const orderMeanings = {
  keep: 'It is not evicted from its tier',
  release: 'It may be evicted, like others',
  drop: 'Remove what no other conversation has of it',
};

// What is on a server is others' as well: it takes no orders.
function orderButtons({ tier, key, kept }, refusal) {
  if (tier === 'remote') return '';
  return el('span', { class: 'orders' }, ...[kept ? 'release' : 'keep', 'drop'].map((order) => el('button', {
    class: 'quiet', type: 'button', 'data-order': order, 'data-tier': tier, 'data-stored': key, 'aria-disabled': refusal ? 'true' : null,
    title: refusal || orderMeanings[order], 'aria-label': `${orderNames[order]} stored conversation ${key.slice(0, 8)}${refusal ? `: ${refusal}` : ''}`,
  }, orderNames[order])));
}

function line(conversation, refusal) {
  const { model, tier, key, tokens, own_tokens: own, own_bytes: size, resident, kept, last_used: used } = conversation;
  const cells = row('td', el('code', { title: key }, key.slice(0, 8)), model || 'another', `${tierNames[tier] ?? tier}${kept ? ', kept' : ''}`, number(tokens), number(tokens - own), bytes(size),
    resident > 0 ? number(resident) : 'none', age(used / 1000), orderButtons(conversation, refusal));
  cells.dataset.key = `${tier} ${key}`;
  return cells;
}

export class Stored {
  constructor() {
    this.cursors = [null]; // of the pages up to the one that is shown
    this.turning = false; // another page was asked for
    this.page = null;
    this.problem = '';
    this.said = ''; // to those who do not see which page it is
    this.seen = null; // what the tiers and cells held when the page was asked for
    this.asked = -PAUSE_MS;
  }

  // Whether the list should be asked for: something changed since.
  isStale({ tiers, resident, hits_exact: exact, hits_resume: resumed, hits_longest_prefix: prefixes }, now) {
    const seen = JSON.stringify([Object.values(tiers).map((tier) => [tier.on, tier.entries, tier.bytes]), resident.map(({ hash, state }) => [hash, state]), exact + resumed + prefixes]);
    const waited = now - this.asked;
    if (waited < PAUSE_MS || (seen === this.seen && waited < LONGEST_MS)) return false;
    this.seen = seen;
    return true;
  }

  // The page that the cursors lead to; they count once it has come.
  async load(cursors = this.cursors) {
    this.asked = performance.now();
    const before = this.cursors;
    try {
      const page = await listStored(SIZE, cursors.at(-1));
      if (before !== this.cursors) return; // another page is shown by now
      this.cursors = cursors;
      this.page = page;
      this.problem = '';
    } catch (error) {
      if (before === this.cursors) this.problem = error.message;
    }
    // What was on the last page is gone: the one before is the last.
    if (!this.problem && this.page.conversations.length === 0 && this.cursors.length > 1) await this.load(this.cursors.slice(0, -1));
  }

  async turn(way) {
    const can = { newer: this.cursors.length > 1, older: Boolean(this.page?.next) };
    if (!can[way] || this.turning) return;
    this.turning = true;
    await this.load(way === 'newer' ? this.cursors.slice(0, -1) : [...this.cursors, this.page.next]);
    this.turning = false;
    this.said = `Page ${this.cursors.length}`;
  }

  // Another API key, perhaps.
  forget() {
    this.cursors = [null];
    this.page = this.seen = null;
    this.problem = this.said = '';
    this.asked = -PAUSE_MS;
  }

  legend() {
    const { total, conversations: { length } } = this.page;
    if (total === 0) return 'Nothing is stored.';
    const first = (this.cursors.length - 1) * SIZE + 1;
    return length === total ? (total === 1 ? 'One conversation, or a branch of one.' : `${number(total)} conversations and branches.`)
      : `${number(first)} to ${number(first + length - 1)} of ${number(total)} conversations and branches, those used last first.`;
  }

  turners() {
    const ways = { newer: ['Newer', this.cursors.length > 1], older: ['Older', Boolean(this.page.next)] };
    return el('nav', { class: 'row', 'aria-label': 'Pages of stored conversations' }, ...Object.entries(ways).map(([way, [name, can]]) => el('button', {
      class: 'quiet', type: 'button', 'data-turn': way, 'aria-disabled': can ? null : 'true' }, name)));
  }

  section(refusal) {
    const list = this.page?.conversations ?? [];
    return el('section', { 'data-key': ' stored' }, el('h2', {}, 'Stored conversations'),
      this.problem ? el('p', { class: 'error', role: 'status' }, this.problem) : null,
      el('p', { class: 'hidden', role: 'status' }, this.said),
      this.page ? el('p', { class: 'legend' }, this.legend()) : null,
      list.length === 0 ? null : el('div', { class: 'scrolls', tabindex: '0', role: 'region', 'aria-label': 'Stored conversations' }, el('table', {},
        el('thead', {}, row('th', 'Key', 'Model', 'Tier', 'Tokens', 'Shared', 'Own bytes', 'In the cells', 'Last used', 'Orders')),
        el('tbody', {}, ...list.map((conversation) => line(conversation, refusal))))),
      this.page && (this.page.next || this.cursors.length > 1) ? this.turners() : null);
  }
}
