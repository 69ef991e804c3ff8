// Compares what the engine does in the scenario of bench/counts.c with bench/baseline.json: `make bench-check`.
//
//   node bench/check.mjs           ends with 1 where a count differs
//   node bench/check.mjs --write   makes the baseline anew, for a change that is meant to change counts
//
// Counts have to be the same: nothing in the scenario depends on time or on the machine. Instructions are those of
// hearth's own code on the engine's thread, by callgrind, compared where the compiler is the baseline's. They depend on
// how often the savers wake an engine that has nothing to compute: by half a percent on one machine, by 6 % between two.
// So the limit is a wide one, for what grows with the wrong thing.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const build = resolve(process.env.HEARTH_BUILD ?? join(here, '..', 'build'));
const baselineFile = join(here, 'baseline.json');
const mostInstructions = 1.25; // of the baseline's

// ---- Instructions ----

// What a thread of the engine spends in files of src/, itself: not in libraries, whose versions differ from machine to
// machine, and not in the fakes. Of other threads none. The format is callgrind's: (number) stands for a name that was
// given before; the line behind a call has what the call cost, and counts where it was spent.
const source = `${join(here, '..', 'src')}/`;

function engineInstructions(text) {
  const names = new Map();
  const resolveName = (reference) => {
    const [, number, name] = /^\((\d+)\)(?: (.*))?$/.exec(reference);
    if (name !== undefined) names.set(number, name);
    return names.get(number);
  };
  let current = ''; // the file of the line, which may have been inlined
  let isCall = false;
  let isEngine = false; // it alone runs ticks
  let sum = 0;
  for (const line of text.split('\n')) {
    const [, key, value] = /^(fl|fi|fe|cfi|cfl)=(.*)$/.exec(line) ?? [];
    if (key) {
      const name = resolveName(value);
      if (!key.startsWith('c')) current = resolve(build, name); // some compilers are told relative paths
    }
    if (line.startsWith('calls=')) isCall = true;
    const [, cost] = /^[+*\-\d]\S* (\d+)$/.exec(line) ?? [];
    if (cost === undefined) continue;
    if (!isCall && current.startsWith(source)) sum += Number(cost);
    isEngine ||= !isCall && current === `${source}engine/tick.c`;
    isCall = false;
  }
  return isEngine ? sum : 0;
}

// What a program says of its version, without its name, which may be that of a link. Undefined: it is not there.
const version = (command) => {
  try {
    const [line] = execFileSync(command, ['--version'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split('\n');
    return line.replace(/^\S+ /, '');
  } catch {
    return undefined;
  }
};

// ---- One run ----

function measure() {
  const program = join(build, 'bin', 'hearth_bench_counts');
  const run = (command, args) => JSON.parse(execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }));
  const [, compiler] = /^CMAKE_C_COMPILER:\w+=(.*)$/m.exec(readFileSync(join(build, 'CMakeCache.txt'), 'utf8'));
  if (version('valgrind') === undefined) return { counts: run(program, []), compiler: version(compiler) };
  const folder = mkdtempSync(join(tmpdir(), 'hearth-bench-'));
  const counts = run('valgrind', ['--quiet', '--tool=callgrind', '--separate-threads=yes',
    `--callgrind-out-file=${join(folder, 'out')}`, program]);
  const texts = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8'));
  rmSync(folder, { recursive: true });
  return { counts, compiler: version(compiler), instructions: texts.reduce((sum, text) => sum + engineInstructions(text), 0) };
}

// ---- The comparison ----

function differences(baseline, now) {
  const names = [...new Set([...Object.keys(baseline.counts), ...Object.keys(now.counts)])];
  const found = names.filter((name) => baseline.counts[name] !== now.counts[name])
    .map((name) => `${name}: ${now.counts[name] ?? 'not counted'}, the baseline has ${baseline.counts[name] ?? 'none'}`);
  const factor = now.instructions / baseline.instructions;
  if (now.instructions === undefined) console.log('instructions are not compared: there is no valgrind');
  else if (now.compiler !== baseline.compiler) console.log(`instructions are not compared: the baseline is of ${baseline.compiler}`);
  else if (now.instructions === 0) found.push('no instruction of the engine is known: its files are built without -g');
  else if (factor > mostInstructions) found.push(`instructions of the engine: ${now.instructions}, ${factor.toFixed(3)} of the baseline's ${baseline.instructions}`);
  else console.log(`instructions of the engine: ${factor.toFixed(3)} of the baseline's`);
  return found;
}

const now = measure();
if (process.argv[2] === '--write') {
  writeFileSync(baselineFile, `${JSON.stringify(now, null, 2)}\n`);
} else {
  const found = differences(JSON.parse(readFileSync(baselineFile, 'utf8')), now);
  for (const line of found) console.log(line);
  if (found.length > 0) console.log('If that is what the change is for: node bench/check.mjs --write, and say why in the commit.');
  else console.log(`${Object.keys(now.counts).length} counts are those of bench/baseline.json`);
  process.exitCode = found.length > 0 ? 1 : 0;
}
