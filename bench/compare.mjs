// Makes of the runs of bench/run.sh what is to be read: ratios pair by pair, the table on stdout, bench.json and bench.svg
// in a folder. Has the goals.
//
//   node bench/compare.mjs short|full THREADS RUNS.jsonl FOLDER
//
// A run's value of a figure is the median of the rounds that its program measured. A pair's ratio is hearth's value by
// llama-server's of the same pair, below 1 where hearth needs less; that of a figure "turn by turn" is the median of the
// turns' ratios. What is shown is the median of the pairs, with the least and the greatest.

import { readFileSync, writeFileSync } from 'node:fs';
import { cpus, release } from 'node:os';
import { join } from 'node:path';

// ---- The goals ----
// `of` is what the limit is for: the ratio, or hearth's own value where there is nothing to compare it with. Goals that
// depend on the length of a prompt hold for a full run only.

const ratio = 'hearth / llama-server';
const own = 'hearth';
const goals = [
  { row: 1, workload: 'conversation', figure: /^first token, turn by turn$/, of: ratio, most: 1.0 },
  { row: 2, workload: 'agents', figure: /: computed \/ needed$/, of: own, most: 1.02 },
  { row: 2, workload: 'agents', figure: /: time$/, of: ratio, most: 0.4 },
  { row: 2, workload: 'tails', figure: /: computed \/ needed$/, of: own, most: 1.02 },
  { row: 2, workload: 'long', figure: /: computed \/ needed$/, of: own, most: 1.02 },
  { row: 3, workload: 'subagents', figure: /: time$/, of: ratio, most: 0.25 },
  { row: 4, workload: 'idle', figure: /^first token of a cold prompt, conversations kept$/, of: ratio, most: 1.0 },
  { row: 4, workload: 'idle', figure: /^a token of its reply, conversations kept$/, of: ratio, most: 1.0 },
  { row: 4, workload: 'idle', figure: /^the oldest comes back: time to first token$/, of: ratio, most: 1.1 },
  { row: 5, workload: 'restart', figure: /^first token after (TERM|KILL)/, of: ratio, most: 0.03, full: true },
  { row: 6, workload: 'gap', figure: /^largest gap/, of: ratio, most: 0.06, full: true },
  { row: 6, workload: 'gap', figure: /^largest gap/, of: own, most: 250 * 4 / 3 },
  { row: 6, workload: 'gap', figure: /to first token, beside the stream$/, of: ratio, most: 1.15 },
  { row: 7, workload: 'decode', figure: /^a token, /, of: ratio, most: 1.0 },
  { row: 8, workload: 'prefill', figure: /^first token of a cold prompt/, of: ratio, most: 1.0 },
  { row: 8, workload: 'cache', figure: /^(time to first token, cold|another chat, same system prompt)$/, of: ratio, most: 1.0 },
  { row: 9, workload: 'mixed', figure: /^first token of a short request/, of: ratio, most: 0.3 },
  { row: 10, workload: 'hybrid', figure: /^tokens computed, (a turn further|the question edited|another chat)$/, of: ratio, most: 0.1 },
  { row: 10, workload: 'hybrid_agents', figure: /: tokens computed$/, of: ratio, most: 0.1 },
  { row: 11, workload: 'stored', figure: /^tokens a second: cells stored/, of: own, least: 0.98 },
  { row: 11, workload: 'stored', figure: /^99th percentile of the gaps: cells stored/, of: own, most: 1.05 },
  { row: 12, workload: 'adapters', figure: /^until all have their replies,/, of: ratio, most: 0.8 },
  { row: 12, workload: 'constrained', figure: /^a schema of 30 fields: time$/, of: ratio, most: 1.0 },
  { row: 12, workload: 'constrained', figure: /^tools and a long reply: time$/, of: ratio, most: 0.5 },
  { row: 13, workload: 'connections', figure: /^memory of a connection$/, of: own, most: 64 },
  { row: 13, workload: 'connections', figure: /^CPU while nothing happens$/, of: own, most: 0.05 }, // 0 %, measured
  { row: 13, workload: 'connections', figure: /^added to the time of a token$/, of: own, most: 50 },
  { row: 15, workload: 'media', figure: /^(second|third) turn: time to first token$/, of: ratio, most: 1.0 },
  { row: 15, workload: 'media', figure: /^six agents, one image: time to first token$/, of: ratio, most: 0.5 },
  { row: 15, workload: 'media', figure: /^six agents, one image: encoded$/, of: own, most: 1 },
  { row: 15, workload: 'media', figure: /^largest gap of a stream beside an image$/, of: ratio, most: 0.5 },
  { row: 16, workload: 'remote', figure: /^(time to first token, cold|another chat, same system prompt|a turn further)$/, of: ratio, most: 1.0 },
  { row: 14, workload: 'ready', figure: /^(start to ready|peak memory)$/, of: ratio, most: 1.0 },
];

