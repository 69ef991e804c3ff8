// Model files for the tests: the demo model of the source tree, and random-weight models made by hearth-mkmodel.
// Made files lie in the build folder, keyed by their arguments, by the files that these name and by the program that made
// them, so that the suites of one run (and of the next) share them.

import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
export const source = resolve(process.env.HEARTH_SOURCE ?? join(here, '..', '..', '..'));
export const build = resolve(process.env.HEARTH_BUILD ?? join(source, 'build'));
export const hearth = join(build, 'bin', 'hearth');
export const mkmodel = join(build, 'bin', 'hearth-mkmodel');
export const demo = join(source, 'models', 'demo.gguf');

process.env.HEARTH_CONFIG = ''; // no configuration of this machine counts; a test may name one

const small = {
  layers: 4, embd: 128, heads: 4, 'kv-heads': 2, 'head-dim': 32, ff: 256, ctx: 8192, seed: 7, type: 'f32',
};

// 40 million weights, 160 MB: slow enough to be seen loading, prefilling and generating.
const large = {
  layers: 4, embd: 768, heads: 12, 'kv-heads': 4, 'head-dim': 64, ff: 3072, ctx: 16384, seed: 9, type: 'f32',
};

function make(shape, options) {
  const settings = { vocab: demo, ...shape, ...options };
  const given = Object.entries(settings).filter(([, value]) => value !== undefined);
  const args = given.flatMap(([key, value]) => [`--${key}`, String(value)]);
  const hash = createHash('sha256').update(readFileSync(mkmodel));
  for (const [name, value] of given) {
    hash.update(`${name} `).update(name === 'template' || value === demo ? readFileSync(value) : `${value} `);
  }
  const key = hash.digest('hex').slice(0, 16);
  const folder = join(build, 'test-models');
  const path = join(folder, `${settings.arch}-${key}.gguf`);
  if (!existsSync(path)) {
    mkdirSync(folder, { recursive: true });
    const unfinished = `${path}.${process.pid}`;
    execFileSync(mkmodel, [...args, '-o', unfinished], { stdio: ['ignore', 'ignore', 'inherit'] });
    renameSync(unfinished, path);
  }
  return path;
}

// A random-weight model of an architecture, with the demo model's tokenizer; `options` are hearth-mkmodel's, undefined
// for one to leave out.
// Options of an architecture that has recurrent states alone.
export const noAttention = { heads: undefined, 'kv-heads': undefined, 'head-dim': undefined, ff: undefined };
export const smallModel = (arch, options) => make({ arch, ...small }, options);
// One with a tokenizer that has no chat template, but a begin marker.
export const bareModel = () => smallModel('llama', { vocab: 'llama-spm', embd: 32, heads: 1, 'kv-heads': 1 });

export const largeModel = () => make({ arch: 'llama', ...large });

// A projector for the model, with random weights: what it makes of an image or a sound depends on every pixel or sample.
export function projectorFor(model, kind) {
  const hash = createHash('sha256').update(readFileSync(mkmodel)).update(readFileSync(model)).update(kind);
  const folder = join(build, 'test-models');
  const path = join(folder, `mmproj-${kind}-${hash.digest('hex').slice(0, 16)}.gguf`);
  if (!existsSync(path)) {
    mkdirSync(folder, { recursive: true });
    const unfinished = `${path}.${process.pid}`;
    execFileSync(mkmodel, ['--mmproj', kind, '--for', model, '-o', unfinished], { stdio: ['ignore', 'ignore', 'inherit'] });
    renameSync(unfinished, path);
  }
  return path;
}
