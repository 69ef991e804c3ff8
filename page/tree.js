// The conversations in a model's cells as a tree: a line for each, as long as its tokens, which leaves the line of another
// one where their tokens part.

import { number, svg } from './dom.js';

const WIDTH = 600, LABEL = 170, ROW = 20, TOP = 12;
const LEAST = 3; // of a line, so that it is seen

// In an order in which no line crosses another: each below the one that it leaves, those that leave it last first.
function ordered(residents) {
  const ids = new Set(residents.map(({ seq_id: id }) => id));
  const leaving = (id) => residents.filter(({ branch_of: of }) => of === id).sort((a, b) => b.branch_at - a.branch_at);
  const below = (one) => [one, ...leaving(one.seq_id).flatMap(below)];
  return residents.filter(({ branch_of: of }) => !ids.has(of)).flatMap(below);
}

const ends = ({ return_ms: ms, state }) => (state === 'running' ? 'in use' : ms > 0 ? `back from the store in ${ms.toFixed(0)} ms` : 'computed again, if it leaves');

export function tree(model, residents) {
  const rows = ordered(residents), most = Math.max(1, ...residents.map(({ tokens }) => tokens));
  const x = (tokens) => Math.round(tokens / most * WIDTH * 10) / 10;
  const y = new Map(rows.map(({ seq_id: id }, i) => [id, TOP + i * ROW]));
  const lines = rows.flatMap((one) => {
    const { seq_id: id, branch_of: of, branch_at: at, tokens, state, kept } = one;
    const from = y.has(of) ? x(at) : 0, to = Math.max(x(tokens), from + LEAST);
    const kind = `${state === 'running' ? 'busy' : 'idle'}${kept ? ' kept' : ''}`;
    const words = `${number(tokens)} tokens${y.has(of) ? `, ${number(at)} of them as sequence ${of}` : ''}, ${state}, ${ends(one)}`;
    const joint = y.has(of) ? [svg('path', { class: 'joint', d: `M${from} ${y.get(of)}V${y.get(id)}` })] : [];
    return [...joint, svg('line', { class: kind, x1: from, x2: to, y1: y.get(id), y2: y.get(id) }, svg('title', {}, words)),
      svg('text', { x: to + 8, y: y.get(id) + 4 }, `${id} · ${number(tokens)}${kept ? ' · kept' : ''}`)];
  });
  const label = `Sequences of ${model} and where they part: ${rows.map(({ seq_id: id, tokens, branch_of: of, branch_at: at }) => `${id} has ${number(tokens)} tokens${y.has(of) ? `, ${number(at)} as ${of}` : ''}`).join('; ')}`;
  return svg('svg', { class: 'tree', viewBox: `0 0 ${WIDTH + LABEL} ${TOP * 2 + Math.max(0, rows.length - 1) * ROW}`, role: 'img', 'aria-label': label }, ...lines);
}