// ---- Numbers ----

const known = (values) => values.filter(Number.isFinite);
const median = (values) => {
  const sorted = known(values).sort((a, b) => a - b);
  if (sorted.length === 0) return NaN;
  return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.ceil((sorted.length - 1) / 2)]) / 2;
};
const summary = (values) => ({ median: median(values), least: Math.min(...known(values)), greatest: Math.max(...known(values)), values });

const digits = (value) => {
  if (!Number.isFinite(value)) return '–';
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en');
  return value.toFixed(Math.abs(value) < 0.1 && value !== 0 ? 3 : 2);
};
const withRange = ({ median: middle, least, greatest, values }) =>
  (known(values).length < 2 || digits(least) === digits(greatest) ? digits(middle) : `${digits(middle)} (${digits(least)} … ${digits(greatest)})`);

// ---- Figures ----
// {workload, name, unit, hearth, peer, ratio}, each of the last three a summary over the pairs; peer and ratio are
// undefined where llama-server did not run.

function ratioOf(name, mine, peer) {
  if (!mine || !peer) return NaN;
  if (!name.endsWith('turn by turn')) return median(mine.rounds) / median(peer.rounds);
  return median(mine.rounds.map((value, i) => value / peer.rounds[i]));
}

function figuresOf(workload, runs) {
  const sides = (side) => runs.filter((run) => run.side === side).sort((a, b) => a.pair - b.pair);
  const [mine, peers] = [sides('hearth'), sides('llama-server')];
  const find = (run, name) => run?.report?.figures.find((figure) => figure.name === name);
  const memory = (run) => (run?.peak_kib ? run.peak_kib / 1024 : NaN);
  const names = new Map(mine.flatMap((run) => (run.report?.figures ?? []).map(({ name, unit }) => [name, unit])));
  const make = (name, unit, value, ratioOfPair) => {
    const peer = peers.length > 0 ? summary(peers.map(value)) : undefined;
    const pairs = mine.map((run) => [run, peers.find(({ pair }) => pair === run.pair)]);
    return { workload, name, unit, hearth: summary(mine.map(value)), peer, ratio: peer && summary(pairs.map(ratioOfPair)) };
  };
  const figures = [...names].map(([name, unit]) => make(name, unit, (run) => median(find(run, name)?.rounds ?? []),
    ([run, peer]) => ratioOf(name, find(run, name), find(peer, name))));
  if (mine.some((run) => run.peak_kib)) {
    figures.push(make('peak memory of the server', 'MiB', memory, ([run, peer]) => memory(run) / memory(peer)));
  }
  return figures;
}

// ---- Goals and what became of them ----
// {goal, figure, value, relative, met}: relative is 1 at the goal and less where it is surpassed.

function resultsOf(figures, size) {
  return goals.flatMap((goal) => figures.filter(({ workload, name }) => workload === goal.workload && goal.figure.test(name))
    .map((figure) => {
      const value = goal.of === ratio ? figure.ratio : figure.hearth;
      const middle = value?.median ?? NaN;
      const holds = size === 'full' || !goal.full;
      const relative = goal.least ? goal.least / middle : middle / goal.most;
      return { goal, figure, value, relative, met: holds && Number.isFinite(relative) ? relative <= 1 : undefined };
    }));
}

const limit = ({ most, least, full, of }, unit) =>
  `${least ? `≥ ${digits(least)}` : `≤ ${digits(most)}`}${of === own && unit ? ` ${unit}` : ''}${full ? ', full run' : ''}`;
const verdict = (met) => (met === undefined ? '–' : met ? 'yes' : '**no**');
const quantity = (value, unit) => (value ? `${withRange(value)}${unit ? ` ${unit}` : ''}` : '–');

// ---- The table ----

function markdown(head, rows) {
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

function tables({ results, figures, missing, checks, failed }) {
  const goalRows = results.map(({ goal, figure, met }) => [goal.row, figure.workload, figure.name, quantity(figure.hearth, figure.unit),
    quantity(figure.peer, figure.unit), figure.ratio ? withRange(figure.ratio) : '–', `${limit(goal, figure.unit)}`, verdict(met)]);
  const others = figures.filter((figure) => !results.some((result) => result.figure === figure))
    .map((figure) => [figure.workload, figure.name, quantity(figure.hearth, figure.unit), quantity(figure.peer, figure.unit),
      figure.ratio ? withRange(figure.ratio) : '–']);
  const parts = [];
  if (goalRows.length > 0) parts.push(markdown(['row', 'workload', 'figure', 'hearth', 'llama-server', 'ratio', 'goal', 'met'], goalRows));
  if (others.length > 0) parts.push(markdown(['workload', 'figure without a goal', 'hearth', 'llama-server', 'ratio'], others));
  for (const goal of missing) parts.push(`Row ${goal.row}: ${goal.workload} has no figure ${goal.figure}.`);
  for (const { workload, side, pair } of failed) parts.push(`${workload}, ${side}, pair ${pair}: could not be run.`);
  for (const { workload, pair, text } of checks) parts.push(`${workload}, pair ${pair}: DOES NOT HOLD: ${text}`);
  return parts.join('\n\n');
}

// ---- The picture ----
// A bar for each goal, as long as the result is by its goal, so that one line is the mark of all goals.

const escape = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);

