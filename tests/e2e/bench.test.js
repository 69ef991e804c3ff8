// What bench/compare.mjs makes of runs: ratios pair by pair, goals that are met and goals that are missed. No server runs.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { source } from './lib/models.js';
import { temporaryFolder } from './lib/server.js';

const program = join(source, 'bench', 'compare.mjs');

// A run of a workload: figures are {name: rounds}.
const run = (workload, side, pair, figures, more = {}) => ({ workload, side, pair, peak_kib: 0, ...more,
  report: figures && { workload, figures: Object.entries(figures).map(([name, rounds]) => ({ name, unit: 'ms', rounds })), checks: more.checks ?? [] } });

function compare(runs, size = 'full') {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'runs.jsonl'), runs.map((one) => `${JSON.stringify(one)}\n`).join(''));
  const table = execFileSync(process.execPath, [program, size, '2', join(folder, 'runs.jsonl'), folder], { encoding: 'utf8' });
  return { table, json: JSON.parse(readFileSync(join(folder, 'bench.json'), 'utf8')), svg: readFileSync(join(folder, 'bench.svg'), 'utf8') };
}

const line = (table, name) => table.split('\n').find((text) => text.includes(`| ${name} |`));

test('a ratio is made of each pair, and the median of the pairs is shown with its range', () => {
  const name = 'first token of a cold prompt of 512 tokens';
  const runs = [[10, 20], [30, 40], [90, 60]].flatMap(([mine, peer], i) => [
    run('prefill', 'hearth', i + 1, { [name]: [mine] }), run('prefill', 'llama-server', i + 1, { [name]: [peer] })]);
  const { table, json } = compare(runs);
  assert.match(line(table, name), /\| 30\.00 \(10\.00 … 90\.00\) ms \| 40\.00 \(20\.00 … 60\.00\) ms \| 0\.75 \(0\.50 … 1\.50\) \| ≤ 1\.00 \| yes \|/);
  assert.deepEqual(json.figures[0].ratio.values, [0.5, 0.75, 1.5]);
});

test('hearth can lose: a goal that is missed is said so, in the table, the JSON and the picture', () => {
  const name = 'first token of a short request, p50';
  const { table, json, svg } = compare([run('mixed', 'hearth', 1, { [name]: [40] }), run('mixed', 'llama-server', 1, { [name]: [100] })]);
  assert.match(line(table, name), /\*\*no\*\*/);
  assert.match(table, /0 of 1 goals met/);
  assert.equal(json.goals[0].met, false);
  assert.match(svg, /class="missed"/);
});

test('a goal of at least so much is missed below it', () => {
  const name = 'tokens a second: cells stored / not';
  for (const [value, met] of [[0.97, false], [0.99, true]]) {
    assert.equal(compare([run('stored', 'hearth', 1, { [name]: [value] })]).json.goals[0].met, met);
  }
});

test('turns are compared one by one', () => {
  const name = 'first token, turn by turn';
  const { json } = compare([run('conversation', 'hearth', 1, { [name]: [1, 50, 300] }), run('conversation', 'llama-server', 1, { [name]: [2, 100, 100] })]);
  assert.deepEqual(json.figures[0].ratio.values, [0.5]);
});

test('goals that are meant for long prompts are judged in a full run alone', () => {
  const name = 'first token after KILL and a restart';
  const runs = [run('restart', 'hearth', 1, { [name]: [5] }), run('restart', 'llama-server', 1, { [name]: [100] })];
  assert.equal(compare(runs, 'short').json.goals[0].met, undefined);
  assert.equal(compare(runs).json.goals[0].met, false);
});

test('what could not be run, has no figure or does not hold is in the table', () => {
  const { table } = compare([run('gap', 'hearth', 1, { 'median gap': [1] }, { checks: [{ text: 'it is short', holds: false }] }),
    run('gap', 'llama-server', 1, null)]);
  assert.match(table, /gap, llama-server, pair 1: could not be run/);
  assert.match(table, /Row 6: gap has no figure/);
  assert.match(table, /DOES NOT HOLD: it is short/);
});

test('peak memory of both servers is a figure of every workload', () => {
  const { json } = compare([run('decode', 'hearth', 1, {}, { peak_kib: 2048 }), run('decode', 'llama-server', 1, {}, { peak_kib: 4096 })]);
  assert.equal(json.figures[0].name, 'peak memory of the server');
  assert.deepEqual([json.figures[0].hearth.median, json.figures[0].ratio.median], [2, 0.5]);
});

test('every workload with a goal is one that the runner has', () => {
  const runner = readFileSync(join(source, 'bench', 'run.sh'), 'utf8');
  const named = [...readFileSync(program, 'utf8').matchAll(/workload: '(\w+)'/g)].map(([, name]) => name);
  assert.ok(named.length > 20);
  for (const name of named) assert.match(runner, new RegExp(`^run_${name}\\(\\)`, 'm'));
});