function picture(results, title) {
  const shown = results.filter(({ met }) => met !== undefined);
  const [left, unit, most, line, top] = [470, 260, 1.6, 20, 58];
  const [width, height] = [left + unit * most + 210, top + line * shown.length + 16];
  const style = `text { font: 12px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600; font-size: 15px }
    .back { fill: #ffffff } .met { fill: #2a7f62 } .missed { fill: #c2502e } .mark { stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 4 3 }
    .range { stroke: #57606a; stroke-width: 1.5 } .faint { fill: #57606a }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .back { fill: #0d1117 } .met { fill: #3fb68b } .missed { fill: #f0825a }
    .mark { stroke: #e6edf3 } .range { stroke: #9198a1 } .faint { fill: #9198a1 } }`;
  const at = (relative) => left + unit * Math.max(0, Math.min(Number.isNaN(relative) ? 0 : relative, most));
  const bars = shown.map(({ goal, figure, value, relative, met }, i) => {
    const y = top + i * line;
    const ends = [value.least, value.greatest].map((end) => at(goal.least ? goal.least / end : end / goal.most));
    const label = `${digits(value.median)}${goal.of === own && figure.unit ? ` ${figure.unit}` : ''}, goal ${limit(goal, figure.unit)}`;
    return `<text x="${left - 8}" y="${y + 12}" text-anchor="end">${escape(`${goal.row}  ${figure.workload}: ${figure.name}`.slice(0, 72))}</text>
  <rect class="${met ? 'met' : 'missed'}" x="${left}" y="${y + 2}" width="${(at(relative) - left).toFixed(1)}" height="${line - 7}"/>
  <line class="range" x1="${Math.min(...ends).toFixed(1)}" x2="${Math.max(...ends).toFixed(1)}" y1="${y + 8.5}" y2="${y + 8.5}"/>
  <text class="faint" x="${left + unit * most + 8}" y="${y + 12}">${escape(label)}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escape(title)}">
  <style>${style}</style>
  <rect class="back" width="${width}" height="${height}"/>
  <text class="title" x="12" y="22">${escape(title)}</text>
  <text class="faint" x="12" y="42">Each bar: the result by its goal, median and range of the pairs. Bars that pass the line miss their goal.</text>
  ${bars.join('\n  ')}
  <line class="mark" x1="${at(1)}" x2="${at(1)}" y1="${top - 6}" y2="${height - 12}"/>
</svg>
`;
}

// ---- All of it ----

const [size, threads, runsFile, folder] = process.argv.slice(2);
const runs = readFileSync(runsFile, 'utf8').split('\n').filter(Boolean).map((text) => JSON.parse(text));
const workloads = [...new Set(runs.map(({ workload }) => workload))];
const figures = workloads.flatMap((workload) => figuresOf(workload, runs.filter((run) => run.workload === workload)));
const results = resultsOf(figures, size);
const missing = goals.filter((goal) => workloads.includes(goal.workload) && !results.some((result) => result.goal === goal));
const failed = runs.filter(({ report }) => report === null);
const checks = runs.filter(({ side }) => side === 'hearth').flatMap(({ workload, pair, report }) =>
  (report?.checks ?? []).filter(({ holds }) => !holds).map(({ text }) => ({ workload, pair, text })));
const judged = results.filter(({ met }) => met !== undefined);
const pairs = Math.max(...runs.map(({ pair }) => pair));
const machine = { cpu: cpus()[0].model, cores: cpus().length, linux: release(), threads: Number(threads) };
const title = `hearth and llama-server, ${size} run: ${judged.filter(({ met }) => met).length} of ${judged.length} goals met`;

console.log(tables({ results, figures, missing, checks, failed }));
console.log(`\n${title}. ${pairs} pairs, ${threads} threads, f16 KV; ${machine.cores} cores, ${machine.cpu}.`);
writeFileSync(join(folder, 'bench.json'), `${JSON.stringify({ size, pairs, machine, figures, runs,
  goals: results.map(({ goal, figure, value, met }) => ({ row: goal.row, workload: figure.workload, figure: figure.name, of: goal.of,
    most: goal.most, least: goal.least, result: value?.median, met })) }, null, 1)}\n`);
writeFileSync(join(folder, 'bench.svg'), picture(results, title));
